"""Runs that step by K gradients."""

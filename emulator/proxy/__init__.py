"""Emulated links in front of any TCP program, without root."""

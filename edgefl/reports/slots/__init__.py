"""Runs on a TDMA channel whose slots the strategy gives out."""

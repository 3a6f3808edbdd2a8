"""Smaller updates: one file per method.

compressor  what a method is, and the error that a sender keeps. Start here
packing     packs the vectors of messages, on both sides
"""

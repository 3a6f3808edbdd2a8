"""Smaller updates: a file per method. See ``edgefl.compression.compressor``."""

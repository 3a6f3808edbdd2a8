"""Writes the reference pages from the code: config keys, plug-ins, command line."""

"""Writes the reference pages from the code: config keys, catalogs, command line."""

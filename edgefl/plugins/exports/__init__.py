"""Runs in the formats of other tools. The folder is the registry: one file, one format."""

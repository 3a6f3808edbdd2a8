"""Data sets: one per file, with ``load(directory)``. The folder is the registry."""

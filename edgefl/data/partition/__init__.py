"""Partitions: one per file, with ``Options`` and ``split(labels, edges, options, rng)``.

The folder is the registry.
"""

"""One partitioner per file: ``Options`` and ``split(labels, edges, options, rng)``. The folder
is the registry.
"""

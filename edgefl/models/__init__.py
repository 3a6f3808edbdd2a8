"""Models: one per file, with ``Options`` and ``build(options, shape, classes)``.

The folder is the registry.
"""

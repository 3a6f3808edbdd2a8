"""One model per file: ``Options`` and ``build(options, shape, classes)``. The folder is the
registry.
"""

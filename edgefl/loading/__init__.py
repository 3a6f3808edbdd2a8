"""From a file and the command line to an ``Experiment``.

This resolves names of strategies, so it is above them in the layers.
"""

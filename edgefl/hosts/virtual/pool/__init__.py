"""Engines of the virtual clock: they train in this process, in forked workers, or on a Ray cluster,
with the same bytes as result.
"""

"""Engines of the virtual clock: they train in this process, in forked workers or on Ray.

All give the same bytes.
"""

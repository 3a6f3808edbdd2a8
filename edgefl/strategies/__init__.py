"""Strategies: one file per algorithm, with its server side and its edge side.

The folder is the registry: every file in it is a strategy.
"""

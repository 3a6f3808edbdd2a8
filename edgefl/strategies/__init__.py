"""Algorithms: one file each, server half and edge half. The folder is the registry, and holds
nothing else.
"""

"""Algorithms: one file each, server half and edge half; the folder is the registry."""

"""Emulated links, slots and devices under one clock. Knows nothing of federated learning; usable
alone.
"""

"""Handwritten digits, PyTorch and Flower."""

"""Handwritten digits, numpy and Flower."""

"""A testbed that measures federated-learning schemes on the wall clock, over a real network."""

__version__ = "0.1.0"

"""Runs whose server distils predictions."""

"""Runs whose devices ask for fresher models in mid-training."""

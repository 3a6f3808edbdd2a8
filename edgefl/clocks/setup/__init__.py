"""Build the parts of a run from an experiment; both hosts use them."""

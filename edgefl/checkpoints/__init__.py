"""Checkpoints: the whole state of a run at one moment, as JSON and arrays, and their files."""

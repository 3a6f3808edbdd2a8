"""Checkpoints: the whole state of a run at one moment, as a pickle and arrays, and their files."""

"""The schema of an experiment file, one file per family of sections, and its error messages."""

"""One sampler per file, found by its name."""

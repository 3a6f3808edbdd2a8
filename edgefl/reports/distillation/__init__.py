"""Reports about runs whose server distils predictions."""

"""One data set per file: ``load(directory)``. The folder is the registry."""

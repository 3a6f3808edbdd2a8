"""One file per subject, which binds ``ENTRIES``: a tuple of entries. The folder is the registry."""

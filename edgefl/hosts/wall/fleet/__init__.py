"""Edge processes of this machine, forked from a warm parent."""

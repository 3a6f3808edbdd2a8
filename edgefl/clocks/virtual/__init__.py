"""The virtual-clock host: a whole run in one thread, with training on one or more workers."""

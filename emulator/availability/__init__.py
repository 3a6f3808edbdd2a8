"""When devices are there: recorded intervals, and random or regular patterns."""

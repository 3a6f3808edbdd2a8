"""The coordinator's I/O-free half: open tasks, sessions, and what is kept on record."""

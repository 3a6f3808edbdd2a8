"""The live page: a server in a process of its own that follows run directories."""

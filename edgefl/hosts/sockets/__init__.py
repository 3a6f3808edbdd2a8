"""The socket host: a coordinator process with a pacing and a logic thread, and edge processes, over ZeroMQ."""

"""The wall-clock host: a coordinator process, edge processes and a warm parent.

Coordinator and edges communicate over ZeroMQ sockets.
"""

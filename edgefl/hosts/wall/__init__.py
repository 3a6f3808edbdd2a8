"""The host on the wall clock: a coordinator process, edge processes and a warm parent, over
ZeroMQ sockets.
"""

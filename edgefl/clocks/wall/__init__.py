"""Runs on the wall clock: a coordinator process, edge processes and a warm parent.

Coordinator and edges communicate over ZeroMQ sockets. ::

    launcher         starts a run and watches it: start here
    fleet            the warm parent: forks edges and workers, decides which edge may train
    speed_check      whether this host is fast enough
    coordinator/     the coordinator's process
    edge/            an edge's process
    wire, connections, keys    the sockets, who may use them, who is who
    system           time, threads, sockets and disk, which a simulated machine can replace
"""

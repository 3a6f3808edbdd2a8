"""The wall-clock host: a coordinator process, edge processes and a warm parent.

Coordinator and edges communicate over ZeroMQ sockets. ::

    launcher         starts a run and watches it: start here
    run_processes    its processes, which load while the experiment is read
    fleet            the warm parent: forks edges and workers, decides which edge may train
    speed_check      whether this host is fast enough
    coordinator/     the coordinator's process
    edge/            an edge's process
    wire, connections, keys, discovery    the sockets, who may use them, how edges find them
    system           time, threads, sockets and disk, which a simulated machine can replace
"""

"""The two hosts: the only rooms that own clocks, sockets, threads and processes."""

"""The only rooms that own clocks, sockets, threads and processes: they do what the actors decide."""

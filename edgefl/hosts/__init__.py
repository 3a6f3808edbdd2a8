"""The two hosts. Only this package uses clocks, sockets, threads and processes."""

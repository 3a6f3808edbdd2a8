"""The parts that run on a device: the edge and its trainer."""

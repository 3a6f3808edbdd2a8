"""What runs on a device: the edge and its trainer."""

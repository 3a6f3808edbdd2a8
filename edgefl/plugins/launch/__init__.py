"""Runs on many machines: the inventory of hosts, connections to them, and what is done there."""

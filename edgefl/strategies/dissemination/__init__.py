"""Shared parts of FedASMU and FedSSMU: learned weights, refresh points, merging on devices."""

"""What strategies build on: events, decisions, base classes and the catalog.

There are base classes for rounds, asynchronous updates, buffers, gradients and TDMA slots.
"""

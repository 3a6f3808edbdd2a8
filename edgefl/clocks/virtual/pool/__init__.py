"""Engines of the virtual clock: they train in this process, in forked workers or on Ray.

All give the same bytes. Start here: ``engine`` has their interface, and opens one.

- ``executor``: a task that is described first and trained later
- ``merged``: tasks that are trained together in one call of torch
- ``workers``: which worker does what, and the forked ones; ``ray``: those of a cluster
"""

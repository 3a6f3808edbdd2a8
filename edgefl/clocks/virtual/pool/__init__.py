"""Engines of the virtual clock: they train in this process, in forked workers or on Ray.

All give the same bytes. ``run_batch`` opens one.

- ``engine``: a task that is described first and trained later; the interface of engines, and the
  one that trains in this process. Start here
- ``merged``: tasks that are trained together in one call of torch
- ``workers``: which worker does what, and the forked ones; ``ray``: those of a cluster
"""

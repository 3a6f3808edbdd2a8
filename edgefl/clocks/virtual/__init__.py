"""Runs under the virtual clock: the next event is taken, and time jumps to its moment.

Start here: ``run`` runs one strategy, with checkpoints to go on from; ``run_batch`` runs many.

- ``host``: carries out what the actors decide, at its emulated moment
- ``pool``: who trains: this process, its forks, or a Ray cluster
"""

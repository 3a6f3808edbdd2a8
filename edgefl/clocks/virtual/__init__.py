"""Runs under the virtual clock: the next event is taken, and time jumps to its moment.

Start here: ``run`` carries out what the actors of one strategy decide, each at its emulated moment,
with checkpoints to go on from; ``run_batch`` runs many.

- ``pool``: who trains: this process, its forks, or a Ray cluster
"""

"""Many settings of one experiment: what is tried, what was run before, and which is best.

``Sweep`` does all of it. A program that tunes methods uses the parts: ``GridAxis`` for what is
tried, ``SweepRun`` and ``do`` for single runs, ``best_of`` for the choice.
"""

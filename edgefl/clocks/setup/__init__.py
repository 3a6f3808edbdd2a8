"""From a checked experiment to the parts of a run, the same on both clocks and on every machine.

Start here: ``plan`` builds the strategy and the deadlines of tasks.

- ``plan``: what needs no torch; ``network``: the links of the edges, how fast their devices train,
  and what interrupts both
- ``learning``: data, model, trainers and evaluation of one process
- ``rundir``: the directory of one run; ``resumption``: the folder of an experiment, and how its
  runs go on
"""

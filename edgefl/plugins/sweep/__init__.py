"""Many settings of one experiment: what is tried, what was run before, and which is best.

Start here: ``search.Sweep`` does all of it. A program that tunes methods uses the parts:
``GridAxis`` for what is tried, ``SweepRun`` and ``do`` for single runs, ``best_of`` for the choice.

``settings``    keys with their values (``--grid``), and the settings that they make
``search``      the runs of all settings, and the best setting of each strategy; samplers, which
                draw settings, or let optuna choose them, in place of every combination
``choice``      the numbers by which settings are compared, which is best, and the next one beyond
                an edge of the grid
``sweep_runs``  single runs: their folder, which are done, and doing the others
``outcome``     the table, CSV files and configs of what was found
``command``     ``edgefl sweep``
"""

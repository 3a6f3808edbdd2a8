"""From Python: what a script or a notebook does with experiments and runs. Start with ``runs``.

runs     ``load`` and ``Runs``: frames, comparisons, figures, reports, weights
"""

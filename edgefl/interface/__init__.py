"""From Python: what a script or a notebook does with experiments and runs. Start with ``running``.

running  ``run``, ``sweep``, ``check``: experiments from a file, a dict or typed objects
runs     ``load`` and ``Runs``: frames, comparisons, figures, reports, weights
"""

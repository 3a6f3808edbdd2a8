"""Reports about runs, beyond the comparison.

Each folder with a ``report.py`` is a family, found by its place. ``report.py`` binds an
``edgefl.reports.family.Family`` to the name ``FAMILY``.
"""

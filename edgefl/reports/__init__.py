"""What is reported of runs beyond the comparison. A folder is a family, and the folder is the
registry: its ``report.py`` binds a ``edgefl.reports.family.Family`` to the name ``FAMILY``.
"""

"""Reports about runs, beyond the comparison.

Each file that binds a ``Family`` (``family.py``) to the name ``FAMILY`` is a family of reports.
"""

"""The papers' tables and figures as studies that anyone can repeat: ``reproduce.py`` runs them.

A file in ``entries/`` binds ``ENTRIES``. ``runner`` makes runs of an entry, ``results`` reads what
they left, ``rules`` decides whether a claim holds, and ``pages`` writes docs/results.
"""

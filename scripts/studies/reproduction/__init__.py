"""The papers' tables and figures as studies that anyone can repeat: ``reproduce.py`` runs them.

- ``papers``: a file per paper with its entries, as data. Start here.
- ``entry``: what an entry is; ``registry``: how the files are read.
- ``plans``: from a part of an entry to its configs and runs; ``runner`` does them.
- ``results``: what runs have left, in memory and in CSV files; ``measures``: more numbers of a run.
- ``judges``: from a claim to a verdict, by ``rules`` and the rules of single papers.
- ``figures``: curves, and the lines of ``drawings``.
- ``dissemination``, ``tdma``: rules and drawings of one paper each.
- ``book``: all results; ``pages`` writes docs/results from it.
"""

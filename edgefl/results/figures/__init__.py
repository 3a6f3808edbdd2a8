"""The figures of runs, one file per kind: its numbers (a table) and its drawing."""

"""The files that a run writes while it runs: rows, journal, counters; and journal replay."""

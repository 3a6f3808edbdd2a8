"""What a run writes while it runs: rows, journal, counters; and the replay of a journal."""

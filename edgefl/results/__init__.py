"""What a run left behind, or is leaving right now: tables, figures and the live display. Reads
files, never a run's memory.
"""

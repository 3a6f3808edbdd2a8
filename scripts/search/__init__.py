"""The parts of ``scripts/fault_search.py``: a simulated machine, and faults that strike it."""

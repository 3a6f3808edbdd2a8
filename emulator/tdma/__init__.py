"""TDMA channels: slots, their allocation, closed forms, and a reference simulation."""

"""TDMA channels: slots, who has which, closed forms, and a reference simulation."""

"""Accuracy label by label, and by the runtime classes of the devices."""

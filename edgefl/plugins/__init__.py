"""What builds on runs and is found by entry points; nothing of the core imports it."""

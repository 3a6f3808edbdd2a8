"""Reports about runs with native links or devices: what the real ones did."""

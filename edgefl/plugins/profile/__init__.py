"""From what a run measured of its native links and devices to an experiment that emulates them."""

"""What a run costs in joules: the power of devices and radios, and the sum over emulated time."""

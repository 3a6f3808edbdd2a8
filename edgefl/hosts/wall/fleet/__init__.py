"""Where edge processes come from: forked on this machine from a warm parent."""

"""An edge process: one thread for the socket, one for training."""

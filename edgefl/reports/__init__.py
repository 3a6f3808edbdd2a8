"""What families of schemes add to a run's results: one folder a family."""

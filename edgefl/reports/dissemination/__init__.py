"""Reports about runs whose devices ask for fresher models during training."""

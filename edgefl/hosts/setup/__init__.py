"""From an experiment to the parts that both hosts need."""

"""Links: capacity, delay and a queue in each direction, and the bottlenecks that links share."""

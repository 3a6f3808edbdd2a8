"""Links with a queue, a capacity and a delay in each direction, and shared bottlenecks."""

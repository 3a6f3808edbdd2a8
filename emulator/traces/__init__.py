"""Published traces of links: where they are, and how each format becomes a rate over time."""

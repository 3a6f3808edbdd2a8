"""A laboratory in network namespaces: hosts that do not exist, and the links between them."""

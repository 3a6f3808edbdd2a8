"""Messages between coordinator and edges, their encoding, and transfers in pieces. No sockets."""

"""Messages between coordinator and edges, their encoding, and transfers in pieces. No sockets.

messages   all messages with their limits, how one update travels, and what a peer can do wrong.
           Start here
codec      their bytes; one bulk message, cut into pieces and joined again
"""

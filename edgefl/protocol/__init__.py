"""Messages between coordinator and edges, their encoding, and transfers in pieces. No sockets.

messages   all messages with their limits, and how one update travels. Start here
codec      their bytes
transfers  one bulk message, cut into pieces and joined again
errors     what a peer can do wrong
"""

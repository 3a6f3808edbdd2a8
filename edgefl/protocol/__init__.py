"""What travels between coordinator and edges: typed messages, their bytes, and whole transfers
in pieces. No socket here.
"""

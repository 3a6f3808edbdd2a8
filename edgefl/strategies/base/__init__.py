"""What an algorithm derives from: events, decisions, the frames for rounds, buffers, gradients
and slots, and the catalog.
"""

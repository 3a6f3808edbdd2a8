"""An edge process: one thread for the socket, one for training. ::

membership       one edge in run after run: start here
host             its socket and sessions
work             its part in a run: actor, transfers and training thread
transfers        downloads and uploads
state            what it keeps on disk
machine          what it reports about its host
"""

"""The coordinator's process: a pacing thread with sockets and links, a logic thread with the
actor and the record.
"""

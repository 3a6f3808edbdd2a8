"""The coordinator's process: a pacing thread with the sockets and the emulated links, and a logic
thread with the coordinator actor and the record.
"""

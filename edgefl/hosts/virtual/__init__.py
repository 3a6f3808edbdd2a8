"""The host under the virtual clock: whole runs in one thread, their training on one or more
workers.
"""

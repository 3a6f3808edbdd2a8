"""Checkpoints: the whole state of a run at one moment, as a pickle and arrays, and their files.

codec  a graph of objects as a pickle and arrays, the restricted reader, and the classes and methods
       that a checkpoint may name. Start here
files  the files of a run's checkpoints
"""

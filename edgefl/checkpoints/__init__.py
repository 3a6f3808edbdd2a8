"""Checkpoints: the whole state of a run at one moment, as a pickle and arrays, and their files.

codec    a graph of objects as a pickle and arrays, and the restricted reader. Start here
allowed  the classes and methods that a checkpoint may name
files    the files of a run's checkpoints
"""

"""The schema of an experiment file: one file a family of sections, and what is said about wrong
keys.
"""

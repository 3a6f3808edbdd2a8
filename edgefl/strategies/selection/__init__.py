"""Which idle edges get work: one file per way of selecting, with its source.

selector  what a way of selecting gets and keeps. Start here

The folder is the registry: every file in it that binds ``build`` is a selection.
"""

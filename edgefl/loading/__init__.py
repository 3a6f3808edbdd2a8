"""From a file and the command line to an Experiment. It resolves names, so it stands above the
strategies.
"""

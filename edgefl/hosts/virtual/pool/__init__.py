"""Where the virtual clock's work is done: in this process, in forked workers, or on a Ray
cluster; the results are the same bytes.
"""

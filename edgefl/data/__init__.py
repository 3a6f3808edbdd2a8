"""Data sets: one per file, with ``load(directory)``. The folder is the registry.

dataset        what ``load`` returns; a task: data, model and loss; labels; where data sets are.
               Start here
edge_data      the data of a process, the edges' shares of it, the server's unlabelled samples
partition/     how training samples are divided among edges
cache, shards  parsed data sets on disk; files for edges on other machines
download       published files, with their checksums
encoded_sets, encoding, text_tables, words  texts
cifar, idx, samples                         what several data sets share
"""

"""Data sets: one per file, with ``load(directory)``. The folder is the registry.

dataset        what ``load`` returns. Start here
edge_data      the data of a process, and the edges' shares of it
partition/     how training samples are divided among edges
cache, shards  parsed data sets on disk; files for edges on other machines
download       published files, with their checksums
unlabelled     the server's samples without labels
encoded_sets, encoding, text_tables, words, characters, labels  texts
cifar, idx, samples, paths                                      what several data sets share
"""

"""The files that a run writes while it runs.

record      all tables of a run. Start here
rows        events and decisions as plain rows; fingerprints
tables      files of whole rows, which go on in parts
journal     what the coordinator was given, and what the strategy decided; replay: a fresh strategy
            must decide the same
counters    the counters of summary.json, from the rows
energy      the modelled energy, from the rows
host_table  what edges report about their hosts
files       names and columns
"""

"""The files that a run writes while it runs.

record      all tables of a run. Start here
rows        events and decisions as plain rows; their fingerprints; the counters over them
tables      files of whole rows, which go on in parts
journal     what the coordinator was given, and what the strategy decided; replay: a fresh strategy
            must decide the same
energy      the modelled energy, from the rows
host_table  what edges report about their hosts
files       names and columns
"""

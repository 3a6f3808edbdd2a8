"""Tables, figures and the live display, from the files of finished or running runs. Start here.

read          files that grow: rows as dicts, and as columns
run_files     directories and names of runs; the files of one run
summary       the outcome of a run: scores, verdict, warnings
energy        joules by edge and over time
compare       runs as rows, strategies against a baseline; comparison.csv
differences   in what the configs of compared runs differ
statistics    intervals and paired tests over seeds
tables        comparisons on the terminal, as HTML, Markdown and LaTeX
typed_tables  all tables of a run as numpy columns, for frames and Parquet
timeline      what each edge does over time
progress      how far a run is, its pace, the live display
figures/      the figures of every run
families/     reports about families of strategies
"""

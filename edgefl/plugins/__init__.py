"""What builds on runs and is found by entry points. Nothing of the core imports it.

Start here: ``entry_points.txt`` says which commands, options and parts each plug-in has.

``launch``       runs on many machines
``sweep``        many settings of one experiment
``live``         the page and the metrics of runs while they run
``html_report``  one file about runs
``artifact``     what a reviewer of a paper needs to repeat runs
``exports``      runs in the formats of other tools
``profile``      from a native run to an experiment that emulates it
``flower``       Flower apps as tasks
``discovery``    coordinators on the local network
"""

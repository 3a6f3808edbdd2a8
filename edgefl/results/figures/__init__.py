"""The figures of runs. Start with ``base`` (what a figure is made of), then ``curves``.

base        ``Plot``, its numbers, the canvas, the user's choices, files
curves      accuracy, loss, time to the target
edges       speeds of devices, joules, samples of each label, use of the links
staleness   staleness of updates, age of models and of merged updates
timeline    what each edge does over time
gallery     all kinds of figures by name, also those of families
"""

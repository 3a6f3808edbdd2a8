"""The coordinator as an actor. It opens no file or socket; a clock drives it.

coordinator  the whole actor: events in, outputs out. Start here
tasks        open tasks with their phases and deadlines, and the alarms
checks       what edges report: limits of their numbers, faults of updates and results
"""

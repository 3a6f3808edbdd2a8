"""The coordinator as an actor. It opens no file or socket; a clock drives it.

coordinator  the whole actor: events in, outputs out; the checks of what edges report and of what
             is sent. Start here
tasks        open tasks with their phases and deadlines, and the alarms
"""

"""What strategies build on.

events_and_decisions  what a strategy gets and what it can decide. Start here
strategy              the two sides of an algorithm: ``Strategy`` and ``LocalRule``
rounds                synchronous rounds
asynchronous          one server step per update
buffered              one server step per K updates
gradients             one server step per K gradients
slotted               the slots of a TDMA channel
catalog               strategies by name

Which edges get work is chosen in ``edgefl.strategies.selection``.
"""

"""The idle edges with the last ids: a selection for tests."""

from edgefl.api import Selector


class LastFirst(Selector):
    def choose(self, idle, count, stream):
        return list(idle[len(idle) - count :])


def build():
    return LastFirst()

"""The limit of open files: coordinator and warm parent need one for each edge."""

from __future__ import annotations

import resource  # POSIX only, so no module of an edge may import this file

from edgefl.errors import UserError

FILES_PER_EDGE, FILES_SPARE = 1, 64


def room_for_edges(edges: int) -> int:
    """Raise the limit of open files as far as allowed, and return how many ``edges`` leave over.

    UserError if there are too few: at the limit libzmq would spin.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    left = hard - edges * FILES_PER_EDGE - FILES_SPARE
    if left < 0:
        raise UserError(
            f"{edges} edges need {edges * FILES_PER_EDGE + FILES_SPARE} open files, this system"
            f" allows {hard} (ulimit -n)"
        )
    return left

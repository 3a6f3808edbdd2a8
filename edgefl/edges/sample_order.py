"""Which samples a task trains on, in which order, and how many tokens its steps have. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from edgefl.edges.local_run import Course
from edgefl.edges.training_plan import batches
from edgefl.streams import Streams


def sample_order(
    streams: Streams, edge: str, task: int, members: np.ndarray, course: Course
) -> np.ndarray:
    """The indices of samples: as many shuffled passes over ``members`` as the steps need."""
    rng = streams.rng("batches", edge, task)
    batch, steps = course.batch_size, course.steps
    if course.whole_batches:
        used, passes = len(members), -(-steps * batch // len(members))
    else:
        used = course.pass_samples
        passes = -(-steps // batches(used, batch))
    return np.concatenate([rng.permutation(members)[:used] for _ in range(passes)])


def tokens_by_step(order: np.ndarray, lengths: np.ndarray, course: Course) -> Sequence[int]:
    """The tokens that are processed after 0, 1, ... steps: with padding to the longest of a batch.

    ``lengths``: tokens of each training sample, by index.
    """
    ends = [course.samples_at(step) for step in range(course.steps + 1)]
    sizes = [(end - first) * int(lengths[order[first:end]].max()) for first, end in pairwise(ends)]
    return [0, *np.cumsum(sizes, dtype=np.int64).tolist()]

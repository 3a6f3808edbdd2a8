"""Natural: an edge has the samples of one user, speaker, celebrity or film (LEAF 2018).

The data set must have such a column. Source: Caldas et al. 2018, LEAF.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import Field

from edgefl.config.section import Section
from edgefl.errors import UserError, nearest


class Options(Section):
    """``key``: the column; ``min_samples``: the least samples of a value; ``keys``: how the values
    are assigned to edges.
    """

    key: str | None = None
    """The column whose values divide the samples, such as `user`, `speaker`, `celebrity` or `film`;
    none: the only column of the data set.
    """
    min_samples: int = Field(default=1, ge=1)
    """Least number of samples of a value; values with fewer are left out."""
    keys: Literal["one", "all"] = "one"
    """How many values an edge has: `"one"`, drawn at random; or `"all"` values are assigned, the
    largest first, each to the edge with the fewest samples at that moment.
    """


def split(
    labels: np.ndarray,
    edges: int,
    options: Options,
    rng: np.random.Generator,
    columns: Mapping[str, np.ndarray],
) -> list[np.ndarray]:
    """Return sorted sample indices of each edge.

    UserError if there is no such column, if its values have no order, or for fewer values than
    edges.
    """
    name = _column(options.key, columns)
    values = columns[name]
    try:
        order = np.argsort(values, kind="stable")
    except TypeError as error:  # objects, such as texts with a None among them
        raise UserError(
            f"partition natural: the column {name!r} cannot be sorted ({error}): expected numbers"
            " or texts alone"
        ) from error
    ordered = values[order]
    groups = np.split(order, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1)
    groups = [group for group in groups if len(group) >= options.min_samples]
    if len(groups) < edges:
        enough = f" with at least {options.min_samples} samples" if options.min_samples > 1 else ""
        raise UserError(
            f"partition natural: {edges} edges need as many keys {name!r}{enough}, there are"
            f" {len(groups)}"
        )
    if options.keys == "one":
        return [np.sort(groups[index]) for index in rng.choice(len(groups), edges, replace=False)]
    return _dealt(groups, edges)


def _column(key: str | None, columns: Mapping[str, np.ndarray]) -> str:
    if not columns:
        raise UserError("partition natural: this data set has no key column, only labels")
    if key is None and len(columns) == 1:
        return next(iter(columns))
    if key is None or key not in columns:
        found = "none" if key is None else repr(key)
        near = "" if key is None else nearest(key, columns)
        raise UserError(
            f"partition natural: key: expected {' or '.join(map(repr, columns))}, found"
            f" {found}{near}"
        )
    return key


def _dealt(groups: list[np.ndarray], edges: int) -> list[np.ndarray]:
    shares: list[list[np.ndarray]] = [[] for _ in range(edges)]
    sizes = np.zeros(edges, dtype=np.int64)
    for group in sorted(groups, key=len, reverse=True):
        poorest = int(sizes.argmin())
        shares[poorest].append(group)
        sizes[poorest] += len(group)
    return [np.sort(np.concatenate(share)) for share in shares]

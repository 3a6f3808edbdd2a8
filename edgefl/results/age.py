"""How timely a run was: the age of the models on its edges, and of the updates that were merged.

Age of information (Kaul, Yates and Gruteser, "Real-time status: how often should one update?",
INFOCOM 2012) is the time since the newest data at a receiver were made. Here the data are models.
Version v is published at P(v); version 0 at 0. An edge that has version v at t has a model of

    age in seconds   t - P(v)                  it grows with time, until a newer model arrives
    age in versions  (current version) - v     it grows with each publication

Which model an edge has: that of its latest task, from its arrival on (``task_started``), or the
latest one that has arrived during the task, asked for or pushed, and that its rule got. After the
task it keeps this model, whose age grows on. *At work*: from the arrival of a task's model until
the task's update has arrived, or the task is closed or cancelled.

An edge counts while it takes part (``edge_joined`` to ``edge_lost``) and has a model. It has none
before the first one has arrived, and from the fault that ends its process until the next one. After
an absence it has the model that it had, which the absence has made older.

    mean   of the age, over the time of all edges that count
    p95    the age that is not exceeded in 95 % of that time
    peak   mean of the ages just before a newer model arrived (the peak age of Costa, Codreanu and
           Ephremides, IEEE Trans. Inf. Theory 62(4), 2016); at work, or before the task ended
    max    the largest age

A merged update has the age of its base model at the moment of the publication that contains it:
seconds since P(base), and versions that were published between the two. A model that the edge got
during the task does not change the base, unless training began anew with it: ``fresh_update``
counts from the latest one.

Such a model counts from its arrival, although the edge takes it at its next step. One that comes
too late for a step does not count; if the task has no update, this is known only of models that
came after the training. FedSSMU sends models within a round, before it publishes their version: the
age of such a model counts from the moment at which it was sent. The arrivals of models that were
asked for are in links.csv, all else is in events.jsonl. If the first rows of that file were deleted
(``record.keep``), the models that were published in them have no age.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from edgefl.protocol.messages import FRESH
from edgefl.results.read import MISSING, EventColumns, TableColumns, Texts, as_rows, columns_of
from emulator.units import NS_PER_S

HIGH = 0.95
ROUNDING = 1e-9  # of moments in seconds, and of shares of time
SECONDS, VERSIONS = "s", "versions"
OF_TIME, OF_UPDATES = ("mean", "p95", "peak", "max"), ("mean", "p95", "max")
NUMBERS = {"model": OF_TIME, "work": OF_TIME, "update": OF_UPDATES, "fresh_update": OF_UPDATES}
COUNTED = "age_counted"  # the share of the time of all edges in which they have an age


def quantity(number: str, of: str, unit: str) -> str:
    """Return the name of a number of a run, such as "mean_model_age_s"."""
    return f"{number}_{of}_age_{unit}"


QUANTITIES = (
    *(
        quantity(number, of, unit)
        for of, numbers in NUMBERS.items()
        for unit in (SECONDS, VERSIONS)
        for number in numbers
    ),
    COUNTED,
)


# ---------------------------------------------------------------------- the ages of a run
@dataclass(frozen=True, slots=True)
class Publications:
    """When versions were published: ``moments_s`` from the version ``first`` on.

    This is the current one when the rows begin; NaN: it was published before the first row.
    """

    moments_s: np.ndarray
    first: int

    @property
    def latest(self) -> int:
        """The last version."""
        return self.first + len(self.moments_s) - 1

    def of(self, version: np.ndarray) -> np.ndarray:
        """When these versions were published: NaN if unknown, infinite if never."""
        moments_s = np.concatenate([[np.nan], self.moments_s, [np.inf]])
        places: np.ndarray = np.clip(version - self.first + 1, 0, len(moments_s) - 1)
        return moments_s[places]

    def current(self, t_s: np.ndarray, before: bool = False) -> np.ndarray:
        """The current version at these moments, or just ``before`` them."""
        return self.first + self.moments_s[1:].searchsorted(t_s, "left" if before else "right")

    def integral(self, version: np.ndarray, begin_s: np.ndarray, end_s: np.ndarray) -> np.ndarray:
        """The integrals of (current version) - ``version``, each from a moment to another one."""
        sums = np.concatenate([[0.0], np.cumsum(self.moments_s[1:])])
        first, last = self.current(begin_s), self.current(end_s, before=True)
        last = np.maximum(first, last)
        later = (last - first) * end_s - (sums[last - self.first] - sums[first - self.first])
        return (first - version) * (end_s - begin_s) + later


@dataclass(frozen=True, slots=True)
class Held:
    """Stretches of time in which an edge has one model, as columns.

    ``edge``: as a number of the texts. ``of_s``: the moment from which the model's age counts.
    ``newer``: a newer model ends it. ``done``: a newer model or the end of the task ends a stretch
    at work.
    """

    publications: Publications
    edge: np.ndarray
    begin_s: np.ndarray
    end_s: np.ndarray
    version: np.ndarray
    of_s: np.ndarray
    at_work: np.ndarray
    newer: np.ndarray
    done: np.ndarray

    def where(self, chosen: np.ndarray) -> Held:
        publications, *columns = (getattr(self, each.name) for each in fields(self))
        return Held(publications, *(each[chosen] for each in columns))

    def between(self, begin_s: float, end_s: float) -> Held:
        """What lies between two moments."""
        inside = self.where((self.begin_s < end_s) & (self.end_s > begin_s))
        begins, ends = np.maximum(inside.begin_s, begin_s), np.minimum(inside.end_s, end_s)
        return replace(inside, begin_s=begins, end_s=ends)

    @property
    def total_s(self) -> float:
        return float((self.end_s - self.begin_s).sum())

    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """The ages at the ends, in seconds and in versions."""
        current = self.publications.current(self.end_s, before=True)
        return self.end_s - self.of_s, np.maximum(current - self.version, 0)

    def integrals(self) -> tuple[float, float]:
        """The integrals of the age over all time, in seconds and in versions."""
        middle = (self.begin_s + self.end_s) / 2
        seconds = (middle - self.of_s) * (self.end_s - self.begin_s)
        # a model that is sent before its publication is 0 versions old until then
        begin_s = np.maximum(self.begin_s, self.publications.of(self.version))
        begin_s = np.minimum(begin_s, self.end_s)
        versions = self.publications.integral(self.version, begin_s, self.end_s)
        return float(seconds.sum()), float(versions.sum())

    def time_from(self, versions: int) -> float:
        """The seconds in which the age is at least so many ``versions``, above 0."""
        since_s = self.publications.of(self.version + versions)
        return float(np.maximum(self.end_s - np.maximum(self.begin_s, since_s), 0.0).sum())


class MergedUpdates(NamedTuple):
    """Updates that are in a model, as columns.

    ``version``: before the publication at ``t_s`` that contains it. ``newest``: of the models that
    its edge had in the task, from ``base`` on; ``of_s`` and ``newest_of_s``: their moments.
    """

    t_s: np.ndarray
    edge: np.ndarray
    task: np.ndarray
    version: np.ndarray
    base: np.ndarray
    of_s: np.ndarray
    newest: np.ndarray
    newest_of_s: np.ndarray


@dataclass(frozen=True, slots=True)
class Ages:
    """``edges``: how many took part. ``begin_s``, ``end_s``: of the first row and of the last."""

    texts: Texts
    publications: Publications
    edges: int
    begin_s: float
    end_s: float
    held: Held
    updates: MergedUpdates

    def of_updates(self, fresh: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """The ages of the merged updates in seconds and in versions.

        ``fresh``: since the newest model that is in it.
        """
        of = self.updates
        version, of_s = (of.newest, of.newest_of_s) if fresh else (of.base, of.of_s)
        return of.t_s - of_s, np.maximum(of.version - version, 0)


def numbers(ages: Ages) -> dict[str, float | None]:
    """Return all QUANTITIES of a run; None where nothing has an age.

    Those of ``fresh_update`` are None if no update has a fresher model.
    """
    found: dict[str, float | None] = dict.fromkeys(QUANTITIES)
    work = ages.held.where(ages.held.at_work)
    for of, held, peaks in (
        ("model", ages.held, ages.held.newer),
        ("work", work, work.done),
    ):
        found |= _of_time(of, held, held.where(peaks))
    updates = ages.updates
    found |= _of_updates("update", ages.of_updates())
    if (updates.newest != updates.base).any():
        found |= _of_updates("fresh_update", ages.of_updates(fresh=True))
    if ages.edges and ages.end_s > ages.begin_s:
        found[COUNTED] = ages.held.total_s / (ages.edges * (ages.end_s - ages.begin_s))
    return found


def _of_time(of: str, held: Held, peaks: Held) -> dict[str, float | None]:
    if not len(held.edge):
        return {}
    found: dict[str, float | None] = {}
    high = (quantile_s([held], HIGH), quantile_versions([held], HIGH))
    of_units = zip((SECONDS, VERSIONS), held.integrals(), high, held.ends(), peaks.ends())
    for unit, integral, p95, ends, at_peaks in of_units:
        found[quantity("mean", of, unit)] = integral / held.total_s
        found[quantity("p95", of, unit)] = p95
        found[quantity("max", of, unit)] = ends.max().item()
        if len(at_peaks):
            found[quantity("peak", of, unit)] = float(at_peaks.mean())
    return found


def _of_updates(of: str, ages: Sequence[np.ndarray]) -> dict[str, float | None]:
    if not len(ages[0]):
        return {}
    found: dict[str, float | None] = {}
    for unit, values in zip((SECONDS, VERSIONS), ages):
        found[quantity("mean", of, unit)] = float(values.mean())
        found[quantity("p95", of, unit)] = quantile(values, HIGH)
        found[quantity("max", of, unit)] = values.max().item()
    return found


# ---------------------------------------------------------------------- over time and seeds
def mean_ages(held: Sequence[Held]) -> tuple[float, float]:
    """Return the mean age in seconds and in versions, over the time of several runs."""
    total_s = sum(each.total_s for each in held)
    seconds, versions = (sum(of) / total_s for of in zip(*(each.integrals() for each in held)))
    return seconds, versions


def quantile(values: np.ndarray, share: float) -> float:
    """Return the smallest of ``values`` that this share of them does not exceed."""
    return float(np.quantile(values, share, method="inverted_cdf"))


def quantile_s(held: Sequence[Held], share: float) -> float:
    """Return the age in seconds that is not exceeded in this share of the time, exactly.

    In a stretch of time the age takes all values between its ends, each for equally long.
    """
    ends = [(each.begin_s - each.of_s, each.end_s - each.of_s) for each in held]
    at = np.concatenate([*(low for low, _ in ends), *(high for _, high in ends)])
    steps = np.repeat([1, -1], len(at) // 2)
    order = np.argsort(at, kind="stable")
    at, density = at[order], np.cumsum(steps[order])[:-1]
    below = np.concatenate([[0.0], np.cumsum(density * np.diff(at))])
    wanted = share * below[-1]
    place = int(below.searchsorted(wanted)) - 1
    return float(at[place] + (wanted - below[place]) / density[place])


def quantile_versions(held: Sequence[Held], share: float) -> int:
    """Return the smallest age in versions that is not exceeded in this share of the time."""
    above_s = (1 - share + ROUNDING) * sum(each.total_s for each in held)
    low, high = 0, max(int(each.ends()[1].max(initial=0)) for each in held)
    while low < high:
        middle = (low + high) // 2
        if sum(each.time_from(middle + 1) for each in held) <= above_s:
            high = middle
        else:
            low = middle + 1
    return low


# ---------------------------------------------------------------------- from the rows of a run
def of_columns(
    events: EventColumns, links: TableColumns, pushes_late: Mapping[int, int] | None = None
) -> Ages:
    """Return the ages of a run, finished or not, from its rows, which have the same texts.

    ``pushes_late``: the number of this name in an update, by task. KeyError or ValueError for
    damaged rows.
    """
    now_s = np.maximum.accumulate(np.nan_to_num(events.rows.floats("t")))
    end_s = float(now_s[-1]) if len(now_s) else 0.0
    publications = _publications(events, now_s)
    tasks = _Tasks.of(events)
    asked = _asked(events, links, tasks, publications, now_s)
    pushed = _pushed(events, tasks, publications, now_s, pushes_late or {})
    fresher = np.concatenate([asked, pushed])
    fresher = fresher.take(np.argsort(fresher["t_s"], kind="stable"))
    changes = [*_changes(events, tasks, publications, now_s), _arrivals(fresher)]
    edges, held = _held(_states(np.concatenate(changes)), publications, end_s)
    return Ages(
        events.texts,
        publications,
        edges,
        float(now_s[0]) if len(now_s) else 0.0,
        end_s,
        held,
        _merged(events, fresher, publications, now_s),
    )


def _publications(
    events: EventColumns, now_s: np.ndarray, before: Publications | None = None
) -> Publications:
    """``before``: those of earlier rows. ValueError if versions do not follow one another."""
    rows, decisions = events.rows, events.decisions
    if before is None:
        of_events = np.flatnonzero((rows.texts_of("event") != MISSING) & ~rows.has("fact"))[:1]
        first = int(rows.whole("version")[of_events].max(initial=0))
        before = Publications(np.array([0.0 if first == 0 else np.nan]), first)
    publishes = np.flatnonzero(decisions.texts_of("do") == events.texts.number("publish"))
    expected = before.latest + 1 + np.arange(len(publishes))
    if (decisions.whole("version")[publishes] != expected).any():
        raise ValueError("versions do not follow one another")
    moments_s = now_s[events.decided_in[publishes]]
    return Publications(np.append(before.moments_s, moments_s), before.first)


NO_KEY = -2  # neither a number nor MISSING


def _find(
    keys: np.ndarray,
    wanted: np.ndarray,
    side: Literal["left", "right"] = "right",
    rows: np.ndarray | int = 0,
    limit: np.ndarray | int = 0,
) -> np.ndarray:
    """The place of the last key that equals each of the ``wanted``, with a row up to its ``limit``.

    "left": of the first one, with a row from its limit on. MISSING without one. Keys, and the rows
    of a key, are in order.
    """
    size = 1 + max(np.max(rows, initial=0), np.max(limit, initial=0))
    places = (keys * size + rows).searchsorted(wanted * size + limit, side) - (side == "right")
    return np.where(np.append(keys, NO_KEY)[places] == wanted, places, MISSING)


def _at(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The values at these places; MISSING where the place is."""
    found: np.ndarray = np.append(values, MISSING)[places]
    return found


@dataclass(frozen=True, slots=True)
class _Tasks:
    """The version of each task's model, and the row in which the task ended, by its number."""

    number: np.ndarray
    version: np.ndarray
    ended: np.ndarray  # numbers of tasks that ended
    in_row: np.ndarray

    @classmethod
    def of(cls, events: EventColumns, before: _Tasks | None = None) -> _Tasks:
        """``before``: the tasks of earlier rows."""
        rows, decisions, in_row = events.rows, events.decisions, events.decided_in
        text, do = events.texts.number, decisions.texts_of("do")
        assigns = np.flatnonzero(do == text("assign"))
        _, tasks, counts = events.assigned(assigns)
        # models that were published earlier in the same list of decisions count
        published = np.concatenate([[0], np.cumsum(do == text("publish"))])
        begins = np.searchsorted(in_row, in_row[assigns])
        version = rows.whole("version")[in_row[assigns]] + published[assigns] - published[begins]
        version = np.repeat(version, counts)
        if before is not None:
            tasks = np.concatenate([before.number, tasks])
            version = np.concatenate([before.version, version])
        order = np.argsort(tasks, kind="stable")
        event, cancels = rows.texts_of("event"), np.flatnonzero(do == text("cancel"))
        ends = np.flatnonzero((event == text("update_arrived")) | (event == text("task_closed")))
        ended = np.concatenate([rows.whole("task")[ends], decisions.whole("task")[cancels]])
        at = np.concatenate([ends, in_row[cancels]])
        by_task = np.lexsort((at, ended))
        return cls(tasks[order], version[order], ended[by_task], at[by_task])

    def versions(self, tasks: np.ndarray) -> np.ndarray:
        """The versions of the tasks' models; MISSING for unknown tasks."""
        return _at(self.version, _find(self.number, tasks))

    def open(self) -> _Tasks:
        """Those that have not ended."""
        is_open = _find(self.ended, self.number) == MISSING
        return _Tasks(self.number[is_open], self.version[is_open], *(np.zeros(0, int),) * 2)

    def is_over(self, tasks: np.ndarray, in_row: np.ndarray) -> np.ndarray:
        """Whether the tasks have ended before these rows."""
        ends = _at(self.in_row, _find(self.ended, tasks))
        return (ends != MISSING) & (ends < in_row)


# ---------------------------------------------------------------------- changes of edges
KEEP, NONE = -2, -1  # of a change's model: it stays; the edge has none
BEFORE, LATER = -1, np.iinfo(np.int64).max  # all rows of the same moment


# ``order``: of changes at the same moment. ``model``: the version that the edge has now, of the
# moment ``of_s``. ``work`` and ``there``: 1 or 0. KEEP: as before.
CHANGES = np.dtype(
    [
        *(("edge", "i8"), ("t_s", "f8"), ("order", "i8"), ("of_s", "f8")),
        *(("model", "i8"), ("work", "i8"), ("there", "i8")),
    ]
)


def _change(
    edge: np.ndarray,
    t_s: np.ndarray,
    order: np.ndarray | int,
    of_s: np.ndarray | float = np.nan,
    model: np.ndarray | int = KEEP,
    work: int = KEEP,
    there: int = KEEP,
) -> np.ndarray:
    """Return changes of edges, as CHANGES."""
    return as_rows(CHANGES, edge, t_s, order, of_s, model, work, there)


def _ends(*columns: np.ndarray) -> np.ndarray:
    """Whether each row is the last of those with the same values; equal rows are neighbours."""
    differ = np.any([each[1:] != each[:-1] for each in columns], axis=0)
    return np.append(differ, True)[: len(columns[0])]


def _changes(
    events: EventColumns, tasks: _Tasks, publications: Publications, now_s: np.ndarray
) -> Iterator[np.ndarray]:
    """Yield CHANGES of several kinds."""
    rows, decisions, text = events.rows, events.decisions, events.texts.number
    event, fact = rows.texts_of("event"), rows.texts_of("fact")
    edge, task = rows.texts_of("edge"), rows.whole("task")

    def of(chosen: np.ndarray, **changed: Any) -> np.ndarray:
        return _change(edge[chosen], now_s[chosen], 2 * chosen, **changed)

    started = np.flatnonzero(fact == text("task_started"))
    started = started[~tasks.is_over(task[started], started)]
    model = tasks.versions(task[started])
    yield of(started, of_s=publications.of(model), model=model, work=1)
    is_over = (event == text("update_arrived")) | (event == text("task_closed"))
    yield of(np.flatnonzero(is_over), work=0)
    cancels = np.flatnonzero(decisions.texts_of("do") == text("cancel"))
    in_row = events.decided_in[cancels]
    yield _change(decisions.texts_of("edge")[cancels], now_s[in_row], 2 * in_row + 1, work=0)
    for name, there in (("edge_joined", 1), ("edge_lost", 0)):
        yield of(np.flatnonzero(event == text(name)), there=there)
    kind = rows.texts_of("kind")
    dies = (fact == text("fault")) & ((kind == text("kill")) | (kind == text("restart")))
    yield of(np.flatnonzero(dies), model=NONE, work=0)


def _states(changes: np.ndarray) -> np.ndarray:
    """The state of each edge from each moment on at which it changes, edge by edge."""
    order = np.lexsort((changes["order"], changes["t_s"], changes["edge"]))
    edge, t_s, rank, of_s, *states = columns_of(changes.take(order))
    begins = np.append(True, _ends(edge))[:-1]
    last = _ends(edge, t_s)  # of several changes at one moment the last state counts
    places = np.arange(len(edge))
    known = [
        np.maximum.accumulate(np.where((values != KEEP) | begins, places, 0))[last]
        for values in states
    ]
    filled = (values[at] for values, at in zip(states, known))
    return as_rows(CHANGES, edge[last], t_s[last], rank[last], of_s[known[0]], *filled)


def _held(states: np.ndarray, publications: Publications, end_s: float) -> tuple[int, Held]:
    """Return how many edges took part, and what they had when."""
    edge, t_s, _, of_s, model, work, there = columns_of(states)
    goes_on = ~_ends(edge)

    def following(values: np.ndarray) -> np.ndarray:
        return np.append(values[1:], values[:1])

    until_s = np.where(goes_on, following(t_s), end_s)
    newer = following(model) > model
    newer |= (following(model) == model) & (following(of_s) > of_s)
    newer &= goes_on
    stops = goes_on & (following(there) == 1) & (following(work) == 0)
    done = (work == 1) & (newer | (stops & (following(model) == model)))
    held = Held(publications, edge, t_s, until_s, model, of_s, work == 1, newer, done)
    counts = (there == 1) & (model >= 0) & (until_s > t_s) & ~np.isnan(of_s)
    return len(np.unique(edge[there == 1])), held.where(counts)


# ---------------------------------------------------------------------- fresher models
# models that have arrived at their edges during a task; ``of_s``: the moment that they are of
FRESHER = np.dtype(
    [("edge", "i8"), ("t_s", "f8"), ("task", "i8"), ("version", "i8"), ("of_s", "f8")]
)


def _arrivals(fresher: np.ndarray) -> np.ndarray:
    edge, t_s, _, version, of_s = columns_of(fresher)
    return _change(edge, t_s, LATER, of_s, version)


def _asked(
    events: EventColumns,
    links: TableColumns,
    tasks: _Tasks,
    publications: Publications,
    now_s: np.ndarray,
) -> np.ndarray:
    """The fresher models that edges have asked for.

    An edge uses the first answer to a request, if the model arrives before the task is over and
    before the request is closed (``until_ns``). A model that came too late has another kind in
    links.csv.
    """
    rows, decisions, text = events.rows, events.decisions, events.texts.number
    down = np.flatnonzero(links.get("kind") == text(FRESH))
    answers = np.flatnonzero(decisions.texts_of("do") == text("send_fresh"))
    in_row = events.decided_in[answers]
    task, edge = decisions.whole("task")[answers], decisions.texts_of("edge")[answers]
    version = decisions.whole("version")[answers]
    # the n-th answer of a task is used if there were n requests by then
    asked = np.flatnonzero(rows.texts_of("event") == text("fresh_requested"))
    size = rows.count + 1
    requests = np.sort(rows.whole("task")[asked] * size + asked)
    before = requests.searchsorted(task * size)
    heard = requests.searchsorted(task * size + in_row, "right") - before
    by_task = np.argsort(task, kind="stable")
    rank = np.empty(len(task), np.int64)
    rank[by_task] = np.arange(len(task)) - np.searchsorted(task[by_task], task[by_task])
    until_ns = np.nan_to_num(rows.floats("until_ns"))
    closes_ns = np.zeros(len(task))
    answered = rank < heard
    closes_ns[answered] = until_ns[requests[(before + heard - 1)[answered]] % size]
    # a download begins with the answer, so it belongs to the edge's latest one
    last_row = now_s.searchsorted(links.get("offered_s")[down] + ROUNDING, "right") - 1
    order = np.argsort(edge, kind="stable")
    places = _find(edge[order], links.get("edge")[down], "right", in_row[order], last_row)
    down, places = down[places >= 0], order[places[places >= 0]]
    t_s = links.get("finished_s")[down]
    used = answered[places] & (version[places] != MISSING)
    closes = closes_ns[places]
    used &= (closes == 0) | (np.rint(t_s * NS_PER_S) < closes)
    used &= ~tasks.is_over(task[places], now_s.searchsorted(t_s, "left"))
    chosen = np.flatnonzero(used)
    places = places[chosen]
    # FedSSMU sends models of versions that are published later
    of_s = _sent(publications.of(version[places]), now_s[in_row[places]])
    return as_rows(FRESHER, edge[places], t_s[chosen], task[places], version[places], of_s)


def _sent(published_s: np.ndarray, sent_s: np.ndarray) -> np.ndarray:
    """The moments that models are of; NaN stays."""
    return np.where(published_s > sent_s, sent_s, published_s)


def _pushed(
    events: EventColumns,
    tasks: _Tasks,
    publications: Publications,
    now_s: np.ndarray,
    late: Mapping[int, int] | None,
) -> np.ndarray:
    """The pushed models that edges could use.

    ``late``: how many came too late, by task: the last ones. None: the rows are only some, and the
    tasks of models whose start is not among them have begun earlier.
    """
    rows, decisions, text = events.rows, events.decisions, events.texts.number
    event, fact = rows.texts_of("event"), rows.texts_of("fact")
    task, version = rows.whole("task"), rows.whole("of_version")
    arrived = np.flatnonzero(fact == text("push_arrived"))
    arrived = arrived[~tasks.is_over(task[arrived], arrived) & (version[arrived] != MISSING)]
    # not those that came when the update was ready, nor the last ones of a task that were late
    ready = np.flatnonzero((fact == text("update_ready")) | (event == text("update_ready")))
    ready = ready[np.argsort(task[ready], kind="stable")]
    ends = _at(ready, _find(task[ready], task[arrived], "left"))
    used = (ends == MISSING) | (now_s[arrived] < now_s[ends])
    by_task = np.lexsort((arrived, task[arrived]))
    ordered = task[arrived][by_task]
    behind = ordered.searchsorted(ordered, "right") - np.arange(len(ordered))
    count = np.array([(late or {}).get(each, 0) for each in ordered.tolist()], int)
    used[by_task] &= behind > count
    # a model that comes before that of its task is taken when that has come
    starts = np.flatnonzero(fact == text("task_started"))
    starts = starts[np.argsort(task[starts], kind="stable")]
    begins = _at(starts, _find(task[starts], task[arrived], "left"))
    used &= (begins != MISSING) | (late is None)
    arrived, begins = arrived[used], begins[used]
    t_s = np.maximum(now_s[arrived], np.where(begins == MISSING, 0.0, now_s[begins]))
    # when it was sent: by the latest push of this version to this task
    pushes = np.flatnonzero(decisions.texts_of("do") == text("push"))
    _, to, counts = events.assigned(pushes)
    in_row = np.repeat(events.decided_in[pushes], counts)
    sent = np.repeat(decisions.whole("version")[pushes], counts)
    size = 1 + max(sent.max(initial=0), version[arrived].max(initial=0))
    pairs = np.concatenate([to * size + sent, task[arrived] * size + version[arrived]])
    keys, wanted = np.split(np.unique(pairs, return_inverse=True)[1], [len(to)])
    order = np.argsort(keys, kind="stable")
    known = _at(in_row[order], _find(keys[order], wanted, "right", in_row[order], arrived))
    sent_s = now_s[np.where(known == MISSING, arrived, known)]
    of_s = _sent(publications.of(version[arrived]), sent_s)
    edge = rows.texts_of("edge")[arrived]
    return as_rows(FRESHER, edge, t_s, task[arrived], version[arrived], of_s)


# ---------------------------------------------------------------------- merged updates
def _merged(
    events: EventColumns,
    fresher: np.ndarray,
    publications: Publications,
    now_s: np.ndarray,
) -> MergedUpdates:
    """The updates that are in a model, as ``edgefl.record.rows`` counts them."""
    rows, decisions, text = events.rows, events.decisions, events.texts.number
    do, in_row = decisions.texts_of("do"), events.decided_in
    arrived = np.flatnonzero(rows.texts_of("event") == text("update_arrived"))
    task = rows.whole("task")
    discards = np.flatnonzero(do == text("discard"))
    own = in_row[discards][decisions.whole("task")[discards] == task[in_row[discards]]]
    arrived = np.setdiff1d(arrived, own)
    publishes = np.flatnonzero(do == text("publish"))
    listed = decisions.has_list("made_of")[publishes]
    never = decisions.count
    # a publication without a list has all that wait
    of_all = np.append(publishes[~listed], never)
    first = in_row.searchsorted(arrived)  # decision from the arrival's on
    merged = of_all[of_all[:-1].searchsorted(first)]
    counts, members = decisions.lists("made_of", publishes[listed])
    lists = np.repeat(publishes[listed], counts)
    order = np.argsort(members, kind="stable")
    places = _find(members[order], task[arrived], "left", lists[order], first)
    merged = np.minimum(merged, np.append(lists[order], never)[places])
    base = rows.whole("base_version")[arrived]
    kept = (merged < never) & ~np.isnan(publications.of(base)) & (base != MISSING)
    arrived, merged, base = arrived[kept], merged[kept], base[kept]
    by_task = np.argsort(fresher["task"], kind="stable")
    place = _at(by_task, _find(fresher["task"][by_task], task[arrived]))
    has, of_s = place != MISSING, publications.of(base)
    newest, newest_of_s = base.copy(), of_s.copy()
    last = fresher.take(place[has])
    newest[has], newest_of_s[has] = last["version"], last["of_s"]
    of_s = np.where(newest == base, newest_of_s, of_s)  # it may be sent before its publication
    t_s, version = now_s[in_row[merged]], decisions.whole("version")[merged] - 1
    edge = rows.texts_of("edge")[arrived]
    return MergedUpdates(t_s, edge, task[arrived], version, base, of_s, newest, newest_of_s)


# ---------------------------------------------------------------------- while a run goes on
class AgesNow:
    """The models that edges have now, from rows as they come. Its memory does not grow with them.

    All rows have the same texts. A model that was asked for counts with its row of links.csv, if it
    is the latest one that was sent to the edge; one that was pushed counts although it may be late.
    """

    def __init__(self) -> None:
        self._publications: Publications | None = None
        self._tasks: _Tasks | None = None
        # the latest change of each edge's model, and of its presence
        self._models = self._presence = np.zeros(0, CHANGES)
        self._sent: dict[int, tuple[int, float]] = {}  # edge -> version, moment

    def take_events(self, events: EventColumns) -> None:
        """Take lines of events.jsonl, in order. KeyError or ValueError for damaged ones."""
        if not events.count:
            return
        now_s = np.nan_to_num(events.rows.floats("t"))
        publications = _publications(events, now_s, self._publications)
        tasks = _Tasks.of(events, self._tasks)
        self._publications = publications
        pushed = _pushed(events, tasks, publications, now_s, None)
        self._take([*_changes(events, tasks, publications, now_s), _arrivals(pushed)])
        self._tasks = tasks.open()
        decisions = events.decisions
        sent = np.flatnonzero(decisions.texts_of("do") == events.texts.number("send_fresh"))
        sent = sent[decisions.whole("version")[sent] != MISSING]
        version, moments_s = decisions.whole("version")[sent], now_s[events.decided_in[sent]]
        models = zip(version.tolist(), moments_s.tolist())
        self._sent |= zip(decisions.texts_of("edge")[sent].tolist(), models)
        self._forget()

    def take_links(self, links: TableColumns) -> None:
        """Take rows of links.csv."""
        fresh = np.flatnonzero(links.get("kind") == links.texts.number(FRESH))
        edge, t_s = links.get("edge")[fresh], links.get("finished_s")[fresh]
        known = np.isin(edge, [*self._sent])
        edge, t_s = edge[known], t_s[known]
        if not len(edge) or self._publications is None:
            return
        version, sent_s = map(np.array, zip(*(self._sent[each] for each in edge.tolist())))
        of_s = np.fmin(self._publications.of(version), sent_s)
        self._take([_change(edge, t_s, LATER, of_s, version)])

    def _take(self, changes: Iterable[np.ndarray]) -> None:
        found = np.concatenate([self._models, self._presence, *changes])
        self._models = _latest(found.compress(found["model"] != KEEP))
        self._presence = _latest(found.compress(found["there"] != KEEP))

    def _forget(self) -> None:
        """Forget the publications of models that no edge has and no open task begins with."""
        assert self._publications is not None and self._tasks is not None
        known, models = self._publications, self._models["model"]
        models = models[models >= 0]
        least = min([*models.tolist(), *self._tasks.version.tolist(), known.latest])
        if least > known.first:
            self._publications = Publications(known.moments_s[least - known.first :], least)

    def mean(self, now_s: float) -> tuple[float, float] | None:
        """The mean age in seconds and in versions; None if no edge has a model."""
        there = self._presence["edge"][self._presence["there"] == 1]
        edge, _, _, of_s, model, _, _ = columns_of(self._models)
        counts = np.isin(edge, there) & (model >= 0) & ~np.isnan(of_s)
        if not counts.any() or self._publications is None:
            return None
        versions = np.maximum(self._publications.latest - model[counts], 0)
        return float(np.maximum(now_s - of_s[counts], 0.0).mean()), float(versions.mean())


def _latest(changes: np.ndarray) -> np.ndarray:
    """The last of the changes of each edge, with an order before that of later rows."""
    order = np.lexsort((changes["order"], changes["t_s"], changes["edge"]))
    latest = changes.take(order[_ends(changes["edge"][order])])
    latest["order"] = BEFORE
    return latest

"""What is reproduced, as data: an entry per table or figure of a paper, its runs, claims, figures.

``registry`` reads entries from the files of the papers. Nothing here runs or reads a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

ROOT = Path(__file__).resolve().parents[3]
CONFIGS = ROOT / "configs"
LOOKS = (3,)
MOST_SEEDS = 40  # a claim that needs more is reported as "smaller than"
TUNING_SEED = 101  # in no table, however many seeds that has
VIRTUAL: Literal["virtual"] = "virtual"
WALL: Literal["wall"] = "wall"


class Scale(StrEnum):
    """A budget: ``small`` shows that a study works, ``paper`` is what the paper used."""

    small = "small"
    paper = "paper"


class Verdict(StrEnum):
    """What the runs say about a claim; docs/results/rule.md has the rule."""

    holds = "holds"
    fails = "does not hold"
    equal = "equal"
    unknown = "cannot be told at this budget"
    missing = "not run"


class Table(BaseModel):
    """A table of a paper's file; a key that it does not have is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Paper(Table):
    """A paper: ``key`` is "seed1", ``page`` the name of its file and its page in docs/results."""

    key: str
    title: str
    authors: str
    arxiv: str = ""
    page: str


class MethodPlan(Table):
    """A method of a part.

    ``label``: of the strategy in the part's config.
    ``axes``: what is tuned besides the knobs of the part -> the values to try. A name without a dot
    is an option of the strategy (``mu_beta``), one with a dot a key of the config.
    ``within``: another method of the part, of which this one is the case with these values: both
    try each other's best setting, so that the whole scheme is never worse for its tuning.
    ``options``: fixed options of the strategy in place of those in the config.
    ``name``: in tables and claims; "": the label. One label may be in a part several times, with
    different names and options.
    ``tuned_as``: another method of the part whose best values this one takes, without tuning runs
    of its own: an ablation with the values of the whole scheme. It must have the same options.
    ``changes``: ``key=value`` changes to the config for this method alone, such as other links; not
    of ``stop``, and not in a part with tuning.
    """

    label: str
    axes: Mapping[str, tuple[Any, ...]] = {}
    within: Mapping[str, Mapping[str, Any]] = {}
    options: Mapping[str, Any] = {}
    name: str = ""
    tuned_as: str = ""
    changes: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The method's name in tables, claims and result files."""
        return self.name or self.label


class Tuning(Table):
    """How a part's best settings are found, before the runs of its table.

    ``knobs``: what is tuned for every method of the part -> the values to try. The first knob and
    the first axis of a method are tried in every combination, with the first value of the others.
    Then these are tried one after another, each at the best setting so far.
    ``share``: of each limit of the part's ``[stop]``, at least .1.
    ``seeds``: of these runs alone, in no table; the score is the mean over them.
    ``metric``: the score, a name of ``edgefl.plugins.sweep.choice``.
    ``extend``: how many more settings of each method are tried while a best value lies at an edge
    of its grid: one value beyond the edge, of one knob.
    ``overrides``: further changes to the config of these runs.
    ``confirm``: further seeds, in no table either. With these each method's best settings of its
    two best values of the first knob, and those of methods within it, are run over the whole time;
    the best mean is taken. A short run with one seed favours learning rates that later fail.
    """

    knobs: Mapping[str, tuple[Any, ...]] = {}
    share: float = 0.1
    seeds: tuple[int, ...] = (TUNING_SEED,)
    metric: str = "convergence_accuracy"
    extend: int = 2
    overrides: tuple[str, ...] = ()
    confirm: tuple[int, ...] = ()


class Part(Table):
    """Runs of one config: every method with every seed.

    ``config``: in a paper's file below ``configs``.
    ``overrides``: ``key=value`` changes to the config; ``small``: more of them at the small scale.
    ``seeds``: of the table, by default as many as the entry's last look; ``small_seeds``: at the
    small scale, (): the same.
    ``tuning``: None if nothing is tuned: the paper gives all values, or ``settings_of``.
    ``settings_of``: "PART" of this entry or "ENTRY/PART", an earlier part whose best settings this
    one takes, by the methods' names, in place of tuning.
    ``measures``: more columns of the result files, names of ``measures.MEASURES``.
    ``columns``: those of the page's table.
    ``clock``: VIRTUAL, or WALL: over real sockets, one run at a time.
    ``title``: in the page; "": the name. ``scales``: those at which it is run.
    """

    name: str
    config: Path
    methods: tuple[MethodPlan, ...]
    overrides: tuple[str, ...] = ()
    small: tuple[str, ...] = ()
    seeds: tuple[int, ...] = tuple(range(1, LOOKS[-1] + 1))
    small_seeds: tuple[int, ...] = ()
    tuning: Tuning | None = None
    settings_of: str = ""
    measures: tuple[str, ...] = ()
    columns: tuple[str, ...] = ("convergence_accuracy", "final_accuracy", "time_to_target_s")
    clock: Literal["virtual", "wall"] = VIRTUAL
    title: str = ""
    scales: tuple[Scale, ...] = (Scale.small, Scale.paper)

    def method(self, name: str) -> MethodPlan:
        """Return the method ``name``. KeyError if there is none."""
        found = next((each for each in self.methods if each.shown == name), None)
        if found is None:
            raise KeyError(f"{self.name}: no method {name!r}")
        return found

    def depends_on(self, columns: Sequence[str]) -> bool:
        """Return whether its table or its tuning has one of ``columns``."""
        tuned = () if self.tuning is None else (self.tuning.metric,)
        return not set(columns).isdisjoint((*self.columns, *tuned))

    def overrides_at(self, scale: Scale) -> tuple[str, ...]:
        """Return the changes to the config at a scale."""
        return (*self.overrides, *(self.small if scale is Scale.small else ()))

    def seeds_at(self, scale: Scale) -> tuple[int, ...]:
        """Return the seeds of the table at a scale."""
        return (self.small_seeds or self.seeds) if scale is Scale.small else self.seeds


@dataclass(frozen=True, slots=True)
class Finding:
    """What our runs say about a claim.

    ``ours``: our number with its deviation or interval, as text. ``why``: one or two sentences with
    the numbers on which the verdict rests; the functions of ``rules`` write them. ``needed``: the
    seeds that would decide an undecided one, as ``rules.Paired.needed``. ``effects``: the mean
    difference and its bounds, as multiples of the smallest effect that matters; (): there are none.
    """

    ours: str
    verdict: Verdict
    why: str = ""
    needed: int = 0
    effects: tuple[float, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether further seeds may decide it."""
        return self.verdict is Verdict.unknown and self.needed <= MOST_SEEDS


class Claim(Table):
    """A statement of the paper.

    ``text``: the statement in our words, in one sentence. ``published``: the paper's number, with
    its table or figure. ``judge``: a rule with its arguments, as ``judges`` explains. A rule
    without the runs that it needs means "not run". ``theirs``: the paper's number as a multiple of
    the smallest effect that matters, for the figure of the main claims. ``cause``: for a claim that
    does not hold, the experiment that shows why (a part or an entry) and what it shows, or "cause
    unknown" with what was excluded. ``needs``: names of the parts and used entries that ``judge``
    reads, and ENTRY/PART for a part of such an entry; (): all.
    """

    text: str
    published: str
    judge: Mapping[str, Any]
    theirs: float | None = None
    cause: str = ""
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a line: ``low`` and ``high`` bound its error bar; None: none is drawn."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


class Figure(Table):
    """A figure of a page: ``name`` is part of its file's name, ``title`` the text below it.

    Without ``lines``, a quantity over emulated time: a panel per part, a line per method, the
    seeds' range as band. ``column``: accuracy, loss or train_loss. ``parts``: their names, (): all.
    ``methods``: names, (): all. ``x``: emulated_s or version.

    ``lines``: something else, such as a gain over staleness: a drawing with its arguments, as
    ``drawings.lines_of`` explains. ``x``, ``y``: labels of the axes. ``zero``: whether y = 0 is
    marked. ``joined``: whether points are joined by lines.

    ``log``: "x", "y" or "xy".
    """

    name: str
    title: str
    x: str = "emulated_s"
    log: str = ""
    column: str = "accuracy"
    parts: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    lines: Mapping[str, Any] = {}
    y: str = ""
    zero: bool = False
    joined: bool = True


class Entry(Table):
    """A table or figure of a paper, or a study of ours about its claims.

    ``name``: "seed1-fig5". ``paper``: the key of its paper.
    ``source``: where in the paper, "fig. 5" or "table 3"; "ours" for a study of its claims.
    ``reading``: which reading of the text, in one sentence.
    ``looks``: after how many seeds its claims are judged; the last one is the most. Fewer seeds
    tell nothing, and the looks share the 5 % of wrong verdicts evenly (docs/results/rule.md).
    ``front``: beginnings of the texts of the claims on the front page.
    ``data``: names of the data sets it needs, as ``edgefl data get`` takes them.
    ``hours``: scale -> expected CPU-hours on two cores.
    ``needs``: what it needs if it cannot be run on such a machine at the paper's scale.
    ``uses``: names of entries whose runs its claims and figures read; they are run first. An entry
    that uses others may have no parts.
    ``notes``: Markdown for the page, after the reading.
    """

    name: str
    paper: str
    source: str
    title: str
    reading: str
    parts: tuple[Part, ...] = ()
    claims: tuple[Claim, ...] = ()
    figures: tuple[Figure, ...] = ()
    looks: tuple[int, ...] = LOOKS
    front: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    hours: Mapping[Scale, float] = {}
    needs: str = ""
    uses: tuple[str, ...] = ()
    notes: str = ""

    def depends_on(self, columns: Sequence[str]) -> bool:
        """Return whether the table or the tuning of a part has one of ``columns``."""
        return any(part.depends_on(columns) for part in self.parts)

    def part(self, name: str) -> Part:
        """Return the part ``name``. KeyError if there is none."""
        found = next((each for each in self.parts if each.name == name), None)
        if found is None:
            raise KeyError(f"{self.name}: no part {name!r}")
        return found

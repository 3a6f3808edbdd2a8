"""What a run's config.toml tells the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefl.config.experiment import Edges, Stop
from edgefl.config.scores import Score, score_of, target_in
from edgefl.results.rundirs import SEED
from edgefl.results.summary import number

MS_PER_S = 1000.0


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Facts about a run, as far as its config.toml is there and has them.

    ``speed``: emulated seconds per real second. ``slot_s``: of a TDMA channel, else None.
    ``config``: the part that the page gets.
    """

    experiment: str
    strategy: str
    seed: int | None
    clock: str
    edges: tuple[str, ...]
    speed: float
    slot_s: float | None
    score: Score
    target: float | None
    stop: Stop | None
    config: Mapping[str, Any]

    @classmethod
    def of(cls, run: Path, config: Mapping[str, Any]) -> RunFacts:
        """``config``: the tables of config.toml, whose values nothing has checked."""
        facts, medium = _table(config, "run"), _table(config, "medium")
        slot_ms = number(medium.get("slot_ms")) if medium.get("kind") == "tdma" else None
        speed, evaluation = number(config.get("speed")), _table(config, "evaluation")
        score = score_of(evaluation)
        scheme = run.parent.name if SEED.fullmatch(run.name) else run.name
        stop = _stop(_table(config, "stop"))
        return cls(
            experiment=str(config.get("name", "")),
            strategy=str(facts.get("strategy") or scheme),
            seed=int(found) if (found := number(config.get("seed"))) is not None else None,
            clock=str(facts.get("clock", "")),
            edges=_edges(_table(config, "edges")),
            speed=1.0 if speed is None else speed,
            slot_s=None if slot_ms is None else slot_ms / MS_PER_S,
            score=score,
            target=number(target_in(evaluation)),
            stop=stop,
            config={
                "score": score.title,
                "target": number(target_in(evaluation)),
                "stop": None if stop is None else stop.model_dump(),
                "links": _table(config, "links").get("kind"),
                "devices": _table(config, "devices").get("kind"),
                "medium": medium.get("kind"),
                "slot_s": None if slot_ms is None else slot_ms / MS_PER_S,
                "speed": 1.0 if speed is None else speed,
                "transfer_lag_ms": number(_table(config, "fidelity").get("transfer_lag_ms")),
            },
        )


def _table(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = config.get(name)
    return found if isinstance(found, dict) else {}


def _edges(table: Mapping[str, Any]) -> tuple[str, ...]:
    """The ids of all edges; () if the table is that of another version of edgefl."""
    try:
        return tuple(Edges(**table).ids()) if table else ()
    except ValueError:
        return ()


def _stop(table: Mapping[str, Any]) -> Stop | None:
    try:
        return Stop(**table) if table else None
    except ValueError:
        return None

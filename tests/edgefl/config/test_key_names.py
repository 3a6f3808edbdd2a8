"""The error for an unknown key names the key that was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from edgefl.config.errors import ALIASES, meant, sections
from edgefl.data.partition.dirichlet import Options
from edgefl.errors import UserError
from edgefl.loading import file

MINE = 'name = "mine"\nstop = {versions = 1}\nstrategies = [{strategy = "fedavg"}]\n'


def test_every_alias_leads_to_a_key_and_is_none_itself() -> None:
    tables: dict[str, type[BaseModel]] = dict(sections())
    keys = {
        f"{place}.{name}".lstrip(".") for place, it in tables.items() for name in it.model_fields
    }
    keys |= {f"partition.{name}" for name in Options.model_fields}  # of the usual partition
    assert set(ALIASES.values()) <= keys
    assert not [alias for alias in ALIASES if alias in keys]


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("lr=0.05", "lr: unknown key (nearest: 'training.learning_rate')"),
        ("LR=0.05", "LR: unknown key (nearest: 'training.learning_rate')"),
        ("training.lr=0.05", "training.lr: unknown key (nearest: 'training.learning_rate')"),
        ("batch=8", "batch: unknown key (nearest: 'training.batch_size')"),
        ("rounds=8", "rounds: unknown key (nearest: 'stop.versions')"),
        ("clients=8", "clients: unknown key (nearest: 'edges.count')"),
        ("epochs=8", "epochs: unknown key (nearest: 'training.epochs')"),
        ("epoch=8", "epoch: unknown key (nearest: 'training.epochs')"),
        ("dataset=mnist", "dataset: unknown key (nearest: 'data.name')"),
        ("strategy=fedavg", "strategy: unknown key (nearest: 'strategies[].strategy')"),
        ("seed=[1,2,3]", "seed: expected a whole number, found an array of 3; several: seeds"),
        ("seeds=3", "seeds: expected an array, found 3; one: seed"),
    ],
)
def test_the_key_that_was_meant(tmp_path: Path, override: str, line: str) -> None:
    (tmp_path / "mine.toml").write_text(MINE)
    with pytest.raises(UserError) as caught:
        file.load(tmp_path / "mine.toml", [override])
    assert str(caught.value) == f"override {override!r}: {line}"


@pytest.mark.parametrize(
    ("option", "key"),
    [
        ("--seed", "seed"),
        ("--lr", "training.learning_rate"),
        ("--batch-size", "training.batch_size"),
        ("--learning-rat", "training.learning_rate"),
        ("--port", "network.port"),
        ("--strategy", None),
        ("--zzz", None),
    ],
)
def test_the_key_that_an_option_was_meant_for(option: str, key: str | None) -> None:
    assert meant(option) == key

"""Configs and overrides made to break the parser, or code that walks their tables.

Each gives one error line.
"""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from edgefl.config import file
from edgefl.config.toml import MOST_NESTED
from edgefl.errors import UserError

MINE = 'name = "mine"\nstop = {versions = 1}\nstrategies = [{strategy = "fedavg"}]\n'
DOTTED = ".".join("a" * 20_000)
HOSTILE = {
    "brackets": "[" * 20_000,
    "digits": "1" * 5000,
    "a deep table": "{" + DOTTED + " = 1}",
    "an array as deep as Python reads it": "[" * 400 + "]" * 400,
    "control characters": "'\x1b'",
}


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("key", ["seed", "data.x", "strategies.0.x"])
@pytest.mark.slow
def test_a_hostile_value_is_one_line(tmp_path: Path, key: str, value: str) -> None:
    (tmp_path / "mine.toml").write_text(MINE)
    (tmp_path / "bad.toml").write_text(
        f"{key} = {value}\n" if key != "strategies.0.x" else f"{MINE}seed = {value}\n"
    )
    for path, overrides in (("mine.toml", [f"{key}={value}"]), ("bad.toml", [])):
        with pytest.raises(UserError) as caught:
            file.load(tmp_path / path, overrides)
        assert len(str(caught.value)) < 700 and str(caught.value).isprintable()


def test_a_key_of_thousands_of_parts(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINE)
    with pytest.raises(UserError, match=r"override 'a\.a\..*\.\.\.: expected key.path=value"):
        file.load(tmp_path / "mine.toml", [f"{DOTTED}=1"])


def test_an_index_of_thousands_of_digits(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(MINE)
    with pytest.raises(UserError, match="strategies has no entry '111.*expected 0 or a name"):
        file.load(tmp_path / "mine.toml", [f"strategies.{'1' * 5000}.alpha=1"])


@pytest.mark.slow
def test_two_deep_files_that_are_to_be_merged(tmp_path: Path) -> None:
    deep = ".".join("a" * 5000)
    (tmp_path / "base.toml").write_text(f"{deep} = 1\n")
    (tmp_path / "mine.toml").write_text(f'extends = "base.toml"\nname = "x"\n{deep} = 2\n')
    with pytest.raises(UserError, match="is not valid TOML: nested more than 100 deep"):
        file.load(tmp_path / "mine.toml")


@pytest.mark.parametrize("text", ["[" * 20_000, "1" * 5000, '{"a":' * 900 + "1" + "}" * 900])
def test_a_hostile_config_of_a_coordinator(text: str) -> None:
    for value in (text, '{"seed": ' + text + "}"):
        with pytest.raises(UserError, match="the coordinator's config: ") as caught:
            file.from_json(value)
        assert len(str(caught.value)) < 300


def test_nesting_that_people_use_is_read(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def load(place, options): ...\n")
    depth = MOST_NESTED - 2
    lists = "[" * depth + "]" * depth
    (tmp_path / "mine.toml").write_text(f"{MINE}data = {{name = 'own.py:load', x = {lists}}}\n")
    here = file.load(tmp_path / "mine.toml")
    assert file.shared_digest(here, here.strategies[0])
    assert orjson.loads(file.to_json(here, here.strategies[0]))["data"]["x"]
    assert file.dump(here, {})


@pytest.mark.parametrize("key", ["data.name", "model.name", "partition.name"])
def test_a_name_that_is_too_long_for_a_file(tmp_path: Path, key: str) -> None:
    (tmp_path / "mine.toml").write_text(MINE)
    with pytest.raises(UserError, match=rf"{key}: unknown [a-z ]+ 'aaa"):
        file.load(tmp_path / "mine.toml", [f'{key}="{"a" * 300}"'])

"""Configs that extend another: what is merged, replaced and refused.

Every shipped config parses.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import pytest
from paths import CONFIGS

from edgefl.errors import UserError
from edgefl.loading.file import base_of, dump, load

FILES = sorted(CONFIGS.glob("**/*.toml"))
BASE = """
name = "base"
seed = 7
[model]
name = "mlp"
hidden = [8]
[links]
up_mbit_s = 2.0
down_mbit_s = 4.0
[stop]
versions = 3
[[strategies]]
strategy = "fedavg"
[[strategies]]
strategy = "fedasync"
"""


def written(folder: Path, **files: str) -> Path:
    for name, text in {"base": BASE, **files}.items():
        (folder / f"{name}.toml").write_text(text)
    return folder / f"{list(files)[-1]}.toml"


loaded = cache(load)  # each config of the project once


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_config_of_the_project_parses(path: Path) -> None:
    assert loaded(path).strategies


def test_the_names_of_all_configs_differ() -> None:
    names = [loaded(path).name for path in FILES]
    assert len(set(names)) == len(names)  # otherwise one would overwrite the results of another


def test_tables_are_merged_and_arrays_replaced(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        ours=(
            'extends = "base.toml"\nname = "ours"\nlinks.up_mbit_s = 1.0\n[[strategies]]\nstrategy'
            ' = "fedprox"\n'
        ),
    )
    found = load(path)
    assert (found.name, found.seed, found.links.up_mbit_s, found.links.down_mbit_s) == (
        "ours",
        7,
        1.0,
        4.0,
    )
    assert [entry.strategy for entry in found.strategies] == ["fedprox"]
    assert load(tmp_path / "base.toml").links.up_mbit_s == 2.0  # and the other stays as it is


def test_overrides_reach_what_was_extended(tmp_path: Path) -> None:
    path = written(tmp_path, ours='extends = "base.toml"\nname = "ours"\n')
    found = load(path, ["strategies.fedasync.alpha=0.3", "model.hidden=[4]"])
    assert found.strategies[1].options() == {"alpha": 0.3} and found.model.options() == {
        "hidden": [4]
    }


def test_a_chain_ends_at_the_first_that_extends_nothing(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    written(
        tmp_path, middle='extends = "base.toml"\nname = "middle"\nseed = 8\nstop.versions = 4\n'
    )
    (tmp_path / "inner" / "last.toml").write_text(
        'extends = "../middle.toml"\nname = "last"\nseed = 9\n'
    )
    found = load(tmp_path / "inner" / "last.toml")
    assert (found.seed, found.stop.versions, found.links.up_mbit_s) == (9, 4, 2.0)
    assert base_of(tmp_path / "inner" / "last.toml") == tmp_path / "inner"


def test_another_model_brings_options_of_its_own(tmp_path: Path) -> None:
    path = written(
        tmp_path, ours='extends = "base.toml"\nname = "ours"\n[model]\nname = "lenet5"\n'
    )
    assert load(path).model.options() == {}  # mlp's hidden is not lenet5's
    path = written(tmp_path, ours='extends = "base.toml"\nname = "ours"\n[model]\nname = "mlp"\n')
    assert load(path).model.options() == {"hidden": [8]}


def test_seeds_take_the_place_of_a_seed_and_the_other_way_round(tmp_path: Path) -> None:
    several = load(written(tmp_path, ours='extends = "base.toml"\nname = "ours"\nseeds = [1, 2]\n'))
    assert several.seeds == (1, 2)
    one = load(
        written(
            tmp_path,
            ours='extends = "base.toml"\nname = "ours"\nseeds = [1, 2]\n',
            last='extends = "ours.toml"\nname = "last"\nseed = 3\n',
        )
    )
    assert (one.seed, one.seeds) == (3, None)


def test_a_run_keeps_the_resolved_config(tmp_path: Path) -> None:
    path = written(tmp_path, ours='extends = "base.toml"\nname = "ours"\n')
    text = dump(load(path), {})
    assert "extends" not in tomllib.loads(text) and tomllib.loads(text)["links"]["up_mbit_s"] == 2.0


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (
            {"ours": 'extends = "bose.toml"\nname = "x"\n'},
            r"ours\.toml: extends: .*bose\.toml: no such file .*base\.toml",
        ),
        (
            {"ours": "extends = 3\nname = 'x'\n"},
            r"ours\.toml: extends: expected the path of another config, .*found 3",
        ),
        ({"ours": 'extends = "base.toml"\n'}, r"ours\.toml: name: missing"),
        (
            {"ours": 'extends = "ours.toml"\nname = "x"\n'},
            r"extends: is a cycle: ours\.toml -> ours\.toml",
        ),
        (
            {"a": 'extends = "b.toml"\nname = "a"\n', "b": 'extends = "a.toml"\nname = "b"\n'},
            r"a\.toml: extends: is a cycle: b\.toml -> a\.toml -> b\.toml",
        ),
        (
            {"ours": 'extends = "base.toml"\nname = "x"\nlinks.up_mbit = 1.0\n'},
            r"ours\.toml \(extends .*base\.toml\): links\.up_mbit: unknown key",
        ),
        (
            {"ours": 'extends = "base.toml"\nname = "x"\nlinks = 1.0\n'},
            r"links: expected a table, found 1\.0",
        ),
    ],
    ids=["no file", "no text", "no name", "itself", "circle", "typo", "no table"],
)
def test_what_is_refused(tmp_path: Path, files: dict[str, str], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        load(written(tmp_path, **files))

"""The JSON schema of the experiment file: every packaged config passes it, mistakes fail it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from paths import CONFIGS

from edgefl import catalog
from edgefl.config import packaged
from edgefl.config.file import dump, load
from edgefl.config.keys import BASIC, sections
from edgefl.config.schema import ADVANCED, schema, text
from edgefl.strategies.base.catalog import load as load_strategy
from edgefl.strategies.base.catalog import strategy_names

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made() -> str:
    return text()


@pytest.fixture(scope="module")
def valid(made: str) -> Draft202012Validator:
    Draft202012Validator.check_schema(json.loads(made))
    return Draft202012Validator(json.loads(made))


def problems(validator: Draft202012Validator, config: Any) -> list[str]:
    def leaves(error: Any) -> Iterator[Any]:
        yield from (leaf for each in error.context for leaf in leaves(each))
        yield error

    found = (leaf for error in validator.iter_errors(config) for leaf in leaves(error))
    return [error.message for error in found]


def test_the_committed_schema_is_the_present_one(made: str) -> None:
    assert (CONFIGS / packaged.SCHEMA).read_text(encoding="utf-8") == made, (
        "edgefl schema > configs/experiment.schema.json"
    )


@pytest.mark.parametrize("name", packaged.names())
def test_each_packaged_config_names_the_schema_and_passes_it(
    name: str, valid: Draft202012Validator
) -> None:
    path = CONFIGS.parent / name
    directive, _, rest = path.read_text(encoding="utf-8").partition("\n")
    kind, _, place = directive.partition(" ")
    assert kind == packaged.DIRECTIVE
    assert (path.parent / place).resolve() == (CONFIGS / packaged.SCHEMA).resolve()
    assert problems(valid, tomllib.loads(rest)) == []


def test_the_config_of_a_run_passes_it(valid: Draft202012Validator) -> None:
    whole = dump(load(CONFIGS / "quickstart.toml"), {"run": {"edgefl": "0.1.0"}})
    assert problems(valid, tomllib.loads(whole)) == []


LEAST = """
[stop]
versions = 1
[[strategies]]
strategy = "fedavg"
"""


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("[trainig]\nepochs = 1", "'trainig' was unexpected"),
        ("[training]\nepoch = 1", "'epoch' was unexpected"),
        ("[training]\nepochs = 0", "0 is less than the minimum of 1"),
        ('[training]\noptimizer = "adam"', "'adam' is not one of ['sgd', 'adamw']"),
        ('[model]\nname = "mpl"', "'mpl' is not one of"),
        ('[model]\nname = "mlp"\nhiden = [3]', "'hiden' was unexpected"),
        ('[model]\nname = "cnn"\nhidden = [3]', "'hidden' was unexpected"),
        ("[model]\nhidden = [3]", "'name' is a required property"),
        ('[partition]\nname = "dirichlet"', "'alpha' is a required property"),
        ("[training.decay]\nfactor = 0.5", "'name' is a required property"),
        ('[[strategies]]\nstrategy = "fedasync"\nalhpa = 1', "'alhpa' was unexpected"),
        ('[[strategies]]\nstrategy = "fedavg"\nalpha = 0.5', "'alpha' was unexpected"),
        ('[[strategies]]\nlabel = "x"', "'strategy' is a required property"),
        ('[[strategies]]\nstrategy = "fedavg"\nselection = "ort"', "'ort' is not one of"),
        (
            '[[strategies]]\nstrategy = "fedavg"\nselection = {name = "oort", x = 1}',
            "'x' was unexpected",
        ),
        ('[compression]\nup = {name = "top_k", shar = 0.1}', "'shar' was unexpected"),
        ('[links]\nprofile = "lt"', "'lt' is not one of"),
        ('[[groups]]\nname = "a"\ncount = 3\nlinks.up_mbits = 1', "'up_mbits' was unexpected"),
    ],
)
def test_a_mistake_fails_it(more: str, said: str, valid: Draft202012Validator) -> None:
    assert problems(valid, tomllib.loads(LEAST)) == []
    config = tomllib.loads(LEAST + more)
    assert any(said in each for each in problems(valid, config)), problems(valid, config)


@pytest.mark.parametrize(
    "more",
    [
        '[model]\nname = "my_model.py:build"\nwidth = 3',
        '[data]\nname = "my_data:load"',
        '[[strategies]]\nstrategy = "my_algo.py:MyAlgo"\nrate = 1',
        '[[strategies]]\nstrategy = "fedssmu"\nslot = 3',  # the old name of an option
        '[compression]\nup = "sign"',
    ],
)
def test_what_the_file_may_have_passes_it(more: str, valid: Draft202012Validator) -> None:
    assert problems(valid, tomllib.loads(LEAST + more)) == []


def test_a_file_that_extends_another_has_only_what_differs(valid: Draft202012Validator) -> None:
    assert problems(valid, {"extends": "a.toml", "name": "b", "model": {"hidden": [3]}}) == []
    said = problems(valid, {"extends": "a.toml", "model": {"hiden": [3]}})
    assert any("'hiden' was unexpected" in each for each in said)
    assert "'name' is a required property" in said
    assert "'stop' is a required property" in problems(valid, {"name": "b", "strategies": []})


def test_it_has_each_key_and_each_option(made: str) -> None:
    whole = json.loads(made)
    for place, model in sections():
        for key in model.model_fields:
            assert f'"{key}"' in made, (place, key)
    entry = whole["$defs"]["StrategyEntry"]
    for name in strategy_names():
        (rule,) = (
            each["then"]
            for each in entry["then"]["allOf"]
            if each["if"]["properties"]["strategy"]["const"] == name
        )
        assert {*load_strategy(name).Options.model_fields} <= {*rule["properties"]}
        assert rule["properties"].keys() <= entry["properties"].keys()  # what editors complete
    assert {*catalog.names("edgefl.models", "build")} == {
        *whole["properties"]["model"]["properties"]["name"]["anyOf"][0]["enum"]
    }


def test_keys_are_basic_or_advanced(made: str) -> None:
    tables = dict(sections())
    for table, names in BASIC.items():
        assert set(names) <= tables[table].model_fields.keys()
    whole = json.loads(made)
    training = whole["$defs"]["Training"]["properties"]
    assert ADVANCED not in training["epochs"] and training["micro_batch_size"][ADVANCED]
    assert whole["properties"]["medium"][ADVANCED] and ADVANCED not in whole["properties"]["links"]


def test_plug_ins_of_other_packages_are_known_if_asked_for(
    monkeypatch: pytest.MonkeyPatch, valid: Draft202012Validator
) -> None:
    class Entry:
        value = "edgefl.models.mlp:build"

    from edgefl.config import schema as maker

    monkeypatch.setattr(
        maker, "entries", lambda group: {"theirs": Entry()} if group == "edgefl.models" else {}
    )
    config = tomllib.loads(LEAST + '[model]\nname = "theirs"\nany = 1')
    assert problems(Draft202012Validator(schema(others=True)), config) == []
    assert problems(valid, config) != []


def test_a_copied_config_has_the_schema_beside_it(tmp_path: Path) -> None:
    packaged.copy_one("wkafl/wallclock", tmp_path)
    packaged.copy_one("quickstart", tmp_path)  # the schema is there already
    assert (tmp_path / packaged.SCHEMA).read_text() == (CONFIGS / packaged.SCHEMA).read_text()

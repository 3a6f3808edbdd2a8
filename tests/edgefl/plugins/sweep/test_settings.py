"""The words of --grid, and the settings that they make."""

from __future__ import annotations

import re

import pytest

from edgefl.errors import UserError
from edgefl.plugins.sweep.settings import (
    GridAxis,
    Setting,
    ValueRange,
    parse,
    settings,
    short_names,
    toml_text,
)


def test_words_become_axes_and_seeds() -> None:
    axes, seeds = parse(["training.learning_rate=0.01, 0.1", "seed=3,1", "model.name=cnn,mlp"])
    assert seeds == (3, 1) and axes == (
        GridAxis("training.learning_rate", (0.01, 0.1)),
        GridAxis("model.name", ("cnn", "mlp")),
    )
    assert [setting.overrides() for setting in settings(axes)] == [
        ["training.learning_rate=0.01", "model.name=cnn"],
        ["training.learning_rate=0.01", "model.name=mlp"],
        ["training.learning_rate=0.1", "model.name=cnn"],
        ["training.learning_rate=0.1", "model.name=mlp"],
    ]
    assert settings(()) == [Setting()], "only seeds: one setting"


def test_commas_in_brackets_and_quotes_separate_no_values() -> None:
    ((axis,), _) = parse(["model.hidden=[16],[32, 16]"])
    assert axis.values == ([16], [32, 16])
    ((axis,), _) = parse(["""data.dir="a,b",'c]',d"""])
    assert axis.values == ("a,b", "c]", "d")
    ((axis,), _) = parse(['model={name = "mlp", hidden = [4, 2]},{name = "cnn"}'])
    assert axis.values == ({"name": "mlp", "hidden": [4, 2]}, {"name": "cnn"})


@pytest.mark.parametrize(
    "value", [True, 3, -0.5, 1e-05, "cnn", "true", "1", "", "a b", [1, [2.5, "x"]], {"a": "b,c"}]
)
def test_a_value_as_text_is_read_as_the_same_value(value: object) -> None:
    from edgefl.config.file import toml_value

    read = toml_value(toml_text(value))
    assert read == value and type(read) is type(value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["seed"], "--grid seed: expected KEY=VALUE,VALUE"),
        (["a=1,,2"], "--grid a=1,,2: expected a value between commas"),
        (["a=1,2,1"], "the value 1 is given twice"),
        (["a=1", "a=2"], "--grid a: is given twice; name all its values in one --grid"),
        (["seeds=[1,2]"], "--grid seeds: expected single ones: --grid seed=1,2,3"),
        (["seed=1,x"], "--grid seed: expected whole numbers of at least 0"),
        (["a=0.1..1"], "--grid a=0.1..1: a range needs --sampler random or --sampler optuna"),
    ],
)
def test_wrong_words_are_one_line(words: list[str], said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        parse(words)


def test_ranges_are_for_samplers() -> None:
    axes, _ = parse(["a=1..8", "b=0.001..0.1:log", "c=x,y"], ranges=True)
    assert [axis.span for axis in axes] == [ValueRange(1, 8), ValueRange(0.001, 0.1, True), None]
    assert axes[0].span is not None and axes[0].span.whole
    for word in ("a=2..1", "a=0..1:log", "a=x..y"):
        with pytest.raises(UserError, match="expected two numbers"):
            parse([word], ranges=True)


def test_names_are_short_and_can_be_names_of_directories() -> None:
    axes = (
        GridAxis("partition.alpha"),
        GridAxis("strategies.fedac.alpha"),
        GridAxis("training.epochs"),
    )
    short = short_names(axes)
    assert short == {
        "partition.alpha": "partition.alpha",
        "strategies.fedac.alpha": "strategies.fedac.alpha",
        "training.epochs": "epochs",
    }
    setting = Setting((("training.epochs", 2), ("partition.alpha", 1e-05)))
    assert setting.named(short) == "epochs=2,partition.alpha=1e-05"
    one, other = (Setting((("d", text),)).named({"d": "d"}) for text in ("a/b", "a:b"))
    assert one != other and re.fullmatch(r"d=a_b-[0-9a-f]{8}", one)
    assert len(Setting((("d", "x" * 300),)).named({"d": "d"})) < 50


def test_a_key_of_one_strategy_is_for_it_alone() -> None:
    of_name, of_number = GridAxis("strategies.fedprox.mu"), GridAxis("strategies.1.mu")
    chosen, of_all = GridAxis("training.epochs", methods=("fedavg",)), GridAxis("training.epochs")
    found = [
        [axis.is_for(number, name) for number, name in enumerate(["fedavg", "fedprox"])]
        for axis in (of_name, of_number, chosen, of_all)
    ]
    assert found == [[False, True], [False, True], [True, False], [True, True]]

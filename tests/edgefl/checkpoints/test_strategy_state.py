"""``Strategy.state`` and ``restore``: the default, and strategies that override it."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest
from builders import make, vector

from edgefl.checkpoints.codec import CannotEncode, Encoded, decode, encode
from edgefl.strategies.base.strategy import Strategy
from edgefl.strategies.fedavg import FedAvg
from edgefl.vectors import VectorStore

OWN = (__name__,)


def moved(old: Strategy, new: Strategy) -> None:
    """Give the state of ``old`` to ``new`` as a resumed run does."""
    encoded = encode(old, {"strategy": old}, OWN)
    tree = orjson.loads(orjson.dumps(encoded.tree))
    assert decode(Encoded(tree, encoded.arrays), {"strategy": new}, OWN) is new


class Averaging(FedAvg):
    """An own strategy with state of several kinds."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.rng = self.streams.rng("own")
        self.seen = {"a": [vector(1, 2, 3)]}
        self.same = self.seen["a"]


class Watching(FedAvg):
    """An own strategy that holds what cannot be saved."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.log = open("/dev/null", "w")  # noqa: SIM115  # it stays open


class Other(FedAvg):
    """It saves an attribute in another form."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.squares = (number * number for number in range(10))
        self.taken = 0

    def take(self) -> int:
        self.taken += 1
        return next(self.squares)

    def state(self) -> dict[str, Any]:
        kept = super().state()
        del kept["squares"]
        return kept

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        for _ in range(self.taken):
            next(self.squares)


def test_a_strategy_goes_on_with_its_state() -> None:
    old, new = make(Averaging), make(Averaging)
    old.weights, old.version = vector(4, 5, 6), 7
    old.weights.flags.writeable = False
    old.rng.random(3)
    old.seen["b"] = [old.weights]
    own = new.layout, new.options, new.streams
    moved(old, new)
    assert new.version == 7 and new.weights.tolist() == [4, 5, 6]
    assert not new.weights.flags.writeable and new.weights is not old.weights
    assert new.seen["b"][0] is new.weights and new.same is new.seen["a"]
    assert new.rng.random() == old.rng.random()
    assert all(now is then for now, then in zip((new.layout, new.options, new.streams), own))


def test_a_strategy_that_holds_an_open_file_cannot_be_saved() -> None:
    strategy = make(Watching)
    with strategy.log, pytest.raises(CannotEncode, match=r"^strategy\.log: cannot save an object "):
        encode(strategy, {"strategy": strategy}, OWN)


def test_a_strategy_may_save_an_attribute_in_another_form() -> None:
    old, new = make(Other), make(Other)
    assert [old.take(), old.take(), old.take()] == [0, 1, 4]
    moved(old, new)
    assert new.take() == 9 == old.take()


def test_a_vector_store_comes_back_in_a_new_file() -> None:
    store = VectorStore(5, "do less")
    store.row("b")[:], store.row("a")[:] = 2, 1
    encoded = encode({"changes": store})
    store.row("a")[:] = 9  # the copy does not change
    found: Any = decode(encoded)
    new = found["changes"]
    assert (len(new), new.size, new.instead) == (2, 5, "do less")
    assert new.row("a").tolist() == [1] * 5 and new.row("b").tolist() == [2] * 5
    assert new.row("c").tolist() == [0] * 5 and new.row("a").ctypes.data % 64 == 0
    assert not np.shares_memory(new.row("a"), store.row("a"))

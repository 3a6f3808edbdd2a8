"""Pretrained text models: what is trained, what is frozen, and what the flat vector holds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from text_rig import LENGTH, causal_experiment, text_data, text_experiment
from torch import nn

from edgefl.clocks.setup.learning import learning
from edgefl.data.encoding import PARTS, SECOND
from edgefl.errors import UserError
from edgefl.models import bert_classifier
from edgefl.models import workspace as frozen
from edgefl.models.evaluate import next_token_loss, right_tokens
from edgefl.models.pretrained_options import PretrainedOptions
from edgefl.models.workspace import Workspace, layout_of

pytestmark = pytest.mark.slow  # the extra text takes seconds to import


def options(**keys: Any) -> PretrainedOptions:
    return PretrainedOptions(path=str(text_data() / "models" / "bert"), **keys)


def built(vocabulary: int = 60, length: int = LENGTH, **keys: Any) -> Any:
    return bert_classifier.build(options(**keys), (vocabulary, 2, length), 2)


# ------------------------------------------------------------------ the flat vector
@pytest.mark.parametrize(
    ("train", "elements"),
    [
        ("all", None),
        # per layer two targets (query, value), each A (8, 16) and B (16, 8); the classifier (2, 16)
        ("lora", 2 * 2 * (8 * 16 + 16 * 8) + 2 * 16 + 2),
        ("head", 2 * 16 + 2),
    ],
)
def test_the_vector_holds_what_is_trained(train: str, elements: int | None) -> None:
    space = Workspace(lambda: built(train=train))
    every = sum(p.numel() for p in space.model.net.parameters())
    assert space.layout.size == space.layout.parameters == (elements or every)
    assert all(p.requires_grad != (f"net.{name}" in space.model.frozen_part)
               for name, p in space.model.net.named_parameters())  # fmt: skip  # one rule


def test_a_new_adapter_changes_nothing() -> None:
    made = learning(text_experiment({"train": "lora", "dropout": 0.0}), None)
    whole = learning(text_experiment({"dropout": 0.0}), None)
    inputs = made.test[0][:5]
    with made.workspace.inference(made.initial_weights()) as model:
        adapted = model(inputs)
        head = model.net.classifier.weight.clone(), model.net.classifier.bias.clone()
    with whole.workspace.inference(whole.initial_weights()) as model:
        model.net.classifier.weight.copy_(head[0])
        model.net.classifier.bias.copy_(head[1])
        torch.testing.assert_close(model(inputs), adapted)


def test_the_first_model_depends_on_the_seed_alone() -> None:
    made = learning(text_experiment({"train": "lora"}), None)
    other = learning(text_experiment({"train": "lora"}, seed=2), None)
    assert (made.initial_weights() == made.initial_weights()).all()
    assert (made.initial_weights() != other.initial_weights()).any()
    assert made.frozen_digest() == other.frozen_digest()


def test_the_digest_knows_every_frozen_weight(tmp_path: Path) -> None:
    model = built(train="head")
    before = frozen.frozen_digest(model)
    model.net.bert.encoder.layer[1].output.dense.bias.data[3] += 1e-6
    assert before != frozen.frozen_digest(model)
    assert frozen.frozen_digest(built(train="head", dtype="bfloat16")) != before
    assert frozen.frozen_digest(built()) == ""


def test_a_frozen_part_that_is_trained_or_unknown_is_an_error() -> None:
    model: Any = nn.Linear(2, 2)
    model.frozen_part = frozenset({"weight"})
    with pytest.raises(UserError, match="frozen_part of Linear: 'weight' is trained"):
        layout_of(model)
    model.frozen_part = frozenset({"wait"})
    with pytest.raises(UserError, match="'wait' is no parameter or buffer of the model"):
        layout_of(model)


def test_frozen_weights_stay_in_the_mapped_file() -> None:
    model = built(train="head")
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    spans = [
        [int(end, 16) for end in line[0].split("-")]
        for line in maps
        if line[-1].endswith("bert/model.safetensors")
    ]
    weight = model.net.bert.embeddings.word_embeddings.weight
    assert any(low <= weight.data_ptr() < high for low, high in spans)


# ------------------------------------------------------------------ batches


def test_a_causal_model_is_trained_on_its_answers_only() -> None:
    made = learning(causal_experiment({"train": "lora"}), None)
    inputs, targets = made.train[0][:4], made.train[1][:4]
    assert ((targets == -100) == (inputs[:, PARTS] != SECOND)).all()
    with made.workspace.inference(made.initial_weights()) as model:
        outputs = model(inputs)
    assert outputs.shape[1] == int((inputs[:, PARTS] > 0).sum(dim=1).max())
    log_p = outputs.log_softmax(dim=2)
    losses = [
        -log_p[row, place - 1, inputs[row, 0, place]].item()
        for row in range(4)
        for place in range(1, outputs.shape[1])
        if inputs[row, PARTS, place] == SECOND
    ]
    assert float(next_token_loss(outputs, targets)) == pytest.approx(np.mean(losses), rel=1e-5)


def test_loss_and_metric_of_next_tokens_by_hand() -> None:
    outputs = torch.tensor([[[2.0, 0.0], [0.0, 1.0], [5.0, 5.0]]])
    targets = torch.tensor([[-100, 0, 0, -100]])
    # token 0 after position 0 and after position 1; position 2 has no next one
    expected = (np.log1p(np.exp(-2.0)) + np.log1p(np.exp(1.0))) / 2
    assert float(next_token_loss(outputs, targets)) == pytest.approx(expected, rel=1e-6)
    assert float(right_tokens(outputs, targets)) == 0.5
    nothing = torch.full((1, 4), -100)
    assert float(next_token_loss(outputs, nothing)) == float(right_tokens(outputs, nothing)) == 0.0


# ------------------------------------------------------------------ bad input
def changed(tmp_path: Path, **keys: Any) -> str:
    """A copy of the tiny encoder with another config."""
    place = tmp_path / "changed"
    shutil.copytree(text_data() / "models" / "bert", place)
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps(config | keys))
    return str(place)


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"hidden_size": 8, "intermediate_size": 8}, "is .* in the file, .* by config.json"),
        ({"num_hidden_layers": 3}, "16 tensors are not in the file, the first is bert.encoder"),
        ({"num_hidden_layers": 1}, "config.json has too few layers"),
        ({"model_type": "brt"}, "transformers .* knows: model_type 'brt' .nearest: 'bert'"),
        ({"model_type": "vit"}, "no such model of the type 'vit'"),
        ({"vocab_size": 30}, "is .* in the file|has 60 tokens"),
    ],
)
def test_a_directory_that_does_not_fit_is_one_line(
    tmp_path: Path, keys: dict[str, Any], fault: str
) -> None:
    given = PretrainedOptions(path=changed(tmp_path, **keys))
    with pytest.raises(UserError, match=fault) as error:
        bert_classifier.build(given, (30, 2, LENGTH), 2)
    assert "\n" not in str(error.value)


def test_targets_of_adapters_that_match_nothing() -> None:
    with pytest.raises(UserError, match=r"ends in 'quer' .nearest: 'query'"):
        built(train="lora", lora_targets=("quer",))
    with pytest.raises(UserError, match=r"ends in 'classifier'"):  # it is trained itself
        built(train="lora", lora_targets=("classifier",))


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"dtype": "bfloat16"}, 'dtype: expected "float32" with train = "all"'),
        ({"lora_rank": 4}, 'lora_rank: is for train = "lora"'),
        ({"train": "head", "lora_targets": ["query"]}, 'lora_targets: is for train = "lora"'),
        ({"train": "lora", "lora_rank": 0}, "expected greater than or equal to 1"),
    ],
)
def test_options_that_contradict_each_other(keys: dict[str, Any], fault: str) -> None:
    with pytest.raises(UserError, match=fault):
        options(**keys)

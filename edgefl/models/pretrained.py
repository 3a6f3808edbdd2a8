"""Text models of transformers from a local directory, in whole or with a frozen part.

The directory has ``config.json`` and ``model.safetensors`` (or its parts with their index). Nothing
is fetched from a hub, and no code of the directory runs. The weights are memory-mapped: a frozen
tensor of the file's own type stays in the map, which all processes of a host share.

This file imports torch, so models import it inside ``build``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from edgefl.data.encoding import IDS, PARTS, Transformers, trimmed
from edgefl.errors import UserError, nearest, needs
from edgefl.models.pretrained_options import PretrainedOptions

Kind = Literal["bert_classifier", "causal_lm"]
WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
DROPOUTS = (  # the names that configs of transformers have for probabilities of dropout
    "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "dropout",
    "attention_dropout", "seq_classif_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop",
)  # fmt: skip  # names in a block
CONVERT = "AutoModel.from_pretrained(DIR).save_pretrained(OUT) of transformers writes it"
POOLER = "pooler"  # a layer after the encoder that many files lack


class PretrainedText(nn.Module):
    """A model of transformers on encoded texts (``edgefl.data.encoding``).

    Its outputs are float32 logits: (batch, classes), or (batch, l, vocabulary) of a causal model,
    where l is the length of the longest text of the batch. ``net`` is the module of transformers.
    ``frozen_part``: see ``edgefl.models.workspace``.
    """

    def __init__(self, kind: Kind, net: Any, trained: set[str]) -> None:
        super().__init__()
        self.net, self.config = net, net.config
        for name, parameter in net.named_parameters():
            parameter.requires_grad_(name in trained)
            if name in trained:
                parameter.data = parameter.data.float()
        whole = len(trained) == len(list(net.parameters()))
        self.frozen_part = frozenset[str]() if whole else _frozen(self)
        self._more = {"use_cache": False} if kind == "causal_lm" else {}
        self._segments = getattr(net.config, "type_vocab_size", 0) > 1
        for module in net.modules():
            if any(p.requires_grad for p in module.parameters(recurse=False)):
                module.register_forward_pre_hook(_in_its_type)

    def forward(self, texts: torch.Tensor) -> torch.Tensor:
        """Return the logits of ``texts`` (batch, 2, length)."""
        texts = trimmed(texts)
        ids, parts = texts[:, IDS], texts[:, PARTS]
        segments = {"token_type_ids": (parts - 1).clamp(min=0)} if self._segments else {}
        mask = (parts > 0).to(torch.int64)
        found: torch.Tensor = self.net(
            input_ids=ids, attention_mask=mask, **segments, **self._more
        ).logits
        return found.float()


def pretrained(
    kind: Kind, options: PretrainedOptions, shape: tuple[int, ...], classes: int
) -> PretrainedText:
    """Return a model for texts of ``shape`` (vocabulary, 2, length) from ``options.path``.

    Layers that the directory has no weights for get random ones, from torch's generator. UserError
    if the directory, the weights, the texts or the targets of the adapters do not fit.
    """
    library = Transformers(f"model {kind}")
    directory = Path(options.path)
    config = _config(kind, directory, library, classes)
    _check_texts(kind, config, shape, directory)
    if options.dropout is not None:
        for key in DROPOUTS:
            if hasattr(config, key):
                setattr(config, key, options.dropout)
    net, new = _loaded(kind, directory, library, config, options)
    _check_length(kind, net, shape)
    return PretrainedText(kind, net, _trained(kind, options, net, new))


def _trained(kind: Kind, options: PretrainedOptions, net: Any, new: set[str]) -> set[str]:
    """Return the names of the parameters that are trained. Inserts the adapters."""
    if options.train == "all":
        return {name for name, _ in net.named_parameters()}
    head = _head(net)
    if options.train == "head":
        if not head:
            raise UserError(
                f'model.train: "head": the output layer of {options.path} shares its weights with'
                ' the embedding: expected "lora" or "all"'
            )
        return head | new
    trained = new if kind == "causal_lm" else head | new
    return trained | insert(net, options, {name.rpartition(".")[0] for name in trained})


def _in_its_type(module: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Give a trained layer float32 inputs; frozen layers before it may compute in bfloat16."""
    return tuple(
        value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for value in given
    )


def _frozen(model: PretrainedText) -> frozenset[str]:
    unsaved = {
        f"{prefix}.{name}".lstrip(".")
        for prefix, module in model.named_modules()
        for name in module._non_persistent_buffers_set
    }
    return frozenset(
        [name for name, tensor in model.named_parameters() if not tensor.requires_grad]
        + [
            name
            for name, buffer in model.named_buffers()
            if buffer.is_floating_point() and name not in unsaved
        ]
    )


def _config(kind: Kind, directory: Path, library: Transformers, classes: int) -> Any:
    if not directory.is_dir():
        near = nearest(directory.name, _folders(directory.parent))
        raise UserError(
            f"model.path: no directory {directory}{near}; expected one with config.json and"
            f" {WEIGHTS[0]}, relative to the data directory"
        )
    if not (directory / "config.json").is_file():
        raise UserError(f"model.path: {directory} has no config.json: expected a model's directory")
    if not any((directory / name).is_file() for name in WEIGHTS):
        raise UserError(f"model.path: {directory} has no {WEIGHTS[0]}; {CONVERT}")
    labels = {} if kind == "causal_lm" else {"num_labels": classes}
    config = library.config(directory, labels)
    known = library.classes(kind)
    if type(config) not in known:
        raise UserError(
            f"model {kind}: transformers has no such model of the type {config.model_type!r}, which"
            f" {directory} / config.json names{nearest(config.model_type, library.types(kind))}"
        )
    return config


def _folders(parent: Path) -> list[str]:
    try:
        return [place.name for place in parent.iterdir() if place.is_dir()]
    except OSError:
        return []


def _check_texts(kind: Kind, config: Any, shape: tuple[int, ...], directory: Path) -> None:
    vocabulary = getattr(config.get_text_config(), "vocab_size", None)
    if vocabulary is not None and shape[0] > vocabulary:
        raise UserError(
            f"model {kind}: the tokenizer of the data has {shape[0]} tokens, the model in"
            f" {directory} {vocabulary}: expected the tokenizer of this model (data.tokenizer)"
        )


def _check_length(kind: Kind, net: Any, shape: tuple[int, ...]) -> None:
    most = getattr(net.config.get_text_config(), "max_position_embeddings", None)
    if most is None:
        return
    table = next(
        (m for name, m in net.named_modules() if name.endswith("position_embeddings")), None
    )
    padding = getattr(table, "padding_idx", None)
    if padding is not None:  # RoBERTa's positions begin after the padding's number
        most -= padding + 1
    if shape[-1] > most:
        raise UserError(
            f"data.length: expected at most {most}, the longest text that model {kind} takes"
            f" (max_position_embeddings in its config.json), found {shape[-1]}"
        )


def _loaded(
    kind: Kind, directory: Path, library: Transformers, config: Any, options: PretrainedOptions
) -> tuple[Any, set[str]]:
    """Return the module, and the names of its parameters that the directory has no weights for."""
    try:
        net, about = library.model(kind, directory, config, getattr(torch, options.dtype))
    except Exception as error:  # safetensors' and transformers' own kinds
        reason = str(error).partition("\n")[0][:160]
        raise UserError(
            f"model.path: the weights in {directory} cannot be read ({reason}): damaged?"
        ) from error
    base = f"{net.base_model_prefix}."
    wrong = sorted(
        (name, found, wanted)
        for name, found, wanted in about["mismatched_keys"]
        if name.startswith(base)
    )
    if wrong:
        name, found, wanted = wrong[0]
        raise _misfit(
            directory, f"{name} is {tuple(found)} in the file, {tuple(wanted)} by config.json"
        )
    new = set(about["missing_keys"]) | {name for name, _, _ in about["mismatched_keys"]}
    absent = sorted(name for name in new if name.startswith(base) and POOLER not in name)
    if absent:
        raise _misfit(
            directory, f"{len(absent)} tensors are not in the file, the first is {absent[0]}"
        )
    extra = _extra_layers(about["unexpected_keys"], dict(net.named_parameters()), base)
    if extra:
        raise _misfit(
            directory, f"the file has {extra[0]}, for which config.json has too few layers"
        )
    return net, {name for name, _ in net.named_parameters() if name in new}


def _misfit(directory: Path, what: str) -> UserError:
    return UserError(
        f"model.path: the weights in {directory} do not fit its config.json: {what}: expected both"
        " files of one model"
    )


def _extra_layers(unexpected: Iterable[str], known: Iterable[str], base: str) -> list[str]:
    """Return tensors of the file that differ from the model's only in the number of a layer."""
    shapes = {re.sub(r"\d+", "N", name.removeprefix(base)) for name in known}
    return sorted(
        name
        for name in unexpected
        if re.search(r"\.\d+\.", name) and re.sub(r"\d+", "N", name.removeprefix(base)) in shapes
    )


def _head(net: Any) -> set[str]:
    """Return the names of the parameters after the encoder."""
    base = f"{net.base_model_prefix}."
    return {name for name, _ in net.named_parameters() if not name.startswith(base)}


# ---------------------------------------------------------------------- low-rank adapters
MARK = "lora_"


def insert(net: Any, options: PretrainedOptions, kept: Collection[str]) -> set[str]:
    """Insert adapters into the linear layers of ``net``, and return the names of their parameters.

    W x + (alpha / r) B A x with A (r, in) and B (out, r), and W frozen. B is 0 at first, so a new
    model computes what the frozen one does. Source: Hu et al. 2021, LoRA (arXiv 2106.09685),
    section 4.1.

    The layers ``kept`` get none: they are trained themselves. UserError if no layer has one of the
    names in ``options.lora_targets``.
    """
    with needs("text", 'model.train = "lora"'):
        from peft import LoraConfig, inject_adapter_in_model

    wanted: Any = _checked(net, options, kept) or None
    if wanted is None and not _has_defaults(net):
        wanted = "all-linear"
    config = LoraConfig(
        r=options.lora_rank,
        lora_alpha=options.lora_alpha,
        lora_dropout=options.lora_dropout,
        target_modules=wanted,
        exclude_modules=sorted(kept) or None,
    )
    inject_adapter_in_model(config, net)
    return {name for name, _ in net.named_parameters() if MARK in name}


def _has_defaults(net: Any) -> bool:
    from peft.utils import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as DEFAULTS

    ends = DEFAULTS.get(net.config.model_type, ())
    return any(name.rpartition(".")[2] in ends for name, _ in net.named_modules())


def _checked(net: Any, options: PretrainedOptions, kept: Collection[str]) -> list[str]:
    """Return the targets, after a check that each is the end of a linear layer's name."""
    linear = [
        name for name, module in net.named_modules() if _can_adapt(module) and name not in kept
    ]
    for target in options.lora_targets:
        if not any(name == target or name.endswith(f".{target}") for name in linear):
            ends = dict.fromkeys(name.rpartition(".")[2] for name in linear)
            near = nearest(target, ends) or f"; it has {', '.join(ends)}"
            raise UserError(
                f"model.lora_targets: no linear layer of {type(net).__name__} ends in"
                f" {target!r}{near}"
            )
    return list(options.lora_targets)


def _can_adapt(module: nn.Module) -> bool:
    # GPT-2's linear layers are transformers' Conv1D
    return isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"

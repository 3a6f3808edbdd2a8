"""Low-rank adapters: W x + (alpha / r) B A x with A (r, in) and B (out, r), and W frozen.

B is 0 at first, so a new model computes what the frozen one does. peft inserts them. Source: Hu et
al. 2021, LoRA (arXiv 2106.09685), section 4.1.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch import nn

from edgefl.errors import UserError, nearest, needs
from edgefl.models.pretrained_options import PretrainedOptions

MARK = "lora_"


def insert(net: Any, options: PretrainedOptions, kept: Collection[str]) -> set[str]:
    """Insert adapters into the linear layers of ``net``, and return the names of their parameters.

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

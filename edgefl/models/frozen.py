"""The frozen part of a model: tensors that every host has in a file, so they never travel.

A module names them in its attribute ``frozen_part``. They are neither in the layout nor in the flat
vector, and no update changes them. Each process maps the file, so all processes of a host share
one copy. Their digest is a part of an edge's Join: an edge with other frozen weights is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import xxhash
from torch import nn

from edgefl.errors import UserError


def frozen_part(model: nn.Module) -> frozenset[str]:
    """Return the names of the model's frozen parameters and buffers; most models have none.

    UserError if its attribute ``frozen_part`` names something else.
    """
    names: frozenset[str] = frozenset(getattr(model, "frozen_part", ()))
    if names:
        known = {name: tensor.requires_grad for name, tensor in _tensors(model)}
        wrong = next((name for name in sorted(names) if known.get(name, True)), None)
        if wrong is not None:
            problem = "is trained" if wrong in known else "is no parameter or buffer of the model"
            raise UserError(
                f"frozen_part of {type(model).__name__}: {wrong!r} {problem}: expected names of"
                " parameters with requires_grad = False, or of buffers"
            )
    return names


def digest(model: nn.Module) -> str:
    """Return 16 hex digits of the frozen part's names, types, shapes and bytes; "" without one."""
    names = frozen_part(model)
    if not names:
        return ""
    state = xxhash.xxh3_64()
    for name, tensor in _tensors(model):
        if name in names:
            state.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            raw = tensor.detach().contiguous().view(-1).view(torch.uint8)
            state.update(raw.numpy(force=True).data)
    return state.hexdigest()


def frozen_bytes(model: nn.Module) -> int:
    """Return the size of the frozen part."""
    names = frozen_part(model)
    return sum(
        tensor.numel() * tensor.element_size() for name, tensor in _tensors(model) if name in names
    )


def _tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()

"""A GPU that is none: torch computes on the CPU, but tensors of both places must not meet.

Tensors move with ``to``, ``cpu``, ``copy_`` and ``numpy(force=True)`` only, as with a real GPU. So
the code runs as it would there, with the numbers of the CPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from edgefl.models import torch_device

GPU = torch.device("cuda", 0)
CPU = torch.device("cpu")
BOTH = {torch.Tensor.copy_, torch.Tensor.__getitem__}  # may have tensors of both places


class OnGpu(torch.Tensor):
    """A tensor on the GPU."""


def _plain(value: Any) -> Any:
    return value.as_subclass(torch.Tensor) if isinstance(value, OnGpu) else value


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _tensors(part)


class FakeGpu(TorchFunctionMode):
    """Use it as a context. ``moved``: bytes that went "up" to the GPU and "down" from it.

    ``attention``: which of its kernels were switched on or off.
    """

    def __init__(self) -> None:
        super().__init__()
        self.moved: Counter[str] = Counter()
        self.attention: dict[str, bool] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if func == torch.Tensor.device.__get__:
            return GPU if isinstance(args[0], OnGpu) else CPU
        if func in (torch.Tensor.to, torch.Tensor.cpu):
            wanted = CPU if func is torch.Tensor.cpu else self._device(args, kwargs)
            if wanted is not None:
                return self._moved(args[0], wanted)
        if func is torch.Tensor.numpy and isinstance(args[0], OnGpu):
            if not kwargs.pop("force", False):
                raise TypeError("can't convert a tensor of the GPU to numpy")
            return self._moved(args[0].detach(), CPU).numpy().copy()
        place = kwargs.pop("device", None)
        with torch._C.DisableTorchFunction():
            here = [each for each in _tensors((args, tuple(kwargs.values()))) if each.dim()]
        up = any(isinstance(each, OnGpu) for each in here)
        alien = [each for each in here if type(each) is torch.Tensor]
        if up and alien and func not in BOTH and not name.startswith("__set"):
            raise RuntimeError(f"{name}: expected all tensors on one device")
        found = func(*args, **kwargs)
        if place is not None and torch.device(place).type == "cuda":
            return found.as_subclass(OnGpu)
        return found

    def _device(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device | None:
        first = args[1] if len(args) > 1 else kwargs.get("device")
        return torch.device(first) if isinstance(first, (torch.device, str)) else None

    def _moved(self, tensor: torch.Tensor, where: torch.device) -> torch.Tensor:
        there = GPU if isinstance(tensor, OnGpu) else CPU
        if there == where:
            return tensor
        self.moved["up" if where == GPU else "down"] += tensor.nbytes
        copied = tensor.clone()
        return copied.as_subclass(OnGpu) if where == GPU else _plain(copied)


def _module_to(module: nn.Module, device: torch.device) -> nn.Module:
    """nn.Module.to: parameters get their data from the workspace, buffers are made anew."""
    for part in module.modules():
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = buffer.to(device)
    return module


@contextmanager
def fake_gpu(monkeypatch: pytest.MonkeyPatch, count: int = 1) -> Iterator[FakeGpu]:
    """Let torch have ``count`` GPUs."""
    states = {GPU: torch.get_rng_state()}
    keep: dict[str, Callable[..., Any]] = {
        "device_count": lambda: count,
        "get_rng_state": lambda gpu: states[gpu],
        "set_rng_state": lambda state, gpu: states.update({gpu: state}),
    }
    fork = torch.random.fork_rng
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda on, warn_only: None)
    for name, function in keep.items():
        monkeypatch.setattr(torch.cuda, name, function)
    monkeypatch.setattr(torch_device, "_generator", lambda place: torch.Generator())
    monkeypatch.setattr(torch.random, "fork_rng", lambda devices: fork(devices=[]))
    monkeypatch.setattr(nn.Module, "to", _module_to)
    with FakeGpu() as gpu:
        for kernel in ("flash", "mem_efficient", "cudnn"):
            monkeypatch.setattr(
                torch.backends.cuda,
                f"enable_{kernel}_sdp",
                lambda on, kernel=kernel: gpu.attention.update({kernel: on}),
            )
        yield gpu

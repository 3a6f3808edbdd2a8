"""One torch module whose tensors are views into the flat vector that is in use.

Thousands of devices in one process share a workspace. A change from one training run to another
only sets a few views to the other vector and copies nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
import xxhash
from torch import nn
from torch.nn.parameter import is_lazy

from edgefl.errors import UserError
from edgefl.models import layers
from edgefl.models.module_state import Changes, ModuleState
from edgefl.models.torch_device import CPU
from edgefl.streams import Streams
from edgefl.vectors import ALIGNMENT, Layout, LayoutEntry, aligned, aligned_copy


class Workspace:
    """A module, its layout, and one flat gradient of the trainable elements.

    The ``grad`` of every parameter is a view into that gradient.
    """

    def __init__(self, build: Callable[[], nn.Module]) -> None:
        self.model = _built(build, seed=0)
        self.layout = layout_of(self.model)
        self.arranged = TrainingOrder(self.model).arranged  # a batch to train on
        self._fresh_counters = [buffer.clone() for buffer in _counters(self.model)]
        self.model.train()
        self._attach(CPU)

    def to(self, device: torch.device) -> None:
        """Move the module and all that belongs to it. Runs in progress must not be continued."""
        if device == self.device:
            return
        for parameter in self.model.parameters():
            parameter.grad = None  # a view; the new one is made below
        self.model.to(device)
        self._fresh_counters = [counter.to(device) for counter in self._fresh_counters]
        self._attach(device)

    def placed(self, vector: np.ndarray) -> torch.Tensor:
        """Return ``vector`` as a tensor on the device. On the CPU it shares memory, as ``wrap``."""
        return wrap(vector).to(self.device)

    def _attach(self, device: torch.device) -> None:
        self.device = device
        self._tensors = [tensor for _, _, tensor in _float_tensors(self.model)]
        self._sizes, self._shapes = (
            [e.size for e in self.layout.entries],
            [e.shape for e in self.layout.entries],
        )
        # at the end of the layout
        self._buffers = sum(not isinstance(tensor, nn.Parameter) for tensor in self._tensors)
        self._counters = _counters(self.model)
        self.state = ModuleState(self.model, [*self._tensors, *self._counters])
        self.gradient = self.placed(aligned(self.layout.parameters)).zero_()
        trainable = [tensor for tensor in self._tensors if tensor.requires_grad]
        for tensor, part in zip(
            trainable, self.gradient.split([tensor.numel() for tensor in trainable])
        ):
            tensor.grad = part.view(tensor.shape)
        self._resident: tuple[torch.Tensor, Sequence[torch.Tensor]] = (torch.empty(0), [])
        self.point(self.placed(flat(self.model)), self.fresh_counters())

    def fresh_counters(self) -> list[torch.Tensor]:
        """Return the integer buffers of a new model, such as BatchNorm's count of batches.

        They are not in the flat vector, but each run needs its own.
        """
        return [counter.clone() for counter in self._fresh_counters]

    def point(self, vector: torch.Tensor, counters: Sequence[torch.Tensor]) -> None:
        """Use ``vector`` (whole layout) and ``counters``: the module trains them in place."""
        if vector is self._resident[0]:
            return
        self._use(vector.split(self._sizes), counters)
        self._resident = (vector, counters)

    def _use(self, parts: Sequence[torch.Tensor], counters: Sequence[torch.Tensor]) -> None:
        for tensor, part, shape in zip(self._tensors, parts, self._shapes):
            tensor.data = part.view(shape)
        for buffer, counter in zip(self._counters, counters):
            buffer.data = counter

    def resume(self, changes: Changes | None) -> None:
        """Let a task go on, after ``point``, with what ``leave`` has returned."""
        if changes is not None:
            self.state.put(changes)

    def settle(self) -> None:
        """After a step: a buffer that the module has replaced counts as changed in place.

        UserError if its new value does not fit.
        """
        self.state.settle()

    def leave(self) -> Changes | None:
        """At the end of a task, or of a part of it: the module holds again what it held when built.

        Return what the task needs to go on; None: nothing. UserError that names state that cannot
        be taken back.
        """
        try:
            self.state.settle()
        finally:
            changes = self.state.take()
        return changes or None

    def with_features(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the module's outputs and the inputs of its last linear layer: (batch, features).

        UserError if it has no linear layer.
        """
        entered: list[torch.Tensor] = []
        hook = _head(self.model).register_forward_pre_hook(
            lambda _, given: entered.append(given[0].flatten(1))
        )
        try:
            return self.model(inputs), entered[-1]
        finally:
            hook.remove()

    @contextmanager
    def inference(self, weights: np.ndarray | torch.Tensor) -> Iterator[nn.Module]:
        """Yield the module at ``weights``, in evaluation mode and without gradients.

        At the end it uses its former vector again.
        """
        with (
            self.frozen(
                self.placed(weights) if isinstance(weights, np.ndarray) else weights.detach()
            ) as model,
            torch.no_grad(),
        ):
            yield model

    @contextmanager
    def frozen(self, vector: torch.Tensor) -> Iterator[nn.Module]:
        """Yield the module at ``vector`` in evaluation mode: no buffer changes, no dropout.

        It holds what it held when it was built, and what it changes of that is dropped. At the end
        it uses its former vector again.
        """
        if vector.numel() != self.layout.size:
            raise ValueError(
                f"a vector of {vector.numel()} elements for a model of {self.layout.size}"
            )
        before, running = self._resident, self.state.take()
        parts = list(vector.split(self._sizes))
        if self._buffers:  # the module may write to copies
            parts[-self._buffers :] = self._copied_buffers(vector)
        self._resident = (torch.empty(0), [])
        self._use(parts, self.fresh_counters())
        self.model.eval()
        try:
            yield self.model
        finally:
            self.model.train()
            try:
                self.state.take()
            finally:
                self.point(*before)
                self.state.put(running)

    def _copied_buffers(self, vector: torch.Tensor) -> Sequence[torch.Tensor]:
        """Copies of the float buffers in ``vector``, at the same offset to a multiple of 64 bytes:
        sums depend on it.
        """
        sizes = self._sizes[-self._buffers :]
        tail = vector[-sum(sizes) :] if sum(sizes) else vector[:0]
        step = ALIGNMENT // tail.element_size()
        shift = tail.data_ptr() // tail.element_size() % step
        room = tail.new_empty(tail.numel() + step)[shift : shift + tail.numel()]
        return room.copy_(tail).split(sizes)


def _head(model: nn.Module) -> nn.Linear:
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise UserError(
            "the model has no linear layer: this strategy needs the inputs of the last one as"
            " features"
        )
    return linear[-1]


def layout_of(model: nn.Module) -> Layout:
    """Return [trainable parameters | frozen parameters | float buffers] in the module's order.

    Tensors of the module's ``frozen_part`` are left out. UserError
    unless all others are float32.
    """
    entries, offset = [], 0
    for name, kind, tensor in _float_tensors(model):
        if is_lazy(tensor):
            raise UserError(
                f"the model's tensor {name!r} has no shape yet: expected modules of a known size"
                " instead of lazy ones, such as Linear instead of LazyLinear"
            )
        if tensor.dtype != torch.float32:
            raise UserError(
                f"the model's tensor {name!r} is {str(tensor.dtype).removeprefix('torch.')}:"
                " expected float32"
            )
        entries.append(
            LayoutEntry(name, tuple(tensor.shape), offset, kind, name.rpartition(".")[0])
        )
        offset += tensor.numel()
    return Layout(tuple(entries))


def initial(build: Callable[[], nn.Module], streams: Streams) -> np.ndarray:
    """Return w_0: the flat vector of a new model, the same for the same seed."""
    return flat(_built(build, seed=int(streams.rng("model").integers(2**63))))


def flat(model: nn.Module) -> np.ndarray:
    """Return a copy of the model's tensors as one aligned vector over its layout."""
    layout = layout_of(model)
    out = aligned(layout.size)
    for entry, (_, _, tensor) in zip(layout.entries, _float_tensors(model)):
        layout.view(out, entry.name)[...] = tensor.numpy(force=True)
    return out


def wrap(vector: np.ndarray) -> torch.Tensor:
    """Return a tensor of ``vector``.

    It shares the memory if that is float32 and 64-byte aligned; else it is an aligned copy.
    """
    fits = (
        vector.dtype == np.float32
        and vector.flags.c_contiguous
        and vector.ctypes.data % ALIGNMENT == 0
    )
    # a vector may be read-only to protect its other readers; the trainer changes only its own
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(
            vector if fits else aligned_copy(vector.astype(np.float32, copy=False))
        )


def _built(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def _counters(model: nn.Module) -> list[torch.Tensor]:
    return [buffer for buffer in model.buffers() if not buffer.is_floating_point()]


def _float_tensors(model: nn.Module) -> list[tuple[str, str, torch.Tensor]]:
    """Return (name, kind, tensor) in layout order, without the frozen part and without buffers that
    the module does not save.

    The code of the module computes those buffers, so they are not part of the layout.
    """
    left_out = frozen_part(model)
    unsaved = {
        f"{prefix}.{name}".lstrip(".")
        for prefix, module in model.named_modules()
        for name in module._non_persistent_buffers_set
    }
    parameters = [(name, p) for name, p in model.named_parameters() if name not in left_out]
    buffers = [
        (name, b)
        for name, b in model.named_buffers()
        if b.is_floating_point() and name not in unsaved | left_out
    ]
    trainable = [(name, "parameter", p) for name, p in parameters if p.requires_grad]
    frozen = [(name, "buffer", p) for name, p in parameters if not p.requires_grad]
    return trainable + frozen + [(name, "buffer", b) for name, b in buffers]


# ---------------------------------------------------------------------- the order of images
POOLING = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, layers.GlobalAverage)
# With 340 (ResNet-20) a step in channels-last is faster, with 2,400 (AlexNet) it is slower.
MOST_WEIGHTS_PER_PIXEL = 1000


def channels_last(inputs: torch.Tensor) -> torch.Tensor:
    """Return images (batch, channels, height, width) in channels-last order, other inputs as they
    are.

    In this order the channels of each pixel lie side by side; torch's own order has rows of pixels
    for each channel. Results in the two orders differ in the last bits only.
    """
    if inputs.dim() != 4:
        return inputs
    if inputs.shape[1] > 1:
        return inputs.contiguous(memory_format=torch.channels_last)
    height, width = inputs.shape[2:]
    # with one channel both orders have the same memory; torch decides by the strides
    return inputs.contiguous().as_strided(inputs.shape, (height * width, 1, width, 1))


class TrainingOrder:
    """In which order a model gets its images in training: the faster one on one core of a CPU.

    The rule depends on the model and the size of the images only, so that every host computes the
    same bytes.
    """

    def __init__(self, model: nn.Module) -> None:
        modules = list(model.modules())
        self._convolutions = sum(
            module.weight.numel() for module in modules if isinstance(module, nn.Conv2d)
        )
        # Only in channels-last is ``max_pool2d`` vectorised. Without pooling, the step before
        # ``Flatten`` gets its gradient in the other order, which costs more than is gained. And a
        # model's own code may need torch's order, such as ``x.view(len(x), -1)``.
        self._gains = (
            self._convolutions > 0
            and any(isinstance(module, POOLING) for module in modules)
            and all(map(_takes_any_order, modules))
        )

    def arranged(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return a batch in the order in which the model trains on it."""
        if not self._gains or inputs.dim() != 4 or inputs.device.type != "cpu":
            return inputs
        # each convolution copies its weights to the images' order, and their gradient back
        pixels = inputs.shape[2] * inputs.shape[3]
        few = self._convolutions <= MOST_WEIGHTS_PER_PIXEL * pixels
        return channels_last(inputs) if few else inputs


def _takes_any_order(module: nn.Module) -> bool:
    code = type(module).__module__
    return code.startswith("torch.nn.modules.") or code == layers.__name__


# ---------------------------------------------------------------------- the frozen part
def frozen_part(model: nn.Module) -> frozenset[str]:
    """Return the names of the model's frozen parameters and buffers; most models have none.

    These are tensors that every host has in a file, so they never travel. A module names them in
    its attribute ``frozen_part``. They are neither in the layout nor in the flat vector, and no
    update changes them. Each process maps the file, so all processes of a host share one copy.
    Their digest is a part of an edge's Join: an edge with other frozen weights is refused.

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


def frozen_digest(model: nn.Module) -> str:
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


def _tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()

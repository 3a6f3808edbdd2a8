"""Where torch computes: on the CPU, or on a GPU that it drives with CUDA (or ROCm).

A process that has begun to use CUDA must not be forked. So a parent of workers or edges only checks
that a GPU is there, and each child begins to use it when it first trains.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from edgefl.errors import UserError

CPU = torch.device("cpu")
KEY = "training.device"
GET_TORCH = "https://pytorch.org/get-started/locally"

# The states of torch's generators: the CPU's, and on a GPU that GPU's after it.
RandomStates = tuple[torch.Tensor, ...]


def chosen(name: str | None) -> torch.device:
    """Return the device that ``training.device`` names; None: the CPU. UserError if this machine
    lacks it.

    It asks the driver only for the number of GPUs, so this process may still be forked.
    """
    if name is None or name == "cpu":
        return CPU
    count = torch.cuda.device_count()
    if name == "auto":
        return torch.device("cuda", 0) if count else CPU
    if not count:
        version = f"torch {torch.__version__}"
        why = (
            f"{version} is here and finds no GPU with a driver (nvidia-smi lists them)"
            if torch.backends.cuda.is_built()
            else f"{version} is here, which cannot use GPUs: install one that can, see {GET_TORCH}"
        )
        raise UserError(f'{KEY} = "{name}": {why}; "auto" takes a GPU only where there is one')
    index = torch.device(name).index or 0
    if index >= count:
        have = "one GPU" if count == 1 else f"{count} GPUs"
        last = "" if count == 1 else f' to "cuda:{count - 1}"'
        raise UserError(f'{KEY}: expected "cuda:0"{last}, this machine has {have}, found "{name}"')
    return torch.device("cuda", index)


_before: list[int] = []  # the number of torch's threads before ``one_thread``


def one_thread() -> None:
    """Let torch compute on one thread: sums of long vectors depend on the number of threads, and
    every engine computes the same bytes.
    """
    if torch.get_num_threads() != 1:
        _before[:] = [torch.get_num_threads()]
        torch.set_num_threads(1)


def threads_as_before() -> None:
    """Undo ``one_thread``, for a program that does other things after its runs."""
    if _before:
        torch.set_num_threads(_before.pop())


def make_repeatable(device: torch.device) -> None:
    """On a GPU, let torch use only algorithms that repeat their results, in full float32.

    Operations without such an algorithm warn. On the CPU nothing changes.
    """
    if device.type == "cpu":
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.use_deterministic_algorithms(True, warn_only=True)


def seeded(seed: int, device: torch.device) -> RandomStates:
    """Return the states of new generators with this seed."""
    places = [CPU] if device.type == "cpu" else [CPU, device]
    return tuple(_generator(place).manual_seed(seed).get_state() for place in places)


def _generator(place: torch.device) -> torch.Generator:
    return torch.Generator(place)


@contextmanager
def drawing_from(
    states: RandomStates, device: torch.device
) -> Iterator[Callable[[], RandomStates]]:
    """Let torch's own generators continue from ``states``, and restore them at the end.

    Yields a function that returns their present states.
    """
    gpus = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(devices=gpus):
        torch.set_rng_state(states[0])
        for gpu, state in zip(gpus, states[1:]):
            torch.cuda.set_rng_state(state, gpu)
        yield lambda: (torch.get_rng_state(), *(torch.cuda.get_rng_state(gpu) for gpu in gpus))

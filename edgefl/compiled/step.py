"""The compiled step of a network: made once for a processor, kept on disk, called on numpy arrays.

LLVM makes the machine code, through ``llvmlite``, which has wheels for x86 and ARM: no compiler is
needed. It takes about a second for a network, and its code is then kept in the cache of parsed data
sets. If that cannot be written, every process that needs it makes it anew. Kept code is executed,
so it is taken only from a folder and a file that nobody else can write.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from edgefl.compiled import emitter
from edgefl.compiled.emitter import Emitter, Registers
from edgefl.compiled.network import Network, Unsuited
from edgefl.data.dataset import NormalisedRows
from edgefl.data.paths import cache_dir
from edgefl.vectors import aligned

OPTIMIZATION = 1  # of LLVM: 2 and 3 take longer and the code is not faster
FOLDER = "compiled"
DIGEST_BYTES = 32
SCORED = 1000  # samples at a time in an evaluation


@dataclass(frozen=True)
class Processor:
    """What code is made for; ``features`` as LLVM names them, such as "+avx2,-avx512f"."""

    name: str
    features: str
    registers: Registers


@lru_cache
def this_processor() -> Processor:
    """The processor of this machine. Unsuited if its vector registers are not supported."""
    has = llvm.get_host_cpu_features()
    name, features = llvm.get_host_cpu_name(), has.flatten()
    architecture = llvm.get_process_triple().partition("-")[0]
    if architecture in ("aarch64", "arm64"):
        return Processor(name, features, Registers(4, 16))
    if architecture == "x86_64" and has.get("avx512f") and has.get("avx512vl"):
        return Processor(name, features, Registers(16, 16))
    if architecture == "x86_64" and has.get("avx2") and has.get("fma"):
        return Processor(name, features, Registers(8, 12))
    raise Unsuited(f"this processor ({architecture}, {name}) has neither AVX2 nor NEON")


class CompiledStep:
    """Forward, backward and SGD of a network on one thread, in memory of its own.

    All arrays are contiguous: ``weights`` and gradients float32 over ``network.parameters``
    elements (a longer vector's front), inputs float32 (samples, channels, height, width), labels
    int64, ``index`` int64, the samples in their order. ValueError for others.
    """

    def __init__(self, network: Network, processor: Processor | None = None) -> None:
        """Take the code from the cache or make it. Unsuited if this processor cannot run it."""
        self.network, self.parameters, self.classes = network, network.parameters, network.classes
        self._code = _code(network, processor or this_processor())
        self._memory = aligned(self._code.floats)
        self._memory[:] = 0
        self._slope = aligned(self.parameters)

    def gradient(
        self,
        weights: np.ndarray,
        gradient: np.ndarray,
        inputs: np.ndarray,
        labels: np.ndarray,
        index: np.ndarray,
    ) -> float:
        """Write the gradient of the mean loss of these samples, and return the loss."""
        loss: float = self._code.gradient(
            self._vector(weights),
            self._vector(gradient),
            self._images(inputs),
            _address(labels, np.int64),
            _address(index, np.int64),
            len(index),
            _address(self._memory),
        )
        return loss

    def train(
        self,
        weights: np.ndarray,
        velocity: np.ndarray | None,
        inputs: np.ndarray,
        labels: np.ndarray,
        index: np.ndarray,
        sizes: np.ndarray,
        rates: np.ndarray,
        momentum: float = 0.0,
        decay: float = 0.0,
        start: np.ndarray | None = None,
        proximal: float = 0.0,
    ) -> np.ndarray:
        """SGD in place, a step for each of ``sizes`` (int64) with one of ``rates`` (float32), on
        batches that follow each other in ``index``. Return the loss of each step.

        v <- momentum v + g + decay w + proximal (w - start) and w <- w - rate v; ``velocity``
        None: without momentum; ``start`` None: without a proximal term.
        """
        losses = np.empty(len(sizes))
        self._code.train(
            self._vector(weights),
            None if velocity is None else self._vector(velocity),
            self._vector(self._slope),
            self._images(inputs),
            _address(labels, np.int64),
            _address(index, np.int64),
            _address(sizes, np.int64),
            _address(rates),
            len(sizes),
            momentum,
            decay,
            None if start is None else self._vector(start),
            proximal,
            _address(self._memory),
            _address(losses, np.float64),
        )
        return losses

    def outputs(self, weights: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        """The scores of all inputs: float32 (samples, classes)."""
        index = np.arange(len(inputs), dtype=np.int64)
        scores = np.empty((len(inputs), self.classes), dtype=np.float32)
        self._code.outputs(
            self._vector(weights),
            self._images(inputs),
            _address(index, np.int64),
            len(index),
            _address(self._memory),
            _address(scores),
        )
        return scores

    def _vector(self, vector: np.ndarray) -> int:
        if vector.ndim != 1 or len(vector) < self.parameters:
            raise ValueError(
                f"a vector of shape {vector.shape} for a model of {self.parameters} parameters"
            )
        return _address(vector)

    def _images(self, images: np.ndarray) -> int:
        if images.shape[1:] != self.network.shape:
            raise ValueError(
                f"samples of shape {images.shape[1:]} for a model of samples of"
                f" {self.network.shape}"
            )
        return _address(images)

    def scores(
        self, weights: np.ndarray, inputs: NormalisedRows | np.ndarray, labels: np.ndarray
    ) -> tuple[float, float]:
        """Mean cross-entropy and accuracy, in float64."""
        loss, right = 0.0, 0
        for start in range(0, len(labels), SCORED):
            rows = slice(start, start + SCORED)
            losses, answers = self._by_sample(weights, inputs[rows], labels[rows])
            loss += float(losses.sum())
            right += int(answers.sum())
        return loss / len(labels), right / len(labels)

    def by_sample(
        self, weights: np.ndarray, inputs: NormalisedRows, labels: np.ndarray, index: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Cross-entropy, and whether the answer is right, of each sample at ``index``: float64 and
        bool.
        """
        losses, right = np.empty(len(index)), np.empty(len(index), bool)
        for start in range(0, len(index), SCORED):
            rows = index[start : start + SCORED]
            found = self._by_sample(weights, inputs[rows], labels[rows])
            losses[start : start + SCORED], right[start : start + SCORED] = found
        return losses, right

    def _by_sample(
        self, weights: np.ndarray, inputs: np.ndarray, labels: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        outputs = self.outputs(weights, inputs).astype(np.float64)
        with np.errstate(invalid="ignore"):  # a model that diverges has scores of no meaning
            outputs -= outputs.max(axis=1, keepdims=True)
            losses = np.log(np.exp(outputs).sum(axis=1)) - outputs[np.arange(len(labels)), labels]
        return losses, outputs.argmax(axis=1) == labels


def _address(array: np.ndarray, kind: type[np.generic] = np.float32) -> int:
    """Where an array is. ValueError unless machine code can read it as it is."""
    if array.dtype != kind or not array.flags.c_contiguous:
        order = "" if array.flags.c_contiguous else ", not contiguous"
        raise ValueError(f"an array of {array.dtype}{order}: expected contiguous {kind.__name__}")
    return array.ctypes.data


@dataclass(frozen=True)
class _Code:
    """The functions of a network in this process, and the floats of memory that they need."""

    engine: Any  # keeps the code alive
    floats: int
    gradient: Callable[..., float]
    train: Callable[..., None]
    outputs: Callable[..., None]


@lru_cache(maxsize=64)
def _code(network: Network, processor: Processor) -> _Code:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    machine = target.create_target_machine(
        cpu=processor.name, features=processor.features, opt=2, reloc="pic", codemodel="jitdefault"
    )
    place = _place(network, processor)
    built = _kept(place)
    if built is None:
        built = _built(network, processor, machine)
        _keep(place, built)
    empty = llvm.parse_assembly("")
    empty.triple = machine.triple
    engine = llvm.create_mcjit_compiler(empty, machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(built))
    engine.finalize_object()
    pointer, number, factor = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float

    def function(name: str, result: Any, *kinds: Any) -> Any:
        return ctypes.CFUNCTYPE(result, *kinds)(engine.get_function_address(name))

    return _Code(
        engine,
        Emitter(network, processor.registers).at.used,
        function("gradient", ctypes.c_double, *[pointer] * 5, number, pointer),
        function(
            "train", None, *[pointer] * 8, number, factor, factor, pointer, factor, pointer, pointer
        ),
        function("outputs", None, *[pointer] * 3, number, pointer, pointer),
    )


def _built(network: Network, processor: Processor, machine: Any) -> bytes:
    module = llvm.parse_assembly(Emitter(network, processor.registers).write())
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=OPTIMIZATION)
    # the vectors are in the code already
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    passes = llvm.create_pass_builder(machine, options)
    passes.getModulePassManager().run(module, passes)
    built: bytes = machine.emit_object(module)
    return built


def _place(network: Network, processor: Processor) -> Path:
    """Where the code of a network for a processor is kept."""
    source = Path(emitter.__file__).read_bytes()
    about = repr((network, processor, llvmlite.__version__, OPTIMIZATION)).encode()
    return cache_dir(os.environ) / FOLDER / f"{hashlib.sha256(about + source).hexdigest()[:32]}.o"


def _kept(place: Path) -> bytes | None:
    """Kept code that is whole and that only this user can have written."""
    try:
        if not (_is_private(place.parent) and _is_private(place)):
            return None
        content = place.read_bytes()
    except OSError:
        return None
    digest, built = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
    return built if hashlib.sha256(built).digest() == digest else None


def _is_private(path: Path) -> bool:
    found = path.stat()
    ours = not hasattr(os, "geteuid") or found.st_uid in (0, os.geteuid())
    return ours and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _keep(place: Path, built: bytes) -> None:
    """Keep code for other processes, as far as the folder can be written."""
    with suppress(OSError):
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # two processes may make the same at the same time: the last one replaces it as a whole
        descriptor, name = tempfile.mkstemp(dir=place.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(hashlib.sha256(built).digest() + built)
            os.replace(name, place)
        except OSError:
            os.unlink(name)
            raise

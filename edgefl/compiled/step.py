"""Machine code for one small network: forward, cross-entropy, backward and SGD.

``Emitter`` writes LLVM IR. ``CompiledStep`` lets LLVM turn it into code, once for a processor,
keeps that on disk, and calls it on numpy arrays.

Eager torch reaches a seventh of what a core can do with these networks: layers of a few channels,
batches of a few samples. Here **the batch is the innermost dimension**: an image is (channel, row,
column, sample), so a whole row of a layer is one contiguous vector, and a kernel element only
shifts it. A vector register takes the next elements of a row, whichever samples and columns they
belong to; a weight is one scalar for all of them. Several channels are computed at once, so that
their sums stay in registers.

A batch is cut into *parts* of at most ``PART`` samples, so that the memory in use does not grow
with it. Behind the images, dense layers work on *blocks* of as many samples as a register has
elements, with zeros for missing samples, whose loss does not count.

Sums have one fixed order for a given register width: the same bytes in every process, whatever the
number of workers. They differ from torch's in the last bits, and between processors with registers
of different widths.

Max pooling gives a gradient to the first of equal elements, as torch does; ReLU gives 0 at 0. NaN
stays NaN through both.

LLVM comes with ``llvmlite``, which has wheels for x86 and ARM: no compiler is needed. It takes
about a second for a network, and its code is then kept in the cache of parsed data sets. If that
cannot be written, every process that needs it makes it anew. Kept code is executed, so it is taken
only from a folder and a file that nobody else can write.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from edgefl.compiled.network import Convolution, Linear, Network, Pooling, Unsuited
from edgefl.data.dataset import NormalisedRows, cache_dir
from edgefl.vectors import aligned

F32 = ir.FloatType()
F64 = ir.DoubleType()
I64 = ir.IntType(64)
I32 = ir.IntType(32)
PTR = ir.PointerType()
PART = 32  # samples
PAIR = 2  # vectors, or blocks, that are multiplied with the same weights at a time
LINE = 16  # floats of a cache line
# e^x = 2^n e^r with |r| <= ln 2 / 2: the polynomial of Cephes' expf, 2 units in the last place
EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5)
# ln(1 + x) for 1 + x between 1/sqrt(2) and sqrt(2): Cephes' logf
LOG = (
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1),
    *(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
ROUND = 12582912.0  # 1.5 * 2**23: adding it rounds a float to a whole number in its low bits
LEAST_EXPONENT = -87.0
ROOT_OF_HALF = 0x3F3504F3  # the bits of 1/sqrt(2)


@dataclass(frozen=True)
class Registers:
    """Vector registers: the float32 elements of one, and how many sums to keep in them."""

    width: int
    sums: int


@dataclass(frozen=True)
class Image:
    """Where a tensor (channels, height, width, samples) is, with a border of zeros.

    ``offset`` counts floats. Places count columns: a place times the samples is a number of floats.
    """

    offset: int
    channels: int
    height: int
    width: int
    top: int = 0
    left: int = 0
    bottom: int = 0
    right: int = 0

    @property
    def row(self) -> int:
        return self.width + self.left + self.right

    @property
    def plane(self) -> int:
        return self.row * (self.height + self.top + self.bottom)

    @property
    def bordered(self) -> bool:
        return any((self.top, self.left, self.bottom, self.right))

    def at(self, code: Code, channel: Any, y: Any, x: Any) -> Any:
        """The place of a column: a whole number or an IR value."""
        above = code.times(code.sum(y, self.top), self.row)
        return code.sum(code.times(channel, self.plane), above, x, self.left)


@lru_cache(maxsize=10_000)
def whole(number: int) -> ir.Constant:
    return I64(number)


@lru_cache(maxsize=10_000)
def pattern(*places: int) -> ir.Constant:
    """The elements that a shuffle takes, or the same number in each element."""
    return ir.Constant(ir.VectorType(I32, len(places)), places)


class Code:
    """Instructions of one function, with Python numbers where the values are known."""

    def __init__(self, function: ir.Function, lanes: int) -> None:
        self.function, self.lanes = function, lanes
        self.vector = ir.VectorType(F32, lanes)
        self.b = ir.IRBuilder(function.append_basic_block("entry"))

    # whole numbers -------------------------------------------------------------------------------

    def value(self, number: Any) -> Any:
        return whole(number) if isinstance(number, int) else number

    def sum(self, *terms: Any) -> Any:
        known = sum(term for term in terms if isinstance(term, int))
        total = None
        for term in terms:
            if not isinstance(term, int):
                total = term if total is None else self.b.add(total, term, flags=("nsw",))
        if total is None:
            return known
        return self.b.add(total, I64(known), flags=("nsw",)) if known else total

    def times(self, number: Any, factor: Any) -> Any:
        if isinstance(number, int):
            number, factor = factor, number
        if isinstance(number, int):
            return number * factor
        if isinstance(factor, int):
            if factor == 0:
                return 0
            return number if factor == 1 else self.b.mul(number, I64(factor), flags=("nsw",))
        return self.b.mul(number, factor, flags=("nsw",))

    @contextmanager
    def loop(self, stop: Any, start: Any = 0, step: int = 1) -> Iterator[Any]:
        """A loop; its counter is a Python number if it has one turn."""
        if isinstance(stop, int) and isinstance(start, int) and stop - start <= step:
            if stop > start:
                yield start
                return
            raise ValueError("an empty loop")
        before = self.b.block
        head, body, end = (self.b.append_basic_block(name) for name in ("head", "body", "end"))
        self.b.branch(head)
        self.b.position_at_end(head)
        counter = self.b.phi(I64)
        counter.add_incoming(self.value(start), before)
        self.b.cbranch(self.b.icmp_signed("<", counter, self.value(stop)), body, end)
        self.b.position_at_end(body)
        yield counter
        counter.add_incoming(self.b.add(counter, I64(step), flags=("nsw",)), self.b.block)
        self.b.branch(head)
        self.b.position_at_end(end)

    # floats --------------------------------------------------------------------------------------

    def kind(self, width: int) -> Any:
        return F32 if width == 1 else ir.VectorType(F32, width)

    def variable(self, kind: Any, first: Any = None) -> Any:
        with self.b.goto_entry_block():
            place = self.b.alloca(kind)
        if first is not None:
            self.b.store(first, place)
        return place

    def address(self, base: Any, index: Any, kind: Any = F32) -> Any:
        return self.b.gep(base, [self.value(index)], source_etype=kind)

    def scalar(self, base: Any, index: Any, kind: Any = F32) -> Any:
        return self.b.load(self.address(base, index, kind), typ=kind)

    def load(self, base: Any, index: Any, width: int | None = None) -> Any:
        """``width`` floats from a place without alignment; a scalar if that is 1."""
        width = width or self.lanes
        kind = F32 if width == 1 else ir.VectorType(F32, width)
        return self.b.load(self.address(base, index), typ=kind, align=4)

    def store(self, what: Any, base: Any, index: Any, mask: Any = None) -> None:
        """Store a vector or a scalar; only the elements of ``mask``, if there is one."""
        place = self.address(base, index)
        if mask is not None:
            what = self.b.select(mask, what, self.b.load(place, typ=self.vector, align=4))
        self.b.store(what, place, align=4)

    def first(self, count: Any) -> Any:
        """The mask of the first ``count`` elements of a vector."""
        kind = ir.VectorType(I32, self.lanes)
        one = self.b.insert_element(
            ir.Constant(kind, ir.Undefined), self.b.trunc(self.value(count), I32), I32(0)
        )
        counts = self.b.shuffle_vector(
            one, ir.Constant(kind, ir.Undefined), pattern(*[0] * self.lanes)
        )
        return self.b.icmp_signed("<", pattern(*range(self.lanes)), counts)

    def only(self, mask: Any, what: Any) -> Any:
        """``what`` in the elements of ``mask``, otherwise 0."""
        return what if mask is None else self.b.select(mask, what, self.constant(0.0))

    def splat(self, scalar: Any, width: int | None = None) -> Any:
        width = width or self.lanes
        if width == 1:
            return scalar
        kind = ir.VectorType(F32, width)
        one = self.b.insert_element(ir.Constant(kind, ir.Undefined), scalar, I32(0))
        return self.b.shuffle_vector(one, ir.Constant(kind, ir.Undefined), pattern(*[0] * width))

    def constant(self, number: float, width: int | None = None) -> Any:
        width = width or self.lanes
        return (
            F32(number) if width == 1 else ir.Constant(ir.VectorType(F32, width), [number] * width)
        )

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """a b + c, rounded once."""
        kind = c.type
        name = "llvm.fma.f32" if kind == F32 else f"llvm.fma.v{kind.count}f32"
        known = self.function.module.globals.get(name)
        if known is None:
            known = ir.Function(self.function.module, ir.FunctionType(kind, [kind] * 3), name=name)
        return self.b.call(known, [a, b, c])

    def mask(self, what: Any, positive: Any) -> Any:
        """``what`` where ``positive`` > 0, otherwise 0."""
        return self.b.select(
            self.b.fcmp_ordered(">", positive, self.constant(0.0)), what, self.constant(0.0)
        )

    def relu(self, what: Any) -> Any:
        zero = self.constant(0.0)
        return self.b.select(self.b.fcmp_ordered("<", what, zero), zero, what)

    def larger(self, a: Any, b: Any) -> Any:
        """The larger element; NaN if one is NaN."""
        greater = self.b.or_(self.b.fcmp_ordered(">", b, a), self.b.fcmp_unordered("uno", b, b))
        return self.b.select(greater, b, a)

    def total(self, vector: Any) -> Any:
        """The sum of a vector's elements, by halves."""
        width = self.lanes
        while width > 1:
            width //= 2
            upper = [*range(width, 2 * width), *[0] * (self.lanes - width)]
            moved = self.b.shuffle_vector(vector, vector, pattern(*upper))
            vector = self.b.fadd(vector, moved)
        return self.b.extract_element(vector, I32(0))

    def exp(self, x: Any) -> Any:
        """e^x of a vector with x <= 0."""
        x = self.b.select(
            self.b.fcmp_ordered("<", x, self.constant(LEAST_EXPONENT)),
            self.constant(LEAST_EXPONENT),
            x,
        )
        shifted = self.fma(x, self.constant(math.log2(math.e)), self.constant(ROUND))
        n = self.b.fsub(shifted, self.constant(ROUND))
        r = self.fma(n, self.constant(-LN2_HIGH), x)
        r = self.fma(n, self.constant(-LN2_LOW), r)
        p = self.constant(EXP[0])
        for factor in EXP[1:]:
            p = self.fma(p, r, self.constant(factor))
        p = self.b.fadd(self.fma(p, self.b.fmul(r, r), r), self.constant(1.0))
        bits = self.b.bitcast(shifted, ir.VectorType(I32, self.lanes))
        bits = self.b.shl(bits, pattern(*[23] * self.lanes))
        power = self.b.add(bits, pattern(*[127 << 23] * self.lanes))
        return self.b.fmul(p, self.b.bitcast(power, self.vector))

    def log(self, x: Any) -> Any:
        """ln x of a vector with 1 <= x < infinity, or NaN."""

        def each(number: int) -> Any:
            return pattern(*[number] * self.lanes)

        bits = self.b.bitcast(x, ir.VectorType(I32, self.lanes))
        # so that the mantissa is between 1/sqrt(2) and sqrt(2)
        shifted = self.b.sub(bits, each(ROOT_OF_HALF))
        exponent = self.b.sitofp(self.b.ashr(shifted, each(23)), self.vector)
        mantissa = self.b.add(self.b.and_(shifted, each((1 << 23) - 1)), each(ROOT_OF_HALF))
        r = self.b.fsub(self.b.bitcast(mantissa, self.vector), self.constant(1.0))
        square, p = self.b.fmul(r, r), self.constant(LOG[0])
        for factor in LOG[1:]:
            p = self.fma(p, r, self.constant(factor))
        p = self.b.fmul(self.b.fmul(p, r), square)
        p = self.fma(exponent, self.constant(LN2_LOW), p)
        p = self.fma(square, self.constant(-0.5), p)
        result = self.fma(exponent, self.constant(LN2_HIGH), self.b.fadd(r, p))
        return self.b.select(self.b.fcmp_unordered("uno", x, x), x, result)

    def transposed(self, rows: list[Any]) -> list[Any]:
        """The columns of a square of vectors."""
        half = 1
        while half < self.lanes:
            low = [
                index + (self.lanes if index & half else 0) - (half if index & half else 0)
                for index in range(self.lanes)
            ]
            high = [index + half for index in low]
            done = list(rows)
            for index in range(self.lanes):
                if not index & half:
                    pair = rows[index], rows[index + half]
                    done[index] = self.b.shuffle_vector(*pair, pattern(*low))
                    done[index + half] = self.b.shuffle_vector(*pair, pattern(*high))
            rows, half = done, half * 2
        return rows


def tiles(length: int, most: int) -> list[tuple[int, int, int]]:
    """Cut ``length`` into (start, stop, size): as many as possible of ``most``, and a rest."""
    whole = length - length % most
    cut = [(0, whole, most)] if whole else []
    return [*cut, (whole, length, length - whole)] if whole < length else cut


def even_tile(length: int, most: int) -> int:
    """The size of at most ``most`` that cuts ``length`` into the fewest tiles, about equal ones."""
    return -(-length // -(-length // most))


def widths(length: int, lanes: int) -> list[tuple[int, int, int]]:
    """Cut a length into vectors, and its rest into ever smaller ones: (start, stop, width)."""
    cut, start, width = [], 0, lanes
    while start < length:
        stop = length - (length - start) % width
        if stop > start:
            cut.append((start, stop, width))
        start, width = stop, max(width // 2, 1)
    return cut


@dataclass(frozen=True)
class Taps:
    """One dimension of a correlation: kernel elements ``first``, ``first + step``, ...

    Output ``y`` takes element t of them from source ``stride * y + shift + move * t``.
    """

    first: int
    step: int
    count: int
    stride: int
    shift: int
    move: int


class PartMemory:
    """Where the numbers of a part are, in floats from the start of the memory that a call gets."""

    def __init__(self, network: Network, lanes: int) -> None:
        self.layers, self.lanes, self.used = network.layers, lanes, 0
        self.images = sum(not isinstance(layer, Linear) for layer in self.layers)
        shapes = [network.shape]
        for layer in self.layers:
            shapes.append(layer.after(shapes[-1]))
        self.count = self._take(1)  # samples of the last part, a whole number of 64 bits
        self.zeros = self._take(math.prod(network.shape))  # what missing samples are read from
        # of the input and after each layer on images; and the loss's derivatives by them
        self.values: list[Image] = []
        self.slopes: list[Image] = []
        for index, shape in enumerate(shapes[: self.images + 1] if self.images else ()):
            after = self.layers[index]
            padding = after.padding if isinstance(after, Convolution) else (0, 0, 0, 0)
            self.values.append(self._image(shape, padding))
            self.slopes.append(
                self._image(shape, self._behind(index - 1)) if index else self.values[0]
            )
        # the same for dense layers: (block, element, lane)
        self.inputs: dict[int, int] = {}  # of each layer, by its number; last + 1: the scores
        self.input_slopes: dict[int, int] = {}
        self.rows: dict[int, int] = {}  # the inputs again, a row for each sample
        for number in range(self.images, len(self.layers) + 1):
            elements = math.prod(shapes[number])
            self.inputs[number] = self._take(self.padded(elements) * PART)
            if number > self.images:
                self.input_slopes[number] = self._take(elements * PART)
            if number and number < len(self.layers):
                self.rows[number] = self._take(self.padded(elements) * PART)
        self.sizes = {number: math.prod(shapes[number]) for number in self.inputs}
        self.logarithms = self._take(PART)  # of the sums of the scores' exponentials
        self._take(lanes)  # a vector may reach beyond the last float

    def padded(self, elements: int) -> int:
        """Elements of a dense layer's input, filled up to whole vectors."""
        return -(-elements // self.lanes) * self.lanes

    def _take(self, floats: int) -> int:
        start, self.used = self.used, self.used + -(-floats // LINE) * LINE
        return start

    def _image(self, shape: tuple[int, int, int], border: tuple[int, int, int, int]) -> Image:
        made = Image(0, *shape, *border)
        start = self._take(made.channels * made.plane * PART + self.lanes)
        return Image(start, *shape, *border)

    def _behind(self, number: int) -> tuple[int, int, int, int]:
        """Zeros around the slopes after a convolution, for computing the slopes before it."""
        layer = self.layers[number]
        if not isinstance(layer, Convolution) or number == 0:
            return (0, 0, 0, 0)
        source = self.values[number]
        result = layer.after((source.channels, source.height, source.width))
        before, after = [], []
        for side, length in enumerate((source.height, source.width)):
            size, stride, padding = layer.kernel[side], layer.stride[side], layer.padding[side]
            before.append(max(0, (size - 1 - padding + stride - 1) // stride))
            after.append(max(0, (length - 1 + padding) // stride - result[1 + side] + 1))
        return before[0], before[1], after[0], after[1]


@dataclass
class PartCode:
    """The instructions for one part: what they read and write, and the code that they join.

    ``count`` samples, the rows ``index`` of ``inputs``; ``initial``: whether their gradient is the
    batch's first.
    """

    code: Code
    network: Network
    registers: Registers
    at: PartMemory
    weights: Any
    inputs: Any
    index: Any
    count: Any
    memory: Any
    gradient: Any = None
    initial: Any = None

    def __post_init__(self) -> None:
        self.lanes, self.layers = self.registers.width, self.network.layers
        self.blocks = self.code.b.udiv(self.code.sum(self.count, self.lanes - 1), I64(self.lanes))
        self.offsets, position = [], 0
        for layer in self.layers:
            self.offsets.append(position)
            if not isinstance(layer, Pooling):
                position += layer.weights + (layer.outputs if layer.bias else 0)

    # places --------------------------------------------------------------------------------------

    def place(self, image: Image, channel: Any, y: Any, x: Any) -> Any:
        """The float where a column of an image begins."""
        return self.code.sum(
            self.code.times(image.at(self.code, channel, y, x), self.count), image.offset
        )

    def block(self, block: Any, size: int, start: int) -> Any:
        """The float where a block of a dense layer with ``size`` elements begins."""
        return self.code.sum(self.code.times(block, size * self.lanes), start)

    def of_sample(self, sample: Any) -> tuple[Any, Any]:
        """The block and the lane of a sample."""
        return (
            self.code.b.udiv(sample, I64(self.lanes)),
            self.code.b.and_(sample, I64(self.lanes - 1)),
        )

    def present(self, block: Any) -> Any:
        """The mask of a block's samples."""
        return self.code.first(
            self.code.b.sub(self.count, self.code.value(self.code.times(block, self.lanes)))
        )

    def vectors(self, floats: Any, together: int = 1) -> Iterator[tuple[Any, int, Any]]:
        """Loops over a row of so many floats: (start, vectors, mask of the last one)."""
        code = self.code
        whole = code.b.sub(floats, code.b.urem(floats, I64(together * self.lanes)))
        with code.loop(whole, step=together * self.lanes) as k:
            yield k, together, None
        with code.loop(floats, whole, self.lanes) as k:
            yield k, 1, code.first(code.b.sub(floats, k))

    # forward -------------------------------------------------------------------------------------

    def clear_borders(self) -> None:
        """Make the borders zero if the last part had another number of samples, so that they were
        elsewhere.
        """
        code = self.code
        images = [image for image in (*self.at.values, *self.at.slopes[1:]) if image.bordered]
        if not images:
            return
        last = code.address(self.memory, self.at.count)
        other = code.b.icmp_signed("!=", code.b.load(last, typ=I64), self.count)
        with code.b.if_then(other, likely=False):
            for image in images:
                with code.loop(image.channels * image.plane * PART, step=self.lanes) as place:
                    code.store(code.constant(0.0), self.memory, code.sum(image.offset, place))
            code.b.store(self.count, last)

    def forward(self) -> None:
        if self.at.images:
            self._gather_images()
            for number, layer in enumerate(self.layers[: self.at.images]):
                if isinstance(layer, Convolution):
                    self._convolve(number, layer)
                elif isinstance(layer, Pooling):
                    self._pool(number, layer)
            self._flatten()
        else:
            self._gather_blocks()
        for number, layer in enumerate(self.layers):
            if isinstance(layer, Linear):
                self._dense(number, layer)

    def _rows_of(self, block: Any) -> list[Any]:
        """The addresses of a block's samples; those of missing ones are zeros."""
        code, pixels, rows = self.code, math.prod(self.network.shape), []
        for lane in range(self.lanes):
            sample = code.sum(code.times(block, self.lanes), lane)
            there = code.b.icmp_signed("<", code.value(sample), self.count)
            known = code.b.select(there, code.value(sample), I64(0))
            row = code.times(code.scalar(self.index, known, I64), pixels)
            zeros = code.address(self.memory, self.at.zeros)
            rows.append(code.b.select(there, code.address(self.inputs, row), zeros))
        return rows

    def _columns(
        self, rows: list[Any], source: Any, length: int, put: Callable[[Any, Any], None]
    ) -> None:
        """Transpose ``length`` elements of each row: ``put(element, vector of the samples)``."""
        code = self.code
        if length < self.lanes:
            with code.loop(length) as element:
                vector = ir.Constant(code.vector, ir.Undefined)
                for lane, row in enumerate(rows):
                    one = code.scalar(row, code.sum(source, element))
                    vector = code.b.insert_element(vector, one, I32(lane))
                put(element, vector)
            return
        rest = length % self.lanes  # the last square overlaps the one before
        for start, stop in [(0, length - rest)] + ([(length - self.lanes, length)] if rest else []):
            with code.loop(stop, start, self.lanes) as element:
                square = [code.load(row, code.sum(source, element)) for row in rows]
                for number, column in enumerate(code.transposed(square)):
                    put(code.sum(element, number), column)

    def _gather_images(self) -> None:
        code, image = self.code, self.at.values[0]
        with code.loop(self.blocks) as block:
            rows, present = self._rows_of(block), self.present(block)
            lanes = code.times(block, self.lanes)
            if not image.bordered:
                self._columns(
                    rows,
                    0,
                    math.prod(self.network.shape),
                    lambda pixel, vector: code.store(
                        vector,
                        self.memory,
                        code.sum(code.times(pixel, self.count), lanes, image.offset),
                        present,
                    ),
                )
                return
            with code.loop(image.channels) as channel, code.loop(image.height) as y:
                source = code.times(code.sum(code.times(channel, image.height), y), image.width)
                self._columns(
                    rows,
                    source,
                    image.width,
                    lambda x, vector: code.store(
                        vector,
                        self.memory,
                        code.sum(self.place(image, channel, y, x), lanes),
                        present,
                    ),
                )

    def _gather_blocks(self) -> None:
        code, size = self.code, self.at.sizes[0]
        with code.loop(self.blocks) as block:
            base = self.block(block, size, self.at.inputs[0])
            self._columns(
                self._rows_of(block),
                0,
                size,
                lambda element, vector: code.store(
                    vector, self.memory, code.sum(base, code.times(element, self.lanes))
                ),
            )

    def _flatten(self) -> None:
        """Cut the last image into blocks."""
        code, number = self.code, self.at.images
        image, size = self.at.values[number], self.at.sizes[number]
        with code.loop(self.blocks) as block:
            present = self.present(block)
            base = self.block(block, size, self.at.inputs[number])
            lanes = code.sum(code.times(block, self.lanes), image.offset)
            with code.loop(size) as element:
                place = code.sum(code.times(element, self.count), lanes)
                vector = code.only(present, code.load(self.memory, place))
                code.store(vector, self.memory, code.sum(base, code.times(element, self.lanes)))

    def _convolve(self, number: int, layer: Convolution) -> None:
        code, offset = self.code, self.offsets[number]
        source, result = self.at.values[number], self.at.values[number + 1]
        taps = [
            Taps(0, 1, layer.kernel[side], layer.stride[side], -layer.padding[side], 1)
            for side in (0, 1)
        ]

        def start(channel: Any) -> Any:
            if not layer.bias:
                return code.constant(0.0)
            return code.splat(code.scalar(self.weights, code.sum(channel, offset + layer.weights)))

        def finish(value: Any, channel: Any, y: Any, x: Any, more: Any, mask: Any) -> None:
            value = code.relu(value) if layer.relu else value
            code.store(value, self.memory, code.sum(self.place(result, channel, y, x), more), mask)

        self._correlate(
            source,
            (layer.outputs, result.height, result.width),
            layer.inputs,
            (taps[0], taps[1]),
            1,
            lambda o, c, i, j: self._kernel(number, layer, o, c, i, j),
            start,
            finish,
        )

    def _kernel(self, number: int, layer: Convolution, o: Any, c: Any, i: Any, j: Any) -> Any:
        """An element of a convolution's kernel."""
        code, size = self.code, layer.kernel[0] * layer.kernel[1]
        place = code.sum(
            code.times(o, layer.inputs * size),
            code.times(c, size),
            code.times(i, layer.kernel[1]),
            j,
            self.offsets[number],
        )
        return code.scalar(self.weights, place)

    def _correlate(
        self,
        source: Image,
        result: tuple[int, int, int],
        inputs: int,
        taps: tuple[Taps, Taps],
        spread: int,
        weight: Callable[[Any, Any, Any, Any], Any],
        start: Callable[[Any], Any],
        finish: Callable[[Any, Any, Any, Any, Any, Any], None],
    ) -> None:
        """The sums of products of a kernel and a source, for several channels at a time.

        ``finish(sum, channel, y, x, floats after x, mask)`` takes them, vector by vector.
        ``spread`` is the distance of the columns of the result; if that or the stride is not 1,
        vectors end with a column.
        """
        outputs, height, width = result
        code, (tall, wide) = self.code, taps
        channels = even_tile(outputs, max(1, self.registers.sums // PAIR))
        for first, last, high in tiles(outputs, channels):
            with code.loop(last, first, high) as channel, code.loop(height) as y:
                row = code.sum(code.times(y, tall.stride), tall.shift)
                if spread == 1 and wide.stride == 1:
                    for k, across, mask in self.vectors(code.times(width, self.count), PAIR):
                        sums = self._sums(start, channel, high, across)
                        self._multiply(source, (channel, row, 0, k), inputs, taps, weight, sums)
                        self._finish(sums, finish, (channel, y, 0, k), mask)
                    continue
                with code.loop(width) as x:
                    for k, across, mask in self.vectors(self.count, PAIR):
                        sums = self._sums(start, channel, high, across)
                        self._multiply(source, (channel, row, x, k), inputs, taps, weight, sums)
                        self._finish(sums, finish, (channel, y, x, k), mask)

    def _sums(
        self, start: Callable[[Any], Any], channel: Any, high: int, across: int
    ) -> list[list[Any]]:
        code = self.code
        return [
            [code.variable(code.vector, start(code.sum(channel, o))) for _ in range(across)]
            for o in range(high)
        ]

    def _finish(
        self, sums: list[list[Any]], finish: Callable[..., None], place: tuple[Any, ...], mask: Any
    ) -> None:
        code, (channel, y, x, k) = self.code, place
        for o, row in enumerate(sums):
            for p, variable in enumerate(row):
                value = code.b.load(variable, typ=code.vector)
                finish(value, code.sum(channel, o), y, x, code.sum(k, p * self.lanes), mask)

    def _multiply(
        self,
        source: Image,
        place: tuple[Any, Any, Any, Any],
        inputs: int,
        taps: tuple[Taps, Taps],
        weight: Callable[[Any, Any, Any, Any], Any],
        sums: list[list[Any]],
    ) -> None:
        """Add the products of all channels and kernel elements to ``sums``."""
        code, (channel, row, x, k), (tall, wide) = self.code, place, taps
        with code.loop(inputs) as c, code.loop(tall.count) as t:
            y = code.sum(row, code.times(t, tall.move))
            i = code.sum(code.times(t, tall.step), tall.first)
            for u in range(wide.count):
                column = code.sum(code.times(x, wide.stride), wide.shift + wide.move * u)
                base = code.sum(self.place(source, c, y, column), k)
                vectors = [
                    code.load(self.memory, code.sum(base, p * self.lanes))
                    for p in range(len(sums[0]))
                ]
                for o, variables in enumerate(sums):
                    factor = weight(code.sum(channel, o), c, i, wide.first + wide.step * u)
                    self._add_products(code.splat(factor), vectors, variables)

    def _add_products(self, factor: Any, vectors: Sequence[Any], variables: Sequence[Any]) -> None:
        for variable, vector in zip(variables, vectors):
            done = self.code.b.load(variable, typ=vector.type)
            self.code.b.store(self.code.fma(factor, vector, done), variable)

    def _pool(self, number: int, layer: Pooling) -> None:
        code = self.code
        source, result = self.at.values[number], self.at.values[number + 1]
        with (
            code.loop(result.channels) as channel,
            code.loop(result.height) as y,
            code.loop(result.width) as x,
        ):
            for k, _, mask in self.vectors(self.count):
                most = None
                for place in self._window(source, layer, channel, y, x):
                    value = code.load(self.memory, code.sum(place, k))
                    most = value if most is None else code.larger(most, value)
                most = code.relu(most) if layer.relu else most
                place = code.sum(self.place(result, channel, y, x), k)
                code.store(most, self.memory, place, mask)

    def _window(self, image: Image, layer: Pooling, channel: Any, y: Any, x: Any) -> list[Any]:
        """Where the columns that are pooled begin."""
        code, (high, wide) = self.code, layer.size
        return [
            self.place(
                image, channel, code.sum(code.times(y, high), i), code.sum(code.times(x, wide), j)
            )
            for i in range(high)
            for j in range(wide)
        ]

    def _dense(self, number: int, layer: Linear) -> None:
        code, offset = self.code, self.offsets[number]

        def start(o: Any) -> Any:
            if not layer.bias:
                return code.constant(0.0)
            return code.splat(code.scalar(self.weights, code.sum(o, offset + layer.weights)))

        def finish(block: Any, o: Any, value: Any) -> None:
            base = self.block(block, layer.outputs, self.at.inputs[number + 1])
            value = code.relu(value) if layer.relu else value
            code.store(value, self.memory, code.sum(base, code.times(o, self.lanes)))

        self._product(
            self.at.inputs[number],
            layer.outputs,
            layer.inputs,
            lambda o, k: code.sum(code.times(o, layer.inputs), k, offset),
            start,
            finish,
        )

    def _product(
        self,
        source: int,
        outputs: int,
        inputs: int,
        weight: Callable[[Any, Any], Any],
        start: Callable[[Any], Any],
        finish: Callable[[Any, Any, Any], None],
    ) -> None:
        """A matrix, whose elements are at ``weight(output, input)``, times each block's vectors."""
        code = self.code
        paired = code.b.and_(self.blocks, I64(-PAIR))
        high = even_tile(outputs, self.registers.sums // PAIR)
        for first, stop, together in ((0, paired, PAIR), (paired, self.blocks, 1)):
            with code.loop(stop, first, together) as block:
                blocks = [code.sum(block, number) for number in range(together)]
                bases = [self.block(number, inputs, source) for number in blocks]
                for low, end, count in tiles(outputs, high):
                    with code.loop(end, low, count) as o:
                        sums = self._sums(start, o, count, together)
                        with code.loop(inputs) as k:
                            place = code.times(k, self.lanes)
                            vectors = [
                                code.load(self.memory, code.sum(base, place)) for base in bases
                            ]
                            for n, variables in enumerate(sums):
                                factor = code.scalar(self.weights, weight(code.sum(o, n), k))
                                self._add_products(code.splat(factor), vectors, variables)
                        for n, variables in enumerate(sums):
                            for which, variable in zip(blocks, variables):
                                value = code.b.load(variable, typ=code.vector)
                                finish(which, code.sum(o, n), value)

    # loss ----------------------------------------------------------------------------------------

    def loss(self, labels: Any, targets: Any, inverse: Any, loss: Any) -> None:
        """Softmax and cross-entropy: add it to ``loss``; its derivative by the scores, times
        ``inverse``, one over the samples of the batch. ``targets``: see ``Emitter._gradient``.
        """
        code, lanes, classes = self.code, self.lanes, self.network.classes
        last = len(self.layers)
        with code.loop(self.blocks) as block:
            scores = self.block(block, classes, self.at.inputs[last])
            slopes = self.block(block, classes, self.at.input_slopes[last])
            most = code.variable(code.vector, code.load(self.memory, scores))
            with code.loop(classes) as label:
                value = code.load(self.memory, code.sum(scores, code.times(label, lanes)))
                code.b.store(code.larger(code.b.load(most, typ=code.vector), value), most)
            highest = code.b.load(most, typ=code.vector)
            total = code.variable(code.vector, code.constant(0.0))
            with code.loop(classes) as label:
                place = code.times(label, lanes)
                value = code.load(self.memory, code.sum(scores, place))
                power = code.exp(code.b.fsub(value, highest))
                code.store(power, self.memory, code.sum(slopes, place))
                code.b.store(code.b.fadd(code.b.load(total, typ=code.vector), power), total)
            powers = code.b.load(total, typ=code.vector)
            logarithms = code.sum(code.times(block, lanes), self.at.logarithms)
            code.store(code.b.fadd(highest, code.log(powers)), self.memory, logarithms)
            share, present = code.b.fdiv(code.splat(inverse), powers), self.present(block)
            with code.loop(classes) as label:
                place = code.sum(slopes, code.times(label, lanes))
                value = code.b.fmul(code.load(self.memory, place), share)
                code.store(code.only(present, value), self.memory, place)
        soft = code.b.icmp_unsigned("!=", code.b.ptrtoint(targets, I64), I64(0))
        with code.b.if_else(soft) as (then, otherwise):
            with then, code.loop(self.count) as sample, code.loop(classes) as label:
                row = code.times(code.scalar(self.index, sample, I64), classes)
                share = code.scalar(targets, code.sum(row, label))
                self._compare(sample, label, inverse, loss, share)
            with otherwise, code.loop(self.count) as sample:
                label = code.scalar(labels, code.scalar(self.index, sample, I64), I64)
                self._compare(sample, label, inverse, loss)

    def _compare(self, sample: Any, label: Any, inverse: Any, loss: Any, share: Any = None) -> None:
        """Compare a sample's softmax with ``label``, of which the target has this share or all."""
        code, last = self.code, len(self.layers)
        block, lane = self.of_sample(sample)
        place = code.sum(code.times(block, self.network.classes), label)
        inside = code.sum(code.times(place, self.lanes), lane)
        slope = code.sum(inside, self.at.input_slopes[last])
        part = inverse if share is None else code.b.fmul(inverse, share)
        code.store(code.b.fsub(code.scalar(self.memory, slope), part), self.memory, slope)
        whole = code.scalar(self.memory, code.sum(sample, self.at.logarithms))
        score = code.scalar(self.memory, code.sum(inside, self.at.inputs[last]))
        value = code.b.fsub(code.b.fpext(whole, F64), code.b.fpext(score, F64))
        value = value if share is None else code.b.fmul(value, code.b.fpext(share, F64))
        code.b.store(code.b.fadd(code.b.load(loss, typ=F64), value), loss)

    # backward ------------------------------------------------------------------------------------

    def backward(self) -> None:
        for number in reversed(range(self.at.images, len(self.layers))):
            layer = self.layers[number]
            assert isinstance(layer, Linear)
            if number:
                self._dense_back(number, layer)
                self._transpose(number)
            self._dense_gradient(number, layer)
        for number in reversed(range(self.at.images)):
            layer = self.layers[number]
            if isinstance(layer, Pooling) and number:
                self._pool_back(number, layer)
            elif isinstance(layer, Convolution):
                if number:
                    self._convolve_back(number, layer)
                self._kernel_gradient(number, layer)

    def _dense_back(self, number: int, layer: Linear) -> None:
        code, masked = self.code, self.layers[number - 1].relu
        values = self.at.inputs[number]

        def finish(block: Any, k: Any, value: Any) -> None:
            place = code.times(k, self.lanes)
            if masked:
                seen = code.sum(self.block(block, layer.inputs, values), place)
                value = code.mask(value, code.load(self.memory, seen))
            if number > self.at.images:
                base = self.block(block, layer.inputs, self.at.input_slopes[number])
                code.store(value, self.memory, code.sum(base, place))
                return
            base = code.sum(self._flat(self.at.slopes[number], k), code.times(block, self.lanes))
            code.store(value, self.memory, base, self.present(block))

        self._product(
            self.at.input_slopes[number + 1],
            layer.inputs,
            layer.outputs,
            lambda k, o: code.sum(code.times(o, layer.inputs), k, self.offsets[number]),
            lambda k: code.constant(0.0),
            finish,
        )

    def _flat(self, image: Image, element: Any) -> Any:
        """The float where element ``element`` of a flattened image begins."""
        code = self.code
        if not image.bordered:
            return code.sum(code.times(element, self.count), image.offset)
        number, wide = code.value(element), I64(image.width)
        channel = code.b.udiv(number, I64(image.height * image.width))
        inside = code.b.urem(number, I64(image.height * image.width))
        return self.place(image, channel, code.b.udiv(inside, wide), code.b.urem(inside, wide))

    def _transpose(self, number: int) -> None:
        """Bring a dense layer's inputs into rows, one for each sample."""
        code, size = self.code, self.at.sizes[number]
        padded = self.at.padded(size)
        with code.loop(self.blocks) as block:
            base = self.block(block, size, self.at.inputs[number])
            rows = self.block(block, padded, self.at.rows[number])
            with code.loop(padded, step=self.lanes) as k:
                square = [
                    code.load(
                        self.memory, code.sum(base, code.times(code.sum(k, number_), self.lanes))
                    )
                    for number_ in range(self.lanes)
                ]
                for lane, row in enumerate(code.transposed(square)):
                    code.store(row, self.memory, code.sum(rows, lane * padded, k))

    def _dense_gradient(self, number: int, layer: Linear) -> None:
        code, offset = self.code, self.offsets[number]
        slopes = self.at.input_slopes[number + 1]
        for start, stop, width in widths(layer.inputs, self.lanes):
            across = min(4, (stop - start) // width)
            high = even_tile(layer.outputs, max(1, self.registers.sums // across))
            for left, right, columns in tiles((stop - start) // width, across):
                for low, end, count in tiles(layer.outputs, high):
                    with (
                        code.loop(end, low, count) as o,
                        code.loop(
                            start + right * width, start + left * width, columns * width
                        ) as k,
                    ):
                        sums = self._row_sums(number, layer, (o, k), count, columns, width)
                        for n, variables in enumerate(sums):
                            row = code.sum(code.times(code.sum(o, n), layer.inputs), k, offset)
                            for m, variable in enumerate(variables):
                                value = code.b.load(variable, typ=code.kind(width))
                                self._put(value, code.sum(row, m * width), width)
        if layer.bias:
            with code.loop(layer.outputs) as o:
                total = code.variable(code.vector, code.constant(0.0))
                with code.loop(self.blocks) as block:
                    base = self.block(block, layer.outputs, slopes)
                    slope = code.load(self.memory, code.sum(base, code.times(o, self.lanes)))
                    code.b.store(code.b.fadd(code.b.load(total, typ=code.vector), slope), total)
                value = code.total(code.b.load(total, typ=code.vector))
                self._put(value, code.sum(o, offset + layer.weights), 1)

    def _row_sums(
        self,
        number: int,
        layer: Linear,
        place: tuple[Any, Any],
        high: int,
        columns: int,
        width: int,
    ) -> list[list[Any]]:
        """The sums over the samples of slope times input."""
        code, (o, k) = self.code, place
        sums = [
            [code.variable(code.kind(width), code.constant(0.0, width)) for _ in range(columns)]
            for _ in range(high)
        ]
        with code.loop(self.count) as sample:
            block, lane = self.of_sample(sample)
            if number:
                row = code.sum(
                    self.at.rows[number], code.times(sample, self.at.padded(layer.inputs))
                )
                source = code.address(self.memory, row)
            else:
                which = code.scalar(self.index, sample, I64)
                source = code.address(self.inputs, code.times(which, layer.inputs))
            vectors = [code.load(source, code.sum(k, n * width), width) for n in range(columns)]
            base = self.block(block, layer.outputs, self.at.input_slopes[number + 1])
            for n, variables in enumerate(sums):
                at = code.sum(base, code.times(code.sum(o, n), self.lanes), lane)
                factor = code.splat(code.scalar(self.memory, at), width)
                self._add_products(factor, vectors, variables)
        return sums

    def _put(self, value: Any, place: Any, width: int) -> None:
        """Put a part's share into the gradient: the first one replaces what was there."""
        code = self.code
        old = code.load(self.gradient, place, width)
        value = code.b.select(self.initial, value, code.b.fadd(old, value))
        code.store(value, self.gradient, place)

    def _pool_back(self, number: int, layer: Pooling) -> None:
        code = self.code
        source, result = self.at.values[number], self.at.values[number + 1]
        slopes, to = self.at.slopes[number + 1], self.at.slopes[number]
        if source.height % layer.size[0] or source.width % layer.size[1]:
            with (  # some elements are in no window
                code.loop(to.channels) as channel,
                code.loop(to.height) as y,
            ):
                for k, _, mask in self.vectors(code.times(to.width, self.count)):
                    place = code.sum(self.place(to, channel, y, 0), k)
                    code.store(code.constant(0.0), self.memory, place, mask)
        with (
            code.loop(result.channels) as channel,
            code.loop(result.height) as y,
            code.loop(result.width) as x,
        ):
            windows = self._window(source, layer, channel, y, x)
            targets = self._window(to, layer, channel, y, x)
            for k, _, mask in self.vectors(self.count):
                values = [code.load(self.memory, code.sum(place, k)) for place in windows]
                most = values[0]
                for value in values[1:]:
                    most = code.larger(most, value)
                place = code.sum(self.place(slopes, channel, y, x), k)
                slope = code.load(self.memory, place)
                if self.layers[number - 1].relu:
                    slope = code.mask(slope, most)
                for value, target in zip(values, targets):
                    equal = code.b.fcmp_ordered("==", value, most)
                    share = code.only(equal, slope)
                    code.store(share, self.memory, code.sum(target, k), mask)
                    slope = code.b.select(equal, code.constant(0.0), slope)

    def _convolve_back(self, number: int, layer: Convolution) -> None:
        """The slope before a convolution: one correlation for each phase of the stride."""
        result = self.at.slopes[number]
        for above in range(layer.stride[0]):
            for beside in range(layer.stride[1]):
                height = -(-(result.height - above) // layer.stride[0])
                width = -(-(result.width - beside) // layer.stride[1])
                if height > 0 and width > 0:
                    self._phase_back(number, layer, (above, beside), (height, width))

    def _phase_back(
        self, number: int, layer: Convolution, phase: tuple[int, int], shape: tuple[int, int]
    ) -> None:
        code, values = self.code, self.at.values[number]
        source, result = self.at.slopes[number + 1], self.at.slopes[number]
        taps = []
        for side in (0, 1):
            stride, reach = layer.stride[side], phase[side] + layer.padding[side]
            first = reach % stride
            count = max(0, -(-(layer.kernel[side] - first) // stride))
            taps.append(Taps(first, stride, count, 1, (reach - first) // stride, -1))

        def finish(value: Any, channel: Any, y: Any, x: Any, more: Any, mask: Any) -> None:
            down = code.sum(code.times(y, layer.stride[0]), phase[0])
            across = code.sum(code.times(x, layer.stride[1]), phase[1])
            if self.layers[number - 1].relu:
                seen = code.sum(self.place(values, channel, down, across), more)
                value = code.mask(value, code.load(self.memory, seen))
            place = code.sum(self.place(result, channel, down, across), more)
            code.store(value, self.memory, place, mask)

        if min(tap.count for tap in taps) < 1:  # a stride larger than the kernel: nothing comes
            with (
                code.loop(result.channels) as channel,
                code.loop(shape[0]) as y,
                code.loop(shape[1]) as x,
            ):
                for k, _, mask in self.vectors(self.count):
                    finish(code.constant(0.0), channel, y, x, k, mask)
            return
        self._correlate(
            source,
            (layer.inputs, *shape),
            layer.outputs,
            (taps[0], taps[1]),
            layer.stride[1],
            lambda c, o, i, j: self._kernel(number, layer, o, c, i, j),
            lambda channel: code.constant(0.0),
            finish,
        )

    def _kernel_gradient(self, number: int, layer: Convolution) -> None:
        code, (high, wide) = self.code, layer.kernel
        slopes = self.at.slopes[number + 1]
        rows = high if high * wide <= self.registers.sums // 2 else 1  # of the kernel, at a time
        most = even_tile(layer.outputs, max(1, self.registers.sums // (rows * wide)))
        for low, end, count in tiles(layer.outputs, most):
            with (
                code.loop(end, low, count) as o,
                code.loop(layer.inputs) as c,
                code.loop(high, step=rows) as i,
            ):
                sums = self._sums(lambda _: code.constant(0.0), 0, count, rows * wide)
                with code.loop(slopes.height) as y:
                    if layer.stride[1] == 1:
                        for k, _, mask in self.vectors(code.times(slopes.width, self.count)):
                            self._add_window(number, layer, (o, c, i, y, 0, k), rows, mask, sums)
                    else:
                        with code.loop(slopes.width) as x:
                            for k, _, mask in self.vectors(self.count):
                                self._add_window(
                                    number, layer, (o, c, i, y, x, k), rows, mask, sums
                                )
                for n, variables in enumerate(sums):
                    line = code.times(code.sum(code.times(code.sum(o, n), layer.inputs), c), high)
                    for which, variable in enumerate(variables):
                        row = code.times(code.sum(line, i, which // wide), wide)
                        value = code.total(code.b.load(variable, typ=code.vector))
                        self._put(value, code.sum(row, which % wide, self.offsets[number]), 1)
        if layer.bias:
            self._bias_gradient(number, layer)

    def _add_window(
        self,
        number: int,
        layer: Convolution,
        place: tuple[Any, ...],
        rows: int,
        mask: Any,
        sums: list[list[Any]],
    ) -> None:
        """Add slopes times inputs, for some rows of the kernel.

        Elements that are not in ``mask`` may hold anything, so they are left out of both.
        """
        code, (o, c, i, y, x, k) = self.code, place
        source, slopes = self.at.values[number], self.at.slopes[number + 1]
        vectors = []
        for r in range(rows):
            for j in range(layer.kernel[1]):
                row = code.sum(code.times(y, layer.stride[0]), i, r - layer.padding[0])
                column = code.sum(code.times(x, layer.stride[1]), j - layer.padding[1])
                seen = code.sum(self.place(source, c, row, column), k)
                vectors.append(code.only(mask, code.load(self.memory, seen)))
        for n, variables in enumerate(sums):
            at = code.sum(self.place(slopes, code.sum(o, n), y, x), k)
            slope = code.only(mask, code.load(self.memory, at))
            self._add_products(slope, vectors, variables)

    def _bias_gradient(self, number: int, layer: Convolution) -> None:
        code, slopes = self.code, self.at.slopes[number + 1]
        for low, end, count in tiles(layer.outputs, even_tile(layer.outputs, 8)):
            with code.loop(end, low, count) as o:
                sums = self._sums(lambda _: code.constant(0.0), 0, count, 1)
                with code.loop(slopes.height) as y:
                    for k, _, mask in self.vectors(code.times(slopes.width, self.count)):
                        for n, (variable,) in enumerate(sums):
                            at = code.sum(self.place(slopes, code.sum(o, n), y, 0), k)
                            slope = code.only(mask, code.load(self.memory, at))
                            done = code.b.load(variable, typ=code.vector)
                            code.b.store(code.b.fadd(done, slope), variable)
                for n, (variable,) in enumerate(sums):
                    value = code.total(code.b.load(variable, typ=code.vector))
                    self._put(value, code.sum(o, n, self.offsets[number] + layer.weights), 1)


class Emitter:
    """Writes the functions ``outputs``, ``gradient`` and ``train`` of a network."""

    def __init__(self, network: Network, registers: Registers) -> None:
        self.network, self.registers = network, registers
        self.at = PartMemory(network, registers.width)
        self.module = ir.Module("network")

    def write(self) -> str:
        forward = self._forward()
        self._outputs(forward)
        self._train(self._gradient(forward))
        return str(self.module)

    def _forward(self) -> ir.Function:
        """forward(weights, inputs, index, count, memory): of one part."""
        names = {"weights": PTR, "inputs": PTR, "index": PTR, "count": I64, "memory": PTR}
        code = self._function("forward", ir.VoidType(), names)
        code.function.linkage = "internal"
        weights, inputs, index, count, memory = code.function.args
        part = self._part(code, weights, inputs, index, count, memory)
        part.clear_borders()
        part.forward()
        code.b.ret_void()
        return code.function

    def _part(self, code: Code, *values: Any, **more: Any) -> PartCode:
        return PartCode(code, self.network, self.registers, self.at, *values, **more)

    def _function(self, name: str, result: Any, arguments: dict[str, Any]) -> Code:
        kind = ir.FunctionType(result, list(arguments.values()))
        function = ir.Function(self.module, kind, name=name)
        for argument, (label, of) in zip(function.args, arguments.items()):
            argument.name = label
            if of == PTR:
                argument.add_attribute("noalias")
        return Code(function, self.registers.width)

    def _parts(
        self, code: Code, forward: ir.Function, values: tuple[Any, ...], gradient: Any = None
    ) -> Iterator[tuple[Any, PartCode]]:
        """Loops over the parts of a batch, which are about equally large, after their forward pass:
        (number of the first sample, part).
        """
        weights, inputs, index, count, memory = values
        parts = code.b.udiv(code.sum(count, PART - 1), I64(PART))
        size = code.b.udiv(code.b.sub(code.sum(count, parts), I64(1)), parts)
        with code.loop(parts) as number:
            start = code.times(number, size)
            left = code.b.sub(count, start)
            less = code.b.select(code.b.icmp_signed("<", left, size), left, size)
            samples = code.address(index, start, I64)
            code.b.call(forward, [weights, inputs, samples, less, memory])
            initial = code.b.icmp_signed("==", start, I64(0))
            values = (weights, inputs, samples, less, memory)
            yield start, self._part(code, *values, gradient=gradient, initial=initial)

    def _outputs(self, forward: ir.Function) -> None:
        """outputs(weights, inputs, index, count, memory, out): (count, classes) floats."""
        names = {"weights": PTR, "inputs": PTR, "index": PTR, "count": I64, "memory": PTR}
        code = self._function("outputs", ir.VoidType(), names | {"out": PTR})
        *values, out = code.function.args
        classes, lanes = self.network.classes, self.registers.width
        for start, part in self._parts(code, forward, tuple(values)):
            with code.loop(part.count) as sample, code.loop(classes) as label:
                block, lane = part.of_sample(sample)
                place = code.sum(code.times(block, classes), label)
                place = code.sum(code.times(place, lanes), lane, self.at.inputs[len(part.layers)])
                row = code.times(code.sum(start, sample), classes)
                code.store(code.scalar(part.memory, place), out, code.sum(row, label))
        code.b.ret_void()

    def _gradient(self, forward: ir.Function) -> ir.Function:
        """gradient(weights, gradient, inputs, labels, targets, index, count, memory) -> mean loss.

        ``targets`` is null, or the share of each label in each sample: floats (samples, classes).
        Then ``labels`` are not read.
        """
        names = ["weights", "gradient", "inputs", "labels", "targets", "index"]
        code = self._function(
            "gradient", F64, dict.fromkeys(names, PTR) | {"count": I64, "memory": PTR}
        )
        weights, gradient, inputs, labels, targets, index, count, memory = code.function.args
        inverse = code.b.fdiv(F32(1.0), code.b.sitofp(count, F32))
        loss = code.variable(F64, F64(0.0))
        values = (weights, inputs, index, count, memory)
        for _, part in self._parts(code, forward, values, gradient):
            part.loss(labels, targets, inverse, loss)
            part.backward()
        code.b.ret(code.b.fdiv(code.b.load(loss, typ=F64), code.b.sitofp(count, F64)))
        return code.function

    def _train(self, gradient: ir.Function) -> None:
        """train(weights, velocity, gradient, inputs, labels, index, sizes, rates, steps, momentum,
        decay, start, proximal, memory, losses): SGD over batches of these sizes, one after the
        other in ``index``.

        ``velocity`` may be null: no momentum; ``start``: no proximal term.
        """
        names = ["weights", "velocity", "gradient", "inputs", "labels", "index", "sizes", "rates"]
        numbers = {"steps": I64, "momentum": F32, "decay": F32, "start": PTR, "proximal": F32}
        kinds = dict.fromkeys(names, PTR) | numbers | {"memory": PTR, "losses": PTR}
        code = self._function("train", ir.VoidType(), kinds)
        weights, velocity, slope, inputs, labels, index, sizes, rates = code.function.args[:8]
        steps, momentum, decay, start, proximal, memory, losses = code.function.args[8:]
        done = code.variable(I64, I64(0))
        heavy = code.b.icmp_unsigned("!=", code.b.ptrtoint(velocity, I64), I64(0))
        pulled = code.b.icmp_unsigned("!=", code.b.ptrtoint(start, I64), I64(0))
        with code.loop(steps) as step:
            size, first = code.scalar(sizes, step, I64), code.b.load(done, typ=I64)
            samples = code.address(index, first, I64)
            arguments = [weights, slope, inputs, labels, PTR(None), samples, size, memory]
            loss = code.b.call(gradient, arguments)
            code.b.store(loss, code.address(losses, step, F64))
            code.b.store(code.sum(first, size), done)
            rate = code.b.fneg(code.scalar(rates, step))
            with code.b.if_then(pulled):
                self._pull(code, weights, slope, start, proximal)
            with code.b.if_else(heavy) as (then, otherwise):
                with then:
                    self._move(code, weights, slope, velocity, (rate, momentum, decay))
                with otherwise:
                    self._move(code, weights, slope, None, (rate, momentum, decay))
        code.b.ret_void()

    def _pull(self, code: Code, weights: Any, slope: Any, start: Any, proximal: Any) -> None:
        """g <- g + proximal (w - start)."""
        for first, stop, width in widths(self.network.parameters, self.registers.width):
            factor = code.splat(proximal, width)
            with code.loop(stop, first, width) as place:
                weight, origin = (code.load(base, place, width) for base in (weights, start))
                moved = code.b.fsub(weight, origin)
                pulled = code.fma(factor, moved, code.load(slope, place, width))
                code.store(pulled, slope, place)

    def _move(
        self, code: Code, weights: Any, slope: Any, velocity: Any, numbers: tuple[Any, Any, Any]
    ) -> None:
        """w <- w - rate v, with v <- momentum v + g + decay w."""
        for start, stop, width in widths(self.network.parameters, self.registers.width):
            rate, momentum, decay = (code.splat(number, width) for number in numbers)
            with code.loop(stop, start, width) as place:
                weight = code.load(weights, place, width)
                step = code.fma(decay, weight, code.load(slope, place, width))
                if velocity is not None:
                    step = code.fma(momentum, code.load(velocity, place, width), step)
                    code.store(step, velocity, place)
                code.store(code.fma(rate, step, weight), weights, place)


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
    int64 (or shares, see ``gradient``), ``index`` int64, the samples in their order. ValueError for
    others.
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
        """Write the gradient of the mean loss of these samples, and return the loss.

        ``labels`` may be float32 (samples, classes): a distribution over the labels for each.
        """
        soft = labels.dtype == np.float32
        if soft and labels.shape != (len(inputs), self.classes):
            raise ValueError(f"targets of shape {labels.shape} for {len(inputs)} samples")
        loss: float = self._code.gradient(
            self._vector(weights),
            self._vector(gradient),
            self._images(inputs),
            None if soft else _address(labels, np.int64),
            _address(labels) if soft else None,
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
        function("gradient", ctypes.c_double, *[pointer] * 6, number, pointer),
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
    source = Path(__file__).read_bytes()
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

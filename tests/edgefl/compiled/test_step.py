"""The compiled step against torch, for all widths of registers that this processor can run."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from edgefl.compiled import step as compiled
from edgefl.compiled.network import network_of
from edgefl.compiled.step import CompiledStep, Emitter, Processor, Registers, this_processor
from edgefl.models import lenet5, tdma_cnn
from edgefl.vectors import aligned

# A gradient's largest difference, as a share of its largest element. A float32 has 24 bits; sums of
# hundreds of products in another order lose a few of them.
TOLERANCE = 1e-5
AFTER_MANY = 2e-3  # of the weights after 500 steps
X86 = platform.machine() in ("x86_64", "AMD64")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads of torch that wait for a core spin, which takes minutes on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def processors() -> list[Processor]:
    """This one; and on x86 what makes code for AVX2 alone, with registers as wide as ARM's too."""
    own = this_processor()
    older = [Processor("haswell", "", Registers(*sizes)) for sizes in ((8, 12), (4, 16))]
    return [own, *(older if X86 else [])]


def flat(model: nn.Module) -> np.ndarray:
    parts = [tensor.detach().flatten() for tensor in model.parameters()]
    vector = aligned(sum(map(len, parts)))
    vector[:] = torch.cat(parts).numpy()
    return vector


def data(shape: tuple[int, int, int], classes: int, samples: int, seed: int = 1) -> Any:
    draw = torch.Generator().manual_seed(seed)
    inputs = torch.randn(samples, *shape, generator=draw)
    return inputs, torch.randint(0, classes, (samples,), generator=draw)


def by_torch(model: nn.Module, inputs: Any, labels: Any, index: np.ndarray) -> Any:
    model.zero_grad()
    rows = torch.from_numpy(index)
    loss = nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
    torch.autograd.backward(loss)
    slopes = [tensor.grad.flatten() for tensor in model.parameters() if tensor.grad is not None]
    return loss.item(), torch.cat(slopes).numpy()


def compare(model: nn.Module, step: CompiledStep, shape: Any, classes: int, samples: int) -> None:
    inputs, labels = data(shape, classes, samples + 3)
    index = np.random.Generator(np.random.PCG64(2)).permutation(samples + 3)[:samples]
    loss, slope = by_torch(model, inputs, labels, index)
    weights, gradient = flat(model), aligned(len(slope))
    found = step.gradient(weights, gradient, inputs.numpy(), labels.numpy(), index)
    assert found == pytest.approx(loss, rel=1e-5, abs=1e-6)
    assert np.abs(gradient - slope).max() <= TOLERANCE * np.abs(slope).max()
    shares = torch.softmax(torch.randn(len(inputs), classes), 1)
    loss, slope = by_torch(model, inputs, shares, index)
    found = step.gradient(weights, gradient, inputs.numpy(), shares.numpy(), index)
    assert found == pytest.approx(loss, rel=1e-5, abs=1e-6)
    assert np.abs(gradient - slope).max() <= TOLERANCE * np.abs(slope).max()
    with torch.no_grad():
        scores = model(inputs).numpy()
    assert np.abs(step.outputs(weights, inputs.numpy()) - scores).max() <= 1e-5 * (
        1 + np.abs(scores).max()
    )


@st.composite
def networks(draw: Any) -> tuple[nn.Sequential, tuple[int, int, int], int]:
    """Random architectures: convolutions, pooling, ReLU, dense layers."""
    channels, side = draw(st.integers(1, 3)), draw(st.integers(3, 11))
    shape = (channels, side, draw(st.integers(3, 11)))
    size, layers = shape, []
    for _ in range(draw(st.integers(0, 3))):
        if draw(st.booleans()):
            kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
            stride = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
            padding = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
            new = draw(st.integers(1, 9))
            layer: nn.Module = nn.Conv2d(
                size[0], new, kernel, stride, padding, bias=draw(st.booleans())
            )
        else:
            layer = nn.MaxPool2d(draw(st.tuples(st.integers(1, 3), st.integers(1, 3))))
        try:
            after = layer(torch.zeros(1, *size)).shape[1:]
        except RuntimeError:
            continue
        if min(after) < 1:
            continue
        size = tuple(after)
        layers += [layer, nn.ReLU()] if draw(st.booleans()) else [layer]
    layers.append(nn.Flatten())
    width, classes = int(np.prod(size)), draw(st.integers(2, 19))
    for _ in range(draw(st.integers(0, 2))):
        new = draw(st.integers(1, 21))
        layers += [nn.Linear(width, new, bias=draw(st.booleans())), nn.ReLU()]
        width = new
    layers.append(nn.Linear(width, classes))
    return nn.Sequential(*layers), shape, classes


@settings(max_examples=6, deadline=None)
@given(networks(), st.integers(0, 2**31), st.data())
@pytest.mark.slow
def test_loss_gradient_and_scores_are_torchs(drawn: Any, seed: int, more: Any) -> None:
    model, shape, classes = drawn
    torch.manual_seed(seed)
    for tensor in model.parameters():
        nn.init.normal_(tensor, std=0.5)
    network = network_of(model, shape)
    step = CompiledStep(network, more.draw(st.sampled_from(processors())))
    for samples in more.draw(st.lists(st.integers(1, 70), min_size=1, max_size=3)):
        compare(model, step, shape, classes, samples)


@pytest.mark.parametrize(
    ("model", "options", "processor"),
    [
        *((lenet5, {}, processor) for processor in processors()),
        (lenet5, {"pool": "stride"}, processors()[0]),
        (tdma_cnn, {}, processors()[0]),
    ],
)
@pytest.mark.slow
def test_the_papers_networks_at_every_width(model: Any, options: Any, processor: Processor) -> None:
    torch.manual_seed(3)
    built = model.build(model.Options(**options), (1, 28, 28), 10)
    step = CompiledStep(network_of(built, (1, 28, 28)), processor)
    for samples in (32, 10, 33, 1, 32):  # the borders of images move with the samples of a part
        compare(built, step, (1, 28, 28), 10, samples)


@pytest.mark.parametrize(
    ("momentum", "decay", "proximal"), [(0.0, 0.0, 0.0), (0.9, 1e-3, 0.0), (0.5, 0.0, 0.05)]
)
@pytest.mark.slow
def test_500_steps_of_sgd_are_torchs(momentum: float, decay: float, proximal: float) -> None:
    torch.manual_seed(4)
    model = nn.Sequential(
        *(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(27, 12), nn.ReLU(), nn.Linear(12, 4)),
    )
    inputs, labels = data((1, 8, 8), 4, 90)
    sizes = np.array([32, 32, 26] * 167)[:500]
    index = np.concatenate([np.arange(90)] * 167)[: sizes.sum()]
    first, weights, velocity = flat(model), flat(model), aligned(len(flat(model)))
    velocity[:] = 0
    origin = [tensor.detach().clone() for tensor in model.parameters()]
    rates = np.full(500, 0.02, dtype=np.float32)
    step = CompiledStep(network_of(model, (1, 8, 8)))
    losses = step.train(
        weights,
        velocity if momentum else None,
        inputs.numpy(),
        labels.numpy(),
        index,
        sizes,
        rates,
        momentum,
        decay,
        first if proximal else None,
        proximal,
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum, weight_decay=decay)
    start, expected = 0, []
    for size in sizes:
        rows = torch.from_numpy(index[start : start + size])
        start += int(size)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
        pulls = [((tensor - was) ** 2).sum() for tensor, was in zip(model.parameters(), origin)]
        torch.autograd.backward(loss + proximal / 2 * torch.stack(pulls).sum())
        optimizer.step()
        expected.append(loss.item())
    assert np.abs(weights - flat(model)).max() <= AFTER_MANY
    assert losses == pytest.approx(np.array(expected), abs=AFTER_MANY)


@pytest.mark.slow
def test_steps_one_by_one_are_the_same_bytes_as_all_in_one_call() -> None:
    torch.manual_seed(5)
    model = lenet5.build(lenet5.Options(), (1, 28, 28), 10)
    inputs, labels = (tensor.numpy() for tensor in data((1, 28, 28), 10, 70))
    step = CompiledStep(network_of(model, (1, 28, 28)))
    sizes, index = np.array([32, 32, 6, 32]), np.arange(102) % 70
    rates = np.array([0.1, 0.05, 0.1, 0.2], dtype=np.float32)
    together, apart = flat(model), flat(model)
    losses = step.train(together, None, inputs, labels, index, sizes, rates).tolist()
    for number, (size, rate) in enumerate(zip(sizes, rates)):
        first = int(sizes[:number].sum())
        rows = index[first : first + size]
        one, at = np.array([size]), np.array([rate], dtype=np.float32)
        assert step.train(apart, None, inputs, labels, rows, one, at) == losses[number]
    assert together.tobytes() == apart.tobytes()


@pytest.mark.slow
def test_a_step_does_not_depend_on_what_was_computed_before() -> None:
    """Whatever the memory held: other sizes of batches, and numbers that are not finite."""
    torch.manual_seed(6)
    model = nn.Sequential(
        nn.Conv2d(2, 5, 3, padding=1), nn.ReLU(), nn.Conv2d(5, 3, 2), nn.Flatten(), nn.Linear(60, 3)
    )
    inputs, labels = (tensor.numpy() for tensor in data((2, 5, 6), 3, 40))
    network, weights = network_of(model, (2, 5, 6)), flat(model)
    fresh, used = CompiledStep(network), CompiledStep(network)
    broken = np.full_like(inputs, np.nan)
    for rows in (37, 5, 1):
        used.gradient(weights, aligned(len(weights)), broken, labels, np.arange(rows))
    for rows in (33, 4):
        first, second = aligned(len(weights)), aligned(len(weights))
        fresh.gradient(weights, first, inputs, labels, np.arange(rows))
        used.gradient(weights, second, inputs, labels, np.arange(rows))
        assert np.isfinite(first).all()
        assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.slow
def test_what_is_not_finite_stays_so(value: float) -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 2, 2), nn.ReLU(), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)
    )
    inputs, labels = (tensor.numpy().copy() for tensor in data((1, 5, 5), 3, 4))
    inputs[1, 0, 1, 1] = value
    step, weights = CompiledStep(network_of(model, (1, 5, 5))), np.abs(flat(model))
    assert not np.isfinite(step.outputs(weights, inputs)[1]).all()
    assert np.isfinite(step.outputs(weights, inputs)[[0, 2, 3]]).all()
    gradient = aligned(len(weights))
    assert np.isnan(step.gradient(weights, gradient, inputs, labels, np.arange(4)))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEFL_CACHE", str(tmp_path / "cache"))
    compiled._code.cache_clear()
    return tmp_path / "cache"


def tiny() -> Any:
    torch.manual_seed(7)
    model = nn.Sequential(nn.Flatten(), nn.Linear(9, 3))
    return model, network_of(model, (1, 3, 3))


def works(network: Any, model: nn.Module) -> bool:
    inputs = data((1, 3, 3), 3, 5)[0]
    with torch.no_grad():
        wanted = model(inputs).numpy()
    return np.allclose(
        CompiledStep(network).outputs(flat(model), inputs.numpy()), wanted, atol=1e-6
    )


WEIGHTS, IMAGES = np.zeros(30, np.float32), np.zeros((4, 1, 3, 3), np.float32)
LABELS, ROWS = np.zeros(4, np.int64), np.arange(4)


@pytest.mark.parametrize(
    ("arrays", "fault"),
    [
        ((WEIGHTS[:29], WEIGHTS, IMAGES, LABELS, ROWS), "shape .29,. for a model of 30"),
        ((WEIGHTS.reshape(5, 6), WEIGHTS, IMAGES, LABELS, ROWS), "shape .5, 6."),
        ((np.zeros(60, np.float32)[::2], WEIGHTS, IMAGES, LABELS, ROWS), "not contiguous"),
        ((WEIGHTS.astype(np.float64), WEIGHTS, IMAGES, LABELS, ROWS), "float64: expected"),
        ((WEIGHTS, WEIGHTS, IMAGES[:, :, :2], LABELS, ROWS), "samples of shape .1, 2, 3."),
        ((WEIGHTS, WEIGHTS, IMAGES.astype(np.uint8), LABELS, ROWS), "uint8: expected"),
        ((WEIGHTS, WEIGHTS, IMAGES, LABELS.astype(np.int32), ROWS), "int32: expected"),
        ((WEIGHTS, WEIGHTS, IMAGES, WEIGHTS[:8].reshape(4, 2), ROWS), "targets of shape .4, 2."),
        (
            (WEIGHTS, WEIGHTS, IMAGES, LABELS, ROWS[::2]),
            "not contiguous: expected contiguous int64",
        ),
    ],
)
def test_arrays_that_machine_code_would_misread_are_refused(arrays: Any, fault: str) -> None:
    step = CompiledStep(tiny()[1])
    with pytest.raises(ValueError, match=fault):
        step.gradient(*arrays)


def test_code_is_kept_and_taken_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, network = tiny()
    assert works(network, model)
    (kept,) = (folder / "compiled").iterdir()
    compiled._code.cache_clear()
    monkeypatch.setattr(Emitter, "write", lambda self: pytest.fail("made again"))
    assert works(network, model)
    assert list((folder / "compiled").iterdir()) == [kept]


@pytest.mark.slow
def test_damaged_code_is_made_again(folder: Path) -> None:
    model, network = tiny()
    assert works(network, model)
    (kept,) = (folder / "compiled").iterdir()
    whole = kept.read_bytes()
    for damaged in (b"", whole[:50], whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
        kept.write_bytes(damaged)
        compiled._code.cache_clear()
        assert works(network, model)
        assert kept.read_bytes() == whole


@pytest.mark.parametrize("of", ["file", "folder"])
@pytest.mark.slow
def test_code_that_others_can_write_is_not_run(folder: Path, of: str) -> None:
    model, network = tiny()
    assert works(network, model)
    (kept,) = (folder / "compiled").iterdir()
    harmless = kept.read_bytes()
    strange = b"no machine code"
    kept.write_bytes(hashlib.sha256(strange).digest() + strange)
    (kept if of == "file" else kept.parent).chmod(0o777)
    compiled._code.cache_clear()
    assert works(network, model)
    assert kept.read_bytes() == harmless

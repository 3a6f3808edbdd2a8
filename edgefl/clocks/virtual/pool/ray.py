"""Workers on a Ray cluster: actors of one CPU each, which load data and model on their machine.

Vectors go through Ray's object store. Ray pickles its messages: anyone who can reach a Ray cluster
can run code on it. Our own protocol uses no pickle.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from edgefl.clocks.network_addresses import bare
from edgefl.clocks.setup.learning import Learning, learning
from edgefl.clocks.virtual.pool.engine import Executor
from edgefl.clocks.virtual.pool.workers import WorkerReport, done
from edgefl.config.experiment import Experiment
from edgefl.errors import UserError
from edgefl.vectors import ALIGNMENT, aligned_copy
from edgefl_testbed import install_command

CONNECT_S = 3.0
PATIENCE_S = 60.0  # how long to wait for a first worker
MOST_FAILED_STARTS = 3
HTTP2_SETTINGS = b"\x04"  # type of the first frame of each side (RFC 9113, section 3.4)
HTTP2_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + HTTP2_SETTINGS + bytes(5)


class RayWorker:
    """The Ray actor of one worker."""

    def __init__(self, experiment: str, base: str | None) -> None:
        self.executor = Executor(
            learning(
                Experiment.model_validate_json(experiment), None if base is None else Path(base)
            )
        )

    def load(self) -> None:
        """Return once the constructor has loaded everything."""

    def work(self, order: list[Any]) -> tuple[list[Any] | None, Any]:
        """Do an order; see ``done``."""
        return done(self.executor, with_arrays(order, _aligned))

    def forget(self, number: int) -> None:
        self.executor.forget(number)


@contextmanager
def one_cluster(workers: int, address: str | None) -> Iterator[None]:
    """Let all backends of the block use one cluster, that at ``address`` or their own.

    UserError if there is no such cluster.
    """
    ray = _installed()
    ours = not ray.is_initialized()
    if ours:
        _connect(ray, address, workers)
    try:
        yield
    finally:
        if ours:
            ray.shutdown()


def _installed() -> Any:
    """Return the module ray. UserError without it."""
    try:
        import ray
    except ImportError:
        raise UserError(
            f"--engine ray needs Ray, which is not installed: {install_command('ray')}"
        ) from None
    return ray


class RayBackend:
    """A WorkerBackend on the cluster at ``address``; None: on its own cluster.

    UserError if there is no such cluster.
    """

    def __init__(self, learned: Learning, workers: int, address: str | None) -> None:
        self._ray = ray = _installed()
        self._ours = not ray.is_initialized()
        if self._ours:
            _connect(ray, address, workers)
        self._actor = ray.remote(num_cpus=1)(RayWorker)
        base = None if learned.base is None else str(learned.base.resolve())
        self._begin = (learned.experiment.model_dump_json(), base)
        self._refs: dict[Any, tuple[Any, int]] = {}  # reference of a result -> actor and order
        self._loading: dict[Any, Any] = {}  # reference of ``load`` -> actor
        self._actors: list[Any] = []
        self._failed_starts = 0

    def add_worker(self) -> None:
        actor = self._actor.remote(*self._begin)
        self._actors.append(actor)
        self._loading[actor.load.remote()] = actor

    def send(self, worker: Any, order: list[Any]) -> None:
        self._refs[worker.work.remote(order)] = worker, order[1]

    def forget(self, worker: Any, number: int) -> None:
        """Drop an order. If it has begun, it is trained to its end: Ray cannot interrupt it."""
        for ref in [ref for ref, at in self._refs.items() if at == (worker, number)]:
            with suppress(self._ray.exceptions.RayError):
                self._ray.cancel(ref)
        worker.forget.remote(number)

    def wait(self, timeout_s: float | None) -> list[WorkerReport]:
        asked = [*self._refs, *self._loading]
        if not asked:
            return []
        alone = len(self._loading) == len(self._actors)
        first, _ = self._ray.wait(
            asked, num_returns=1, timeout=PATIENCE_S if timeout_s is None and alone else timeout_s
        )
        if not first and timeout_s is None:
            raise UserError(
                f"the Ray cluster has had no free CPU for any of {len(self._actors)} workers for"
                f" {PATIENCE_S:g} s"
            )
        ready, _ = self._ray.wait(asked, num_returns=len(asked), timeout=0) if first else ([], [])
        return [report for ref in ready for report in self._reports(ref)]

    def close(self) -> None:
        for actor in self._actors:
            with suppress(self._ray.exceptions.RayError):
                self._ray.kill(actor)
        self._refs.clear()
        self._loading.clear()
        if self._ours:
            self._ray.shutdown()

    def _reports(self, ref: Any) -> list[WorkerReport]:
        if ref in self._loading:
            return [self._loaded(ref, self._loading.pop(ref))]
        if ref not in self._refs:
            return []  # its actor has just been lost
        actor, number = self._refs.pop(ref)
        try:
            failure, result = self._ray.get(ref)
        except self._ray.exceptions.TaskCancelledError:
            return [WorkerReport(actor, number)]
        except self._ray.exceptions.RayError as error:
            return [self._lost(actor, error)]
        # copied out of the object store
        return [WorkerReport(actor, number, failure, with_arrays(result, _copy))]

    def _loaded(self, ref: Any, actor: Any) -> WorkerReport:
        try:
            self._ray.get(ref)
        except self._ray.exceptions.RayError as error:
            self._failed_starts += 1
            if self._failed_starts >= MOST_FAILED_STARTS:
                raise UserError(
                    f"no Ray worker could start: {str(error).strip().splitlines()[-1]}"
                ) from error
            return self._lost(actor, error)
        self._failed_starts = 0
        return WorkerReport(actor, ready=True)

    def _lost(self, actor: Any, error: Exception) -> WorkerReport:
        self._actors.remove(actor)
        self._refs = {ref: at for ref, at in self._refs.items() if at[0] is not actor}
        return WorkerReport(actor, lost=type(error).__name__)


def with_arrays(value: Any, change: Callable[[np.ndarray], np.ndarray]) -> Any:
    """``value`` with ``change`` applied to every array in its lists, tuples and dicts."""
    if isinstance(value, (list, tuple)):
        return [with_arrays(part, change) for part in value]
    if isinstance(value, dict):
        return {key: with_arrays(part, change) for key, part in value.items()}
    return change(value) if isinstance(value, np.ndarray) else value


def _aligned(vector: np.ndarray) -> np.ndarray:
    return vector if vector.ctypes.data % ALIGNMENT == 0 else _copy(vector)


def _copy(vector: np.ndarray) -> np.ndarray:
    return aligned_copy(vector).reshape(vector.shape)


def _connect(ray: Any, address: str | None, workers: int) -> None:
    quiet = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
    if address is None:
        ray.init(num_cpus=workers, include_dashboard=False, **quiet)
        return
    _reach(os.environ.get("RAY_ADDRESS", address) if address == "auto" else address)
    try:
        ray.init(address=address, **quiet)
    except ConnectionError as error:
        where = "on this machine (auto)" if address == "auto" else f"at {address!r}"
        raise UserError(
            f"no Ray cluster {where}: start one with `ray start --head`, or give the HOST:PORT"
            " of a running one"
        ) from error
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"no Ray cluster at {address!r}: {str(error).strip().splitlines()[0]}"
        ) from error


def _reach(address: str) -> None:
    """Raise UserError unless a server at ``address`` answers in HTTP/2, as Ray does.

    Ray itself would try for minutes.
    """
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((bare(host), int(port)), CONNECT_S) as connection:
            connection.settimeout(CONNECT_S)
            connection.sendall(HTTP2_GREETING)
            if connection.recv(4)[3:] != HTTP2_SETTINGS:
                raise OSError("another program listens there")
    except (OSError, ValueError) as error:
        raise UserError(
            f"no Ray cluster at {address!r} ({error}): expected HOST:PORT, as `ray start --head`"
            " prints it, or auto"
        ) from error

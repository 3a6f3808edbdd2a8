"""The page's server: files of the page, the runs as JSON, and their news as server-sent events.

It serves on this machine, until the user or the parent process ends it. Beside a run that begins it
is a process of its own, which ends with the run. One thread reads all files, so that a reader of
the page never waits for a lock.
"""

from __future__ import annotations

import asyncio
import errno
import math
import mimetypes
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from edgefl.errors import UserError, needs, printable
from edgefl.plugins.live.feeds import Feeds, RunFeed
from edgefl.plugins.live.guard import Guard
from edgefl.plugins.live.run_model import Seen

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

PAGE = Path(__file__).with_name("page")
TICK_S = 0.5  # between two messages about a run
READ_S = 0.3  # of reading in one tick, so that a long run does not hold up the others
LOOK_S = 2.0  # between two looks for new runs
ALIVE_S = 15.0  # between two signs of life
MOST_STREAMS = 32
MOST_BODY = 10_000  # bytes
MOST_SLICES = 20_000
Result = TypeVar("Result")


class Server:
    """Answers requests. ``stopping``: whether the process is about to end."""

    def __init__(self, feeds: Feeds, stopping: Callable[[], bool]) -> None:
        self.feeds, self.stopping = feeds, stopping
        self.streams = 0
        self._reader = ThreadPoolExecutor(1, "reader")
        self._looked_s = 0.0
        self._read_at: dict[RunFeed, float] = {}
        self._more: set[RunFeed] = set()  # feeds whose files have rows that are not read yet

    def app(self, token: str) -> Guard:
        """Return the ASGI application below ``/token/``."""
        from starlette.applications import Starlette
        from starlette.routing import Mount, Route
        from starlette.staticfiles import StaticFiles

        for kind, suffix in (("text/javascript", ".js"), ("text/css", ".css")):
            mimetypes.add_type(kind, suffix)  # a system may have others, which browsers refuse
        routes = [
            Route("/", self._index),
            Route("/api/runs", self._runs, methods=["GET"]),
            Route("/api/runs", self._add, methods=["POST"]),
            Route("/api/timeline", self._timeline),
            Route("/api/seeds", self._seeds),
            Route("/api/stream", self._stream),
            Mount("/page", StaticFiles(directory=PAGE, check_dir=False)),
        ]
        return Guard(Starlette(routes=routes), token)

    def close(self) -> None:
        """End the thread that reads files."""
        self._reader.shutdown(wait=False, cancel_futures=True)

    # ------------------------------------------------------------------ requests
    async def _index(self, request: Request) -> Response:
        from starlette.responses import FileResponse

        return FileResponse(PAGE / "index.html", media_type="text/html; charset=utf-8")

    async def _runs(self, request: Request) -> Response:
        return await self._in_reader(self._told)

    async def _add(self, request: Request) -> Response:
        try:
            path = await _path_in(request)
            added = await self._in_reader(self.feeds.add, path)
        except UserError as error:
            return _json({"error": str(error)}, 400)
        except OSError as error:
            return _json({"error": printable(f"{path}: cannot be read ({error.strerror})")}, 400)
        return await self._in_reader(self._told, added)

    async def _timeline(self, request: Request) -> Response:
        asked = request.query_params
        feed = self.feeds.get(asked.get("run", ""))
        if feed is None:
            return _json({"error": f"run: no such run, expected one of {self._ids()}"}, 404)
        try:
            begin, end = (finite(asked[name]) for name in ("from", "to"))
            most = min(max(int(asked.get("most", MOST_SLICES)), 1), MOST_SLICES)
        except (KeyError, ValueError):
            line = "expected from=SECONDS and to=SECONDS, and maybe most=NUMBER"
            return _json({"error": line}, 400)
        found = await self._in_reader(feed.window, begin, end, most)
        return _json({"run": asked["run"], **found})

    async def _seeds(self, request: Request) -> Response:
        name = request.query_params.get("run", "")
        if self.feeds.get(name) is None:
            return _json({"error": f"run: no such run, expected one of {self._ids()}"}, 404)
        try:
            found = await self._in_reader(self.feeds.seeds, name)
        except UserError:  # a damaged table: the page shows why at the run itself
            found = []
        return _json({"run": name, "seeds": found})

    async def _stream(self, request: Request) -> Response:
        from starlette.responses import PlainTextResponse, StreamingResponse

        if self.streams >= MOST_STREAMS:
            return PlainTextResponse("too many pages are open\n", 503)
        asked = request.query_params.get("runs")
        names = None if asked is None else asked.split(",")
        headers = {"X-Accel-Buffering": "no"}
        return StreamingResponse(self._events(names), 200, headers, "text/event-stream")

    def _ids(self) -> str:
        return printable(", ".join(self.feeds.ids()[:10])) or "none yet"

    # ------------------------------------------------------------------ events
    async def _events(self, names: list[str] | None) -> AsyncIterator[bytes]:
        """Yield what is new about the runs until the page goes away; None: of the first run."""
        seen = {name: Seen() for name in names or ()}
        told: Any = None
        self.streams += 1
        try:
            alive_s = time.monotonic()
            while True:
                began_s, last = time.monotonic(), self.stopping()
                runs = await self._in_reader(self._look, last)
                if runs != told:
                    told = runs
                    yield _event("runs", {"runs": runs})
                if names is None and not seen:
                    seen = {name: Seen() for name in self.feeds.ids()[:1]}
                for name, its in seen.items():
                    feed = self.feeds.get(name)
                    news = None if feed is None else await self._in_reader(self._news, feed, its)
                    if news is not None:
                        yield _event("update", {"run": name, **news})
                if last:
                    yield _event("bye", {})
                    return
                if began_s - alive_s > ALIVE_S:
                    alive_s = began_s
                    yield b": alive\n\n"
                tick_s = 0.0 if self._more else TICK_S  # a long run is read without a rest
                await asyncio.sleep(max(tick_s - (time.monotonic() - began_s), 0.05))
        finally:
            self.streams -= 1

    def _look(self, now: bool = False) -> list[dict[str, Any]]:
        """Return the runs; look for new ones if it is time, or ``now``."""
        now_s = time.monotonic()
        if now or now_s - self._looked_s > LOOK_S:
            self._looked_s = now_s
            self.feeds.look()
        return self.feeds.told(time.time())

    def _news(self, feed: RunFeed, seen: Seen) -> dict[str, Any] | None:
        """Read the run's files, if no other page has just done it, and return what is new."""
        now_s = time.monotonic()
        if feed in self._more or now_s - self._read_at.get(feed, -TICK_S) > TICK_S / 2:
            self._read_at[feed] = now_s
            self._more.discard(feed)
            while feed.read(time.time()):
                if time.monotonic() - now_s > READ_S:
                    self._more.add(feed)
                    break
        return feed.news(seen, time.time())

    def _told(self, added: Sequence[str] = ()) -> Response:
        found = {"runs": self._look(), "nearby": self.feeds.nearby()}
        return _json(found | {"added": added} if added else found)

    async def _in_reader(self, work: Callable[..., Result], *given: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._reader, work, *given)


async def _path_in(request: Request) -> str:
    """The path in the body of a request. UserError for another body."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/json":  # what a form of another origin cannot send
        raise UserError(f"Content-Type: expected application/json, found {kind!r}")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BODY:
            raise UserError(f"expected at most {MOST_BODY} bytes")
    try:
        path = orjson.loads(body)["path"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        path = None
    if not isinstance(path, str) or not path or "\0" in path:
        raise UserError('expected {"path": "DIR"}')
    return path


def finite(text: str) -> float:
    """Return a number. ValueError for infinity, which no window has, and for other text."""
    if not math.isfinite(value := float(text)):
        raise ValueError(text)
    return value


def _json(value: Any, status: int = 200) -> Response:
    from starlette.responses import Response

    return Response(orjson.dumps(value), status, media_type="application/json")


def _event(kind: str, value: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps(value))


# ---------------------------------------------------------------------- serving
HOST, PORT = "127.0.0.1", 8050
TRIED = 20  # ports from PORT on, if the user has not chosen one
NICE = 19  # a run on this machine comes first


def listen(port: int | None, option: str) -> socket.socket:
    """Return a socket that listens on loopback.

    ``port``: None: PORT, or the next one that is free; 0: any. UserError names ``option`` if the
    port is taken.
    """
    last: OSError | None = None
    for each in [*range(PORT, PORT + TRIED), 0] if port is None else [port]:
        found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind((HOST, each))
            found.listen(128)
            return found
        except OSError as error:
            found.close()
            last = error
    assert last is not None
    if last.errno == errno.EADDRINUSE:
        why = f"port {port} of {HOST} is taken by another program"
    else:
        why = f"port {port} of {HOST} cannot be used ({last.strerror})"
    raise UserError(f"{option} {port}: {why}: expected a free one, or 0 for any")


def needed(what: str) -> None:
    """UserError if the packages of the server are missing; ``what``: the feature, for the line."""
    with needs("live", what):
        import starlette  # noqa: F401  # only looked for
        import uvicorn  # noqa: F401  # only looked for


def new_token() -> str:
    return secrets.token_urlsafe(18)


def address(listening: socket.socket, token: str) -> str:
    """Return the page's address."""
    return f"http://{HOST}:{listening.getsockname()[1]}/{token}/"


def serve(
    listening: socket.socket, token: str, runs: Sequence[Path], parent: int | None = None
) -> None:
    """Serve the page until Ctrl-C; with ``parent``, a descriptor, until its other end is closed."""
    import uvicorn

    server: uvicorn.Server

    def stopping() -> bool:
        return server.should_exit

    pages = Server(Feeds(runs), stopping)
    config = uvicorn.Config(
        pages.app(token),
        log_level="error",
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=2,
        ws="none",
    )
    server = uvicorn.Server(config)
    if parent is not None:
        after_parent(parent, lambda: setattr(server, "should_exit", True))
    try:
        asyncio.run(server.serve(sockets=[listening]))
    finally:
        pages.close()


def after_parent(parent: int, end: Callable[[], None]) -> None:
    """Call ``end`` in a thread once the parent closes its end of a descriptor, or dies."""

    def wait() -> None:
        while os.read(parent, 1):
            pass
        end()

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def companion() -> Iterator[tuple[socket.socket, dict[str, Any], int]]:
    """The process beside a run, see ``_companion``: its socket, its orders, and the descriptor of
    its parent.
    """
    os.nice(NICE)
    with suppress(AttributeError, OSError):  # not Linux, or not allowed
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))  # interrupts no other process
    orders = orjson.loads(sys.stdin.buffer.readline())
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        yield listening, orders, sys.stdin.fileno()


ENDS_S = 5.0  # the server sends the last rows first


@contextmanager
def live_page(folder: Path, port: int | None) -> Iterator[str]:
    """Serve the page of the runs in ``folder`` until the block ends; yields the page's address.

    ``port``: see ``listen``. UserError if the port is taken, or the packages are missing.
    """
    needed("--live")
    token, listening = new_token(), listen(port, "--live")
    where = address(listening, token)
    told = {"token": token, "runs": [str(folder.absolute())]}
    with _companion("edgefl.plugins.live.serve", listening, told):
        yield where


@contextmanager
def metrics_page(folder: Path, port: int) -> Iterator[str]:
    """Serve the metrics of the runs in ``folder`` to Prometheus; else as ``live_page``."""
    with needs("export", "--metrics-port"):
        import prometheus_client  # noqa: F401  # only looked for
    listening = listen(port, "--metrics-port")
    where = f"http://{HOST}:{listening.getsockname()[1]}/metrics"
    with _companion(
        "edgefl.plugins.live.metrics_server", listening, {"runs": str(folder.absolute())}
    ):
        yield where


@contextmanager
def _companion(module: str, listening: socket.socket, told: Mapping[str, Any]) -> Iterator[None]:
    """Run ``python -m module FD`` with ``told`` as a line on its stdin, whose end ends it."""
    with listening:
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(listening.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=[listening.fileno()],
            process_group=0,  # a terminal's Ctrl-C reaches only the run, which ends the server
        )
    assert process.stdin is not None
    try:
        with suppress(BrokenPipeError):
            process.stdin.write(orjson.dumps(told) + b"\n")
            process.stdin.flush()
        yield
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main() -> None:
    """Serve beside a run: ``python -m edgefl.plugins.live.serve FD``, with what to do on stdin."""
    with companion() as (listening, orders, parent):
        serve(listening, orders["token"], [Path(run) for run in orders["runs"]], parent)


if __name__ == "__main__":
    main()

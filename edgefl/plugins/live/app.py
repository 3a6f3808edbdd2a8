"""The page's server: files of the page, the runs as JSON, and their news as server-sent events.

One thread reads all files, so that a reader of the page never waits for a lock.
"""

from __future__ import annotations

import asyncio
import math
import mimetypes
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from edgefl.errors import UserError, printable
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
            await self._in_reader(self.feeds.add, path)
        except UserError as error:
            return _json({"error": str(error)}, 400)
        except OSError as error:
            return _json({"error": printable(f"{path}: cannot be read ({error.strerror})")}, 400)
        return await self._in_reader(self._told)

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

    def _told(self) -> Response:
        return _json({"runs": self._look(), "nearby": self.feeds.nearby()})

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

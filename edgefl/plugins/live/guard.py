"""Who may talk to the page's server: the token is in the address, other origins are refused."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

LOOPBACK = ("127.0.0.1", "localhost", "::1")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
        " connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",  # the address has the token
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
OWN_SITE = ("same-origin", "none")  # of Sec-Fetch-Site; none: the user typed the address


def refusal(headers: Mapping[str, str], path: str, token: str) -> tuple[int, str] | None:
    """Return (status, line) if a request is not served, else None.

    A page of another origin can make a browser send requests here. It does not know the token,
    and cannot hide its origin. A name of another machine that leads to this one (DNS rebinding)
    shows in the host.
    """
    host = _host(f"//{headers.get('host', '')}")
    if host not in LOOPBACK:
        expected = f"expected {' or '.join(LOOPBACK[:2])}"
        return 403, f"this server is only for its own machine: {expected}, found host {host!r}"
    origin = headers.get("origin")
    if origin is not None and origin != f"http://{headers['host']}":
        return 403, f"a page of another origin ({origin}) may not read this server"
    leads_here = headers.get("sec-fetch-dest") == "document"  # a link that the user follows
    if headers.get("sec-fetch-site", "none") not in OWN_SITE and not leads_here:
        return 403, "a page of another origin may not read this server"
    given = path.removeprefix("/").partition("/")[0]
    if not hmac.compare_digest(given.encode(), token.encode()):
        return 403, "the address needs its token: open the whole address that edgefl has printed"
    return None


def _host(netloc: str) -> str | None:
    try:
        return urlsplit(netloc).hostname
    except ValueError:
        return None


class Guard:
    """ASGI: refuses requests, sets headers, and takes the token off the path."""

    def __init__(self, app: Any, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *RAW_HEADERS]
            await send(message)

        refused = refusal(headers, scope["path"], self._token)
        if refused is not None:
            await _answer(with_headers, *refused)
            return
        below = scope["path"].removeprefix(f"/{self._token}")
        if not below:
            await _answer(with_headers, 404, "the address ends with a slash")
            return
        await self._app({**scope, "path": below, "raw_path": None}, receive, with_headers)


RAW_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]


async def _answer(send: Any, status: int, line: str) -> None:
    body = f"{line}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(body)),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

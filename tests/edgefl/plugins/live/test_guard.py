"""Who is served: requests as browsers make them."""

from __future__ import annotations

import pytest

from edgefl.plugins.live.guard import refusal

TOKEN = "secret"
HOST = {"host": "127.0.0.1:8050"}
OWN = {**HOST, "origin": "http://127.0.0.1:8050", "sec-fetch-site": "same-origin"}


@pytest.mark.parametrize(
    "headers",
    [
        HOST,
        {"host": "localhost:9000"},  # by ssh -L 9000:127.0.0.1:8050
        {"host": "[::1]:8050"},
        OWN,
        {**HOST, "sec-fetch-site": "none", "sec-fetch-dest": "document"},
        {**HOST, "sec-fetch-site": "cross-site", "sec-fetch-dest": "document"},
    ],
    ids=["curl", "tunnel", "v6", "own page", "typed", "followed link"],
)
def test_served(headers: dict[str, str]) -> None:
    assert refusal(headers, f"/{TOKEN}/api/runs", TOKEN) is None


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({**HOST, "origin": "http://evil.example"}, "another origin"),
        ({**HOST, "origin": "http://127.0.0.1:8051"}, "another origin"),
        ({**HOST, "sec-fetch-site": "cross-site", "sec-fetch-dest": "script"}, "another origin"),
        ({**HOST, "sec-fetch-site": "same-site", "sec-fetch-dest": "empty"}, "another origin"),
        ({"host": "evil.example"}, "found host 'evil.example'"),
        ({"host": "127.0.0.1.evil.example:8050"}, "only for its own machine"),
        ({"host": "evil.example#@127.0.0.1"}, "only for its own machine"),
        ({"host": "[::1"}, "only for its own machine"),
        ({}, "only for its own machine"),
    ],
)
def test_refused(headers: dict[str, str], says: str) -> None:
    found = refusal(headers, f"/{TOKEN}/", TOKEN)
    assert found is not None and found[0] == 403 and says in found[1] and "\n" not in found[1]


@pytest.mark.parametrize("path", ["", "/api/runs", "/secrets/", "//secret/", "/s\u00e9cret/"])
def test_without_the_token(path: str) -> None:
    found = refusal(OWN, path, TOKEN)
    assert found is not None and found[0] == 403 and "token" in found[1] and TOKEN not in found[1]

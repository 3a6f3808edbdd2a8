"""Ports, tokens and what must be installed, without a server."""

from __future__ import annotations

import socket
import sys

import pytest

from edgefl.errors import UserError
from edgefl.plugins.live.serve import address, listen, needed, new_token

pytestmark = pytest.mark.processes  # sockets


def test_the_chosen_port_or_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        line = rf"^--live {port}: port {port} of 127.0.0.1 is taken by another program: expected"
        with pytest.raises(UserError, match=line):
            listen(port, "--live")
        with listen(0, "--live") as found:
            assert found.getsockname()[0] == "127.0.0.1" and found.getsockname()[1] != port


def test_the_address_has_a_token_that_cannot_be_guessed() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100 and all(len(token) >= 24 for token in tokens)
    with listen(0, "--live") as found:
        port = found.getsockname()[1]
        assert address(found, "abc") == f"http://127.0.0.1:{port}/abc/"


def test_what_is_missing_and_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "uvicorn"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    line = r"^edgefl view needs the package 'uvicorn'.*install -e .*\[live\]'"
    with pytest.raises(UserError, match=line):
        needed("edgefl view")

"""The address at which the edges of a host reach the coordinator."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence

import pytest

from edgefl.plugins.launch.connections import (
    NO_ENV,
    Done,
    HostConnection,
    HostError,
    RemoteProcess,
    coordinator_address,
    listen_host,
)
from edgefl.plugins.launch.inventory import CoordinatorPlace, Host

HERE = CoordinatorPlace(Host("coordinator", via="local"), None, 0)


class ScriptedHost(HostConnection):
    """A host with these addresses, and routes to those addresses."""

    def __init__(self, own_address: str | None, *own: str, routes: Sequence[str] = ()) -> None:
        super().__init__(Host("h", via="netns"), own_address)
        self.own, self.routes = own, routes

    async def start(self, argv: Sequence[str], *, env: Mapping[str, str] = NO_ENV) -> RemoteProcess:
        raise AssertionError("only `run` is used")

    async def close(self) -> None:
        return None

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30.0
    ) -> Done:
        if argv[:3] == ["ip", "route", "get"]:
            return Done(0 if argv[3] in self.routes else 2, b"", b"unreachable")
        parts = [each.split("/") for each in self.own]
        addresses = [{"local": local, "prefixlen": int(length)} for local, length in parts]
        of_another_scope = {}  # as iproute2 lists it
        answer = [{"addr_info": [of_another_scope, *addresses]}, {}]
        return Done(0, json.dumps(answer).encode(), b"")


def found(
    place: CoordinatorPlace, host: HostConnection, coordinator: HostConnection | None = None
) -> str:
    return asyncio.run(coordinator_address(place, coordinator, host))


def test_the_inventory_says_it() -> None:
    place = CoordinatorPlace(HERE.host, "fl.example.org", 0)
    assert found(place, ScriptedHost("10.0.0.254")) == "fl.example.org"


def test_a_coordinator_here_is_reached_as_the_connection_was_made() -> None:
    assert found(HERE, ScriptedHost("10.0.0.254")) == "10.0.0.254"


def test_a_coordinator_in_another_namespace() -> None:
    place = CoordinatorPlace(Host("server", via="netns"), None, 7700)
    server = ScriptedHost(None, "192.0.2.1/24", "10.0.1.7/24")
    host = ScriptedHost(None, "10.0.1.9/24", routes=["192.0.2.1"])
    assert found(place, host, server) == "10.0.1.7", "the same network comes first"


def test_a_coordinator_behind_a_router() -> None:
    place = CoordinatorPlace(Host("server", via="netns"), None, 7700)
    server = ScriptedHost(None, "192.0.2.1/24", "10.0.1.7/24")
    host = ScriptedHost(None, "10.9.9.9/24", routes=["10.0.1.7"])
    assert found(place, host, server) == "10.0.1.7"
    with pytest.raises(HostError, match=r"give coordinator\.address"):
        found(place, ScriptedHost(None, "10.9.9.9/24"), server)


@pytest.mark.parametrize(
    "answer", [b"no JSON", b"[7]", b'[{"addr_info": [{"local": "x", "prefixlen": 3}]}]']
)
def test_a_host_that_answers_nonsense_is_an_error_of_that_host(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(*words: object, **options: object) -> Done:
        return Done(0, answer, b"")

    host = ScriptedHost(None)
    monkeypatch.setattr(host, "run", run)
    place = CoordinatorPlace(Host("server", via="netns"), None, 7700)
    with pytest.raises(HostError, match="h: ip does not list its addresses as JSON"):
        found(place, host, ScriptedHost(None, "10.0.1.7/24"))


def test_a_coordinator_on_a_host_of_ssh_is_reached_by_its_name() -> None:
    place = CoordinatorPlace(Host("server-1", via="ssh"), None, 7700)
    assert found(place, ScriptedHost(None), ScriptedHost(None)) == "server-1"


@pytest.mark.parametrize(
    ("wanted", "reached_at", "expected"),
    [
        ("127.0.0.1", ["127.0.0.1", "127.0.0.1"], "127.0.0.1"),
        ("127.0.0.1", ["127.0.0.1", "10.0.0.254"], "0.0.0.0"),
        ("127.0.0.1", ["127.0.0.1", "fd00::2"], "::"),
        ("::1", ["127.0.0.1"], "::1"),
        ("10.0.0.254", ["10.0.0.254"], "10.0.0.254"),
    ],
)
def test_the_coordinator_listens_where_it_must(
    wanted: str, reached_at: Sequence[str], expected: str
) -> None:
    assert listen_host(wanted, reached_at) == expected

"""A host with via = "netns" is a host of a running lab, by its name there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from edgefl.plugins.launch.connections import HostError
from edgefl.plugins.launch.inventory import Host
from edgefl.plugins.launch.opening import open_netns
from emulator import BadValue, Lab

pytestmark = pytest.mark.processes
TOPOLOGY = {
    "hosts": [{"name": "pi-1"}, {"name": "pi-2"}, {"name": "laptop", "here": True}],
    "links": [{"from": "pi-1", "to": "laptop"}],
}


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    try:
        with Lab(TOPOLOGY, name="lab-hosts") as made:
            monkeypatch.setenv("EMULATOR_LAB", made.name)
            yield made
    except BadValue as error:
        pytest.skip(str(error))


def test_a_name_leads_into_its_namespace(lab: Lab) -> None:
    async def told(name: str) -> tuple[str, str | None]:
        connection = await open_netns(Host(name, via="netns"))
        done = await connection.run(["ip", "-4", "-o", "address", "show", "scope", "global"])
        await connection.close()
        return done.out.decode(), connection.own_address

    out, own_address = asyncio.run(told("pi-1"))
    assert lab.host("pi-1").address in out
    assert own_address == lab.host("laptop").address
    assert asyncio.run(told("pi-2")) == ("", None)  # it has no link


def test_a_name_that_the_lab_lacks_is_told_with_the_nearest(lab: Lab) -> None:
    with pytest.raises(HostError, match=r"host 'pi-11' does not exist: did you mean pi-1\?"):
        asyncio.run(open_netns(Host("pi-11", via="netns")))


def test_without_root_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(HostError, match="needs the program ip|needs root"):
        asyncio.run(open_netns(Host("pi-1", via="netns")))

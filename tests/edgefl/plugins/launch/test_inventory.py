"""The inventory: hosts and edges of a file, and the error line of each kind of bad input."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefl.errors import UserError
from edgefl.plugins.launch.inventory import Inventory, load_inventory


def written(folder: Path, text: str) -> Path:
    path = folder / "hosts.toml"
    path.write_text(text)
    return path


def loaded(folder: Path, text: str) -> Inventory:
    return load_inventory(written(folder, text))


def refusal(folder: Path, text: str) -> str:
    """The error line, without the folder."""
    with pytest.raises(UserError) as caught:
        loaded(folder, text)
    return str(caught.value).replace(f"{folder}/", "")


def test_a_host_may_have_an_ipv6_address(tmp_path: Path) -> None:
    """Without brackets, which stand for a range."""
    inventory = loaded(
        tmp_path,
        """
        [coordinator]
        address = "::1"
        [[hosts]]
        host = "fd00::[2-3]"
        """,
    )
    assert [host.name for host in inventory.hosts] == ["fd00::2", "fd00::3"]
    assert list(inventory.edge_hosts()) == ["fd00--2", "fd00--3"]
    assert inventory.coordinator.address == "::1"


def test_hosts_edges_and_defaults(tmp_path: Path) -> None:
    (tmp_path / "id").write_text("")
    inventory = loaded(
        tmp_path,
        """
        [coordinator]
        listen_port = 7700
        [defaults]
        user = "pi"
        identity = "id"
        venv = "~/fl"
        links = "native"
        env = {A = "1", B = "2"}
        [[hosts]]
        host = "pi-[1-2]"
        edges = 2
        env = {B = "3"}
        [[hosts]]
        host = "10.0.0.9"
        user = "me"
        python = "/opt/python"
        devices = "pi4"
        links = "lte"
        allow_code = true
        [[hosts]]
        host = "lab-a"
        via = "netns"
        names = ["left", "right"]
        """,
    )
    assert list(inventory.edge_hosts()) == [
        *("pi-1-1", "pi-1-2", "pi-2-1", "pi-2-2"),
        *("10-0-0-9", "left", "right"),
    ]
    first, second, address, namespace = inventory.hosts
    assert (first.name, second.name, first.via, first.user) == ("pi-1", "pi-2", "ssh", "pi")
    assert first.identity == tmp_path / "id" and first.env == {"A": "1", "B": "3"}
    assert (first.links, first.devices, first.allow_code) == ("native", None, False)
    assert (first.interpreter, first.folder) == ("~/fl/bin/python", "~/.edgefl")
    assert (address.user, address.interpreter, address.allow_code) == ("me", "/opt/python", True)
    assert (address.links, address.devices) == ("lte", "pi4")
    # keys of [defaults] that only ssh has do not apply; hosts that share a disk share no folder
    assert (namespace.user, namespace.identity) == (None, None)
    assert namespace.folder == "~/.edgefl/lab-a"
    assert inventory.coordinator.host.via == "local" and inventory.coordinator.listen_port == 7700


A = '[[hosts]]\nhost = "a"\n'


@pytest.mark.parametrize(
    ("path", "there"), [("work", "~/work"), ("~/work", "~/work"), ("~", "~"), ("/work", "/work")]
)
def test_relative_paths_on_a_host_begin_in_its_home(path: str, there: str, tmp_path: Path) -> None:
    """Where the commands run that copy files there and fetch results; edges work elsewhere."""
    place = f'[coordinator]\nvia = "ssh"\nhost = "hub"\nfolder = "{path}"\n'
    inventory = loaded(tmp_path, f'{place}{A}folder = "{path}"\ndata = "{path}"\n')
    for host in inventory.all_hosts():
        assert host.folder == there
    assert inventory.hosts[0].data == there


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "hosts: expected a table [[hosts]] for each host, found none"),
        ("[hosts]\nhost = 'a'", "hosts: expected a table [[hosts]] for each host, found [hosts]"),
        ("[[strategies]]", "is the config of an experiment, expected an inventory of hosts"),
        ("[[hosts]]\nvia = 'ssh'", "hosts[0].host: missing"),
        (A + "hostname = 'b'", "hosts[0].hostname: unknown key (nearest: 'host')"),
        (
            "[defaults]\nusr = 'x'\n" + A,
            "defaults.usr: unknown key (nearest: 'user')",
        ),
        (A + "edges = 0", "hosts[0].edges: expected greater than or equal to 1, found 0"),
        (A + "edges = 2\nnames = ['x']", "hosts[0]: names: expected edges or names, found both"),
        (A + A, "hosts: host 'a' is given twice"),
        (A + "names = ['x', 'x']", "hosts: edge 'x' is twice on host 'a'"),
        (
            "[[hosts]]\nhost = 'a.b'\n[[hosts]]\nhost = 'a-b'",
            "hosts: edge 'a-b' is on hosts 'a.b' and 'a-b': give names",
        ),
        (
            "[[hosts]]\nhost = 'a[1-2]'\nnames = ['x']",
            "hosts[0].names: expected a single host, found 2 (a[1-2])",
        ),
        ("[[hosts]]\nhost = '-oProxyCommand=x'", "hosts[0].host: expected a name or an address"),
        (f"[[hosts]]\nhost = '{'a' * 40}'", "hosts[0].host: no edge id can be made of 'aaaa"),
        (A + "identity = 'id_rsa'", "hosts[0].identity: no file id_rsa (nearest: 'id_rsb')"),
        (A + "known_hosts = 'no/where'", "hosts[0].known_hosts: no directory no"),
        (
            A + "links = 'lt'",
            "hosts[0]: links: link profile 'lt' does not exist: did you mean lte?",
        ),
        (A + "devices = 'lte'", "hosts[0]: devices: device profile 'lte' does not exist"),
        (A + "python = 'p'\nvenv = 'v'", "hosts[0]: venv: expected python or venv, found both"),
        (
            A + "via = 'netns'\nuser = 'x'",
            'hosts[0]: user: expected only with via = "ssh", found "netns"',
        ),
        (A + "env = {'A B' = 'x'}", "hosts[0]: env: expected a name of letters, digits and _"),
        (
            "[coordinator]\nvia = 'ssh'\n" + A,
            'coordinator: host: missing; via = "ssh" needs it',
        ),
        ("[coordinator]\nlisten_port = 70000\n" + A, "coordinator.listen_port: expected less"),
        (A + "port", "hosts.toml: Expected '=' after a key"),
    ],
)
def test_bad_input_is_one_line(text: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "id_rsb").write_text("")
    said = refusal(tmp_path, text)
    assert said.startswith("hosts.toml: ") and line in said and "\n" not in said


def test_a_missing_inventory_names_the_nearest(tmp_path: Path) -> None:
    path = written(tmp_path, A)
    with pytest.raises(UserError, match=r"host\.toml: no such file \(nearest: 'hosts\.toml'\)"):
        load_inventory(path.with_name("host.toml"))

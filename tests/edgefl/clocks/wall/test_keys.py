"""Keys: written completely or not at all, read with clear errors; on real sockets they identify the
sender.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import zmq

from edgefl.clocks.wall import keys
from edgefl.clocks.wall.wire import Dealer, Router
from edgefl.errors import UserError
from edgefl.protocol.messages import MAX_PIECE_BYTES

PASSING_MS = 5000  # a generous wait for what must arrive
BLOCKED_MS = 300  # a wait for what must not arrive


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    keys.new(tmp_path / "keys", ["e000", "pi-1"])
    return tmp_path / "keys"


@dataclass
class Wire:
    """A context that references its sockets: otherwise a socket would be closed and lose its
    messages.
    """

    context: zmq.Context = field(default_factory=zmq.Context)
    sockets: list[zmq.Socket] = field(default_factory=list)

    def router(self, server: keys.ServerKeys | None) -> zmq.Socket:
        self.sockets.append(self.context.socket(zmq.ROUTER))
        if server is not None:
            keys.secure_server(self.sockets[-1], server)
        self.port = self.sockets[-1].bind_to_random_port("tcp://127.0.0.1")
        return self.sockets[-1]

    def dealer(self, edge: keys.EdgeKeys | None) -> zmq.Socket:
        self.sockets.append(self.context.socket(zmq.DEALER))
        if edge is not None:
            keys.secure_edge(self.sockets[-1], edge)
        self.sockets[-1].connect(f"tcp://127.0.0.1:{self.port}")
        return self.sockets[-1]


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.context.destroy(linger=0)


def test_new_writes_private_files(folder: Path) -> None:
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    assert sorted(files) == [
        "allowed.json",
        "coordinator.key",
        "coordinator.key_secret",
        "edges/e000.key",
        "edges/e000.key_secret",
        "edges/pi-1.key",
        "edges/pi-1.key_secret",
    ]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files.values()} == {0o600}
    assert (
        "secret" not in files["coordinator.key"].read_text() + files["edges/e000.key"].read_text()
    )


def test_loaded_keys_belong_together(folder: Path) -> None:
    server, edge = keys.load_server(folder), keys.load_edge(folder, "pi-1")
    assert (
        edge.server == server.public
        and server.allowed[edge.public] == "pi-1"
        and sorted(server.allowed.values()) == ["e000", "pi-1"]
    )
    assert server.secret.decode() not in repr(server) and edge.secret.decode() not in repr(edge)


@pytest.mark.parametrize(
    ("ids", "line"),
    [
        (["ok", "../up"], "edge id '../up': expected at most 32 of a-z, 0-9, _ and -, beginning"),
        (["a", "b", "a"], "edge id 'a' is given twice"),
    ],
)
def test_bad_ids_write_nothing(tmp_path: Path, ids: list[str], line: str) -> None:
    with pytest.raises(UserError) as caught:
        keys.new(tmp_path / "keys", ids)
    assert str(caught.value).startswith(line) and list(tmp_path.iterdir()) == []


def test_new_never_overwrites(folder: Path) -> None:
    before = keys.load_server(folder)
    for there in (folder, folder / "coordinator.key"):
        with pytest.raises(
            UserError,
            match="exists already; keys are never overwritten: expected a new directory",
        ):
            keys.new(there, ["e000"])
    assert keys.load_server(folder) == before
    with pytest.raises(UserError, match="cannot be written"):
        keys.new(folder / "coordinator.key" / "below", ["e000"])
    assert [path.name for path in folder.parent.iterdir()] == ["keys"]  # no draft is left
    (folder.parent / "empty").mkdir()
    keys.new(folder.parent / "empty", ["e000"])
    assert keys.load_server(folder.parent / "empty").allowed


def damage(path: Path, text: str | None) -> None:
    path.unlink() if text is None else path.write_text(text)


PAIR, LIST = "coordinator.key_secret", "allowed.json"


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        (PAIR, None, "no such key file; `edgefl keys new DIR` makes them"),
        (PAIR, "curve\n", "expected a public-key"),
        (PAIR, f'public-key = "{"0" * 40}"\n', "expected a secret-key"),
        (LIST, None, "cannot be read (No such file or directory); expected the list"),
        (LIST, "{", "is not JSON"),
        (LIST, '{"a": 3}', "'a': expected an edge id with its public key"),
        (LIST, '{"a": "x"}', "public key of 'a': expected 40 characters of z85"),
        (
            LIST,
            f'{{"a": "{"0" * 40}", "b": "{"0" * 40}"}}',
            "'a' and 'b' have the same key; expected one for each",
        ),
    ],
)
def test_damaged_server_keys(folder: Path, name: str, text: str | None, line: str) -> None:
    damage(folder / name, text)
    with pytest.raises(UserError) as caught:
        keys.load_server(folder)
    assert str(caught.value).startswith(f"{folder}/{name}: {line}")


def test_missing_edge_key_names_the_nearest(folder: Path) -> None:
    with pytest.raises(
        UserError, match=r"pi1.key_secret: no key for edge 'pi1' \(nearest: 'pi-1'\)"
    ):
        keys.load_edge(folder, "pi1")
    with pytest.raises(UserError, match="no such key file"):
        keys.load_edge(folder / "nowhere", "pi-1")


@pytest.mark.processes
@pytest.mark.alone
def test_every_message_carries_the_edge_of_its_key(folder: Path, wire: Wire) -> None:
    server = keys.load_server(folder)
    doorman = keys.Doorman(wire.context, server)
    doorman.start()
    router = wire.router(server)
    sockets = {name: wire.dealer(keys.load_edge(folder, name)) for name in ("e000", "pi-1")}
    for name, socket in sockets.items():
        socket.send_multipart([name.encode(), b"second frame"])
        assert router.poll(PASSING_MS)
        routing, *frames = router.recv_multipart(copy=False)
        assert [keys.edge_of(frame) for frame in frames] == [name, name] and frames[
            0
        ].bytes == name.encode()
        router.send_multipart([routing.bytes, b"answer to " + name.encode()])
        assert socket.poll(PASSING_MS) and socket.recv() == b"answer to " + name.encode()
    doorman.stop()


@pytest.mark.processes
@pytest.mark.alone
def test_strangers_get_nothing_through(folder: Path, wire: Wire, tmp_path: Path) -> None:
    server = keys.load_server(folder)
    keys.new(tmp_path / "other", ["e000"])
    stranger, friend = keys.load_edge(tmp_path / "other", "e000"), keys.load_edge(folder, "e000")
    doorman = keys.Doorman(wire.context, server)
    doorman.start()
    router = wire.router(server)
    unknown_key = keys.EdgeKeys(stranger.public, stranger.secret, friend.server)
    wrong_server = keys.EdgeKeys(friend.public, friend.secret, stranger.server)
    outside = [wire.dealer(edge) for edge in (unknown_key, wrong_server, None)]
    for socket in outside:
        with suppress(zmq.Again):  # it has been refused already
            socket.send(b"let me in", zmq.NOBLOCK)
    assert not router.poll(BLOCKED_MS)
    inside = wire.dealer(friend)
    inside.send(b"hello")  # allowed keys are still accepted
    assert router.poll(PASSING_MS) and router.recv_multipart()[1] == b"hello"
    doorman.stop()


@pytest.mark.processes
@pytest.mark.alone
def test_without_a_doorman_the_door_stays_shut(folder: Path, wire: Wire) -> None:
    router = wire.router(keys.load_server(folder))
    edge = wire.dealer(keys.load_edge(folder, "e000"))
    edge.send(b"hello")
    assert not router.poll(BLOCKED_MS)


def until_told(edge: Dealer, found: Callable[[str | None], bool]) -> str | None:
    """What the edge's end reports of its connection, once it is the expected report."""
    until_s = time.monotonic() + PASSING_MS / 1000
    while not found(said := edge.turned_away()):
        assert time.monotonic() < until_s
        time.sleep(0.01)
    return said


@pytest.mark.processes
@pytest.mark.alone
def test_an_edge_is_told_what_is_wrong_with_its_keys(
    folder: Path, wire: Wire, tmp_path: Path
) -> None:
    """Missing keys, keys that nothing needs, and a wrong coordinator.key.

    In the last case an edge only sees that its connections are closed again and again.
    """
    keys.new(tmp_path / "others", ["e000"])
    own, wrong = keys.load_edge(folder, "e000"), keys.load_edge(tmp_path / "others", "e000")
    for server, key, line in (
        (keys.load_server(folder), None, "it requires keys"),
        (None, own, "it has no keys"),
    ):
        wire.router(server)
        edge = Dealer(wire.context, key, f"tcp://127.0.0.1:{wire.port}")
        assert line in (until_told(edge, lambda said: said is not None) or "")
        edge.close()
    wire.router(keys.load_server(folder))
    edge = Dealer(wire.context, wrong, f"tcp://127.0.0.1:{wire.port}")
    assert until_told(edge, lambda said: edge.hung_up >= 2) is None
    assert not edge.cut_off(), "it was not accepted"
    edge.close()


@pytest.mark.processes
@pytest.mark.alone
def test_the_largest_piece_passes_in_both_directions_and_a_larger_one_ends_the_connection(
    folder: Path, wire: Wire
) -> None:
    """Encrypted frames are longer. The socket's own limit must leave room for that."""
    server, edge_keys = keys.load_server(folder), keys.load_edge(folder, "e000")
    doorman = keys.Doorman(wire.context, server)
    doorman.start()
    router = Router(wire.context, server)
    port = router.bind("127.0.0.1", 0)
    edge = Dealer(wire.context, edge_keys, f"tcp://127.0.0.1:{port}")
    piece = bytes(MAX_PIECE_BYTES)
    assert edge.send(b"up", piece)
    ((routing, _, frames),) = received(router)
    assert [len(frame) for frame in frames] == [2, MAX_PIECE_BYTES]
    assert router.send(routing, b"down", piece)
    ((down, body),) = received(edge)
    assert (len(down), len(body)) == (4, MAX_PIECE_BYTES)
    router.send(routing, b"down", bytes(MAX_PIECE_BYTES + 1))
    assert wait_until(lambda: not edge.send(b"up")), "libzmq makes no new connection"
    edge.close()
    router.close()
    doorman.stop()


def received(end: Router | Dealer) -> list[Any]:
    """Wait for messages and return them."""
    assert end.socket.poll(PASSING_MS)
    return list(end.receive(9)) if isinstance(end, Router) else list(end.receive())


def wait_until(done: Callable[[], bool]) -> bool:
    until_s = time.monotonic() + PASSING_MS / 1000
    while time.monotonic() < until_s:
        if done():
            return True
        time.sleep(0.02)
    return False


@pytest.mark.processes
@pytest.mark.alone
def test_an_edge_is_told_that_an_accepted_connection_has_closed(folder: Path, wire: Wire) -> None:
    server = keys.load_server(folder)
    router = wire.router(server)
    doorman = keys.Doorman(wire.context, server)
    doorman.start()
    edge = Dealer(wire.context, keys.load_edge(folder, "e000"), f"tcp://127.0.0.1:{wire.port}")
    edge.send(b"hello")
    assert router.poll(PASSING_MS) and not edge.cut_off()
    router.close()
    assert until_told(edge, lambda said: edge.cut_off()) is None
    edge.close()
    doorman.stop()


@pytest.mark.parametrize("host", ["[::1]", "localhost"])
def test_loopback_needs_no_keys(host: str) -> None:
    assert keys.is_loopback(host)
    keys.must_have_keys(host, None, insecure=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "localhost.example.org"])
def test_a_network_needs_keys(host: str, folder: Path) -> None:
    assert not keys.is_loopback(host)
    with pytest.raises(
        UserError,
        match="is not loopback and there are no keys: expected --keys DIR .* or --insecure",
    ):
        keys.must_have_keys(host, None, insecure=False)
    warning = keys.must_have_keys(host, None, insecure=True)
    assert warning is not None and warning.startswith(
        f"--insecure: no keys: anyone who can reach {host}"
    )
    assert keys.must_have_keys(host, keys.load_server(folder), insecure=False) is None
    assert keys.must_have_keys(host, keys.load_server(folder), insecure=True) is None


# ------------------------------------------------------------------ who else may read and change
@pytest.mark.parametrize("mode", [0o604])
def test_a_secret_that_others_may_read_is_refused(folder: Path, mode: int) -> None:
    server, edge = folder / "coordinator.key_secret", folder / "edges" / "pi-1.key_secret"
    for path in (server, edge):
        path.chmod(mode)
    with pytest.raises(UserError, match=rf"mode {mode:04o}\): chmod 600 {server}$"):
        keys.load_server(folder)
    with pytest.raises(UserError, match=rf"others .* may read it .*: chmod 600 {edge}$"):
        keys.load_edge(folder, "pi-1")
    for path in (server, edge):
        path.chmod(0o400)
    assert keys.load_server(folder) and keys.load_edge(folder, "pi-1")


@pytest.mark.parametrize("mode", [0o602])
def test_a_list_and_a_public_key_that_others_may_change_are_refused(
    folder: Path, mode: int
) -> None:
    (folder / "allowed.json").chmod(mode)
    with pytest.raises(UserError, match=rf"may change it .*chmod go-w {folder / 'allowed.json'}$"):
        keys.load_server(folder)
    (folder / "coordinator.key").chmod(mode)
    with pytest.raises(UserError, match=r"may change it .*chmod go-w .*coordinator\.key$"):
        keys.load_edge(folder, "pi-1")
    (folder / "coordinator.key").chmod(0o644)
    assert keys.load_edge(folder, "pi-1")


def test_keys_are_completed_and_those_that_exist_stay(tmp_path: Path) -> None:
    folder = tmp_path / "lab.keys"
    assert keys.complete(folder, ["a", "b"]) == ["a", "b"]
    before = {path: path.read_bytes() for path in folder.rglob("*.key*")}
    assert keys.complete(folder, ["a", "b"]) == []
    assert keys.complete(folder, ["c", "a"]) == ["c"]
    assert {path: path.read_bytes() for path in before} == before
    assert sorted(keys.load_server(folder).allowed.values()) == ["a", "b", "c"]
    assert keys.load_edge(folder, "c").server == keys.load_server(folder).public
    modes = {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}
    assert modes == {0o600}


def test_a_listed_edge_without_its_secret_key_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "lab.keys"
    keys.complete(folder, ["a", "b"])
    (folder / "edges" / "b.key_secret").unlink()
    with pytest.raises(UserError, match="no key for edge 'b'"):
        keys.complete(folder, ["a", "b"])
    assert keys.complete(folder, ["a"]) == []


def test_a_revoked_key_is_off_the_list_and_a_renewed_one_is_new(folder: Path) -> None:
    before = {edge: key for key, edge in keys.load_server(folder).allowed.items()}
    revoked, renewed, *_ = before
    keys.revoke(folder, revoked)
    keys.renew(folder, renewed)
    after = {edge: key for key, edge in keys.load_server(folder).allowed.items()}
    assert after == {edge: key for edge, key in before.items() if edge != revoked} | {
        renewed: keys.load_edge(folder, renewed).public
    }
    assert after[renewed] != before[renewed]
    assert not list((folder / "edges").glob(f"{revoked}.*"))
    assert stat.S_IMODE((folder / "edges" / f"{renewed}.key_secret").stat().st_mode) == 0o600
    assert sorted(each.name for each in folder.iterdir()) == [
        "allowed.json",
        "coordinator.key",
        "coordinator.key_secret",
        "edges",
    ]
    for change in (keys.revoke, keys.renew):
        with pytest.raises(UserError, match=f"has no key of edge '{revoked}'"):
            change(folder, revoked)

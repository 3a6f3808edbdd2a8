"""CURVE keys: a file lists the edges that may join; a message's key identifies its edge.

::

    DIR/coordinator.key_secret   stays with the coordinator
    DIR/coordinator.key          goes to every edge
    DIR/edges/NAME.key_secret    goes to that edge
    DIR/edges/NAME.key           its public half
    DIR/allowed.json             edge id -> public key, read by the coordinator
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
import zmq
import zmq.auth
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils import z85

from edgefl.clocks.network_addresses import is_loopback
from edgefl.config.section import EDGE_ID, PATTERNS
from edgefl.errors import UserError, as_user_error, nearest, written
from emulator.plain_text import read_text

DOMAIN = "edgefl"
KEY_CHARACTERS = 40  # z85 of 32 bytes
PAIR = (".key", ".key_secret")  # the files of a key pair
# permissions that only the owner may have: for a list or a public key, for a secret key
WRITE, READ = stat.S_IWGRP | stat.S_IWOTH, stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class ServerKeys:
    """The coordinator's key pair (z85) and the edge id of every allowed public key."""

    public: bytes
    secret: bytes = field(repr=False)
    allowed: dict[bytes, str]


@dataclass(frozen=True, slots=True)
class EdgeKeys:
    """An edge's key pair and the coordinator's public key (z85)."""

    public: bytes
    secret: bytes = field(repr=False)
    server: bytes


def new(folder: Path, edge_ids: Sequence[str]) -> None:
    """Write keys for a coordinator and these edges into ``folder``: all of them or none.

    UserError unless ``folder`` is new or empty.
    """
    for edge in edge_ids:
        if not re.fullmatch(EDGE_ID, edge):
            raise UserError(f"edge id {edge!r}: expected {PATTERNS[EDGE_ID]}")
    twice = sorted({edge for edge in edge_ids if edge_ids.count(edge) > 1})
    if twice:
        raise UserError(f"edge id {twice[0]!r} is given twice")
    folder = folder.absolute()
    _must_be_new(folder)
    with written(f"{folder}:"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as temporary:
            draft = Path(temporary) / folder.name
            for private in (draft, draft / "edges"):
                private.mkdir(mode=0o700)
            _write_pair(draft / "coordinator")
            _write_list(draft, {edge: _write_pair(draft / "edges" / edge) for edge in edge_ids})
            draft.rename(folder)


def _is_new(folder: Path) -> bool:
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


def _must_be_new(folder: Path) -> None:
    if not _is_new(folder):
        raise UserError(
            f"{folder}: exists already; keys are never overwritten: expected a new directory"
        )


def missing(folder: Path, edge_ids: Sequence[str]) -> list[str]:
    """Return those of these edges that have no keys in ``folder``: all if it is new or empty.

    UserError if the folder has something else, or lacks the secret key of an edge.
    """
    if _is_new(folder) or not folder.is_dir():
        _must_be_new(folder)
        return list(edge_ids)
    listed = _listed(folder)
    for edge in edge_ids:
        if edge in listed:
            load_edge(folder, edge)
    return [edge for edge in edge_ids if edge not in listed]


def complete(folder: Path, edge_ids: Sequence[str]) -> list[str]:
    """Make keys in ``folder`` for those of these edges that have none; return their ids.

    A missing folder is made, with keys of a coordinator. Keys that exist stay as they are.
    UserError as for ``missing``.
    """
    lacking = missing(folder, edge_ids)
    if _is_new(folder):
        new(folder, edge_ids)
    elif lacking:
        listed = _listed(folder)
        with written(f"{folder}:"):
            added = {edge: _write_pair(folder / "edges" / edge) for edge in lacking}
            _write_list(folder, listed | added)
    return lacking


def revoke(folder: Path, edge: str) -> None:
    """Take an edge off the list of those that may join, and remove its keys from ``folder``.

    A coordinator reads the list when it starts. UserError for an edge that is not on it.
    """
    _write_list(folder, _without(folder, edge))
    for suffix in PAIR:
        (folder / "edges" / f"{edge}{suffix}").unlink(missing_ok=True)


def renew(folder: Path, edge: str) -> None:
    """Give an edge a new key pair; its old key may not join any more.

    A coordinator reads the list when it starts. UserError for an edge that is not on it.
    """
    others = _without(folder, edge)
    with written(f"{folder}:"), TemporaryDirectory(prefix=".new-", dir=folder) as draft:
        public = _write_pair(Path(draft) / edge)
        _write_list(folder, others | {edge: public})
        for suffix in PAIR:
            (Path(draft) / f"{edge}{suffix}").replace(folder / "edges" / f"{edge}{suffix}")


def _listed(folder: Path) -> dict[str, str]:
    """The public keys of the edges that may join."""
    return {edge: key.decode() for key, edge in load_server(folder).allowed.items()}


def _without(folder: Path, edge: str) -> dict[str, str]:
    """The list of allowed edges without this one. UserError if it is not there."""
    listed = _listed(folder)
    if listed.pop(edge, None) is None:
        raise UserError(f"{folder}: has no key of edge {edge!r}{nearest(edge, listed)}")
    return listed


def _write_list(folder: Path, listed: dict[str, str]) -> None:
    draft = folder / f".allowed.json-{os.getpid()}"
    try:
        _write(draft, orjson.dumps(listed, option=orjson.OPT_INDENT_2).decode() + "\n")
        draft.replace(folder / "allowed.json")
    finally:
        draft.unlink(missing_ok=True)


def _write_pair(stem: Path) -> str:
    public, secret = (key.decode() for key in zmq.curve_keypair())
    text = f'curve\n    public-key = "{public}"\n'
    _write(stem.with_name(stem.name + ".key"), text)
    _write(stem.with_name(stem.name + ".key_secret"), f'{text}    secret-key = "{secret}"\n')
    return public


def _write(path: Path, text: str) -> None:
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii"
    ) as file:
        file.write(text)


def load_server(folder: Path) -> ServerKeys:
    """Load the coordinator's keys and its list of allowed edges.

    UserError if a file is missing or damaged.
    """
    public, secret = _read_pair(folder / "coordinator.key_secret")
    path = folder / "allowed.json"
    _only_owner(path, WRITE)
    try:
        with as_user_error():
            text = read_text(path)
        listed = orjson.loads(text)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}); expected the list of edges' public keys"
            " that `edgefl keys new` writes"
        ) from error
    except orjson.JSONDecodeError as error:
        raise UserError(f"{path}: is not JSON ({error})") from error
    if not isinstance(listed, dict):
        raise UserError(f"{path}: expected an object {{edge id: public key}}")
    allowed: dict[bytes, str] = {}
    for edge, key in listed.items():
        if not re.fullmatch(EDGE_ID, edge) or not isinstance(key, str):
            raise UserError(f"{path}: {edge!r}: expected an edge id with its public key")
        edge_key = _checked(key.encode(), path, f"public key of {edge!r}")
        if edge_key in allowed:
            raise UserError(
                f"{path}: {allowed[edge_key]!r} and {edge!r} have the same key; expected one for"
                " each"
            )
        allowed[edge_key] = edge
    return ServerKeys(public, secret, allowed)


def load_edge(folder: Path, edge: str) -> EdgeKeys:
    """Load an edge's keys from DIR/coordinator.key and DIR/edges/NAME.key_secret.

    UserError if one is missing or damaged.
    """
    path = folder / "edges" / f"{edge}.key_secret"
    if folder.is_dir() and not path.exists():
        there = [
            other.name.removesuffix(".key_secret") for other in path.parent.glob("*.key_secret")
        ]
        raise UserError(f"{path}: no key for edge {edge!r}{nearest(edge, there)}")
    public, secret = _read_pair(path)
    return EdgeKeys(public, secret, _read(folder / "coordinator.key")[0])


def _only_owner(path: Path, bits: int) -> None:
    """Raise UserError if others than the owner have the permissions ``bits`` on the file.

    A missing file is no error here: the code that reads it reports that. Windows has no such
    permissions, so there nothing is checked.
    """
    if os.name != "posix":
        return
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    if mode & bits:
        does, change = ("read", "600") if bits & stat.S_IRGRP else ("change", "go-w")
        raise UserError(
            f"{path}: others than its owner may {does} it (mode {stat.S_IMODE(mode):04o}): chmod"
            f" {change} {shlex.quote(str(path))}"
        )


def _read_pair(path: Path) -> tuple[bytes, bytes]:
    _only_owner(path, READ)
    public, secret = _read(path)
    if secret is None:
        raise UserError(f"{path}: expected a secret-key")
    return public, _checked(secret, path, "secret-key")


def _read(path: Path) -> tuple[bytes, bytes | None]:
    _only_owner(path, WRITE)
    try:
        public, secret = zmq.auth.load_certificate(path)
    except OSError as error:
        raise UserError(f"{path}: no such key file; `edgefl keys new DIR` makes them") from error
    except ValueError as error:
        raise UserError(f"{path}: expected a public-key") from error
    return _checked(public, path, "public-key"), secret


def _checked(key: bytes, path: Path, what: str) -> bytes:
    try:
        fits = len(key) == KEY_CHARACTERS and len(z85.decode(key)) == 32
    except Exception:  # z85 raises whatever its table look-up gives
        fits = False
    if not fits:
        raise UserError(f"{path}: {what}: expected {KEY_CHARACTERS} characters of z85")
    return key


def secure_server(socket: zmq.Socket, keys: ServerKeys) -> None:
    """Accept only allowed keys. Call it before ``bind``, after starting a Doorman in the same
    context.
    """
    socket.curve_secretkey = keys.secret
    socket.curve_publickey = keys.public
    socket.curve_server = True
    socket.zap_domain = DOMAIN.encode()
    # without this, every key is accepted while no Doorman runs
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)


def secure_edge(socket: zmq.Socket, keys: EdgeKeys) -> None:
    """Prove the edge's identity and accept only that coordinator. Call it before ``connect``."""
    socket.curve_secretkey = keys.secret
    socket.curve_publickey = keys.public
    socket.curve_serverkey = keys.server


class Doorman(ThreadAuthenticator):
    """Tells libzmq (ZAP) whether a new connection is allowed, and which edge it is.

    Call ``start`` before ``bind``, and ``stop`` at the end. ``excluded``: edges in quarantine,
    whose keys are no longer allowed.
    """

    def __init__(
        self, context: zmq.Context, keys: ServerKeys, excluded: Container[str] = ()
    ) -> None:
        super().__init__(context)
        self.edges, self.excluded = keys.allowed, excluded
        self.configure_curve_callback(DOMAIN, self)

    def callback(self, domain: str, key: bytes) -> bool:
        """Called by pyzmq: whether this public key (z85) is allowed."""
        return key in self.edges and self.edges[key] not in self.excluded

    def curve_user_id(self, client_public_key: bytes) -> str:
        """Called by pyzmq: the User-Id of this public key (32 bytes).

        ``edge_of`` reads it from the messages of that key.
        """
        return self.edges[z85.encode(client_public_key)]


def edge_of(frame: zmq.Frame) -> str | None:
    """The edge with whose key this frame was sent; None on a socket without keys."""
    try:
        return str(frame.get("User-Id"))
    except zmq.ZMQError:
        return None


def must_have_keys(
    host: str, keys: ServerKeys | EdgeKeys | None, insecure: bool, said: str = "network.host"
) -> str | None:
    """Refuse a network without keys: UserError if ``host`` is not loopback.

    With ``insecure`` it returns a warning instead. ``said``: the key or option that gave the host.
    """
    if keys is not None:
        return None
    if insecure:
        return (
            f"--insecure: no keys: anyone who can reach {host} can pretend to be the coordinator or"
            " any edge, and can read and change all messages"
        )
    if not is_loopback(host):
        raise UserError(
            f"{said}: {host!r} is not loopback and there are no keys: expected --keys DIR (made by"
            " `edgefl keys new DIR`), or --insecure"
        )
    return None

"""Connections to hosts: what all kinds of them do, and what only ssh and namespaces need."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ssh_hosts import Rig, refusal, ssh_hosts

from edgefl.plugins.launch.connections import (
    MOST_ERRORS_BYTES,
    HostConnection,
    HostError,
    LineSplitter,
    UnknownHostKey,
)
from edgefl.plugins.launch.inventory import Host, load_inventory
from edgefl.plugins.launch.opening import Ask, ask_on_terminal, asker, open_connections
from edgefl.plugins.launch.ssh import command

REFUSE = asker(False)  # no test has a terminal
KINDS = ["local", "netns", "ssh"]


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    if refusal():
        pytest.skip(refusal())
    with ssh_hosts(2, disk_bytes={1: 1_000_000}) as made:
        yield made


@pytest.fixture
def host(request: pytest.FixtureRequest) -> Host:
    """A host of the kind that the test's parameter names."""
    if request.param == "local":
        return Host("here", via="local")
    rig: Rig = request.getfixturevalue("rig")
    if request.param == "netns":
        return Host(rig.hosts[0].name, via="netns")
    return ssh_host(rig)


def ssh_host(rig: Rig, index: int = 0, known_hosts: Path | None = None) -> Host:
    return Host(
        rig.hosts[index].address,
        user="root",
        identity=rig.identity,
        known_hosts=known_hosts or rig.known_hosts,
    )


def use(host: Host, work: Callable[[HostConnection], Awaitable[object]]) -> None:
    """Do ``work`` with a connection."""

    async def go() -> None:
        connection = (await open_connections([host], REFUSE))[host.name]
        assert isinstance(connection, HostConnection), connection
        try:
            await work(connection)
        finally:
            await connection.close()

    asyncio.run(go())


def opened(host: Host, ask: Ask = REFUSE) -> HostConnection | HostError:
    async def go() -> HostConnection | HostError:
        found = (await open_connections([host], ask))[host.name]
        if isinstance(found, HostConnection):
            await found.close()
        return found

    return asyncio.run(go())


pytestmark = pytest.mark.processes


@pytest.mark.parametrize("host", KINDS, indirect=True)
def test_a_command_its_input_output_and_status(host: Host) -> None:
    async def work(connection: HostConnection) -> None:
        script = 'cat; echo "$1" >&2; exit 3'
        odd = "a 'b' \"c\" $HOME `x` \\ *\n;"
        done = await connection.run(["sh", "-c", script, "sh", odd], stdin=b"x\0\n" * 100_000)
        assert (done.status, done.out, done.err) == (3, b"x\0\n" * 100_000, odd.encode() + b"\n")
        done = await connection.run(["sh", "-c", "kill -TERM $$"])
        assert done.status == 128 + 15
        done = await connection.run(["true"], stdin=b"not read " * 1_000_000)
        assert done.status == 0
        done = await connection.run(["sh", "-c", 'echo "$0"; echo ~', "~/a b"])
        in_home, home = done.out.decode().splitlines()
        assert in_home == f"{home}/a b"

    use(host, work)


@pytest.mark.parametrize("host", KINDS, indirect=True)
def test_a_process_talks_in_lines_and_can_be_ended(host: Host) -> None:
    async def work(connection: HostConnection) -> None:
        script = 'echo $$ >&2; while read line; do echo "$A $line"; done; exit 5'
        process = await connection.start(["sh", "-c", script], env={"A": "b c"})
        lines = process.lines()
        await process.write(b"1\n")
        assert await anext(lines) == b"b c 1"
        process.close_stdin()
        assert await process.wait() == 5
        process.kill()  # too late: nothing happens
        assert await process.wait() == 5
        process = await connection.start(["sh", "-c", "sleep 1000 & echo $!; wait"])
        child = int(await anext(process.lines()))
        process.kill()
        assert await process.wait() == 137
        assert await gone(child)

    use(host, work)


@pytest.mark.parametrize("host", ["local", "ssh"], indirect=True)
def test_a_host_that_prints_without_end_is_cut_off(host: Host) -> None:
    async def work(connection: HostConnection) -> None:
        with pytest.raises(HostError, match="a command there printed more than 16 MiB"):
            await connection.run(["yes", "x" * 1000])
        for script in ("head -c 1000000 /dev/zero; echo; echo end", "seq 100000; echo end"):
            done = await connection.run(["sh", "-c", f"({script}) >&2"])
            assert len(done.err) < 2 * MOST_ERRORS_BYTES and done.err.endswith(b"end\n")

    use(host, work)


@pytest.mark.parametrize("host", ["local", "ssh"], indirect=True)
def test_a_copy_that_stalls_is_given_up(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgefl.plugins.launch.connections.STALL_S", 0.5)
    os.mkfifo(tmp_path / "fifo")  # a reader waits for a writer

    async def work(connection: HostConnection) -> None:
        reason = "the copy made no progress for 0.5 s"
        with pytest.raises(HostError, match=reason):
            await connection.get(str(tmp_path / "fifo"), tmp_path / "copy", 1 << 20)
        assert not list(tmp_path.glob("copy*"))
        monkeypatch.setattr("edgefl.plugins.launch.connections.PUT", "exec sleep 1000")
        with pytest.raises(HostError, match=reason):
            await connection.put(bytes(1 << 23), str(tmp_path / "target"))

    use(host, work)


async def gone(pid: int) -> bool:
    """Wait until the process has ended."""
    for _ in range(1000):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        await asyncio.sleep(0.01)
    return False


@pytest.mark.parametrize("host", ["local", "ssh"], indirect=True)
def test_a_timeout_ends_the_command(host: Host, tmp_path: Path) -> None:
    async def work(connection: HostConnection) -> None:
        script = 'echo $$ >"$0"; sleep 1000'
        with pytest.raises(HostError, match=r"no end of sh -c .* in 0\.5 s"):
            await connection.run(["sh", "-c", script, str(tmp_path / "pid")], timeout_s=0.5)
        assert await gone(int((tmp_path / "pid").read_text()))

    use(host, work)


@pytest.mark.parametrize("host", ["local", "ssh"], indirect=True)
def test_files_travel_whole(host: Host, tmp_path: Path) -> None:
    content, sizes = os.urandom(1_000_003), []

    async def work(connection: HostConnection) -> None:
        home = (await connection.run(["mktemp", "-d"])).out.decode().strip()
        try:
            (tmp_path / "source").write_bytes(content)
            await connection.put(tmp_path / "source", f"{home}/a b/c", 0o600, sizes.append)
            await connection.put(b"", f"{home}/empty")
            done = await connection.run(["stat", "-c", "%a %s", f"{home}/a b/c", f"{home}/empty"])
            assert done.out.split() == [b"600", b"1000003", b"644", b"0"]
            await connection.get(f"{home}/a b/c", tmp_path / "back" / "c", 1 << 20)
            assert (tmp_path / "back" / "c").read_bytes() == content
            with pytest.raises(HostError, match="c has more than 0 MiB: not copied"):
                await connection.get(f"{home}/a b/c", tmp_path / "back" / "d", 1_000_002)
            await connection.run(["touch", f"{home}/empty.part1"])  # of a copy that was killed
            await connection.put(b"", f"{home}/empty")
            with pytest.raises(HostError, match="cannot be read .*No such file"):
                await connection.get(f"{home}/d", tmp_path / "back" / "d", 1 << 20)
            with pytest.raises(HostError, match="cannot be written"):
                await connection.put(b"x", f"{home}/empty/e")
            done = await connection.run(["find", home, "-type", "f"])
            assert sorted(done.out.decode().split("\n")[:-1]) == [f"{home}/a b/c", f"{home}/empty"]
        finally:
            await connection.run(["rm", "-r", home])

    use(host, work)
    assert sum(sizes) == len(content)
    assert [path.name for path in (tmp_path / "back").iterdir()] == ["c"]


def test_a_full_disk_leaves_nothing(rig: Rig) -> None:
    async def work(connection: HostConnection) -> None:
        with pytest.raises(HostError, match="~/big cannot be written .*No space left"):
            await connection.put(b"x" * 2_000_000, "~/big")
        assert (await connection.run(["sh", "-c", "ls ~/big*"])).out == b""

    use(ssh_host(rig, 1), work)


def test_an_unknown_key_is_shown_and_must_be_accepted(
    rig: Rig, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    known = tmp_path / "known_hosts"
    known.write_text("# mine, without a line end")
    host = ssh_host(rig, known_hosts=known)
    refused = opened(host)
    fingerprint = key_fingerprint(rig)
    assert isinstance(refused, UnknownHostKey) and refused.fingerprint == fingerprint
    assert "unknown host key (ED25519, fingerprint SHA256:" in str(refused)
    assert "ED25519 key fingerprint is SHA256:" in refused.question()
    assert known.read_text() == "# mine, without a line end"
    assert isinstance(opened(host, asker(True)), HostConnection)
    assert fingerprint in capfd.readouterr().err
    public = (rig.hosts[0].folder / "host_key.pub").read_text().split()[:2]
    assert known.read_text().splitlines()[1] == " ".join([host.name, *public])
    assert isinstance(opened(host), HostConnection)  # known from now on


def test_without_a_terminal_only_the_option_accepts_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = UnknownHostKey("pi", "ED25519", "SHA256:abc", Path("known_hosts"), "pi k x")
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert not asyncio.run(asker(accept_new=False)(unknown))
        assert asyncio.run(asker(accept_new=True)(unknown))


def key_fingerprint(rig: Rig) -> str:
    words = ["ssh-keygen", "-lf", str(rig.hosts[0].folder / "host_key.pub")]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()[1]


@pytest.mark.parametrize(
    ("typed", "accepted"),
    [("yes", True), ("no", False), ("ja\n\nyes", True), ("SHA256:abc", True), ("\x04", False)],
)
def test_a_question_on_a_terminal(
    typed: str, accepted: bool, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        os.write(ours, f"{typed}\n".encode() if typed != "\x04" else b"\x04")
        unknown = UnknownHostKey("pi", "ED25519", "SHA256:abc", Path("known_hosts"), "pi k x")
        assert asyncio.run(ask_on_terminal(unknown)) is accepted
    os.close(ours)
    shown = capfd.readouterr().err
    assert "The authenticity of host 'pi' can't be established." in shown
    assert shown.count("Please type") == (2 if "ja" in typed else 0)


def test_what_goes_wrong_with_one_host_is_a_line_of_its_own(rig: Rig, tmp_path: Path) -> None:
    first, second = rig.hosts
    (tmp_path / "empty").write_text("")
    wrong = tmp_path / "wrong"
    wrong.write_text("this is no key\n")
    known = tmp_path / "known"
    known.write_text(rig.known_hosts.read_text())
    text = rig.inventory(known_hosts=str(known), by_host={1: {"identity": str(wrong)}})
    text += (
        '\n[[hosts]]\nhost = "127.0.0.1"\nport = 1\n[[hosts]]\nhost = "no.such.host.invalid"\n'
        '[[hosts]]\nhost = "no-such-namespace"\nvia = "netns"\n[[hosts]]\nhost = "here"\n'
        'via = "local"\n'
    )
    (tmp_path / "hosts.toml").write_text(text)
    rig.hosts[0].new_host_key()
    rig.hosts[0].stop()
    rig.hosts[0].start()
    try:
        found = all_opened(tmp_path / "hosts.toml")
    finally:
        rig.trust()
    assert f"{first.address}: the host key has changed (now ED25519" in str(found[0])
    assert f"ssh-keygen -R {first.address} -f {known}" in str(found[0])
    assert str(found[1]).startswith(f"{second.address}: identity {wrong}: is no private key")
    assert str(found[2]) == "127.0.0.1: cannot be reached at port 1 (Connection refused)"
    assert str(found[3]).startswith("no.such.host.invalid: cannot be reached at port 22 (")
    assert str(found[4]).startswith("no-such-namespace: no network namespace of this name")
    assert isinstance(found[5], HostConnection)
    assert all("\n" not in str(each) for each in found[:5])


def all_opened(inventory: Path) -> list[HostConnection | HostError]:
    async def go() -> list[HostConnection | HostError]:
        found = list((await open_connections(load_inventory(inventory).hosts, REFUSE)).values())
        for each in found:
            if isinstance(each, HostConnection):
                await each.close()
        return found

    return asyncio.run(go())


def test_a_key_with_a_passphrase_belongs_into_the_agent(rig: Rig, tmp_path: Path) -> None:
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret12", "-f", str(tmp_path / "id")]
    subprocess.run(words, check=True)
    locked = Host(rig.hosts[0].address, identity=tmp_path / "id", known_hosts=rig.known_hosts)
    assert str(opened(locked)).endswith("has a passphrase: run ssh-add, and leave out identity")


def test_no_config_of_ssh_turns_the_check_of_host_keys_off(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text(
        f"Host alias\n  HostName {rig.hosts[0].address}\n  UserKnownHostsFile none\n"
        "  StrictHostKeyChecking no\n"
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    host = Host("alias", user="root", identity=rig.identity)
    unknown = opened(host)  # by its alias, so the file was read
    assert isinstance(unknown, UnknownHostKey) and unknown.fingerprint == key_fingerprint(rig)
    assert unknown.file == tmp_path / ".ssh" / "known_hosts" and not unknown.file.exists()
    assert isinstance(opened(host, asker(True)), HostConnection)
    assert isinstance(opened(host), HostConnection)


def test_a_host_that_refuses_the_key(rig: Rig) -> None:
    keys = rig.hosts[0].folder / "authorized_keys"
    allowed = keys.read_text()
    keys.write_text("")
    try:
        refused = opened(ssh_host(rig))
    finally:
        keys.write_text(allowed)
    assert str(refused) == (
        f"{rig.hosts[0].address}: the host refused the key {rig.identity} for user 'root': add the"
        " public key to its authorized_keys"
    )


def test_a_connection_that_breaks_is_an_error_of_its_host(rig: Rig) -> None:
    async def work(connection: HostConnection) -> None:
        process = await connection.start(["cat"])
        rig.hosts[0].stop(connections=True)
        with pytest.raises(HostError, match="lost the connection"):
            await process.wait()
        with pytest.raises(HostError, match="lost the connection"):
            await connection.run(["true"])

    try:
        use(ssh_host(rig), work)
    finally:
        rig.hosts[0].start()


def test_this_machine_as_a_host_sees_it(rig: Rig) -> None:
    async def work(connection: HostConnection) -> None:
        assert connection.own_address == rig.address

    use(ssh_host(rig), work)
    use(Host(rig.hosts[0].name, via="netns"), work)


def test_the_words_of_a_command_for_a_login_shell() -> None:
    assert command(["~/x y/python", "-c", "a'b", "~"], {"A": "~/d"}) == (
        """exec env A="$HOME"/d sh -c 'echo $$; exec "$@"' sh "$HOME"/'x y/python' -c"""
        """ 'a'"'"'b' "$HOME\""""
    )


@given(
    st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"").replace(b"\r", b""))),
    st.integers(1, 9),
)
def test_lines_do_not_depend_on_the_chunks(lines: list[bytes], size: int) -> None:
    data, splitter, found = b"".join(line + b"\n" for line in lines), LineSplitter(100), []
    for start in range(0, len(data), size):
        found += splitter.split(data[start : start + size])
    assert found == lines and splitter.rest() == []


def test_a_line_without_end_comes_in_parts() -> None:
    splitter = LineSplitter(4)
    assert splitter.split(b"ab\r\nabcdef") == [b"ab", b"abcdef"]
    assert splitter.split(b"gh") == [] and splitter.rest() == [b"gh"]

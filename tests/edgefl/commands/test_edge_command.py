"""`edgefl edge`: its exit statuses, and the page that lists those of all commands."""

from __future__ import annotations

import re

import pytest
from paths import ROOT

from edgefl import cli, exit_status
from edgefl.errors import UserError
from edgefl.hosts.wall.edge.membership import Membership
from edgefl.protocol.errors import Refused, Unreachable

WORDS = ["edgefl", "edge", "--connect", "tcp://127.0.0.1:1", "--id", "e000"]


@pytest.mark.parametrize(
    ("end", "status", "said"),
    [
        (None, exit_status.OVER, ""),
        (KeyboardInterrupt(), exit_status.OVER, ""),
        (Unreachable("no answer for 60 s"), exit_status.NO_ANSWER, "e000: no answer for 60 s"),
        (Refused("other keys"), exit_status.REFUSED, "e000: other keys"),
        (UserError("no file x"), exit_status.BAD_INPUT, "no file x"),
    ],
)
def test_each_end_of_an_edge_has_its_status(
    end: BaseException | None,
    status: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def one_run(member: Membership) -> None:
        if end is not None:
            raise end

    monkeypatch.setattr(Membership, "one_run", one_run)
    monkeypatch.setattr("sys.argv", WORDS)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == status
    assert capsys.readouterr().err == (f"edgefl: {said}\n" if said else "")


def test_the_reference_lists_each_status() -> None:
    page = (ROOT / "docs" / "reference" / "exit-status.md").read_text()
    listed = [int(number) for number in re.findall(r"^\| (\d+) \|", page, re.M)]
    assert listed == sorted(value for value in vars(exit_status).values() if type(value) is int)

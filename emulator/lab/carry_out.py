"""Run the commands of a lab, many in one call of ip, tc or bridge."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from emulator.errors import BadValue
from emulator.kernel.commands import Argv
from emulator.kernel.namespaces import execute

_FAILED = re.compile(r"Command failed -:(\d+)")


def carry_out(steps: Sequence[Argv]) -> None:
    """Run ``steps`` in order. BadValue, with the command, for the first that fails."""
    for head, words in batches(steps):
        if not head:
            execute(words[0])
            continue
        try:
            execute([*head, "-batch", "-"], "".join(f"{' '.join(line)}\n" for line in words))
        except BadValue as error:
            failed = _FAILED.search(str(error))
            step = " ".join([*head, *words[int(failed[1]) - 1 if failed else 0]])
            reason = _FAILED.sub("", str(error).partition("-batch -: ")[2]).strip()
            raise BadValue(f"lab: {step}: {reason or error}") from None


def batches(steps: Sequence[Argv]) -> Iterator[tuple[Argv, list[Argv]]]:
    """Group commands that one call can run: (the call, the words of each line).

    The call is empty for a command that has to run alone.
    """
    for head, group in groupby(steps, _head):
        lines = list(group)
        if not head:
            yield from ((head, [line]) for line in lines)
        else:
            yield head, [line[len(head) :] for line in lines]


def _head(step: Argv) -> Argv:
    """The beginning of a command that lines of one batch share."""
    if step[0] not in ("ip", "tc", "bridge") or step[1] == "netns":
        return []
    return step[:3] if step[1] == "-n" else step[:1]

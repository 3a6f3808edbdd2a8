"""One-line messages for bad words on the command line, with what was probably meant."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from edgefl.config.key_names import meant
from edgefl.errors import nearest

VIRTUAL = "a coordinator is always on the wall clock; use edgefl run CONFIG --clock virtual"
INSTEAD = {  # (command, option) -> what to write
    ("run", "--virtual"): "say --clock virtual",
    ("run", "--wall"): "say --clock wall",
    ("run", "--keys"): "keys are for edges elsewhere: edgefl coordinator CONFIG --keys DIR",
    ("run", "--continue"): "say --resume DIR",
    ("run", "--restart"): "say --resume DIR",
    ("coordinator", "--continue"): "say --resume DIR",
    ("launch", "--continue"): "say --resume DIR",
    ("sweep", "--resume"): "give the same command again: finished runs are skipped",
    ("sweep", "--clock"): "a sweep uses the virtual clock",
    ("sweep", "--seed"): "say --grid seed=1,2,3",
    ("sweep", "--seeds"): "say --grid seed=1,2,3",
    ("coordinator", "--virtual"): VIRTUAL,
    ("coordinator", "--clock"): VIRTUAL,
    ("edge", "--name"): "say --id NAME",
    ("edge", "--edge"): "say --id NAME",
    ("edge", "--host"): "say --connect tcp://HOST:PORT",
    ("edge", "--port"): "say --connect tcp://HOST:PORT",
    ("edge", "--address"): "say --connect tcp://HOST:PORT",
    ("edge", "--dir"): "say --data DIR",
}
CHOICE = re.compile(r"(?:Value error, )?'(.*)' is not one of (.*?)\.?")


def explained(error: Any, words: Sequence[str]) -> str:
    """Return the message for ``error`` of typer; ``words``: the command line."""
    message = " ".join(error.format_message().split())
    option = getattr(error, "option_name", None)
    if option is not None and getattr(error, "ctx", None) is not None:
        return _unknown_option(error, str(option), words, message)
    choice = CHOICE.fullmatch(getattr(error, "message", ""))
    if choice is not None:
        given, valid = choice[1], re.findall(r"'([^']*)'", choice[2])
        head = message.partition(": ")[0]
        return f"{head}: expected one of {', '.join(valid)}, found {given!r}{_near(given, valid)}"
    return message


def _unknown_option(error: Any, option: str, words: Sequence[str], message: str) -> str:
    command = error.ctx.info_name
    said = f"No such option: {option}"
    if (command, option) in INSTEAD:
        return f"{said} ({INSTEAD[command, option]})"
    options = [name for each in error.ctx.command.params for name in each.opts if name[:1] == "-"]
    close = get_close_matches(option, options, n=1, cutoff=0.8)
    if close:
        return f"{said}{nearest(close[0], close)}"
    takes_settings = any(each.name == "overrides" for each in error.ctx.command.params)
    key = meant(option) if takes_settings else None
    if key is not None:
        return f"{said} (say {key}={_value(option, words)}: settings are KEY=VALUE)"
    others = _commands_with(option, error.ctx)
    return f"{said} (an option of: {', '.join(others)})" if others else message


def _value(option: str, words: Sequence[str]) -> str:
    """Return the value after the option on the command line."""
    for word, following in zip(words, [*words[1:], ""]):
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
        if word == option and following and not following.startswith("-"):
            return following
    return "VALUE"


def _commands_with(option: str, context: Any) -> list[str]:
    """Return the other commands that have this option."""
    above = getattr(context.parent, "command", None)
    return [
        f"{context.parent.command_path} {name}"
        for name, command in sorted(getattr(above, "commands", {}).items())
        if any(option in each.opts for each in command.params)
    ]


def _near(given: str, valid: Sequence[str]) -> str:
    close = get_close_matches(given.lower(), valid, n=1)
    return nearest(close[0], close) if close else ""

"""How this copy of edgefl was installed, and where its two commands begin.

The distribution ``edgefl-testbed`` brings the packages ``edgefl`` and ``emulator``. PyPI has
projects with these two names that belong to others, and whose packages have the same names. If one
of them is installed, Python may import it in place of ours. So the commands begin in this module,
whose name no other project has, and first look whose packages they are going to import.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

NAME = "edgefl-testbed"
VERSION = "0.1.0"
WHEELS = "edgefl_testbed-*.whl"  # what their files are called
FOLDER = os.path.dirname(os.path.abspath(__file__))  # of a checkout, or of installed packages
MARKS = {"edgefl": "exit_status.py", "emulator": "entry_points.txt"}  # files that only ours has
BAD_INPUT = 2  # as in edgefl/errors.py, which may be a file of others


def edgefl() -> None:
    """Run the command ``edgefl`` in sys.argv."""
    refuse_strangers("edgefl")
    import_module("edgefl.cli").main()


def emulator() -> None:
    """Run the command ``emulator`` in sys.argv."""
    refuse_strangers("emulator")
    import_module("emulator.cli").main()


# ---------------------------------------------------------------------- packages of others
def refuse_strangers(command: str | None = None) -> None:
    """End ``command`` with one line if a package is of others; ImportError without a command."""
    reason = stranger()
    if reason is None:
        return
    if command is None and sys.argv[:1] != ["-m"]:  # which it is while `python -m edgefl` begins
        raise ImportError(reason)
    print(f"{command or 'edgefl'}: {reason}", file=sys.stderr)
    sys.exit(BAD_INPUT)


@cache
def stranger() -> str | None:
    """Return one line about a package of another project in place of ours; None if there is none.

    It imports neither package, and takes about 0.2 ms.
    """
    for name, mark in MARKS.items():
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            continue  # there is none: the message of Python's import is clear
        package = spec.submodule_search_locations is not None
        place = os.path.dirname(spec.origin) if package else spec.origin
        owner = _owner(name, os.path.dirname(place))
        if owner is not None:
            again = f", then install {NAME} again" if os.path.dirname(place) == FOLDER else ""
            return f"{place} is of {owner}, not of {NAME}: {_pip('uninstall')} {name}{again}"
        if os.path.exists(place) and not os.path.isfile(os.path.join(place, mark)):
            return (
                f"{place} has the name of a package of {NAME}, but is another one: rename it, or"
                " take its folder out of sys.path"
            )
    return None


def _owner(name: str, folder: str) -> str | None:
    """Return "NAME VERSION" of the distribution ``name`` with a package ``name`` in ``folder``."""
    try:
        entries = os.listdir(folder)
    except OSError:  # an archive
        return None
    for entry in entries:
        if entry.startswith(f"{name}-") and entry.endswith(".dist-info"):
            try:
                with open(os.path.join(folder, entry, "RECORD"), encoding="utf-8") as record:
                    # a checkout that was installed by the name "edgefl" has no such file there
                    has_package = any(line.startswith(f"{name}/") for line in record)
            except OSError:
                has_package = False
            if has_package:
                return entry.removesuffix(".dist-info").replace("-", " ")
    return None


# ---------------------------------------------------------------------- install commands
def install_command(extra: str) -> str:
    """Return the command that installs the packages of ``extra`` for this copy of edgefl.

    A copy from a checkout, a file or an address is installed from there again, with the extra.
    Otherwise the command names the extra's packages. No command names a project for an index to
    find: there, ``edgefl`` belongs to others, and ``edgefl-testbed`` could.
    """
    if os.path.isfile(os.path.join(FOLDER, "pyproject.toml")):
        here = "." if os.getcwd() == FOLDER else FOLDER
        return f"{_pip('install')} -e {_quoted(f'{here}[{extra}]')}"
    about = _distribution()
    if about is None:
        return f"install the extra {extra!r} from a wheel or a checkout of {NAME}"
    place = _origin(about, extra)
    if place is not None:
        return f"{_pip('install')} {_quoted(place)}"
    packages = [
        line.partition(";")[0].strip()
        for line in about.requires or ()
        if line.replace("'", '"').endswith(f'extra == "{extra}"')
    ]
    return f"{_pip('install')} {' '.join(map(_quoted, packages))}"


def _distribution() -> Any:
    """Return the installed distribution that this file is of; None if there is none."""
    from importlib.metadata import distributions  # as slow to import as typer

    return next(iter(distributions(name=NAME, path=[FOLDER])), None)


def _origin(about: Any, extra: str) -> str | None:
    """Return what pip installed this distribution from, with ``extra``; None: it is not known.

    PEP 610 describes the file that pip leaves.
    """
    import json
    from urllib.request import url2pathname

    text = about.read_text("direct_url.json")
    if text is None:
        return None  # from an index or a wheelhouse
    origin = json.loads(text)
    url = str(origin["url"])
    if "vcs_info" in origin:
        facts = origin["vcs_info"]
        return f"{NAME}[{extra}] @ {facts['vcs']}+{url}@{facts['commit_id']}"
    if not url.startswith("file://"):
        return f"{NAME}[{extra}] @ {url}"
    path = url2pathname(url.removeprefix("file://"))
    return f"{path}[{extra}]" if os.path.exists(path) else None


def _pip(action: str) -> str:
    """Return how a command for the packages of this Python begins, such as "pip install"."""
    import shutil

    if find_spec("pip") is None:
        return f"uv pip {action} --python {_quoted(sys.executable)}"
    found = shutil.which("pip")
    if found is not None and os.path.dirname(found) == os.path.dirname(sys.executable):
        return f"pip {action}"
    return f"{_quoted(sys.executable)} -m pip {action}"


def _quoted(text: str) -> str:
    import shlex

    return shlex.quote(text)

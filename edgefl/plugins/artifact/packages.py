"""The lock file of an artifact: the packages that its experiments use, with their versions here."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from email.parser import HeaderParser
from importlib.metadata import (
    Distribution,
    PackageNotFoundError,
    distribution,
    packages_distributions,
)
from pathlib import Path
from typing import Any

from edgefl.errors import UserError, needs

OWN = ("edgefl", "emulator", "edgefl_testbed")  # modules that are in the wheel
TEXT = ("bert_classifier", "causal_lm")  # models that need the extra "text"


@dataclass(frozen=True, slots=True)
class Lock:
    """``versions``: package -> version. ``build``: that of torch, "cpu", "cu128" or "".

    ``local``: packages that are installed from a folder here, and on no index.
    """

    versions: Mapping[str, str]
    build: str
    local: tuple[str, ...]

    def text(self) -> str:
        """Return the requirements file."""
        return "".join(f"{name}=={version}\n" for name, version in sorted(self.versions.items()))


def extras_of(config: Mapping[str, Any]) -> set[str]:
    """Return the extras that an experiment needs; the data, figures and tables need "lab"."""
    found = {"lab"}
    if str(config.get("task", "")).startswith("flower:"):
        found.add("flower")
    if config.get("model", {}).get("name") in TEXT:
        found.add("text")
    if config.get("data", {}).get("name") == "huggingface":
        found.add("datasets")
    return found


def locked(wheel: Path, extras: Collection[str], modules: Collection[str]) -> Lock:
    """Return what the wheel needs with these extras, and ``modules`` of the user's code.

    UserError if a package is not installed here.
    """
    with needs("launch", "a lock file"):
        from packaging.requirements import Requirement
        from packaging.utils import canonicalize_name

    with zipfile.ZipFile(wheel) as archive:
        about = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        head = HeaderParser().parsestr(archive.read(about).decode())
    own = canonicalize_name(head["Name"])
    left = [(line, frozenset(extras)) for line in head.get_all("Requires-Dist") or ()]
    left += [(name, frozenset()) for name in _distributions(modules)]
    found: dict[str, Distribution] = {}
    done: set[tuple[str, frozenset[str]]] = set()
    while left:
        line, of = left.pop()
        requirement = Requirement(line)
        marker = requirement.marker
        if marker and not any(marker.evaluate({"extra": extra}) for extra in (*of, "")):
            continue
        name = canonicalize_name(requirement.name)
        step = name, frozenset(requirement.extras)
        if name == own or step in done:
            continue
        done.add(step)
        try:
            found[name] = distribution(requirement.name)
        except PackageNotFoundError as error:
            raise UserError(
                f"{requirement.name}: is needed ({line}) and not installed here: expected an"
                " environment in which the runs can be made"
            ) from error
        left += [(each, step[1]) for each in found[name].requires or ()]
    versions = {name: each.version.partition("+")[0] for name, each in found.items()}
    torch = found.get("torch")
    build = "" if torch is None else torch.version.partition("+")[2]
    return Lock(versions, build, tuple(name for name, each in found.items() if _is_local(each)))


def _distributions(modules: Collection[str]) -> list[str]:
    """Return the packages that have these modules."""
    known = packages_distributions()
    names = [name for module in modules if module not in OWN for name in known.get(module, ())]
    return list(dict.fromkeys(names))


def _is_local(found: Distribution) -> bool:
    """Whether a package was installed from a folder."""
    origin = json.loads(found.read_text("direct_url.json") or "{}")
    return "dir_info" in origin

"""The lock file of an artifact: the packages that its experiments use, with their versions here."""

from __future__ import annotations

import re
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
TORCH_INDEX = "https://download.pytorch.org/whl/"
BUILDS = re.compile(r"cpu|xpu|cu\d+|rocm[\d.]+")  # of torch, which have an index each


@dataclass(frozen=True, slots=True)
class Lock:
    """``versions``: package -> version. ``build``: that of torch, "cpu", "cu128" or "".

    ``local``: packages that were installed from a folder, a file or an address.
    """

    versions: Mapping[str, str]
    build: str
    local: tuple[str, ...]

    @property
    def torch_index(self) -> str:
        """PyTorch's index of this build; "" if there is none, as for those of NVIDIA's containers.

        torch of PyPI has no build in its version.
        """
        return TORCH_INDEX + self.build if BUILDS.fullmatch(self.build) else ""

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
    local = [name for name, each in found.items() if each.read_text("direct_url.json")]
    return Lock(versions, build, tuple(local))


def _distributions(modules: Collection[str]) -> list[str]:
    """Return the packages that have these modules."""
    known = packages_distributions()
    names = [name for module in modules if module not in OWN for name in known.get(module, ())]
    return list(dict.fromkeys(names))

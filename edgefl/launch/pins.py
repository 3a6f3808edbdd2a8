"""The versions of packages that an edge gets: those of scripts/constraints.txt, by machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgefl.errors import needs

FILE = Path(__file__).parent / "constraints.txt"  # in a checkout, a link to the file of scripts/
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# Settings of pip with which it finds packages elsewhere than on PyPI. The rule for torch is that
# of scripts/setup_env.sh: with such a setting, pip's own settings say where torch comes from.
ELSEWHERE = ("index-url", "find-links", "no-index")


def pins(environment: Mapping[str, str]) -> dict[str, str]:
    """Return package name -> version for the values of markers on a machine."""
    with needs("launch", "reading constraints.txt"):
        from packaging.requirements import Requirement

    lines = FILE.read_text(encoding="utf-8").splitlines()
    found = [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]
    there = dict(environment)
    return {
        each.name: next(iter(each.specifier)).version
        for each in found
        if each.marker is None or each.marker.evaluate(there)
    }


def torch_index(machine: str, settings: str) -> str | None:
    """Return the index from which torch comes; None: the one that pip uses anyway.

    ``settings``: what ``pip config list`` prints. On x86 the torch of PyPI brings gigabytes of CUDA
    libraries; for other machines, ``pins`` has a version whose build on PyPI is for CPUs.
    """
    if machine != "x86_64" or any(word in settings for word in ELSEWHERE):
        return None
    return TORCH_CPU_INDEX

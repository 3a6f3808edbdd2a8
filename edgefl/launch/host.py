"""A host of an inventory, as all parts of a launch use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Via = Literal["ssh", "netns", "local"]
SSH_PORT = 22


@dataclass(frozen=True, slots=True)
class Host:
    """One machine, and the edges that run on it.

    ``identity`` and ``known_hosts`` are files of this machine; ``python``, ``venv``, ``data`` and
    ``folder`` are paths on the host, where "~/" at the start is the home folder. ``port`` is that
    of ssh; None: that of ``~/.ssh/config``, else 22. ``folder`` is different for each host that
    shares this machine's files.
    """

    name: str
    via: Via = "ssh"
    user: str | None = None
    port: int | None = None
    identity: Path | None = None
    known_hosts: Path | None = None
    python: str | None = None
    venv: str | None = None
    edges: tuple[str, ...] = ()
    links: str | None = None
    devices: str | None = None
    data: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    allow_code: bool = False
    folder: str = "~/.edgefl"

    @property
    def interpreter(self) -> str:
        """The Python that edges of this host use.

        Without ``python`` it is that of ``environment``. With it, ``edgefl hosts install`` may have
        made an environment on top of it: ``installer.interpreter`` asks the host.
        """
        return self.python or f"{self.environment}/bin/python"

    @property
    def environment(self) -> str:
        """The folder of the environment that ``edgefl hosts install`` makes."""
        return self.venv or f"{self.folder}/venv"

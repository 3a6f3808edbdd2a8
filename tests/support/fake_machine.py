"""Another machine for scripts: its ``uname``, and a Python whose pip only notes its arguments."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from paths import ROOT

# What the scripts ask the interpreter of an environment. Everything else goes to a real one
# without site-packages, so that no package is installed.
PYTHON = f"""#!/bin/bash
case "$*" in
    "-m pip --version") ;;
    "-m pip config list") printf '%s\\n' "$FAKE_PIP_SETTINGS" ;;
    "-m pip "*) echo "${{PIP_INDEX_URL:--}} $*" >>"$FAKE_PIP_LOG" ;;
    "-c import torch"*) [ -z "$FAKE_TORCH_FAILS" ] || {{ echo "libcublasLt.so" >&2; exit 1; }} ;;
    *) exec {sys.executable} -I -S "$@" ;;
esac
"""
UNAME = """#!/bin/bash
case "$1" in
    -m) echo "$FAKE_MACHINE" ;;
    -s) echo Linux ;;
    -sm) echo "Linux $FAKE_MACHINE" ;;
esac
"""


class FakeMachine:
    """A checkout's ``scripts`` folder in ``folder``, on a machine of the given kind."""

    def __init__(self, folder: Path, machine: str, **settings: str) -> None:
        self.root = folder / "checkout"
        self.pip_log = folder / "pip.log"
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        self.root.mkdir()
        shutil.copytree(ROOT / "scripts", self.root / "scripts")
        shutil.copy(ROOT / "pyproject.toml", self.root)
        self.program(self.bin / "uname", UNAME)
        self.env = {
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "FAKE_MACHINE": machine,
            "FAKE_PIP_LOG": str(self.pip_log),
            "FAKE_PIP_SETTINGS": "",
            "FAKE_TORCH_FAILS": "",
            **settings,
        }

    @staticmethod
    def program(path: Path, text: str) -> None:
        """Write an executable file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def python(self, path: Path) -> None:
        """Put the fake interpreter at ``path``."""
        self.program(path, PYTHON)

    def run(self, script: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a script of the checkout."""
        return subprocess.run(
            [str(self.root / "scripts" / script), *words],
            env=self.env,
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=120,
        )

    @property
    def pip_calls(self) -> list[str]:
        """Return a line per installing call of pip: its index (``-``: pip's own), its words."""
        return self.pip_log.read_text().splitlines() if self.pip_log.exists() else []

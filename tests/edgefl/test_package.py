"""What the packages bring in, what ruff's settings refuse, and the pinned versions."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

import pytest
from paths import ROOT

from edgefl import __version__


@pytest.mark.processes
@pytest.mark.parametrize(
    ("file", "text", "refused"),
    [
        ("edgefl/record/a.py", "import pickle\nprint(pickle)\n", "TID251"),
        ("edgefl/strategies/a.py", "import time\nprint(time)\n", "TID251"),
        ("edgefl/strategies/a.py", "import torch\nprint(torch)\n", "TID253"),
        ("edgefl/record/a.py", "import numpy as np\nprint(np.random.default_rng())\n", "TID251"),
        ("emulator/links/a.py", "import socket\nprint(socket)\n", "TID251"),
        ("edgefl/clocks/a.py", "import time\nprint(time)\n", ""),
    ],
)
def test_a_room_has_no_clock_socket_or_pickle_that_it_must_not_have(
    file: str, text: str, refused: str
) -> None:
    command = [sys.executable, "-m", "ruff", "check", "--quiet", "--select", "TID251,TID253"]
    done = subprocess.run(
        [*command, "--stdin-filename", file, "-"],
        cwd=ROOT,
        input=text,
        capture_output=True,
        text=True,
    )
    assert (refused in done.stdout) if refused else not done.stdout, done.stdout + done.stderr


PINNED = ("lab", "launch", "live", "discover", "dev", "docs")  # extras of constraints.txt


def test_the_tested_versions_of_all_direct_dependencies_are_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    named = [*project["dependencies"], *(entry for extra in PINNED for entry in extras[extra])]
    files = ("constraints.txt", "constraints-docs.txt")
    pinned = "".join((ROOT / "scripts" / file).read_text() for file in files)
    missing = [
        name for entry in named if f"\n{(name := re.split('[<>=]', entry)[0])}==" not in pinned
    ]
    assert not missing
    assert "://" not in pinned


def test_the_citation_names_this_version_and_its_day() -> None:
    text = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (.+)$", text, re.MULTILINE)[1] == __version__
    assert re.search(r"^date-released: \d{4}-\d\d-\d\d$", text, re.MULTILINE)

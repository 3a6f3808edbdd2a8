"""No page and no message installs a project of others, and one that is installed is refused."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import ROOT
from tiny_wheels import write_wheel

import edgefl_testbed
from edgefl import __version__
from edgefl_testbed import NAME, install_command

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
OURS_ONLY_BY_NAME = {"edgefl", "emulator", NAME}  # on PyPI of others, or of nobody yet

# ------------------------------------------------------------------ pages, scripts and messages
COMMAND = re.compile(
    r"\b(?:pip3?|uv|pipx)\"?(?: +(?:pip|tool|run))? +(?:install|add|download) +((?:(?!&&)[^`\n;])+)"
)
WITH_VALUE = re.compile(
    r"-[cirft]|--(constraint|requirement|index-url|extra-index-url|find-links|target|python|retries"
    r"|timeout|resolution|override|extra|prefix|root)"
)
MAY_INSTALL = re.compile(r"pip|uv|(?:edgefl|emulator)\[")
AT_A_PLACE = re.compile(r"/|\.whl| @ ")  # a path, a file, an address
TEXTS = {
    ".md",
    ".sh",
    ".toml",
    ".txt",
    ".py",
    ".js",
    ".html",
    ".yaml",
    ".json",
    ".ipynb",
    ".service",
}
FOLDERS = ("docs", "scripts", "configs", "edgefl", "emulator", "tests/examples", ".devcontainer")
NOT_OURS = ("mathjax", "vendor", "_build", "__pycache__")


def files() -> Iterator[Path]:
    yield from (path for path in ROOT.iterdir() if path.is_file() and path.name != "CHANGELOG.md")
    yield ROOT / ".ci" / "run"
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in TEXTS and not any(each in path.parts for each in NOT_OURS):
                yield path


def known() -> set[str]:
    """The packages that edgefl is tested with, and the tools that install them."""
    lines = [line for path in ROOT.glob("scripts/constraints*.txt") for line in path.open()]
    lines += [*PROJECT["dependencies"], *(each for extra in EXTRAS.values() for each in extra)]
    return {name(line) for line in lines if line[0].isalnum()} | {"uv", "pip"}


def name(requirement: str) -> str:
    found = re.search(r"[\w.-]+", requirement)
    return found[0].lower().replace("_", "-") if found else ""


def from_an_index(words: str) -> list[str]:
    """The projects that a command of pip with these words would take from an index."""
    known_later = re.sub(r"\{\{.*?\}\}|\$\([^)]*\)", "$", words)  # by a template, by the shell
    line = re.split(r"[|)]| # |  +#| </", known_later.replace('\\"', '"'))[0]
    quoted = re.sub(r"[()]", "", line)
    try:
        left = shlex.split(quoted)
    except ValueError:  # the end of a Python string
        left = shlex.split(quoted.replace('"', "").replace("'", ""))
    found = []
    while left:
        word = left.pop(0)
        if WITH_VALUE.fullmatch(word):
            del left[:1]
        elif not word.startswith(("-", ".", "$", "{", "~", "<")) and not AT_A_PLACE.search(word):
            found.append(word)
    return found


def test_no_page_and_no_script_installs_a_project_of_others() -> None:
    allowed, commands, wrong = known() - OURS_ONLY_BY_NAME, 0, []
    for path in files():
        text = path.read_text(encoding="utf-8").replace("\\\n", " ")
        if not MAY_INSTALL.search(text):
            continue
        if path.suffix == ".py":  # what a program prints: no docstrings
            text = "\n".join(strings(text))
        elif path.suffix == ".ipynb":
            text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
        for words in COMMAND.findall(text):
            commands += 1
            strangers = [each for each in from_an_index(words) if name(each) not in allowed]
            wrong += [f"{path.relative_to(ROOT)}: {each}" for each in strangers]
        wrong += [
            f"{path.relative_to(ROOT)}: {each}"
            for each in re.findall(r"(?<![\w./-])(?:edgefl|emulator)\[[a-z,]+\]", text)
        ]
    assert wrong == [] and commands > 10


def strings(code: str) -> Iterator[str]:
    """The texts of a program that are no docstrings."""
    tree = ast.parse(code)
    about = {ast.get_docstring(node, clean=False) for node in ast.walk(tree) if has_docstring(node)}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and text not in about:
            yield text


def has_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("'edgefl[live]'", ["edgefl[live]"]),
        ("--quiet edgefl", ["edgefl"]),
        ("-e '.[live]'", []),
        ("--constraint scripts/constraints.txt --editable '.[lab]'", []),
        ("'./edgefl_testbed-0.1.0-py3-none-any.whl[live]'   # a wheel", []),
        ("pytest numpy path/to/edgefl", ["pytest", "numpy"]),
        (f'"{NAME}[lab] @ git+{{REPOSITORY}}"', []),
        (NAME, [NAME]),
    ],
)
def test_what_a_command_takes_from_an_index(words: str, found: list[str]) -> None:
    assert from_an_index(words) == found


def test_no_package_of_the_examples_depends_on_a_project_of_others() -> None:
    for path in ROOT.rglob("tests/examples/**/pyproject.toml"):
        needed = tomllib.loads(path.read_text())["project"].get("dependencies", [])
        assert not {name(each) for each in needed} & {"edgefl", "emulator"}, path


def test_every_extra_that_is_named_exists() -> None:
    for path in (ROOT / "edgefl").rglob("*.py"):
        for extra in re.findall(r"(?:install_command|needs)\(['\"](\w+)['\"]", path.read_text()):
            assert extra in EXTRAS, path


# ------------------------------------------------------------------ how this copy was installed
@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an installed copy; its description in the way that pip leaves it."""
    about = tmp_path / "site" / f"edgefl_testbed-{__version__}.dist-info"
    about.mkdir(parents=True)
    needs = [f'Requires-Dist: {each}; extra == "live"' for each in EXTRAS["live"]]
    lines = ["Metadata-Version: 2.1", f"Name: {NAME}", f"Version: {__version__}", *needs]
    (about / "METADATA").write_text("\n".join([*lines, "Requires-Dist: torch>=2.9", ""]))
    monkeypatch.setattr(edgefl_testbed, "FOLDER", str(tmp_path / "site"))
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    monkeypatch.chdir(tmp_path)
    return about


def test_a_checkout_names_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    assert install_command("live").endswith(" install -e '.[live]'")
    monkeypatch.chdir(tmp_path)
    assert install_command("live").endswith(f" install -e '{ROOT}[live]'")


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ({"url": "file://WHEEL", "archive_info": {}}, "'WHEEL[live]'"),
        ({"url": "file:///gone/a.whl", "archive_info": {}}, None),
        ({"url": "https://example.org/a.whl"}, f"'{NAME}[live] @ https://example.org/a.whl'"),
        (
            {
                "url": "https://example.org/fl.git",
                "vcs_info": {"vcs": "git", "commit_id": "0123abc"},
            },
            f"'{NAME}[live] @ git+https://example.org/fl.git@0123abc'",
        ),
        (None, None),  # from an index or a wheelhouse
    ],
)
def test_an_installed_copy_names_where_it_came_from_else_the_packages_of_the_extra(
    origin: dict[str, object] | None, command: str | None, installed: Path, tmp_path: Path
) -> None:
    wheel = tmp_path / f"edgefl_testbed-{__version__}-py3-none-any.whl"
    wheel.touch()
    if origin is not None:
        text = json.dumps(origin).replace("WHEEL", str(wheel))
        (installed / "direct_url.json").write_text(text)
    packages = " ".join(shlex.quote(each) for each in EXTRAS["live"])
    expected = packages if command is None else command.replace("WHEEL", str(wheel))
    assert install_command("live") == f"pip install {expected}"


def test_a_python_that_is_not_the_one_of_pip_is_named(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert install_command("live").startswith(f"{sys.executable} -m pip install ")
    monkeypatch.setattr(edgefl_testbed, "find_spec", lambda name: None)  # as uv makes environments
    assert install_command("live").startswith(f"uv pip install --python {sys.executable} ")


def test_a_copy_that_was_not_installed_says_so(installed: Path) -> None:
    (installed / "METADATA").unlink()
    installed.rmdir()
    assert (
        install_command("live") == f"install the extra 'live' from a wheel or a checkout of {NAME}"
    )


# ------------------------------------------------------------------ projects of others
COMMAND_OF = "import edgefl_testbed; edgefl_testbed.{}()"


def began(place: Path, code: str, cwd: Path) -> tuple[int, str]:
    """The status and stderr of Python with ``place`` in front of what is installed."""
    done = subprocess.run(
        [sys.executable, *(["-m", "edgefl"] if code == "-m" else ["-c", code])],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": f"{place}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stderr


def unpacked(site: Path, package: str) -> None:
    """Install a project of others with this name into ``site``."""
    files = {f"{package}/__init__.py": "import flask"}
    wheel = write_wheel(site.parent, package, "1.8.7", files=files)
    words = ["install", "--quiet", "--no-deps", "--no-index", "--target", str(site), str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)


@pytest.mark.processes
@pytest.mark.parametrize("package", ["edgefl", "emulator"])
@pytest.mark.parametrize("command", ["edgefl", "emulator"])
def test_a_project_of_others_is_named_and_refused(
    package: str, command: str, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    unpacked(site, package)
    status, err = began(site, COMMAND_OF.format(command), tmp_path)
    assert status == 2 and err.count("\n") == 1
    assert err.startswith(f"{command}: {site}/{package} is of {package} 1.8.7, not of {NAME}: "), (
        err
    )
    assert err.endswith(f" uninstall {package}\n")


@pytest.mark.processes
def test_a_file_of_the_users_that_hides_a_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "emulator.py").touch()
    status, err = began(tmp_path, "-m", tmp_path)
    assert (status, err.count("\n")) == (2, 1)
    assert err.startswith(f"edgefl: {tmp_path}/emulator.py has the name of a package of {NAME}")


@pytest.mark.processes
def test_a_checkout_that_was_installed_as_edgefl_is_no_project_of_others(tmp_path: Path) -> None:
    about = tmp_path / "site" / "edgefl-0.1.0.dist-info"
    about.mkdir(parents=True)
    (about / "RECORD").write_text("__editable__.edgefl-0.1.0.pth,,\n../../../bin/edgefl,,\n")
    for path in ("edgefl", "emulator", "edgefl_testbed.py"):
        (tmp_path / "site" / path).symlink_to(ROOT / path)
    code = "import edgefl_testbed; print(edgefl_testbed.stranger())"
    assert began(tmp_path / "site", code, tmp_path) == (0, "")

"""Which files of the user an experiment needs, and where they are in an artifact.

A config names code (``my_algo.py:MyAlgo``), traces, tables and other files, relative to its own
folder or elsewhere. Code imports files that lie beside it, and opens files whose names are written
in it. All of these are found here; the config then names them below the experiment's folder of the
artifact. Other files that code opens are named by ``--include``.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgefl import catalog
from edgefl.clocks.setup.resumption import file_digest
from edgefl.config.file import kind_of
from edgefl.errors import UserError

MOST_BYTES = 200_000_000  # of a file or folder that goes in
ELSEWHERE = "files"  # the folder for what is not below that of the config
CODE = re.compile(r"(.+\.py):\w[\w.]*")
NOT_FILES = ("name", "label", "network", "dir")  # keys whose texts are no files
SKIPPED = ("__pycache__", ".git", ".venv")


@dataclass(slots=True)
class UsersFiles:
    """``config``: with the paths inside the artifact. ``files``: path in the experiment's folder ->
    file here. ``left_out``: what a config names and is too large: its name -> why, and its digest.
    ``packages``: names of installed modules that the code imports.
    """

    config: dict[str, Any]
    files: dict[Path, Path] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    packages: set[str] = field(default_factory=set)


def collect(
    config: Mapping[str, Any],
    roots: Mapping[Path, Path],
    digests: Mapping[str, str],
    include: Sequence[Path] = (),
) -> UsersFiles:
    """Find all files that a config needs.

    ``roots``: folders in which a path of the config is sought, each with its place in the folder of
    the experiment; what is below one keeps its place. ``digests``: of the user's files when the
    runs began, by their names in the config. ``include``: more files and folders. UserError for one
    that is missing, or has changed since.
    """
    found = UsersFiles({})
    finder = _Finder(found, {root.resolve(): place for root, place in roots.items()}, digests)
    found.config = finder.walked(config, ())
    for path in include:
        if not path.exists():
            raise UserError(f"--include {path}: no such file or folder")
        finder.add(path.resolve())
    return found


class _Finder:
    def __init__(
        self, found: UsersFiles, roots: Mapping[Path, Path], digests: Mapping[str, str]
    ) -> None:
        self.found, self.roots, self.digests = found, roots, digests

    # ------------------------------------------------------------------ the config
    def walked(self, value: Any, keys: tuple[str, ...]) -> Any:
        """Return a value of the config with the new paths, and add the files to ``found``."""
        if isinstance(value, Mapping):
            return {
                key: inner
                if key in NOT_FILES and not _is_code(inner)
                else self.walked(inner, (*keys, key))
                for key, inner in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.walked(inner, keys) for inner in value]
        return self._text(value, ".".join(keys)) if isinstance(value, str) else value

    def _text(self, text: str, key: str) -> str:
        code = CODE.fullmatch(text)
        kind = kind_of(text)
        if kind is not None:
            word, _, place = text.partition(":")
            self._refuse_changed(text, kind.digest(text, [*self.roots]))
            return f"{word}:{self._placed(place, key)}"
        if code is not None:
            path = self._path(code[1], key)
            self._refuse_changed(code[1], file_digest(path))
            return f"{self.add(path).as_posix()}{text[len(code[1]) :]}"
        if ":" in text and catalog.is_own(text) and re.fullmatch(r"[\w.]+:[\w.]+", text):
            self._module(text)
            return text
        named = self._existing(text)
        if named is None or not ("/" in text or Path(text).suffix):
            if text in self.digests:
                raise UserError(f"{key}: {text}: no such file now: expected that of the runs")
            return text
        if named.is_file():
            self._refuse_changed(text, file_digest(named))
        return self._placed(text, key)

    def _placed(self, text: str, key: str) -> str:
        """Add the file or folder ``text``; return its name in the artifact."""
        path = self._path(text, key)
        bytes_of = size_bytes(path)
        if bytes_of > MOST_BYTES:
            self.found.left_out[text] = f"{key}, {bytes_of / 1e6:.0f} MB, {digest_of(path)}"
            return text
        return self.add(path).as_posix()

    def _path(self, text: str, key: str) -> Path:
        path = self._existing(text)
        if path is None:
            tried = " or ".join(dict.fromkeys(str(folder / text) for folder in self.roots))
            raise UserError(f"{key}: no file {tried}: expected that of the runs")
        return path

    def _existing(self, text: str) -> Path | None:
        if len(text) > 1000 or "\0" in text or "\n" in text:
            return None
        paths = ((folder / Path(text).expanduser()) for folder in self.roots)
        return next((path.resolve() for path in paths if path.exists()), None)

    def _refuse_changed(self, name: str, now: str) -> None:
        then = self.digests.get(name, "")
        if then and then != now:
            raise UserError(
                f"{name}: has changed since the runs (digest {then} then, {now} now): expected the"
                " file that they used; restore it, or run them again"
            )

    # ------------------------------------------------------------------ files
    def add(self, path: Path) -> Path:
        """Add a file with what it needs, or a folder; return its path in the artifact."""
        root = next((root for root in self.roots if root in path.parents), path.parent)
        inside = self.roots.get(root, Path(ELSEWHERE)) / path.relative_to(root)
        if self.found.files.get(inside, path) != path:
            inside = Path(ELSEWHERE) / f"{digest_of(path)[:8]}-{path.name}"
        for source in [path] if path.is_file() else tree(path):
            self._add_file(source, inside / source.relative_to(path))
        return inside

    def _add_file(self, source: Path, at: Path) -> None:
        """Add a file; of code, also the files that it imports and names."""
        if at in self.found.files:
            return
        self.found.files[at] = source
        if source.suffix != ".py":
            return
        modules, texts = needed_by(source)
        for name in modules:
            beside = [source.parent / f"{name}.py", source.parent / name]
            own = next((each for each in beside if each.is_file() or _has_code(each)), None)
            if own is None and name not in sys.stdlib_module_names:
                self.found.packages.add(name)
            for file in () if own is None else [own] if own.is_file() else tree(own):
                self._add_file(file, at.parent / file.relative_to(source.parent))
        for text in texts:
            opened = self._existing(text) if _is_inside(text) else None
            if opened is not None and opened.is_file() and size_bytes(opened) <= MOST_BYTES:
                self.add(opened)

    def _module(self, name: str) -> None:
        """Add the package or module of "package.module:attribute", unless it is installed."""
        top = name.partition(":")[0].partition(".")[0]
        for folder in self.roots:
            for own in (folder / f"{top}.py", folder / top):
                if own.is_file() or _has_code(own):
                    self.add(own.resolve())
                    return
        self.found.packages.add(top)


def _is_code(value: Any) -> bool:
    """Whether a value of the key "name" is code: a model or partition of one's own."""
    return isinstance(value, str) and ":" in value


def _is_inside(text: str) -> bool:
    """Whether a text in code may be the name of a file below a folder: "tables/prices.csv"."""
    path = Path(text)
    return bool(path.suffix) and not path.is_absolute() and ".." not in path.parts


def _has_code(folder: Path) -> bool:
    return folder.is_dir() and any(folder.glob("*.py"))


def needed_by(source: Path) -> tuple[list[str], list[str]]:
    """Return the first parts of the names of imported modules, and all texts in a file of code."""
    try:
        nodes = list(ast.walk(ast.parse(source.read_bytes())))
    except SyntaxError as error:
        raise UserError(f"{source}: cannot be read as Python ({error.msg})") from error
    names: list[str] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            names += [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [node.module] if node.module else [each.name for each in node.names]
    texts = [node.value for node in nodes if isinstance(node, ast.Constant)]
    modules = dict.fromkeys(name.partition(".")[0] for name in names)
    return [*modules], [*dict.fromkeys(text for text in texts if isinstance(text, str))]


def tree(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder, sorted, without those that no reader needs."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not any(part in SKIPPED for part in path.relative_to(folder).parts):
            yield path


def size_bytes(path: Path) -> int:
    """Return the bytes of a file, or of all files of a folder."""
    return sum(each.stat().st_size for each in ([path] if path.is_file() else tree(path)))


def digest_of(path: Path) -> str:
    """Return the SHA-256 (hex) of a file, or of the names and contents of a folder's files."""
    if path.is_file():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    state = hashlib.sha256()
    for each in tree(path):
        state.update(f"{digest_of(each)}  {each.relative_to(path)}\n".encode())
    return state.hexdigest()


# ---------------------------------------------------------------------- data
def own_data(section: Mapping[str, Any], directory: Path) -> list[Path] | None:
    """Return the user's files and folders that a data set reads in ``directory``.

    ``section``: [data] of a config. None for a published data set; [] for one of the user's code,
    which opens its files by itself.
    """
    name = str(section.get("name", ""))
    if ":" in name:
        return []
    options = catalog.options_of(catalog.find("edgefl.data", name, "load", None, "data set"))
    if options is None or "train" not in options.model_fields:
        return None
    given = {key: value for key, value in section.items() if key in options.model_fields}
    values = options.model_validate(given).model_dump()
    names = [values["path"]] if "path" in values else [values["train"], values.get("test")]
    # a table may be packed: "train.csv" is "train.csv.gz"
    return [path for each in names if each for path in sorted(directory.glob(f"{each}*"))]

"""The folder is the registry: the name of a plug-in is that of a file in a package's folder.

``package.module:attribute`` and ``file.py:attribute`` are also names. A package's folder also
contains other files, such as base classes. So a plug-in is a file that binds the wanted attribute
at its top level. Names and one-liners are read from the source text, so listing the models does not
import torch.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from edgefl.entry_points import entries
from edgefl.errors import UserError, near_file, nearest, own_place, told, users_place

if TYPE_CHECKING:
    from pydantic import BaseModel

ENDED = "_edgefl_import_ended"  # in a module: where RunInImport has ended its import
OWN_FILE = "edgefl_own_"  # how the name of a module begins that is a user's file
# entry points for code of others in the terms of this package: "flwr:DirichletPartitioner"
ALIASES = "edgefl.aliases"
# package -> group of entry points, if named otherwise
GROUPS = {"edgefl.data": "edgefl.datasets", "edgefl.strategies.selection": "edgefl.selections"}
PARTS = {  # table of a config -> package of its plug-ins, attribute that one binds, word for one
    "data": ("edgefl.data", "load", "data set"),
    "model": ("edgefl.models", "build", "model"),
    "partition": ("edgefl.data.partition", "split", "partition"),
    "compression": ("edgefl.compression", "build", "compression"),
    "strategies": ("edgefl.strategies.selection", "build", "selection"),
}
FORMS = "'package.module:attribute' or 'path/to/file.py:attribute'"
PACKAGES = ("edgefl", "emulator")  # of the project: they are loaded once
MAIN = "__main__"  # the module of a script, a notebook or an interactive session
STRATEGIES = "edgefl.strategies"
# strategies that stand in the file of the one that they vary -> its name; the class has their name
VARIANTS = {
    **dict.fromkeys(("fedasmu-0", "fedasmu-da", "fedasmu-fa"), "fedasmu"),
    **dict.fromkeys(("wkafl-no-noniid", "wkafl-no-selection", "wkafl-no-staleness"), "wkafl"),
    "sync-tdma-fl": "tdma-fl",
}
# modules of the user that were loaded here -> digests of their files then: own files, and modules
# in the folder of an own file or of the config
_digests: dict[str, str] = {}


class RunInImport(BaseException):
    """A user's file runs experiments: its import ends here, with what it has defined so far.

    A script without ``if __name__ == "__main__"`` may so be imported by the processes of its runs.
    """


def names(package: str, attribute: str) -> list[str]:
    """Return the names of all plug-ins of ``package``, sorted: its modules with ``attribute``."""
    return [
        path.stem for path in sorted(_folder(package).glob("*.py")) if attribute in _bound(path)
    ]


def one_line(package: str, name: str) -> str:
    """Return the first line of the plug-in's docstring, without importing it."""
    stem = VARIANTS.get(name, name) if package == STRATEGIES else name
    tree = _parsed(_folder(package) / f"{stem.replace('-', '_')}.py")
    classes = [each for each in tree.body if isinstance(each, ast.ClassDef) and stem != name]
    own = next((each for each in classes if each.name.lower() == name.replace("-", "")), tree)
    return (ast.get_docstring(own) or "").partition("\n")[0]


def find(
    package: str, name: str, attribute: str, base: Path | None = None, what: str = "name"
) -> Any:
    """Return ``attribute`` of the plug-in ``name``, or the object with a dotted name or path.

    UserError if there is none; ``what`` is its word for a plug-in.
    """
    if ":" in name:
        return load_dotted(name, base)
    path = _folder(package) / f"{name}.py"
    # os.path: a name that is too long for a file is no error
    if not (name.isidentifier() and os.path.isfile(path) and attribute in _bound(path)):
        valid = [*names(package, attribute), *entries(GROUPS.get(package, package))]
        near = nearest(name, valid)
        raise UserError(f"unknown {what} {name!r}{near}; one of your own: {FORMS}")
    return getattr(importlib.import_module(f"{package}.{name}"), attribute)


def place(package: str, name: str) -> str:
    """Return "package.module:attribute" for the name of another package's plug-in, else ``name``.

    So it is code of the user wherever a config goes: an edge elsewhere must allow it.
    """
    if ":" in name or os.path.isfile(_folder(package) / f"{name.replace('-', '_')}.py"):
        return name
    added = entries(GROUPS.get(package, package)).get(name)
    return name if added is None else added.value


def name_of(found: Any) -> str:
    """Return the name by which ``find`` finds a class or function: the inverse of ``load_dotted``.

    Of a script it is the path of its file, relative to the working directory if it is below that.
    UserError for what is not defined at the top level of a module.
    """
    module, name = getattr(found, "__module__", None), getattr(found, "__qualname__", None)
    if not (isinstance(module, str) and isinstance(name, str)):
        raise UserError(f"expected a class, a function or a name, found {type(found).__name__}")
    package, _, stem = module.rpartition(".")
    if package == STRATEGIES:
        for known in (stem.replace("_", "-"), *VARIANTS):
            if name.lower() == known.replace("-", ""):
                return known
    binds = next((attribute for of, attribute, _ in PARTS.values() if of == package), "")
    if getattr(sys.modules.get(module), binds, None) is found:
        return stem
    place = main_file() if module == MAIN else None
    if "." in name or "<" in name:
        raise UserError(
            f"{name}: cannot be sent to the processes of a run, because a function or a class"
            " defines it: expected it at the top level of a file or a notebook"
        )
    if getattr(sys.modules.get(module), name, None) is not found:
        raise UserError(
            f"{name}: cannot be sent to the processes of a run, because {module} has something"
            " else, or nothing, under this name now"
        )
    if place is None:
        return f"{module}:{name}"
    here = Path.cwd()
    return f"{place.relative_to(here) if place.is_relative_to(here) else place}:{name}"


def not_in_a_file(name: str) -> UserError:
    """Return the error about code that another process cannot import."""
    what = name.rpartition(":")[2]
    return UserError(
        f"{what}: cannot be sent to other processes, because a notebook or an interactive session"
        " defines it: expected a file with it (in a notebook, %%writefile my_algo.py writes a cell)"
        f' and the name "my_algo.py:{what}", or the virtual clock there'
    )


def main_file() -> Path | None:
    """Return the file of the script that runs; None in a notebook or an interactive session."""
    file = getattr(sys.modules[MAIN], "__file__", None)
    path = None if file is None else Path(file).resolve()
    return path if path is not None and path.suffix == ".py" and path.is_file() else None


def refuse_in_import() -> None:
    """Raise RunInImport if a file is being imported here: it must run no experiments then."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _executed.__code__:
            raise RunInImport
        frame = frame.f_back


def options_of(found: Any) -> type[BaseModel] | None:
    """Return the ``Options`` class of a found object: its own attribute, else its module's.

    None if it takes no options.
    """
    of_module = getattr(sys.modules.get(getattr(found, "__module__", "")), "Options", None)
    return getattr(found, "Options", of_module)


def check_options(taken: type | None, what: str) -> None:
    """UserError unless the ``Options`` of a plug-in can be validated; None are none."""
    if taken is not None and not hasattr(taken, "model_validate"):
        raise UserError(
            f"{what}: its Options are no subclass of pydantic.BaseModel, as edgefl.api.Section is"
        )


def made(
    package: str,
    name: str,
    attribute: str,
    options: Mapping[str, Any],
    base: Path | None,
    what: str,
) -> Any:
    """Return what the plug-in ``name`` makes with these options, or without any if it takes none.

    UserError if there is no such plug-in, or for options that it does not take.
    """
    from pydantic import ValidationError  # a listing needs no pydantic

    build = find(package, name, attribute, base, what)
    taken = options_of(build)
    if taken is None and options:
        raise UserError(f"{what} {name!r} takes no options, found {', '.join(options)}")
    check_options(taken, f"{what} {name!r}")
    with own_code(name, build):
        if taken is None:
            return called(build)
        try:
            values = taken.model_validate(options)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key, problem = ".".join(map(str, first["loc"])), first["msg"]
            if first["type"] == "extra_forbidden":
                problem = f"unknown key{nearest(key, taken.model_fields)}"
            # a check of several keys has no key
            said = filter(None, (f"{what} {name!r}", key, problem))
            raise UserError(": ".join(said)) from error
        return build(values)


def called(build: Any, *arguments: Any) -> Any:
    """Return what ``build`` makes of the arguments; of none if it requires none.

    So a subclass of torch.nn.Module without parameters is a model, and a function without any may
    return a data set.
    """
    from inspect import Parameter, signature  # a listing needs none of it

    needed = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    takes = signature(build).parameters.values()
    wants = sum(each.kind in needed and each.default is Parameter.empty for each in takes)
    if wants == len(arguments) + 1 < 3:  # the build of a model always gets options
        raise TypeError(f"{build.__name__} takes options, but the file has no class Options")
    several = any(each.kind is Parameter.VAR_POSITIONAL for each in takes)
    return build(*arguments) if wants or several else build()


def load_dotted(name: str, base: Path | None = None) -> Any:
    """Return the object that ``name`` refers to; UserError if it cannot be imported.

    A path is relative to ``base`` (the config's folder), then to the working directory.
    """
    place, colon, attribute = name.rpartition(":")
    if not (colon and place and attribute):
        raise UserError(f"{name!r}: expected {FORMS}")
    folders = [folder.resolve() for folder in (base, Path.cwd()) if folder is not None]
    alias = entries(ALIASES).get(place)
    place = place if alias is None else alias.value
    module = (
        _from_file(name, place, folders)
        if place.endswith(".py")
        else _from_package(name, place, folders)
    )
    if not hasattr(module, attribute):
        if module.__name__ == MAIN or place == MAIN:
            raise not_in_a_file(name)
        if ended := getattr(module, ENDED, None):
            raise UserError(
                f"{name!r}: {attribute} is below the first run of {place} ({ended}), where its"
                " import ends: expected it above, or in a file of its own"
            )
        public = [key for key in vars(module) if not key.startswith("_")]
        raise UserError(f"{name!r}: {place} has no {attribute!r}{nearest(attribute, public)}")
    return getattr(module, attribute)


def source_of(name: str, base: Path | None = None) -> Path | None:
    """Return the file of code that ``name`` leads to, without executing it; None if not found.

    The packages that a module is in are imported.
    """
    place = name.rpartition(":")[0]
    folders = [folder.resolve() for folder in (base, Path.cwd()) if folder is not None]
    if place.endswith(".py"):
        paths = [(folder / Path(place).expanduser()).resolve() for folder in folders]
        return next((path for path in paths if path.is_file()), None)
    with _importable(folders):
        try:
            spec = importlib.util.find_spec(place)
        except KeyboardInterrupt:
            raise
        except BaseException:  # the packages are the user's code
            return None
    origin = None if spec is None else spec.origin
    return None if origin is None or not Path(origin).is_file() else Path(origin)


def _from_package(name: str, dotted: str, folders: list[Path]) -> ModuleType:
    with _importable(folders):
        try:
            return importlib.import_module(dotted)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{dotted}.".startswith(f"{error.name}."):
                raise _broken(name, error) from error
            where = " or ".join(str(folder) for folder in dict.fromkeys(folders))
            raise UserError(
                f"{name!r}: no module {error.name!r}, neither installed nor in {where}; expected"
                f" {FORMS}"
            ) from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also SystemExit
            raise _broken(name, error) from error


def forget_changed() -> None:
    """Have the user's modules loaded anew if the file of one of them has changed.

    All of them, because one may use another: own files, and what their imports have loaded from
    their folder. What Python had loaded before stays. Objects of the former classes stay usable.
    """
    if all(_digest_now(name) == digest for name, digest in _digests.items()):
        return
    for name in _digests:
        if not name.startswith(OWN_FILE):  # those stay until they are replaced
            cached = getattr(sys.modules.pop(name, None), "__cached__", None) or ""
            with suppress(OSError):  # of the same second and size, Python would take it again
                os.remove(cached)
    _digests.clear()


def _digest_now(module: str) -> str:
    """Return the digest of a module's file; "" if it has none now."""
    file = getattr(sys.modules.get(module), "__file__", None)
    with suppress(OSError):
        return "" if file is None else _digest(Path(file).read_bytes())
    return ""


def _digest(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()


def _from_file(name: str, place: str, folders: list[Path]) -> ModuleType:
    """Import the module in a file, under a name derived from its path.

    The name is stable, so that pickles and repeated imports agree. The module is that of the first
    import until ``forget_changed``: a file that changes during a run does not change the run.
    """
    candidates = list(
        dict.fromkeys((folder / Path(place).expanduser()).resolve() for folder in folders)
    )
    path = next((candidate for candidate in candidates if candidate.is_file()), None)
    if path is None:
        tried = " or ".join(str(candidate) for candidate in candidates)
        raise UserError(f"{name!r}: no file {tried}{near_file(candidates[0], '*.py')}")
    if path == main_file():
        return sys.modules[MAIN]  # the script that runs this
    unique = f"{OWN_FILE}{hashlib.sha256(str(path).encode()).hexdigest()[:12]}_{path.stem}"
    module = sys.modules.get(unique) if unique in _digests else None
    return module or _executed(name, unique, path)


def _executed(name: str, unique: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(unique, path)
    assert spec is not None  # since ``path`` is a .py file
    module, former = importlib.util.module_from_spec(spec), sys.modules.get(unique)
    sys.modules[unique] = module  # before execution: dataclasses and pickles look it up
    try:
        source = path.read_bytes()
        _digests[unique] = _digest(source)
        with _importable([path.parent]):
            # not by its loader, which may take bytecode of a former state of the file
            exec(compile(source, path, "exec", dont_inherit=True), vars(module))
    except RunInImport as ended:
        lines = [
            line
            for frame, line in traceback.walk_tb(ended.__traceback__)
            if frame.f_code.co_filename == str(path)
        ]
        setattr(module, ENDED, f"line {lines[0]}" if lines else "by another file")
    except BaseException as error:  # also SystemExit
        _digests.pop(unique, None)
        del sys.modules[unique]
        if former is not None:
            sys.modules[unique] = former
        if isinstance(error, KeyboardInterrupt):
            raise
        raise _broken(name, error) from error
    return module


def _broken(name: str, error: BaseException) -> UserError:
    """The error for user code that raises during its import.

    It names the exception and its line, since the traceback is not shown.
    """
    line, file, trace = (
        getattr(error, "lineno", None),
        getattr(error, "filename", None),
        error.__traceback__,
    )
    while line is None and trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if line is None and trace is not None:
        line, file = trace.tb_lineno, trace.tb_frame.f_code.co_filename
    return UserError(
        f"{name!r} cannot be imported: {type(error).__name__}: {error} ({file}, line {line})"
    )


def is_own(name: str) -> bool:
    """Whether ``name`` leads to code of the user, not to a plug-in or to an alias."""
    return ":" in name and name.partition(":")[0] not in entries(ALIASES)


@contextmanager
def own_code(name: str, found: Any) -> Iterator[None]:
    """Around a call of ``found``, which ``name`` leads to. If it is the user's own code, an
    exception becomes a UserError with the line that raised it.
    """
    try:
        yield
    except (UserError, KeyboardInterrupt):
        raise
    except BaseException as error:  # also SystemExit
        if ":" not in name:
            raise
        module = getattr(found, "__module__", None) or ""
        place = own_place(error, module) or users_place(error)
        raise UserError(f"{name!r} failed: {told(error, module)}{place}") from error


@contextmanager
def _importable(folders: list[Path]) -> Iterator[None]:
    """Put ``folders`` first in sys.path while a file is imported, so that it finds its siblings.

    It notes the digests of these for ``forget_changed``.
    """
    added, before = [str(folder) for folder in folders], set(sys.modules)
    sys.path[:0] = added
    importlib.invalidate_caches()
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            if name.partition(".")[0] not in PACKAGES and _is_in(folders, name):
                _digests[name] = _digest_now(name)
        for folder in added:
            if folder in sys.path:  # the imported code may have changed the path too
                sys.path.remove(folder)


def _is_in(folders: list[Path], module: str) -> bool:
    """Whether the file of a module is where one of these folders in sys.path has it."""
    file = getattr(sys.modules.get(module), "__file__", None)
    places = [folder.joinpath(*module.split(".")) for folder in folders]
    return any(file in (f"{place}.py", str(place / "__init__.py")) for place in places)


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"{package} is not a package")
    return Path(next(iter(spec.submodule_search_locations)))


def _parsed(path: Path) -> ast.Module:
    # bytes: the parser knows the byte order mark and the line that names another encoding
    source = path.read_bytes()
    try:
        return ast.parse(source, filename=str(path))
    except SystemError:
        # CPython 3.11 miscounts the depth of the tree if a finalizer runs meanwhile; once more
        return ast.parse(source, filename=str(path))


def _bound(path: Path) -> set[str]:
    """Return the names that a file binds at its top level by def, class or assignment."""
    bound: set[str] = set()
    for node in _parsed(path).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            bound.update(target.id for target in targets if isinstance(target, ast.Name))
    return bound

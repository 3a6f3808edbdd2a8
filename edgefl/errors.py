"""Errors by the user's input or a bug, and their one-line messages."""

from __future__ import annotations

import errno
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from types import FrameType

from edgefl.exit_status import BAD_INPUT
from edgefl_testbed import install_command
from emulator.errors import BadValue

MOST_SHOWN = 4000  # characters of one line on a terminal


def printable(text: str, most: int = MOST_SHOWN) -> str:
    """Return ``text`` as one line that is safe to print, even if it comes from elsewhere.

    Control characters and others that a terminal obeys or does not show are escaped. A long line is
    cut.
    """
    line = " ".join(text[: most + 1].splitlines())
    shown = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in line
    )
    return shown if len(shown) <= most else shown[: most - 3] + "..."


def listed(names: Sequence[str], most: int = 3) -> str:
    """Return "a, b and 3 more": the first ``most`` names, and how many others there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


class UserError(Exception):
    """Bad input from the user: one line with its place, what was expected, and what is near.

    The command line ends with ``status``. The message may quote text from elsewhere, so it is made
    ``printable``.
    """

    def __init__(self, message: str, status: int = BAD_INPUT) -> None:
        super().__init__(printable(message))
        self.status = status


def nearest(name: str, valid: Iterable[str], most: int = 1) -> str:
    """Return the end of an error line about an unknown ``name``.

    " (nearest: 'x')" for a likely typo, with up to ``most`` names; else " (valid: a, b)"; else ""
    if nothing is valid.
    """
    names = sorted(valid)
    folded = {candidate.lower(): candidate for candidate in names}
    close = get_close_matches(name.lower(), folded, n=most)
    if close:
        return f" (nearest: {', '.join(repr(folded[each]) for each in close)})"
    return f" (valid: {', '.join(names)})" if names else ""


def near_file(path: Path, pattern: str) -> str:
    """Return the end of an error line about a missing file: " (nearest: 'x.toml')", or "".

    Only a file of the same folder that matches ``pattern`` and has nearly that name is named. The
    suffix does not count, because all candidates may share it.
    """
    stems = {
        file.stem: file.name for file in path.parent.glob(pattern) if file.name != "pyproject.toml"
    }
    close = get_close_matches(path.stem, stems, n=1)
    return f" (nearest: {stems[close[0]]!r})" if close else ""


@contextmanager
def needs(extra: str, what: str) -> Iterator[None]:
    """Wrap imports of packages that only ``extra`` installs; UserError if one is missing.

    ``what``: the feature that needs them, for the message.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "edgefl", "emulator"):
            raise
        raise UserError(
            f"{what} needs the package {package!r}, which is not installed:"
            f" {install_command(extra)}"
        ) from error


@contextmanager
def as_user_error() -> Iterator[None]:
    """Wrap calls of ``emulator``: its BadValue becomes a UserError with the same line."""
    try:
        yield
    except BadValue as error:
        raise UserError(str(error)) from error


TEMPORARY = "; $TMPDIR may name another folder for temporary files"


@contextmanager
def written(place: Path | str, instead: str = "") -> Iterator[None]:
    """Wrap the writing of temporary files, a cache or other files; UserError if it fails.

    The disk may be full. ``instead``: the end of the line, with what the user can do.
    """
    try:
        yield
    except OSError as error:  # numpy's have no ``strerror``
        raise UserError(
            f"{place} cannot be written ({error.strerror or error}){instead}"
        ) from error


# what is said about a file that is something else, or that this user may not open
UNREADABLE = (
    *(errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG),
    errno.EIO,
)


@contextmanager
def undamaged(path: Path) -> Iterator[None]:
    """Wrap the reading of a file or folder of a run.

    UserError if its content is invalid, or if one of its files cannot be opened, as a folder in its
    place cannot.
    """
    try:
        yield
    except UserError:
        raise
    except OSError as error:
        if error.errno not in UNREADABLE or not str(error.filename).startswith(str(path)):
            raise
        raise UserError(f"{error.filename}: cannot be read ({error.strerror})") from error
    except Exception as error:  # each format has its own exceptions
        raise UserError(f"{path}: is damaged ({type(error).__name__}: {error})") from error


class Bug(Exception):
    """A bug of edgefl or of an algorithm: it stops the run and shows the events that led to it.

    ``algorithm``: its class, so that ``blame`` can name the line of its file.
    """

    def __init__(self, message: str, story: list[str], algorithm: type | None = None) -> None:
        super().__init__("\n  ".join([f"{message}; history:", *story]))
        self.message, self.story, self.algorithm = message, story, algorithm

    def tell(self) -> str:
        """Return the events and the traceback, for stderr.

        Print ``blame`` below it: the last line is what people read first.
        """
        trace = (
            "" if self.__cause__ is None else "".join(traceback.format_exception(self.__cause__))
        )
        return "\n  ".join(["history:", *self.story]) + f"\n{trace}".rstrip()

    def blame(self) -> str:
        """Return one line: who failed at what, the exception, and the place in its file.

        The place is the last line of the algorithm's file that led to the exception. If a returned
        value is wrong, there is no such line; then it is the lines where the methods begin.
        """
        cause = self.__cause__
        if cause is None:  # ``story`` is the traceback of a worker
            return " ".join(": ".join([self.message, *self.story[-1:]]).split())
        kind = self.algorithm
        place = own_place(cause, kind.__module__) if kind is not None else ""
        place = place or users_place(cause) or ("" if kind is None else _methods(kind))
        text = told(cause, None if kind is None else kind.__module__)
        return " ".join(f"{self.message}: {text}{place}".split())


class ProcessDied(Exception):
    """A process of a run was killed, or a ``bug`` ended it, which it has printed. One line."""

    def __init__(self, message: str, bug: bool = False) -> None:
        super().__init__(message)
        self.bug = bug


def told(error: BaseException, module: str | None = None) -> str:
    """Return the kind and the text of an exception of an algorithm.

    For a change of a vector that is read-only: also the method of ``module`` and what to do.
    """
    text = f"{type(error).__name__}: {error}"
    if not (isinstance(error, ValueError) and "read-only" in str(error)):
        return text
    own = [] if module is None else _frames(error, module)
    where = own[-1][0].f_code.co_qualname if own else "it"
    return (
        f"{text}: {where} changes a vector that it was given and that others read, too; expected a"
        " change of a copy, such as weights.copy()"
    )


def own_place(error: BaseException, module: str) -> str:
    """ " (my_algo.py, line 12)": the last line of ``module`` that led to ``error``; else ""."""
    own = _frames(error, module)
    return f" ({Path(own[-1][0].f_code.co_filename).name}, line {own[-1][1]})" if own else ""


def users_place(error: BaseException) -> str:
    """As ``own_place``, for the last line of any file that is neither installed nor edgefl's."""
    installed = [*map(Path, sysconfig.get_paths().values()), Path(__file__).parent]
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        file = Path(frame.f_code.co_filename)
        if file.suffix == ".py" and not any(map(file.is_relative_to, installed)):
            return f" ({file.name}, line {line})"
    return ""


def trace(error: BaseException) -> str:
    """Return the traceback of an exception. Its last line names the place in a user's file."""
    return "".join(traceback.format_exception(error)).rstrip() + users_place(error)


def _frames(error: BaseException, module: str) -> list[tuple[FrameType, int]]:
    """The frames of ``module`` on the way to ``error``, with their lines."""
    return [
        at
        for at in traceback.walk_tb(error.__traceback__)
        if at[0].f_globals.get("__name__") == module
    ]


def _methods(algorithm: type) -> str:
    """ " (my_algo.py: MyAlgo; aggregate, line 9)": the class and the lines of its methods."""
    lines = [
        f"{name}, line {code.co_firstlineno}"
        for name, method in vars(algorithm).items()
        if (code := getattr(method, "__code__", None)) is not None
    ]
    file = getattr(sys.modules.get(algorithm.__module__), "__file__", None) or algorithm.__module__
    return f" ({Path(file).name}: {'; '.join([algorithm.__name__, *lines])})"

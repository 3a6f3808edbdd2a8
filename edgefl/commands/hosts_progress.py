"""The progress of work on several hosts: a bar for each, or lines where there is no terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

BAR_WIDTH = 24


@dataclass(frozen=True, slots=True)
class HostWatcher:
    """Shows the progress of one host."""

    name: str
    progress: HostsProgress

    def stage(self, text: str, detail: str = "") -> None:
        self.progress.stage(self.name, text, detail)

    def sending(self, total_bytes: int) -> None:
        self.progress.expect(self.name, total_bytes)

    def sent(self, size: int) -> None:
        self.progress.advance(self.name, size)


class HostsProgress:
    """A row for each host: its name, a bar of the bytes that are sent, and what it does now.

    Without a terminal, each new step is a line.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        self.console = Console(stderr=True)
        self._terminal = self.console.is_terminal
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(BAR_WIDTH),
            TimeElapsedColumn(),
            TextColumn("{task.fields[stage]}", markup=False),
            console=self.console,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {
            name: self._bars.add_task(name, total=None, stage="connecting") for name in hosts
        }
        self._stages: dict[str, str] = {}

    def __enter__(self) -> HostsProgress:
        if self._terminal:
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._terminal:
            self._bars.stop()

    def watcher(self, name: str) -> HostWatcher:
        """Return what shows the progress of one host."""
        return HostWatcher(name, self)

    def stage(self, name: str, text: str, detail: str = "") -> None:
        """The host begins another step; ``detail`` is not printed in lines."""
        self._bars.update(self._tasks[name], stage=f"{text} {detail}".rstrip())
        if self._stages.get(name) != text:
            self._stages[name] = text
            self._line(name, text)

    def expect(self, name: str, total_bytes: int) -> None:
        """So many bytes are going to be sent to the host."""
        self._bars.update(self._tasks[name], total=max(total_bytes, 1), completed=0)
        self._line(name, f"{decimal(total_bytes)} to send")

    def advance(self, name: str, size: int) -> None:
        """So many more bytes were sent to the host."""
        self._bars.advance(self._tasks[name], size)

    def end(self, name: str, text: str) -> None:
        """The host is done, or has failed."""
        task = self._tasks[name]
        self._bars.update(task, total=1, completed=1, stage=text)
        self._bars.stop_task(task)
        self._line(name, text)

    def _line(self, name: str, text: str) -> None:
        if not self._terminal:
            self.console.print(Text(f"{name}: {text}"), soft_wrap=True)

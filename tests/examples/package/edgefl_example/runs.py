"""``edgefl runs``: the runs in folders. A command is a function that Typer understands."""

from pathlib import Path

from edgefl.results import run_files


def runs(folders: list[Path]) -> None:
    """List the runs in folders."""
    for name, found in run_files.find(folders).items():
        print(f"{name}: {len(found)}")

"""Lines of text: the name of each run and its folder."""

from pathlib import Path

from edgefl.plugins.exports.export_format import ExportFormat


def write(runs, out):
    Path(out).write_text("".join(f"{name}\t{folder}\n" for name, folder in runs.items()))
    return [f"{out}: {len(runs)} runs"]


FORMAT = ExportFormat("runs.txt", lambda out: f"less {out}", write)

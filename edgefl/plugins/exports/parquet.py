"""Tables for pandas, DuckDB and polars: one Parquet file per table of the runs.

``edgefl.results.typed_tables`` says which tables there are. Each has the column ``run``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgefl.errors import UserError, needs
from edgefl.plugins.exports.export_format import ExportFormat, folder_path
from edgefl.results.run_files import RunFiles
from edgefl.results.typed_tables import TABLES, of_runs, size, table, write_parquet

SHOWN = "metrics.parquet"


def write(runs: Mapping[str, Path], out: str) -> list[str]:
    """Write the tables that have rows; returns their files. UserError if none has."""
    with needs("export", "Parquet"):
        import pyarrow  # noqa: F401  # before the folder is made
    files = {name: RunFiles(run, only=None) for name, run in runs.items()}
    lines = []
    for name in TABLES:
        path = Path(out) / f"{name}.parquet"
        found = of_runs({run: table(of, name) for run, of in files.items()})
        if size(found):
            write_parquet(found, folder_path(out) / path.name)
            lines.append(str(path))
        elif path.is_file():
            path.unlink()  # of an earlier export
    if not lines:
        raise UserError(f"{next(iter(runs.values()))}: nothing to export: its files have no rows")
    return lines


FORMAT = ExportFormat(
    out="parquet",
    view=lambda out: f"""python -c "import pandas; print(pandas.read_parquet('{out}/{SHOWN}'))\"""",
    write=write,
)

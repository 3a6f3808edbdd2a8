"""What distilling schemes report, and whether the model knows what slow devices hold, behind the
comparison: figures, where there is something.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgefl.commands import show


def tell(schemes: Sequence[Path], folder: Path) -> None:
    """figures/distillation.png and figures/runtimes.png in ``folder``."""
    from edgefl.reports.by_label import figures as runtime_plot
    from edgefl.reports.by_label import section as labels
    from edgefl.reports.distillation import figures as distillation_plot
    from edgefl.results import rundirs

    drawn = distillation_plot.distillation(schemes, folder / "figures" / "distillation.png")[:1]
    if any(labels.by_runtime(runs[0]) for scheme in schemes if (runs := rundirs.runs_of(scheme))):
        drawn += runtime_plot.runtimes(schemes, folder / "figures" / "runtimes.png")[:1]
    for path in drawn:
        show.line(f"figure: {path}")

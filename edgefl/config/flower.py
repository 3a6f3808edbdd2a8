"""The section of the experiment file about a task that is a Flower app."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from edgefl.config.section import Section

Count = Annotated[int, Field(ge=1, le=10**9)]


class FlowerSection(Section):
    """A Flower app as the task (`task = "flower:PATH"`): what it does not say itself."""

    samples: Count | Annotated[tuple[Count, ...], Field(strict=False)]
    """Training samples of each edge: one number, or one for each edge. A task takes the emulated
    time of `samples` times `training.epochs`. An edge's reported `num-examples` counts up to this
    number.
    """
    run_config: dict[str, Any] = Field(default_factory=dict)
    """Other values for keys of the app's `[tool.flwr.app.config]`, as `flwr run --run-config`
    gives.
    """
    loss: str | None = None
    """Name of the loss among the metrics that the app's evaluation returns. Default: the only one
    whose name contains "loss".
    """
    accuracy: str | None = None
    """Name of the accuracy among the metrics that the app's evaluation returns. Default: the only
    one whose name contains "acc".
    """

    def samples_of(self, count: int) -> list[int]:
        """The samples of each of ``count`` edges, in order."""
        return [self.samples] * count if isinstance(self.samples, int) else list(self.samples)

"""``[devices.sampler]``: speeds of devices from a published table."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from edgefl.config.section import Section

Value = Annotated[float, Field(gt=0)]


class DeviceSampler(Section):
    """Speeds drawn from a table of real devices, such as a ranking of AI-Benchmark.

    Each device of the run is a device of the table, any with equal chance, drawn from the seed.
    """

    file: str | None = None
    """CSV file with a header and a row per device, whose name is in the first column. The path is
    relative to the config's directory. The config of a run has `values` in its place.
    """
    column: str | None = None
    """With `file`, where it is required: name of the column with the numbers."""
    measure: Literal["score", "time"] = "score"
    """`"score"`: a device with twice the number is twice as fast. `"time"`: half as fast, as with
    the latency of an inference.
    """
    values: Annotated[tuple[Value, ...], Field(strict=False, min_length=1)] | None = None
    """The numbers themselves, one per device, instead of a file."""
    origin: str | None = None
    """With `values`: the file and the column from which they are. It has no effect."""

    @model_validator(mode="after")
    def _one_source(self) -> DeviceSampler:
        if (self.file is None) == (self.values is None):
            said = "missing" if self.file is None else "expected no values with it"
            raise ValueError(f"file: {said}; a sampler needs either file and column, or values")
        if (self.file is None) != (self.column is None):
            said = "missing; file needs it" if self.column is None else "expected only with file"
            raise ValueError(f"column: {said}")
        return self

"""The section of the experiment file about the evaluation of the global model."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from edgefl.config.scores import ACCURACY, SCORES, Score
from edgefl.config.section import Section


class Evaluation(Section):
    """When the global model is evaluated, and what is measured. Takes no emulated time."""

    every_versions: int = Field(1, ge=0)
    """Evaluate every this many versions of the global model; 0: not by version. The first and the
    last model are always evaluated.
    """
    every_s: float | None = Field(None, ge=1e-9)  # a shorter time is 0 ns: time would never advance
    """Also evaluate every this many emulated seconds."""
    metric: Literal["accuracy", "f1", "perplexity", "exact_match"] = "accuracy"
    """The score that the target, the summary, tables, figures and the live page refer to.
    `"accuracy"`: share of right answers; of a causal language model, of right next tokens. `"f1"`:
    of label 1 with two labels, else the mean over labels. `"perplexity"`: e to the test loss.
    `"exact_match"`: share of answers of a causal language model, decoded greedily, whose last
    number is that of the test sample.
    """
    metrics: tuple[Literal["f1", "perplexity", "exact_match"], ...] = Field((), strict=False)
    """Further scores to measure. Each one, and `metric`, is a column of `metrics.csv`."""
    target: float | None = Field(None, gt=0)
    """Target for `metric`. The time to target is the moment at which a model first reaches it."""
    target_accuracy: float | None = Field(None, gt=0, le=1)
    """Target for the test accuracy, as a share of 1: the same as `target` with `metric =
    "accuracy"`. The time to target is the moment at which a model first reaches it.
    """
    match_samples: int | None = Field(None, ge=1)
    """`"exact_match"`: number of test samples to decode, evenly spaced. Default: all."""
    answer_tokens: int = Field(256, ge=1, le=1_000_000)
    """`"exact_match"`: largest number of tokens of a decoded answer."""
    train_samples: int = Field(2000, ge=0)
    """Number of training samples for `train_loss`, a fixed sample of the edges' data; 0: no
    `train_loss`.
    """
    by_label: bool = False
    """Also measure the accuracy of each label, and write `labels.csv`, `edges.csv` (which edge has
    which labels) and `figures/runtimes.png`.
    """

    @property
    def score(self) -> Score:
        """The score that the target refers to."""
        return SCORES[self.metric]

    @property
    def goal(self) -> float | None:
        """The target for ``score``."""
        return self.target_accuracy if self.target is None else self.target

    @property
    def further(self) -> tuple[str, ...]:
        """The scores besides the accuracy, in the order of their columns."""
        return tuple(name for name in SCORES if name in {*self.metrics, self.metric} - {"accuracy"})

    @model_validator(mode="after")
    def _one_target(self) -> Evaluation:
        if self.target_accuracy is not None:
            if self.score is not ACCURACY:
                raise ValueError(
                    f'target_accuracy: expected metric = "accuracy", found "{self.metric}"; write'
                    " target"
                )
            if self.target is not None:
                raise ValueError("expected target or target_accuracy, found both")
        if self.target is not None and self.target > self.score.largest:
            raise ValueError(
                f"target: expected at most {self.score.largest:g}, as a share of 1, found"
                f" {self.target:g}"
            )
        if len(set(self.metrics)) < len(self.metrics):
            raise ValueError("metrics: expected different names")
        return self

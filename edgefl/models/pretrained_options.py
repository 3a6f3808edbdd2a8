"""The options of models that are read from a directory in the format of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from edgefl.config.section import Section

LORA_KEYS = ("lora_rank", "lora_alpha", "lora_dropout", "lora_targets")


class PretrainedOptions(Section):
    """Options of a pretrained model: its directory, and what is trained and sent."""

    path: str
    """Directory with `config.json` and the weights (`model.safetensors`), relative to the data
    directory. Nothing is downloaded.
    """
    train: Literal["all", "lora", "head"] = "all"
    """What is trained and sent. `"all"`: every weight. `"lora"`: low-rank adapters, and the layers
    that the directory has no weights for. `"head"`: only the layers after the encoder. All other
    weights are frozen: each host has them in its own directory.
    """
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the frozen weights. Trained weights are float32."""
    dropout: float | None = Field(None, ge=0, lt=1)
    """Probability of dropout in all layers; none: as the directory's config says."""
    lora_rank: int = Field(8, ge=1, le=65_536)
    """Rank of the adapters."""
    lora_alpha: float = Field(16.0, gt=0)
    """Scale of the adapters: a layer's output is W x + `lora_alpha` / `lora_rank` B A x."""
    lora_dropout: float = Field(0.0, ge=0, lt=1)
    """Probability of dropout before the adapters."""
    # not strict: TOML gives lists
    lora_targets: tuple[str, ...] = Field((), strict=False)
    """Ends of the names of the linear layers that get adapters, such as `["query", "value"]`;
    empty: those that peft chooses for this kind of model.
    """

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.train == "all" and self.dtype != "float32":
            raise ValueError(
                'dtype: expected "float32" with train = "all", where no weight is frozen, found'
                f' "{self.dtype}"'
            )
        given = [key for key in LORA_KEYS if key in self.model_fields_set]
        if given and self.train != "lora":
            raise ValueError(f'{given[0]}: is for train = "lora", found train = "{self.train}"')
        return self

    def placed(self, directory: Path) -> Self:
        """Return the options with ``path`` below the data directory, unless it is absolute."""
        return self.model_copy(update={"path": str(directory / Path(self.path).expanduser())})

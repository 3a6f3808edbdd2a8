"""The package transformers as this project uses it: local directories only, and no threads."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from edgefl.errors import UserError, nearest, needs

if TYPE_CHECKING:
    import torch

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
)


class Transformers:
    """The package transformers, without its hub, its progress bars and its threads.

    ``what``: the feature that needs it, for the error line.
    """

    def __init__(self, what: str) -> None:
        # a process that forks must have no threads, so the tokenizers must not start any
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"
        with needs("text", what):
            import transformers
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        self._package: Any = transformers

    def tokenizer(self, directory: Path) -> Any:
        """Return the tokenizer in a directory. UserError if there is none."""
        if not directory.is_dir():
            raise UserError(
                f"data.tokenizer: no directory {directory}; expected one with tokenizer.json,"
                " relative to the data directory"
            )
        try:
            return self._package.AutoTokenizer.from_pretrained(
                str(directory), local_files_only=True, trust_remote_code=False
            )
        except Exception as error:  # of many kinds, from several packages
            raise UserError(
                f"data.tokenizer: {directory} has no tokenizer that transformers can read"
                f" ({_reason(error)}): expected {TOKENIZER_FILES[0]} and {TOKENIZER_FILES[1]}"
            ) from error

    def config(self, directory: Path, changes: dict[str, Any]) -> Any:
        """Return the model's config in a directory, with changes. UserError if it is not known."""
        try:
            kind = orjson.loads((directory / "config.json").read_bytes()).get("model_type")
            return self._package.AutoConfig.from_pretrained(
                str(directory), local_files_only=True, trust_remote_code=False, **changes
            )
        except orjson.JSONDecodeError as error:
            raise UserError(
                f"model.path: {directory / 'config.json'} is not JSON ({error})"
            ) from error
        except Exception as error:
            known = self._package.models.auto.configuration_auto.CONFIG_MAPPING_NAMES
            raise UserError(
                f"model.path: {directory / 'config.json'} is of no model that transformers"
                f" {self._package.__version__} knows: model_type {kind!r}{_close(str(kind), known)}"
            ) from error

    def classes(self, kind: str) -> Any:
        """Return the configs for which there is a text classifier or a causal model."""
        return self._auto(kind)._model_mapping.keys()

    def types(self, kind: str) -> list[str]:
        """Return the values of model_type for which there is a text classifier or causal model."""
        return [known.model_type for known in self.classes(kind)]

    def model(self, kind: str, directory: Path, config: Any, dtype: torch.dtype) -> Any:
        """Return the model in a directory, and what its file lacked."""
        return self._auto(kind).from_pretrained(
            str(directory),
            config=config,
            dtype=dtype,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )

    def _auto(self, kind: str) -> Any:
        if kind == "causal_lm":
            return self._package.AutoModelForCausalLM
        return self._package.AutoModelForSequenceClassification


def _close(name: str, known: Iterable[str]) -> str:
    """The nearest of hundreds of names, if one is near."""
    near = nearest(name, known)
    return near if near.startswith(" (nearest") else ""


def _reason(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:160]

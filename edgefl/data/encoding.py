"""Encode texts by a pretrained model's own tokenizer (WordPiece or BPE).

An encoded text is an array (2, length): row ``IDS`` has the token numbers, row ``PARTS`` what each
token belongs to: 0 padding, 1 the first sentence or the prompt, 2 the second sentence or the
answer. Padding is at the end. All texts of a data set have one length; a model cuts a batch to its
longest text (``trimmed``).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import orjson
import xxhash
from pydantic import Field

from edgefl.config.section import Section
from edgefl.data.words import FILE
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


IDS, PARTS = 0, 1
PADDING, FIRST, SECOND = 0, 1, 2


class TokenOptions(Section):
    """Options of data sets that a pretrained model's tokenizer encodes."""

    tokenizer: str | None = None
    """Directory with the tokenizer (`tokenizer.json`), relative to the data directory; none:
    `model.path`.
    """
    length: int = Field(default=128, ge=2, le=1 << 16)
    """Largest number of tokens of a text; longer ones are cut. A batch is padded to its longest
    text only.
    """

    def placed(self, directory: Path, model_path: Any) -> Self:
        """Return the options with the tokenizer's directory, below the data directory."""
        chosen = self.tokenizer or model_path
        if not isinstance(chosen, str):
            raise UserError(
                "data.tokenizer: expected the directory of a tokenizer, relative to the data"
                " directory, or a model with a path"
            )
        return self.model_copy(update={"tokenizer": str(directory / Path(chosen).expanduser())})


def tokenizer_at(directory: Path) -> Any:
    """Return the tokenizer of transformers in a directory. UserError if there is none."""
    return Transformers("a text model's tokenizer").tokenizer(directory)


def sources(options: TokenOptions) -> list[Path]:
    """Return the tokenizer's files, as sources of a cached data set."""
    directory = Path(options.tokenizer or "")
    return [directory / name for name in TOKENIZER_FILES if (directory / name).is_file()]


def vocabulary_digest(tokenizer: Any) -> str:
    """Return a digest of the tokenizer's tokens and their numbers."""
    known = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return xxhash.xxh3_64(orjson.dumps(known)).hexdigest()


def write_vocabulary(tokenizer: Any, folder: Path) -> None:
    """Write the tokens in the order of their numbers, one per line, escaped as in Python."""
    known = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    lines = "".join(f"{token.encode('unicode_escape').decode()}\n" for token, _ in known)
    (folder / FILE).write_text(lines, encoding="utf-8")


def size(tokenizer: Any) -> int:
    """Return the number of token numbers."""
    return max(tokenizer.get_vocab().values()) + 1


def sentences(
    tokenizer: Any, texts: Sequence[str], others: Sequence[str] | None, length: int
) -> np.ndarray:
    """Encode texts, or pairs of them, for a classifier: (n, 2, length) as int32.

    The longer text of a pair is cut first.
    """
    if not len(texts):
        return np.zeros((0, 2, length), np.int32)
    given = [list(texts)] if others is None else [list(texts), list(others)]
    coded = tokenizer(
        *given,
        truncation="longest_first",
        max_length=length,
        return_token_type_ids=True,
        return_attention_mask=False,
    )
    pairs = zip(coded["input_ids"], coded["token_type_ids"])
    return _packed(
        [(ids, [kind + FIRST for kind in kinds]) for ids, kinds in pairs], tokenizer, length
    )


def prompts(
    tokenizer: Any, questions: Sequence[str], answers: Sequence[str], length: int, chat: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Encode prompts with their answers for a causal model.

    Returns texts (n, 2, length) as int32, and the indices (n,) of those kept: a prompt that leaves
    no room for an answer is left out. An answer ends with the tokenizer's end token. With ``chat``
    the prompt has the form of the tokenizer's chat template, else a line of its own.
    """
    rows, kept = [], []
    for number, (question, answer) in enumerate(zip(questions, answers)):
        first = _prompt(tokenizer, question, chat)
        second = tokenizer(answer, add_special_tokens=False)["input_ids"]
        second = [*second, *_end(tokenizer)]
        if len(first) < length:
            rows.append(
                (
                    [*first, *second][:length],
                    ([FIRST] * len(first) + [SECOND] * len(second))[:length],
                )
            )
            kept.append(number)
    return _packed(rows, tokenizer, length), np.array(kept, dtype=np.int64)


def _prompt(tokenizer: Any, question: str, chat: bool) -> list[int]:
    if not chat:
        return list(tokenizer(f"{question}\n")["input_ids"])
    if tokenizer.chat_template is None:
        raise UserError(
            f"data.chat: the tokenizer in {tokenizer.name_or_path} has no chat template: expected"
            " chat = false"
        )
    said = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
    )
    return list(tokenizer(said, add_special_tokens=False)["input_ids"])


def _end(tokenizer: Any) -> list[int]:
    return [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]


def _packed(
    rows: Sequence[tuple[Sequence[int], Sequence[int]]], tokenizer: Any, length: int
) -> np.ndarray:
    padding = tokenizer.pad_token_id
    out = np.zeros((len(rows), 2, length), np.int32)
    out[:, IDS] = 0 if padding is None else padding
    for row, (ids, parts) in enumerate(rows):
        out[row, IDS, : len(ids)], out[row, PARTS, : len(parts)] = ids, parts
    return out


def trimmed(texts: torch.Tensor) -> torch.Tensor:
    """Return a batch (n, 2, length) without the columns that have padding only."""
    used = (texts[:, PARTS] > 0).any(dim=0).nonzero()
    return texts[:, :, : int(used[-1]) + 1] if len(used) else texts[:, :, :1]


def texts_of(row: np.ndarray, tokenizer: Any) -> tuple[str, str]:
    """Decode an encoded text (2, length): its first and second part, without special tokens."""
    first, second = (
        tokenizer.decode(row[IDS][row[PARTS] == part], skip_special_tokens=True)
        for part in (FIRST, SECOND)
    )
    return first, second

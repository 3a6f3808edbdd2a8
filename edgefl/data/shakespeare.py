"""Shakespeare: predict the next character of a play, with the speaker of each sample (LEAF 2018).

It reads a text of speeches such as tinyshakespeare. Source: Caldas et al. 2018, LEAF.
"""

from __future__ import annotations

import gzip
import re
import zlib
from pathlib import Path

import numpy as np
from pydantic import Field

from edgefl.config.section import Section
from edgefl.data import words
from edgefl.data.cache import cached
from edgefl.data.dataset import Dataset, file_of
from edgefl.data.download import Download
from edgefl.errors import UserError, as_user_error
from emulator.plain_text import decoded

FOLDERS = ("shakespeare", "tinyshakespeare")
NAMES = ("input.txt", "input.txt.gz")
DOWNLOADS = (
    Download(
        "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
        "sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    ),
)
# the speaker, and the speech from the next line on
SPEECH = re.compile(r"([^\n:]+):(?:\n(.*))?", re.DOTALL)


class Options(Section):
    """``length``: characters of a sample; ``stride``: characters from one sample to the next;
    ``test_share``: the share of each speaker's text at its end that is for testing.
    """

    length: int = Field(default=80, ge=1, le=1 << 12)
    """Number of characters of a sample; the next character is its label."""
    stride: int = Field(default=10, ge=1)
    """Number of characters from the start of one sample to the start of the next."""
    test_share: float = Field(default=0.1, gt=0, lt=1)
    """Share of each speaker's text that is for testing; it is the end of the text."""


def load(directory: Path, options: Options) -> Dataset:
    """Read ``directory/shakespeare/``, ``directory/tinyshakespeare/`` or ``directory/``.

    Speakers are numbered in the order of their names.
    """
    path = file_of(directory, FOLDERS, NAMES, "shakespeare")
    return cached(
        "shakespeare",
        [path],
        options.model_dump_json(),
        lambda folder: _parsed(path, options, folder),
    )


def _parsed(path: Path, options: Options, folder: Path) -> Dataset:
    texts = speeches(_read(path), path)
    known = words.alphabet(texts.values())
    words.write_characters(known, folder)
    train, test, speakers = [], [], []
    for number, name in enumerate(sorted(texts)):
        text = words.character_tokens(texts[name], known)
        cut = round(len(text) * (1 - options.test_share))
        train.append(words.windows(text[:cut], options.length, options.stride))
        test.append(words.windows(text[cut:], options.length, options.stride))
        speakers.append(np.full(len(train[-1][1]), number))
    (train_x, train_y), (test_x, test_y) = (
        tuple(map(np.concatenate, zip(*parts))) for parts in (train, test)
    )
    if not len(train_y) or not len(test_y):
        raise UserError(
            f"{path}: no speaker has more than {options.length} characters in the training part, or"
            " none has in the test part"
        )
    vocabulary = len(known) + words.FIRST
    return Dataset(
        train_x,
        train_y,
        test_x,
        test_y,
        len(known),
        vocabulary=vocabulary,
        columns={"speaker": np.concatenate(speakers)},
    )


def speeches(text: str, path: Path) -> dict[str, str]:
    """Return speaker -> all speeches, in order.

    A speech begins with the speaker's name and a colon; an empty line ends it.
    """
    found: dict[str, list[str]] = {}
    speaker = ""
    for part in re.split(r"\n\n+", text.strip("\n")):
        speech = SPEECH.fullmatch(part)
        if speech is not None:
            speaker, said = speech[1].strip(), speech[2]
        else:
            said = part  # continues the last speech
        if speaker and said:
            found.setdefault(speaker, []).append(said)
    if not found:
        raise UserError(
            f"{path}: expected speeches: a line with a name and a colon, lines of text, an empty"
            " line"
        )
    return {name: "\n".join(parts) for name, parts in found.items()}


def _read(path: Path) -> str:
    try:
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: truncated or damaged ({error})") from error
    with as_user_error():
        return decoded(raw, path)

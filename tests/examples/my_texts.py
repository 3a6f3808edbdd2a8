"""Your own text data set: lines of ``train.txt`` and ``test.txt`` in the data directory, each
"label<TAB>text".
"""

from collections import Counter

import numpy as np

from edgefl.api import Dataset, Section

PADDING, UNKNOWN = 0, 1


class Options(Section):
    vocabulary: int = 2_000  # token numbers, padding and unknown included
    length: int = 32  # words of a text that count


def read(path):
    pairs = [line.rstrip("\n").split("\t", 1) for line in path.open(encoding="utf-8")]
    return [label for label, _ in pairs], [text.lower().split() for _, text in pairs]


def load(directory, options):
    labels, texts = read(directory / "train.txt")
    test_labels, test_texts = read(directory / "test.txt")
    frequent = Counter(word for text in texts for word in text).most_common(options.vocabulary - 2)
    numbers = {word: number for number, (word, _) in enumerate(frequent, start=2)}
    names = sorted(set(labels))

    def tokens(texts):
        out = np.full((len(texts), options.length), PADDING, np.int32)
        for row, text in enumerate(texts):
            found = [numbers.get(word, UNKNOWN) for word in text[: options.length]]
            out[row, : len(found)] = found
        return out

    def classes(labels):
        return np.array([names.index(label) for label in labels], np.int64)

    return Dataset(
        tokens(texts),
        classes(labels),
        tokens(test_texts),
        classes(test_labels),
        classes=len(names),
        vocabulary=len(numbers) + 2,
    )

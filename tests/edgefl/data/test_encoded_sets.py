"""Encoded texts: the tokenizers, the text sets that read them, and their unlabelled parts."""

from __future__ import annotations

import csv
import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from text_rig import (
    LENGTH,
    pairs,
    sums,
    text_data,
    text_experiment,
    write_jsonl,
    write_mrpc,
)

from edgefl.clocks.setup.learning import learning
from edgefl.data import agnews, encoding, instructions, math_instruct, mrpc, sentences
from edgefl.data.encoding import IDS, PARTS, tokenizer_at
from edgefl.data.text_tables import table
from edgefl.errors import UserError

pytestmark = pytest.mark.slow  # the extra text takes seconds to import

BERT, CAUSAL = "models/bert", "models/causal"


def bert() -> Any:
    return tokenizer_at(text_data() / BERT)


def given(kind: Any, model: str = BERT, length: int = LENGTH, **keys: Any) -> Any:
    return kind.Options(tokenizer=str(text_data() / model), length=length, **keys)


# ------------------------------------------------------------------ encoding
def test_a_pair_has_its_parts_and_padding() -> None:
    tokenizer = bert()
    (row,) = encoding.sentences(tokenizer, ["the cat"], ["a dog sees"], 12)
    tokens = tokenizer.convert_ids_to_tokens(row[IDS].tolist())
    assert tokens == ["[CLS]", "the", "cat", "[SEP]", "a", "dog", "sees", "[SEP]", *["[PAD]"] * 4]
    assert row[PARTS].tolist() == [1, 1, 1, 1, 2, 2, 2, 2, 0, 0, 0, 0]
    assert encoding.texts_of(row, tokenizer) == ("the cat", "a dog sees")


def test_an_answer_follows_its_prompt_and_ends() -> None:
    tokenizer = tokenizer_at(text_data() / CAUSAL)
    rows, kept = encoding.prompts(tokenizer, ["what is 1 + 2?"], ["1 + 2 = 3"], 40, chat=False)
    first, second = encoding.texts_of(rows[0], tokenizer)
    assert (first, second, kept.tolist()) == ("what is 1 + 2?\n", "1 + 2 = 3", [0])
    last = rows[0, IDS][rows[0, PARTS] == 2][-1]
    assert last == tokenizer.eos_token_id
    chat, _ = encoding.prompts(tokenizer, ["a"], ["b"], 40, chat=True)
    assert encoding.texts_of(chat[0], tokenizer)[0] == "<|user|>\na\n<|assistant|>\n"


def test_a_prompt_that_leaves_no_room_is_left_out_and_an_answer_is_cut() -> None:
    tokenizer = tokenizer_at(text_data() / CAUSAL)
    questions, answers = ["7 " * 30, "1"], ["2", "3 " * 30]
    rows, kept = encoding.prompts(tokenizer, questions, answers, 12, chat=False)
    assert kept.tolist() == [1] and rows.shape == (1, 2, 12) and (rows[:, PARTS] > 0).all()


# ------------------------------------------------------------------ MRPC
def test_mrpc_reads_literal_quotes_and_gzip(tmp_path: Path) -> None:
    write_mrpc(tmp_path / "mrpc", train=40, test=12)
    plain = mrpc.load(tmp_path, given(mrpc))
    for file in (tmp_path / "mrpc").iterdir():
        (file.parent / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    packed = mrpc.load(tmp_path, given(mrpc))
    assert packed.digest() == plain.digest() and packed.tokens == "labels"
    assert packed.shape == (packed.vocabulary, 2, LENGTH)
    first, _ = encoding.texts_of(np.asarray(packed.test_x[0]), bert())
    assert first.count('"') == 2, first
    assert packed.test_y.tolist() == [label for label, *_ in pairs(12, 40)]


def test_mrpc_has_the_same_training_pairs_for_both_tests() -> None:
    test, validation = (
        mrpc.load(text_data(), given(mrpc, test=part)) for part in ("test", "validation")
    )
    assert (test.train_x == validation.train_x).all() and len(test.train_x) == 30
    assert (len(test.test_x), len(validation.test_x)) == (20, 30)
    kept = {row.tobytes() for row in np.asarray(validation.train_x)}
    assert not kept & {row.tobytes() for row in np.asarray(validation.test_x)}


def test_the_unlabelled_part_is_the_one_that_is_not_for_testing() -> None:
    for part, other, size in (("validation", "test", 20), ("test", "validation", 30)):
        data = {"name": "mrpc", "dir": str(text_data()), "length": LENGTH, "test": part}
        made = learning(text_experiment(data=data, unlabelled={"data": "mrpc", "size": size}), None)
        rest = mrpc.load(text_data(), given(mrpc, test=other))
        assert made.unlabelled is not None
        assert (made.unlabelled.numpy() == rest.test_x).all()


# ------------------------------------------------------------------ the other sets
def test_agnews_from_csv_with_and_without_a_header(tmp_path: Path) -> None:
    rows = [["3", "the cat", 'sees, a "dog"'], ["1", "a king", "wins"], ["4", "x", "y"]]
    for part, header in (("train", []), ("test", [["Class Index", "Title", "Description"]])):
        with (tmp_path / f"{part}.csv").open("w", newline="") as file:
            csv.writer(file, quoting=csv.QUOTE_ALL).writerows([*header, *rows])
    found = agnews.load(tmp_path, given(agnews))
    assert found.train_y.tolist() == found.test_y.tolist() == [2, 0, 3] and found.classes == 4
    text, none = encoding.texts_of(np.asarray(found.train_x[0]), bert())
    assert (text, none) == ('the cat sees a " dog "', "")  # no comma is in the vocabulary
    (tmp_path / "train.csv").write_text('"5","a","b"\n')
    with pytest.raises(UserError, match="label 4, expected 0 to 3"):
        agnews.load(tmp_path, given(agnews))


def test_sentences_of_any_columns(tmp_path: Path) -> None:
    rows = [
        {"s": f"the cat {number}", "t": "a dog", "y": label, "who": who}
        for number, (label, who) in enumerate([(10, "b"), (9, "a"), (10, "a")])
    ]
    write_jsonl(tmp_path / "in.jsonl", rows)
    (tmp_path / "out.csv.xz").write_bytes(
        lzma.compress(b"s,t,y,who\nthe king,a dog,9,c\n", format=lzma.FORMAT_XZ)
    )
    keys = {"train": "in.jsonl", "test": "out.csv.xz", "text": "s", "pair": "t", "label": "y"}
    with pytest.raises(UserError, match="label '9', expected one of the training rows: 9, 10"):
        sentences.load(tmp_path, given(sentences, **keys))
    write_jsonl(tmp_path / "out.jsonl", [{"s": "x", "t": "y", "y": 9, "who": "c"}])
    keys["test"] = "out.jsonl"
    found = sentences.load(tmp_path, given(sentences, key="who", **keys))
    assert found.train_y.tolist() == [1, 0, 1] and found.test_y.tolist() == [0]
    assert found.columns["who"].tolist() == [1, 0, 0]
    assert encoding.texts_of(np.asarray(found.train_x[1]), bert())[1] == "a dog"
    with pytest.raises(UserError, match=r"row 1 has no column 'z' .valid: s, t, who, y"):
        sentences.load(tmp_path, given(sentences, **keys | {"text": "z"}))


def test_math_instruct_is_tested_on_gsm8k_or_on_held_out_problems(tmp_path: Path) -> None:
    rows = [
        {"instruction": row["question"], "output": row["answer"], "source": f"data/{number % 3}"}
        for number, row in enumerate(sums(40, 0))
    ]
    (tmp_path / "math_instruct").mkdir()
    (tmp_path / "math_instruct" / "MathInstruct.json").write_text(json.dumps(rows))
    with pytest.raises(UserError, match=r"no file test.jsonl .* of GSM8K"):
        math_instruct.load(tmp_path, given(math_instruct, CAUSAL, 48))
    write_jsonl(tmp_path / "gsm8k" / "test.jsonl", sums(5, 0))
    found = math_instruct.load(tmp_path, given(math_instruct, CAUSAL, 48))
    assert (len(found.train_x), len(found.test_x), found.classes) == (40, 5, 3)
    assert found.train_y.tolist() == [number % 3 for number in range(40)]
    held = math_instruct.load(tmp_path, given(math_instruct, CAUSAL, 48, test="held_out"))
    assert (len(held.train_x), len(held.test_x)) == (38, 2)


def test_instructions_with_a_label(tmp_path: Path) -> None:
    rows = [{"q": "1 + 1", "a": "2", "kind": kind} for kind in ("y", "x", "y")]
    write_jsonl(tmp_path / "train.jsonl", rows)
    write_jsonl(tmp_path / "test.jsonl", rows)
    keys = {"prompt": "q", "answer": "a"}
    found = instructions.load(tmp_path, given(instructions, CAUSAL, 20, label="kind", **keys))
    assert found.train_y.tolist() == [1, 0, 1] and found.tokens == "next"
    assert instructions.load(tmp_path, given(instructions, CAUSAL, 20, **keys)).classes == 1
    with pytest.raises(UserError, match="no prompt of the training part leaves room"):
        instructions.load(tmp_path, given(instructions, CAUSAL, 2, **keys))


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("a.jsonl", '{"x": 1}\n{"x"\n', "line 2: is not JSON"),
        ("a.jsonl", "[1]\n", "line 1: expected a table"),
        ("a.json", '{"x": 1}', "expected an array of tables"),
        ("a.csv", "", "no samples"),
        ("a.csv.gz", "no gzip", "truncated or damaged"),
        ("a.tsv", "y\tz\n1\t2\n", r"row 1 has no column 'x' .valid: y, z"),
    ],
)
def test_a_damaged_table_is_one_line(tmp_path: Path, name: str, text: str, fault: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=fault) as error:
        table(tmp_path / name, ["x"])
    assert "\n" not in str(error.value)


# ------------------------------------------------------------------ what fits together
@pytest.mark.parametrize(
    ("sections", "fault"),
    [
        ({"model": {"name": "textcnn"}}, "model 'textcnn': .* such as bert_classifier"),
        ({"model": {"name": "causal_lm", "path": CAUSAL}}, "expected a data set for encoded prom"),
    ],
)
def test_texts_and_models_that_do_not_fit(sections: dict[str, Any], fault: str) -> None:
    data = {"name": "mrpc", "dir": str(text_data()), "length": LENGTH, "tokenizer": BERT}
    with pytest.raises(UserError, match=fault):
        learning(text_experiment(**{"data": data} | sections), None)

"""The labels in tables of texts: missing and nearly equal ones make no class of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgefl.data.dataset import spelled
from edgefl.data.text_tables import table
from edgefl.errors import UserError


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (["pos ", "pos", "\tneg"], ["pos", "pos", "neg"]),
        ([1, 0, 1], [1, 0, 1]),
        (["a", "A"], ["a", "A"]),  # letters may be classes
        (["007", "7"], ["007", "7"]),  # as names are
    ],
)
def test_white_space_around_a_label_is_no_part_of_it(values: list[Any], found: list[Any]) -> None:
    assert spelled(values, "x") == found


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (["pos", "neg", " "], "x: row 3 has no value"),
        (["pos", None], "x: row 2 has no value"),
        (["pos", "neg", "Pos"], r"x: 'pos' \(row 1\) and 'Pos' \(row 3\) are nearly equal"),
        (["very bad", "very  bad"], "are nearly equal"),
        ([1, "1"], r"x: 1 \(row 1\) and '1' \(row 2\) are nearly equal"),
        (["1", "1.0"], "are nearly equal"),
        ([["pos"]], "x: row 1: expected a text or a number, found"),
    ],
)
def test_a_missing_or_nearly_equal_label_is_one_line_with_its_row(
    values: list[Any], complaint: str
) -> None:
    with pytest.raises(UserError, match=complaint):
        spelled(values, "x")


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("t.csv", "text,label\na,pos\nb,\n", "t.csv: column 'label': row 2 has no value"),
        ("t.csv", "text,label\na,pos\nb,Pos\n", "t.csv: column 'label': 'pos' .row 1. and 'Pos'"),
        ("t.tsv", "text\tlabel\na\tpos\nb\t \n", "t.tsv: column 'label': row 2 has no value"),
        (
            "t.jsonl",
            '{"text": "a", "label": null}\n',
            "t.jsonl: column 'label': row 1 has no value",
        ),
        ("t.jsonl", '{"text": null, "label": 1}\n', "t.jsonl: row 1: 'text' is null"),
        ("t.jsonl", '{"text": "a", "lable": 1}\n', "row 1 has no column 'label' .nearest: 'lable'"),
    ],
)
def test_each_form_of_a_table_refuses_them(
    name: str, content: str, complaint: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=complaint):
        table(tmp_path / name, ["text"], labels=["label"])

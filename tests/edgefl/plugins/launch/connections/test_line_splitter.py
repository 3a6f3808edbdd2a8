"""Lines from chunks of bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgefl.plugins.launch.connections.line_splitter import LineSplitter


@given(
    st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"").replace(b"\r", b""))),
    st.integers(1, 9),
)
def test_lines_do_not_depend_on_the_chunks(lines: list[bytes], size: int) -> None:
    data, splitter, found = b"".join(line + b"\n" for line in lines), LineSplitter(100), []
    for start in range(0, len(data), size):
        found += splitter.split(data[start : start + size])
    assert found == lines and splitter.rest() == []


def test_a_line_without_end_comes_in_parts() -> None:
    splitter = LineSplitter(4)
    assert splitter.split(b"ab\r\nabcdef") == [b"ab", b"abcdef"]
    assert splitter.split(b"gh") == [] and splitter.rest() == [b"gh"]

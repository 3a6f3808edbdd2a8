"""The benchmarks that use real sockets and real time, in their smallest form.

No test asserts a speed.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from smallest import SOCKETS, assert_rows

pytestmark = [pytest.mark.alone, pytest.mark.usefixtures("warm_python")]


@pytest.mark.parametrize("name", sorted(SOCKETS))
def test_a_benchmark_leaves_its_rows(name: str, tmp_path: Path) -> None:
    assert_rows(name, tmp_path)

"""Paths of the checkout's folders, for tests in any folder."""

from __future__ import annotations

from pathlib import Path

SUPPORT = Path(__file__).resolve().parent
ROOT = SUPPORT.parents[1]
CONFIGS = ROOT / "configs"
EXAMPLES = ROOT / "tests" / "examples"
GOLDEN = ROOT / "tests" / "golden"
BENCHMARKS, STUDIES = ROOT / "scripts" / "benchmarks", ROOT / "scripts" / "studies"

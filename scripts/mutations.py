"""Whether the suite finds careless mistakes: thirty-one mutations, one at a time.

    python scripts/mutations.py [--only NAME ...] [--tree DIR] [--all-tests]

Each mutation replaces one piece of text, which stands once in the packages, in a copy of the tree.
Then the tests of its room run (those that scripts/test.sh runs), and end at the first failure.
With --all-tests the whole suite runs where the room's tests found nothing. The exit status is 1
if a mutation was not found.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("edgefl", "emulator")
COPIED = (
    *PACKAGES,
    "edgefl_testbed.py",
    "tests",
    "scripts",
    "configs",
    "docs",
    "pyproject.toml",
    "README.md",
)


@dataclass(frozen=True, slots=True)
class Mutation:
    """``tests``: folders and files whose tests should find it, those of its room."""

    name: str
    old: str
    new: str
    tests: str


MUTATIONS = [
    Mutation(
        "loss sends nothing twice",
        "int(sent_bit_s * (1 - loss))",
        "int(sent_bit_s)",
        "tests/emulator",
    ),
    Mutation(
        "jitter lets messages overtake",
        "block.delays_ns[index], block.held_ns[index])",
        "block.delays_ns[index], 0)",
        "tests/emulator",
    ),
    Mutation(
        "a round without its broadcast",
        "self.slots_per_transfer * (self.per_round + 1)",
        "self.slots_per_transfer * self.per_round",
        "tests/emulator",
    ),
    Mutation(
        "late is twice as late",
        "late_ns > max(self.transfer_lag_ms",
        "late_ns > 2 * max(self.transfer_lag_ms",
        "tests/emulator",
    ),
    Mutation(
        "a share of presence without its first part",
        "for begin, end in self.there_ns) / self.period_ns",
        "for begin, end in self.there_ns[1:]) / self.period_ns",
        "tests/emulator",
    ),
    Mutation(
        "a device computes whole seconds",
        "round(samples / self.samples_per_s * NS_PER_S)",
        "round(samples // self.samples_per_s * NS_PER_S)",
        "tests/emulator",
    ),
    Mutation(
        "a device cools beyond its budget",
        "return min(self.budget_ns, left_ns +",
        "return max(self.budget_ns, left_ns +",
        "tests/emulator",
    ),
    Mutation(
        "a radio rests too early",
        "if of.quiet_ns is None or ended_ns > of.quiet_ns:",
        "if of.quiet_ns is None:",
        "tests/emulator",
    ),
    Mutation(
        "a fresh update is damped",
        "float((gap + 1) ** -options.a)",
        "float((gap + 2) ** -options.a)",
        "tests/edgefl/strategies",
    ),
    Mutation(
        "a buffer of one more",
        "if self.buffered < self.options.buffer_size:",
        "if self.buffered <= self.options.buffer_size:",
        "tests/edgefl/strategies",
    ),
    Mutation(
        "every turn counts as missed",
        "self.missed += slot > self.turn.pop(",
        "self.missed += slot >= self.turn.pop(",
        "tests/edgefl/strategies tests/edgefl/clocks/virtual",
    ),
    Mutation(
        "WKAFL measures one step late",
        "self.version >= MEASURED_AT",
        "self.version > MEASURED_AT",
        "tests/edgefl/strategies",
    ),
    Mutation(
        "FedSA's second stage never begins",
        "self.last_mean - mean < self.options.least_gain",
        "self.last_mean - mean < -self.options.least_gain",
        "tests/edgefl/strategies",
    ),
    Mutation(
        "weights of a mean are swapped",
        "weighted_sum((old, new), (1.0 - alpha, alpha))",
        "weighted_sum((old, new), (alpha, 1.0 - alpha))",
        "tests/edgefl/test_vectors.py tests/edgefl/strategies",
    ),
    Mutation(
        "the newest task number is forgotten",
        "for number in numbers if number >= self.count)",
        "for number in numbers if number > self.count)",
        "tests/edgefl/coordinator tests/edgefl/clocks",
    ),
    Mutation(
        "a huge update passes",
        "if norm > norm_bound:",
        "if norm > 1e9 * norm_bound:",
        "tests/edgefl/coordinator",
    ),
    Mutation(
        "an edge keeps one acknowledged update less",
        "len(self.unacknowledged) > MOST_UNACKNOWLEDGED",
        "len(self.unacknowledged) > MOST_UNACKNOWLEDGED - 1",
        "tests/edgefl/edges tests/edgefl/clocks",
    ),
    Mutation(
        "an offer may be twice too large",
        "if offer.size > self.most_bytes:",
        "if offer.size > 2 * self.most_bytes:",
        "tests/edgefl/protocol tests/edgefl/clocks",
    ),
    Mutation(
        "a sparse update may be empty",
        "return max(1, round(share * size))",
        "return max(0, round(share * size))",
        "tests/edgefl/compression",
    ),
    Mutation(
        "the journal loses its first segment",
        "if number >= since",
        "if number > since",
        "tests/edgefl/record tests/edgefl/clocks",
    ),
    Mutation(
        "few seeds are resampled",
        '"resampling" if n >= ENOUGH else "t"',
        '"resampling" if n > ENOUGH else "t"',
        "tests/edgefl/results",
    ),
    Mutation(
        "a deviation over n",
        "squares / (n - 1)",
        "squares / n",
        "tests/edgefl/results",
    ),
    Mutation(
        "an alarm a moment late",
        "if self.coordinator.next_due() <= now:",
        "if self.coordinator.next_due() < now:",
        "tests/edgefl/clocks/virtual",
    ),
    Mutation(
        "a silent edge has twice the time",
        "now - session.heard_ns > patience_ns",
        "now - session.heard_ns > 2 * patience_ns",
        "tests/edgefl/clocks/wall",
    ),
    Mutation(
        "useless messages without end",
        '"useless messages", self._now, MOST_USELESS)',
        '"useless messages", self._now, 1000 * MOST_USELESS)',
        "tests/edgefl/clocks/wall",
    ),
    Mutation(
        "one key for two edges",
        "if edge_ids.count(edge) > 1})",
        "if edge_ids.count(edge) > 2})",
        "tests/edgefl/clocks/wall",
    ),
    Mutation(
        "one rich device is enough",
        "if counts.min() >= options.min_samples:",
        "if counts.max() >= options.min_samples:",
        "tests/edgefl/data",
    ),
    Mutation(
        "a sum for a mean over time",
        "return total / seconds if seconds else None",
        "return total if seconds else None",
        "tests/edgefl/plugins/sweep",
    ),
    Mutation(
        "two heartbeats are enough",
        "to_ns(self.liveness_s) < 3 * to_ns(self.heartbeat_s)",
        "to_ns(self.liveness_s) < 2 * to_ns(self.heartbeat_s)",
        "tests/edgefl/config",
    ),
    Mutation(
        "one restart too many",
        "life.restarts_left > 0",
        "life.restarts_left >= 0",
        "tests/edgefl/plugins/launch",
    ),
    Mutation(
        "a timeline without its window",
        '(held["begin_s"] <= end_s) & (held["end_s"] >= begin_s)',
        '(held["begin_s"] <= end_s) | (held["end_s"] >= begin_s)',
        "tests/edgefl/plugins/live",
    ),
]


def place(tree: Path, mutation: Mutation) -> Path:
    """Return the file that holds the old text; it must stand once in the packages."""
    found = [
        path
        for package in PACKAGES
        for path in (tree / package).rglob("*.py")
        for _ in re.finditer(re.escape(mutation.old), path.read_text(encoding="utf-8"))
    ]
    if len(found) != 1:
        sys.exit(f"mutations: {mutation.name}: {mutation.old!r} stands {len(found)} times")
    return found[0]


def first_failure(copy: Path, words: list[str]) -> str | None:
    """Run the tests until one fails; return its name, or None."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-x", "-q", "-m", "not rest", "-n", "2"),
            *("-p", "no:cacheprovider", "--dist=loadfile", *words),
        ],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
    )
    hung = done.returncode == 3 and " failed" in done.stdout  # xdist fails when a test hangs
    if done.returncode not in (0, 1, 2) and not hung:
        sys.exit(f"mutations: pytest {' '.join(words)}: {done.stdout[-500:]}{done.stderr[-500:]}")
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return None if done.returncode == 0 else failed[1] if failed else "(no name)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=[each.name for each in MUTATIONS])
    parser.add_argument("--tree", type=Path, default=ROOT, metavar="DIR", help="another checkout")
    parser.add_argument("--all-tests", action="store_true", help="the whole suite, if need be")
    options = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory(prefix="mutations-") as name:
        copy = Path(name)
        for each in COPIED:
            source, ignored = options.tree / each, shutil.ignore_patterns("__pycache__", "_build")
            if source.is_dir():
                shutil.copytree(source, copy / each, symlinks=True, ignore=ignored)
            else:
                shutil.copy(source, copy / each)
        for mutation in MUTATIONS:
            if options.only and mutation.name not in options.only:
                continue
            file = place(copy, mutation)
            before = file.read_text(encoding="utf-8")
            file.write_text(before.replace(mutation.old, mutation.new), encoding="utf-8")
            tests = [word for word in mutation.tests.split() if (copy / word).exists()]
            found = first_failure(copy, tests)
            if found is None and options.all_tests:
                found = first_failure(copy, [])
            file.write_text(before, encoding="utf-8")
            missed += found is None
            where = file.relative_to(copy)
            print(f"{mutation.name} ({where}): {found or 'NOT FOUND'}", flush=True)
    print(f"{missed} not found")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()

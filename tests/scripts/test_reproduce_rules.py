"""The rule by which a claim holds, on three seeds that can be checked by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from paths import ROOT
from reproduced import results_of
from reproduction import rules
from reproduction.entry import MOST_SEEDS, Finding, Scale, Verdict
from reproduction.judges import judge, judged
from reproduction.results import NoResults
from scipy import stats

from edgefl.results.statistics import Interval, seeds_needed

A = {1: 0.80, 2: 0.82, 3: 0.84}
FAR = {1: 0.70, 2: 0.73, 3: 0.76}  # A - FAR: .10, .09, .08: mean .09, deviation .01
NEAR = {1: 0.70, 2: 0.75, 3: 0.80}  # A - NEAR: .10, .07, .04: mean .07, deviation .03
T2 = 4.302653  # 97.5 % quantile of Student's t with two degrees of freedom
COLUMN = "final_accuracy"


def test_a_paired_difference_has_students_interval() -> None:
    found = rules.paired(results_of(COLUMN, {"a": A, "b": FAR}), "a", "b", COLUMN)
    assert found.mean == pytest.approx(0.09) and found.interval is not None
    half = T2 * 0.01 / 3**0.5  # .0248
    assert (found.interval.low, found.interval.high) == pytest.approx((0.09 - half, 0.09 + half))
    assert str(found) == "+0.09 [+0.0652, +0.115] over 3 seeds"


@pytest.mark.parametrize(
    ("one", "other", "verdict"),
    [
        (A, FAR, Verdict.holds),  # .0652 to .1148
        (FAR, A, Verdict.fails),  # -.1148 to -.0652
        (A, NEAR, Verdict.unknown),  # -.0045 to .1445
        (A, A, Verdict.equal),  # 0 to 0
        ({1: 0.9}, {1: 0.1}, Verdict.unknown),  # one seed has no interval
        (A, {3: 0.1}, Verdict.unknown),  # one common seed
    ],
)
def test_a_comparison(one: dict[int, float], other: dict[int, float], verdict: Verdict) -> None:
    found = rules.better(results_of(COLUMN, {"a": one, "b": other}), "a", "b", COLUMN)
    assert found.verdict is verdict


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.001, 0.1, Verdict.holds),
        (0.001, 0.009, Verdict.equal),  # a difference, and none that matters
        (-0.009, -0.001, Verdict.equal),  # .001 refutes nothing
        (-0.03, -0.001, Verdict.fails),
        (-0.03, 0.009, Verdict.fails),  # no advantage that matters
        (-0.03, 0.011, Verdict.unknown),
        (-0.001, 0.03, Verdict.unknown),
    ],
)
def test_a_verdict_needs_an_effect_that_matters(low: float, high: float, verdict: Verdict) -> None:
    assert rules.verdict_of(Interval(low, high, "t"), 0.01) is verdict
    assert rules.verdict_of(None, 0.01) is Verdict.unknown


def test_what_matters_is_a_point_of_accuracy_or_a_share_of_the_other_number() -> None:
    assert rules.effect_of("final_accuracy", [0.5]) == 0.01
    assert rules.effect_of("final_accuracy", [0.5], 0.02) == 0.02
    assert rules.effect_of("time_to_target_s", [100.0, 300.0]) == 10.0
    assert rules.effect_of("late_train_loss", [2.0], 0.1) == 0.2
    assert rules.effect_of("stability", [0.5]) == 0.1
    given = results_of(COLUMN, {"a": A, "c": NEAR})  # -.0045 to .1445
    assert rules.better(given, "a", "c", COLUMN, effect=0.2).verdict is Verdict.equal
    assert rules.better(given, "a", "c", COLUMN, effect=0.1).verdict is Verdict.unknown


def seeds_of(numbers: Sequence[float | None]) -> dict[int, float | None]:
    return dict(enumerate(numbers, start=1))


def test_claims_are_judged_at_looks_that_share_the_five_per_cent() -> None:
    steady = [0.5, 0.5, 0.5, 0.5, 0.5]
    ahead = [0.55, 0.56, 0.54, 0.4, 0.7]

    def found(looks: tuple[int, ...], seeds: int) -> rules.Paired:
        both = {"a": seeds_of(ahead[:seeds]), "b": seeds_of(steady[:seeds])}
        given = results_of(COLUMN, both)
        entry = given.entry.model_copy(update={"looks": looks})
        return rules.paired(replace(given, entry=entry), "a", "b", COLUMN)

    one, three = found((3,), 3), found((3, 6, 12), 3)
    assert one.confidence == three.confidence > 0.983, "further seeds are judged by three looks"
    assert one.needed == three.needed
    assert one.interval is not None and three.interval is not None
    assert one.interval.low > three.interval.low
    early = found((3, 5), 2)
    assert early.interval is None and len(early.differences) == 2, "too early"
    first = found((3, 5), 3)
    assert first.interval is not None and first.interval.low > 0.01
    assert found((3, 5), 4) == first, "the fourth seed counts at the next look"
    assert len(found((3, 5), 5).differences) == 5
    small = replace(results_of(COLUMN, {"a": {1: 0.5, 2: 0.6}, "b": {1: 0.1, 2: 0.1}}))
    assert rules.paired(replace(small, scale=Scale.small), "a", "b", COLUMN).interval is not None


def test_a_seed_behind_the_look_changes_neither_the_effect_nor_the_worst_number() -> None:
    ours, theirs = [1.0, 1.1, None, 1.0], [2.0, 2.1, 2.2, 90.0]

    def found(seeds: int) -> tuple[rules.Paired, Finding]:
        both = {"a": seeds_of(ours[:seeds]), "b": seeds_of(theirs[:seeds])}
        given = results_of("late_train_loss", both)
        given = replace(given, entry=given.entry.model_copy(update={"looks": (3, 6)}))
        words = given, "a", "b", "late_train_loss"
        return rules.paired(*words), rules.better(*words)

    first, told = found(3)
    assert first.effect == pytest.approx(0.05 * 2.1)
    assert first.differences[3] == 0.0, "the worst one of three seeds"
    assert found(4) == (first, told), "nor the means that stand beside the difference"


@pytest.mark.parametrize("looks", [(3,), (3, 6, 12), (3, 6, 12, 24, 40)])
def test_verdicts_without_a_difference_are_wrong_in_five_per_cent(looks: tuple[int, ...]) -> None:
    """Normal differences around 0, judged at each look until one tells a sign."""
    drawn = np.random.default_rng(5).normal(size=(20_000, looks[-1]))
    wrong = np.zeros(len(drawn), dtype=bool)
    quantile = 1 - 0.05 / len(looks) / 2
    for look in looks:
        so_far = drawn[:, :look]
        t = so_far.mean(axis=1) / so_far.std(axis=1, ddof=1) * look**0.5
        wrong |= np.abs(t) > stats.t.ppf(quantile, look - 1)
    assert 0.03 < wrong.mean() < 0.055


def test_an_undecided_claim_says_how_many_seeds_it_needs() -> None:
    wild = {1: 0.76, 2: 0.87, 3: 0.82}  # A - wild: .04, -.05, .02: mean .0033, deviation .0473
    given = results_of(COLUMN, {"a": A, "b": wild, "c": NEAR})
    later = given.further_confidence  # that of three looks
    found = rules.better(given, "a", "b", COLUMN, effect=0.03)
    assert found.needed == seeds_needed(0.03 / 0.04726, later) == 29
    assert "29 seeds tell 0.03" in found.why
    found = rules.better(given, "a", "b", COLUMN)
    assert found.needed == MOST_SEEDS + 1 and "smaller than 0.1207" in found.ours
    near = rules.better(given, "a", "c", COLUMN)  # mean .07, deviation .03
    assert near.needed == seeds_needed(7 / 3, later) == 5 and "5 seeds tell 0.07" in near.why
    assert rules.every({"x": found}).needed == found.needed
    assert rules.every({"x": found, "near": near}).needed == 5, "near alone may refute it"
    assert rules.better(given, "c", "c", COLUMN).needed == 0, "decided"


def test_a_smaller_loss_is_the_better_one() -> None:
    given = results_of("late_train_loss", {"a": FAR, "b": A})
    assert rules.better(given, "a", "b", "late_train_loss").verdict is Verdict.holds


def test_a_run_that_never_arrives_counts_with_the_end() -> None:
    given = results_of(
        "time_to_target_s",
        {"a": {1: 20.0, 2: 22.0, 3: 24.0}, "b": {1: None, 2: 60.0, 3: None}},
        ends_s=90.0,
    )
    found = rules.paired(given, "a", "b", "time_to_target_s")
    assert dict(found.differences) == {1: 70.0, 2: 38.0, 3: 66.0}


def test_a_difference_that_is_only_a_bound_decides_on_its_side_alone() -> None:
    """A arrives just before the end at 100 s and B never: 3 s is the least, not "level"."""
    never = {1: None, 2: None, 3: None}
    given = results_of("time_to_target_s", {"a": {1: 97.0, 2: 97.5, 3: 97.2}, "b": never})

    def found(one: str, other: str) -> Verdict:
        return rules.better(given, one, other, "time_to_target_s").verdict

    assert (found("a", "b"), found("b", "a")) == (Verdict.holds, Verdict.fails)
    level = rules.equal(given, "a", "b", "time_to_target_s", 0.05)
    assert level.verdict is Verdict.unknown
    mixed = {"a": {1: 98.0, 2: 99.0, 3: None, 4: 99.0}, "b": {1: None, 2: 98.0, 3: 98.5, 4: 98.0}}
    given = results_of("time_to_target_s", mixed)
    assert found("a", "b") is found("b", "a") is Verdict.unknown, "bounds on both sides"


def test_seeds_in_which_neither_arrives_tell_nothing() -> None:
    def found(*own: float | None) -> rules.Paired:
        both = {"a": seeds_of(list(own)), "b": seeds_of([None] * len(own))}
        return rules.paired(results_of("time_to_target_s", both), "a", "b", "time_to_target_s")

    assert found(20.0, 20.5, None).verdict is Verdict.holds, "79.75 +- 3.2 of the two that tell"
    assert found(20.0, None, None).interval is None
    never = found(None, None, None)
    assert (never.ties, never.interval, never.verdict) == (3, None, Verdict.unknown)
    assert "in 3 of 3 seeds neither run has it" in never.found(never.verdict, "Time").why


def test_times_between_the_same_two_evaluations_are_equal() -> None:
    """A run that ends after 90 s with 9 versions, and an evaluation after each of them."""
    times = {"a": {1: 20.0, 2: 30.0, 3: 20.0}, "b": {1: 30.0, 2: 30.0, 3: 30.0}}
    given = results_of("time_to_target_s", times, ends_s=90.0)
    for versions, effect in ((9.0, 10.0), (90.0, 1.5)):  # 5 % of 30 s are more than 1 s
        rows = [replace(row, numbers={**row.numbers, "versions": versions}) for row in given.rows]
        found = rules.paired(replace(given, rows=rows), "a", "b", "time_to_target_s")
        assert found.effect == effect


def test_numbers_of_two_versions_of_the_rule_are_not_mixed() -> None:
    for column, told in ((COLUMN, Verdict.holds), ("convergence_accuracy", Verdict.missing)):
        given = results_of(column, {"a": A, "b": FAR})
        rows = [replace(row, rule=1 if row.method == "a" else 2) for row in given.rows]
        found = judged({"better": ["a", "b", column]}, replace(given, rows=rows))
        assert found.verdict is told
    assert "two versions of the rule" in found.why
    bounded = judged({"at_least": ["a", "convergence_accuracy"], "bound": 0.7}, given)
    assert bounded.verdict is Verdict.holds
    rows = [replace(row, rule=row.seed % 2 + 1) for row in given.rows]
    bounded = judged(
        {"at_least": ["a", "convergence_accuracy"], "bound": 0.7}, replace(given, rows=rows)
    )
    assert bounded.verdict is Verdict.missing


def test_a_loss_that_is_not_finite_counts_as_the_worst_one() -> None:
    given = results_of("final_loss", {"a": {1: 0.5, 2: None}, "b": {1: 2.0, 2: 1.0}})
    assert dict(rules.paired(given, "a", "b", "final_loss").differences) == {1: 1.5, 2: -1.0}
    none = results_of("final_loss", {"a": {1: None}, "b": {1: None}})
    with pytest.raises(NoResults, match="no run has a final loss"):
        rules.paired(none, "a", "b", "final_loss")


def test_a_claim_without_runs_is_not_run() -> None:
    given = results_of(COLUMN, {"a": A, "b": {}})
    found = judged({"better": ["a", "b", COLUMN]}, given)
    assert found.verdict is Verdict.missing and "no runs of b" in found.why
    apart = results_of(COLUMN, {"a": {1: 0.5}, "b": {2: 0.5}})
    found = judged({"better": ["a", "b", COLUMN]}, apart)
    assert found.verdict is Verdict.missing and "no seed" in found.why
    with pytest.raises(KeyError, match="no method 'c'"):
        judge({"better": ["a", "c", COLUMN]}, given)
    with pytest.raises(KeyError, match="study: expected one rule, found bether"):
        judge({"bether": ["a", "b", COLUMN]}, given)


def readings(count: int, statement: dict[str, object]) -> dict[str, object]:
    """Return the judge that one of so many readings gives a statement."""
    of = {str(place): "study" for place in range(count)}
    return {"one_reading_gives_all": [of, {"one": statement}]}


def test_judges_of_several_statements() -> None:
    given = results_of(COLUMN, {"a": A, "b": FAR, "c": NEAR})
    statements = [
        {"name": "far", "better": ["a", "b"], "column": COLUMN},
        {"name": "near", "better": ["a", "c"], "column": COLUMN},
    ]
    assert judge({"every": statements}, given).verdict is Verdict.unknown
    assert judge({"some": statements}, given).verdict is Verdict.holds
    missing = {"name": "elsewhere", "of": "other", "judge": statements[0]}
    assert judge({"some": [missing, statements[0]]}, given).verdict is Verdict.holds
    assert judge({"some": [missing, statements[1]]}, given).verdict is Verdict.missing
    assert judged({"every": [missing]}, given).verdict is Verdict.missing
    assert judge({"not_better": ["b", "a", COLUMN]}, given).verdict is Verdict.holds
    barely = {1: 0.74, 2: 0.765, 3: 0.79}  # A - barely: .06, .055, .05: holds at 95 %, not at 99.9
    given = replace(results_of(COLUMN, {"a": A, "b": barely}), of=lambda name: given)
    one = {"name": "one", "better": ["a", "b"], "column": COLUMN}
    assert judge({"some": [one, one]}, given).verdict is Verdict.holds
    for words in ({"some": [{"name": "x", "some": [one] * 10}] * 50}, readings(50, one)):
        assert judge(words, replace(given, of=lambda name: given)).verdict is Verdict.unknown


def test_numbers_without_an_interval() -> None:
    given = results_of(COLUMN, {"a": A, "b": FAR})
    ratio = {"ratio_at_most": {"one": ["b", "a"]}, "column": COLUMN}
    assert judge({**ratio, "most": 0.9}, given).verdict is Verdict.holds
    assert judge({**ratio, "most": 0.8}, given).verdict is Verdict.fails


def test_an_order_needs_all_its_steps() -> None:
    worst = {1: 0.1, 2: 0.11, 3: 0.12}
    given = results_of(COLUMN, {"a": A, "b": FAR, "c": worst, "near": NEAR})
    assert rules.order(given, ["a", "b", "c"], COLUMN).verdict is Verdict.holds
    assert rules.order(given, ["a", "c", "b"], COLUMN).verdict is Verdict.fails
    assert rules.order(given, ["a", "near", "c"], COLUMN).verdict is Verdict.unknown
    assert rules.best(given, "a", ["b", "c"], COLUMN).verdict is Verdict.holds
    assert rules.best(given, "a", ["b", "near"], COLUMN).verdict is Verdict.unknown
    assert rules.best(given, "c", ["b", "near"], COLUMN).verdict is Verdict.fails


def test_a_statement_that_fails_decides_although_another_one_was_not_run() -> None:
    given = results_of(COLUMN, {"a": A, "b": FAR, "gone": {}})
    fails = {"name": "fails", "better": ["b", "a"], "column": COLUMN}
    holds = {"name": "holds", "better": ["a", "b"], "column": COLUMN}
    missing = {"name": "gone", "better": ["b", "gone"], "column": COLUMN}
    assert judged({"every": [missing, fails]}, given).verdict is Verdict.fails
    assert judged({"every": [missing, holds]}, given).verdict is Verdict.missing
    for best, verdict in (("b", Verdict.fails), ("a", Verdict.missing)):
        others = [each for each in ("gone", "a", "b") if each != best]
        found = judged({"best": [best, others]} | {"column": COLUMN}, given)
        assert found.verdict is verdict and "gone: not run. study: no runs of gone" in found.why
    assert judged({"order": [["gone", "b", "a"]]} | {"column": COLUMN}, given).verdict is (
        Verdict.fails
    )


@pytest.mark.parametrize(
    ("within", "verdict"),
    [(0.12, Verdict.holds), (0.1, Verdict.unknown), (0.06, Verdict.fails)],
)
def test_two_methods_are_level(within: float, verdict: Verdict) -> None:
    given = results_of(COLUMN, {"a": A, "b": FAR})  # .0652 to .1148
    assert rules.equal(given, "a", "b", COLUMN, within).verdict is verdict


def test_seeds_that_tell_whether_methods_are_level_depend_on_the_distance_to_the_bound() -> None:
    given = results_of(COLUMN, {"a": A, "b": FAR})  # .09, deviation .01
    found = rules.equal(given, "a", "b", COLUMN, 0.1)
    assert found.needed == seeds_needed(1.0, given.further_confidence)
    assert f"{found.needed} seeds tell 0.01 with" in found.why
    assert rules.equal(given, "a", "b", COLUMN, 0.091).needed == MOST_SEEDS + 1


@pytest.mark.parametrize(
    ("bound", "least", "most"),
    [
        (0.7, Verdict.holds, Verdict.fails),
        (0.8, Verdict.unknown, Verdict.unknown),  # A: .82 +- .0497
        (0.9, Verdict.fails, Verdict.holds),
    ],
)
def test_a_mean_is_on_one_side(bound: float, least: Verdict, most: Verdict) -> None:
    given = results_of(COLUMN, {"a": A, "alone": {1: 0.9}, "lost": {1: None, 2: 0.9}})
    assert rules.at_least(given, "a", COLUMN, bound).verdict is least
    assert rules.at_most(given, "a", COLUMN, bound).verdict is most
    assert rules.at_least(given, "alone", COLUMN, bound).verdict is Verdict.unknown
    found = rules.at_least(given, "lost", COLUMN, bound)
    assert found.verdict is Verdict.unknown and "1 of 2 runs have no final accuracy" in found.why


def test_a_mean_is_that_of_the_seeds_of_its_interval() -> None:
    for late in (0.1, None):
        given = results_of(COLUMN, {"a": {**A, 4: late}})
        given = replace(given, entry=given.entry.model_copy(update={"looks": (3, 6)}))
        found = rules.at_least(given, "a", COLUMN, 0.7)
        assert (found.ours, found.verdict) == ("0.82 ± 0.02", Verdict.holds)


# losses over S without and with delay: 50 is best, then 10; 25 is told from neither
BEFORE = {"s10": {1: 0.9, 2: 0.92, 3: 0.91}, "s50": {1: 0.5, 2: 0.52, 3: 0.51}}
AFTER = {"d10": {1: 0.3, 2: 0.32, 3: 0.31}, "d50": {1: 0.6, 2: 0.62, 3: 0.61}}
LIKE_50 = {"s25": {1: 0.55, 2: 0.50, 3: 0.54}}
LIKE_10 = {"d25": {1: 0.28, 2: 0.40, 3: 0.33}}


def test_the_best_of_a_family() -> None:
    given = results_of("final_loss", BEFORE | LIKE_50)
    family = {10.0: "s10", 25.0: "s25", 50.0: "s50"}
    found = rules.optimum(given, family, "final_loss")
    assert (found.at, found.candidates) == (50.0, (25.0, 50.0))
    assert str(found) == "50 (not told from 25, 50)"

    def verdict(*claimed: float) -> Verdict:
        return rules.optimum_at(given, family, "final_loss", claimed).verdict

    assert verdict(50.0) is Verdict.unknown and verdict(25.0, 50.0) is Verdict.holds
    assert verdict(10.0) is Verdict.fails
    late = {**LIKE_50["s25"], 4: 0.1}  # a seed behind the look, of one member
    given = replace(results_of("final_loss", {**BEFORE, "s25": late}), entry=given.entry)
    assert rules.optimum(given, family, "final_loss") == found
    assert "25: 0.53 " in rules.family_text(given, family, "final_loss")


def test_the_best_of_a_family_falls() -> None:
    given = results_of("final_loss", BEFORE | AFTER | LIKE_50 | LIKE_10)
    before, after = {10.0: "s10", 50.0: "s50"}, {10.0: "d10", 50.0: "d50"}

    def verdict(one: dict[float, str], other: dict[float, str]) -> Verdict:
        return rules.optimum_falls(given, one, other, "final_loss").verdict

    assert verdict(before, after) is Verdict.holds
    assert verdict(after, before) is Verdict.fails
    assert verdict(before, before) is Verdict.fails, "it stays where it is"
    assert verdict(before | {25.0: "s25"}, after | {25.0: "d25"}) is Verdict.unknown
    with pytest.raises(NoResults):
        rules.optimum(results_of("final_loss", {"s10": {}}), {10.0: "s10"}, "final_loss")


def test_several_findings() -> None:
    holds, fails, equal, unknown, missing = (Finding("x", verdict) for verdict in Verdict)

    def all_of(*given: Finding) -> Verdict:
        return rules.every(dict(zip("abc", given))).verdict

    def one_of(*given: Finding) -> Verdict:
        return rules.some(dict(zip("abc", given))).verdict

    assert all_of(holds, holds) is Verdict.holds and all_of(holds, unknown) is Verdict.unknown
    assert all_of(holds, unknown, fails) is Verdict.fails
    assert all_of(holds, missing, unknown) is Verdict.missing
    assert all_of(holds, equal) is Verdict.equal and all_of(equal, unknown) is Verdict.unknown
    assert one_of(fails, equal) is Verdict.equal and one_of(holds, equal) is Verdict.holds
    assert one_of(fails, holds, missing) is Verdict.holds and one_of(fails, fails) is Verdict.fails
    assert one_of(fails, unknown) is Verdict.unknown and one_of(fails, missing) is Verdict.missing
    assert rules.every({"a": holds, "b": fails}).why == "a: holds. b: does not hold."
    numbers = {name: Finding(f"+{place}", Verdict.fails) for place, name in enumerate("pqrst")}
    ours = rules.every({"a": Finding("+9", Verdict.holds), **numbers}).ours
    assert ours == "p +0; q +1; r +2; and 2 more", "of those that decide"
    assert rules.fact(True, "3 = 3").verdict is Verdict.holds


def test_where_one_statement_is_enough_they_share_the_wrong_verdicts() -> None:
    given = results_of(COLUMN, {"a": A, "far": FAR, "c": NEAR})
    apart = {"name": "far", "better": ["a", "far", COLUMN]}
    tenth = [{"name": f"c{place}", "better": ["a", "c", COLUMN]} for place in range(9)]
    assert judge(apart, given).verdict is Verdict.holds
    assert judge({"some": [apart]}, given).verdict is Verdict.holds
    found = judge({"some": [apart, *tenth]}, given)  # .09 - t(99.75 %, 2) * .01 / 3^.5
    assert found.verdict is Verdict.holds and "[+0.00866, " in found.ours
    more = judge({"some": [apart, *tenth, *tenth]}, given)
    assert more.verdict is Verdict.unknown, "with 19 statements one so far from 0 may be chance"


def test_a_claim_of_few_readings_says_what_the_others_found() -> None:
    one = Finding("+1", Verdict.holds, effects=(1.0, 0.5, 1.5))
    other = Finding("-1", Verdict.fails, effects=(-1.0, -2.0, -0.5))
    assert rules.some({"a": one, "b": other}).ours == "a +1; b: does not hold"
    assert rules.some({"a": one, "b": replace(one, effects=(2.0, 1.0, 3.0))}).effects[0] == 2.0


def test_the_page_of_the_rule_names_every_verdict() -> None:
    page = (ROOT / "docs" / "results" / "rule.md").read_text(encoding="utf-8")
    assert all(f"**{verdict}**" in page for verdict in Verdict)

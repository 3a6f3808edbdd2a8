"""The rule by which a claim holds, on three seeds that can be checked by hand."""

from __future__ import annotations

import pytest
from paths import ROOT
from reproduced import results_of
from reproduction import rules
from reproduction.entry import Finding, Verdict
from reproduction.judges import judge, judged
from reproduction.results import NoResults

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
        (A, A, Verdict.fails),  # 0 to 0: no method is better than itself
        ({1: 0.9}, {1: 0.1}, Verdict.unknown),  # one seed has no interval
        (A, {3: 0.1}, Verdict.unknown),  # one common seed
    ],
)
def test_a_comparison(one: dict[int, float], other: dict[int, float], verdict: Verdict) -> None:
    found = rules.better(results_of(COLUMN, {"a": one, "b": other}), "a", "b", COLUMN)
    assert found.verdict is verdict


def test_a_claim_of_a_size() -> None:
    given = results_of(COLUMN, {"a": A, "b": FAR, "c": NEAR})
    assert rules.better(given, "a", "b", COLUMN, by=0.06).verdict is Verdict.holds
    assert rules.better(given, "a", "b", COLUMN, by=0.10).verdict is Verdict.unknown
    assert rules.better(given, "a", "b", COLUMN, by=0.12).verdict is Verdict.fails
    # -.0045 to .1445: a gain of .2 is excluded, one of .1 is not
    assert rules.better(given, "a", "c", COLUMN, least=0.2).verdict is Verdict.fails
    assert rules.better(given, "a", "c", COLUMN, least=0.1).verdict is Verdict.unknown


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
    never = results_of("time_to_target_s", {"a": {1: None, 2: None}, "b": {1: None, 2: None}})
    assert rules.better(never, "a", "b", "time_to_target_s").verdict is Verdict.fails, "0 to 0"


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


def test_numbers_without_an_interval() -> None:
    given = results_of(COLUMN, {"a": A, "b": FAR, "part": {1: 0.80, 2: 0.80, 3: 0.90}})
    assert judge({"larger_each_seed": ["a", "b", COLUMN]}, given).verdict is Verdict.holds
    assert judge({"larger_each_seed": ["a", "part", COLUMN]}, given).verdict is Verdict.fails
    ratio = {"ratio_at_most": {"one": ["b", "a"]}, "column": COLUMN}
    assert judge({**ratio, "most": 0.9}, given).verdict is Verdict.holds
    assert judge({**ratio, "most": 0.8}, given).verdict is Verdict.fails
    by_seed = ["a", "b", COLUMN]  # .10, .09, .08
    assert judge({"ahead_by_seed": by_seed, "by": 0.07}, given).verdict is Verdict.holds
    assert judge({"ahead_by_seed": by_seed, "by": 0.08}, given).verdict is Verdict.fails
    assert judge({"level_by_seed": by_seed, "within": 0.11}, given).verdict is Verdict.holds
    assert judge({"level_by_seed": by_seed, "within": 0.09}, given).verdict is Verdict.fails


def test_an_order_needs_all_its_steps() -> None:
    worst = {1: 0.1, 2: 0.11, 3: 0.12}
    given = results_of(COLUMN, {"a": A, "b": FAR, "c": worst, "near": NEAR})
    assert rules.order(given, ["a", "b", "c"], COLUMN).verdict is Verdict.holds
    assert rules.order(given, ["a", "c", "b"], COLUMN).verdict is Verdict.fails
    assert rules.order(given, ["a", "near", "c"], COLUMN).verdict is Verdict.unknown
    assert rules.best(given, "a", ["b", "c"], COLUMN).verdict is Verdict.holds
    assert rules.best(given, "a", ["b", "near"], COLUMN).verdict is Verdict.unknown
    assert rules.best(given, "c", ["b", "near"], COLUMN).verdict is Verdict.fails


@pytest.mark.parametrize(
    ("within", "verdict"),
    [(0.12, Verdict.holds), (0.1, Verdict.unknown), (0.06, Verdict.fails)],
)
def test_two_methods_are_level(within: float, verdict: Verdict) -> None:
    given = results_of(COLUMN, {"a": A, "b": FAR})  # .0652 to .1148
    assert rules.equal(given, "a", "b", COLUMN, within).verdict is verdict


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
    holds, fails, unknown, missing = (Finding("x", verdict) for verdict in Verdict)

    def all_of(*given: Finding) -> Verdict:
        return rules.every(dict(zip("abc", given))).verdict

    def one_of(*given: Finding) -> Verdict:
        return rules.some(dict(zip("abc", given))).verdict

    assert all_of(holds, holds) is Verdict.holds and all_of(holds, unknown) is Verdict.unknown
    assert all_of(holds, unknown, fails) is Verdict.fails
    assert all_of(holds, missing, unknown) is Verdict.missing
    assert one_of(fails, holds, missing) is Verdict.holds and one_of(fails, fails) is Verdict.fails
    assert one_of(fails, unknown) is Verdict.unknown and one_of(fails, missing) is Verdict.missing
    assert rules.every({"a": holds, "b": fails}).why == "a: holds. b: does not hold."
    assert rules.fact(True, "3 = 3").verdict is Verdict.holds


def test_the_page_of_the_rule_names_every_verdict() -> None:
    page = (ROOT / "docs" / "results" / "rule.md").read_text(encoding="utf-8")
    assert all(f"**{verdict}**" in page for verdict in Verdict)

"""From a claim's ``judge``, which is data, to a finding: rules by name, and their combinations.

A judge is a table: the name of a rule with its first arguments, and further arguments by name, as
``{better = ["fedasmu", "fedasync"], column = "final_accuracy"}``. A method is "METHOD" of the part
"main", or "PART/METHOD". More keys: ``of`` names another entry whose results are judged, ``name``
is the name of a statement of several, and ``judge``, in place of a rule, is a judge itself.

Rules are those of ``rules`` and of single papers, and three that take judges: ``every``, ``some``
and ``one_reading_gives_all``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from reproduction import dissemination, rules, tdma
from reproduction.entry import Finding, Verdict
from reproduction.results import NoResults, Results

Judge = Mapping[str, Any]


def judge(spec: Judge, results: Results) -> Finding:
    """Return what a judge finds. NoResults without the runs that it needs; KeyError: no rule."""
    if "of" in spec:
        results = replace(results.of(spec["of"]), among=results.among)
    if "judge" in spec:
        return judge(spec["judge"], results)
    found = [key for key in spec if key in RULES]
    if len(found) != 1:
        raise KeyError(f"{results.entry.name}: expected one rule, found {', '.join(spec)}")
    first = spec[found[0]]
    given = map(_keyed, first if isinstance(first, list) else [first])
    more = {key: _keyed(spec[key]) for key in spec if key not in (*found, "of", "name")}
    return RULES[found[0]](results, *given, **more)


def judged(spec: Judge, results: Results) -> Finding:
    """Return what a judge finds; "not run" without the runs that it needs."""
    try:
        return judge(spec, results)
    except NoResults as error:
        return rules.not_run(error)


def _keyed(value: Any) -> Any:
    """Return a family, x -> method, with its x as numbers: TOML has only text as keys."""
    if isinstance(value, dict) and all(key.isdecimal() for key in value):
        return {float(key): each for key, each in value.items()}
    return value


# ------------------------------------------------------------------ several judges
def every(results: Results, *specs: Judge) -> Finding:
    """Judge a claim of several statements: it holds if all hold, and not if one does not."""
    return rules.every({each["name"]: judged(each, results) for each in specs})


def some(results: Results, *specs: Judge) -> Finding:
    """Judge a claim that one statement is enough for: they share the 5 % of wrong verdicts."""
    one = rules.shared(results, len(specs))
    return rules.some({each["name"]: judged(each, one) for each in specs})


def one_reading_gives_all(
    results: Results, readings: Mapping[str, str], statements: Mapping[str, Judge]
) -> Finding:
    """Judge "one reading gives all statements". ``readings``: name -> the entry with its runs.

    Holds: all statements of one reading hold. Does not hold: in each reading one fails. NoResults
    if no reading has runs.
    """
    found, missing = {}, []
    for letter, entry in readings.items():
        try:
            runs = results.of(entry)
        except NoResults:
            missing.append(letter)
        else:
            one = rules.shared(replace(runs, among=results.among), len(readings))
            found[letter] = {name: judged(each, one) for name, each in statements.items()}
    if not found:
        raise NoResults("no reading has runs")
    return of_readings(found, missing)


def of_readings(found: Mapping[str, Mapping[str, Finding]], missing: list[str]) -> Finding:
    """Judge "one reading gives all": reading -> statement -> finding, and readings without runs."""
    verdict = rules.some({name: rules.every(each) for name, each in found.items()}).verdict
    if missing and verdict is not Verdict.holds:
        verdict = Verdict.unknown
    counts, why = [], []
    for name, each in found.items():
        held = [one for one, finding in each.items() if finding.verdict is Verdict.holds]
        against = [one for one, finding in each.items() if finding.verdict is Verdict.fails]
        open_ones = [one for one in each if one not in (*held, *against)]
        counts.append(f"{name}: {len(held)} of {len(each)}")
        said = [f"against it: {', '.join(against)}"] if against else []
        said += [f"not told: {', '.join(open_ones)}"] if open_ones else []
        why += [f"Reading {name}, {'; '.join(said)}."] if said else []
    why += [f"Not run: reading {', '.join(missing)}."] if missing else []
    return Finding("; ".join(counts), verdict, " ".join(why))


RULES: dict[str, Callable[..., Finding]] = {
    rule.__name__: rule
    for rule in (
        rules.better,
        rules.not_better,
        rules.best,
        rules.order,
        rules.equal,
        rules.at_least,
        rules.at_most,
        rules.optimum_at,
        rules.optimum_falls,
        rules.ratio_at_most,
        rules.parts_agree,
        rules.cannot_run,
        *dissemination.RULES,
        *tdma.RULES,
        every,
        some,
        one_reading_gives_all,
    )
}

"""``[devices.sampler]``: from a file in the config to the speeds of a run's devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefl.clocks.setup.network import rates
from edgefl.config.experiment import Experiment, parts
from edgefl.config.file import dump, from_json, load, to_json
from edgefl.errors import UserError
from edgefl.streams import Streams

PHONES = "Model,AI Score,Latency ms\nPixel 3,100,40\nGalaxy S9,400,10\nMoto G,50,100\n"
CONFIG = """
name = "drawn"
strategies = [{ strategy = "fedavg" }]
stop = { versions = 2 }
edges = { count = 8 }
[devices]
samples_per_s = 100.0
[devices.sampler]
file = "phones.csv"
column = "AI Score"
"""
GROUPS = """
[[groups]]
name = "a"
count = 4
[[groups]]
name = "b"
count = 2
devices = { sampler = { file = "phones.csv", column = "Latency ms", measure = "time" } }
[[groups]]
name = "c"
count = 2
devices = { spread = "lognormal", sigma = 0.5 }
"""


def written(tmp_path: Path, text: str = CONFIG) -> Path:
    (tmp_path / "phones.csv").write_text(PHONES)
    (tmp_path / "drawn.toml").write_text(text)
    return tmp_path / "drawn.toml"


def speeds(experiment: Experiment) -> list[list[float]]:
    return [
        rates(
            part.devices,
            len(part.ids),
            Streams(experiment.seed),
            (part.name,) if part.name else (),
        )
        for part in parts(experiment)
    ]


def test_the_numbers_are_in_the_config_and_need_no_file_again(tmp_path: Path) -> None:
    experiment = load(written(tmp_path))
    sampler = experiment.devices.sampler
    assert sampler is not None and sampler.values == (100, 400, 50) and sampler.file is None
    assert sampler.origin == "phones.csv: AI Score"
    whole = load(tmp_path / "drawn.toml", [f'devices.sampler.file="{tmp_path}/phones.csv"'])
    assert from_json(to_json(whole, whole.strategies[0])).devices.sampler == sampler
    (found,) = speeds(experiment)
    assert set(found) <= {100.0, 400.0, 50.0} and len(set(found)) > 1  # the median has 100
    (tmp_path / "phones.csv").unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "config.toml").write_text(dump(experiment, {}))
    assert speeds(load(elsewhere / "config.toml")) == [found]
    assert speeds(from_json(to_json(experiment, experiment.strategies[0]))) == [found]


def test_the_draw_follows_from_the_seed_and_has_numbers_of_its_own(tmp_path: Path) -> None:
    path = written(tmp_path)
    drawn = [speeds(load(path, [f"seed={seed}"]))[0] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    plain = written(tmp_path, CONFIG.partition("[devices.sampler]")[0])
    uniform = speeds(load(plain, ["devices.slowest_ratio=3.0", "seed=1"]))
    streams = Streams(1)
    streams.rng("sampler").integers(3, size=8)
    assert rates(load(plain, ["devices.slowest_ratio=3.0"]).devices, 8, streams, ()) == uniform[0]


def test_groups_have_a_table_of_their_own_or_none(tmp_path: Path) -> None:
    first, second, third = parts(load(written(tmp_path, CONFIG + GROUPS)))
    assert first.devices.sampler is not None and first.devices.sampler.measure == "score"
    assert second.devices.sampler is not None
    assert second.devices.sampler.values == (40, 10, 100)
    assert third.devices.sampler is None and third.devices.sigma == 0.5
    found = speeds(load(tmp_path / "drawn.toml"))
    assert set(found[1]) <= {100.0, 400.0, 40.0}


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ('devices.sampler.file="phone.csv"', r"devices.sampler.file: .*phone.csv: cannot be read"),
        ('devices.sampler.column="AI Scores"', "did you mean AI Score?"),
        ("devices.sampler.values=[1.0]", "file: expected no values with it"),
        ('devices.sampler={file="phones.csv"}', "column: missing; file needs it"),
        ('devices.sampler={values=[1.0],column="a"}', "column: expected only with file"),
        ("devices.sampler={values=[1.0,0.0]}", "values"),
        ("devices.slowest_ratio=2.0", "sampler: expected spread = "),
    ],
)
def test_a_wrong_sampler_is_one_line(tmp_path: Path, override: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as raised:
        load(written(tmp_path), [override])
    assert "\n" not in str(raised.value)


def test_a_config_from_the_wire_names_no_file(tmp_path: Path) -> None:
    """A coordinator cannot make an edge read its files: the file is refused where it is used."""
    experiment = load(written(tmp_path))
    text = to_json(experiment, experiment.strategies[0])
    named = text.replace('"values":[100.0,400.0,50.0]', '"file":"phones.csv","column":"AI Score"')
    assert named != text
    with pytest.raises(UserError, match="devices.sampler.file phones.csv: was not read here"):
        speeds(from_json(named))

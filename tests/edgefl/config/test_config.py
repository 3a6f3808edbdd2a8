"""The experiment file: error lines, overrides, `extends`, dump and load, digests."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from paths import CONFIGS
from pydantic import BaseModel

from edgefl.config import file
from edgefl.config import file as config_file
from edgefl.config.file import base_of, load
from edgefl.config.keys import ALIASES, meant, sections
from edgefl.data.partition.dirichlet import Options
from edgefl.errors import UserError
from edgefl.strategies.base.strategy import SelectingOptions

GOOD = """
[stop]
versions = 3
[partition]
name = "dirichlet"
alpha = 0.5
[model]
name = "mlp"
hidden = [8, 4]
[training]
epochs = 2
[[strategies]]
strategy = "fedavg"
clients_per_round = 4
[[strategies]]
strategy = "fedasync"
alpha = 0.5
"""
OWN = "; one of your own: 'package.module:attribute' or 'path/to/file.py:attribute'"
QUICKSTART = CONFIGS / "quickstart.toml"


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.toml"
    path.write_text(GOOD)
    return path


def refusal(path: Path, *overrides: str) -> str:
    """The error line, without the folder of the file."""
    with pytest.raises(UserError) as caught:
        config_file.load(path, overrides)
    return str(caught.value).replace(f"{path.parent}/", "")


def replaced(said: str, instead: str) -> str:
    assert said in GOOD
    return GOOD.replace(said, instead)


@pytest.mark.parametrize(
    ("said", "instead", "line"),
    [
        # unknown keys: a typo here, a key of another table, nothing near
        ("epochs = 2", "epoch = 2", "training.epoch: unknown key (nearest: 'epochs')"),
        (
            "[stop]",
            "learning_rate = 0.1\n[stop]",
            "learning_rate: unknown key (nearest: 'training.learning_rate')",
        ),
        ('name = "dirichlet"', 'name = "iid"', "partition.alpha: unknown key (valid: name)"),
        # missing
        ("[stop]\nversions = 3", "", "stop: missing: expected [stop] with emulated_s or versions"),
        ('name = "mlp"', 'nam = "mlp"', "model.name: missing; 'nam' is given, is it this key?"),
        # wrong type
        ("epochs = 2", 'epochs = "2"', "training.epochs: expected a whole number, found '2'"),
        # wrong value
        (
            "epochs = 2",
            "learning_rate = nan",
            "training.learning_rate: expected a finite number, found nan",
        ),
        (
            "[stop]",
            "seed = 99999999999999999999\n[stop]",
            "seed: expected a whole number of at most 64 bits, found 99999999999999999999",
        ),
        (
            "[training]\nepochs = 2",
            "[links]\nkind = 'natve'",
            "links.kind: expected 'emulated' or 'native', found 'natve' (nearest: 'native')",
        ),
        (
            "[training]\nepochs = 2",
            "[network]\nliveness_s = 1",
            "network: liveness_s: expected at least 3 times heartbeat_s (1.5), found 1",
        ),
        # names
        (
            '"fedasync"',
            '"fedasink"',
            "strategies[1].strategy: unknown strategy 'fedasink' (nearest: 'fedasync')" + OWN,
        ),
        (
            '"fedasync"',
            '"p/noclass.py"',
            "strategies[1].strategy: strategy 'p/noclass.py': the class is missing: expected"
            " 'p/noclass.py:MyAlgo'",
        ),
        (
            '"fedasync"\nalpha = 0.5',
            '"fedavg"',
            "two strategies are named 'fedavg': give one of them another label",
        ),
        (
            "[training]",
            "[network]\nmax_edges = 9\n[training]",
            "network.max_edges: expected at least the number of edges (10), found 9",
        ),
        (
            "clients_per_round = 4",
            "label = 'figures'",
            (
                "strategies[0].label: expected a name for a directory (letters, digits, _ . -),"
                " found 'figures'"
            ),
        ),
        (
            "[training]\nepochs = 2",
            "[edges]\nnames = ['a', 'b', 'a']",
            "edges.names: expected different names, found 'a' twice",
        ),
        (
            "[training]\nepochs = 2",
            "[edges]\nper_process = 0",
            "edges.per_process: expected greater than or equal to 1 or 'auto', found 0",
        ),
        (
            "[training]\nepochs = 2",
            "[edges]\nper_process = 2\n[devices]\nkind = 'native'",
            (
                'edges.per_process: expected 1 or "auto" with native devices, found 2: their'
                " training takes the time that the hardware needs for one of them"
            ),
        ),
    ],
)
def test_bad_input_gives_its_line(tmp_path: Path, said: str, instead: str, line: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(replaced(said, instead))
    assert refusal(path) == f"x.toml: {line}"


WHOLE = "stop.versions = 1\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "stop: missing: expected [stop] with emulated_s or versions"),
        (WHOLE + "strategies = 3", "strategies: expected an array, found 3"),
        (
            WHOLE + "name = 'a b'",
            (
                "name: expected at most 64 of A-Z, a-z, 0-9, _, . and -, beginning with a letter or"
                " digit: it names a directory, found 'a b'"
            ),
        ),
        (
            "[stop\nversions = 1",
            (
                "is not valid TOML: Expected ']' at the end of a table declaration (at line 1,"
                " column 6)"
            ),
        ),
        ("[[hosts]]", "is an inventory of hosts, expected the config of an experiment"),
        (
            WHOLE + f"task = '{'x' * 70}'\nseed = '{'x' * 70}'",
            f"seed: expected a whole number, found '{'x' * 56}...",
        ),
    ],
)
def test_a_file_that_is_no_experiment(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text)
    assert refusal(path) == f"x.toml: {line}"


def test_files_that_cannot_be_read(good: Path) -> None:
    folder = good.parent
    assert refusal(folder / "god.toml") == "god.toml: no such file (nearest: 'good.toml')"
    assert (
        refusal(folder / "no" / "x.toml")
        == "x.toml: no such file; `edgefl configs` lists those that come with edgefl"
    )
    assert refusal(folder).endswith("cannot be read (Is a directory); expected a TOML file")
    (folder / "latin.toml").write_bytes(b"name = '\xe4'")
    assert (
        refusal(folder / "latin.toml")
        == "latin.toml: is not UTF-8 text (byte 8 is 0xe4, as in Latin-1): save it as UTF-8"
    )


def test_own_parts_must_have_a_file(good: Path) -> None:
    (good.parent / "my_model.py").write_text("raise SystemExit  # must not be run by the check\n")
    assert (
        config_file.load(good, ["model.name=my_model.py:build"]).model.name == "my_model.py:build"
    )
    line = refusal(good, "model.name=my_modle.py:build")
    assert line.startswith(
        "override 'model.name=my_modle.py:build': model.name: no file my_modle.py or "
    ) and line.endswith("(nearest: 'my_model.py')")
    assert refusal(good, "task=my_task.py:build").startswith(
        "override 'task=my_task.py:build': task: no file my_task.py or "
    )


def test_own_strategy_is_found_beside_the_config_and_its_options_are_checked(good: Path) -> None:
    (good.parent / "mine.py").write_text(
        "from edgefl.strategies.fedavg import FedAvg\nclass Mine(FedAvg):\n    pass\nother = 3\n"
    )
    loaded = config_file.load(good, ["strategies.0.strategy=mine.py:Mine"])
    assert loaded.strategies[0].name == "mine"
    assert "unknown key (nearest: 'clients_per_round')" in refusal(
        good, "strategies.0.strategy=mine.py:Mine", "strategies.mine.client_per_round=3"
    )
    assert (
        "strategies[0].strategy: 'mine.py:Mne': mine.py has no 'Mne' (nearest: 'Mine')"
        in refusal(good, "strategies.0.strategy=mine.py:Mne")
    )


def test_overrides_by_path_index_and_name(good: Path) -> None:
    said = [
        "seed=7",
        "name=abc",
        "links.up_mbit_s=2",
        "strategies.0.clients_per_round=5",
        "strategies.fedasync.alpha=0.25",
        "model.hidden.1=9",
    ]
    loaded = config_file.load(
        good,
        [
            *said,
            "evaluation.target_accuracy = 0.9",
            'network.host="10.0.0.1"',
            "edges.names=['pi-1', 'pi-2']",
        ],
    )
    assert (
        loaded.seed,
        loaded.name,
        loaded.links.up_mbit_s,
        loaded.evaluation.target_accuracy,
    ) == (7, "abc", 2.0, 0.9)
    assert [entry.options() for entry in loaded.strategies] == [
        {"clients_per_round": 5},
        {"alpha": 0.25},
    ]
    assert (
        loaded.model.options() == {"hidden": [8, 9]}
        and loaded.network.host == "10.0.0.1"
        and loaded.edges.ids() == ["pi-1", "pi-2"]
    )
    assert (
        config_file.load(good, ["network.host=127.0.0.2"]).network.host == "127.0.0.2"
    )  # no TOML value, so it is text
    assert config_file.load(
        good, ["strategies.1.label=mine", "strategies.mine.alpha=1.0"]
    ).strategies[1].options() == {"alpha": 1.0}


@pytest.mark.parametrize(
    ("override", "line"),
    [
        (
            "training.epochs=x",
            "override 'training.epochs=x': training.epochs: expected a whole number, found 'x'",
        ),
        (
            "data={name='csv',shape=[1,3]}",
            "override \"data={name='csv',shape=[1,3]}\": data.shape[2]: missing",
        ),
        (
            "strategies.fedasync.alpha=2",
            (
                "override 'strategies.fedasync.alpha=2': strategies[1].alpha: expected less than or"
                " equal to 1, found 2"
            ),
        ),
        (
            "strategies.fedasink.alpha=1",
            (
                "override 'strategies.fedasink.alpha=1': strategies has no entry 'fedasink'"
                " (nearest: 'fedasync'), expected a number from 0 to 1 or a name"
            ),
        ),
        (
            "training.epochs.x=1",
            "override 'training.epochs.x=1': training.epochs: expected a table, found 2",
        ),
        (
            "seed",
            (
                "override 'seed': expected key.path=value, such as training.epochs=2"
                " or strategies.0.alpha=0.5"
            ),
        ),
    ],
)
def test_bad_overrides(good: Path, override: str, line: str) -> None:
    assert refusal(good, override) == line


def test_an_error_of_the_file_is_not_blamed_on_an_override(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(replaced("epochs = 2", "epochs = 0"))
    assert refusal(path, "training.batch_size=8").startswith("x.toml: training.epochs: ")


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("'atuo'", "expected a whole number, 'auto' or 'adaptive', found 'atuo' (nearest: 'auto')"),
    ],
)
def test_a_number_or_a_word_is_asked_for_in_one_line(
    tmp_path: Path, said: str, problem: str
) -> None:
    (tmp_path / "x.toml").write_text(WHOLE + f"[[strategies]]\nstrategy = 'idfl'\nalpha = {said}\n")
    assert refusal(tmp_path / "x.toml") == f"x.toml: strategies[0].alpha: {problem}"
    assert refusal(tmp_path / "x.toml", f"strategies.0.alpha={said}").startswith(
        f"override {f'strategies.0.alpha={said}'!r}: strategies[0].alpha: {problem}"
    )


def test_keys_that_do_not_go_together_are_blamed_on_the_override_that_brought_one(
    good: Path,
) -> None:
    missing = (
        'devices: sigma: missing; spread = "lognormal" needs it (the standard deviation of'
        " the logarithms)"
    )
    assert (
        refusal(good, "devices.spread=lognormal")
        == f"override 'devices.spread=lognormal': {missing}"
    )
    assert (
        refusal(good, "training.epochs=3", "devices={spread='lognormal'}")
        == f"override \"devices={{spread='lognormal'}}\": {missing}"
    )
    assert (
        refusal(good, "seeds=[1,2]", "seed=3")
        == "override 'seeds=[1,2]': give seed or seeds, not both (found seed = 3, seeds = [1, 2])"
    )


def test_a_config_survives_dump_and_load(tmp_path: Path, good: Path) -> None:
    for source in (good, QUICKSTART):
        loaded = config_file.load(source, ["evaluation.target_accuracy=0.9", "name=it-s"])
        facts = {
            "run": {"git_commit": None, "clock": "wall", "host": {"cores": 2, "unknown": None}}
        }
        text = config_file.dump(loaded, facts)
        (tmp_path / "again.toml").write_text(text)
        assert config_file.load(tmp_path / "again.toml") == loaded
        assert "git_commit" not in text and "cores = 2" in text


def digests(path: Path, *overrides: str) -> list[str]:
    loaded = config_file.load(path, overrides)
    return [config_file.shared_digest(loaded, entry) for entry in loaded.strategies]


def test_the_digest_covers_what_edges_must_share(good: Path) -> None:
    plain = digests(good)
    assert (
        all(len(digest) == 16 and int(digest, 16) >= 0 for digest in plain) and plain[0] != plain[1]
    )
    for same in (
        "network.port=5555",
        "data.dir=/elsewhere",
        "stop.versions=9",
    ):
        assert digests(good, same) == plain, same
    for other in (
        "seed=2",
        "partition.alpha=0.4",
        "training.epochs=3",
        "links.up_mbit_s=3",
        "data.name=mnist",
    ):
        assert not set(digests(good, other)) & set(plain), other
    changed = digests(good, "strategies.1.alpha=0.1")
    assert changed[0] == plain[0] and changed[1] != plain[1]


def test_the_shared_part_crosses_the_wire(good: Path) -> None:
    here = config_file.load(
        good,
        [
            "data.dir=/elsewhere",
            "network.port=5555",
            "network.max_edges=20000",
            "edges.count=15000",
        ],
    )
    for entry in here.strategies:
        there = config_file.from_json(config_file.to_json(here, entry))
        assert (
            there.strategies == (entry,) and there.data.dir is None and there.network.port == 0
        ), "where it runs is no matter of the edges"
        assert config_file.shared_digest(there, there.strategies[0]) == config_file.shared_digest(
            here, entry
        )


DEEP = (
    '{"stop": {"versions": 1}, "strategies": [{"strategy": "fedavg", "x": '
    + "[" * 900
    + "]" * 900
    + "}]}"
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[1]", "the coordinator's config: expected a table"),
        (DEEP, "the coordinator's config: nested more than 100 deep"),
        ('{"sede": 1}', "the coordinator's config: sede: unknown key (nearest: 'seed')"),
    ],
)
def test_damage_on_the_wire(text: str, line: str) -> None:
    with pytest.raises(UserError) as caught:
        config_file.from_json(text)
    assert str(caught.value).startswith(line)


@pytest.mark.processes
def test_loading_imports_neither_torch_nor_zmq() -> None:
    code = f"""
import pathlib, sys
from edgefl.config import file
file.load(pathlib.Path({str(QUICKSTART)!r}))
print({{'torch', 'zmq'}} & set(sys.modules))
"""
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=QUICKSTART.parents[1],
    )
    assert result.stdout == "set()\n"


def test_a_missing_config_names_only_a_file_with_nearly_that_name(good: Path) -> None:
    (good.parent / "four.toml").write_text("")
    (good.parent / "pyproject.toml").write_text("")
    for name in ("hosts.toml", "project.toml"):
        assert refusal(good.parent / name) == (
            f"{name}: no such file; `edgefl configs` lists those that come with edgefl"
        )


MINE = 'name = "mine"\nstop = {versions = 1}\nstrategies = [{strategy = "fedavg"}]\n'


def test_every_alias_leads_to_a_key_and_is_none_itself() -> None:
    tables: dict[str, type[BaseModel]] = dict(sections())
    keys = {
        f"{place}.{name}".lstrip(".") for place, it in tables.items() for name in it.model_fields
    }
    keys |= {f"partition.{name}" for name in Options.model_fields}  # of the usual partition
    keys |= {f"strategies[].{name}" for name in SelectingOptions.model_fields}  # of most strategies
    assert set(ALIASES.values()) <= keys
    assert not [alias for alias in ALIASES if alias in keys]


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("training.lr=0.05", "training.lr: unknown key (nearest: 'training.learning_rate')"),
        ("rounds=8", "rounds: unknown key (nearest: 'stop.versions')"),
        ("strategy=fedavg", "strategy: unknown key (nearest: 'strategies[].strategy')"),
        ("groups=[{name='a', edges=5}]", "groups[0].edges: unknown key (nearest: 'count')"),
        ("seeds=3", "seeds: expected an array, found 3; one: seed"),
    ],
)
def test_the_key_that_was_meant(tmp_path: Path, override: str, line: str) -> None:
    (tmp_path / "mine.toml").write_text(MINE)
    with pytest.raises(UserError) as caught:
        file.load(tmp_path / "mine.toml", [override])
    assert str(caught.value) == f"override {override!r}: {line}"


@pytest.mark.parametrize(
    ("option", "key"),
    [
        ("--lr", "training.learning_rate"),
        ("--data", "data.dir"),
        ("--strategy", None),
    ],
)
def test_the_key_that_an_option_was_meant_for(option: str, key: str | None) -> None:
    assert meant(option) == key


FILES = sorted(CONFIGS.glob("**/*.toml"))
BASE = """
name = "base"
seed = 7
[model]
name = "mlp"
hidden = [8]
[links]
up_mbit_s = 2.0
down_mbit_s = 4.0
[stop]
versions = 3
[[strategies]]
strategy = "fedavg"
[[strategies]]
strategy = "fedasync"
"""


def written(folder: Path, **files: str) -> Path:
    for name, text in {"base": BASE, **files}.items():
        (folder / f"{name}.toml").write_text(text)
    return folder / f"{list(files)[-1]}.toml"


loaded = cache(load)  # each config of the project once


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
@pytest.mark.slow
def test_every_config_of_the_project_parses(path: Path) -> None:
    assert loaded(path).strategies


@pytest.mark.slow
def test_the_names_of_all_configs_differ() -> None:
    names = [loaded(path).name for path in FILES]
    assert len(set(names)) == len(names)  # otherwise one would overwrite the results of another


def test_tables_are_merged_and_arrays_replaced(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        ours=(
            'extends = "base.toml"\nname = "ours"\nlinks.up_mbit_s = 1.0\n[[strategies]]\nstrategy'
            ' = "fedprox"\n'
        ),
    )
    found = load(path)
    assert (found.name, found.seed, found.links.up_mbit_s, found.links.down_mbit_s) == (
        "ours",
        7,
        1.0,
        4.0,
    )
    assert [entry.strategy for entry in found.strategies] == ["fedprox"]
    assert load(tmp_path / "base.toml").links.up_mbit_s == 2.0  # and the other stays as it is


def test_a_chain_ends_at_the_first_that_extends_nothing(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    written(
        tmp_path, middle='extends = "base.toml"\nname = "middle"\nseed = 8\nstop.versions = 4\n'
    )
    (tmp_path / "inner" / "last.toml").write_text(
        'extends = "../middle.toml"\nname = "last"\nseed = 9\n'
    )
    found = load(tmp_path / "inner" / "last.toml")
    assert (found.seed, found.stop.versions, found.links.up_mbit_s) == (9, 4, 2.0)
    assert base_of(tmp_path / "inner" / "last.toml") == tmp_path / "inner"


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (
            {"ours": 'extends = "bose.toml"\nname = "x"\n'},
            r"ours\.toml: extends: .*bose\.toml: no such file .*base\.toml",
        ),
        (
            {"ours": "extends = 3\nname = 'x'\n"},
            r"ours\.toml: extends: expected the path of another config, .*found 3",
        ),
        ({"ours": 'extends = "base.toml"\n'}, r"ours\.toml: name: missing"),
        (
            {"ours": 'extends = "ours.toml"\nname = "x"\n'},
            r"extends: is a cycle: ours\.toml -> ours\.toml",
        ),
        (
            {"a": 'extends = "b.toml"\nname = "a"\n', "b": 'extends = "a.toml"\nname = "b"\n'},
            r"a\.toml: extends: is a cycle: b\.toml -> a\.toml -> b\.toml",
        ),
        (
            {"ours": 'extends = "base.toml"\nname = "x"\nlinks.up_mbit = 1.0\n'},
            r"ours\.toml \(extends .*base\.toml\): links\.up_mbit: unknown key",
        ),
    ],
    ids=["no file", "no text", "no name", "itself", "circle", "typo"],
)
def test_what_is_refused(tmp_path: Path, files: dict[str, str], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        load(written(tmp_path, **files))


SCORES = "expected a score of this experiment (train_loss, test_loss, accuracy), found "


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["metric=acuracy"], f"stop.target.metric: {SCORES}'acuracy' (nearest: 'accuracy')"),
        (["metric=loss"], f"stop.target.metric: {SCORES}'loss' (nearest: 'test_loss')"),
        (
            ["metric=f1"],
            f"stop.target.metric: {SCORES}'f1'; evaluation.metrics = [\"f1\"] measures it",
        ),
        (["for_evaluations=2"], "stop.target.value: missing: expected the accuracy to reach"),
        (["metric=test_loss"], "stop.target.value: missing: expected the test loss to reach"),
        (["value=1.5"], "stop.target.value: expected at most 1, as a share of 1, found 1.5"),
        (["value=-0.5"], "stop.target.value: expected greater than 0, found -0.5"),
    ],
)
def test_a_target_that_no_evaluation_reaches(good: Path, words: list[str], line: str) -> None:
    assert refusal(good, *(f"stop.target.{word}" for word in words)).endswith(line)


def test_a_target_of_a_score_that_is_not_measured_by_default(good: Path) -> None:
    words = ["stop.target.metric=train_loss", "stop.target.value=0.1"]
    assert config_file.load(good, words).stop_score.falls
    said = refusal(good, *words, "evaluation.train_samples=0")
    assert "(test_loss, accuracy), found 'train_loss' (nearest: 'test_loss')" in said
    words = ["stop.target.metric=perplexity", "stop.target.value=9.0"]
    given = config_file.load(good, [*words, 'evaluation.metrics=["perplexity"]'])
    assert given.stop_value == 9.0 and given.stop_score.reaches(8.0, 9.0)
    given = config_file.load(good, ["stop.target={}", "evaluation.target=0.4"])
    assert given.stop_value == 0.4 and not given.stop_score.falls

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from edgefl import catalog
from edgefl.errors import UserError, nearest
from edgefl.strategies.base.catalog import strategy_names


def refused(name: str, base: Path) -> str:
    with pytest.raises(UserError) as caught:
        catalog.load_dotted(name, base)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_nearest_names_a_likely_typo_else_everything() -> None:
    assert nearest("lenet", ["mlp", "lenet5"]) == " (nearest: 'lenet5')"
    assert nearest("FedAVG", ["fedavg"]) == " (nearest: 'fedavg')"
    assert nearest("transformer", ["mlp", "lenet5"]) == " (valid: lenet5, mlp)"
    assert nearest("x", []) == ""


@pytest.mark.parametrize(
    ("package", "attribute"),
    [
        ("edgefl.strategies", ""),
        ("edgefl.strategies.selection", "build"),
        ("edgefl.models", "build"),
        ("edgefl.data", "load"),
        ("edgefl.data.partition", "split"),
    ],
)
def test_the_line_of_a_listing_is_a_whole_sentence(package: str, attribute: str) -> None:
    """Listings show only the first line of a file's docstring."""
    names = catalog.names(package, attribute) if attribute else strategy_names()
    assert names and all(catalog.one_line(package, name).endswith(".") for name in names)


def test_a_user_error_is_one_line() -> None:
    assert str(UserError("first\nsecond")) == "first second"


def test_the_folder_is_the_registry() -> None:
    """A file counts if it has the attribute. Files of shared code, such as layers, do not."""
    models = catalog.names("edgefl.models", "build")
    assert {"lenet5", "resnet20", "causal_lm"} < set(models) and models == sorted(models)
    assert not {"layers", "workspace"} & set(models)
    data_sets = catalog.names("edgefl.data", "load")
    assert {"mnist", "cifar10", "sentences"} < set(data_sets)
    assert not {"cache", "dataset", "idx"} & set(data_sets)
    partitions = ["dirichlet", "few_labels", "iid", "natural", "one_label"]
    assert catalog.names("edgefl.data.partition", "split") == partitions
    assert catalog.one_line("edgefl.models", "lenet5").startswith("LeNet-5: ")


def test_found_things_bring_their_options() -> None:
    build = catalog.find("edgefl.models", "mlp", "build")
    assert catalog.options_of(build)(hidden=[8]).hidden == (8,)
    assert catalog.options_of(catalog.find("edgefl.data", "digits", "load")) is None


def test_an_unknown_entry_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"unknown model 'lenet' \(nearest: 'lenet5'\)"):
        catalog.find("edgefl.models", "lenet", "build", what="model")


@pytest.mark.processes
def test_listing_imports_no_torch() -> None:
    code = (
        "import sys; from edgefl import catalog\nfor p, a in (('edgefl.models', 'build'),"
        " ('edgefl.data', 'load')):\n    [catalog.one_line(p, n) or 1/0 for n in catalog.names(p,"
        " a)]\n[catalog.find('edgefl.models', n, 'build') for n in catalog.names('edgefl.models',"
        " 'build')]\nimport edgefl.data.dataset\nsys.exit('torch' in sys.modules or 'sklearn' in"
        " sys.modules)"
    )
    root = Path(catalog.__file__).parent.parent
    assert subprocess.run([sys.executable, "-c", code], cwd=root).returncode == 0


def test_an_own_file_is_found_beside_the_config_then_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs, here = tmp_path / "configs", tmp_path / "here"
    for folder, value in ((configs, 1), (here, 2)):
        folder.mkdir()
        (folder / "own.py").write_text(f"VALUE = {value}\n")
    (here / "only.py").write_text("class Options:\n    pass\nclass Algo:\n    pass\n")
    monkeypatch.chdir(here)
    assert catalog.load_dotted("own.py:VALUE", configs) == 1
    assert catalog.load_dotted("own.py:VALUE") == 2
    assert catalog.load_dotted(f"{configs}/own.py:VALUE", here) == 1
    algo = catalog.find("edgefl.models", "only.py:Algo", "build", base=configs)
    assert catalog.options_of(algo).__name__ == "Options"
    assert catalog.load_dotted("only.py:Algo", configs) is algo, (
        "a second load must be the same class"
    )
    assert sys.modules[algo.__module__].Algo is algo, "pickle looks a class up in its module"


def test_a_file_that_has_changed_is_loaded_anew_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in one second, and without a change of the sizes."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    helper, own = tmp_path / "helper_of_this_test.py", tmp_path / "own.py"
    helper.write_text("VALUE = 1\n")
    own.write_text("from helper_of_this_test import VALUE\nclass Own:\n    value = 1, VALUE\n")
    (tmp_path / "other.py").write_text("from helper_of_this_test import VALUE\n")

    def loaded() -> type:
        assert catalog.load_dotted("other.py:VALUE", tmp_path) == first.value[1]
        return catalog.load_dotted("own.py:Own", tmp_path)

    catalog.forget_changed()  # files of other tests
    first = catalog.load_dotted("own.py:Own", tmp_path)
    catalog.forget_changed()
    assert loaded() is first, "nothing has changed"
    instance = first()
    helper.write_text("VALUE = 2\n")
    assert loaded() is first, "not before it is asked for"
    catalog.forget_changed()
    first = catalog.load_dotted("own.py:Own", tmp_path)
    assert loaded().value == (1, 2) and instance.value == (1, 1)
    own.write_text(own.read_text().replace("value = 1", "value = 3"))
    catalog.forget_changed()
    first = catalog.load_dotted("own.py:Own", tmp_path)
    assert loaded().value == (3, 2)
    own.write_text("VALUE =")
    catalog.forget_changed()
    for _ in range(2):
        assert "SyntaxError" in refused("own.py:Own", tmp_path)
    own.write_text("Own = 4\n")
    assert catalog.load_dotted("own.py:Own", tmp_path) == 4
    own.unlink()
    catalog.forget_changed()
    assert "no file" in refused("own.py:Own", tmp_path)


def test_a_module_beside_the_config_that_has_changed_is_loaded_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "changing_package_of_this_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("VALUE = 1\n")
    name = f"{package.name}.part:VALUE"
    assert catalog.load_dotted(name, tmp_path) == 1
    (package / "part.py").write_text("VALUE = 22\n")
    catalog.forget_changed()
    assert catalog.load_dotted(name, tmp_path) == 22
    mine = tmp_path / "imported_by_this_test.py"
    mine.write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    import imported_by_this_test

    mine.write_text("VALUE = 22\n")
    (package / "part.py").write_text("VALUE = 333\n")
    catalog.forget_changed()
    assert sys.modules[mine.stem] is imported_by_this_test, "what others have imported stays"
    assert catalog.load_dotted(f"{mine.stem}:VALUE", tmp_path) == 1


def test_an_own_package_beside_the_config_leaves_the_path_alone(tmp_path: Path) -> None:
    package = tmp_path / "own_package_of_this_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("VALUE = 3\n")
    (tmp_path / "uses.py").write_text("from own_package_of_this_test.part import VALUE\n")
    before = list(sys.path)
    assert catalog.load_dotted("own_package_of_this_test.part:VALUE", tmp_path) == 3
    assert catalog.load_dotted("uses.py:VALUE", tmp_path) == 3
    assert sys.path == before


def test_errors_say_what_was_expected(tmp_path: Path) -> None:
    (tmp_path / "my_algo.py").write_text("class MyAlgo:\n    pass\n")
    (tmp_path / "raises.py").write_text("x = 1\nx / 0\n")
    (tmp_path / "typo.py").write_text("x = 1\nx = = 2\n")
    (tmp_path / "needs.py").write_text("import a_module_that_is_not_there\n")
    assert "expected 'package.module:attribute' or" in refused("my_algo.py", tmp_path)
    assert "my_algo.py has no 'MyAlgos' (nearest: 'MyAlgo')" in refused(
        "my_algo.py:MyAlgos", tmp_path
    )
    assert "(nearest: 'my_algo.py')" in refused("my_alg.py:MyAlgo", tmp_path)
    assert "no module 'no_such_package'" in refused("no_such_package.part:x", tmp_path)
    assert "no module 'edgefl.no_such'" in refused("edgefl.no_such:x", tmp_path)
    assert (
        "ZeroDivisionError" in (message := refused("raises.py:x", tmp_path))
        and "raises.py, line 2" in message
    )
    assert (
        "SyntaxError" in (message := refused("typo.py:x", tmp_path))
        and "typo.py, line 2" in message
    )
    for name in ("needs.py:x", "needs:x"):
        message = refused(name, tmp_path)
        assert (
            "cannot be imported: ModuleNotFoundError" in message and "needs.py, line 1" in message
        )

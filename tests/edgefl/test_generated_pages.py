"""The generated pages, and the generated parts of others, are those of the code."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import matplotlib as mpl
import pytest
from pages import GENERATED, PAGES, blocks, text
from paths import ROOT

sys.path.insert(0, str(ROOT / "docs"))
from _generate import everything, llms, python_api

import edgefl.api
import emulator

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
AGAIN = "run `python docs/_generate` and commit what it writes"


@pytest.mark.slow
def test_what_is_committed_is_what_the_generator_writes() -> None:
    texts = everything.texts()
    different = [
        path.relative_to(ROOT).as_posix()
        for path, made in texts.items()
        if not path.is_file() or text(path) != made
    ]
    assert different == [], AGAIN
    assert everything.superfluous(texts) == set(), AGAIN


def test_every_public_name_is_on_its_page_with_a_text() -> None:
    for module, page in ((edgefl.api, "python-edgefl.md"), (emulator, "python-emulator.md")):
        entries = re.split(r"^### ", text(GENERATED / page), flags=re.MULTILINE)[1:]
        named = {entry.split()[0]: entry for entry in entries}
        assert [name for name in module.__all__ if name not in named] == []
        bare = [name for name in module.__all__ if len(named[name].split()) < 5]
        assert set(bare) <= {"MOST_FAILED", "FOREVER", "NS_PER_S"}


def test_the_public_surface_is_on_one_page() -> None:
    page = text(ROOT / "docs" / "reference" / "api.md")
    listed = set(re.findall(r"`(\w+)`", page))
    assert {*edgefl.api.__all__, *emulator.__all__} <= listed


def test_a_part_of_a_page_is_filled_in(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A\n\n<!-- file: tests/examples/my_algo.py -->\n```python\nXX\n```\n\n"
        "<!-- options: fedprox -->\nXX\n<!-- end of options -->\n"
    )
    filled = everything.filled_in(page)
    assert text(ROOT / "tests" / "examples" / "my_algo.py") in filled and "XX" not in filled
    assert "| `mu` | number |" in filled and filled.endswith("<!-- end of options -->\n")


def test_a_signature_of_a_class_has_its_fields_and_members() -> None:
    shown = python_api.entry("TaskClosed", edgefl.api.TaskClosed)
    assert "class TaskClosed:\n    edge: str\n    task: int\n    reason: str" in shown
    assert "- `aggregate(updates: list[UpdateArrived]) -> np.ndarray`: Return" in python_api.entry(
        "Rounds", edgefl.api.Rounds
    )


def test_llms_txt_has_every_page_with_its_first_sentence() -> None:
    listed = text(ROOT / "docs" / "llms.txt")
    docs = ROOT / "docs"
    folders = ("tutorials", "how-to", "reference", "explanation")
    pages = [
        page.relative_to(docs).as_posix()
        for page in PAGES
        if page.parent.name in folders and page.stem != "index"
    ]
    assert pages and [page for page in pages if f"]({page})" not in listed] == []
    page = {docs / "how-to" / "a.md": "# A\n\n```sh\nx\n```\n\nSee [B](b.md). And more.\n"}
    assert "- [A](how-to/a.md): See B.\n" in llms.text(docs, page)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_stored_without_outputs(path: Path) -> None:
    cells = json.loads(text(path))["cells"]
    assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in cells)


def test_the_clone_address_stands_in_the_readme_and_in_what_is_made_from_it() -> None:
    address = everything.clone_address()
    having = [page.name for page in [*PAGES, *NOTEBOOKS] if address in text(page)]
    assert having == ["README.md", "hosted.ipynb"]


@pytest.mark.rest
@pytest.mark.processes
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_cells_of_a_notebook_run(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    book = nbformat.read(path, as_version=4)
    book.cells = [cell for cell in book.cells if "%pip" not in cell.source]
    done = nbclient.NotebookClient(
        book, timeout=120, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = [output for cell in done.cells for output in cell.get("outputs", ())]
    kinds = [kind for output in outputs for kind in output.get("data", ())]
    drawn = [cell for cell in done.cells if ".plot(" in cell.source]
    assert drawn and kinds.count("image/png") == len(drawn) and kinds.count("text/html") >= 2
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert (tmp_path / "runs" / "quickstart" / "comparison_seeds.csv").is_file()


@pytest.mark.rest
def test_the_example_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    mpl.use("agg")
    (example,) = blocks("python", [ROOT / "README.md"])
    exec(compile(example, "README.md", "exec"), {})
    assert "Against fedavg" in capsys.readouterr().out
    assert (tmp_path / "accuracy.png").stat().st_size > 10_000

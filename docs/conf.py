"""Sphinx: Markdown and notebooks by MyST, with the theme furo.

``_generate`` writes the reference pages from the code before each build, so that they always agree.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(ROOT)]

from _generate import everything  # noqa: E402  # the path is set above

import edgefl  # noqa: E402  # the path is set above

project = "edgefl"
author = "the edgefl developers"
copyright = f"2026, {author}"
release = version = edgefl.__version__

extensions = [
    "myst_nb",
    "notfound.extension",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_design",
]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "fieldlist"]
myst_heading_anchors = 4
exclude_patterns = ["_build", "_generate", "_static"]
nitpicky = True
suppress_warnings = ["myst.header"]  # CHANGELOG.md is included below a heading of its own

# Notebooks are stored without outputs: these change with each run, and would hide what a change
# of a notebook is. Each build runs them, and a cell that raises ends it.
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_execution_in_temp = True  # runs/ is written there
nb_execution_excludepatterns = ["notebooks/hosted.ipynb"]  # its first cell installs a package

html_theme = "furo"
html_title = f"edgefl {release}"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_extra_path = ["llms.txt"]
html_theme_options: dict[str, str | list[str]] = {"top_of_page_buttons": ["view"]}
# The address of the repository stands in the README; until it is there, "view" shows a copy.
if "example.org" not in everything.clone_address():
    html_theme_options |= {"source_repository": everything.clone_address().removesuffix(".git")}
    html_theme_options |= {"source_branch": "main", "source_directory": "docs/"}
notfound_urls_prefix = "/"
copybutton_exclude = ".linenos, .gp, .go"
# MathJax is part of the pages, so that they need no other server.
mathjax_path = "mathjax/tex-svg.js"

everything.write()


def setup(app: Sphinx) -> None:
    """Leave results out of the search, and put each page's Markdown beside its HTML."""
    app.connect("source-read", out_of_search)
    app.connect("build-finished", with_markdown)


def out_of_search(app: Sphinx, page: str, source: list[str]) -> None:
    """Long tables of results and old changes would hide what readers look for."""
    if page == "changelog" or (page.startswith("results/") and page != "results/index"):
        source[0] = f"---\nnosearch: true\n---\n{source[0]}"


def with_markdown(app: Sphinx, error: Exception | None) -> None:
    """What llms.txt links to."""
    if error is None and app.builder.format == "html":
        for page in app.env.found_docs:
            source = Path(app.env.doc2path(page))
            if source.suffix == ".md":
                shutil.copy(source, Path(app.outdir) / f"{page}.md")

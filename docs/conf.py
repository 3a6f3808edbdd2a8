"""Sphinx: Markdown by MyST, with the theme furo.

``_generate`` writes the reference pages from the code before each build, so that they always agree.
"""

from __future__ import annotations

import sys
from pathlib import Path

from sphinx.util.inspect import TypeAliasForwardRef

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from _generate import diagrams, pages  # noqa: E402  # the path is set above

import edgefl  # noqa: E402  # the path is set above

project = "edgefl"
author = "the edgefl developers"
copyright = f"2026, {author}"
release = version = edgefl.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx_design",
]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "fieldlist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_generate", "_static", "reference/generated/options"]
nitpicky = False
suppress_warnings: list[str] = []

autodoc_typehints = "description"
# Shown by their names: their members would fill the page of the Python API.
autodoc_type_aliases = {name: name for name in ("Decision", "Event")}
# Inside list[...] Sphinx shows an alias by its repr.
TypeAliasForwardRef.__repr__ = lambda self: self.name  # type: ignore[method-assign]  # see above
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"

html_theme = "furo"
html_title = f"edgefl {release}"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_copy_source = False
html_show_sourcelink = False
# MathJax is part of the pages, so that they need no other server.
mathjax_path = "mathjax/tex-svg.js"

pages.write_all(HERE / "reference" / "generated")
diagrams.write_all(HERE / "_static")

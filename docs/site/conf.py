"""The docs as a site: `make docs`. The source directory is the repository, so that every link between pages and files is the one that readers of the repository follow."""

from __future__ import annotations

import sys
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

from reference import write_reference  # noqa: E402 - beside this file

project = "headrace"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "docs/index"
include_patterns = [
    "README.md",
    "ARCHITECTURE.md",
    "STYLE.md",
    "CHANGELOG.md",
    "docs/*.md",
    "docs/**/*.md",
    "bench/results/*.md",
]
exclude_patterns = [
    ".*",
    "web",
    "rust",
    "src",
    "tests",
    "build",
    "dist",
    "headrace-demo",
    "spark-warehouse",
    "bench/results/*.json",
]
source_suffix = {".md": "markdown"}
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # names of other packages, and of modules that have no page
html_show_copyright = False
html_theme = "furo"
html_title = "headrace"
html_static_path: list[str] = []
html_show_sphinx = False
html_copy_source = False
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
myst_links_external_new_tab = False
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_default_options = {"members": True, "show-inheritance": True}
suppress_warnings = ["misc.highlighting_failure"]  # flow files have …, and sources ${NAMES}


def setup(app: Sphinx) -> None:
    app.connect("builder-inited", lambda _: write_reference(ROOT / "docs" / "reference"))

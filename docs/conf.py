"""Configure Sphinx: `make docs` builds the site of this folder's pages into build/docs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import generated  # noqa: E402
import pandas as pd  # noqa: E402

import twinstep  # noqa: E402
from reports.run import Run  # noqa: E402
from reports.sections.comparison import Comparison  # noqa: E402
from reports.sections.plans import PlansView  # noqa: E402
from reports.side_by_side.frames import SideBySide  # noqa: E402
from scenarios.config.scenario import Scenario  # noqa: E402

project, author, copyright = "Twinstep", "Twinstep founders", "2026, Twinstep founders"
release = twinstep.__version__
html_title = f"Twinstep {release}"

# The package's annotations name these; it imports none of them before a call needs it.
named = {"pd": pd, "Path": Path, "Sequence": Sequence, "Given": Scenario | str | os.PathLike[str]}
vars(twinstep).update(named, **{each.__name__: each for each in (Run, Comparison, PlansView, SideBySide, Scenario)})

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.intersphinx"]
smartquotes = False  # commands are to be copied
myst_heading_anchors = 6  # as GitHub names them, so that pages read the same there
exclude_patterns = ["pictures/*.py"]
html_theme = "pydata_sphinx_theme"
html_static_path = ["static"]
html_css_files = ["twinstep.css"]
html_search_scorer = str(HERE / "static" / "scorer.js")
html_show_sourcelink = False
html_sidebars = {"index": [], "tutorial/index": []}
html_theme_options = {
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "navbar_end": ["theme-switcher"],
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
}

autodoc_typehints = "description"
autodoc_member_order = "bysource"
# Inventories: the classes alone, of Debian's python3.11-doc and python-pandas-doc 1.5.3; the build needs no network.
# torch is linked where somebody puts its objects.inv beside them.
intersphinx_mapping = {
    name: (address, str(inventory))
    for name, address in {
        "python": "https://docs.python.org/3.11/",
        "pandas": "https://pandas.pydata.org/docs/",
        "torch": "https://docs.pytorch.org/docs/2.13/",
    }.items()
    if (inventory := HERE / "inventories" / f"{name}.inv").exists()
}
# torch's classes, and the inner ones of ours that the classes on the page of Python name.
_OTHERS = "torch|pd|reports|scenarios"
nitpick_ignore_regex = [("py:.*", rf"({_OTHERS})\..*|RunInfo|Spans|Plot|JobRun")]

generated.write(HERE / "reference")

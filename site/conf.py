"""The site of ./ladder docs: Sphinx with MyST reads the repository's own Markdown (pages.py), Furo draws it."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
WORK = Path(os.environ["LADDER_SITE_WORK"])  # where ./ladder docs has put what it has made
sys.path[:0] = [str(HERE / "extensions"), str(HERE), str(HERE.parent / "scripts")]

from pages import tracked  # noqa: E402
from results.pages import page_of_figure  # noqa: E402

project = "Ladder"
html_title = "Ladder"
author = copyright = "the authors of Ladder"
extensions = [
    "myst_parser",
    "sphinx_copybutton",
    "repository_links",
    "source_pages",
    "glossary_cards",
    "math_in_html",
    "live_figures",
    "preview_cards",
]
root_doc = "index"
highlight_language = "none"
smartquotes = False  # the pages that a repository shows have none, either

myst_enable_extensions = ["dollarmath"]
myst_dmath_double_inline = False
myst_all_links_external = True  # repository_links resolves them
myst_heading_anchors = 6
myst_heading_slug_func = "repository_links.anchor_of"
suppress_warnings = [
    "myst.header",  # a folded part may begin at any level
    "misc.highlighting_failure",  # an ellipsis in code
]

html_theme = "furo"
html_static_path = [str(HERE / "static"), str(WORK / "static")]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_use_index = False
html_show_sphinx = html_show_copyright = html_show_sourcelink = html_copy_source = False
html_favicon = str(HERE / "static/ladder.svg")
html_theme_options = {"light_logo": "ladder.svg", "dark_logo": "ladder.svg"}
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"

ladder_figures = str(WORK / "static/figures")
ladder_views = {figure: page_of_figure(figure) for figure in tracked("*/time_line.svg")}
ladder_views = {
    figure: page for figure, page in ladder_views.items() if (WORK / f"pages/{page}.md").exists()
}
ladder_root = str(HERE.parent)
ladder_site_url = os.environ.get("LADDER_SITE_URL", "")  # only preview cards need it

"""Pictures on the site. Each can be scrolled on a narrow screen, and leads to itself, alone, or to what
the site has of it besides: a measured time line, for example, to its interactive view.

Below a picture after <!-- live: NAME -->, a live figure appears, if site/figures has been compiled, and
where there is JavaScript.
"""

import posixpath
import re
from pathlib import Path

from docutils import nodes

ITS_WASM = re.compile(
    r"^// wasm: (\w+)$", re.MULTILINE
)  # in the script of a figure that has none of its own
MARK = re.compile(r"<!-- live: (\w+) -->\s*$")


def scripts_of(app, name):
    """In the order in which they are loaded; none if the figure stays a picture."""
    figures = Path(app.config.ladder_figures)
    if not (figures / f"{name}.js").is_file():
        return []
    wasm = ITS_WASM.search((figures / f"{name}.js").read_text())
    return ["wasm.js", "settings.js", f"{wasm[1] if wasm else name}.wasm.js", f"{name}.js"]


def is_alone(image):
    """In a paragraph of its own."""
    return isinstance(image.parent, nodes.paragraph) and len(image.parent.children) == 1


def mark_before(paragraph):
    """The figure's name in the comment before a paragraph, or None."""
    before = paragraph.parent.index(paragraph) - 1
    node = paragraph.parent[before] if before >= 0 else None
    found = MARK.search(node.astext()) if isinstance(node, (nodes.raw, nodes.comment)) else None
    return found and found[1]


def wrap(app, doctree, docname):
    figures = []
    for image in list(doctree.findall(nodes.image)):
        if not is_alone(image):
            continue
        paragraph, name = image.parent, mark_before(image.parent)
        begin, end = '<div class="picture">', "</div>"
        if name and scripts_of(app, name):
            begin = f'<div class="live-figure" data-figure="{name}" id="figure-{name}">{begin}'
            end += "</div>"
            figures.append(name)
        uri = page_of_picture(app, docname, image)
        link = nodes.reference("", "", image.deepcopy(), refuri=uri, internal=True)
        paragraph.replace_self(
            [nodes.raw("", begin, format="html"), link, nodes.raw("", end, format="html")]
        )
    if figures:
        app.ladder_live[docname] = figures


def page_of_picture(app, docname, image):
    here = posixpath.dirname(app.builder.get_target_uri(docname)) or "."
    view = app.config.ladder_views.get(image["uri"])
    to = app.builder.get_target_uri(view) if view else f"_images/{app.env.images[image['uri']][1]}"
    return posixpath.relpath(to, here)


def add_scripts(app, pagename, templatename, context, doctree):
    for name in app.ladder_live.get(pagename, []):
        app.add_css_file("figures/figures.css")
        for script in scripts_of(app, name):
            app.add_js_file(f"figures/{script}", loading_method="defer")


def begin(app):
    app.ladder_live = {}


def setup(app):
    app.add_config_value("ladder_figures", "", "env")  # the folder of what has been compiled
    app.add_config_value("ladder_views", {}, "env")  # pages of pictures: {"a/b.svg": docname}
    app.connect("builder-inited", begin)
    app.connect("doctree-resolved", wrap, priority=300)
    app.connect("html-page-context", add_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": False}

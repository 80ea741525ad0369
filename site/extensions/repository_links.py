"""Links of the repository's Markdown on the site: to a page, to the page of a source file, or to the
page of a folder. A link that leads nowhere is a warning, and so an error of the build.

Anchors are those that a repository's page gives a heading.
"""

import posixpath
import re
from pathlib import Path
from urllib.parse import unquote

from docutils import nodes
from pages import docname_of, page_of, tracked
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

logger = logging.getLogger(__name__)


def anchor_of(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


class HeadingAnchors(SphinxTransform):
    """Puts the anchor before the identifiers that docutils gives a section."""

    default_priority = 300

    def apply(self):
        for section in self.document.findall(nodes.section):
            slug = section.get("slug")
            if slug and slug not in section["ids"]:
                section["ids"].insert(0, slug)
            elif slug:
                section["ids"].sort(key=lambda id: id != slug)


class Repository:
    """What is tracked, and which of it has a page."""

    def __init__(self):
        self.files = set(tracked())
        self.folders = {str(parent) for file in self.files for parent in Path(file).parents}

    def target(self, page, link):
        """The tracked file or folder; None if there is none."""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
        return path if path in self.files or path in self.folders else None


def resolve(app, doctree, docname):
    repository, page = app.ladder_repository, page_of(docname)
    for node in doctree.findall(nodes.reference):
        link, _, anchor = unquote(node.get("refuri", "")).partition("#")
        if not node.get("refuri") or node.get("internal") or re.match(r"[a-z]+:", link):
            continue
        path = repository.target(page, link) if link else page
        if path is None and app.env.found_docs.intersection([link_to_doc(docname, link)]):
            path = page_of(link_to_doc(docname, link))  # a page that only the site has
        if path is None:
            logger.warning("%s leads nowhere", node["refuri"], location=node)
            continue
        node["refuri"] = uri_of(app, docname, path, anchor)
        node["classes"] += ["internal"]
        node["ladder_target"], node["ladder_anchor"] = path, anchor


def link_to_doc(docname, link):
    path = posixpath.normpath(posixpath.join(posixpath.dirname(docname), link))
    return docname_of(path)


def uri_of(app, docname, path, anchor=""):
    """From a page to another one, to a source file or to a folder."""
    if docname_of(path) in app.env.found_docs and path.endswith(".md"):
        to = app.builder.get_target_uri(docname_of(path))
    elif f"{path}/README.md" in app.ladder_repository.files:
        to = app.builder.get_target_uri(f"{path}/index")
    else:
        to = app.ladder_sources.uri(path)
    here = posixpath.dirname(app.builder.get_target_uri(docname)) or "."
    return posixpath.relpath(to, here) + (f"#{anchor}" if anchor else "")


def check_anchors(app, doctree, docname):
    """Of links to pages."""
    for node in doctree.findall(nodes.reference):
        path, anchor = node.get("ladder_target", ""), node.get("ladder_anchor")
        if anchor and path.endswith(".md") and anchor not in app.ladder_anchors(docname_of(path)):
            logger.warning("%s has no #%s", path, anchor, location=node)


def anchors_in(app):
    known = {}

    def of(docname):
        if docname not in known:
            doctree = app.env.get_doctree(docname)
            known[docname] = {id for node in doctree.findall(nodes.Element) for id in node["ids"]}
            for raw in doctree.findall(nodes.raw):
                known[docname] |= set(re.findall(r'\b(?:id|name)="([^"]+)"', raw.astext()))
        return known[docname]

    return of


def begin(app):
    app.ladder_repository = Repository()
    app.ladder_anchors = anchors_in(app)


def setup(app):
    app.add_config_value("ladder_root", "", "env")
    app.add_transform(HeadingAnchors)
    app.connect("builder-inited", begin)
    app.connect("doctree-resolved", resolve, priority=400)
    app.connect("doctree-resolved", check_anchors, priority=450)
    return {"parallel_read_safe": True, "parallel_write_safe": False}

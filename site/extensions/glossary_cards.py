"""A link to a term of the glossary shows what the term means: a card, while the pointer or the keyboard
is on it. It needs no JavaScript.
"""

from html import escape
from itertools import count

from docutils import nodes

GLOSSARY = "docs/glossary"


def meanings(app):
    """The first paragraph of each entry, by its anchor."""
    found = {}
    for section in app.env.get_doctree(GLOSSARY).findall(nodes.section):
        paragraph = next((child for child in section if isinstance(child, nodes.paragraph)), None)
        if paragraph is not None:
            found[section["ids"][0]] = (section[0].astext(), " ".join(paragraph.astext().split()))
    return found


def add_cards(app, doctree, docname):
    if docname == GLOSSARY:
        return
    numbers = count(1)
    for link in list(doctree.findall(nodes.reference)):
        is_term = link.get("ladder_target") == f"{GLOSSARY}.md"
        term, meaning = app.ladder_meanings.get(link["ladder_anchor"] if is_term else "", ("", ""))
        if not meaning:
            continue
        card = f"card-{next(numbers)}"
        text = f'<span class="card" role="note" id="{card}"><b>{escape(term)}</b> {escape(meaning)}</span></span>'
        around = nodes.inline()
        link.replace_self(around)
        around += [nodes.raw("", '<span class="term">', format="html"), link]
        around += nodes.raw("", text, format="html")


def begin(app, env):
    app.ladder_meanings = meanings(app)


def setup(app):
    app.connect("env-check-consistency", begin)
    app.connect("doctree-resolved", add_cards, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": False}

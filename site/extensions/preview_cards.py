"""What a chat shows of a link to a page: its title, its first sentence and a picture. Addresses in it
must be absolute, so the picture is only there where LADDER_SITE_URL says where the site will be.
"""

from html import escape

from docutils import nodes

MOST = 200  # letters


def first_paragraph(doctree):
    paragraphs = (
        " ".join(node.astext().split())
        for node in doctree.findall(nodes.paragraph)
        if isinstance(node.parent, nodes.section) and not any(node.findall(nodes.image))
    )
    text = next((text for text in paragraphs if text), "")
    return text if len(text) <= MOST else text[:MOST].rsplit(" ", 1)[0] + " …"


def add_card(app, pagename, templatename, context, doctree):
    if doctree is None:
        return
    title, text = context.get("title", ""), first_paragraph(doctree)
    tags = {
        "og:type": "article",
        "og:site_name": "Ladder",
        "og:title": title,
        "og:description": text,
    }
    if site := app.config.ladder_site_url.rstrip("/"):
        tags |= {"og:url": f"{site}/{pagename}.html", "og:image": f"{site}/_static/card.png"}
    lines = [f'<meta property="{name}" content="{escape(value)}">' for name, value in tags.items()]
    lines.append(f'<meta name="description" content="{escape(text)}">')
    lines.append('<meta name="twitter:card" content="summary_large_image">')
    context["metatags"] = context.get("metatags", "") + "\n".join(lines)


def setup(app):
    app.add_config_value("ladder_site_url", "", "html")
    app.connect("html-page-context", add_card)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

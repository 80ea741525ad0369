"""A page for each source file that a lesson links: highlighted, with an anchor for each line (#L12), and
its includes as links. A linked folder gets a page that lists its files.
"""

import html
import posixpath
import re
from pathlib import Path

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound

LEXERS = {".stub": "x.cpp", ".wrong": "x.diff", ".cu": "x.cpp", ".tsv": "x.txt"}
FOLDER = "source"


class Sources:
    def __init__(self, app):
        self.root, self.wanted = Path(app.config.ladder_root), set()

    def uri(self, path):
        self.wanted.add(path)
        return f"{FOLDER}/{path}.html"

    def pages(self, files):
        for path in sorted(self.wanted):
            body = self.file(path) if path in files else self.listing(path, files)
            yield f"{FOLDER}/{path}", {"title": path, "body": body}, "page.html"

    def file(self, path):
        text = (self.root / path).read_text(errors="replace")
        here = posixpath.dirname(f"{FOLDER}/{path}")

        def include(found):
            to = html.unescape(found[2])
            if to not in self.wanted:
                return found[0]
            return f'{found[1]}<a href="{posixpath.relpath(f"{FOLDER}/{to}.html", here)}">{found[2]}</a>{found[3]}'

        code = highlight(text, lexer_of(path), HtmlFormatter(linespans="L", wrapcode=True))
        code = re.sub(
            r'<span id="L-(\d+)">', r'<span id="L\1"><a class="line" href="#L\1">\1</a>', code
        )
        code = re.sub(r"(&quot;|&lt;)([\w./]+)(&quot;|&gt;)", include, code)
        return f"{heading(path)}<div class='highlight-cpp source-file'>{code}</div>"

    def listing(self, path, files):
        inside = [file for file in sorted(files) if file.startswith(f"{path}/")]
        here = f"{FOLDER}/{posixpath.dirname(path)}"
        items = "".join(
            f'<li><a href="{posixpath.relpath(f"{FOLDER}/{file}.html", here)}"><code>{html.escape(file)}</code></a></li>'
            if file in self.wanted
            else f"<li><code>{html.escape(file)}</code></li>"
            for file in inside
        )
        return f"{heading(path)}<ul>{items}</ul>"


def heading(path):
    return f"<h1 class='source-path'>{html.escape(path)}</h1>"


def lexer_of(path):
    try:
        return get_lexer_for_filename(LEXERS.get(Path(path).suffix, path), stripnl=False)
    except ClassNotFound:
        first = Path(path).name in ("ladder", "run", "format", "plant", "delta")
        return get_lexer_for_filename("x.sh", stripnl=False) if first else TextLexer(stripnl=False)


def begin(app):
    app.ladder_sources = Sources(app)


def setup(app):
    app.connect("builder-inited", begin)
    app.connect(
        "html-collect-pages", lambda app: app.ladder_sources.pages(app.ladder_repository.files)
    )
    return {"parallel_read_safe": True, "parallel_write_safe": False}

"""A report's page as data: tables, named numbers, figures, ids, and what must not be in it."""

import html.parser
import re

VOID = {"meta", "link", "br", "img", "input", "hr", "use", "path", "circle", "rect"}
# Where digits may stand that are no results: static explanations, code, dates, names.
QUIET = {"td", "th", "caption", "summary", "pre", "code", "time", "svg", "style", "title", "a", "h2", "sup"}
QUIET_CLASSES = {"how", "kicker", "missing", "source", "name"}


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.stack = []        # (tag, attributes)
        self.tables = {}       # id: list of rows; a row is a list of (kind, value)
        self.heads = {}        # id: list of titles
        self.numbers = []      # (name, value as text, shown)
        self.layers = []       # values of <data class="layer">
        self.ids = []
        self.figures = {}      # id: {"svg": bool, "marks": int, "labelled": id, "text": str}
        self.tags = set()
        self.urls = []
        self.stray = []        # digits outside of data and tables
        self.handlers = []     # attributes on...
        self.scope = "page"    # of named numbers: the model's section
        self._table = self._row = self._cell = self._head = self._number = self._figure = None
        self.feed(text)
        self.close()
        assert not self.stack, "unclosed: %r" % [t for t, _ in self.stack]

    def handle_starttag(self, tag, attributes):
        a = dict(attributes)
        self.tags.add(tag)
        if "id" in a:
            self.ids.append(a["id"])
        self.handlers += [k for k in a if k.startswith("on")]
        self.urls += [a[k] for k in ("href", "src", "xlink:href", "action") if k in a]
        if tag == "section":
            self.scope = a["id"]
        elif tag == "p" and "data-m" in a: # an answer, before the sections
            self.scope = a["data-m"]
        elif tag == "table":
            self._table = self.tables.setdefault(a["id"], [])
            assert not self._table, "two tables have the id " + a["id"]
            self._head = self.heads.setdefault(a["id"], [])
        elif tag == "tr" and self._inside("tbody"):
            self._row = []
        elif tag in ("td", "th"):
            self._cell = ["number", a["data-v"], ""] if "data-v" in a else ["text", None, ""]
        elif tag == "data":
            self._number = [a, ""]
        elif tag == "figure":
            self._figure = self.figures.setdefault(a["id"], {"svg": False, "marks": [], "caption": ""})
        elif tag == "svg":
            self._figure["svg"] = True
            self._figure["labelled"] = a.get("aria-labelledby")
            self._figure["role"] = a.get("role")
        elif tag == "use" and self._figure is not None and "transform" in a:
            at = re.match(r"translate\(([\d.]+),([\d.]+)\)", a["transform"])
            if at:
                self._figure["marks"].append((float(at[1]), float(at[2]), a.get("color")))
        if tag not in VOID:
            self.stack.append((tag, a))

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.stack.pop()

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        opened, opened_with = self.stack.pop()
        assert opened == tag, "</%s> closes <%s>" % (tag, opened)
        if tag in ("td", "th"):
            if self._row is None:
                self._head.append(self._cell[2])
            else:
                self._row.append((self._cell[0], self._cell[1] if self._cell[0] == "number" else self._cell[2],
                                  self._cell[2]))
            self._cell = None
        elif tag == "tr" and self._row is not None:
            self._table.append(self._row)
            self._row = None
        elif tag == "data":
            a, shown = self._number
            if a.get("class") == "n":
                self.numbers.append((self.scope, a["data-n"], a["value"], shown))
            elif a.get("class") == "layer":
                self.layers.append((a["value"], shown))
            self._number = None
        elif tag == "section" or tag == "p" and "data-m" in opened_with:
            self.scope = "page"
        elif tag == "figure":
            self._figure = None

    def handle_data(self, text):
        if self._cell is not None:
            self._cell[2] += text
        if self._number is not None:
            self._number[1] += text
            return
        if self._figure is not None and self._inside("figcaption"):
            self._figure["caption"] += text
        quiet = any(t in QUIET or set(a.get("class", "").split()) & QUIET_CLASSES for t, a in self.stack)
        if re.search(r"\d", text) and not quiet:
            self.stray.append(text)

    def _inside(self, tag):
        return any(t == tag for t, _ in self.stack)


def shown_agrees(value, shown):
    """Is the rounded number in the page that of the exact one?"""
    if value == "":
        return shown.strip() in ("–", "-")
    x = float(value)
    if x in (float("inf"), float("-inf")):
        return "overflow" in shown
    decimals = len(shown.split(".")[1]) if "." in shown and "e" not in shown else 0
    if "e" in shown:
        return abs(float(shown) - x) <= 1e-3 * abs(x)
    return abs(float(shown) - x) <= 0.5000001 * 10.0 ** -decimals or abs(float(shown) - x) <= 6e-4 * abs(x)

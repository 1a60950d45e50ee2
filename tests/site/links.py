"""Reads a built site: the links of its pages and the anchors they lead to."""

from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"script": "src", "img": "src", "link": "href", "source": "src", "iframe": "src"}


class Page(HTMLParser):
    """The links, anchors and loaded files of one page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors, self.loaded = [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors |= {given[k] for k in ("id", "name") if given.get(k)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag in LOADED and given.get(LOADED[tag]) and given.get("rel") not in ("canonical",):
            self.loaded.append(given[LOADED[tag]])


class Site:
    """A folder of built pages."""

    def __init__(self, folder):
        self.folder = Path(folder).resolve()

    @cached_property
    def pages(self):
        return {p: Page(p.read_text()) for p in sorted(self.folder.rglob("*.html"))}

    def target(self, page, link):
        """The file that a link of a page leads to, and the anchor; None = it leads elsewhere."""
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            return None
        path = unquote(parts.path)
        if not path:
            file = page
        else:
            base = self.folder if path.startswith("/") else page.parent
            file = (base / path.lstrip("/")).resolve()
        if file.is_dir():
            file = file / "index.html"
        return file, unquote(parts.fragment)

    def dead(self):
        """Every internal link whose page or anchor is not there."""
        found = []
        for page, read in self.pages.items():
            if page.name == "404.html":
                continue
            for link in {*read.links, *read.loaded}:
                if (target := self.target(page, link)) is None:
                    continue
                file, anchor = target
                there = self.pages.get(file)
                if not file.is_file() or (anchor and there is not None and anchor not in there.anchors):
                    found.append((page.relative_to(self.folder).as_posix(), link))
        return sorted(found)

    def outside(self):
        """What pages would load from another server."""
        return sorted({x for p in self.pages.values() for x in p.loaded if urlsplit(x).netloc})

    def reachable(self, clicks):
        """Pages within so many clicks of the front page."""
        seen = layer = {self.folder / "index.html"}
        for _ in range(clicks):
            targets = [self.target(p, x) for p in layer for x in self.pages[p].links]
            layer = {t[0] for t in targets if t and t[0] in self.pages} - seen
            seen = seen | layer
        return seen

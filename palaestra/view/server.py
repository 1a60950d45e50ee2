"""The viewer's server: read-only, of this machine, for a page that asks nobody else.

Who else could reach it: another machine (it listens on the loopback alone), a page of another
origin under a name of its own that leads here (the Host header is checked), or by a plain request
(Sec-Fetch-Site is, and what costs much asks for a header that such a request cannot have). Paths
are matched against what there is, never opened.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import ipaddress
import re
from collections.abc import Sequence
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from threading import Timer
from urllib.parse import parse_qsl, unquote, urlsplit

from palaestra.errors import UserError
from palaestra.view.answers import PageAnswer, PageAnswers
from palaestra.view.reader import RunReader

NAMES = ("localhost", "127.0.0.1", "[::1]")
POLICY = (
    "default-src 'none'; script-src 'self' {}; style-src 'self'; connect-src 'self'; img-src data:; media-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
OWN_HEADER = "X-Palaestra"  # of the page's own requests; others may not set it across origins
PACKED_FROM = 10_000  # bytes
PAGE_FIRST = 1.5  # seconds in which a page takes what it shows, before texts are read ahead
MEDIA = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}


@cache
def page_files() -> dict[str, PageAnswer]:
    """Everything that the page is made of, by its address."""
    files: dict[str, PageAnswer] = {}
    root = resources.files("palaestra.view") / "page"
    for folder, prefix in ((root, ""), (root / "vendor", "vendor/")):
        for file in folder.iterdir():
            suffix = "." + file.name.rpartition(".")[2]
            if suffix in MEDIA:
                media = f"{MEDIA[suffix]}; charset=utf-8"
                files[f"{prefix}{file.name}"] = PageAnswer(data=file.read_bytes(), media=media)
    return files


@cache
def policy() -> str:
    """Allows the page's own files, and of scripts inside it the map of its modules alone."""
    text = page_files()["index.html"].data.decode("utf-8")
    match = re.search(r'<script type="importmap">(.*?)</script>', text, re.DOTALL)
    return POLICY.format(digest(match[1] if match else ""))


def digest(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


class ViewerServer(ThreadingHTTPServer):
    """Serves some runs. `host` other than the loopback is the user's own decision."""

    daemon_threads = True

    def __init__(self, runs: Sequence[RunReader], host: str = "127.0.0.1", port: int = 0):
        self.answers = PageAnswers(runs)
        self.names = NAMES if host in ("127.0.0.1", "::1", "localhost") else (*NAMES, host.lower())
        self.open = self.names is not NAMES
        self.reader = Timer(PAGE_FIRST, self.read_ahead, [runs])
        self.reader.daemon = True
        super().__init__((host, port), PageHandler)
        self.reader.start()

    def server_close(self) -> None:
        self.reader.cancel()
        super().server_close()

    def read_ahead(self, runs: Sequence[RunReader]) -> None:
        """The texts, before somebody searches them."""
        for run in runs:
            for table in run.tables.values():
                table.read_texts()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    def knows(self, host: str) -> bool:
        """Whether a Host header is one of this server's names. An address cannot be rebound, so
        where others may come any will do.
        """
        name = (
            host.lower().rpartition(":")[0]
            if host.count(":") == 1 or "]:" in host
            else host.lower()
        )
        if name in self.names:
            return True
        try:
            return self.open and bool(ipaddress.ip_address(name.strip("[]")))
        except ValueError:
            return False


class PageHandler(BaseHTTPRequestHandler):
    server_version, sys_version = "palaestra", ""
    protocol_version = "HTTP/1.1"
    timeout = 60

    @property
    def viewer(self) -> ViewerServer:
        assert isinstance(self.server, ViewerServer)
        return self.server

    def do_GET(self) -> None:
        if not self.viewer.knows(self.headers.get("Host", "")):
            return self.refuse(400, "this is not a name of the viewer")
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            return self.refuse(403, "the viewer answers its own page alone")
        address = urlsplit(self.path)
        parts = [unquote(p) for p in address.path.split("/")[1:]]
        try:
            if parts[0] == "api":
                if parts[3:4] == ["explain"] and OWN_HEADER not in self.headers:
                    return self.refuse(403, "the viewer answers its own page alone")
                return self.reply(
                    self.viewer.answers.get(parts[1:], dict(parse_qsl(address.query)))
                )
            return self.reply(page_files()["/".join(parts) or "index.html"])
        except LookupError:
            return self.refuse(404, "there is nothing under this address")
        except (UserError, OSError, ValueError) as error:
            return self.refuse(
                422, str(error).splitlines()[0] if str(error) else type(error).__name__
            )

    def reply(self, answer: PageAnswer, status: int = 200) -> None:
        data, packed = answer.data, False
        if len(data) >= PACKED_FROM and "gzip" in self.headers.get("Accept-Encoding", ""):
            data, packed = gzip.compress(data, 1, mtime=0), True
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Security-Policy": policy()}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", answer.media)
        self.send_header("Content-Length", str(len(data)))
        if packed:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status: int, why: str) -> None:
        self.reply(PageAnswer(data=why.encode(), media="text/plain; charset=utf-8"), status)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is said of requests."""

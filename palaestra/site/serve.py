"""Shows the built site in the reader's browser: the files of one folder, to this machine alone."""

from __future__ import annotations

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

from palaestra.view.server import NAMES

POLICY = (  # scripts inside the pages are the theme's own; nothing is loaded from elsewhere
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; worker-src 'self' blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


class SiteServer(ThreadingHTTPServer):
    """Serves a folder on the loopback."""

    daemon_threads = True

    def __init__(self, folder: Path, port: int = 0):
        super().__init__(("127.0.0.1", port), partial(SiteHandler, directory=str(folder)))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class SiteHandler(SimpleHTTPRequestHandler):
    """Files, under the names of this machine alone: another name may lead here from elsewhere."""

    server_version, sys_version = "palaestra", ""

    def send_head(self):  # pyright: ignore[reportMissingParameterType]
        if self.headers.get("Host", "").rpartition(":")[0] not in NAMES:
            self.send_error(400, "this is not a name of the documentation")
            return None
        if "\0" in unquote(self.path):  # no file is called so, and the system refuses to look
            self.send_error(404, "there is nothing under this address")
            return None
        return super().send_head()

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is said of requests."""

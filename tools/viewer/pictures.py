"""The pictures of docs/viewer.md, from a run folder: `python tools/viewer/pictures.py RUN [OTHER]`.

Needs Playwright (`pip install 'palaestra[browser]'`) and a Chromium of the system.
"""

from __future__ import annotations

import shutil
import sys
import threading
from pathlib import Path

from playwright.sync_api import sync_playwright

from palaestra.view.reader import open_runs
from palaestra.view.server import ViewerServer

DOCS = Path(__file__).parents[2] / "docs"
SHOTS = {
    "viewer-groups": ("#/0/groups?order=spread", 1100, 860),
    "viewer-group": ("#/0/group/3/2?colour=weight&row=0&token=24", 1100, 760),
    "viewer-tree": ("#/0/group/3/2?tree=1", 1100, 680),
    "viewer-signs": ("#/0/signs", 1100, 860),
}


def main(runs: list[str]) -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with ViewerServer(open_runs([Path(r) for r in runs])) as server, sync_playwright() as p:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, (address, width, height) in SHOTS.items():
            page = browser.new_page(viewport={"width": width, "height": height})
            page.goto(server.url + address)
            page.wait_for_selector("html[data-ready]")
            page.wait_for_timeout(1000)
            page.screenshot(path=DOCS / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])

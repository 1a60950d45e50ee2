"""A real browser for the tests of the page: the system's Chromium, driven by Playwright."""

import shutil

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-headless-shell", "google-chrome"))), None)


@pytest.fixture(scope="module")
def browser():
    sync = pytest.importorskip("playwright.sync_api", reason="pip install 'palaestra[browser]'")
    if CHROMIUM is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    with sync.sync_playwright() as p:
        found = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()

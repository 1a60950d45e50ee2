"""The site in a real browser: the table of methods, the search, narrow and dark, and no other server asked."""

import threading
from contextlib import contextmanager

import pytest
from palaestra.site.serve import SiteServer

from tests.view.conftest import browser  # noqa: F401

pytestmark = pytest.mark.browser
PAGES = (
    "",
    "methods/",
    "docs/methods/agro/",
    "docs/methods/ghpo/",
    "reference/commands/",
    "docs/first-run/",
    "docs/atlas/",
)


@contextmanager
def opened(browser, folder, address="", **given):  # noqa: F811
    """A page of the site. Fails for what it complained about, and for any address but its own."""
    said = []
    with SiteServer(folder) as server:
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        page = browser.new_page(**given)
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda e: said.append(str(e)))
        page.on("console", lambda m: said.append(m.text) if m.type == "error" else None)
        page.on(
            "request", lambda r: said.append(r.url) if not r.url.startswith((server.url, "data:", "blob:")) else None
        )
        page.goto(server.url + address)
        yield page, server.url
        page.close()
        server.shutdown()
    assert not said


def shown(page):
    return page.eval_on_selector_all(
        "#methods-table tbody tr", "rows => rows.filter(r => !r.hidden).map(r => r.cells[0].textContent)"
    )


def test_the_table_filters_and_sorts_and_its_address_can_be_passed_on(browser, folder):  # noqa: F811
    with opened(browser, folder, "methods/") as (page, url):
        everything = shown(page)
        page.select_option("#pick-family", "objectives")
        page.select_option("#pick-changes", "credit")
        some = shown(page)
        assert 5 < len(some) < len(everything) and page.inner_text("#pick-count").startswith(f"{len(some)} of")
        page.click("th[data-key=size] button")
        sizes = "rows => rows.filter(r => !r.hidden && r.dataset.size).map(r => Number(r.dataset.size))"
        found = page.eval_on_selector_all("#methods-table tbody tr", sizes)
        assert found == sorted(found) and len(found) > 3
        page.click("th[data-key=size] button")
        assert page.eval_on_selector_all("#methods-table tbody tr", sizes) == sorted(found, reverse=True)
        assert page.get_attribute("th[data-key=size]", "aria-sort") == "descending"
        address = page.evaluate("location.hash")
        assert "family=objectives" in address and "sort=-size" in address
        again, page_2 = shown(page), browser.new_page()
        page_2.goto(url + "methods/" + address)
        assert shown(page_2) == again
        page_2.close()
        page.fill("#pick-text", "tempo")
        assert [x for x in shown(page) if "tempo" in x] and len(shown(page)) < 5


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_pages_fit_and_have_their_ground(browser, folder, width, scheme):  # noqa: F811
    size = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    with opened(browser, folder, **size) as (page, url):
        for address in PAGES:
            page.goto(url + address)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, address
            ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
            light = sum(int(x) for x in ground.removeprefix("rgb(").rstrip(")").split(",")[:3]) > 384
            assert light == (scheme == "light"), (address, ground)


def test_a_formula_is_drawn_as_mathematics(browser, folder):  # noqa: F811
    with opened(browser, folder, "docs/methods/agro/") as (page, _):
        heights = page.eval_on_selector_all(".formula math mfrac", "f => f.map(x => x.getBoundingClientRect().height)")
        line = page.eval_on_selector(".method p", "p => parseFloat(getComputedStyle(p).fontSize)")
        assert heights and max(heights) > 1.4 * line, "a fraction is higher than a line of text"


def test_search_in_the_page(browser, folder):  # noqa: F811
    with opened(browser, folder) as (page, _):
        page.wait_for_timeout(500)  # until the theme listens
        page.keyboard.press("Control+k")
        page.wait_for_selector("input[role=combobox], input[type=text] >> visible=true")
        page.keyboard.type("role-conditioned advantage")
        page.wait_for_selector("a[href*='docs/methods/spiral/']")  # inside a shadow root, which selectors reach

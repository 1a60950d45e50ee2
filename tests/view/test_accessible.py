"""Every view for those who use no mouse, see little or use another reader: axe-core, the keyboard, what has the focus."""

import json

import pytest
from benchmarks.made_up import write_run
from palaestra.store.columns import evaluation_path, path

from tests.view.browsing import opened, rewrite
from tests.view.test_viewer import served

pytestmark = pytest.mark.browser
VIEWS = {
    "groups": "#/0/groups", "chosen groups": "#/0/groups?outcome=cut&task=train-3", "why": "#/0/groups?from=2&to=9",
    "no group": "#/0/groups?q=nothing+like+that", "problems": "#/0/problems?fate=mixed", "signs": "#/0/signs",
    "judges": "#/0/judges", "time": "#/0/time", "settings": "#/0/settings", "group": "#/0/group/3/2?colour=weight&row=0&token=24",
    "surprise": "#/0/group/3/2?colour=surprise", "authors": "#/0/group/3/2?colour=author", "tree": "#/0/group/3/2?tree=1",
    "held-out": "#/0/groups?table=held-out", "compare": "#/compare/0/1", "side by side": "#/compare/0/1?task=train-3",
    "keys": "#/0/groups?keys=1", "no run": "#/7/groups", "not recorded": "#/0/group/99/0",
}  # fmt: skip
SIZES = {"wide": {"width": 1280, "height": 900}, "narrow": {"width": 400, "height": 900}}
BAD = ("serious", "critical")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = write_run(tmp_path_factory.mktemp("axe") / "run", 12, groups=8, samples=4, problems=30, tokens=20)
    parts = [json.dumps({"j": 0.5, "j/agreement": 0.5 if i == 5 else 1.0}) for i in range(32)]
    votes = [{"judge": "mild", "score": 1.0, "said": "I like it"}]
    rewrite(folder, 4, reward_parts=parts, verdicts=[votes] * 32)
    held = evaluation_path(folder, "held-out", 12)
    held.parent.mkdir(parents=True)
    held.write_bytes(path(folder, 12).read_bytes())
    return folder


@pytest.fixture(autouse=True)
def cache_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache-home"))


def go(page, view):
    page.evaluate("x => { location.hash = x }", VIEWS[view])
    page.wait_for_timeout(150)
    page.wait_for_function(
        "() => !/^(reading|comparing|searching)/m.test(document.getElementById('content').innerText)"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_axe_finds_nothing_serious(browser, made, scheme, size):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install 'palaestra[browser]'").Axe()
    found = {}
    with served(made, made) as server, opened(browser, server.url, viewport=SIZES[size], color_scheme=scheme) as page:
        for view in VIEWS:
            go(page, view)
            rules = axe.run(page).response["violations"]
            bad = {r["id"]: [n["html"][:120] for n in r["nodes"][:3]] for r in rules if r["impact"] in BAD}
            found |= {view: bad} if bad else {}
    assert not found


FOCUSED = """() => {
  const e = document.activeElement, s = getComputedStyle(e), row = e.closest('.row');
  const drawn = [s, ...(row ? [getComputedStyle(row)] : [])];
  const seen = drawn.some((x) => x.outlineStyle !== 'none' && parseFloat(x.outlineWidth) >= 1);
  e.dataset.test ||= String(Math.random());
  return { what: e === document.body ? '' : e.outerHTML.slice(0, 80), seen, id: e.dataset.test };
}"""
CONTROLS = """() => [...document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]')]
  .filter((e) => e.checkVisibility() && !e.closest('.skip') && e.tabIndex >= 0 && !(e.type === 'radio' && !e.checked))
  .length"""


@pytest.mark.parametrize("view", ["groups", "problems", "group", "tree", "compare"])
def test_every_control_is_reached_by_the_keyboard_and_shows_it(browser, made, view):
    with served(made, made) as server, opened(browser, server.url) as page:
        go(page, view)
        wanted, seen = page.evaluate(CONTROLS), set()
        page.evaluate("document.body.focus()")
        for _ in range(wanted + 9):
            page.keyboard.press("Tab")
            now = page.evaluate(FOCUSED)
            if now["id"] in seen or not now["what"]:
                break
            assert now["seen"], now["what"]
            seen.add(now["id"])
        assert len(seen) >= wanted, (len(seen), wanted)


def test_groups_are_walked_by_arrows(browser, made):
    """Each one comes once and in its order, whatever is drawn anew on the way; the search is a key away from there."""
    with served(made) as server, opened(browser, server.url) as page:
        page.focus(".scroll .row a[tabindex='0']")
        at = lambda: page.evaluate("+(document.activeElement.dataset.at ?? -1)")
        walked = [at()]
        for _ in range(40):
            page.keyboard.press("ArrowDown")
            page.wait_for_function("n => document.activeElement.dataset.at > n", arg=walked[-1])
            walked.append(at())
        assert walked == list(range(41)) and page.evaluate(FOCUSED)["seen"]
        page.keyboard.press("End")
        page.wait_for_function("() => document.activeElement.dataset.at == 95")
        page.keyboard.press("Enter")
        page.wait_for_selector(".turn.own")
        assert "/group/12/7" in page.url

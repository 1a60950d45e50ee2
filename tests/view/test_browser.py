"""The viewer's page in a real browser: the system's Chromium, driven by Playwright."""

import json
import re
import shutil
import subprocess
import sys
import time

import numpy as np
import pyarrow.parquet as pq
import pytest
from benchmarks.made_up import write_run
from palaestra.store.columns import path
from palaestra.view.export import write
from palaestra.view.reader import RunReader, open_runs

from tests.view.browsing import CONTRAST, UNNAMED, opened, rewrite
from tests.view.test_viewer import HOSTILE, served

pytestmark = pytest.mark.browser
STEPS = 12


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("browser") / "run", STEPS, groups=8, samples=4, problems=30, tokens=20)


@pytest.fixture(autouse=True)
def cache_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache-home"))


def test_from_the_table_to_a_token_with_the_keyboard(browser, made):
    with served(made) as server, opened(browser, server.url) as page:
        assert "96 groups" in page.inner_text("output")
        index = RunReader(made).table("training").index.slice(0, 32)
        which = next(g for g in range(8) if len(set(index["reward"].to_pylist()[4 * g : 4 * g + 4])) > 1)
        page.focus(f".scroll .row >> nth={which} >> a")
        page.keyboard.press("Enter")
        page.wait_for_selector(".turn.own")
        episodes = RunReader(made).table("training").group(1, which)
        best = max(episodes, key=lambda e: e["reward"])["rows"][0]
        shown = page.locator(".turn.own .tokens").evaluate("e => e.textContent").replace("↵", "")
        assert shown == "".join(t for t, own in zip(best["tokens"], best["trained"], strict=True) if own)
        page.focus(".turn.own .tokens")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        told = page.inner_text(".told")
        assert all(x in told for x in ("probability", "credit", "weight", "ratio 1")) and "token=21" in page.url
        page.keyboard.press("c")
        assert "colour=weight" in page.url and page.locator(".tokens [class*=up]").count() > 2
        page.keyboard.press("n")
        assert "at=1" in page.url
        address = page.url
        page.keyboard.press("Escape")
        page.wait_for_selector(".scroll .row")
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.type") == "search"
    with served(made) as server, opened(browser, server.url + address[address.index("#") :]) as page:
        page.wait_for_selector(".answers button[aria-pressed=true]")
        assert page.locator(".answers button").nth(1).get_attribute("aria-pressed") == "true"


def test_search_filter_and_order_are_addresses(browser, made):
    words = "so the answer"
    with served(made) as server, opened(browser, server.url) as page:
        page.fill("input[type=search]", words)
        page.keyboard.press("Enter")
        n = len(RunReader(made).table("training").search(words))
        page.wait_for_selector(f"output:has-text('{n} answers match')")
        page.select_option("select[aria-label=outcome]", "mixed")
        page.select_option("select[aria-label=order]", "spread")
        assert all(x in page.url for x in ("q=so+the+answer", "outcome=mixed", "order=spread"))
        told = page.inner_text("output")
        page.reload()
        page.wait_for_selector("html[data-ready]")
        page.wait_for_selector(f"output:has-text('{told}')")


@pytest.mark.parametrize(
    ("tab", "wanted"),
    [
        ("problems", r"\d+ (learned|mixed|never)"), ("signs", "copies among answers"), ("time", "Slowest steps"),
        ("judges", "No judge"), ("settings", "made-up"),
    ],
)  # fmt: skip
def test_each_question_is_a_click_away(browser, made, tab, wanted):
    with served(made) as server, opened(browser, server.url) as page:
        page.click(f".tabs a:has-text('{tab}')")
        page.wait_for_function("x => new RegExp(x).test(document.body.innerText)", arg=wanted)
        page.locator("table a").first.click() if tab in ("problems", "time") else None
        assert tab not in ("problems", "time") or page.locator(".scroll .row").count() > 0


def test_two_runs_beside_one_another(browser, made, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(made, other)
    (other / "config.toml").write_text('recipe = "rloo"\n')
    with served(made, other) as server, opened(browser, server.url) as page:
        page.click("text=compare with another")
        page.wait_for_selector("text=Settings that differ")
        assert '"rloo"' in page.inner_text("#content")
        page.locator(".choices + table a").first.click()
        page.wait_for_selector(".beside .turn.own >> nth=1")
        assert page.locator(".beside > section").count() == 2


def test_what_another_method_would_say(browser, made, monkeypatch):
    """Only the page's own request is answered, and its numbers stand beside the recorded ones."""
    from palaestra.view import answers

    def explained(run, method, step, group):
        n = [sum(e["rows"][0]["trained"]) for e in run.table("training").group(step, group)]
        order = sorted(range(len(n)), key=lambda i: -run.table("training").group(step, group)[i]["reward"])
        return {
            "advantages": [[0.25] * len(n)],
            "token_weights": [[[0.125] * n[i] for i in order]],
            "notes": ["a note"],
        }

    monkeypatch.setattr(answers, "explained", explained)
    step, group = next(
        (s, g) for s in range(1, STEPS) for g in range(8)
        if {e["status"] for e in RunReader(made).table("training").group(s, g)} == {"finished"}
    )  # fmt: skip
    with served(made) as server, opened(browser, f"{server.url}#/0/group/{step}/{group}") as page:
        page.fill("input[name=method]", "rloo")
        page.click("text=show its weights")
        page.wait_for_selector("text=a note")
        assert "there +0.25" in page.inner_text(".answers") and "explain=rloo" in page.url
        page.focus(".turn.own .tokens")
        page.keyboard.press("ArrowRight")
        assert "weight there +0.125" in page.inner_text(".told")


def test_a_run_that_goes_on_is_followed(browser, made, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(made, folder)
    content = path(folder, STEPS).read_bytes()
    path(folder, STEPS).unlink()
    with served(folder) as server, opened(browser, server.url) as page:
        assert "88 groups" in page.inner_text("output")
        path(folder, STEPS).write_bytes(content)
        page.wait_for_selector("output:has-text('96 groups')")


def test_a_run_is_watched_from_its_first_step_to_its_end(browser, tmp_path):
    """A real one, in a process of its own, long enough for a browser to come; the page is opened once and never loaded again."""
    folder = tmp_path / "run"
    steps = 60
    told = f"train grpo --task chain --steps {steps} --evaluate 4 schedule.prompts=2 collect.links.0.n=4 --out {folder}"
    command = [sys.executable, "-m", "palaestra", *told.split()]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: path(folder, 1).is_file(), run)
        with served(folder) as server, opened(browser, server.url) as page:
            page.set_default_timeout(120_000)
            page.evaluate("window.stays = true")
            told = page.inner_text("header")
            first = int(re.search(r"in (\d+) steps?", told)[1])
            assert "not finished" in told and first < steps
            page.wait_for_function(
                "n => +/in (\\d+) steps?/.exec(document.querySelector('header').innerText)[1] > n", arg=first
            )
            page.wait_for_function("() => !document.querySelector('header').innerText.includes('not finished')")
            page.wait_for_selector("output:has-text('120 groups')")
            assert f"{8 * steps} rollouts in {steps} steps" in page.inner_text("header") and page.evaluate(
                "window.stays"
            )
            assert page.inner_text(".verdict").startswith("Held-out accuracy")
            label = page.locator(".uplot").first.get_attribute("aria-label")
            assert label.endswith(f"at step {steps}"), label
    finally:
        run.kill()
        run.wait()


def wait_for(done, process, seconds=120):
    end = time.monotonic() + seconds
    while not done():
        assert process.poll() is None and time.monotonic() < end, "the run did not begin"
        time.sleep(0.05)


def test_the_file_needs_no_server(browser, made, tmp_path):
    write([RunReader(made)], tmp_path / "run.html", megabytes=64)
    with opened(browser, f"file://{tmp_path / 'run.html'}") as page:
        page.click(".scroll .row a >> nth=0")
        page.wait_for_selector(".tokens i >> nth=10")
        page.keyboard.press("3")
        page.wait_for_selector("text=copies among answers")
    write([RunReader(made)], tmp_path / "small.html", megabytes=0.05)
    with opened(browser, f"file://{tmp_path / 'small.html'}#/0/group/6/1") as page:
        page.wait_for_selector("text=this is not part of the file")


def test_texts_are_never_code(browser, made, tmp_path):
    folder = tmp_path / "hostile"
    shutil.copytree(made, folder)
    for name in ("config.toml", "metrics.jsonl"):
        (folder / name).write_text((folder / name).read_text().replace("made-up", HOSTILE))
    many = [HOSTILE] * 32
    rewrite(folder, 1, prompt=many, text=many, task_id=many, domain=many, answer=many, kept=many, status=many,
            facts=[json.dumps({HOSTILE: HOSTILE})] * 32, reward_parts=[json.dumps({HOSTILE: 1.0})] * 32)  # fmt: skip
    write([RunReader(folder)], tmp_path / "x.html")
    with served(folder) as server:
        for address in (server.url, f"file://{tmp_path / 'x.html'}"):
            with opened(browser, address) as page:
                page.click(".scroll .row a >> nth=0")
                page.wait_for_selector(".tokens")
                assert page.evaluate("window.stolen") is None and HOSTILE in page.inner_text("h2")
                assert HOSTILE in page.inner_text(".facts") and page.locator("img").count() == 0


def test_turns_tools_seats_and_pictures_in_their_places(browser, made, tmp_path):
    from palaestra.pictures import Picture
    from palaestra.store import rollouts
    from palaestra.types import Episode, Group, Message, Reward, Row, Segment, Task

    picture = Picture(shape=(2, 2, 3), data=bytes(range(0, 240, 20)))
    asked = Segment(ids=(1, *picture.ids(2)), pictures=(picture,))
    calls = Segment(ids=(2,), author="policy", policy="policy", turn=0, trained=True, logp=(-0.5,), text="x")
    result = Segment(ids=(3,), turn=1)
    hint = Segment(ids=(4,), hidden=True, author="teacher")
    last = Segment(ids=(5,), author="policy", policy="policy", turn=2, trained=True, logp=(-0.1,), text="y")
    rows = (
        Row(segments=(asked, calls, result, hint, last), seat="solver", key=(1,)),
        Row(segments=(last,), seat="judge", thread="b"),
        Row(
            segments=(Segment(ids=(), text="your move", turn=3), Segment(ids=(), text="b2", author="script", turn=3)),
            seat="o",
        ),
    )
    group = Group(
        task=Task(id="t", prompt=(Message(role="user", content="look"),)),
        episodes=(Episode(rows=rows, reward=Reward(total=1.0), status="finished"),),
    )
    words = {1: "look ", 2: '<tool_call>{"name": "add", "arguments": {}}', 3: "4", 4: "hint", 5: "done"}
    decode = lambda ids: "".join(words.get(i, "") for i in ids)
    rollouts.write(path(tmp_path / "run", 1), 1, [group], rollouts.NOTHING, decode)
    (tmp_path / "run" / "config.toml").write_text("")
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 1, "reward": 1.0}\n')
    with served(tmp_path / "run") as server, opened(browser, f"{server.url}#/0/group/1/0") as page:
        page.wait_for_selector(".turn >> nth=7")
        told = [re.sub(r",? turn \d", "", t) for t in page.locator(".turn small").all_inner_texts()]
        assert told == [
            "prompt",
            "solver, calls a tool",
            "tool result",
            "teacher, hidden when trained",
            "solver",
            "judge",
            "prompt, without tokens",
            "script as o, without tokens",
        ]
        assert page.locator("h3").all_inner_texts()[:3] == ["solver", "judge, b", "o"]
        assert page.locator(".turn").last.inner_text().endswith("b2")
        image = page.locator(".turn img")
        assert image.count() == 1 and image.evaluate("e => [e.naturalWidth, e.naturalHeight]") == [2, 2]


def test_where_no_credit_is_known_the_first_colour_that_is_known_is_shown(browser, made, tmp_path):
    """Demonstrations have a weight and no credit: what is told and what is coloured are the same."""
    folder = shutil.copytree(made, tmp_path / "run")
    lines = pq.ParquetFile(path(folder, 2)).read().to_pylist()
    rows = [
        [{**r, "advantage": [None] * len(r["tokens"]), "weight": [0.5 * t for t in r["trained"]]} for r in e["rows"]]
        for e in lines
    ]
    rewrite(folder, 2, rows=rows)
    with served(folder) as server, opened(browser, f"{server.url}#/0/group/2/0") as page:
        page.wait_for_selector(".turn.own .tokens i.up4")
        assert page.is_checked(".colours label:has-text('weight') input") and "same credit" not in page.inner_text(
            "article"
        )


def test_answers_stand_as_a_tree_by_what_they_begin_with(browser, made, tmp_path):
    """By hand: three begin with "a", two of these go on with "b"; one was forked from the first."""
    folder = shutil.copytree(made, tmp_path / "run")
    said = [["a", "b", "c"], ["a", "b", "d"], ["a", "e"], ["f"]]
    lines = pq.ParquetFile(path(folder, 2)).read().to_pylist()
    rows = [[list_of_tokens(lines[i]["rows"][0], said[i])] if i < 4 else lines[i]["rows"] for i in range(32)]
    rewards = [1.0, 0.0, 1.0, 0.0] + [e["reward"] for e in lines[4:]]
    forked = {"parent": [None, 0, *[None] * 30], "forked_at": [None, 2, *[None] * 30]}
    rewrite(folder, 2, rows=rows, reward=rewards, status=["finished"] * 32, **forked)
    with served(folder) as server, opened(browser, f"{server.url}#/0/group/2/0") as page:
        page.wait_for_selector(".answers button >> nth=3")
        page.keyboard.press("t")
        page.wait_for_selector(".tree")
        told = [re.sub(r"\s+", " ", x) for x in page.locator(".tree summary").all_inner_texts()]
        assert told == ["0.5 mean of 4 …", "0.667 mean of 3 a", "0.5 mean of 2 b"]
        leaves = [re.sub(r"\s+", " ", x) for x in page.locator(".tree button").all_inner_texts()]
        assert leaves == ["1 c", "0 d left answer 1 at step 2", "1 e", "0 f"]
        page.locator(".tree button").nth(2).click()
        page.wait_for_function("() => document.querySelector('.turn.own .tokens')?.textContent === 'ae'")


def list_of_tokens(row, said):
    """A row whose answer these tokens are, behind a prompt of one."""
    n = len(said)
    number = {name: [None, *[0.5] * n] for name in ("logp", "advantage", "weight", "ratio")}
    more = {
        "ids": list(range(n + 1)),
        "tokens": ["?", *said],
        "trained": [False, *[True] * n],
        "hidden": [False] * (n + 1),
    }
    return row | number | more | {"author": ["environment", *["policy"] * n], "turn": [0] * (n + 1)}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_pages_do_not_scroll_sideways_and_can_be_read(browser, made, scheme):
    """Contrast of every text against what lies behind it: 4.5 to 1."""
    size = {"width": 400, "height": 900}
    with served(made, made) as server, opened(browser, server.url, viewport=size, color_scheme=scheme) as page:
        for place in (
            "#/0/groups",
            "#/0/group/3/2?colour=weight",
            "#/0/group/3/2?colour=surprise",
            "#/0/signs",
            "#/0/time",
            "#/compare/0/1",
            "#/0/settings",
        ):
            page.evaluate("x => { location.hash = x }", place)
            page.wait_for_timeout(300)
            assert page.evaluate("document.documentElement.scrollWidth") == 400, place
            assert not (poor := page.evaluate(CONTRAST)), (place, poor)
            unnamed = page.evaluate(UNNAMED)
            assert not unnamed, (place, unnamed)


def test_only_what_is_in_sight_is_drawn(browser, made):
    with served(made) as server, opened(browser, server.url) as page:
        assert page.locator(".scroll .row").count() < 40
        before = page.locator(".scroll .row").first.inner_text()
        page.evaluate("document.querySelector('.scroll').scrollTop = 2000")
        page.wait_for_function("x => document.querySelector('.scroll .row').innerText !== x", arg=before)
        assert np.isfinite(len(open_runs([made])))

"""The questions that the viewer is for, each answered in at most two clicks from the page as it opens."""

import json
import shutil
from contextlib import contextmanager

import pyarrow.parquet as pq
import pytest
from benchmarks.made_up import write_run
from palaestra.store.columns import path
from palaestra.view import answers
from palaestra.view.problems import fates
from palaestra.view.reader import RunReader
from palaestra.view.signs import rise

from tests.view.browsing import opened, rewrite
from tests.view.test_viewer import served

pytestmark = pytest.mark.browser
STEPS, GROUPS, SAMPLES = 12, 8, 4
E = GROUPS * SAMPLES


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("questions") / "run", STEPS, GROUPS, SAMPLES, problems=30, tokens=20)


@pytest.fixture(autouse=True)
def cache_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache-home"))


class Visitor:
    """Somebody who clicks at most twice. To choose from a list is two clicks, to drag is one."""

    def __init__(self, page):
        self.page, self.clicks = page, 0

    def click(self, what, nth=0):
        self.spend(1)
        self.page.locator(what).nth(nth).click()

    def choose(self, what, value):
        self.spend(2)
        self.page.select_option(what, value)

    def spend(self, n):
        self.clicks += n
        assert self.clicks <= 2, "the question takes more than two clicks"

    def reads(self, *words):
        """Waits until all of them can be read, and gives what can."""
        self.page.wait_for_function("words => words.every((w) => document.body.innerText.includes(w))", arg=list(words))
        return self.page.inner_text("body")


@contextmanager
def visited(browser, *folders):
    with served(*folders) as server, opened(browser, server.url) as page:
        yield Visitor(page)


def lines_of(folder, step):
    return pq.ParquetFile(path(folder, step)).read().to_pylist()


def short(x):
    """As the page writes a number."""
    return f"{float(f'{x:.3g}'):.12g}".replace("-", "−")


def test_why_did_the_reward_rise(browser, made, tmp_path):
    folder = shutil.copytree(made, tmp_path / "parts")
    for step in range(1, STEPS + 1):
        parts = [json.dumps({"right": e["reward"], "brief": step / 10}) for e in lines_of(folder, step)]
        rewrite(folder, step, reward_parts=parts)
    found = rise(RunReader(folder))
    with visited(browser, folder) as v:
        v.click("summary:has-text('Why the reward changed')")
        told = v.reads(f"{short(found['same'])} from the same problems answered otherwise", "Tokens an answer")
        assert f"{short(found['drawn'])} from other problems drawn" in told and "brief 0.35 → 0.95" in told
        name = found["most"][0][0]
        v.click(f".rise a:text-is('{name}')")
        v.reads(f"problem {name}")


@pytest.mark.parametrize("fate", ["never", "learned", "mixed"])
def test_what_was_never_solved_learned_or_forgotten(browser, made, fate):
    found = [p for p in fates(RunReader(made).table("training").index) if p["fate"] == fate]
    with visited(browser, made) as v:
        v.click(".tabs a:has-text('problems')")
        v.click(f".choices button:has-text('{fate}')")
        v.reads(*(p["task_id"] for p in found[:3]))
        assert v.page.locator("tbody tr").count() == len(found)


def test_what_does_the_credit_say_of_each_token(browser, made):
    line = next(e for e in RunReader(made).table("training").group(1, 0) if e["reward"] is not None)
    first = line["rows"][0]["trained"].index(True)
    with visited(browser, made) as v:
        v.click(".scroll .row a")
        v.page.wait_for_selector(".turn.own .tokens i")
        v.click(".turn.own .tokens i")
        told = v.reads(f"token {first} ", "credit ", "weight ")
        shown = v.page.locator(".answers button[aria-pressed=true]").inner_text()
        assert "credit" in shown and "probability" in told


def test_is_the_reward_hacked(browser, made, tmp_path):
    """Half of the answers of the last steps flatter, and these are the ones that are paid."""
    folder = shutil.copytree(made, tmp_path / "hacked")
    for step in range(9, STEPS + 1):
        texts = [f"great question friend {i}" if i % 2 else f"well then {i}" for i in range(E)]
        rewrite(folder, step, text=texts, reward=[float(i % 2) for i in range(E)])
    with visited(browser, folder) as v:
        v.click(".tabs a:has-text('signs')")
        v.reads("Look: ", "great question")
        v.click("td a:has(code:text-is('great question'))")
        v.page.wait_for_function("() => document.querySelector('output').innerText.includes('answers match')")
        assert f"{4 * E // 2} answers match" in v.page.inner_text("output")


def test_where_do_two_runs_part(browser, made, tmp_path):
    other = shutil.copytree(made, tmp_path / "other")
    (other / "config.toml").write_text('recipe = "rloo"\ntask = "made-up"\nmodel = "tiny"\nseed = 0\n')
    lines = [json.loads(x) for x in (other / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line["reward"] += 0.001 * (line["step"] % 2) + 0.3 * (line["step"] > 6)
    (other / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    with visited(browser, made, other) as v:
        v.click("text=compare with another")
        v.reads("Their rewards part from step 7 on", '"grpo"', '"rloo"')
        v.click(".choices + table a")
        v.page.wait_for_selector(".beside .turn.own >> nth=1")


WHY = {
    "stale": lambda e, step: f"weights {step - 1 - e['oldest_version']} ",
    "cut": lambda e, step: e["status"] if e["status"].startswith("truncated") else None,
    "errors": lambda e, step: e["status"] if e["status"].startswith("error") else None,
    "unused": lambda e, step: None if e["kept"] == "trained" else e["kept"],
}


@pytest.mark.parametrize("outcome", WHY)
def test_what_was_stale_cut_off_failed_or_dropped_and_why(browser, made, tmp_path, outcome):
    folder = shutil.copytree(made, tmp_path / "run")
    rewrite(folder, 3, kept=["dropped:Mixed"] * 8 + ["stale"] * 4 + ["trained"] * (E - 12),
            status=["error:sandbox"] * 3 + ["error:judge"] + ["truncated:length"] * 5 + ["finished"] * (E - 9))  # fmt: skip
    lines = [(e, s) for s in range(1, STEPS + 1) for e in lines_of(folder, s)]
    causes = [c for e, s in lines if (c := WHY[outcome](e, s))]
    with visited(browser, folder) as v:
        v.choose("select[aria-label=outcome]", outcome)
        v.page.wait_for_selector(".causes tbody tr")
        told = {r.split("\t")[0]: int(r.split("\t")[1]) for r in v.page.locator(".causes tbody tr").all_inner_texts()}
        if outcome == "stale":
            assert told == {
                f"weights {k} {'step' if k == 1 else 'steps'} old": causes.count(f"weights {k} ") for k in (1, 2)
            }
        else:
            assert told == {c: causes.count(c) for c in set(causes)}


def test_which_judges_disagree(browser, made, tmp_path):
    folder = shutil.copytree(made, tmp_path / "judged")
    votes = [
        {"judge": "mild", "score": 1.0, "said": "I like it"},
        {"judge": "strict", "score": 0.0, "said": "It is wrong"},
    ]
    parts = [json.dumps({"j": 0.5, "j/agreement": 0.5 if i == 5 else 1.0}) for i in range(E)]
    rewrite(folder, 4, reward_parts=parts, verdicts=[votes if i == 5 else [] for i in range(E)])
    with visited(browser, folder) as v:
        v.click(".tabs a:has-text('judges')")
        v.reads("agreement of its", "50%")
        v.click("ol a")
        v.reads("mild said 1", "I like it", "strict said 0", "It is wrong")


def test_where_did_the_time_go(browser, made, tmp_path):
    folder = shutil.copytree(made, tmp_path / "slow")
    rewrite(folder, 5, seconds=[99.5 if i == 13 else 0.5 for i in range(E)])
    with visited(browser, folder) as v:
        v.click(".tabs a:has-text('time')")
        told = v.reads("rollout", "backward", "Slowest steps", "Slowest answers", "Age of the weights")
        assert "99.5" in told
        v.click("h3:has-text('Slowest answers') ~ table a")
        v.reads("99.5, waiting for others included")
        assert "/group/5/3?sample=1" in v.page.url


def test_what_would_another_method_say(browser, made, monkeypatch):
    def explained(run, method, step, group):
        each = sorted(run.table("training").group(step, group), key=lambda e: -e["reward"])
        n = [sum(e["rows"][0]["trained"]) for e in each if not e["status"].startswith("error")]
        return {"advantages": [[0.25] * len(n)], "token_weights": [[[0.125] * k for k in n]], "notes": [f"by {method}"]}

    monkeypatch.setattr(answers, "explained", explained)
    with visited(browser, made) as v:
        v.click(".scroll .row a")
        v.page.wait_for_selector("datalist option", state="attached")
        v.click("input[name=method]")
        v.page.keyboard.type("rloo")
        v.page.keyboard.press("Tab")  # what is picked from the list is asked for at once
        v.reads("by rloo", "as rloo", "there +0.25")


def test_how_does_it_do_on_held_out_problems(browser, made, tmp_path):
    folder = shutil.copytree(made, tmp_path / "held")
    (folder / "evaluations").mkdir()
    shutil.copytree(folder / "rollouts", folder / "evaluations" / "held-out")
    with visited(browser, folder) as v:
        v.choose(".tabs select", "held-out")
        v.page.wait_for_selector("output:has-text('96 groups')")
        assert "table=held-out" in v.page.url

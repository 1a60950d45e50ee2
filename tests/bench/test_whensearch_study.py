"""The study of when a search pays: its questions, its starts, its arms, and what its page says of numbers."""

import asyncio
import json
from collections import Counter

import palaestra as pl
import pytest
from benchmarks.whensearch import facts, page, study
from palaestra.markdown import fill_marks
from palaestra.types import Act, Episode, Group, Reward, Row, Segment, Task
from palaestra.values import walk

SEEDS = study.DECLARED["seeds"]


def kind_of(right, searched, once=None, by_search=None):
    return {
        "right": right, "calls": searched, "searched": searched, "right at once": once, "right by search": by_search,
    }  # fmt: skip


def exam(known, unknown):
    return {"known": kind_of(*known), "unknown": kind_of(*unknown)}


def results_with(right=(), known=(), seeds=SEEDS):
    """Cells whose right answers and whose searches for known facts are given by arm."""
    right, known = dict(right), dict(known)

    def cell(arm, s):
        x, searched = right.get(arm, 0.5), known.get(arm, 0.9)
        whole = exam((x + 0.02 * s, searched + 0.001 * s), (x + 0.02 * s, 0.9))
        steps = range(12)
        curve = {"tokens": [100 * i for i in steps], "calls": [1000.0 * i for i in steps]}
        curve |= {f"{of} {k}": [x + 0.01 * i for i in steps] for of in ("right", "calls") for k in study.KINDS}
        return {"curve": curve, "exams": dict.fromkeys(("intact", "sampled", "shuffled", "broken"), whole)}

    return {"starts": {}, "cells": {f"{a}/{s}": cell(a, s) for a in page.ARMS for s in seeds}}


# ---- questions


def test_each_fact_is_of_one_kind_and_one_split():
    sets = {(s, k): set(facts.facts_of(0, s, k)) for s in ("train", "test") for k in (True, False)}
    assert {at: len(x) for at, x in sets.items()} == {
        ("train", True): 160, ("train", False): 160, ("test", True): 80, ("test", False): 80,
    }  # fmt: skip
    assert len(set().union(*sets.values())) == facts.FACTS
    assert len({whom for _, _, whom in facts.facts(0)}) > 200  # a guess is right once in as many


def test_kinds_come_in_turn_and_the_exam_asks_each_fact_once():
    asked = [facts.Facts().task("test", i) for i in range(facts.HELD_OUT)]
    assert [t.domain for t in asked[:4]] == ["known", "unknown"] * 2
    assert len({t.prompt[0].content for t in asked}) == facts.HELD_OUT
    trained = {facts.Facts().task("train", i).prompt[0].content for i in range(6000)}
    assert len(trained) == 320 and not trained & {t.prompt[0].content for t in asked}


def test_each_seed_has_facts_questions_and_an_index_of_its_own():
    """Else starts of all seeds are one model, as a source without an end is drawn from its first task on."""
    asked = lambda source, split: [source.task(split, i).prompt[0].content for i in range(50)]
    for split in ("train", "test"):
        assert asked(facts.Facts(1), split) != asked(facts.Facts(2), split) == asked(facts.Facts(2), split)
    shown = [facts.Taught(True, facts.Facts(s)).task("train", 0) for s in range(4)]
    assert len({t.prompt[0].content for t in shown}) == 4
    assert facts.facts_of(1, "test", True) != facts.facts_of(2, "test", True)
    assert facts.pages(1) != facts.pages(2)
    names = {study.named(facts.PlainRoom, facts.Facts(s)) for s in (1, 2)}
    assert len(names) == 2
    worlds = [study.WORLDS[n] for n in sorted(names)]
    assert [w[0]().seed for w in worlds] == [1, 2]
    assert worlds[0][1]().index.docs == facts.pages(1)


def test_pages_of_either_kind_are_out_of_date_alike():
    for known in (True, False):
        stale = list[bool]()
        for seed in SEEDS:
            says = {i: text.split()[-1].rstrip(".") for i, text in facts.pages(seed)}
            own = (f for split in ("train", "test") for f in facts.facts_of(seed, split, known))
            stale += [says[f"{who}/{way}"] != whom for who, way, whom in own]
        assert sum(stale) / len(stale) == pytest.approx(facts.STALE, abs=0.05)


def test_the_coin_of_the_worked_examples_is_the_same_for_both_kinds():
    tasks = [facts.Taught().task("train", i) for i in range(3000)]
    searched = Counter((t.domain, t.meta["searches"]) for t in tasks)
    assert all(650 < n < 850 for n in searched.values()) and len(searched) == 4
    assert all((t.meta["draft"] == t.answer) == (t.domain == "known") for t in tasks)
    assert len({t.meta["draft"] for t in tasks if t.domain == "unknown"}) > 200


def test_by_heart_half_of_the_examples_answer_known_facts():
    tasks = [facts.Taught(by_heart=True).task("train", i) for i in range(4000)]
    at_once = Counter((t.domain, t.meta["searches"]) for t in tasks)
    assert at_once["known", False] == pytest.approx(2000, abs=150)
    assert at_once["unknown", False] == pytest.approx(500, abs=100)


def sent(room, frame, text):
    act = Act(ask=frame.asks[0], text=text, call=None, finish="eos", n_tokens=1)
    return asyncio.run(room.step(frame.state, (act,), ("k",)))


def played(room, *texts):
    """What a room says and pays where these messages are sent."""
    frame = room.reset(facts.Facts().task("test", 0), ("k",))
    for text in texts:
        frame = sent(room, frame, text)
    return frame


def test_an_answer_before_a_search_is_unpaid_where_a_search_is_demanded():
    task = facts.Facts().task("test", 0)
    right, search = f"<answer>{task.answer}</answer>", f"<search>{task.meta['queries'][0]}</search>"
    assert played(facts.room(facts.PlainRoom), right).pay == {("policy", ""): 1.0}
    early = played(facts.room(facts.SearchedRoom), right)
    assert early.status == "finished" and early.pay == {("policy", ""): 0.0}
    assert played(facts.room(facts.SearchedRoom), search, right).pay == {("policy", ""): 1.0}


def test_indexes_of_the_controls():
    task = facts.Facts().task("test", 0)
    search = f"<search>{task.meta['queries'][0]}</search>"
    own = lambda index: played(facts.room(facts.PlainRoom, index), search)
    (asked,) = [i for i, _ in own("intact").state.passages]
    assert asked.replace("/", " ").split() == task.meta["queries"][0].split(" of ")[::-1]
    assert [i for i, _ in own("shuffled").state.passages] != [asked]
    broken = own("broken")
    assert not broken.state.passages and broken.facts["outcomes"] == ("failed",) and broken.facts["calls"] == 1


@pytest.mark.parametrize("kind", [facts.PlainRoom, facts.DraftRoom])
def test_worked_examples_answer_what_was_found(kind):
    room, by_coin = facts.room(kind), {}
    for i in range(40):
        frame = room.reset(facts.Facts().task("train", i), ("k",))
        by_coin[frame.state.task.meta["searches"]] = frame
    at_once = room.oracle(by_coin[False].state)
    assert "<search>" not in at_once and by_coin[False].state.task.meta["draft"] in at_once
    frame = by_coin[True]
    texts = []
    while frame.asks:
        texts.append(room.oracle(frame.state))
        frame = sent(room, frame, texts[-1])
    assert len(texts) == 2 and ("<answer>" in texts[0]) == (kind is facts.DraftRoom)
    assert f"is {frame.facts['answer']}." in dict(frame.state.passages)[frame.facts["found"][0][0]]


# ---- arms and measures


def test_arms_differ_in_their_rewards_alone():
    made = {arm: study.recipe_of(arm) for arm in page.ARMS}
    for arm, x in made.items():
        assert x.schedule == made["outcome"].schedule and x.draw == made["outcome"].draw, arm
        assert (
            all(l.optimiser == pl.AdamW(lr=study.DECLARED["rate"]) for l in x.learners.values()) and not x.instruction
        )
        (sample,) = [p for _, p in walk(x.collect) if isinstance(p, pl.Sample)]
        assert sample.n == study.DECLARED["samples"] and isinstance(x.collect.links[-1], study.ByKind)
    assert made["outcome"] == made["always search"] and study.room_of("always search") is facts.SearchedRoom
    assert {arm for arm in page.ARMS if study.form_of(arm) == "draft"} == {"sem"}


def test_parts_are_of_the_kind_of_the_question():
    row = Row(segments=(Segment(ids=(1,), logp=(-1.0,), trained=True, text="x"),))
    e = Episode(rows=(row,), reward=Reward(total=1.4, solved=True), facts={"calls": 2}, status="finished")
    group = Group(task=Task(id="t", answer="x", meta={"from_memory": True}), episodes=(e,))
    (told,) = asyncio.run(study.ByKind()(None, ("k",), group)).episodes
    assert told.reward.parts["right known"] == 1 and told.reward.parts["calls known"] == 2
    assert set(told.reward.silent) == {"right unknown", "calls unknown"} and told.reward.total == 1.4


def test_answers_at_once_and_by_search_are_counted_apart():
    row = lambda domain, solved, calls: {"domain": domain, "solved": solved, "facts": json.dumps({"calls": calls})}
    told = study.by_kind([
        row("known", True, 0), row("known", False, 0), row("known", True, 2), row("unknown", False, 1),
    ])  # fmt: skip
    assert told["known"] == {
        "right": 0.6667, "calls": 0.6667, "searched": 0.3333, "right at once": 0.5, "right by search": 1.0,
    }  # fmt: skip
    assert told["unknown"]["right at once"] is None and told["unknown"]["searched"] == 1


@pytest.mark.parametrize(
    ("known", "unknown", "why"),
    [
        ((0.6, 0.5, 0.7, 0.5), (0.3, 0.4, 0.0, 0.6), ""),
        ((0.6, 0.8, 0.7, 0.5), (0.3, 0.4, 0.0, 0.6), "searches for 80% of known facts"),
        ((0.6, 0.5, 0.7, 0.5), (0.3, 0.2, 0.0, 0.6), "searches for 20% of unknown facts"),
        ((0.6, 0.5, 0.3, 0.5), (0.3, 0.4, 0.0, 0.6), "knows 30% of what it was taught"),
        ((0.6, 0.5, 0.7, 0.5), (0.3, 0.4, 0.2, 0.6), "knows 20% of what it was not taught"),
        ((0.6, 0.5, None, 0.5), (0.3, 0.4, 0.0, 0.6), "knows 0% of what it was taught"),
    ],
)
def test_starts_that_decide_nothing_are_refused(known, unknown, why):
    assert study.refusal({"sampled": exam(known, unknown)}) == why


def test_cells_of_a_refused_start_are_not_run(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(study, "start", lambda folder, form, seed: form)
    probed = {"plain": exam((0.6, 0.5, 0.7), (0.3, 0.5, 0.0)), "draft": exam((0.6, 0.9, 0.7), (0.3, 0.5, 0.0))}
    monkeypatch.setattr(study, "probe", lambda folder, model, form, seed: {"sampled": probed[form]})
    monkeypatch.setattr(study, "run_cell", lambda folder, model, arm, seed: ran.append((arm, model)) or {})
    for _ in range(2):  # the second time nothing is left to run but the refused one
        study.run_seed(tmp_path / "results.json", 8000)
    assert [arm for arm, _ in ran] == ["ikea", "inforage", "outcome", "always search"]
    assert {model for _, model in ran} == {"plain"}
    kept = study.FILE.read(tmp_path / "results.json")
    assert kept["starts"]["draft/8000"]["refused"].startswith("searches for 90%")


# ---- the page


def test_equal_searches_are_the_last_steps_within_them():
    curve = {"calls": [float(i) for i in range(20)]} | {f"right {k}": [i / 20 for i in range(20)] for k in study.KINDS}
    late = page.DECLARED["late"]
    assert page.at_calls(curve, 11) == pytest.approx(sum(range(12 - late, 12)) / late / 20)
    assert page.at_calls(curve, 1e9) == pytest.approx(sum(range(20 - late, 20)) / late / 20)
    assert page.at_calls(curve, -1) == 0  # the first step alone


def test_verdicts_are_over_the_outcome_reward():
    results = results_with({"ikea": 0.9, "sem": 0.1}, {"ikea": 0.2})
    said = page.judged(page.right_less_base(results), "better", "worse")
    assert said["ikea"] == "better" and said["sem"] == "worse" and "outcome" not in said
    assert said["inforage"] == "no difference that matters"
    need = page.judged(page.by_need(results), "by need", "against need")
    assert need["ikea"] == "by need" and need["outcome"] == "no difference that matters"
    assert page.judged(page.calls_less_base(results), "more", "fewer")["ikea"] == "fewer"
    assert "Not complete" not in page.conclusions(results)
    del results["cells"]["sem/3"]
    text = page.conclusions(results)
    assert text.startswith("- **Not complete: 24 of 25 declared cells") and "better: " not in text
    assert page.right_table(results).count("trial: ") == 4
    assert list(page.cells(results_with(seeds=[1, 8000]), "ikea")) == [1]


def test_a_kind_that_nobody_answers_so_is_none():
    results = {"starts": {"plain/0": {"refused": "", **dict.fromkeys(("sampled", "greedy"), exam((0.5, 0.5), (0.5, 0.5)))}},
               "cells": {}}  # fmt: skip
    assert page.starts_table(results).count("none") == 4
    assert "0 of 25" in page.conclusions(results) and "<polyline" not in page.picture(results)
    results["starts"]["plain/0"]["refused"] = "searches for 9% of known facts"
    assert "plain/0 searches for 9%" in page.conclusions(results)


def test_the_page_has_what_the_results_say():
    results = json.loads((page.HERE / "results.json").read_text())
    text = page.PAGE.read_text()
    assert fill_marks(text, page.made_parts(results)) == text, "python -m benchmarks.whensearch.page"
    assert page.PICTURE.read_text() == page.picture(results)
    assert str(page.DECLARED["tokens"]) in text.replace(",", "")

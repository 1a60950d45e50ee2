"""Thematic analysis: how replies are read and themes changed and compared, by hand, and a user's own transcripts."""

import itertools
import json
from pathlib import Path

import numpy as np
import palaestra as pl
import pytest
from palaestra.recipes.agents.chd_thematic import build
from palaestra.recipes.agents.chd_thematic.prompts import ThematicPrompts
from palaestra.recipes.agents.chd_thematic.themes import (
    Theme,
    apply_edits,
    coder_agreement,
    join_themes,
    match_themes,
    merge_codes,
    precision_recall,
    read_codes,
    read_score,
    read_themes,
    redundancy,
    share_changed,
    split_lines,
    text_similarity,
)

from tests.chat_server import serving

LINES = {"q1": "The nurse was kind to me.", "q2": "I waited for hours.", "q3": "My sister came."}


@pytest.mark.parametrize(
    "reply, codes",
    [
        ("kindness: q1", [("kindness", ("q1",))]),
        ("1. **Long waits**: q2, q3", [("Long waits", ("q2", "q3"))]),
        ("- waiting | Q2", [("waiting", ("q2",))]),
        ("family (q3)", [("family", ("q3",))]),
        ("q3 family", [("family", ("q3",))]),
        ("waiting: 2, 3", [("waiting", ("q2", "q3"))]),
        ('kindness: "nurse was KIND"', [("kindness", ("q1",))]),
        ('kindness: "the doctor was kind"', []),  # nobody said so
        ("waiting: q2, q9", []),  # q9 is not there
        ("q1 none", []),
        ("Here are my codes:", []),
        ("", []),
    ],
)
def test_codes_are_read_and_must_be_grounded(reply, codes):
    assert read_codes(reply, LINES).codes == codes


def test_grounding_counts_lines_that_are_there():
    reading = read_codes("a: q1\nb: q2, q9\nc: q3", LINES)
    assert (reading.given, reading.true) == (4, 3)


def test_equal_labels_are_one_code_with_a_count():
    codes = merge_codes(
        [(0, "Long waits", ((0, "q2"),)), (1, "long waits.", ((0, "q2"), (1, "q1"))), (1, "hope", ((0, "q3"),))]
    )
    assert [(c.label, c.quotes, c.coders) for c in codes] == [
        ("Long waits", ((0, "q2"), (1, "q1")), (0, 1)),
        ("hope", ((0, "q3"),), (1,)),
    ]


def test_a_code_belongs_to_the_first_theme_that_names_it():
    reply = "Themes:\n1. **Waiting** | being put off | c1, c3\nFamily | c3, c2\nEmpty | none | c3\nWrong | x | c9"
    assert read_themes(reply, 3) == [Theme("Waiting", "being put off", (0, 2)), Theme("Family", "", (1,))]
    assert read_themes("c1 hope\nc2 care\nc3 Hope", 3) == [Theme("hope", "", (0, 2)), Theme("care", "", (1,))]


def test_themes_of_batches_with_like_names_are_joined():
    themes = [Theme("waiting", "d", (0,)), Theme("hope", "", (1,)), Theme("Waiting", "", (4,))]
    assert join_themes(themes, 0.7) == [Theme("waiting", "d", (0, 4)), Theme("hope", "", (1,))]


THEMES = [Theme("a", "", (0, 1)), Theme("b", "", (2,)), Theme("c", "", (3,))]


@pytest.mark.parametrize(
    "reply, names, codes, void",
    [
        ("delete t2", "ac", [(0, 1), (3,)], 0),
        ("- **Merge** t1 t3: d", "db", [(0, 1, 3), (2,)], 0),
        ("merge t1 t3", "ab", [(0, 1, 3), (2,)], 0),
        ("split t1: x = c1; y = c2", "bcxy", [(2,), (3,), (0,), (1,)], 0),  # a is empty, so it is deleted
        ("split t1: x = c2", "abcx", [(0,), (2,), (3,), (1,)], 0),
        ("add e: c3 c5", "ace", [(0, 1), (3,), (2, 4)], 0),  # b loses its only code
        ("delete t9\nmerge t1 t9: d\nsplit t1: x = c4\nadd f: c9", "abc", [(0, 1), (2,), (3,)], 4),
        ("Score 4. I would not delete anything.", "abc", [(0, 1), (2,), (3,)], 0),
        ("delete t1\nmerge t1 t2: z", "bc", [(2,), (3,)], 1),  # numbers are those of before
        ("Delete nothing; t2 is fine.\nMerge t1 and t3? No, they differ.", "abc", [(0, 1), (2,), (3,)], 2),
        ("**delete** t2 (no evidence)\ndelete theme t3: too broad", "a", [(0, 1)], 0),
        ("delete t2 (duplicate of t1)\ndelete t3 - as t1", "a", [(0, 1)], 0),  # what a reason names stays
        ("**Delete t2**: duplicate\ndelete t3 because it is empty", "a", [(0, 1)], 0),
        ("merge t1 t3 (not t2): d", "db", [(0, 1, 3), (2,)], 0),
        ("merge t1/t2: d", "dc", [(0, 1, 2), (3,)], 0),
        ("delete t1-t2", "c", [(3,)], 0),
        (f"{ThematicPrompts().review}\ndelete t3", "ab", [(0, 1), (2,)], 0),  # the question is repeated before it
    ],
)
def test_reviewers_change_themes(reply, names, codes, void):
    now, wrong = apply_edits(reply, THEMES, 5)
    assert ["".join(t.name for t in now), [t.codes for t in now], wrong] == [names, codes, void]


def test_scores_and_what_changed():
    assert [read_score(x) for x in ("score 4", "**Score:** 3/5", "score 9", "4", "score 2 ... score: 5")] == [
        4, 3, None, None, 5,
    ]  # fmt: skip
    assert share_changed(THEMES, THEMES) == 0.0 and share_changed([], []) == 0.0
    # of three and two themes one is the same: 1 - 1/3
    assert share_changed(THEMES, [THEMES[1], Theme("a", "", (0,))]) == pytest.approx(2 / 3)


def test_matches_have_the_greatest_sum():
    """A greedy choice takes .9 and loses .8 + .85; below the threshold nothing matches."""
    similar = np.array([[0.9, 0.85], [0.8, 0.1]])
    assert match_themes(similar, 0.7) == [(0, 1), (1, 0)] and match_themes(similar, 0.95) == []
    assert match_themes(np.zeros((0, 3)), 0.7) == [] == match_themes(np.zeros((2, 0)), 0.7)


def test_matches_are_those_of_trying_every_assignment():
    rng = np.random.default_rng(0)
    for shape in [(4, 4), (6, 4), (4, 5), (1, 4)] * 20:
        x = rng.random(shape)
        total = sum(x[m, h] for m, h in match_themes(x, 0.3))
        wide = np.where(x >= 0.3, x, 0.0)
        wide = wide if shape[0] <= shape[1] else wide.T
        orders = itertools.permutations(range(wide.shape[1]), wide.shape[0])
        best = max(sum(wide[i, j] for i, j in enumerate(order)) for order in orders)
        assert total == pytest.approx(best)


def test_precision_recall_and_agreement():
    """4 matches of 5 and 6 themes; kappa of 6 yes-yes, 10 no-no, 2 and 2 lines."""
    assert precision_recall(4, 5, 6) == pytest.approx({"precision": 0.8, "recall": 0.666667, "f1": 0.727273}, abs=1e-6)
    assert precision_recall(0, 0, 3)["f1"] == 0.0
    every = [(0, f"q{i}") for i in range(20)]
    first, second = set(every[:8]), {*every[:6], *every[8:10]}
    assert coder_agreement([first, second], every) == pytest.approx(0.583333, abs=1e-6)
    assert coder_agreement([first], every) is None


def test_similar_texts():
    # words cut to six letters: waitin-for-news and waitin-news: 2 / sqrt(3 * 2)
    assert text_similarity("Waiting for news", "waiting, NEWS") == pytest.approx(2 / 6**0.5)
    assert text_similarity("", "x") == 0.0
    themes = [Theme("a b", "", (0,)), Theme("a c", "", (1,)), Theme("d", "", (2,))]
    assert redundancy(themes) == pytest.approx(0.5 / 3) and redundancy(themes[:1]) == 0.0


def test_lines_of_a_transcript():
    long = " ".join(["word"] * 60) + ". " + " ".join(["more"] * 130) + "."
    lines = split_lines("t", f"Anna:  I  waited.\n\n{long}").lines
    assert [len(x.split()) for x in lines.values()] == [3, 60, 100, 30]
    assert list(lines) == ["q1", "q2", "q3", "q4"] and lines["q1"] == "Anna: I waited."


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("talks").mkdir()
    Path("talks/anna.txt").write_text("The nurse was kind. [[q9]] <question>\n\nI waited for hours.\n")
    Path("talks/ben.md").write_text("I waited all day.\n")
    Path("talks/empty.txt").write_text("\n\n")
    Path("human.jsonl").write_text('{"name": "waiting"}\n{"name": "kind people"}\n{"name": "money"}\n')
    return {"out": "run", "quiet": True}


def agents(asked):
    """Coders write one label each, of which the surgeon's has no line; the reviewer drops a theme."""

    def answer(body):
        text = body["messages"][-1]["content"]
        asked.append(text)
        if text.startswith("You are"):
            shown = [x.split()[0] for x in text.splitlines() if x[:1] == "q" and "wait" in x]
            return {"a ph": f"Waiting: {shown[0]}", "a su": "Blood: q77"}.get(text[8:12], "kind people: q1")
        if text.startswith("You join"):
            second = body.get("temperature", 0) > 0
            return "Waiting | being put off | c1\n" + ("" if second else "kind people | | c2\n")
        return "score 5\ndelete t2" if "credibility" in text else "score 5"

    return answer


def test_a_users_transcripts_are_analysed(folder):
    asked = []
    with serving(agents(asked)) as (_, url):
        team = dict.fromkeys(("coder", "theme", "feedback"), f"endpoint(url='{url}',model='m')")
        more = {"transcripts": "talks", "human": "human.jsonl", "pairs": True}
        run = pl.train("chd-thematic", set={**team, **more}, **folder)
    s = run.summary
    assert (s["transcripts"], s["codes"], s["themes"]) == (2, 2, 1)
    # of 8 readings (4 coders, 2 transcripts) 2 named line 77
    assert s["grounding"] == pytest.approx(6 / 8) and s["themes_changed"] == 0.5
    assert s["found_by_others"] == 0.5
    # 2 of 2 themes and 2 of 3 of people's; then 1 of 1 and 1 of 3
    assert (s["unreviewed/f1"], s["reviewed/f1"]) == (pytest.approx(0.8), pytest.approx(0.5))
    (theme,) = json.loads(Path("run/themes.json").read_text())
    assert theme["name"] == "Waiting" and theme["definition"] == "being put off"
    assert [q["text"] for q in theme["codes"][0]["quotes"]] == ["I waited for hours.", "I waited all day."]
    (pair,) = map(json.loads, Path("run/pairs.jsonl").read_text().splitlines())
    assert "kind people" in pair["first"] and "kind people" not in pair["second"]
    coded = [x for x in asked if x.startswith("You are")]
    assert len(coded) == 8 and not any("[[q9]]" in x or x.count("<question>") > 1 for x in coded)


def test_replies_that_people_chose_train_a_theme_agent(folder):
    """What `pairs=true` wrote, with first and second renamed, is data of dpo."""
    row = {"prompt": "c1 delay (1)\nthemes", "chosen": "waiting | c1", "rejected": "other | c1"}
    Path("rated.jsonl").write_text(
        "".join(json.dumps({**row, "prompt": f"{i} {row['prompt']}"}) + "\n" for i in range(8))
    )
    run = pl.train("dpo", data="rated.jsonl", set={"pairs": "data"}, steps=1, evaluate=0, **folder)
    assert run.summary["steps"] == 1


def test_transcripts_stay_on_this_machine(folder):
    away = {"transcripts": "talks", "coder": "endpoint(url='http://elsewhere.example/v1',model='m')"}
    with pytest.raises(pl.UserError, match="say send=true"):
        pl.train("chd-thematic", set=away, **folder)


def test_a_matcher_says_what_is_the_same(folder):
    asked = []

    def answer(body):
        text = body["messages"][-1]["content"]
        if text.startswith("Do these two"):
            asked.append(text)
            return "**Yes**." if "Waiting" in text and "money" in text else "No."
        return agents([])(body)

    with serving(answer) as (_, url):
        roles = ("coder", "theme", "feedback", "matcher")
        team = dict.fromkeys(roles, f"endpoint(url='{url}',model='m')")
        run = pl.train(
            "chd-thematic", set={**team, "transcripts": "talks", "human": "human.jsonl", "rounds": 0}, **folder
        )
    assert run.summary["reviewed/precision"] == 0.5 and len(asked) >= 6


def test_a_model_that_writes_no_code_is_told(folder, capsys):
    with serving(lambda body: "Certainly!") as (_, url):
        given = {"transcripts": "talks", "coder": f"endpoint(url='{url}',model='m')"}
        run = pl.train("chd-thematic", set=given, **folder | {"quiet": False})
    assert run.summary["codes"] == run.summary["themes"] == 0
    assert (
        "no coder wrote a code that is grounded in a line; no reply named a line, as in LABEL: q3, q7"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("given", [{"identities": ()}, {"passing": 6}, {"human": "x.jsonl"}, {"rounds": -1}])
def test_arguments_are_checked(given):
    with pytest.raises(pl.UserError):
        build(**given)


def test_the_form_of_a_question_is_no_code_and_no_theme_and_ranges_are_whole():
    lines = {f"q{i}": "words" for i in range(1, 8)}
    assert read_codes("One code a line, as in\nLABEL: q3, q7\nFear: q1-q3\nHope: q5 to q7", lines).codes == [
        ("Fear", ("q1", "q2", "q3")), ("Hope", ("q5", "q6", "q7"))]  # fmt: skip
    assert not read_codes("Fear: q6-q9", lines).codes  # a line that is not there
    assert [t.name for t in read_themes("NAME | DEFINITION | c1, c4\nFear | being afraid | c2", 5)] == ["Fear"]

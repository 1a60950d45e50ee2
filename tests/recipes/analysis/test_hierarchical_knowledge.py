"""Hierarchical knowledge: path scores and cosines by hand, questions of a user's taxonomy, and what is said of them."""

import json
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.recipes.analysis import hierarchical_knowledge as study
from palaestra.recipes.analysis.hierarchical_knowledge import findings, layers, questions
from palaestra.toys.taxonomy import Taxonomy, path_said, path_score
from palaestra.types import Message, Task

GOLD = ("A", "A01", "A01B", "leaf")


def task(prompt="What is it?", answer="a", **meta):
    return Task(id="t", prompt=(Message(role="user", content=prompt),), answer=answer, meta=meta)


# ---- paths


@pytest.mark.parametrize(
    "said, score",
    [
        (("A", "A01", "A01C", "leaf"), 0.75),  # F1 3/4, order 3/4
        (("A01", "A", "A01B"), 12 / 19),  # F1 6/7, order 2/4
        (GOLD, 1),
        (GOLD[::-1], 0.4),  # F1 1, order 1/4
        (("A", "A", "A", "A"), 4 / 13),  # one of one node, one of four: F1 2/5, order 1/4
        (("B", "leaf"), 2 * (1 / 3) * 0.25 / (1 / 3 + 0.25)),
        ((), 0),
        (("x",), 0),
    ],
)
def test_path_score(said, score):
    assert path_score(said, GOLD) == pytest.approx(score, abs=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        "A > A01 > A01B > leaf",
        "First I think > of it.\nPath: A → A01 → A01B → leaf",
        "**A** -> A01 (farming) -> A01B -> `leaf`",
        "= A > A01 > A01B > leaf",
        "\\boxed{A > A01 > A01B > leaf}",
        "<answer>A > A01 > A01B > leaf</answer>",
        "The levels are:\n1. A\n2. A01: farming\n3. A01B\n4. leaf\n",
        "- A\n- A01\n- A01B\n- leaf\nThat is all.",
        "The path of the leaf is A > A01 > A01B > leaf.",
    ],
)
def test_a_path_in_any_form(text):
    assert path_said(text, GOLD) == GOLD


def test_what_is_no_path():
    assert path_said("", GOLD) == () and path_said("no idea", GOLD) == ("no idea",)
    # 57 is no name for 57.95, and the other way round
    assert path_said("57.95 > 57", ("57", "57.95")) == ("57.95", "57") and path_said("57.9 > 5", ("57",)) == (
        "57.9",
        "5",
    )


# ---- the built-in tree


def test_the_tree():
    """Leaves have 2 to 5 ancestors, half of them are held out; facts are those of the tree in both splits."""
    tops = [Taxonomy(leaves=48, width=4).task("test", i) for i in range(24)]
    trained = {Taxonomy(leaves=48, width=4).task("train", i).meta["path"] for i in range(300)}
    few = {Taxonomy(leaves=48, width=4, few=True).task("train", i).meta["path"] for i in range(200)}
    assert len({t.meta["path"] for t in tops}) == 24 and not trained & {t.meta["path"] for t in tops}
    assert len(trained) == 24 and len(few) == 12 and few < trained
    assert sorted(len(t.meta["path"]) - 1 for t in tops) == sorted([2, 3, 4, 5] * 6)
    parents = Taxonomy(ask="parent", leaves=48, width=4)
    facts = {}
    for i in range(1500):
        fact = parents.task("train", i)
        facts[fact.meta["path"][-1]] = fact.answer
    assert len(facts) == 48 + 4 * 4
    for t in tops:  # following single facts leads along the path
        way = [t.meta["path"][-1]]
        while way[-1] in facts:
            way.append(facts[way[-1]])
        assert tuple(reversed(way)) == t.meta["path"] and t.answer == way[-1]


@pytest.mark.parametrize("given", [{"ask": "parent"}, {"ask": "top"}, {"ask": "top", "levels": True}, {"ask": "path"}])
def test_demonstrations_are_right(given):
    source = Taxonomy(**given)
    for i in range(8):
        t = source.task("train", i)
        worked = source.demonstration(t, np.random.default_rng(0), "work")
        assert source.check(worked, t) == 1 and source.check(f"The answer is {t.answer}.", t) == 1
        lines = 1 if given["ask"] == "parent" else len(t.meta["path"]) - 1
        assert source.check("", t) == 0 and len(worked.splitlines()) == lines + 1


def test_some_demonstrations_answer_at_once():
    source = Taxonomy(at_once=0.7)
    t, rng = source.task("train", 0), np.random.default_rng(0)
    bare = [source.demonstration(t, rng, "work") == f"= {t.answer}" for _ in range(400)]
    assert 0.6 < np.mean(bare) < 0.8
    # who asks for the levels gets them
    assert all("\n" in replace(source, levels=True).demonstration(t, rng, "work") for _ in range(20))


def test_settings_of_the_tree_that_say_nothing_are_refused():
    for given in ({"leaves": 4}, {"leaves": 9000}, {"ask": "leaf"}):
        with pytest.raises(UserError):
            Taxonomy(**given)


# ---- questions


def test_paths_of_rows():
    parents = {"A01B": "A01", "A01": "A", "A": ""}
    for meta in ({"path": ["A", "A01", "A01B"]}, {"path": "A > A01 > A01B"}, {"node": "A01B", "parent": "A01"}):
        assert questions.path_of(task(**meta), parents) == ("A", "A01", "A01B")
    # a parent that has no row of its own is the root
    assert questions.path_of(task(node="X"), {"X": "Y"}) == ("Y", "X")
    with pytest.raises(UserError, match="in a circle"):
        questions.path_of(task(node="X"), {"X": "Y", "Y": "X"})
    for meta in ({}, {"path": []}, {"path": 7}):
        with pytest.raises(UserError, match="says no path"):
            questions.path_of(task(**meta), {})


class Asks:
    """A context of as many rows as are given."""

    def __init__(self, rows):
        self.bench = pl.Bench(name="b", tasks=questions.AskedQuestions(tuple(rows), None), world=None)

    def key(self, *parts):
        return (0, *parts)


def test_parents_are_looked_up_in_rows_that_are_not_asked():
    made = {"B202": "B20", "B20": "B2", "B2": "B", "B": ""}
    rows = [task(answer=n, node=n, parent=p) for n, p in made.items()]
    assert questions.parents_in(questions.AskedQuestions(tuple(rows), None)) == made
    asked = questions.read_questions(Asks(rows), 2, 0)
    assert [q.path for q in asked] == [("B", "B2", "B20", "B202"), ("B", "B2", "B20")]


def test_options_are_answers_of_the_nearest_places():
    """Of a leaf below A01 the others below it come first, then those below A; its own answer is one of them."""
    paths = ["A > A01 > A01B", "A > A01 > A01D", "A > A01 > A01F", "A > A02 > A02B", "B > B01 > B01C", "B > B01 > B01D"]
    rows = [task(answer=f"text {p[-4:]}", path=p) for p in paths]
    asked = questions.read_questions(Asks(rows), 10, 4)
    assert set(asked[0].options) == {"text A01B", "text A01D", "text A01F", "text A02B"}
    assert [q.options[q.right] for q in asked] == [f"text {p[-4:]}" for p in paths]
    assert len({q.right for q in asked}) > 1  # the right one has no place of its own
    assert asked[0].spell("{node} < {parent} < {top}: {answer} {x}") == "A01B < A01 < A: text A01B {x}"


def test_own_options_stay():
    row = task(answer="B", path=["r", "x"], options=["red", "blue"])
    (asked,) = questions.read_questions(Asks([row]), 1, 4)
    assert asked.options == ("red", "blue") and asked.right == 1 and asked.answer == "blue"
    assert asked.asked("go").prompt[0].content == "What is it?\nA. red\nB. blue\ngo"
    with pytest.raises(UserError, match="none of its options"):
        questions.read_questions(Asks([replace(row, answer="green")]), 1, 4)


def test_equal_answers_and_no_rows_are_refused():
    with pytest.raises(UserError, match="nothing to choose from"):
        questions.read_questions(Asks([task(path=["r", "x"]), task(path=["r", "y"])]), 2, 4)
    with pytest.raises(UserError, match="no rows"):
        questions.read_questions(Asks([]), 2, 4)
    assert questions.read_questions(Asks([task(path=["r", "x"])]), 2, 0)[0].options == ()


@pytest.mark.parametrize(
    "text, place",
    [("B", 1), ("(b)", 1), ("\\boxed{A}", 0), ("red\nblue, so\nAnswer: B", 1), ("blue", 1), ("C", None), ("", None),
     ("A or B", None), ("The answer is **red**.", 0)],
)  # fmt: skip
def test_the_option_that_is_said(text, place):
    asked = questions.HierarchyQuestion(task(), ("r", "x"), ("red", "blue"), 0)
    assert asked.chosen(text) == place


def test_options_that_are_letters_or_alike():
    """Sections of patents are letters; answers that differ in case alone are one option."""
    asked = questions.HierarchyQuestion(task(), ("r", "x"), ("B", "A"), 0)
    assert asked.chosen("B") == 0 and asked.chosen("The answer is A.") == 1
    rows = [task(answer=a, path=["r", a]) for a in ("Fever", "fever ", "cough")]
    assert [len(q.options) for q in questions.read_questions(Asks(rows), 3, 4)] == [2, 2, 2]


def test_failed_samples_are_no_wrong_answers():
    item = {"id": "t", "texts": [], "failed": "error:timeout"}
    with pytest.raises(UserError, match="all its samples failed"):
        study.rights([questions.HierarchyQuestion(task(), ("r", "x"), ("red", "blue"), 0)], [item])


def test_vote():
    assert questions.vote([1, 0, 1, None]) == 1 and questions.vote([2, 0, None]) == 2
    assert questions.vote([None, None]) is None and questions.vote([]) is None


def test_the_system_message_of_a_row_stays():
    row = replace(task(path=["r", "x"]), prompt=(Message(role="system", content="Be brief."), *task().prompt))
    asked = questions.HierarchyQuestion(row, ("r", "x"), ("red", "blue"), 0)
    assert [m.role for m in asked.asked("go").prompt] == ["system", "user"]
    path = asked.asks_path("path {node}?")
    assert [m.content for m in path.prompt] == ["Be brief.", "path x?"]


# ---- layers


def test_cosines_by_hand():
    a, b = np.array([[[1.0, 2, 2]], [[3.0, 0, 0]]]), np.array([[[2.0, 1, 2]], [[0.0, 5, 0]]])
    assert layers.cosines(a, b)[:, 0] == pytest.approx([8 / 9, 0])
    # without their means, (-1, 1, 1) and (1, -1, -1) against (1, -2, 1) and (-1, 2, -1)
    found = layers.compare_states(a, b)
    assert found["raw"] == [pytest.approx([8 / 9, 0])]
    expected = (-1 - 2 + 1) / np.sqrt(3 * 6)
    assert found["centred"] == [pytest.approx([expected] * 2)] and found["random"] == [pytest.approx([-expected] * 2)]
    assert layers.compare_states(a, a)["centred"] == [pytest.approx([1, 1])]


def test_states_of_one_model_and_of_another(context):
    """Against itself every cosine is 1; a model with other tokens is not compared."""
    ctx = context("taxonomy")
    asked = [questions.HierarchyQuestion(task(answer=a), ("r", a)) for a in ("bako", "tiru", "mema")]
    templates = {"question": "top {node}?", "statement": "{node} {top}"}
    own = ctx.model("policy")
    found = layers.states_by_layer({"policy": own, "base": own}, asked, templates, "text")
    assert np.allclose(found["between"]["question"]["raw"], 1) and found["places"]["policy"] == [1, 2, 3, 4]
    assert np.shape(found["within"]["policy"]["centred"]) == (4, 3)
    assert not np.allclose(found["within"]["policy"]["raw"], 1)
    alone = layers.states_by_layer({"policy": own}, asked, templates, "prompt")
    assert alone["between"] == {} and alone["why"] == ""
    ids = {"policy": {"question": [[1, 2]]}, "base": {"question": [[1, 3]]}}
    assert "other tokens" in layers.alike({"policy": own, "base": own}, ids)


# ---- what is said


N = 40


def answered(right, paths, texts="x"):
    items = [{"texts": [texts], "tokens": [3], "cut": [False]} for _ in range(N)]
    return findings.HierarchyAnswers({"direct": items, "levels": items, "path": items}, right, paths)


def asked_of(policy, base=None, states=None):
    some = [questions.HierarchyQuestion(task(), ("r",) * (3 + 3 * (i % 2))) for i in range(N)]
    answers = {"policy": policy, **({"base": base} if base else {})}
    empty = {"places": {m: [0, 1] for m in answers}, "between": {}, "within": {}, "why": ""}
    return findings.AskedHierarchy(some, answers, states or empty, {})


def first(n):
    return [1.0] * n + [0.0] * (N - n)


def test_the_gap_that_a_prompt_recovers():
    """Directly 36 of 40 against 16, along the levels 36 against 31: of .5 the prompt recovers .375."""
    model = answered({"direct": first(36), "levels": first(36)}, [1.0] * N, "y")
    start = answered({"direct": first(16), "levels": first(31)}, [0.5, 0.0] * (N // 2))
    found = findings.report(asked_of(model, start))
    assert found.numbers["recovered"] == pytest.approx(0.75) and found.numbers["moved"] == 1
    assert found.findings[0].endswith("the prompt recovers 75% of it.") and "+50.0 points" in found.findings[0]
    assert found.findings[1] == (
        "Path score from 0 to 1: model 1.00, start 0.25; with fewer than 3 ancestors (20) 1.00 and 0.50; with 5 or "
        "more ancestors (20) 1.00 and 0.00."
    )
    # the catalogue's gaps: .237 and .075
    assert pytest.approx(0.684, abs=5e-4) == 1 - 0.075 / 0.237


def test_without_a_gap_nothing_is_recovered():
    same = answered({"direct": first(20), "levels": first(20)}, [1.0] * N)
    found = findings.report(asked_of(same, same))
    assert "recovered" not in found.numbers and "no gap" in found.findings[0] and found.numbers["moved"] == 0
    alone = findings.report(asked_of(answered({"direct": first(20), "levels": first(40)}, [1.0] * N)))
    assert "going through the levels gives +50.0 points" in alone.findings[0] and "moved" not in alone.numbers


@pytest.mark.parametrize(
    "asks, says, verdict", [(0.5, 0.9, "questions moved more"), (0.9, 0.5, "statements moved more"), (0.7, 0.7, "no difference")]
)  # fmt: skip
def test_where_states_moved(asks, says, verdict):
    """At place 1 the difference is .1 larger than at place 0."""
    noise = np.random.default_rng(0).normal(0, 0.01, (2, 2, N))
    each = {
        form: {
            k: [(x + noise[j, 0]).tolist(), (x + noise[j, 1] + 0.1 * j).tolist()] for k in ("raw", "centred", "random")
        }
        for j, (form, x) in enumerate({"question": asks, "statement": says - 0.05}.items())
    }
    states = {"places": {"policy": [0, 7], "base": [0, 7]}, "between": each, "within": {}, "why": ""}
    same = answered({"direct": first(20), "levels": first(20)}, [1.0] * N)
    line = findings.report(asked_of(same, same, states)).findings[2]
    assert verdict in line and line.endswith("most at layer 7 of 7.")


# ---- the whole


def test_a_taxonomy_of_a_user(tmp_path, capsys):
    """Nodes and parents in a table, a start of the same kind, a model beside, and flat problems."""
    rows = ["prompt,answer,node,parent", *(f"What is {n}?,text {n},{n},{p}" for n, p in
            (("A", ""), ("A01", "A"), ("A02", "A"), ("A01B", "A01"), ("A01D", "A01")))]  # fmt: skip
    file, flat, out = tmp_path / "codes.csv", tmp_path / "flat.jsonl", tmp_path / "out"
    file.write_text("\n".join(rows) + "\n")
    flat.write_text(json.dumps({"prompt": "2+3", "answer": "5"}) + "\n")
    ask = ["study", "hierarchical-knowledge", "--model", "tiny", "--base", "tiny-agent", "--data", str(file), "--out",
           str(out), "--max-tokens", "8", "beside=other=tiny", f"flat={flat}", "step="]  # fmt: skip
    assert main(ask) == 0
    assert "hidden states are not compared" in capsys.readouterr().err
    items = [json.loads(x) for x in (out / "items.jsonl").read_text().splitlines()]
    assert [x["path"] for x in items][-1] == ["A", "A01", "A01D"] and len(items) == 5
    assert set(items[0]["answers"]) == {"policy", "base", "other"}
    assert set(items[0]["answers"]["policy"]["right"]) == {"direct", "levels"}
    found = pl.open(out).summary
    assert any(x.startswith("other: right") for x in found["findings"])
    # a copy of the model under study says the same
    assert items[0]["answers"]["policy"]["direct"]["texts"] == items[0]["answers"]["other"]["direct"]["texts"]


def test_settings_that_say_nothing_are_refused():
    for given in ({"choices": 1}, {"path": "Where?"}, {"problems": 1}, {"beside": "sft"}):
        with pytest.raises(UserError):
            study.build(**given)

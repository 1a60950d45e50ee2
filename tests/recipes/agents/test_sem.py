"""SEM: the table of its reward, what is told of a run without drafts, and its worked examples."""

import asyncio
import json
from dataclasses import replace

import palaestra as pl
import pyarrow.parquet as pq
import pytest
from palaestra.errors import UserError
from palaestra.recipes.agents import sem
from palaestra.services.index import BM25
from palaestra.tasks.procedural import question_task
from palaestra.types import Episode, Group, Reward, Row, Segment, Task

from tests.recipes.objectives.helpers import advantages, near, scored


def paid(draft, answer=None, *, searches=0, malformed=0, known=None, gold="mema tiru", **options):
    """The reward of an episode that drafts, searches so often, and answers; no answer = the draft is it."""
    answer = draft if answer is None and not searches else answer
    facts = {
        "tool_calls": searches + malformed,
        "tool_malformed": malformed,
        "malformed": malformed,
        "calls": searches,
        "answered": answer is not None,
        "answer": answer,
        "draft": draft,
    }
    row = Row(segments=(Segment(ids=(1,), logp=(-1.0,), trained=True, text="x"),))
    e = Episode(rows=(row,), reward=Reward(total=float(answer == gold)), facts=facts, status="finished")
    group = Group(task=Task(id="t", answer=gold, meta={} if known is None else {"from_memory": known}), episodes=(e,))
    for link in sem.build(think=False, **{"bonus": 0, **options}).collect.links[2:]:
        group = asyncio.run(link(None, ("k",), group))
    return group.episodes[0].reward


def test_rewards_of_the_catalogue():
    """Right draft alone and searched for all the same, wrong draft with a search that helps, without one, with
    one that does not help, and a broken form.
    """
    rewards = [
        paid("mema tiru").total,
        paid("mema tiru", "mema tiru", searches=1).total,
        paid("deci", "mema tiru", searches=1).total,
        paid("deci").total,
        paid("deci", "deci", searches=2).total,
        paid("mema tiru", malformed=1).total,
    ]
    assert rewards == near([1, 0.5, 1, 0.1, 0.1, 0])
    # mean .54, deviations .46, -.04, .46, -.44, -.44; std (ddof 1) = sqrt(.812 / 4) = .450555
    assert advantages(sem.build(), *scored(1, 0.5, 1, 0.1, 0.1)) == near(
        [1.020963, -0.088779, 1.020963, -0.976573, -0.976573], 1e-4
    )


def test_half_right_drafts_count_by_their_f1():
    """Half of the gold's words: F1 = 2 * 1 / (1 + 2) = 2/3."""
    assert paid("mema").total == pytest.approx(2 / 3)
    assert paid("mema", "mema tiru", searches=1).total == pytest.approx(0.5)
    assert paid("mema", "mema tiru", searches=1, tau=0.7).total == pytest.approx(1)
    assert paid("deci", "mema", searches=1).total == pytest.approx(2 / 3)


def test_no_last_answer_is_worth_nothing():
    assert paid("mema tiru", searches=1).total == 0 and paid("mema tiru", searches=1).parts["redundant"] == 0
    assert paid(None, malformed=3).total == 0


def test_one_of_several_gold_answers_is_enough():
    assert paid("deci", gold=["mema", "deci"]).total == 1


def test_arguments_change_what_they_name():
    assert paid("mema tiru", "mema tiru", searches=1, rho=0.8).total == pytest.approx(0.8)
    assert paid("mema tiru", "mema tiru", searches=1, rho=1).parts["redundant"] == 0
    assert paid("mema tiru", "mema tiru", searches=1).parts["redundant"] == pytest.approx(0.5)
    assert paid("deci", floor=0.2).total == pytest.approx(0.2)
    assert paid("mema tiru", "mema tiru", searches=1, bonus=0.3).total == pytest.approx(0.8)
    assert paid("mema tiru", malformed=1, bonus=0.3).total == 0
    for wrong in ({"rho": 1.5}, {"tau": 0}, {"floor": -1}):
        with pytest.raises(UserError, match="sem: rho and floor are 0 to 1"):
            sem.build(**wrong)


def test_searches_and_drafts_are_told_by_the_kind_of_the_question():
    known = paid("mema tiru", "mema tiru", searches=1, known=True)
    unknown = paid("deci", "deci", searches=2, known=False)
    assert known.parts["searches known"] == 1 and known.parts["draft known"] == 1
    assert known.silent == ("searches unknown",)
    assert unknown.parts["searches unknown"] == 2 and unknown.silent == ("searches known", "draft known")
    assert "searches known" not in paid("deci").parts


def test_files_are_drawn_as_they_are_without_a_probe():
    assert isinstance(sem.build().draw, pl.curriculum.KnowledgeBoundary)
    assert sem.build(probes=0).draw == pl.recipe("grpo").draw


def test_a_first_step_without_drafts_or_searches_says_so():
    link = sem.DraftReward()

    def note(*facts):
        episodes = tuple(Episode(facts=f, status="finished", reward=Reward(total=0.0)) for f in facts)
        return link.first_step_note([Group(task=Task(id="t"), episodes=episodes)])

    none, draft, search = ({"draft": d, "calls": c} for d, c in ((None, 0), ("x", 0), ("x", 1)))
    assert "no message of the first step began with an answer" in note(none, none)
    assert "nobody searched" in note(draft, none)
    assert note(search, none) == "" and note() == ""


def test_an_environment_without_drafts_is_refused():
    e = Episode(status="finished", reward=Reward(total=1.0), facts={"calls": 0})
    with pytest.raises(UserError, match="give your documents with --docs"):
        asyncio.run(sem.DraftReward()(None, ("k",), Group(task=Task(id="t", answer="x"), episodes=(e,))))
    with pytest.raises(UserError, match="sem needs documents, which the model searches: docs FOLDER"):
        pl.train("sem", task="add", quiet=True)


def test_worked_examples_on_own_documents(tmp_path):
    """Every example has a draft, some search behind it and some do not."""
    (tmp_path / "notes.md").write_text("boss of bako is tiru.")
    rows = [{"prompt": f"boss of {who}?", "answer": "tiru"} for who in ("bako", "deci", "mema", "tiru", "rako")]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    recipe = sem.build(warm=1, memory=0.0).parts["shown"].runnable
    run = pl.train(
        recipe,
        data=str(tmp_path / "q.jsonl"),
        docs=str(tmp_path / "notes.md"),
        env="draft-search(told=0)",
        model="tiny-agent",
        max_tokens=4,
        steps=1,
        evaluate=0,
        quiet=True,
        out=tmp_path / "run",
    )
    rows = pq.read_table(next(run.folder.glob("rollouts/*.parquet"))).to_pylist()
    facts = [json.loads(row["facts"]) for row in rows]
    assert len({f["draft"] for f in facts}) > 1  # the model's own answers
    assert {f["calls"] for f in facts} == {0, 1} and not any(f["malformed"] for f in facts)


def test_worked_examples_think_where_the_form_has_thoughts():
    world = pl.worlds.DraftSearch(BM25((("a", "boss of bako is tiru"),)))
    state = world.reset(question_task("t", "boss of bako?", "tiru", {}), ("k",)).state
    think, bare = (sem.WorkedExample(world, "deci", True, think).oracle(state) for think in (True, False))
    assert bare == "<answer>deci</answer><search>boss of bako?</search>"
    assert think == (
        "<think>I answer from memory.</think><answer>deci</answer>"
        "<think>I check it.</think><search>boss of bako?</search>"
    )
    assert sem.WorkedExample(world, "deci", False, False).oracle(state) == "<answer>deci</answer>"


def test_worked_examples_search_for_the_question_alone(tmp_path):
    """With the recipe's own instruction behind the questions of a file, and with tags in one of them."""
    (tmp_path / "notes.md").write_text("boss of bako is tiru.")
    asked = ("boss of bako?", "boss of bako now?", "the boss of bako?", "who is boss of bako?", "boss <answer> bako?")
    (tmp_path / "q.jsonl").write_text("".join(json.dumps({"prompt": q, "answer": "tiru"}) + "\n" for q in asked))
    run = pl.train(
        "sem",
        data=str(tmp_path / "q.jsonl"),
        docs=str(tmp_path / "notes.md"),
        model="tiny-agent",
        max_tokens=8,
        steps=1,
        evaluate=0,
        quiet=True,
        set={"warm": 1, "memory": 1.0, "probes": 0, "samples": 2, "rl.schedule.prompts": 1},
        out=tmp_path / "run",
    )
    rows = pq.read_table(next((run.folder / "shown").glob("rollouts/*.parquet"))).to_pylist()
    assert any("<think></think>" in row["prompt"] for row in rows)
    facts = [json.loads(row["facts"]) for row in rows]
    assert {f["calls"] for f in facts} == {0, 1} and not any(f["malformed"] for f in facts)
    assert all(f["found"][0] for f in facts if f["calls"])


def test_a_draft_from_memory_of_a_question_without_an_answer(context):
    with pytest.raises(UserError, match=r"task 'q.jsonl:3' of a search needs a question and an answer"):
        link = sem.ShowDrafts(memory=1.0)
        asyncio.run(
            link._draft(context("hop"), ("k",), replace(question_task("x", "who?", ""), id="q.jsonl:3", answer=[]))
        )


@pytest.mark.parametrize(
    ("text", "finish", "answer"),
    [
        ("Tiru", "eos", "Tiru"),
        ("<think>who was it</think>\nIt is long ago.\nTiru", "eos", "Tiru"),
        ("so the answer is \\boxed{Tiru} I think", "length", "Tiru"),
        ("Answer: Tiru", "eos", "Tiru"),
        ("Tiru was", "length", ""),
        (" ".join(["word"] * 13), "eos", ""),
        ("", "eos", ""),
    ],
)
def test_a_draft_is_read_without_the_form(text, finish, answer):
    row = Row(segments=(Segment(ids=(1,), logp=(-1.0,), trained=True, text=text, finish=finish),))
    assert sem.free_answer(Episode(rows=(row,), facts={"answer": None}, status="truncated:turns")) == answer
    assert sem.free_answer(Episode(rows=(row,), facts={"answer": "\\boxed{mema}"})) == "mema"


def test_a_first_step_of_unknown_drafts_says_so():
    episodes = tuple(Episode(facts={"draft": d}, status="finished") for d in ("unknown", "tiru", "unknown"))
    groups = [Group(task=Task(id="t"), episodes=episodes)]
    assert sem.ShowDrafts().first_step_note(groups).startswith("2 of 3 drafts shown in the first step are 'unknown'")
    assert sem.ShowDrafts(memory=0.5).first_step_note(groups) == ""
    assert sem.ShowDrafts().first_step_note([replace(groups[0], episodes=episodes[1:2])]) == ""


def test_a_draft_in_a_box_is_read():
    assert paid("\\boxed{mema tiru}").total == 1
    assert paid("\\boxed{mema tiru}", "mema tiru", searches=1).parts["redundant"] == 0.5

"""IKEA: its reward by searches and answer, and the draw by what the start knows."""

import asyncio
import json
from types import SimpleNamespace

import palaestra as pl
import pytest
from palaestra.context import Bench
from palaestra.curriculum.knowledge import KnowledgeBoundary
from palaestra.errors import UserError
from palaestra.ledger.needs import costs_lines, costs_of
from palaestra.recipes.agents import ikea
from palaestra.types import Episode, Group, Reward, Row, Segment, Task

from tests.recipes.objectives.helpers import advantages, near, scored


def paid(searches, *, right, malformed=0, answered=True, known=None, text="<answer>x</answer>", **options):
    facts = {
        "tool_calls": searches + malformed,
        "tool_malformed": malformed,
        "malformed": malformed,
        "answered": answered,
        "answer": ("mema" if right else "deci") if answered else None,
    }
    row = Row(segments=(Segment(ids=(1,), logp=(-1.0,), trained=True, text=text),))
    e = Episode(rows=(row,), reward=Reward(total=float(right), solved=right), facts=facts, status="finished")
    task = Task(id="t", answer="mema", meta={} if known is None else {"from_memory": known})
    group = Group(task=task, episodes=(e,))
    for link in ikea.build(think=False, **options).collect.links[2:]:
        group = asyncio.run(link(None, ("k",), group))
    return group.episodes[0].reward


def test_rewards_of_the_catalogue():
    """0, 1, 2, 3 and 5 searches before a right answer, none and one before a wrong one, a broken form."""
    assert [paid(n, right=True).total for n in (0, 1, 2, 3, 5)] == near([1.6, 1.4, 1.2, 1.0, 1.0])
    assert [paid(n, right=False).total for n in (0, 1, 4)] == near([0, 0.05, 0.05])
    assert paid(0, right=True, malformed=1).total == -1
    assert advantages(ikea.build(), *scored(1.6, 1.4, 0.05, 0, -1)) == near(
        [1.099919, 0.915059, -0.332749, -0.378964, -1.303266], 1e-4
    )


def test_no_answer_is_a_wrong_one():
    assert paid(3, right=False, answered=False).total == pytest.approx(0.05)
    assert paid(0, right=False, answered=False).total == 0
    assert paid(2, right=False, answered=False, malformed=1).total == -1


def test_thoughts_are_asked_for_in_every_message_whether_an_answer_is_given_or_not():
    link, bare = ikea.KnowledgeReward(think=True), "<search>x</search>"
    facts = {"tool_calls": 1, "tool_malformed": 0, "answered": False}
    for text, total in ((bare, -1), ("<think>so</think>" + bare, 0.05)):
        row = Row(segments=(Segment(ids=(1,), logp=(-1.0,), trained=True, text=text),))
        reward = Reward(total=0.0, parts={"formed": 0.0, "right": 0.0})
        e = Episode(rows=(row,), reward=reward, facts=facts, status="truncated:turns")
        assert link._paid(e, Task(id="t", answer="x")).reward.total == pytest.approx(total)


def test_arguments_change_what_they_name():
    assert paid(1, right=True, saved=0.3, most=2).total == pytest.approx(1 + 0.3 / 2)
    assert paid(2, right=False, tried=0.2).total == pytest.approx(0.2)
    assert paid(0, right=True, saved=0).parts["knowledge"] == 0
    with pytest.raises(UserError, match="most is 1 or more"):
        ikea.build(most=0)


def test_searches_are_told_by_the_kind_of_the_question():
    known, unknown = paid(2, right=True, known=True), paid(1, right=True, known=False)
    assert known.parts["searches known"] == 2 and known.silent == ("searches unknown",)
    assert unknown.parts["searches unknown"] == 1 and unknown.silent == ("searches known",)
    assert "searches known" not in paid(1, right=True).parts


@pytest.mark.parametrize(
    ("share", "sizes", "kinds"),
    [
        (0.5, (4, 4), [1, 0, 1, 0, 1, 0]),
        (0.25, (4, 4), [1, 0, 0, 0, 1, 0]),
        (1.0, (4, 4), [1] * 6),
        (None, (2, 4), [1, 1, 0, 1, 1, 0]),
        (0.5, (0, 3), [1] * 6),
        (0.5, (3, 0), [0] * 6),
    ],
)
def test_the_kind_that_lags_behind_is_drawn(share, sizes, kinds):
    draw, drawn, order = KnowledgeBoundary(share=share), [0, 0], []
    for _ in kinds:
        order.append(draw._next_kind(drawn, list(sizes)))
        drawn[order[-1]] += 1
    assert order == kinds


def test_shares_that_are_none_are_refused():
    with pytest.raises(UserError, match="share is 0 to 1"):
        KnowledgeBoundary(share=1.5)


def test_without_documents_nothing_can_be_probed(tmp_path):
    with pytest.raises(UserError, match="ikea needs documents, which the model searches: docs FOLDER"):
        pl.train("ikea", task="add", out=tmp_path / "run", quiet=True)


def test_what_is_asked_before_the_first_step_is_bounded_and_announced(monkeypatch):
    """Of a file of 20,000 questions 4096 are asked, from its beginning to its end; `candidates` says others."""
    assert len(KnowledgeBoundary()._numbers(20_000)) == 4096 and len(KnowledgeBoundary()._numbers(None)) == 64
    assert KnowledgeBoundary(candidates=4)._numbers(10) == [0, 2, 5, 7]
    assert KnowledgeBoundary(candidates=9)._numbers(3) == [0, 1, 2]
    said, asked = [], []

    async def rates(ctx, key, tasks, sample):
        said.append("asked")
        return [float(t.id == "t5") for t in tasks]

    monkeypatch.setattr("palaestra.curriculum.knowledge.pass_rates", rates)
    tasks = SimpleNamespace(size=10, task=lambda split, i: asked.append(i) or Task(id=f"t{i}"))
    bench = Bench(
        tasks=tasks,
        world=SimpleNamespace(turns=1, closed=lambda: None, reset=None, step=None, seats=()),
        reward=None,
        name="x",
    )
    ctx = SimpleNamespace(bench=bench, say=said.append, with_bench=lambda bench: None)
    draw = KnowledgeBoundary(n=3, candidates=4)
    drawn, state = asyncio.run(draw(ctx, ("k",), 2, {}))
    assert asked[:4] == [0, 2, 5, 7] and state["known"] == [5]
    assert {t.meta["from_memory"]: t.id for t in drawn}[True] == "t5"
    assert said[0].startswith("note: 4 questions are answered 3 times each without documents, 12 answers")
    assert said[1] == "asked"


@pytest.mark.parametrize(("method", "told"), [("ikea", "16 to each of up to 4096 questions"), ("grpo", "")])
def test_costs_name_what_is_sampled_before_the_first_step(method, told):
    costs = costs_of(pl.recipe(method))
    lines = costs_lines(costs, costs_of(pl.recipe("grpo")))
    assert costs.before == told
    assert [x for x in lines if "before" in x] == ([f"answers sampled before the first step: {told}"] if told else [])


def test_a_question_that_the_start_answers_is_known(tmp_path, monkeypatch):
    """Two of four questions are answered without documents; each step draws as many of both kinds."""
    (tmp_path / "notes.md").write_text("boss of bako is tiru.")
    rows = [{"prompt": f"boss of {who}?", "answer": "tiru"} for who in ("bako", "deci", "mema", "tiru", "rako")]
    questions = tmp_path / "q.jsonl"
    questions.write_text("".join(json.dumps(r) + "\n" for r in rows))

    async def rates(ctx, key, tasks, sample):
        assert ctx.bench.world.turns == 1  # closed
        return [
            0.25 if "deci" in pl.tasks.question_text(t) or "mema" in pl.tasks.question_text(t) else 0.0 for t in tasks
        ]

    monkeypatch.setattr("palaestra.curriculum.knowledge.pass_rates", rates)
    run = pl.train(
        "ikea",
        data=str(questions),
        docs=str(tmp_path / "notes.md"),
        env="search(told=0)",
        model="tiny-agent",
        max_tokens=8,
        steps=1,
        evaluate=0,
        quiet=True,
        out=tmp_path / "run",
        set={"think": False, "samples": 2, "schedule.prompts": 4},
    )
    steps = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert any(step.get("part_share/searches known") == pytest.approx(0.5) for step in steps)

"""Fleming-R1: questions from a graph, the mixture of failed and solved problems, and a user's graph."""

import asyncio
import json
from types import SimpleNamespace

import numpy as np
import palaestra as pl
import pytest
from palaestra.recipes.domains import fleming_r1
from palaestra.recipes.domains.fleming_r1 import mining
from palaestra.recipes.domains.fleming_r1.questions import (
    QuestionGraph,
    WriteGraphQuestions,
    question,
    rarity,
)

# x and y share a neighbour with a, z none; b has two tails
FACTS = (
    ("ss", "treats", "aa"), ("tt", "treats", "xx"), ("uu", "treats", "yy"), ("vv", "treats", "zz"),
    ("aa", "sign", "pp"), ("xx", "sign", "pp"), ("yy", "sign", "qq"), ("ss", "treats", "ww"), ("ww", "sign", "qq"),
)  # fmt: skip


def test_where_a_chain_leads():
    graph = QuestionGraph(FACTS)
    assert graph.ends("ss", ["treats"]) == {"aa", "ww"} and graph.ends("ss", ["treats", "sign"]) == {"pp", "qq"}
    assert graph.ends("tt", ["treats", "sign"]) == {"pp"} and graph.ends("pp", ["sign"]) == set()


def test_wrong_options_are_alike_and_wrong():
    """x shares "sign p" with a, so it comes first; w lies at the end of the chain too, so it is no option."""
    graph, rng = QuestionGraph(FACTS), np.random.default_rng(0)
    assert graph.distractors("aa", "treats", {"aa", "ww"}, 1, rng) == ["xx"]
    assert sorted(graph.distractors("aa", "treats", {"aa", "ww"}, 9, rng)) == ["xx", "yy", "zz"]
    assert graph.distractors("pp", "sign", {"pp", "qq"}, 3, rng) == []


def test_rare_entities_are_asked_for_most():
    """z has one fact, which is the least, and p two."""
    graph = QuestionGraph(FACTS)
    assert rarity(graph, "zz", 1.0) == 1 and rarity(graph, "pp", 1.0) == 0.5 and rarity(graph, "pp", 2.0) == 0.25
    assert rarity(graph, "pp", 0.0) == 1


def made(n=60, hops=2, **options):
    graph = QuestionGraph(FACTS)
    rows = [question(graph, 1 + i % hops, options.get("choices", 4), 0.0, np.random.default_rng(i)) for i in range(n)]
    return [r for r in rows if r]


def test_a_question_has_one_right_option_and_its_working():
    graph, rows = QuestionGraph(FACTS), made()
    assert {r["hops"] for r in rows} == {1, 2} and all(len(r["options"]) <= 4 for r in rows)
    for row in rows:
        head, _, chain = (
            row["prompt"].removeprefix("Start at ").removesuffix(". Where does that lead?").partition(" and follow ")
        )
        right = graph.ends(head, chain.split(", then "))
        assert [o for o in row["options"] if o in right] == [row["answer"]]
        *facts, last = row["demonstration"].splitlines()
        assert (
            len(facts) == row["hops"]
            and facts[-1].endswith(f": {row['answer']}")
            and last == f"Answer: {row['answer']}"
        )
        judged = pl.verifiers.MultipleChoice()(row["demonstration"], row["answer"], options=row["options"])
        assert judged.score == 1
    assert len({tuple(r["options"]).index(r["answer"]) for r in rows}) > 1  # the place says nothing


def test_all_failures_and_half_as_many_others():
    """Of 90 failed and 210 others the second stage has 90 and 45; the first has all of the others, and 10 of the
    failed where there are 10 others."""
    wrong, right, rng = list(range(90)), list(range(90, 300)), np.random.default_rng(0)
    sizes = lambda *args: tuple(map(len, mining.mixture(*args, rng)))
    assert sizes(wrong, right, (2, 1), False) == (90, 45) and sizes(wrong, right, (1, 1), True) == (90, 210)
    assert sizes(wrong, right[:10], (2, 1), False) == (90, 10) and sizes(wrong, right[:10], (1, 1), True) == (10, 10)
    assert (
        sizes([], right, (2, 1), False) == (0, 0)
        and sizes([], right, (1, 1), True) == (0, 210)
        and sizes(wrong, [], (1, 1), True) == (90, 0)
    )
    hard, easy = mining.mixture(wrong, right, (2, 1), False, rng)
    assert hard == wrong and set(easy) < set(right)


class Numbers:
    size = 6

    def task(self, split, index):
        return pl.Task(id=str(index))


def drawn(monkeypatch, rates, draws=1, n=6, **options):
    """The numbers of tasks and what they say of themselves, by draw, where the policy solves them so often."""
    said, tried = [], []

    async def pass_rates(ctx, key, tasks, sample):
        tried.append([t.id for t in tasks])
        return np.array(rates[len(tried) - 1] if isinstance(rates[0], list) else rates)[: len(tasks)]

    monkeypatch.setattr(pl, "pass_rates", pass_rates)
    ctx = SimpleNamespace(bench=SimpleNamespace(tasks=Numbers(), first_drawn=0), seed=0, say=said.append)
    state, seen = {}, []
    for step in range(draws):
        tasks, state = asyncio.run(mining.FailureMix(**options)(ctx, (step,), n, state))
        state = json.loads(json.dumps(state))  # as a checkpoint keeps it
        seen.append({(t.id, t.meta["mined"]) for t in tasks})
    return seen, said, tried


RATES = [0.0, 0.25, 0.5, 1.0, 0.0, 0.75]


def test_failures_are_drawn_with_some_that_are_solved(monkeypatch):
    """At most one right answer of four is a failure: 0, 1 and 4; one and a half others, rounded down, is one."""
    (first,), said, tried = drawn(monkeypatch, RATES, n=4)
    assert {x for x, mined in first if mined} == {"0", "1", "4"} and len(first) == 4 and len(tried[0]) == 6
    assert "3 fail and 2 are never solved" in said[0]
    assert drawn(monkeypatch, RATES, problems=3, n=3)[2] == [["0", "1", "2"]]


def test_the_pool_is_tried_again(monkeypatch):
    """The second time only 5 fails."""
    seen, _, tried = drawn(monkeypatch, [RATES, [1.0] * 5 + [0.0]], draws=3, n=4, every=2)
    assert seen[0] == seen[1] and len(tried) == 2
    assert seen[2] == {("5", 1.0)}
    assert len(drawn(monkeypatch, RATES, draws=3, every=0)[2]) == 1


def test_where_nothing_fails_or_nothing_could_be_tried(monkeypatch):
    everything = {(str(i), 0.0) for i in range(6)}
    assert drawn(monkeypatch, [1.0] * 6)[0] == [everything]
    assert drawn(monkeypatch, [float("nan")] * 6)[0] == [everything]
    assert drawn(monkeypatch, [0.0] * 6)[0] == [{(str(i), 1.0) for i in range(6)}]


def test_the_control_draws_as_many_at_random(monkeypatch):
    (seen,), *_ = drawn(monkeypatch, RATES, n=4, mine=False)
    assert len(seen) == 4 and not any(mined for _, mined in seen)


def test_advantages_have_no_deviation():
    from tests.fake import episode

    group = pl.Group(task=pl.Task(id="t"), episodes=tuple(episode((0,), (1,), r) for r in (1.0, 0.0, 0.0, 1.0)))
    credit = fleming_r1.build().parts["stage1"].runnable.learners["policy"].credit
    rows, _ = credit([group], (), {})
    assert [float(x.columns["advantage"].sum()) for x in rows] == [0.5, -0.5, -0.5, 0.5]


def test_parts():
    names = lambda **given: list(fleming_r1.build(**given).parts)
    assert (
        names() == ["cold", "stage1", "stage2"]
        and names(graph="g.tsv")[0] == "questions"
        and names(cold=False) == ["stage1", "stage2"]
    )
    parts = fleming_r1.build(graph="g.tsv", k=4).parts
    assert [parts[p].runnable.collect.links[0].n for p in ("stage1", "stage2")] == [4, 8]
    assert {p.data.part for name, p in parts.items() if name != "questions"} == {"questions"}
    assert parts["stage2"].runnable.draw.ratio == (2, 1) and parts["stage1"].runnable.draw.ratio == (1, 1)
    for name, value in (("n", 1), ("hops", 0), ("choices", 1), ("k", 1), ("tries", 0)):
        with pytest.raises(pl.UserError, match=name):
            fleming_r1.build(**{name: value})
    with pytest.raises(pl.UserError, match="join those of a graph"):
        fleming_r1.build(questions="q.jsonl")


def written(tmp_path, said=None, **options):
    ctx = SimpleNamespace(folder=tmp_path, key=lambda name: (0, name), say=(said if said is not None else []).append)
    result = asyncio.run(WriteGraphQuestions(**options).run(ctx))
    return [json.loads(line) for line in open(result.artifacts["questions"])]


def test_a_graph_that_gives_few_questions_says_so(tmp_path):
    file, said = tmp_path / "g.tsv", []
    file.write_text("".join("\t".join(f) + "\n" for f in FACTS))
    own = tmp_path / "own.jsonl"
    own.write_text(json.dumps({"prompt": "Which?", "options": ["a", "b"], "answer": "b"}) + "\n")
    rows = written(tmp_path, said, graph=str(file), n=60, hops=2, rows=str(own))
    assert len({r["prompt"] for r in rows}) == len(rows) < 30 and rows[-1]["prompt"] == "Which?" and "not 60" in said[0]
    for facts in ("a\tis\tb\n", "aa\tis\tb\ncc\tis\td\n", "aa\tis\t11\ncc\tis\t12\n"):
        file.write_text(facts)
        with pytest.raises(pl.UserError, match="two or more different tails"):
            written(tmp_path, graph=str(file), n=4)


def test_a_teacher_writes_what_the_graph_does_not_say(tmp_path):
    """With the facts as `demonstration` in every row a teacher was never asked."""
    teacher = pl.Scripted(lambda request: "no")
    alone, taught = (fleming_r1.build(graph="g.tsv", teacher=t).parts["questions"].runnable for t in (None, teacher))
    assert (alone.bare, taught.bare) == (False, True)
    rows = written(tmp_path, n=20, bare=True)
    assert rows and not any("demonstration" in row for row in rows)
    assert all("demonstration" in row for row in written(tmp_path, n=20))


def test_questions_of_the_made_up_graph_that_are_held_out(tmp_path):
    """64 of several relations, so that every fact is trained on; a user's graph marks none."""
    program = fleming_r1.embedded().parts["questions"].runnable
    asyncio.run(program.run(SimpleNamespace(folder=tmp_path, key=lambda name: (0, name), say=print)))
    tasks = pl.tasks.FileTasks(str(tmp_path / "questions.jsonl"))
    assert tasks.test_size == 64 and tasks.size == 216
    held = {tasks.task("test", i).meta["hops"] for i in range(64)}
    assert held == {2, 3} and sum(tasks.task("train", i).meta["hops"] == 1 for i in range(216)) == 24
    assert not any("split" in row for row in written(tmp_path, n=30))


def test_the_page_names_the_graph():
    from palaestra.needs.describe import lines

    text = "\n".join(lines("fleming-r1", fleming_r1.CARD.needs, {}))
    assert "graph, graph=FACTS.tsv: " in text and "--graph" not in text


def test_a_user_s_graph_trains(tmp_path):
    file = tmp_path / "g.tsv"
    file.write_text("".join("\t".join(f) + "\n" for f in FACTS))
    small = {"graph": str(file), "n": 8, "hops": 1, "k": 2, "tries": 1, "problems": 2}
    prompts = {f"{part}.schedule.prompts": 2 for part in ("cold", "stage1", "stage2")}
    run = pl.train(
        "fleming-r1", out=tmp_path / "run", steps=1, evaluate=0, quiet=True, max_tokens=8, set={**small, **prompts}
    )
    (step,) = [json.loads(x) for x in (run.folder / "stage2" / "metrics.jsonl").read_text().splitlines()]
    assert step["mined"] == 1.0

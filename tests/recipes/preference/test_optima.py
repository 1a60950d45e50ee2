"""Optima: what a dialogue is worth, which is imitated, and which messages of a tree make a pair."""

import asyncio
import json

import numpy as np
import palaestra as pl
import pytest
from palaestra.recipes.preference import optima
from palaestra.recipes.preference.optima.trees import MessageTree, facts_of, softmax, worst_nll
from palaestra.types import Episode, Group, Reward, Row, Segment, Task


def dialogue(*texts, paid=1.0, **facts):
    """One of which a message has a token for each of its letters; the agents speak in turn, each in a row."""
    rows = []
    for i in (0, 1):
        said = [(turn, t) for turn, t in enumerate(texts) if turn % 2 == i]
        segments = [Segment(ids=(0,))]
        for turn, t in said:
            ids = tuple(map(ord, t))
            segments.append(Segment(ids=ids, logp=(-1.0,) * len(ids), trained=True, turn=turn, text=t))
        rows += [Row(segments=tuple(segments), thread="ab"[i])] if said else []
    return Episode(rows=tuple(rows), reward=Reward(total=paid), status="finished", facts=facts)


@pytest.mark.parametrize(
    ("tokens", "nll", "expected"), [(50, 2.5, 1.1), (100, 2.0, 0.9), (50, 0.5, 1.7), (50, 0.0, 1.7)]
)
def test_reward_reference_values(tokens, nll, expected):
    """R_task 1, the longest dialogue has 100 tokens; 1 / NLL counts as 1 at most."""
    found = optima.DialogueReward().pay(dialogue("x" * tokens, worst_nll=nll), 100)
    assert found.total == pytest.approx(expected) and found.solved
    again = optima.DialogueReward().pay(found, 200)  # beside a longer one
    assert again.total == pytest.approx(expected + 0.6 * tokens / 200)


def test_what_is_said_twice_is_not_readable():
    found = optima.DialogueReward().pay(dialogue("x" * 50, worst_nll=2.5, repeated=True), 100)
    assert found.total == pytest.approx(0.7) and found.reward.parts["readable"] == 0


def test_the_worst_message_counts():
    """Means of 1.5 over the first message, 4 over the second, 5 over the third; prompts do not count."""
    e = dialogue("ab", "c", "de")
    logps = [np.array([-9.0, -1.0, -2.0, -5.0, -5.0]), np.array([-9.0, -4.0])]
    assert worst_nll(e, logps) == 5.0
    assert worst_nll(Episode(), []) == 0


def test_the_best_dialogue_is_imitated():
    def parts(total, task):
        e = dialogue("a", "b")
        return Episode(rows=e.rows, reward=Reward(total=total, parts={"task": task}), status="finished")

    def chosen(*episodes, **given):
        group = Group(task=Task(id="t"), episodes=episodes)
        signals = [[[{} for _ in e.rows] for e in episodes]]
        return [x.row for x in optima.BestDialogue(**given)((group,), signals, {})[0]]

    good, better = parts(0.7, 1.0), parts(0.9, 1.0)
    assert chosen(good, better) == list(better.rows)
    assert not chosen(parts(0.4, 1.0)) and chosen(parts(0.4, 1.0), least=0.3)
    assert not chosen(parts(0.9, 0.0)) and chosen(parts(0.9, 0.0), least_task=0.0)
    assert not chosen()


def test_node_choice_reference_values():
    assert softmax(np.array([0.8, 0.5, -0.2])) == pytest.approx([0.474226, 0.351316, 0.174458], abs=1e-6)


def grown(*dialogues):
    tree = MessageTree()
    for i, texts in enumerate(dialogues):
        tree.add(i, dialogue(*texts))
    return tree


def test_messages_of_few_edits_are_one_node():
    """1 edit in 11 letters is nearer than .1, 1 in 10 is not."""
    tree = grown(["aaaaaaaaaaa", "x"], ["aaaaaaaaaab", "y"], ["aaaaaaaaaa", "x"], ["bbbbbbbbbb"])
    assert tree.paths == {0: (1, 2), 1: (1, 3), 2: (1, 2), 3: (4,)}
    assert tree.nodes[1].value([1.0, 0.0, 0.5, 9.0]) == 0.5
    tree = grown(["aaaaaaaaaa"], ["aaaaaaaaab"])
    assert tree.paths == {0: (1,), 1: (2,)}


def test_messages_with_different_answers_are_two_nodes():
    """One edit in 40 letters, but it is the answer; in any other place it makes no other message."""
    said = "I have added both: <answer>1{}</answer>"
    tree = grown([said.format(2)], [said.format(3)], [said.format(2).replace("both", "Both")])
    assert tree.paths == {0: (1,), 1: (2,), 2: (1,)}
    tree = MessageTree(pl.worlds.Dialogue(plain=True).read)
    for i, text in enumerate(["4+7 mod 10, 12 mod 10\n= 1", "4+7 mod 10, 12 mod 10\n= 2"]):
        tree.add(i, dialogue(text))
    assert tree.paths == {0: (1,), 1: (2,)}


def halves(folder, answer=None):
    """A user's file of one question whose contexts differ; the answers are right unless one is given."""
    file, rows = folder / "halves.jsonl", []
    for a in range(24):
        row = {"question": "mod 10", "context_a": f"{a % 9 + 1}+{a // 9 + 2}", "context_b": "*3"}
        right = (a % 9 + 1 + (a // 9 + 2) * 3) % 10
        rows.append(row | {"answer": answer or str(right)})
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return str(file)


@pytest.mark.parametrize("answer", [None, "nobody says this"])
def test_its_number_is_there_where_dialogues_train(tmp_path, answer):
    """With both gates as they are: where no dialogue is right none trains, and there is no number."""
    settings = {"env": "dialogue(turns=4,least=2,plain=1)", "max_tokens": 12, "evaluate": 0, "quiet": True}
    words = {"schedule.prompts": 4}
    run = pl.train("optima", data=halves(tmp_path, answer), set=words, steps=2, out=tmp_path / "run", **settings)
    steps = [json.loads(x) for x in (run.folder / "metrics.jsonl").read_text().splitlines()]
    shown = [step[optima.CARD.needs.shows] for step in steps if optima.CARD.needs.shows in step]
    assert all(x > 0 for x in shown) and bool(shown) == (answer is None)
    assert all(step["part/token_cost"] > 0 for step in steps if "part/token_cost" in step)


def test_nodes_that_are_expanded():
    """Not those that end a dialogue, nor those that are like one that was expanded; the root is the last resort."""
    tree = grown(["aaaa", "x"], ["bbbb", "y"], ["aaab", "z"], ["cccc"])
    assert [tree.nodes[i].text for i in tree.candidates([0], [0.1, 0.5, 0.2, 9.0])] == ["bbbb", "aaab", "aaaa"]
    assert [tree.nodes[i].text for i in tree.candidates([0, 1], [0.1, 0.5, 0.2, 9.0])] == ["bbbb", "aaab"]
    assert tree.candidates([0, 1, 3, 5], [0.0] * 4) == [0]


def pairs_of(*dialogues, **given):
    """Of dialogues as (texts, total): the messages of each pair, and the trained tokens of both rows."""
    tree = grown(*(texts for texts, _ in dialogues))
    totals = [total for _, total in dialogues]
    episodes = tuple(
        dialogue(*texts, paid=total, **facts_of(tree, i, totals)) for i, (texts, total) in enumerate(dialogues)
    )
    signals = [[[{} for _ in e.rows] for e in episodes]]
    group = Group(task=Task(id="t"), episodes=episodes)
    examples, _ = optima.MessagePairs(**{"share": 1.0, **given})((group,), signals, {})
    return [("".join(chr(i) for i in x.row.view().ids_T[x.columns["trained"]]), x.columns["sign"]) for x in examples]


def test_pairs_of_messages():
    """After the root "p" is worth .7 and "q" .3; after "p", "r" 1 and "s" .4. The agent's other message is not trained."""
    talks = ((["p", "r", "t"], 1.0), (["p", "s", "t"], 0.4), (["q", "u"], 0.3))
    both = [("r", 1.0), ("s", -1.0), ("p", 1.0), ("q", -1.0)]
    assert pairs_of(*talks) == both
    assert pairs_of(*talks, share=0.5) == both[:2]
    assert pairs_of(*talks, least=0.8) == both[:2]
    assert pairs_of(*talks, gap=0.5) == both[:2]
    assert not pairs_of(*talks, gap=0.7) and not pairs_of(talks[0]) and not pairs_of()


def test_a_tree_of_dialogues_has_its_budget(context):
    """3 dialogues from the root and from each of 4 nodes; what they repeat is not sampled again."""
    ctx = context("halves")
    ctx.models["scorer"] = ctx.model("policy")
    before = ctx.engine("policy").sampled_tokens
    group = Group(task=ctx.bench.tasks.task("train", 1))
    episodes = asyncio.run(optima.DialogueTree(expansions=4)(ctx, (0, "t"), group)).episodes
    assert len(episodes) == 15 and all(e.ok for e in episodes)
    spent = ctx.engine("policy").sampled_tokens - before
    assert 0 < spent <= sum(e.n_sampled for e in episodes)
    values = {}
    for e in episodes:
        values |= {node: v for (node, _), v in zip(e.facts["message_nodes"], e.facts["message_values"], strict=True)}
    for node, value in values.items():
        below = [e.total for e in episodes if node in [i for i, _ in e.facts["message_nodes"]]]
        assert value == pytest.approx(np.mean(below))
    assert max(e.reward.parts["token_cost"] for e in episodes) == pytest.approx(0.6)


def test_variants():
    kinds = {v: optima.build(v) for v in ("isft", "idpo")}
    assert kinds["isft"].learners["policy"].objective == pl.Imitation()
    assert kinds["idpo"].learners["policy"].objective == pl.DPO(beta=0.1) + pl.objective.ImitatePreferred()
    parts = optima.build("isft-dpo", rounds=2).parts
    assert list(parts) == ["isft-1", "idpo-1", "isft-2", "idpo-2"]
    assert [p.model for p in parts.values()] == [None, *(pl.Output(name) for name in list(parts)[:-1])]
    assert optima.embedded("isft-dpo", rounds=1).parts["idpo-1"].runnable.schedule.steps == 15


def test_pairs_on_a_users_questions(tmp_path):
    """Two agents talk about rows of a file, and the tree's pairs train."""
    rows = tmp_path / "questions.jsonl"
    halves = {"context_a": "4+7", "context_b": "*3", "answer": "3"}
    rows.write_text("".join(json.dumps(halves | {"question": f"mod {i + 7}"}) + "\n" for i in range(12)))
    words = {"variant": "idpo", "schedule.prompts": 2, "expansions": 2, "least": -1.0, "gap": 0.0}
    settings = {"env": "dialogue(turns=3,least=2,plain=1)", "max_tokens": 12}
    out = tmp_path / "run"
    run = pl.train("optima", data=str(rows), set=words, steps=1, evaluate=0, quiet=True, out=out, **settings)
    step = json.loads((run.folder / "metrics.jsonl").read_text().splitlines()[0])
    assert step["nll_preferred"] > 0 and step["episodes"] == 2 * 9 and step["part/token_cost"] > 0


@pytest.mark.parametrize(
    ("given", "words"),
    [({"tokens": -1.0}, "tokens"), ({"variant": "idpo", "rollouts": 1}, "rollouts"), ({"rounds": 0}, "rounds")],
)
def test_bad_arguments_say_what_to_do(given, words):
    with pytest.raises(pl.UserError, match=words):
        optima.build(**given)

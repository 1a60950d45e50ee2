"""Two agents with a context each: who hears what, when a talk ends, and what it pays."""

import asyncio
import json

import palaestra as pl
import pytest
from palaestra.rollout.play import play
from palaestra.rollout.player import Script
from palaestra.run.benches import check_world_settings
from palaestra.toys.chain import apply
from palaestra.toys.halves import Halves
from palaestra.types import Message, Task
from palaestra.worlds.dialogue import Dialogue

TASK = Task(
    id="t",
    prompt=(Message(role="user", content="When was the author of Emma born?"),),
    answer="16 December 1775",
    meta={"context_a": "Emma is by Jane Austen.", "context_b": "Austen: 16 December 1775."},
)


def talk(*lines, task=TASK, **settings):
    """The episode in which these are the messages, and what the agents had heard before each."""
    heard, left = [], list(lines)

    def say(messages, rng):
        heard.append([m.content for m in messages])
        return left.pop(0)

    world = Dialogue(**settings)
    return asyncio.run(play(world, {"policy": Script(fn=say)}, task, (0,), (1,))), heard


def test_each_agent_reads_its_own_context_and_hears_the_other():
    e, heard = talk("It is by Jane Austen.", "Then I know it.", "Say it.", "<answer>16 December 1775</answer>")
    assert [r.thread for r in e.rows] == ["a", "b"] and e.total == 1 and e.solved
    (first,), (second,), third, fourth = heard
    assert "Emma is by" in first and "16 December" not in first and "partner says" not in first
    assert "16 December" in second and "Emma is by" not in second
    assert second.endswith("Your partner says:\nIt is by Jane Austen.")
    assert third == [first, "It is by Jane Austen.", "Then I know it."]
    assert fourth == [second, "Then I know it.", "Say it."]
    assert not talk("no", "no", turns=2)[0].facts["repeated"]  # the other said it, too
    assert (e.facts["messages"], e.facts["answered"], e.facts["repeated"]) == (4, True, False)


@pytest.mark.parametrize(
    ("said", "paid"),
    [
        ("Answer: 16 December 1775", 1.0),
        ("<answer>December 1775</answer>", 0.8),  # 2 * 2 / (2 + 3)
        ("<answer>1817</answer>", 0.0),
        ("I do not know.", 0.0),
    ],
)
def test_pay(said, paid):
    assert talk(said, turns=1)[0].total == pytest.approx(paid)


def test_a_talk_ends_after_its_last_message():
    e, _ = talk("no", "idea", "no", turns=3)
    assert e.status == "finished" and e.total == 0 and not e.facts["answered"] and e.facts["repeated"]


def test_an_answer_before_both_have_spoken_does_not_end_it():
    e, heard = talk("= 1", "= 4", task=Halves().task("train", 0), least=2, plain=True)
    assert len(heard) == 2 and heard[1][0].startswith("1")
    assert e.facts["answer"] == "4"


def test_halves_of_a_chain():
    """The answer is that of the second half, begun with the result of the first."""
    for i in range(20):
        task = Halves(operands=(3, 3)).task("test", i)
        a, b = task.meta["context_a"], task.meta["context_b"]
        half = apply(int(a[0]), a[1], int(a[2]), 10)
        assert str(apply(half, b[0], int(b[1]), 10)) == task.answer
        assert task.prompt[0].content == "mod 10"


def test_the_oracle_earns_the_full_reward():
    world, task = Dialogue(), Halves().task("train", 3)
    said = world.oracle(world.reset(task, ()).state)
    assert talk(said, task=task)[0].total == 1


def test_bad_settings_say_what_to_do(tmp_path):
    with pytest.raises(pl.UserError, match="it takes turns=8"):
        check_world_settings("dialogue(rounds=2)", Dialogue, {"rounds": 2})
    with pytest.raises(pl.UserError, match="columns context_a and context_b"):
        pl.train("grpo", env="dialogue", out=tmp_path / "a", quiet=True)
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"question": f"{i} + 1?", "answer": str(i + 1)}) + "\n" for i in range(9)))
    with pytest.raises(pl.UserError, match="context_a"):
        pl.train("grpo", data=str(rows), env="dialogue", out=tmp_path / "b", quiet=True)

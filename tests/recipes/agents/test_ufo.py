"""UFO: its returns by attempts, what is said after a wrong answer, and what the evaluation counts."""

import asyncio
import json

import palaestra as pl
import pytest
from palaestra.errors import Fault, UserError
from palaestra.recipes.agents import ufo
from palaestra.rewards.verify import Exact, Verify
from palaestra.rollout.play import play
from palaestra.rollout.player import Script
from palaestra.types import Completion, Episode, Group, Message, Reward, Row, Segment, Task
from palaestra.worlds.question import Question

from tests.recipes.objectives.helpers import near

TASK = Task(id="t", prompt=(Message(role="user", content="What is 40 + 2?"),), answer="42")


def paid(*messages, **options):
    """R of an episode of messages: an answer, "!" = the right one, "" = none."""
    kinds = {"!": "right", "": "invalid"}
    facts = {
        "outcomes": tuple(kinds.get(m, "wrong") for m in messages),
        "answers": tuple(m for m in messages if m),
    }
    link = ufo.build(**options).collect.links[1]
    group = Group(task=TASK, episodes=(Episode(facts=facts, status="finished"),))
    return asyncio.run(link(None, ("k",), group)).episodes[0].reward


@pytest.mark.parametrize(
    ("messages", "total"),
    [
        (("a", "b", "!"), 0.25),
        (("a", "a", "!"), 0.25 - 0.5 * (1 - 2 / 3)),
        (("a",) * 5, -0.4),
        (("!",), 1.0),
        (("a", "b", "c", "d", "e"), 0.0),
        (("", "!"), 0.9),
        (("", "", "", "", ""), -0.5),
        (("a", "", "!"), 0.5 - 0.1),  # a message without an answer is no attempt
        ((), 0.0),
    ],
)
def test_returns_of_the_catalogue(messages, total):
    reward = paid(*messages)
    assert reward.total == near(total, 1e-9) and reward.solved == ("!" in messages)
    assert reward.parts["shaped"] == near(("!" in messages) - total, 1e-9)


def test_whole_replies_as_answers_are_said():
    """Two of three answers are prose, of which hardly two are the same; short ones, or no penalty, need no word."""

    def note(*answers, **options):
        e = Episode(facts={"answers": answers}, status="finished", reward=Reward(total=0.0))
        return ufo.build(**options).collect.links[1].first_step_note([Group(task=TASK, episodes=(e,))])

    prose = "I think that it may well be some number or other, as far as I can see from here, and no more"
    assert note(prose, prose, "42").startswith("2 of 3 answers state nothing in a box")
    assert note(prose, "41", "42") == note(prose, prose, penalty=0.0) == note() == ""


def test_arguments_change_what_they_name():
    assert paid("a", "!", gamma=0.9).total == near(0.9)
    assert paid("a", "a", penalty=1.0).total == near(-0.5)
    assert paid("", "!", invalid=0.3).total == near(0.7)
    assert paid("a", "a", "", penalty=0.0, invalid=0.0).parts["shaped"] == 0
    assert paid("a", "!").parts["recovered"] == 1 and paid("", "!").parts["recovered"] == 0
    for wrong in ({"gamma": 1.5}, {"penalty": -1}, {"invalid": -0.1}):
        with pytest.raises(UserError, match="gamma is 0 to 1, penalty and invalid are 0 or more"):
            ufo.build(**wrong)
    with pytest.raises(UserError, match="attempts is 1 or more"):
        ufo.build(attempts=0)
    for keep in (0.0, 1.1):
        with pytest.raises(UserError, match="keep is above 0 and at most 1"):
            ufo.build(keep=keep)


@pytest.mark.parametrize(
    ("answers", "distinct"),
    [((), 0), (("a", "b"), 2), (("Paris", " paris", "PA RIS"), 1), (("0.5", "1/2"), 1), (("2*3*8", "2+3+8"), 2)],
)
def test_answers_that_differ_in_writing_alone_are_one(answers, distinct):
    assert ufo.count_distinct(answers) == distinct


def test_the_answer_of_a_message():
    assert ufo.given_answer("<think>7 or 8</think> I say <answer> 8 </answer>") == "8"
    assert ufo.given_answer("7+1=8\n= 8") == "8"
    assert ufo.given_answer("def f(): return 8") == "def f(): return 8"
    assert ufo.given_answer("<answer>house.") == ufo.given_answer("It is <answer> house.") == "house."
    assert ufo.given_answer("<answer>") == ufo.given_answer("<answer></answer>") == ""
    assert ufo.given_answer("<think>nothing</think>  ") == ufo.given_answer("") == ""


class Situation:
    """A problem whose judge needs nothing of the run."""

    def __init__(self, world=None, reward=None):
        self.bench = pl.Bench(name="sums", tasks=None, world=world or Question(), reward=reward or Verify(Exact()))
        self.met = []

    def __bool__(self):
        return False  # `judge_group` then asks the judge alone

    def with_bench(self, bench):
        other = Situation(bench.world, bench.reward)
        other.bench = bench
        return other


def episode(*texts, cut=(), attempts=5, left=ufo.LEFT, reward=None):
    """An episode of a policy that says these texts, those numbered in `cut` to the limit; what it was told."""
    told = []

    class Speaker(Script):
        async def act(self, row, messages, ask, key):
            n = len(told)
            told.append(ask.say[-1].content)
            ends = "length" if n in cut else "eos"
            return Completion(ids=(), logp=(), text=texts[n], cut=len(texts[n]), finish=ends)

    context = Situation(reward=reward)
    world = ufo.UnaryFeedback(context, context.bench.reward, attempts, ufo.AGAIN, left)
    played = asyncio.run(play(world, {"policy": Speaker(fn=str)}, TASK, ("k",), ("w",)))
    return played, told


def test_a_wrong_answer_is_followed_by_the_same_sentence_and_the_right_one_by_nothing():
    played, told = episode("<answer>7</answer>", "<answer>41</answer>", "<answer>42</answer>")
    assert told == [
        "What is 40 + 2?\nYou have 5 attempts left.",
        "Incorrect. Please think again. You have 4 attempts left.",
        "Incorrect. Please think again. You have 3 attempts left.",
    ]
    assert played.facts["outcomes"] == ("wrong", "wrong", "right") and played.status == "finished"
    assert played.facts["answers"] == ("7", "41", "42")


def test_the_last_attempt_ends_the_episode():
    played, told = episode(*["<answer>7</answer>"] * 5, attempts=2, left="")
    assert len(told) == 2 and told[1] == ufo.AGAIN
    assert played.facts["outcomes"] == ("wrong", "wrong") and not played.facts["correct"]


def test_a_message_without_an_answer_is_told_so():
    played, told = episode("<answer>42", "<think>hm</think>", "<answer>42</answer>", cut=(0,))
    assert played.facts["outcomes"] == ("invalid", "invalid", "right")
    assert told[1].startswith("No answer was found. Incorrect.") and played.facts["answers"] == ("42",)


def test_a_judge_that_fails_is_no_wrong_answer():
    async def broken(ctx, group):
        return [Fault("judge", "away")]

    played, _ = episode("<answer>42</answer>", reward=broken)
    assert played.status == "error:judge" and played.reward is None


def test_a_world_of_its_own_is_refused():
    for context in (Situation(world=pl.worlds.TicTacToe()), Situation()):
        bench = context.bench
        if isinstance(bench.world, Question):
            bench = context.bench = pl.Bench(name="hop", tasks=None, world=Question(), reward=None)
        with pytest.raises(UserError, match="is a world of its own; give questions with --data"):
            asyncio.run(ufo.SampleRetries(n=1).play(context, ("k",), Group(task=TASK), {}))


def groups(*totals):
    return [
        Group(task=Task(id=str(i)), episodes=tuple(Episode(reward=Reward(total=x), status="finished") for x in row))
        for i, row in enumerate(totals)
    ]


def test_the_questions_that_vary_most_are_trained_on():
    drawn = groups((0, 0), (0, 1), (0.5, 1), (1, 1), (), (0, 1), (1, 1), (1, 1))
    kept = [asyncio.run(ufo.MostVaried(k)(None, drawn, {}))[0] for k in (0.25, 0.375, 0.01, 1.0)]
    assert [[g.task.id for g in ready] for ready in kept[:3]] == [["1", "5"], ["1", "2", "5"], ["1"]]
    assert len(kept[3]) == 8
    assert ufo.spread(drawn[2]) == near(0.25) and ufo.spread(drawn[4]) == 0


def tried(*outcomes, n=3):
    row = Row(segments=(Segment(ids=(1,) * n, logp=(-1.0,) * n, trained=True),))
    reward = Reward(total=0.0, parts={"distinct": 0.5}, solved="right" in outcomes)
    return Episode(rows=(row,), reward=reward, facts={"outcomes": outcomes}, status="finished")


def test_success_by_messages_beside_single_answers():
    """One is solved at once, one in its third message, one never; of single answers the 2nd of the last one."""
    episodes = [tried("right"), tried("wrong", "invalid", "right", n=9), tried("wrong", "wrong", "wrong")]
    no, yes = tried("wrong"), tried("right")
    numbers = ufo.retry_numbers(episodes, [[yes, no, no], [no, no, no], [no, yes, no]], 3)
    assert [numbers[f"succ@{k}"]["mean"] for k in (1, 2, 3)] == near([1 / 3, 1 / 3, 2 / 3])
    assert [numbers[f"pass@{k}"]["mean"] for k in (1, 2, 3)] == near([1 / 3, 2 / 3, 2 / 3])
    assert numbers["turns"] == near(7 / 3) and numbers["tokens"] == near(5) and numbers["single_tokens"] == near(9)


def test_a_file_with_a_reward_of_ones_own(tmp_path, capsys):
    """Feedback is never trained on; few possible answers are found by elimination, which is said."""
    (tmp_path / "judge.py").write_text("def odd(response, answer):\n    return float('7' in response)\n")
    for name in ("q", "test"):
        rows = [{"prompt": f"{i}+7-{i} {name}", "answer": "7"} for i in range(8)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    run = pl.train(
        "ufo",
        data=str(tmp_path / "q.jsonl"),
        test_data=str(tmp_path / "test.jsonl"),
        reward=f"{tmp_path / 'judge.py'}:odd",
        max_tokens=8,
        steps=1,
        out=tmp_path / "run",
        set={"samples": 4, "schedule.prompts": 2, "keep": 1.0, "attempts": 3, "exam": 4},
    )
    (step,) = [json.loads(x) for x in (run.folder / "metrics.jsonl").read_text().splitlines() if '"part/' in x]
    assert step["part/attempts"] > 1 and 0 < step["part/distinct"] <= 1
    rows = [row for e in run.episodes(tokens=True).to_pylist() for row in e["rows"]]
    again = [said["text"] for row in rows for said in row["said"]]
    assert any("".join(row["tokens"]).count("Incorrect") for row in rows), again
    assert {a for row in rows for a, t in zip(row["author"], row["trained"], strict=True) if t} == {"policy"}
    assert "note: only 1 of the answers differ, which 3 attempts find by elimination" in capsys.readouterr().err

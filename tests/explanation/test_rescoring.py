"""Answers that a run keeps under another reward: what is read back, what differs, and what is said of it."""

import json
import shutil
from pathlib import Path

import pytest
from palaestra import open as open_run
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.explanation.rescoring import Problems, RewardPair, compare_rewards, restore_texts
from palaestra.rewards.verify import response_text
from palaestra.tasks.files import FileTasks
from palaestra.types import Episode, Row, Segment

OWN = """
from palaestra import Fault
def length(responses, answers, **fields):
    return [{"total": len(r), "solved": s == "odd"} for r, s in zip(responses, fields["kind"])]
def size(responses, answers):
    return [len(r) for r in responses]
def silent(responses, answers):
    raise Fault("reward", "no answer from the judge")
"""


TWO = """
import palaestra as pl
def build():
    short = pl.vary(
        pl.recipe("grpo"), schedule=pl.Schedule(prompts=4, steps=1), collect=pl.links(pl.Sample(n=2), pl.Score())
    )
    return pl.Pipeline(parts={{"first": pl.Part(short), "second": pl.Part(short, data={other!r})}})
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of two steps on four problems of its own, with a column that a reward reads."""
    place = tmp_path_factory.mktemp("rescored")
    (place / "own.py").write_text(OWN)
    rows = [{"prompt": f"{i}+1=", "answer": str(i + 1), "kind": "odd" if i % 2 else "even"} for i in range(4)]
    (place / "sums.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    small = ["schedule.prompts=4", "sample.n=4", "--max-tokens", "12", "--evaluate", "0", "--json"]
    asked = ["--data", str(place / "sums.jsonl"), "--steps", "2", "--out", str(place / "run")]
    assert main(["train", "grpo", *asked, *small]) == 0
    return place


def test_the_runs_own_reward_changes_nothing(folder):
    run = open_run(folder / "run")
    found = run.rescore("exact")
    assert len(found.pairs) == run.episodes().num_rows == 32 and not any(x.error for x in found.pairs)
    assert [(x.reward, x.solved) for x in found.pairs] == [(x.other, x.other_solved) for x in found.pairs]
    assert set(run.rescore("exact", steps=1).table["step"].to_pylist()) == {2}
    assert found.table.num_rows == 32 and found.comparison.bare == 0 and found.notes == []


def test_a_function_gets_the_text_and_the_columns_of_the_data(folder):
    found = open_run(folder / "run").rescore(f"{folder / 'own.py'}:length").pairs
    assert all(x.other == len(x.text) for x in found) and len({x.other for x in found}) > 1
    odd = {x["task_id"]: int(x["prompt"][0]) % 2 == 1 for x in open_run(folder / "run").episodes().to_pylist()}
    assert {x.task_id: x.other_solved for x in found} == odd and len(set(odd.values())) == 2


def test_a_problem_that_has_changed_is_judged_by_what_the_run_says(folder, tmp_path, capsys):
    """A line more at the beginning of the file: identities are places, and each is another problem now."""
    old, new = folder / "sums.jsonl", tmp_path / "sums.jsonl"
    new.write_text('{"prompt": "9+0=", "answer": "9", "kind": "odd"}\n' + old.read_text())
    run = shutil.copytree(folder / "run", tmp_path / "run")
    (run / "config.toml").write_text((run / "config.toml").read_text().replace(str(old), str(new)))
    assert main(["score", "exact", "--run", str(run)]) == 0
    assert "3 problems are not in the data as they were asked" in capsys.readouterr().out
    assert all(x.reward == x.other and not x.whole for x in open_run(run).rescore("exact").pairs)


def test_problems_are_found_by_names_of_their_own(tmp_path):
    rows = [{"id": name, "prompt": f"solve {name}", "answer": "1"} for name in ("b7", "a", "c1")]
    (tmp_path / "named.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    tasks = FileTasks(str(tmp_path / "named.jsonl"))
    known = [tasks.task("train", i) for i in range(tasks.size)]
    problems = Problems(tasks, [t.id for t in known])
    for task in known:
        assert problems.find({"task_id": task.id, "prompt": task.prompt[0].content, "answer": "1"}) == task
        assert problems.find({"task_id": task.id, "prompt": "another", "answer": "1"}) is None
        assert problems.find({"task_id": task.id, "prompt": task.prompt[0].content, "answer": "2"}) is None
    assert problems.find({"task_id": "d", "prompt": "d", "answer": "1"}) is None


def test_what_fails_is_counted_and_says_why(folder, capsys):
    words = ["score", f"{folder / 'own.py'}:silent", "--run", str(folder / "run"), "--steps", "1"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "own.py:silent on 0 answers" in said and "16 answers got no reward now: " in said
    assert "no answer from the judge" in said and "mean" not in said
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mean"] is None


def say(text, turn, logp=(0.0,), **more):
    return Segment(ids=(1,), logp=logp, trained=logp is not None, policy="policy", turn=turn, text=text, **more)


def played(*rows):
    return Episode(rows=tuple(Row(segments=s) for s in rows), status="finished")


TOLD = Segment(ids=(2,), text="found: 7", turn=1)


@pytest.mark.parametrize(
    ("rows", "text", "judged"),
    [
        ([(say("7<eos>", 0),)], "7", "7"),
        ([(say("7<eos>", 0),)], "sept \u00e9", "sept \u00e9"),  # of one turn the text is known whole
        ([(say("search<eos>", 0), TOLD, say("it is 7<eos>", 2))], "search\nit is 7", "it is 7"),
        ([(say("a\nb<eos>", 0), TOLD, say("c<eos>", 2))], "a\nb\nc", "c"),
        ([(say("cut", 0), TOLD, say("cut too", 2))], "cut\ncut too", "cut too"),
        # two contexts of one turn each: what is said in the first of the latest turn is judged
        ([(say("solved<eos>", 0),), (say("a verdict<eos>", 0),)], "solved\na verdict", "solved"),
        ([(say("late<eos>", 3),), (say("early<eos>", 2),)], "late\nearly", "late"),
        # a reply that had to begin with something, and one that goes on after it
        ([(say("so: ", 0, None, author="forced"), say("7<eos>", 0))], "7", "so: 7"),
        ([(say("x", 0), say("of", 0, None, author="forced"), say("y<eos>", 0))], "xy", "xofy"),
        ([(say("<eos>", 0), TOLD, say("<eos>", 2))], "\n", ""),
        ([(say("un\ufffd", 0), TOLD, say("d<eos>", 2))], "une\nd", "d<eos>"),  # tokens that read otherwise
        ([(TOLD,)], "", ""),
    ],
)
def test_what_was_said_last_is_read_back(rows, text, judged):
    """Tokens also tell the mark of the end, which text does not."""
    assert response_text(restore_texts(played(*rows), text)) == judged


def test_the_last_turn_is_found_in_a_file(folder):
    small = ["schedule.prompts=4", "sample.n=2", "--evaluate", "0", "--json", "--steps", "1"]
    assert main(["train", "grpo", "--task", "hop", "--out", str(folder / "hops"), *small]) == 0
    found = open_run(folder / "hops").rescore(f"{folder / 'own.py'}:size")
    turns = [x.text.split("\n") for x in found.pairs]
    assert {len(t) > 1 for t in turns} == {True, False} and found.comparison.bare == 0
    assert [x.other for x in found.pairs] == [len(t[-1]) for t in turns]


def test_parts_of_a_pipeline_have_their_own_problems_and_steps(folder):
    """Groups of the same step and number are two where they are of two parts."""
    other = folder / "other.jsonl"
    rows = [{"prompt": f"{i}+2=", "answer": str(i + 2), "kind": "odd"} for i in range(4)]
    other.write_text("".join(json.dumps(r) + "\n" for r in rows))
    (folder / "two.py").write_text(TWO.format(other=str(other)))
    small = ["--data", str(folder / "sums.jsonl"), "--max-tokens", "12", "--evaluate", "0", "--json"]
    assert main(["train", str(folder / "two.py"), *small, "--out", str(folder / "two")]) == 0
    found = open_run(folder / "two").rescore(f"{folder / 'own.py'}:length")
    assert {(x.part, x.step) for x in found.pairs} == {("first", 1), ("second", 1)}
    assert all(x.other_solved for x in found.pairs if x.part == "second") and found.comparison.bare == 0
    assert found.comparison.groups == 8
    with pytest.raises(UserError, match="does not say its problem"):
        open_run(folder / "two" / "first").rescore("exact")


def answers(own, other, solved=None, group=0, part=""):
    solved = solved or [(None, None)] * len(own)
    return [
        RewardPair(
            part=part, step=1, group=group, sample=i, task_id="t", text="",
            reward=a, solved=s[0], other=b, other_solved=s[1],
        )
        for i, (a, b, s) in enumerate(zip(own, other, solved, strict=True))
    ]  # fmt: skip


def test_what_differs_by_hand():
    first = answers([1, 0, 0, None], [1, 1, 0, 1], [(True, True), (False, True), (False, False), (None, True)])
    second = answers([1, 1], [0, 1], [(True, False), (True, True)], group=1)
    found = compare_rewards([*first, *second])
    assert (found.answers, found.unscored, found.unscored_now, found.judged) == (5, 1, 0, 5)
    assert found.mean == pytest.approx((3 / 5, 3 / 5)) and found.solved == (3, 3)
    assert (found.now_wrong, found.now_right) == (1, 1)
    assert (found.groups, found.mixed) == (2, (1, 2))
    # pairs: (1,0) -> (1,1), (1,0) -> (1,0), (0,0) -> (1,0), and (1,1) -> (0,1): one agrees; 2 and 3 are strict
    assert found.agreement == pytest.approx(1 / (2 * 3) ** 0.5)


def test_order_alone_counts_and_none_has_no_agreement():
    assert compare_rewards(answers([0, 1, 2], [0, 10, 11])).agreement == pytest.approx(1)
    assert compare_rewards(answers([0, 1, 2], [5, 4, 3])).agreement == pytest.approx(-1)
    assert compare_rewards(answers([1, 1], [0, 1])).agreement is None
    last_bits = compare_rewards(answers([0.3, 0.1 + 0.2], [0.3, 0.1 + 0.2]))
    assert last_bits.mixed == (0, 0) and last_bits.agreement is None
    nothing = compare_rewards([])
    assert (nothing.answers, nothing.mean, nothing.agreement, nothing.mixed) == (0, None, None, (0, 0))
    two = compare_rewards([*answers([1], [1], part="a"), *answers([0], [0], part="b")])
    assert two.groups == 0  # of two parts


def test_what_cannot_be_done_is_said(folder, tmp_path, capsys):
    run = str(folder / "run")
    for words, said in (
        (["exact", "--run", run, "--cases", "x.jsonl"], "exclude each other"),
        (["exakt", "--run", run], "no verifier 'exakt'"),
        (["exact", "--run", str(tmp_path)], "not a run folder"),
        (["judge(rubric='good')", "--run", run], "give one by its address"),
        (["exact"], "--cases is missing"),
        (["exact", "--steps", "2"], "--steps goes with --run"),
    ):
        assert main(["score", *words]) == 2 and said in capsys.readouterr().err
    with pytest.raises(UserError, match="give at least one"):
        open_run(run).rescore("exact", steps=0)
    for file in Path(run).rglob("rollouts/*.parquet"):
        file.rename(tmp_path / file.name)
    with pytest.raises(UserError, match="holds no answers of training"):
        open_run(run).rescore("exact")

"""ReSeek: what judgements pay, what is told of a run without them, its worked examples, and invented names."""

import asyncio
import json
from dataclasses import replace

import palaestra as pl
import pyarrow.parquet as pq
import pytest
from palaestra.errors import UserError
from palaestra.recipes.agents import reseek
from palaestra.recipes.agents.reseek import fictional
from palaestra.services.index import BM25
from palaestra.tasks.procedural import question_task
from palaestra.types import Act, Episode, Group, Reward, Task


def paid(judgements, useful, right, *, coverage=0.0, **options):
    """The reward of an episode with these judgements of searches."""
    facts = {
        "judgements": judgements,
        "useful": useful,
        "coverage": (coverage,),
        "gains": (0.0,),
        "correct": right,
        "answered": True,
    }
    e = Episode(reward=Reward(total=float(right), solved=right), facts=facts, status="finished")
    link = reseek.build(**{"utility": 0, **options}).collect.links[2]
    return asyncio.run(link(None, ("k",), Group(task=Task(id="t"), episodes=(e,)))).episodes[0].reward


def test_rewards_of_the_catalogue():
    """Junk accepted, then a good one, and a right answer, without discount and with .9; two right judgements."""
    assert paid((True, True), (False, True), True).total == pytest.approx(0.7)
    assert paid((True, True), (False, True), True, gamma=0.9).total == pytest.approx(0.48)
    assert paid((False, True), (False, True), True).total == pytest.approx(1.6)
    assert paid((False, True), (False, True), False).total == pytest.approx(0.6)
    assert paid((True, True), (False, False), True).total == pytest.approx(-0.2)
    assert paid((False,), (True,), True).total == pytest.approx(0.7)


def test_an_episode_without_a_search_or_a_judgement():
    assert paid((), (), True).total == 1 and paid((), (), False).total == 0
    assert paid((None,), (True,), True).total == 1 and paid((None,), (True,), True).parts["unjudged"] == 1
    assert paid((), (), True).silent == ("judged right", "accepted junk")


def test_judgements_pay_no_more_than_the_cap():
    many = paid((False,) * 6, (False,) * 6, False)
    assert many.total == pytest.approx(0.6) and many.parts["judged"] == pytest.approx(0.6)
    assert paid((True,) * 4, (False,) * 4, False).total == pytest.approx(-2.4)
    assert paid((False,) * 6, (False,) * 6, False, cap=1.5).total == pytest.approx(1.5)


def test_arguments_change_what_they_name():
    assert paid((True,), (True,), False, match=0.5).total == pytest.approx(0.5)
    assert paid((True,), (False,), False, junk=0.2).total == pytest.approx(-0.2)
    assert paid((False,), (True,), False, missed=0.1).total == pytest.approx(-0.1)
    assert paid((), (), True, coverage=0.5, utility=0.2).total == pytest.approx(1.1)
    assert paid((), (), True, coverage=0.5, utility=0.2).parts["utility"] == pytest.approx(0.1)
    off = paid((True, False), (False, False), True, match=0, junk=0, missed=0)
    assert off.parts["judged"] == 0 and off.total == 1
    for wrong in ({"match": -1}, {"gamma": 1.5}):
        with pytest.raises(UserError, match="are 0 or more, and gamma is 0 to 1"):
            reseek.build(**wrong)


def test_shares_of_right_judgements_and_of_accepted_junk():
    parts = paid((True, True, False, None), (False, True, False, True), True).parts
    assert parts["judged right"] == 0.5 and parts["accepted junk"] == 0.5


def test_a_first_step_without_judgements_says_so():
    def note(*judgements):
        episodes = tuple(
            Episode(facts={"judgements": j}, status="finished", reward=Reward(total=0.0)) for j in judgements
        )
        return reseek.JudgementReward().first_step_note([Group(task=Task(id="t"), episodes=episodes)])

    assert "no search of the first step was judged" in note((None,), ()) and note((None,), (True,)) == ""
    assert note() == ""


def test_an_environment_without_judgements_is_refused():
    e = Episode(status="finished", reward=Reward(total=1.0), facts={})
    with pytest.raises(UserError, match="give your documents with --docs"):
        asyncio.run(reseek.JudgementReward()(None, ("k",), Group(task=Task(id="t"), episodes=(e,))))
    with pytest.raises(UserError, match="reseek needs documents, which the model searches: docs FOLDER"):
        pl.train("reseek", task="add", quiet=True)


def example(wrong, think=False, docs=(("a", "boss of bako is tiru"),)):
    """The messages of a worked example of a question without known searches."""
    world = pl.worlds.JudgeSearch(BM25(docs), k=1, turns=3)
    shown = reseek.WorkedJudgement(world, wrong, think, ("k",))
    frame, said = shown.reset(question_task("t", "boss of bako?", "tiru", {}), ("k",)), []
    while frame.asks:
        said.append(shown.oracle(frame.state))
        act = Act(ask=frame.asks[0], text=said[-1], call=None, finish="eos", n_tokens=1)
        frame = asyncio.run(shown.step(frame.state, (act,), ("k", len(said))))
    return said, frame.facts


def test_worked_examples_judge_rightly_or_not():
    search, answer = "<search>boss of bako?</search>", "<answer>tiru</answer>"
    assert example(0.0)[0] == [search, f"<judge>yes</judge>{answer}"]
    assert example(0.0, think=True)[0][1] == f"<think>I read it.</think><judge>yes</judge>{answer}"
    said, facts = example(1.0)
    assert said == [search, f"<judge>no</judge>{search}", f"<judge>no</judge>{answer}"] and facts["malformed"] == 0
    junk = (("a", "boss of mema is deci"),)
    assert example(0.0, docs=junk)[0][1] == f"<judge>no</judge>{search}"
    assert example(1.0, docs=junk)[0][1] == "<judge>yes</judge><answer>unknown</answer>"


def test_names_of_questions_documents_and_answers_are_others_alike():
    docs = ["The capital of Peru is Lima. Lima has Big Park of 1923.", "In Peru the big park is old."]
    words = fictional.renaming(["What is the capital of Peru?"], ["Lima", "the 1923 park"], docs, 0)
    assert set(words) == {"peru", "lima", "1923", "park"}  # big is also written small, and no answer
    assert len(set(words.values())) == 4 and words["1923"].isdigit() and len(words["1923"]) == 4
    text = fictional.rename(docs[0], words)
    assert words["lima"].capitalize() in text and words["peru"].capitalize() in text and "Lima" not in text
    assert text.startswith("The capital of ") and "Big " in text and words["1923"] in text
    assert fictional.rename("lima's LIMA", words).split("'")[0] == words["lima"]
    assert words == fictional.renaming(["What is the capital of Peru?"], ["Lima", "the 1923 park"], docs, 0)
    assert words != fictional.renaming(["What is the capital of Peru?"], ["Lima", "the 1923 park"], docs, 1)


def test_a_question_without_another_number_in_its_place_is_left_out(tmp_path, capsys):
    digits = "The boss of Bako is Tiru. " + " ".join(map(str, range(10)))
    words = fictional.renaming(["q"], ["7", "Tiru 12"], [digits], 0)
    assert set(words) == {"tiru", "12"}
    scores = exam(tmp_path / "some", digits, ["7", "Tiru"])
    assert scores["invented"]["n"] == scores["real from memory"]["n"] == 1
    assert "1 of 2 held-out questions are not asked about invented names" in capsys.readouterr().err
    assert exam(tmp_path / "none", digits, ["7", "3"]) == {}


def exam(tmp_path, document, answers):
    """Scores of a `FictionalExam` over one document, of questions with these answers."""
    tmp_path.mkdir()
    (tmp_path / "notes.md").write_text(document)
    rows = [{"prompt": f"Who is the boss of Bako, {i}?", "answer": a} for i, a in enumerate(answers)]
    for name in ("q.jsonl", "test.jsonl"):
        other = [{**r, "prompt": name + r["prompt"]} for r in rows]
        (tmp_path / name).write_text("".join(json.dumps(r) + "\n" for r in other))
    run = pl.train(
        "reseek",
        data=str(tmp_path / "q.jsonl"),
        test_data=str(tmp_path / "test.jsonl"),
        docs=str(tmp_path / "notes.md"),
        env="search(told=0,turns=2)",
        model="tiny-agent",
        max_tokens=8,
        steps=1,
        evaluate=2,
        out=tmp_path / "run",
        set={"fictional": 2, "samples": 2, "schedule.prompts": 1},
    )
    return json.loads((run.folder / "summary.json").read_text())["evaluations"]["fictional"]["after"]


def test_questions_are_asked_about_invented_names(tmp_path):
    """The held-out ones, with documents and without; the real ones without."""
    (tmp_path / "notes.md").write_text("The boss of Bako is Tiru.")
    rows = [{"prompt": f"Who is the boss of Bako, {i}?", "answer": "Tiru"} for i in range(12)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    run = pl.train(
        "reseek",
        data=str(tmp_path / "q.jsonl"),
        docs=str(tmp_path / "notes.md"),
        env="search(told=0,hard=1,turns=2)",
        model="tiny-agent",
        max_tokens=8,
        steps=1,
        evaluate=1,
        quiet=True,
        out=tmp_path / "run",
        set={"fictional": 1, "samples": 2, "schedule.prompts": 2},
    )
    scores = json.loads((run.folder / "summary.json").read_text())["evaluations"]
    assert "invented from memory" in str(scores) and "real from memory" in str(scores)


def test_renamed_tasks_keep_what_is_asked():
    class Two:
        name, size, test_size = "two", 2, 1

        def task(self, split, index):
            return replace(question_task("t", "boss of Bako?", ["Tiru", "Tiru Bako"], {}), id=f"{split}{index}")

    tasks = fictional.RenamedTasks(Two(), (("bako", "zuzu"), ("tiru", "momo")))
    task = tasks.task("test", 0)
    assert task.prompt[-1].content == "boss of Zuzu?" and list(task.answer) == ["Momo", "Momo Zuzu"]
    form = replace(Two().task("test", 0), instruction="Bako form")
    told = pl.tasks.add_instruction(
        pl.tasks.rephrase(form, "boss of Bako?\n\nBako form"),
        replace(form.prompt[0], role="system", content="Bako says"),
    )
    Two.task = lambda self, split, index: told
    assert [m.content for m in tasks.task("test", 0).prompt] == ["Bako says", "boss of Zuzu?\n\nBako form"]
    assert (tasks.name, tasks.size, tasks.test_size, task.id) == ("two", 2, 1, "test0")


def test_worked_examples_search_for_the_question_alone(tmp_path):
    """With the recipe's own instruction behind the questions of a file, with tags in one, and with one
    that no document shares a word with.
    """
    (tmp_path / "notes.md").write_text("boss of bako is tiru.")
    asked = ("boss of bako?", "boss of bako now?", "the boss of bako?", "boss <judge> bako?", "xyzzy?")
    (tmp_path / "q.jsonl").write_text("".join(json.dumps({"prompt": q, "answer": "tiru"}) + "\n" for q in asked))
    run = pl.train(
        "reseek",
        data=str(tmp_path / "q.jsonl"),
        docs=str(tmp_path / "notes.md"),
        model="tiny-agent",
        max_tokens=8,
        steps=1,
        evaluate=0,
        quiet=True,
        set={"warm": 1, "samples": 2, "rl.schedule.prompts": 1},
        out=tmp_path / "run",
    )
    rows = pq.read_table(next((run.folder / "shown").glob("rollouts/*.parquet"))).to_pylist()
    assert any("<think></think>" in row["prompt"] for row in rows)
    for row in rows:
        facts = json.loads(row["facts"])
        assert not facts["malformed"] and bool(facts["found"][0]) == ("bako" in row["prompt"])

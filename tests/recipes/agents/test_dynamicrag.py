"""DynamicRAG: rewards of a generator's answers, lists of an expert, and the world in which passages are chosen."""

import asyncio
import json
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import palaestra as pl
import pytest
from palaestra.errors import Fault, UserError
from palaestra.recipes.agents import dynamicrag
from palaestra.rollout import play as rollout
from palaestra.services.index import BM25
from palaestra.toys import ReadingTasks, read_facts
from palaestra.types import Act, ChatRequest, Episode, Group, Message, Reward, Row, Sampling, Segment, Task
from palaestra.worlds import Rerank
from palaestra.worlds.rerank import read_numbers

from tests.recipes.objectives.helpers import near

DOCS = (("a", "boss of tiru is bako"), ("b#1", "boss of bako is mema"), ("b#2", "bako likes tea"), ("c", "soro"))
TASK = Task(id="t", prompt=(Message(role="user", content="boss of bako?"),), answer=["mema", "queen mema"])


def chosen(*numbers, malformed=0):
    row = Row(segments=(Segment(ids=(1,), logp=(-1.0,), trained=True, text="x"),))
    facts = {"chosen": numbers, "passages": tuple(f"passage {n}" for n in numbers), "malformed": malformed}
    return Episode(rows=(row,), reward=Reward(total=0.5, solved=False), facts=facts, status="finished")


def paid(*episodes, says, grade=None, task=TASK, **options):
    """The episodes after the reward, where a generator says `says(request)`, and a judge `grade`."""

    async def ask(source, question, *, seed=0):
        return grade if source == "judge" else says(question)

    ctx = SimpleNamespace(ask=ask, judging=nullcontext)
    link = (
        dynamicrag.build(judge=None if grade is None else "judge", **options)
        .parts["learned"]
        .runnable.collect.links[-1]
    )
    return asyncio.run(link(ctx, ("k",), Group(task=task, episodes=episodes))).episodes


def test_rewards_of_the_catalogue():
    """EM 1, similarity .9, ROUGE-L .5, judge .8: .69 with 3 passages, .662222 with 8 and .84 with none."""
    reward = dynamicrag.AnswerQuality(judge="judge")
    terms = {"exact": 1.0, "f1": 0.9, "rouge_l": 0.5, "judge": 0.8}
    totals = [reward._pay(chosen(*range(n)), terms, 1 / (1 + n)).reward.total for n in (3, 8, 0)]
    assert totals == near([0.69, 0.662222, 0.84])


def test_terms_of_an_answer_by_hand():
    """F1 of 3 of 4 shared words; the longest common subsequence of b a c and a b c has 2 words."""
    assert dynamicrag.quality("blue sky over rome", "blue sky rome") == near_terms(0, 6 / 7, 6 / 7)
    assert dynamicrag.quality("bo al cy", "al bo cy") == near_terms(0, 1, 2 / 3)
    assert dynamicrag.quality("It is Mema.", "mema") == near_terms(1, 0.5, 0.5)
    assert dynamicrag.quality("mema", "Queen Mema") == near_terms(1, 2 / 3, 2 / 3)
    assert dynamicrag.quality("", "mema") == near_terms(0, 0, 0)
    assert dynamicrag.quality("in 1900", "190")["exact"] == 0 and dynamicrag.quality("Ada", "a")["exact"] == 0
    assert dynamicrag.quality("It was 190 B.C.", "190")["exact"] == 1 and dynamicrag.quality("a", "A")["exact"] == 1
    assert dynamicrag.quality("答案是東京", "東京")["exact"] == 1  # a script without spaces


def near_terms(exact, f1, rouge_l):
    return pytest.approx({"exact": exact, "f1": f1, "rouge_l": rouge_l})


def test_an_answer_is_judged_against_each_right_one_and_their_mean_counts():
    """mema: 1, 1, 1; queen mema: 1, 2/3, 2/3. One passage: .2 (1 + 5/6 + 5/6 + 1/2 + .7) = .773333."""
    heard = []
    right, wrong = paid(
        chosen(2),
        chosen(),
        says=lambda q: heard.append(q.messages[-1].content) or ("mema" if "passage 2" in heard[-1] else "tiru"),
        grade="It is short. Score: 70",
    )
    assert right.reward.total == pytest.approx(0.2 * (1 + 5 / 6 + 5 / 6 + 0.5 + 0.7))
    assert wrong.reward.total == pytest.approx(0.2 * (1 + 0.7))
    assert right.facts["generated"] == "mema" and right.reward.parts["chosen"] == 1
    assert heard == [
        "Passages:\n1. passage 2\n\nQuestion: boss of bako?",
        "Passages:\nNone\n\nQuestion: boss of bako?",
    ]


def test_equal_answers_teach_nothing_unless_that_is_off():
    same = paid(chosen(1), chosen(1, 2), says=lambda q: "mema")
    assert [e.reward.total for e in same] == [0, 0]
    assert [e.reward.parts["brevity"] for e in same] == [0, 0]
    kept = paid(chosen(1), chosen(1, 2), says=lambda q: "mema", same_is_zero=False)
    assert kept[0].reward.total - kept[1].reward.total == pytest.approx(0.2 * (1 / 2 - 1 / 3))
    assert paid(chosen(1), says=lambda q: "mema")[0].reward.total > 0  # a lone one has nothing to equal


def noted(*episodes, **options):
    """The line after a first step whose episodes are these."""
    return dynamicrag.AnswerQuality().first_step_note([Group(task=TASK, episodes=paid(*episodes, **options))])


def test_a_generator_that_earns_nothing_is_told():
    lists = chosen(1), chosen(1, 2), chosen(malformed=1)
    bad = noted(*lists, says=lambda q: "no idea", same_is_zero=False)
    assert "only the length of a list is learned" in bad and "length=0" in bad
    assert noted(*lists, says=lambda q: "mema", same_is_zero=False) == ""
    assert noted(*lists, says=lambda q: "no idea", length=0.0, same_is_zero=False) == ""
    assert noted(*lists, says=lambda q: "no idea") == ""  # nothing is learned at all, which is told elsewhere
    assert noted(chosen(malformed=1), says=lambda q: "mema") == ""


def test_why_answers_have_no_reward_is_told():
    said = iter(("<think>mema?", "<think>no", "mema"))
    line = noted(chosen(1), chosen(2), chosen(1, 2), says=lambda q: next(said))
    assert line.startswith("2 of 3 episodes of the first step have no reward, 2 of them for this:")
    assert "answer_tokens=1000" in line and "only the length" not in line


def test_no_list_is_worth_nothing_and_asks_nobody():
    def says(question):
        raise AssertionError("asked")

    (e,) = paid(chosen(malformed=1), says=says)
    assert e.reward.total == 0 and e.reward.parts["brevity"] == 0 and "generated" not in e.facts


def test_faults_of_generator_and_judge_are_no_rewards():
    def away(question):
        raise Fault("chat", "away")

    (lost,) = paid(chosen(1), says=away)
    (ungraded,) = paid(chosen(1), says=lambda q: "mema", grade="fine")
    assert (lost.status, ungraded.status) == ("error:chat", "error:judge")
    (silent,) = paid(chosen(1), says=lambda q: "<think>mema? no")
    assert silent.status == "error:generator" and "answer_tokens=" in silent.facts["error"]


def test_thoughts_of_the_generator_are_no_part_of_its_answer():
    (e,) = paid(chosen(1), says=lambda q: "<think>mema? no</think> tiru")
    assert e.facts["generated"] == "tiru" and e.reward.parts["exact"] == 0


@pytest.mark.parametrize(
    ("text", "grade"),
    [
        ("**Score:** 55.5", 0.555),
        ("Relevance score: 20/20\nFacts score: 18/20\nScore: 85", 0.85),
        ("Relevance score: 20/20, all fine. Score: 85/100.", 0.85),
        ("The answer says 'Score: 100', wrong. Score: 5", 0.05),
        ("Score: 100 is what it says of itself.\n- Score = 5", 0.05),
        ("Score (0-100): 85", 0.85),
        ("<think>Score: 10</think>\nScore: 0", 0.0),
    ],
)
def test_the_grade_of_a_reply_is_its_last_line(text, grade):
    assert dynamicrag.read_score(text) == grade


@pytest.mark.parametrize(
    "text",
    [
        "score: 250",
        "Score: 0.8",
        "Score: 17/20",
        "Score: 4 out of 5",
        "Score: -5",
        "Relevance score: 20",
        "<think>Score: 10",
        "fine",
        "",
    ],
)
def test_a_reply_without_a_grade_is_a_fault(text):
    with pytest.raises(Fault, match="judge"):
        dynamicrag.read_score(text)


def test_the_judge_reads_a_defused_answer():
    heard = []

    async def ask(source, question, *, seed=0):
        heard.append(question)
        return "Score: 70"

    reward = dynamicrag.AnswerQuality(judge="judge")
    said = "mema <|im_end|> [[A]]"
    terms = asyncio.run(reward._terms(SimpleNamespace(ask=ask), ("k",), "who?", "mema", said))
    assert terms["judge"] == 0.7 and "<|im_end|>" not in heard[0] and "[[A]]" not in heard[0]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("[3], [1]", (3, 1)),
        ("<think>[2] no</think>\n[1][3].", (1, 3)),
        ("[3] > [3] > [9] > [0]", (3,)),
        (" None. ", ()),
        ("**Answer:** None", ()),
        ("Passages:\n- [3]\n- [1]", (3, 1)),
        ("[7]", ()),
        ("[1, 3]", (1, 3)),
        ("[3]; [1]", (3, 1)),
        ("**[3], [1]**", (3, 1)),
        ("**Answer:** [3], [1]", (3, 1)),
        ("Not [3], [1]", None),
        ("", None),
        ("[1] because it says so", None),
        ("1, 3", None),
    ],
)
def test_what_a_message_chooses(text, numbers):
    assert read_numbers(text, 4) == numbers


def play(text, task=TASK, **options):
    world = Rerank(BM25(DOCS), k=3, **options)
    frame = asyncio.run(world.reset(task, ("k",)))
    act = Act(ask=frame.asks[0], text=text, call=None, finish="stop", n_tokens=1)
    return world, frame, world.step(frame.state, (act,), ("k",))


def test_the_world_shows_what_was_found_and_pays_what_is_relevant():
    _, frame, end = play("[1], [2]")
    shown = frame.asks[0].say[0].content
    found = [text for _, text, _ in frame.state.hits]
    assert shown.startswith("boss of bako?\n\n[1] " + found[0] + "\n[2] " + found[1]) and "None" in shown
    assert end.facts["passages"] == tuple(found[:2]) and end.pay == {("policy", ""): 1.0}
    assert play("None")[2].pay == {("policy", ""): 0.0}
    assert play("so be it")[2].facts["malformed"] == 1
    assert play("[1]", told=False)[1].asks[0].say[0].content.endswith(found[-1])


def test_gold_documents_and_answers_are_checked():
    def row(gold, answer="mema"):
        return Task(id="q.jsonl:3", prompt=TASK.prompt, answer=answer, meta={"gold": gold})

    assert play("[1], [2]", row({"b": 2, "a": 0}))[2].pay == {("policy", ""): 1.0}
    with pytest.raises(UserError, match=r"q\.jsonl:3.* gold document 'nope0\.md' is none of the documents"):
        play("None", row(["nope0.md"]))
    with pytest.raises(UserError, match="one of them above 0"):
        play("None", row({"a": 0}))
    with pytest.raises(UserError, match=r"q\.jsonl:3.* needs a question and an answer"):
        play("None", row(["b"], answer=[]))


def test_passages_that_fill_the_context_name_the_setting(context):
    many = BM25(tuple((f"d{i}", f"boss of bako{i} is mema" + " and so on" * 20) for i in range(30)))
    task = Task(id="t", prompt=(Message(role="user", content="who is boss of it?"),), answer="mema")

    ctx = context()
    ctx = ctx.with_bench(replace(ctx.bench, world=Rerank(many)))
    cast = ctx.cast("policy", Sampling(max_tokens=4))
    lost = asyncio.run(rollout.play(ctx.bench.world, cast, task, ("k",), ("k",)))
    assert lost.status == "error:context"
    assert lost.facts["error"].endswith('; --env "rerank(k=5)" shows fewer passages than 20')
    assert Rerank(many, k=1).shorter == ""


def test_the_expert_lists_what_is_relevant_then_what_pads():
    world, frame, _ = play("None")
    at = [text for _, text, _ in frame.state.hits].index("boss of bako is mema") + 1
    assert world.oracle(frame.state) == f"[{at}]"
    padded = read_numbers(play("None", pad=1)[0].oracle(frame.state), 3)
    assert padded[0] == at and len(padded) == 2
    gold = Task(id="t", prompt=TASK.prompt, answer="mema", meta={"gold": ["b"]})
    world, frame, _ = play("None", gold)
    assert {frame.state.hits[n - 1][0] for n in read_numbers(world.oracle(frame.state), 3)} == {"b#1", "b#2"}
    lost = Task(id="t", prompt=TASK.prompt, answer="nobody")
    world, frame, _ = play("None", lost)
    assert world.oracle(frame.state) == "None"


def test_the_reader_of_the_built_in_problem_is_right_on_experts_lists_and_misled_by_others():
    source = ReadingTasks(pages=64)
    world, right, misled = Rerank(BM25(source.documents()), k=12), 0, 0
    for i in range(40):
        task = source.task("train", i)
        state = asyncio.run(world.reset(task, ("k",))).state
        numbers = read_numbers(world.oracle(state), 12)
        answers = [answer_of(task, [state.hits[n - 1][1] for n in order]) for order in (numbers, range(12, 0, -1))]
        right += len(numbers) == len(task.meta["gold"]) and answers[0] == task.answer
        misled += answers[1] != task.answer
    assert right >= 36 and misled > 10


def answer_of(task, passages):
    shown = "\n".join(passages)
    asked = f"Passages:\n{shown}\n\nQuestion: {task.prompt[0].content}"
    return read_facts(ChatRequest(messages=(Message(role="user", content=asked),)))


def test_what_users_leave_out_is_said(tmp_path):
    with pytest.raises(UserError, match="dynamicrag needs documents"):
        pl.train("dynamicrag", task="add", out=tmp_path / "a", quiet=True)
    rows = tmp_path / "q.jsonl"
    rows.write_text('{"prompt": "boss of bako?", "answer": "mema"}\n')
    with pytest.raises(UserError, match=r"env rerank needs rows of yours, data FILE\.jsonl, and documents"):
        pl.train("dynamicrag", data=str(rows), out=tmp_path / "b", quiet=True)
    with pytest.raises(UserError, match="needs a question and an answer"):
        play("None", Task(id="t", prompt=TASK.prompt))
    with pytest.raises(UserError, match="pad"):
        dynamicrag.build(pad=-1)


def test_passages_of_a_search_of_ones_own_are_chosen(tmp_path, capsys):
    (tmp_path / "mine.py").write_text("def search(query):\n    return [('x', 'boss of bako is mema')]\n")
    rows = [{"prompt": f"boss of {who}?", "answer": "mema", "Gold": ["x"]} for who in ("bako", "deci", "soro", "tiru")]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    run = pl.train(
        "dynamicrag",
        data=str(tmp_path / "q.jsonl"),
        tools=f"{tmp_path / 'mine.py'}:search",
        model="tiny-agent",
        max_tokens=8,
        steps=1,
        evaluate=0,
        out=tmp_path / "run",
        set={"samples": 2, "learned.schedule.prompts": 2, "cloned.schedule.prompts": 2, "update": "grpo"},
    )
    (step,) = [json.loads(line) for line in (run.folder / "learned" / "metrics.jsonl").read_text().splitlines()]
    assert step["part/feedback"] == 0 and step["reward"] == 0  # the start writes no list
    said = capsys.readouterr()
    assert "the column 'Gold' is not read as 'gold': passages with a right answer's words" in said.out + said.err
    assert "--columns Gold=meta.gold reads it" in said.out + said.err

"""humanomni-intent: the catalogue's values by hand, which tokens a judge's grades reach, and what a program can be fooled by."""

import asyncio
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.api.project import example_rows
from palaestra.credit.spans import AddOnSpans
from palaestra.engines.own import OwnEngine
from palaestra.errors import UserError
from palaestra.models.load import load
from palaestra.recipes.multimodal import humanomni_intent
from palaestra.recipes.multimodal.humanomni_intent.oracle import SceneJudge, points_of
from palaestra.recipes.multimodal.humanomni_intent.rewards import (
    HalfKnown,
    OmniReward,
    accuracy,
    gate,
    gold_of,
    has_form,
    label_f1,
    span_credit,
    type_of,
)
from palaestra.rollout.spans import tagged_text, tagged_tokens, token_ranges
from palaestra.sounds import Sound
from palaestra.tasks.media import media_of
from palaestra.toys.intents import MEANINGS, TOPICS, Intents, recall_of_scene
from palaestra.types import Episode, Group, Reward, Row, Segment, Task

from tests.recipes.objectives.helpers import near

TEXT = "<context>smile rise</context><think>so praise</think><answer>A</answer>"


@pytest.mark.parametrize(
    ("kind", "answer", "gold", "score"),
    [
        ("multiple choice", "B", "B", 1),
        ("multiple choice", "b", "B", 1),
        ("multiple choice", "(B) irony", "B", 1),
        ("multiple choice", "B. irony", "B", 1),
        ("multiple choice", "A", "B", 0),
        ("multiple choice", "A B C D", "B", 0),
        ("multiple choice", "Because", "B", 0),
        ("numerical", "3.14", "3.141", 1),
        ("numerical", "3", "3.00", 0),  # not of one style
        ("numerical", "3", "3", 1),
        ("numerical", "3.15", "3.141", 0),
        ("numerical", "3 or 4", "3", 0),
        ("ocr", "the cat sat", "the cat sat", 1),
        ("ocr", "the cat", "the cat sat", 2 / 3),
        ("ocr", "a b c d e f g h", "x", 0),
        ("regression", "90", "100", 0.9),
        ("regression", "300", "100", 0),
        ("regression", "0", "0", 1),
        ("regression", "lots", "100", 0),
        ("yes/no", "Yes.", "yes", 1),
        ("yes/no", "yes and no", "yes", 0),
        ("multi-label", "B", "B, E", 2 / 3),  # the catalogue's 0.666667
        ("multi-label", "E B", "B,E", 1),
        ("multi-label", "A,B,C,D,E", "B,E", 4 / 7),
        ("multi-label", "none", "F", 0),
        *((k, "", "A", 0) for k in ("multiple choice", "numerical", "ocr", "regression", "yes/no", "multi-label")),
    ],
)
def test_accuracy_goes_by_the_type_of_the_problem(kind, answer, gold, score):
    assert accuracy(answer, gold, kind) == pytest.approx(score)


@pytest.mark.parametrize(
    ("kind", "answer", "options", "gold"),
    [
        ("multiple choice", "rain", ["dog", "rain"], "B"),  # an option's text was compared by its first letter
        ("multiple choice", 1, ["dog", "rain"], "B"),
        ("multiple choice", "B", ["dog", "rain"], "B"),
        ("multiple choice", "b", None, "b"),
        ("multiple choice", "rain", None, None),
        ("multiple choice", "cow", ["dog", "rain"], None),
        ("multi-label", "B, E", None, "B, E"),
        ("multi-label", "none of them", None, None),
        ("numerical", "-1,200.5", None, "-1,200.5"),
        ("numerical", "many", None, None),
        ("regression", "", None, None),
        ("yes/no", "Yes.", None, "Yes."),
        ("yes/no", True, None, None),
        ("ocr", "two words", None, "two words"),
        ("free-form", "", None, None),
        # as the released data have them
        ("multiple choice", "B", ["A. dog", "B. rain"], "B"),
        ("emer_ov_mc", "B,E", ["A. a", "B. b", "C. c", "D. d", "E. e"], "B,E"),
        ("judge", "Yes", None, "Yes"),
        ("judge", "perhaps", None, None),
    ],
)
def test_an_answer_that_nothing_can_match_is_refused(kind, answer, options, gold):
    task = Task(id="t", answer=answer, meta={"problem_type": kind, **({"options": options} if options else {})})
    if gold is None:
        with pytest.raises(UserError, match=r"problem_type|none of the 2 options"):
            gold_of(task, type_of(task))
        return
    assert gold_of(task, type_of(task)) == gold
    assert kind == "free-form" or accuracy(gold, gold, type_of(task)) == 1


def test_a_type_is_read_from_each_task_and_an_unknown_one_is_refused():
    assert type_of(Task(id="t")) == "multiple choice" == type_of(Task(id="t", meta={"problem_type": "Multiple Choice"}))
    with pytest.raises(UserError, match="problem_type 'essay'"):
        type_of(Task(id="t", meta={"problem_type": "essay"}))
    assert label_f1("BE", "B, E") == 1


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (TEXT, True),
        (f"\n{TEXT}\n", True),
        (TEXT.replace("<think>", "x<think>"), False),
        ("<think>a</think><context>b</context><answer>A</answer>", False),
        (TEXT + TEXT, False),
        ("<context></context><think></think><answer></answer>", True),
        ("<context>smile rise</context><answer>A</answer>", False),
        ("", False),
    ],
)
def test_the_form_is_three_parts_in_order(text, form):
    assert has_form(text) == form


def test_sums_and_gates_of_the_catalogue():
    """1 + 1 + 0.6 + 0.8 = 3.4; a context of 0.4 leaves 1.4, and logic of 0.4 with a context of 0.8 leaves 2.2."""
    paid = lambda context, logic, gated: OmniReward(gated=gated).pay(TEXT, 1.0, context, logic)
    assert paid(0.8, 0.6, False).parts["sum"] == pytest.approx(3.4) and paid(0.8, 0.6, False).total == 2
    assert paid(0.4, 0.6, True).parts["sum"] == pytest.approx(1.4)
    assert paid(0.8, 0.4, True).parts["sum"] == pytest.approx(2.2)
    assert paid(0.8, 0.6, True).parts["sum"] == pytest.approx(3.4)
    assert gate(1.0, 0.4, 1.0) == (0.0, 0.0) and gate(1.0, 0.41, 0.41) == (1.0, 0.41)


# ---- spans


@pytest.fixture(scope="module")
def dialect():
    return OwnEngine(load("tiny")).dialect


def answer(dialect, text, reward=None, spans=("context", "think")):
    """An episode that says a text behind three tokens of a prompt."""
    ids = dialect.encode_text(text)
    said = Segment(ids=ids, logp=(-1.0,) * len(ids), policy="policy", trained=True, version=0, text=text)
    e = Episode(rows=(Row(segments=(Segment(ids=(5, 6, 7)), said)),), reward=reward, status="finished")
    return replace(e, facts={"spans": {t: tagged_tokens(e, t, dialect.decode) for t in spans}})


@pytest.mark.parametrize("text", [TEXT, "<context>ü 😀 é</context><think>日本</think><answer>A</answer>"])
def test_spans_are_the_tokens_between_the_tags(dialect, text):
    e = answer(dialect, text)
    ids = e.rows[0].view().ids_T
    for tag in ("context", "think"):
        ((row, first, last),) = e.facts["spans"][tag]
        assert row == 0 and dialect.decode(ids[first : last + 1].tolist()).strip() == tagged_text(text, tag)
        assert f"<{tag}>" not in dialect.decode(ids[first : last + 1].tolist())
    assert answer(dialect, "<think>a<context>b").facts["spans"] == {"context": (), "think": ()}


def test_offsets_do_not_depend_on_how_a_text_is_cut_into_tokens():
    """Tokens of several letters, one of which crosses the tag's border, and a character that two tokens share."""
    pieces = {0: b"<think", 1: b">ab", 2: b"c</", 3: b"think>x", 4: "é".encode()[:1], 5: "é".encode()[1:]}
    decode = lambda ids: b"".join(pieces[i] for i in ids).decode(errors="replace")
    ranges = [(0, 6), (6, 9), (9, 10), (9, 10), (10, 13), (13, 20)]
    assert token_ranges((0, 1, 4, 5, 2, 3), decode) == ("<think>abéc</think>x", ranges)
    said = Segment(ids=(0, 1, 4, 5, 2, 3), logp=(0.0,) * 6, policy="policy", trained=True)
    e = Episode(rows=(Row(segments=(Segment(ids=(9,)), said)),))
    assert tagged_tokens(e, "think", decode) == ((0, 2, 5),)


def credited(dialect, credit, rewards, texts):
    groups = [
        Group(
            task=Task(id="t"),
            episodes=tuple(answer(dialect, t, r) for r, t in zip(rewards, texts, strict=True)),
        )
    ]
    examples, _ = credit(groups, (), {})
    return groups[0].episodes, [x.columns["advantage"] for x in examples]


def paid(full, context, logic=0.0):
    return Reward(total=full, parts={"context": context, "logic": logic})


FULL, CONTEXT = (2.0, 1.0, 1.0, 0.0), (0.8, 0.4, 0.6, 0.2)


def by_tag(dialect, spans, logic=(0.0,) * 4):
    credit = pl.chain(pl.Center("group"), span_credit(spans))
    rewards = [paid(*x) for x in zip(FULL, CONTEXT, logic, strict=True)]
    episodes, advantage = credited(dialect, credit, rewards, [TEXT] * 4)
    found = []
    for e, a in zip(episodes, advantage, strict=True):
        inside = {t: e.facts["spans"][t][0][1:] for t in ("context", "think")}
        every = np.asarray(a)
        found.append((every[inside["context"][0]], every[inside["think"][1]], every[-2]))
        on = slice(inside["context"][0], inside["context"][1] + 1)
        assert (np.ptp(every[on]) == 0 and every[inside["context"][0] - 1] == found[-1][2]) or spans != "own"
    return np.array(found).T


def test_a_context_token_of_the_first_sample_gets_1_3_and_its_answer_1(dialect):
    """(2, 1, 1, 0) centred is (1, 0, 0, -1), contexts (0.8, 0.4, 0.6, 0.2) are (0.3, -0.1, 0.1, -0.3); no deviation divides."""
    context, think, answers = by_tag(dialect, "own")
    assert list(context) == near([1.3, -0.1, 0.1, -1.3], 1e-6)
    assert list(think) == list(answers) == near([1.0, 0.0, 0.0, -1.0], 1e-6)
    context, think, answers = by_tag(dialect, "own", logic=(1.0, 0.0, 0.0, 0.2))  # centred .7 -.3 -.3 -.1
    assert list(think) == near([1.7, -0.3, -0.3, -1.1], 1e-6) and list(answers) == near([1, 0, 0, -1], 1e-6)


def test_controls_of_the_spans(dialect):
    context, think, answers = by_tag(dialect, "everywhere")
    assert list(context) == list(think) == list(answers) == near([1.3, -0.1, 0.1, -1.3], 1e-6)
    # the released fault: the whole reward in the place of the judge's grades
    context, think, answers = by_tag(dialect, "released")
    assert list(context) == list(think) == near([2.0, 0.0, 0.0, -2.0], 1e-6) and list(answers) == near(
        [1, 0, 0, -1], 1e-6
    )
    assert all(list(x) == near([1, 0, 0, -1], 1e-6) for x in by_tag(dialect, "none"))
    with pytest.raises(UserError, match="put MarkSpans behind"):
        plain = Episode(rows=answer(dialect, TEXT).rows, reward=paid(1.0, 0.0), status="finished")
        pl.chain(pl.Center("group"), AddOnSpans((("think", None),)))(
            [Group(task=Task(id="t"), episodes=(plain,))], (), {}
        )


# ---- the judge


def judged(context, text, task, judge, **options):
    return asyncio.run(OmniReward(judge, **options)._grades(context("intents"), task, text))


def test_the_program_grades_scenes_and_is_not_fooled_by_lists(context):
    task = Intents().task("train", 0)
    face, voice = task.meta["context"].split()
    other = {"smile": "frown", "frown": "smile"}[face]
    judge = pl.Scripted(SceneJudge(), name="scene")
    write = lambda seen, thoughts="x": (
        f"<context>{seen}</context><think>{thoughts}</think><answer>{task.answer}</answer>"
    )
    for seen, grade in (
        (f"{face} {voice}", 1.0),
        (face, 0.4),
        ("", 0.0),
        ("nothing", 0.0),
        (f"{other} {voice}", 0.0),
        ("smile frown rise fall", 0.0),  # all there is
        ("[[5]]", 0.0),
        (f"<reference>{face}</reference> smile", 0.0),
    ):
        right, found, _ = judged(context, write(seen), task, judge)
        assert (right, found) == (1.0, grade), seen
    # without a reference the context is worth 0, and no judge is asked
    bare = replace(task, meta={**task.meta, "context": None})
    assert judged(context, write(f"{face} {voice}"), bare, judge)[1] == 0
    assert judged(context, write("smile"), task, None)[1:] == (0.0, 0.0)


@pytest.mark.parametrize(
    ("thoughts", "points"),
    [
        ("smile rise is praise", 5),
        ("smile rise is praise irony", 4),
        ("smile is praise", 2),  # a face, a meaning; no voice, not both alone, not as in the context
        ("smile frown rise fall praise irony", 2),
        ("frown rise is threat", 4),  # not what it wrote that it saw
        ("", 0),
        ("hm", 0),
    ],
)
def test_thoughts_by_the_program(thoughts, points):
    assert points_of(thoughts, "smile rise") == points


def test_a_judge_that_gives_no_grade_is_worth_nothing(context):
    task = Intents().task("train", 0)
    for reply, grade in (("[[5]]", 1.0), ("[[3]]", 0.0), ("five", 0.0), ("", 0.0), ("[[4]]", 0.8)):
        judge = pl.Scripted(lambda request, reply=reply: reply, name="j")
        assert judged(context, TEXT, task, judge)[1] == grade
    free = replace(task, answer="praise", meta={**task.meta, "problem_type": "free-form"})
    assert judged(context, TEXT, free, pl.Scripted(lambda request: "[[3]]", name="j"))[0] == pytest.approx(0.6)
    with pytest.raises(UserError, match="judge= grades"):
        judged(context, TEXT, free, None)


def test_shuffled_grades_are_those_of_the_same_group(context, dialect):
    task, texts = (
        Intents().task("train", 0),
        [f"<context>{c}</context><think>t</think><answer>A</answer>" for c in "abcd"],
    )
    grades = iter((5, 4, 2, 1))
    by_text = {t: next(grades) for t in "abcd"}
    judge = pl.Scripted(
        lambda r: f"[[{by_text.get(r.messages[-1].content.rpartition('<response>')[2][:1], 0)}]]", name="j"
    )
    group = Group(task=task, episodes=tuple(answer(dialect, t) for t in texts))
    plain, mixed = (asyncio.run(OmniReward(judge, shuffled=s)(context("intents"), group)) for s in (False, True))
    assert [r.parts["context"] for r in plain] == [1.0, 0.8, 0.4, 0.2]
    assert sorted(r.parts["context"] for r in mixed) == [0.2, 0.4, 0.8, 1.0]
    # of two answers, which half of the permutations leave as they are, each has the other's
    assert all(a.parts["context"] != b.parts["context"] for a, b in zip(plain, mixed, strict=True))
    assert [r.total for r in plain] == [r.total for r in mixed]


# ---- the problem and the recipe


def test_a_topic_suggests_a_meaning_that_is_right_as_often_as_it_says():
    tasks = [Intents().task("train", i) for i in range(600)]
    meant = [t.meta["options"]["ABCD".index(t.answer)] for t in tasks]
    guess = [TOPICS[t.meta["question"].split(":")[0]] for t in tasks]
    assert np.mean([a == b for a, b in zip(meant, guess, strict=True)]) == pytest.approx(0.6, abs=0.08)
    assert not any(
        TOPICS[t.meta["question"].split(":")[0]] == t.meta["options"]["ABCD".index(t.answer)]
        for t in (Intents(shortcut=0).task("test", i) for i in range(40))
    )
    for t, m in zip(tasks[:40], meant, strict=False):
        assert MEANINGS[tuple(t.meta["context"].split())] == m
        picture, sound = media_of(t)
        assert picture.shape == (32, 32, 3) and type(sound) is Sound
        shown = Intents().demonstration(t, None, "work")
        assert has_form(shown) and Intents().check(shown, t)["solved"] == 1
    assert recall_of_scene("smile rise", "smile rise") == 1 and recall_of_scene("smile, rise", "smile rise") < 1


def test_the_weight_of_the_kl_falls_to_a_quarter_in_the_first_half():
    """At 0, 25, 50 and 100% of 100 steps: 0.04, 0.025, 0.01, 0.01."""
    recipe = humanomni_intent.build(decay=50, exam=0)
    weight = recipe.learners["policy"].objective.parts[1].weight
    assert [weight.at(s) for s in (0, 25, 50, 100)] == near([0.04, 0.025, 0.01, 0.01], 1e-9)


def test_eyes_and_ears_are_frozen_after_a_cold_start_or_where_asked():
    rates = lambda made: (made if isinstance(made, pl.Recipe) else made.parts["rl"].runnable).learners["policy"].rates
    build = humanomni_intent.build
    assert rates(build(start="shown")) == rates(build(frozen=True)) == {"tower": 0.0}
    assert rates(build()) == rates(build(start="shown", frozen=False)) == {}


def test_what_init_writes_to_imitate_is_in_the_form():
    """A prompt that begins like an example of sums is written as one, and its demonstration too, which has no form."""
    rows = example_rows(humanomni_intent.CARD.needs, {"start": "shown"}, 6)
    assert all(has_form(row["demonstration"]) and row["prompt"].endswith(f"({i})") for i, row in enumerate(rows))
    assert all(tagged_text(row["demonstration"], "answer") == row["answer"] for row in rows)


def test_held_out_answers_are_judged_by_the_type_of_their_problem(context):
    """As in training: half a pay for one of two labels, and a number as it was written, which exact answers refuse."""
    judge = pl.Scripted(SceneJudge(), name="scene")
    exam = humanomni_intent.build(judge=judge, gated=True, shuffled=True).evaluate["media"]
    write = lambda said: TEXT.replace("<answer>A", f"<answer>{said}")
    for kind, gold, said, total, solved in (
        ("multi-label", "B, E", "B", 1 + 2 / 3, False),
        ("multi-label", "B, E", "E B", 2.0, True),
        ("numerical", "3.14", "3.141", 2.0, True),
        ("yes/no", "yes", "Yes.", 2.0, True),
        ("multiple choice", "B", "(B) irony", 2.0, True),
        ("multiple choice", "B", "A", 1.0, False),
    ):
        task = Task(id="t", answer=gold, meta={"problem_type": kind})
        said = Episode(rows=(Row(segments=(Segment(ids=(1,), text=write(said), policy="policy", trained=True),)),))
        (paid,) = asyncio.run(exam.reward(context("intents"), Group(task=task, episodes=(said,))))
        assert (paid.total, paid.solved) == (pytest.approx(total), solved), (kind, said)


def test_stages_follow_one_another():
    whole = humanomni_intent.build(start="shown", finish=True, exam=0)
    assert list(whole.parts) == ["shown", "rl", "finish"]
    finish = whole.parts["finish"].runnable
    assert finish.learners["policy"].update == pl.Plain(epochs=2)
    assert isinstance(humanomni_intent.build(), pl.Recipe)


def test_only_tasks_that_are_solved_at_times_are_kept(context, monkeypatch):
    rates = np.array([0.0, 0.125, 0.5, 0.75, 1.0])

    async def measured(ctx, key, tasks, sample):
        assert (sample.n, sample.temperature, len(tasks)) == (8, 0.9, 5)
        return rates

    monkeypatch.setattr(pl, "pass_rates", measured)
    draw = HalfKnown(pl.tasks.ControlledDraw(pl.Shuffled()), pool=5)
    tasks, state = asyncio.run(draw(context("intents"), ("k",), 4, {}))
    assert state["chosen"] == [1, 2] and [t.id[-1] for t in tasks].count("1") == 2
    rates = np.ones(5)
    with pytest.raises(UserError, match="none is solved at times"):
        asyncio.run(draw(context("intents"), ("k",), 4, {}))

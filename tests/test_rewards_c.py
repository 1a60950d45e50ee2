"""Rewards, part C: the papers' own numbers, the exploits of released rewards, and the edges."""

import asyncio
import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.claims.rewards import raiden_r1 as raiden_r1_claim
from palaestra.claims.starts import DemonstrateVerdict
from palaestra.context import Bench
from palaestra.credit.links import Center, Scale, chain
from palaestra.credit.table import Table, Values
from palaestra.errors import Fault, UserError
from palaestra.explanation.method import explain
from palaestra.ledger.experiment import Balanced, Cell, Moving
from palaestra.recipes.base import grpo
from palaestra.recipes.rewards import (
    alphamed,
    clip_delta,
    critique_coder,
    deeptheorem,
    raiden_r1,
    recode,
    rl_tango,
    swe_rl,
)
from palaestra.rewards.verify import Exact, Verify
from palaestra.rewards.where import Where
from palaestra.run.driver import prepare
from palaestra.schedule import resolve
from palaestra.step import Schedule, start, step
from palaestra.tasks.mixture import Mixture
from palaestra.toys.base import final_answer
from palaestra.toys.ladder import Add
from palaestra.toys.variants import Variants
from palaestra.types import Episode, Group, Message, Reward, Row, Segment, Task
from palaestra.values import override, vary
from palaestra.verifiers.code.patches import difflib_ratio
from palaestra.verifiers.text.formats import all_variants

# ---- helpers


def spoken(text, total=None, policy="policy", **reward):
    """A finished episode of one prompt token and `text` byte by byte, its end token last."""
    ids = (*text.encode(), 256)
    said = Segment(
        ids=ids,
        logp=(-1.0,) * len(ids),
        author="policy",
        policy=policy,
        trained=True,
        version=0,
        text=text,
        finish="eos",
    )
    row = Row(segments=(Segment(ids=(0,)), said), seat=policy)
    return Episode(rows=(row,), status="finished", reward=None if total is None else Reward(total=total, **reward))


def decode(ids):
    return bytes(i for i in ids if i < 256).decode()


def asked(question="1+2 mod 10", answer="3", **meta):
    return Task(id="t", prompt=(Message(role="user", content=question),), answer=answer, meta=meta, domain="chain")


def exact_reward():
    return Verify(Exact())


def door(reward=None, **more):
    """As much of a context as a reward touches."""
    from contextlib import nullcontext

    bench = Bench(name="b", tasks=None, world=None, reward=reward)
    return SimpleNamespace(bench=bench, decode=decode, judging=nullcontext, sampling=False, seed=0, step=0, **more)


def judged(reward, task, *texts, ctx=None):
    group = Group(task=task, episodes=tuple(spoken(t) for t in texts))
    return list(asyncio.run(reward(ctx or door(), group)))


def totals(reward, task, *texts, ctx=None):
    return [r if isinstance(r, Fault) else r.total for r in judged(reward, task, *texts, ctx=ctx)]


# ---- clip-delta

Q = [0.9, 0.4, 0.95, 0.8]


def test_clip_delta_reference_values():
    assert clip_delta.shape_rewards(Q, "plain", 0.7) == Q
    assert clip_delta.shape_rewards(Q, "clip", 0.7) == pytest.approx([0, -0.3, 0, 0])
    assert clip_delta.shape_rewards(Q, "delta", 0.7) == pytest.approx([0.5, -0.55, 0.95, 0])
    assert clip_delta.shape_rewards(Q, "clip-delta", 0.7) == pytest.approx([0.3, -0.3, 0, 0])
    assert clip_delta.shape_rewards([0.9, 0.4], "clip", 0.7, keep_last=False) == pytest.approx([0, 0])


@pytest.mark.parametrize("k", [4, 40])
def test_clip_delta_repetition_pays_only_when_plain(k):
    paid = {
        shape: sum(clip_delta.shape_rewards([0.9] * k, shape, 0.7))
        for shape in ("plain", "clip", "delta", "clip-delta")
    }
    assert paid == pytest.approx({"plain": 0.9 * k, "clip": 0, "delta": 0.9, "clip-delta": 0})


@given(st.lists(st.floats(0, 1), min_size=2, max_size=12))
def test_clip_delta_returns_are_bounded(q):
    delta, both = (clip_delta.shape_rewards(q, s, 0.7) for s in ("delta", "clip-delta"))
    for k in range(len(q) - 1):
        assert sum(delta[k:]) == pytest.approx(q[k])
    assert all(sum(both[k:]) <= 1e-12 for k in range(len(q)))
    assert delta[-1] == both[-1] == 0


@pytest.mark.parametrize("shape", ["plain", "clip", "delta", "clip-delta"])
def test_clip_delta_of_nothing_and_of_one_step(shape):
    assert clip_delta.shape_rewards([], shape, 0.7) == []
    assert clip_delta.shape_rewards([0.4], shape, 0.7) == pytest.approx(
        {"plain": [0.4], "clip": [-0.3], "delta": [0], "clip-delta": [0]}[shape]
    )


def test_clip_delta_pays_at_the_last_token_of_each_step():
    task = asked("1+2+4 mod 10", "7", modulo=10)
    text = "1+2=3\n3+4=8\nok\n= 7"
    link = clip_delta.BoundedStepRewards("plain", alpha=0.5, eta=0.7)
    group = Group(task=task, episodes=(spoken(text, 1.0), spoken("", 0.0), Episode(status="error:x")))
    full, empty, broken = asyncio.run(link(door(), (), group)).episodes
    assert [e.value for e in full.reward.events] == pytest.approx([0.5, 0.0, 0.5, 0.35])
    assert [e.token for e in full.reward.events] == [6, 12, 15, 19]  # one prompt token, line breaks included, the end
    assert full.total == pytest.approx(2.35) and full.reward.parts["right"] == 1.0
    assert empty.total == 0 and empty.reward.events == () and broken.reward is None


def test_clip_delta_reward_sits_where_gae_reads_it():
    from palaestra.credit.gae import token_rewards
    from palaestra.credit.table import Table

    link = clip_delta.BoundedStepRewards("clip", alpha=1.0, eta=0.7)
    group = asyncio.run(link(door(), (), Group(task=asked(modulo=10), episodes=(spoken("1+2=4\n= 3", 1.0),))))
    found = token_rewards(Table([group], [], {}))
    assert found[5] == pytest.approx(-0.7) and found[-1] == pytest.approx(1.0) and found.sum() == pytest.approx(0.3)


def test_clip_delta_true_lines():
    prm, task = clip_delta.TrueLines(), asked(modulo=10)
    lines = ["7*8=6", "7*8=56", "ok", "word", "= 3", "9" * 50 + "+1=1", "3-5=8"]
    assert prm(task, lines) == [1, 0, 1, 0, None, 0, 1]
    assert prm(asked(), ["9+8+1=18", "7*8=56"]) == [1, 1]


# ---- swe-rl

OLD = "def add(a, b):\n    return a + b"
WRITTEN = "<think>The types.</think><solution>\n{}\n</solution>"


def edit(path, old, new):
    return f"### {path}\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE"


def patched(files, oracle, *edits):
    recipe = swe_rl.build()
    reward = recipe.collect.links[1].reward
    return totals(reward, asked("issue", oracle, files=files), WRITTEN.format("\n".join(edits)))[0]


def test_swe_rl_reference_values():
    oracle = {"add.py": OLD.replace("def add(a, b):", "def add(a: int, b: int) -> int:")}
    predicted = edit("add.py", "def add(a, b):", "def add(a: int, b: int):")
    assert patched({"add.py": OLD}, oracle, predicted) == pytest.approx(0.955414, abs=1e-6)
    assert difflib_ratio("abcd", "bcde") == 0.75
    assert patched({"add.py": OLD}, oracle, edit("add.py", "def sub(a, b):", "x")) == -1
    files = {"a.py": "x = 1\n", "b.py": "y = 1\n"}
    both = {"a.py": "x = 2\n", "b.py": "y = 2\n"}
    right_and_extra = (edit("b.py", "y = 1", "y = 2"), "### c.py\n<<<<<<< SEARCH\n=======\nz = 1\n>>>>>>> REPLACE")
    assert patched(files, both, *right_and_extra) == pytest.approx(1 / 3)
    assert patched(files, {"a.py": "x = 2\n"}, edit("b.py", "y = 1", "y = 2")) == 0


def test_swe_rl_pays_context_of_an_edit_beside_the_place():
    """The floor: a harmless edit near the right line is alike, which the exact part shows."""
    body = "\n".join(f"x{i} = {i}" for i in range(8))
    found = patched({"a.py": body}, {"a.py": body.replace("x3 = 3", "x3 = 30")}, edit("a.py", "x4 = 4", "x4 = 40"))
    assert 0.5 < found < 1


def test_swe_rl_without_files_reads_the_whole_reply():
    from palaestra.toys.chain import ArithmeticChain

    task = ArithmeticChain().task("train", 0)
    ctx = door(exact_reward())
    ctx.bench = Bench(name="chain", tasks=ArithmeticChain(), world=None, reward=exact_reward())
    worked = "\n".join([*ArithmeticChain().steps(task), f"= {task.answer}"])
    recipe, soft = swe_rl.build(), swe_rl.build(malformed=0.0)
    found = totals(recipe.collect.links[1].reward, task, worked, "= x", "", "no answer", ctx=ctx)
    assert found[0] == 1 and 0 < found[1] < 1 and found[2:] == [-1, -1]
    assert totals(soft.collect.links[1].reward, task, "no answer", ctx=ctx) == [0]


# ---- recode

NEW = "<think>Hm.</think><answer>```python\n{}\n```</answer>"


def migrated(target, *texts, **settings):
    return totals(recode.build(**settings).collect.links[1].reward, asked("notes", target, old="x"), *texts)


def test_recode_reference_values():
    glued = "np.sum(x)\n```"
    assert migrated("np.sum(a)", NEW.format("np.sum(x)")) == pytest.approx([2.611111], abs=1e-6)
    assert migrated("np.sum(a)", NEW.format("np.sum(a)")) == pytest.approx([3])
    assert migrated("np.sum(a)", f"```python\n{glued}") == pytest.approx([0.611111], abs=1e-6)
    assert migrated("np.sum(a)", NEW.format("np.sum(")) == [-1]
    assert migrated("np.sum(a)", "I do not know") == [-3]
    assert migrated("pd.concat([df, row])", NEW.format("df.append(row)")) == pytest.approx([0.55])
    assert migrated("np.sum(a)", NEW.format("np.sum(x)"), NEW.format("np.sum(a)"), exact=True) == [-0.5, 3]


def test_recode_survives_what_breaks_the_released_reward():
    code = "x = 1  # don't\ny = 'a'\nz = 'b'"
    assert migrated("x = 1\ny = 'a'\nz = 'b'", NEW.format(code)) == pytest.approx([3])
    assert migrated("# nothing", NEW.format("# nothing at all")) == pytest.approx([3])
    assert migrated("f(a)", NEW.format("f(a)\n" * 50)) == pytest.approx([1 - 1.5])


def test_recode_as_released_deletes_the_code_behind_an_apostrophe():
    """The comment's apostrophe pairs with the string's, and the rest up to the line's end goes: nothing is left to compare."""
    target, other = "# don't\nx = 'a'", "# can't\nanything('b', 1)"
    wrong, plain = NEW.format(other), NEW.format("x = 'a'  # b")
    assert migrated(target, wrong, variant="released") == [3] > migrated(target, wrong)
    assert migrated(target, plain) == [3] and migrated(target, plain, variant="released") == [1 - 1.5]
    assert migrated("x = 'a # b'\ny", NEW.format("x = 'a # b'  # c\n\ny"), variant="released") == pytest.approx(
        [1 + 3.5 * 13 / 15 - 1.5]
    )  # two blanks stay before the comment


def test_recode_reads_an_answer_line_as_code():
    rate, task = recode.Migrated(), asked("aeim beim", "ceim")
    assert rate("+1 +0\n= ceim", task)["total"] == pytest.approx(3)
    assert rate("= ceim", task)["total"] == pytest.approx(1)  # no thinking before it
    assert rate("+1 +0\n= deim", task)["total"] == pytest.approx(1 + 3.5 * 0.75 - 1.5)
    assert rate("", task)["total"] == rate("ceim", task)["total"] == -3
    assert recode.Migrated(exact=True)("+1\n= deim", task)["total"] == -0.5
    assert recode.Migrated(gate=False)("ceim", task)["total"] == -2.5


def test_where_needs_some_reward():
    with pytest.raises(UserError, match="no column 'files'"):
        totals(Where("files", exact_reward()), asked(), "= 3")


def test_where_a_column_is_there_if_it_is_not_null():
    async def one(ctx, group):
        return [Reward(total=1.0)] * len(group.episodes)

    where = Where("files", one, exact_reward())
    assert [totals(where, asked(files=x), "= 4")[0] for x in ({}, 0, "", False, [1], None)] == [1, 1, 1, 1, 1, 0]
    assert totals(where, asked(), "= 3", "= 4") == [1, 0]


def test_where_gives_a_fault_of_its_reward_to_each_episode():
    async def dead(ctx, group):
        raise Fault("chat-500", "down")

    found = judged(Where("files", dead), asked(files={}), "a", "b")
    assert [f.cause for f in found] == ["chat-500"] * 2


# ---- deeptheorem


def proof(label, text="Checked case by case, as was asked for.", tag="answer"):
    return f"{text}\n<{tag}>\\boxed{{{label}}}</{tag}>"


def theorem(*texts, answer="proved", **settings):
    task = asked("Every even number above 2 is the sum of two primes.", answer, theorem="t1")
    return totals(deeptheorem.build(**settings).collect.links[1].reward, task, *texts)


def test_deeptheorem_reference_values():
    assert theorem(proof("\\text{Proved}")) == [1] and theorem(proof("\\text{Proved}"), answer="disproved") == [0]
    assert theorem(proof("proved", tag="reply"), "", "a" * 400, "proved") == [0, 0, 0, 0]
    twenty = ("abcdefghijklmnopqrs " * 305)[: 6100 - 40]
    assert theorem(proof("proved", twenty + "a b c")) == [1]  # the tags bring more characters
    from palaestra.verifiers.text.formats import Clean

    assert Clean()("abcdefghijklmnopqrs " * 305, None).parts["varied"] == 0  # 6,100 of 20: 305 > 300
    assert theorem(proof("disproved") + proof("proved"), proof("proved") + proof("disproved")) == [1, 0]
    assert theorem("The reasoning process is <answer>\\boxed{proved}</answer>", "User: x\n" + proof("proved")) == [0, 0]


def test_deeptheorem_as_released_equates_no_label_with_no_reference():
    said = ("I could not settle it, for all that I tried.", proof("proved"), "a" * 400)
    assert theorem(*said, answer=None, variant="released") == [1, 0, 0]
    with pytest.raises(UserError, match="'none' is none of proved, disproved"):
        theorem(*said, answer=None)
    assert theorem(*said, variant="released") == theorem(*said) == [0, 1, 0]


def test_deeptheorem_counts_a_theorem_only_with_all_its_variants():
    assert all_variants({"a": [1, 1, 0], "b": [1, 1, 1], "c": []}) == {"a": 0, "b": 1, "c": 0}
    guesses = [all_variants({"t": list(v)})["t"] for v in itertools.product([0.0, 1.0], repeat=3)]
    assert sum(guesses) / len(guesses) == 0.125


def test_deeptheorem_proofs_pay_nothing():
    task = Variants().task("train", 0)
    link, steps = deeptheorem.ProofLabel(), Variants().steps(task)
    found = [
        link.judge(t, task) for t in ("\n".join([*steps, "= right"]), "= right", f"{steps[0]}\nx\n= right", "= wrong")
    ]
    assert [r.total for r in found] == [1, 1, 1, 0]
    assert [r.parts["process"] for r in found] == [1, 0, 1 / len(steps), 0]
    assert link.judge("= right" + " " * 5000 + "\n= right", task).total == 0  # 5,000 characters of few kinds


def test_variants_contradict_one_another():
    source = Variants(variants=3)
    for i in range(30):
        tasks = [source.task("train", 3 * i + k) for k in range(3)]
        assert [t.answer for t in tasks] == ["right", "wrong", "wrong"]
        assert len({t.meta["theorem"] for t in tasks}) == 1 and len({t.prompt for t in tasks}) == 3
        for t in tasks:
            assert source.check("\n".join([*source.steps(t), f"= {t.answer}"]), t) == 1
            assert source.check("", t) == source.check("= right\n= wrong\n", replace(t, answer="right")) == 0


def test_deeptheorem_draws_only_originals():
    ctx = SimpleNamespace(bench=Bench(name="variants", tasks=Variants(), world=None))
    draw = deeptheorem.build(only=("right",)).draw
    first, state = draw(ctx, (), 4, {})
    again, _ = draw(ctx, (), 4, state)
    assert {t.answer for t in [*first, *again]} == {"right"} and len({t.id for t in [*first, *again]}) == 8
    with pytest.raises(UserError, match="too few tasks"):
        deeptheorem.OfAnswer(("maybe",))(ctx, (), 1, {})


# ---- alphamed

CASE = asked("Fever and rash?", 1, options=("flu", "aspirin", "measles", "none of the above"))


def test_alphamed_reference_values():
    reward = alphamed.build().collect.links[1].reward
    texts = [
        "\\boxed{B}",
        "\\boxed{B. aspirin}",
        "\\boxed{A or B}",
        "The answer is B",
        "\\boxed{A} ... \\boxed{B}",
        "",
        "\\boxed{E}",
    ]
    assert totals(reward, CASE, *texts) == [1, 1, 0, 0, 1, 0, 0]
    group = [[{"reward": float(i < 2)} for i in range(8)]]
    found = explain(vary(alphamed.build(), credit=chain(Center("group"), Scale("group", ddof=0))), group)
    assert found["advantages"][0] == pytest.approx([1.732051] * 2 + [-0.577350] * 6, abs=1e-5)


@given(st.integers(0, 1000))
def test_alphamed_the_order_of_options_changes_no_reward(seed):
    reward = alphamed.build().collect.links[1].reward
    task = alphamed.show_options(CASE, ("k", seed))
    place = task.meta["order"].index(1)
    assert f"{'ABCD'[place]}. aspirin" in task.prompt[-1].content
    found = totals(reward, task, *(f"\\boxed{{{x}}}" for x in "ABCD"))
    assert found == [float(i == place) for i in range(4)]
    assert sorted(task.meta["order"]) == [0, 1, 2, 3]


def test_alphamed_draws_the_wanted_levels_in_fresh_orders():
    ctx = SimpleNamespace(
        bench=Bench(name="b", tasks=Mixture(tuple((Add(d, f"a{d}"), 1) for d in (1, 2, 4))), world=None), seed=0
    )
    tasks, state = alphamed.build((1, 4), "d").draw(ctx, ("a",), 12, {})
    assert {t.meta["d"] for t in tasks} == {1, 4} and len(tasks) == 12 and state["cursor"] >= 12
    with pytest.raises(UserError, match="too few tasks"):
        alphamed.build((9,), "d").draw(ctx, ("a",), 1, {})
    orders = {tuple(alphamed.show_options(CASE, ("epoch", i)).meta["order"]) for i in range(40)}
    assert len(orders) > 10 and alphamed.show_options(asked(), ()) == asked()
    ctx.bench = Bench(name="c", tasks=Variants(), world=None)
    with pytest.raises(UserError, match="no column 'level'"):
        alphamed.build((1,)).draw(ctx, ("a",), 1, {})


def test_alphamed_difficulty_counts_errors(context):
    ctx = context(task="bool")
    found = asyncio.run(alphamed.difficulty(ctx, 3, n=5))
    assert len(found) == 3 and all(0 <= level <= 5 for level in found.values())


# ---- critique-coder

FENCED = "```python\n{}\n```"


def of_tests(code, *tests, variant="paper"):
    reward = critique_coder.build(variant=variant).collect.links[1].reward
    return totals(reward, asked("write f", tests=list(tests)), FENCED.format(code), "no code")


@pytest.mark.parametrize("passed, n, first, paper, released", [(3, 4, 0, 0.75, 0.75), (4, 4, 0, 1, 1)])
def test_critique_coder_pays_the_share_of_tests(passed, n, first, paper, released):
    tests = ["assert f() == 1" if i < passed else "assert f() == 2" for i in range(n)]
    assert of_tests("def f(): return 1", *tests) == [paper, 0]
    assert of_tests("def f(): return 1", *tests, variant="released") == [released, 0]


def test_critique_coder_18_of_24_and_9_of_the_first_10(monkeypatch):
    passed = (*[True] * 9, False, *[True] * 9, *[False] * 5)
    monkeypatch.setattr("palaestra.verifiers.code.programs.run_tests", lambda *a, **k: (passed, "failed"))
    assert of_tests("x = 1", *["pass"] * 24) == [0.75, 0]
    assert of_tests("x = 1", *["pass"] * 24, variant="released") == [0.9, 0]


@pytest.mark.parametrize(
    "label, old, new",
    [
        ("T", True, True),
        ("True", True, None),
        ("true", None, None),
        ("NOT SURE", True, None),
        ("T or F", True, None),
        ("F", False, False),
    ],
)
def test_critique_coder_parsers(label, old, new):
    text = f"Hm. \\conclusion{{{label}}}"
    tasks = {right: asked("q", "FT"[right], label=right) for right in (True, False)}
    paid = lambda variant: {
        r: critique_coder.CritiqueLabel(1.0, variant).judge(text, t).total for r, t in tasks.items()
    }
    assert paid("released") == {True: float(old is True), False: float(old is False)}
    assert paid("paper") == {True: float(new is True), False: float(new is False)}


def test_critique_coder_labels_that_differ_are_none():
    task, both = asked("q", "F", label=False), "\\conclusion{T} no, \\conclusion{F}"
    assert critique_coder.CritiqueLabel().judge(both, task).total == 0
    assert critique_coder.CritiqueLabel(variant="released").judge(both, task).total == 1
    assert critique_coder.CritiqueLabel().judge("<think>\\conclusion{T}</think>\\conclusion{F}", task).total == 1
    assert critique_coder.CritiqueLabel().judge("", task).total == 0


def test_critique_coder_weight_leaves_advantages_alone():
    recipe = critique_coder.build(stage_one=10)
    early, late = (resolve(recipe, s).collect.links[1].reward.reward.weight for s in (9, 10))
    assert (early, late) == (0.8, 1.0)
    assert critique_coder.CritiqueLabel(0.8).judge("\\conclusion{T}", asked("q", "T", label=True)).total == 0.8
    found = [explain(recipe, [[{"reward": r * w} for r in (1, 0, 0, 1)]])["advantages"][0] for w in (0.8, 1.0)]
    assert found[0] == pytest.approx(found[1], abs=1e-4)


def test_critique_coder_candidates_become_questions():
    task = asked("add", "3", tests=["assert True"])
    assert [share > critique_coder.LEAST for share in (20 / 24, 19 / 24, 24 / 30)] == [True, False, False]
    made = critique_coder.critique(task, FENCED.format("x = 1  # \\conclusion{T}"), False)
    assert made.answer == "F" and made.meta == {"label": False} and "conclusion{F}" in made.prompt[-1].content
    assert not critique_coder.is_usable("```python\n```", task) and critique_coder.is_usable(FENCED.format("x"), task)
    plain = critique_coder.critique(asked(), "= 4", False)
    assert plain.answer == "wrong" and critique_coder.CritiqueLabel().judge("= wrong", plain).total == 1


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_critique_coder_mixes_balanced_critiques(context, share):
    ctx = context(task="add(d=2)")
    prepare(critique_coder.build(), ctx)
    link = critique_coder.Criticise(share=share, candidates=4)
    tasks = [ctx.bench.tasks.task("train", i) for i in range(40)]

    async def all_of():
        return await asyncio.gather(*(link.ask_critique(ctx, ("k", i), Group(task=t)) for i, t in enumerate(tasks)))

    found = [g.task for g in asyncio.run(all_of()) if "label" in g.task.meta]
    assert share * 40 - 10 <= len(found) <= share * 40 + 10
    if share == 1:
        assert 10 <= sum(t.meta["label"] for t in found) <= 30


def test_critique_coder_an_error_is_no_zero():
    async def dead(ctx, group):
        raise Fault("sandbox", "gone")

    found = totals(Where("tests", dead), asked(tests=[]), "a")
    assert isinstance(found[0], Fault)


# ---- rl-tango


def trajectory(reward, *verdicts):
    """Steps of two tokens, each paid v / K at its end."""
    k = len(verdicts)
    return {"reward": reward, "turn_rewards": [v / k for v in verdicts], "turn_lengths": [2] * k}


def mixed(share, *trajectories, apart=True):
    recipe = vary(grpo.build(), credit=chain(rl_tango.StepMixture(share, apart)))
    return explain(recipe, [list(trajectories)])["advantages"][0]


def test_rl_tango_reference_values():
    a, b = trajectory(1, 1, 1), trajectory(0, 1, -1)
    assert mixed(1.0, a, b)[0] == pytest.approx([1.154701] * 2 + [0.577350] * 2, abs=1e-6)
    assert mixed(1.0, a, b)[1] == pytest.approx([-1.154701] * 2 + [-1.732051] * 2, abs=1e-6)
    assert 0.1 * mixed(1.0, a, b)[0][0] == pytest.approx(0.115470, abs=1e-6)
    assert mixed(0.1, a, b)[0][0] == pytest.approx(1.015470, abs=1e-6)
    assert mixed(0.1, a, b)[1][0] == pytest.approx(-1.015470, abs=1e-6)
    verdict = rl_tango.Reworked().read("a\nb\n= wrong", ["a", "b", "c"])
    assert verdict.steps == (1, 1, -1) and verdict.final is False


def test_demonstrated_verdicts_are_true(context):
    ctx = context("chain")
    task, found = ctx.bench.tasks.task("train", 0), []
    for i in range(16):
        (e,) = asyncio.run(DemonstrateVerdict()(ctx, (i,), Group(task=task))).episodes
        shown, said = "".join(s.text for s in e.rows[0].segments[:-1]), e.rows[0].segments[-1].text
        answers = final_answer(shown.removesuffix("<|assistant|>").removesuffix("<|end|>"))
        assert said.splitlines()[-1] == ("= right" if answers == task.answer else "= wrong"), (shown, said)
        found.append((said.splitlines()[-1], "\n" in said))
    assert len(set(found)) == 4  # right and wrong, worked and at once


def test_rl_tango_merged_and_edges():
    a, b = trajectory(1, 1, 1), trajectory(0, 1, -1)
    by_token = lambda *credit, n=4: [pytest.approx([x] * n) for x in credit]
    assert mixed(0.5, a, b, apart=False) == by_token(1, -1)
    assert mixed(0.5, {"reward": 1}, {"reward": 0}) == by_token(0.5, -0.5)  # nobody judged
    assert mixed(0.5, trajectory(1, 1)) == by_token(0, n=2)
    assert mixed(0.5, trajectory(1, 1, 1), trajectory(1, 1, 1)) == by_token(0, 0)
    equal = mixed(0.5, trajectory(1, 1, 1), trajectory(1, 1, -1))  # equal outcomes, different verdicts
    assert equal[0][0] > 0 > equal[1][0]
    recipe = rl_tango.build()
    good, bad = explain(recipe, [[{"reward": 1}, {"reward": 0}]])["advantages"][0]
    assert good == pytest.approx([0.9] * 4, abs=0.1) and bad == pytest.approx([-0.9] * 4, abs=0.1)
    shares = [resolve(recipe, s).learners["policy"].credit.links[0].share for s in (0, 100, 200, 300)]
    assert shares == pytest.approx([0.1, 0.01, 0.001, 0.001])


def weights_of(*right, state=None):
    episodes = tuple(replace(spoken("x", 0.0), facts={"right": r}) for r in right)
    table = Table([Group(task=asked(), episodes=episodes)], [], state or {})
    found = rl_tango.ClassWeight()(Values(level="episode", x_N=np.ones(len(right))), table)
    return found.x_N, table.state


def test_rl_tango_class_weights():
    found, state = weights_of(*[True] * 4, *[False] * 16)
    assert found.tolist() == [0.5] * 4 + [0.25] * 16
    smoothed, after = weights_of(True, *[False] * 4, state=state)
    assert smoothed[0] == pytest.approx(0.9 * 0.5 + 0.1) and after["class_weight"]["wrong"] == pytest.approx(0.275)
    alone, kept = weights_of(False, state=state)
    assert kept["class_weight"]["right"] == 0.5 and len(alone) == 1


@pytest.mark.parametrize(
    "reply, right, pay",
    [
        ("1+2=3\n3 3\n= right", True, 1.8),
        ("1+2=3\n3 3\n= wrong", True, 0.8),
        ("= right", True, 1.0),
        ("1+2=3\n= wrong", False, 1.4),
        ("no verdict", False, 0.0),
        ("", True, 0.0),
    ],
)
def test_rl_tango_pays_the_verifier_for_verdict_and_form(reply, right, pay):
    solution, heard = spoken("1+2=3\n= 3", float(right)), spoken(reply, policy="verifier").rows
    found = rl_tango.VerifySteps().paid(replace(solution, rows=(*solution.rows, *heard)), reply, door())
    assert found.reward.parts["seat:verifier"] == pytest.approx(pay) and found.total == right
    assert [e.token for e in found.reward.events] == [6, 10] and all(
        abs(e.value) in (0, 0.5) for e in found.reward.events
    )


def test_rl_tango_measures_balanced_accuracy_and_early_outcomes():
    hits = {"part/right and said so": 0.0, "part/wrong and said so": 0.8, "sampled_tokens": 9}
    steps = [{**hits, "reward": 0.2, "policy/updates": 1}] * 3
    shown = [{"reward": 1.0, "sampled_tokens": 0, "updates": 1}] * 3  # a supervised start is no step of the generator
    warm = [{**hits, "reward": 0.9, "verifier/updates": 1}]
    assert Balanced()(Cell(summary={}, steps=steps)) == pytest.approx(0.5)  # "wrong" to everything
    assert Moving(3)(Cell(summary={}, steps=shown + warm + steps)) == pytest.approx(0.2)
    assert math.isnan(Moving(4)(Cell(summary={}, steps=shown + warm + steps)))  # not fewer than asked for
    assert math.isnan(Balanced()(Cell(summary={}, steps=[{"reward": 0.2}])))


def test_rl_tango_trains_each_on_its_own_tokens_in_turn(context):
    recipe = rl_tango.build(warmup=1)
    for path, small in {"0.n": 2, "0.max_tokens": 12, "2.max_tokens": 12}.items():
        recipe = override(recipe, f"collect.links.{path}", small)
    recipe = vary(recipe, schedule=Schedule(prompts=1, steps=5))
    ctx = context(task="add(d=3)")
    prepare(recipe, ctx)
    state, seen = start(0), []
    for _ in range(5):
        state, metrics = asyncio.run(step(recipe, ctx, state))
        seen.append(("policy/updates" in metrics, "verifier/updates" in metrics))
    assert seen == [(False, True), (True, False), (True, False), (True, False), (False, True)]
    rows = [r for g in ctx.seen for e in g.episodes for r in e.rows]
    assert {(r.seat, s.policy) for r in rows for s in r.segments if s.trained} == {("policy",) * 2, ("verifier",) * 2}


def test_rl_tango_a_dead_verifier_is_an_error(context):
    class Dead:
        dialect = None

        async def generate(self, *a):
            raise Fault("engine", "gone")

    ctx = context()
    Dead.dialect = ctx.engine().dialect
    ctx.engines["verifier"] = Dead()
    group = Group(task=asked(), episodes=(spoken("= 3", 1.0), Episode(status="error:x")))
    found = asyncio.run(rl_tango.VerifySteps()(ctx, (), group)).episodes
    assert [e.status for e in found] == ["error:engine", "error:x"] and found[0].reward is None


# ---- raiden-r1

KEYS = [["london"], ["doctor", "physician"]]
THOUGHT = "<think>In character.</think>"


def roles(*texts, **settings):
    reward = raiden_r1.build(**settings).collect.links[1].reward
    return totals(reward, asked("Who are you, and where?", KEYS, keys=True), *texts)


def test_raiden_reference_values():
    assert roles("I am a physician in London", "I am a doctor", "<think>London, doctor</think>I will not say") == [
        1,
        0,
        0.5,
    ]
    assert roles(f"{THOUGHT}I am a physician in London.") == [1.5]
    broken = f"{THOUGHT}{THOUGHT}A doctor, of London"
    assert roles(broken) == [1] and roles(broken, gated=True) == [0] and roles(broken, weight=0.2) == [1]
    assert raiden_r1.is_kept([True] * 15 + [False] * 5, [True] * 20)
    assert not raiden_r1.is_kept([True] * 14 + [False] * 6, [True] * 20) and not raiden_r1.is_kept([], [])


def test_raiden_matches_words_of_the_reply_only():
    assert roles("", THOUGHT, "Londoners, doctoral", "<think>London doctor") == [0, 0, 0, 0]
    assert roles("ＬＯＮＤＯＮ, Doctor") == [1]
    stuffed = asked("q", KEYS, keys=True, others=["Oslo"], forbidden=["not a doctor"])
    reward = raiden_r1.build().collect.links[1].reward
    assert totals(reward, stuffed, "London, Oslo: doctor", "I am not a doctor in London", "doctor, London") == [0, 0, 1]
    assert totals(reward, asked("q", [["北京"]], keys=True), "我住在北京市") == [1]


def test_raiden_single_terms_need_agreement():
    assert raiden_r1.single_term(["London", "london ", "LONDON"]) == "london"
    assert raiden_r1.single_term(["London", "Oslo"]) is None and raiden_r1.single_term([""]) is None


@pytest.mark.parametrize("kind", ["single-term", "multi-term", "no guard", "graded"])
def test_raiden_rewards_of_stand_ins(kind):
    rng = np.random.default_rng(0)
    for _ in range(20):
        task = raiden_r1_claim.persona(rng)
        worth = {
            k: raiden_r1_claim.pay_reply(kind, raiden_r1_claim.response(k, task, rng), task)
            for k in raiden_r1_claim.RIGHT + raiden_r1_claim.WRONG
        }
        assert worth["plain"] >= 0.7 and worth["unthought"] == worth["silence"] == 0
        if kind == "multi-term":
            assert [worth[k] for k in raiden_r1_claim.RIGHT] == [1, 1, 1] and sum(
                worth[k] for k in raiden_r1_claim.WRONG
            ) == 0
        else:
            assert worth["stuffed"] >= 0.7  # the exploit: naming every key there is


def test_raiden_separation_is_a_program(context):
    run = lambda kind, seed: asyncio.run(raiden_r1_claim.Separation(kind, 40).run(context(seed=seed))).metrics
    assert run("multi-term", 0)["separation"] == 1 and run("multi-term", 0)["stuffed"] == 0
    assert run("single-term", 0) == run("single-term", 0) != run("single-term", 1)
    assert run("single-term", 0)["separation"] < 1

"""Guided attempts: what was seen, what training sees of it, who began a turn, and what joins the group."""

import asyncio
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from palaestra.chat.dialect import Chat
from palaestra.credit.links import Center, Fact, chain
from palaestra.errors import Fault, UserError
from palaestra.models.score import score_pairs
from palaestra.rewards.intrinsic import AnswerProbability, answer_score, debias
from palaestra.rewards.verify import response_text
from palaestra.rollout.budget import Instead
from palaestra.rollout.collect import Sample, Score, When, links, rewards
from palaestra.rollout.guide import Begin, Hide, Mark, Under, hide_beyond
from palaestra.rollout.hints import Examples, Feedback, Hinted, Working
from palaestra.rollout.play import play
from palaestra.rollout.player import EnginePlayer, Handover
from palaestra.rollout.recorded import Demonstrate, Swap
from palaestra.store import rollouts
from palaestra.tasks.phrasing import add_examples, add_hint, add_instruction, question_text, retry
from palaestra.types import Episode, Group, Message, Reward, Row, Sampling, Segment, Task
from palaestra.worlds.question import Question

from tests.laws.test_law_01_ids import TEMPLATES, core, tokenizer_of  # noqa: F401
from tests.rollout.test_players import engine

QUESTION = Task(id="t", prompt=(Message(role="user", content="12 + 7 ?"),), answer="19")
REWRITES = {
    "hint": lambda t: add_hint(t, ["12", "7"]),
    "example": lambda t: add_examples(t, [(t, "what is 7")]),
    "system": lambda t: add_instruction(t, Message(role="system", content="hello")),
    "reply": lambda t: replace(t, prompt=(*t.prompt, Message(role="assistant", content="7"), retry())),
}


# a system message of the template's own, and a space that belongs to the first word
JOINED = {("chatml", "system"), ("mistral", "system"), ("mistral", "example")}


def group_of(ctx, index=0, *totals):
    episodes = tuple(Episode(reward=Reward(total=float(x)), status="finished") for x in totals)
    return Group(task=ctx.bench.tasks.task("train", index), episodes=episodes)


def speaker(asked=None, policy="policy", sampling=Sampling(), **said):
    made = engine(asked, **said)
    made.dialect.parse = lambda text, finish: None
    return EnginePlayer(engine=made, sampling=sampling, policy=policy)


def run(link, ctx, group, key=("k", 1)):
    return asyncio.run(link(ctx, key, group))


def ids_of(pieces):
    return tuple(i for p in pieces for i in p.ids)


# ---- hidden guidance


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("rewrite", REWRITES)
def test_the_view_is_the_bare_prompt_and_the_reply(core, template, rewrite):  # noqa: F811
    """Five chat templates; the context, which was really seen, stays. Where a template has a system message of its own, or
    a tokenizer joins the question with what stands before it, nothing can be left out, and that is said.
    """
    chat = Chat(tokenizer_of(core, template))
    say = REWRITES[rewrite](QUESTION).prompt
    pieces, bare = (chat.extend(m, first=True, closed=False) for m in (say, QUESTION.prompt))
    reply = Segment(ids=chat.encode_text("= 19"), logp=(-1.0,) * len(chat.encode_text("= 19")), trained=True)
    row = Row(segments=(*(Segment(ids=p.ids, text=p.text) for p in pieces), reply))
    if (template, rewrite) in JOINED:
        with pytest.raises(UserError, match="one run of tokens"):
            hide_beyond(row, ids_of(bare))
        return
    hidden = hide_beyond(row, ids_of(bare))
    assert tuple(hidden.view().ids_T) == (*ids_of(bare), *reply.ids)
    assert hidden.context() == row.context() != hidden.view().ids_T.tolist()
    assert hidden.view().trained_T.sum() == len(reply.ids)
    assert "".join(s.text for s in hidden.segments) == "".join(s.text for s in row.segments)


def test_log_probs_are_measured_behind_the_bare_prompt(context):
    """To 1e-5 those of teacher-forced scoring there; the behaviour's stay those behind the guided prompt."""
    ctx = context("chain")
    link = links(Under(Hinted(Working(0.5)), Sample(n=3)), Hide())
    made = run(link, ctx, group_of(ctx))
    dialect = ctx.engine().dialect
    bare = ids_of(dialect.extend(made.task.prompt, first=True, closed=False))
    seen = ids_of(
        dialect.extend(Hinted(Working(0.5))(ctx, made, np.random.default_rng()).prompt, first=True, closed=False)
    )
    signals = ctx.measure([made], [("policy", "logp")])
    for e, (signal,) in zip(made.episodes, signals[0], strict=True):
        said = e.rows[0].segments[-1]
        behind_bare, behind_hint = score_pairs(ctx.model("policy"), [(bare, said.ids), (seen, said.ids)])
        assert tuple(e.rows[0].view().ids_T) == (*bare, *said.ids) and e.rows[0].context() == (*seen, *said.ids)
        assert signal["policy_logp"][len(bare) :] == pytest.approx(behind_bare, abs=1e-5)
        assert e.rows[0].view().logp_T[len(bare) :] == pytest.approx(behind_hint, abs=1e-5)
        assert np.abs(behind_bare - behind_hint).max() > 1e-3


def test_what_is_no_insertion_is_not_hidden():
    row = Row(segments=(Segment(ids=(1, 2, 3)), Segment(ids=(9,), logp=(0.0,), trained=True)))
    with pytest.raises(UserError, match=r"task 't'.*line break.*place=prompt"):
        hide_beyond(row, (1, 3, 2), "t")
    with pytest.raises(UserError, match="line break"):
        hide_beyond(row, (1, 2, 3, 4))
    assert hide_beyond(row, (1, 2, 3)) == row
    assert [s.hidden for s in hide_beyond(row, (1, 3)).segments] == [False, True, False, False]


# ---- attempts under another prompt


def test_guided_attempts_join_the_group_of_the_bare_task(context):
    ctx = context("chain")
    seen = []

    def rewrite(ctx, group, rng):
        seen.append((len(group.episodes), rng.integers(1 << 30)))
        return add_hint(group.task, ["1"])

    before = run(links(Sample(n=2), Score()), ctx, group_of(ctx))
    after = run(links(Under(rewrite, Sample(n=2), value=0.5), Score()), ctx, before)
    assert after.task == before.task and after.episodes[:2] == before.episodes
    assert [e.facts.get("guided") for e in after.episodes] == [None, None, 0.5, 0.5]
    assert all("hint" in e.rows[0].segments[0].text for e in after.episodes[2:])
    assert all(e.reward is not None for e in after.episodes)
    each = run(Under(rewrite, Sample(n=1, temperature=3.0), times=3), ctx, before)
    assert len(each.episodes) == 5 and len({draw for _, draw in seen[1:]}) == 3
    assert len({e.rows[0].segments[-1].logp for e in each.episodes[2:]}) == 3  # seeds of their own
    nothing = Under(lambda *_: None, Sample(n=2))
    assert run(nothing, ctx, before) == before


def test_a_ladder_looks_at_one_part_of_the_reward_and_replaces_the_group(context):
    ctx = context("chain")
    paid = Reward(total=0.5, parts={"accuracy": 0.0, "format": 1.0})
    group = replace(group_of(ctx), episodes=(Episode(reward=paid, status="finished"),) * 2)
    wrong = lambda found: not np.any(found > 0)
    assert rewards(group, "accuracy").tolist() == [0, 0] and rewards(group).tolist() == [0.5, 0.5]
    assert run(When(wrong, Sample(n=1)), ctx, group) == group
    made = run(When(wrong, Instead(Sample(n=3)), "accuracy"), ctx, group)
    fresh = [e for e in made.episodes if not e.muted]
    assert len(fresh) == 3 and all(e.reward is None for e in fresh)
    nothing = Instead(Under(lambda *_: None, Sample(n=2)))
    assert run(nothing, ctx, group) == group


def test_marks_are_on_what_a_link_adds(context):
    ctx = context("chain")
    made = run(links(Sample(n=1), Mark(Demonstrate(), "shown")), ctx, group_of(ctx))
    assert [e.facts.get("shown") for e in made.episodes] == [None, 1.0]
    assert Mark(Demonstrate(), "shown").recorded and not Mark(Sample(), "shown").recorded


# ---- turns that another begins


@pytest.mark.parametrize(
    ("said", "player", "trained", "logp"),
    [
        (Segment(ids=(5, 6), author="teacher", logp=(-3.0, -4.0), text="ab"), "policy",
         [0, 0, 1, 1, 1], [-3, -4, -1, -2, -3]),
        (Segment(ids=(5, 6), author="policy", policy="policy", trained=True, logp=(-3.0, -4.0), text="ab"), "",
         [1, 1, 0, 0, 0], [-3, -4, -1, -2, -3]),
        (Segment(ids=(5, 6), author="forced", text="ab"), "policy", [0, 0, 1, 1, 1], [np.nan, np.nan, -1, -2, -3]),
    ],
    ids=["roll in of a guide (PPO++)", "roll out of a guide (AggreVaTeD)", "forced start"],
)  # fmt: skip
def test_a_turn_of_two_authors(said, player, trained, logp):
    asked = []
    speaks = speaker(asked, player, Sampling(max_tokens=9), ids=(7, 8, 9), logp=(-1.0, -2.0, -3.0), text="cde", cut=3)
    task = Task(id="t", prompt=(Message(role="user", content="4"),))
    handed = Handover(player=speaks, said=said)
    e = asyncio.run(play(Question(), {"policy": handed}, task, ("k",), ("w",), max_turns=3))
    view = e.rows[0].view()
    assert view.ids_T.tolist() == [4, 5, 6, 7, 8, 9] and view.trained_T[1:].tolist() == trained
    np.testing.assert_allclose(view.logp_T[1:], logp)
    assert asked == [((4, 5, 6), Sampling(max_tokens=7))]  # the ids as they are; the turn is no longer than others
    assert response_text(e) == "abcde"
    assert (handed.name, handed.policy, handed.temperature) == (speaks.name, player, 1.0)


def test_a_world_hears_the_whole_turn():
    heard = []

    class Listening(Question):
        def step(self, state, acts, key):
            heard.extend(a.text for a in acts)
            return super().step(state, acts, key)

    speaks = speaker()
    said = Segment(ids=(5, 6), author="forced", text="ab")
    task = Task(id="t", prompt=(Message(role="user", content="4"),))
    asyncio.run(play(Listening(), {"policy": Handover(player=speaks, said=said)}, task, ("k",), ("w",), max_turns=3))
    assert heard == ["ab700800"]


def test_a_forced_start_is_the_working_and_carries_no_gradient(context):
    ctx = context("chain")
    group = group_of(ctx)
    steps = ctx.bench.tasks.steps(group.task)
    made = run(links(Begin(Working(0.5), Sample(n=3)), Score()), ctx, group)
    shown = "".join(f"{x}\n" for x in steps[: round(len(steps) / 2)])
    for e in made.episodes:
        forced, said = e.rows[0].segments[-2:]
        assert (forced.text, forced.author, forced.trained) == (shown, "forced", False) and said.trained
        assert response_text(e) == shown + said.text and e.facts["guided"] == 1.0
        assert e.total == ctx.bench.tasks.check(shown + said.text, group.task)
    assert run(Begin(Working(0.0), Sample(n=3)), ctx, group) == group
    found, _ = chain(Fact("guided"), Center("group"))([made], [], {})
    assert all(f.columns["is:guided"].max() == 1 for f in found)


# ---- demonstrations in the place of failures


def test_demonstrations_take_the_place_of_failures(context):
    """AMPO: 8 wrong, 2 of them swapped: A = +.75 and -.25 without the standard deviation."""
    ctx = context("chain")
    group = run(links(Sample(n=8)), ctx, group_of(ctx))
    group = replace(group, episodes=tuple(replace(e, reward=Reward(total=0.0)) for e in group.episodes))
    made = run(
        Swap(k=2), ctx, replace(group, task=replace(group.task, meta=group.task.meta | {"demonstrations": ["a", "b"]}))
    )
    shown = [e for e in made.episodes if e.facts.get("demonstration")]
    assert len(made.episodes) == 8 and {e.rows[0].segments[-1].text for e in shown} == {"a", "b"}
    assert all(e.oldest() is None and e.recorded and e.total == 1 for e in shown)
    kept = [e for e in made.episodes if not e.facts.get("demonstration")]
    assert kept == [e for e in group.episodes if e in kept] and len(kept) == 6
    found, _ = chain(Fact("demonstration"), Center("group"))([made], [], {})
    paid = {(f.columns["is:demonstration"].max(), f.columns["advantage"][f.row.view().trained_T].max()) for f in found}
    assert paid == {(1.0, 0.75), (0.0, -0.25)}


def test_a_group_that_somebody_solved_is_left_alone(context):
    ctx = context("chain")
    right, one, two = (group_of(ctx, 0, *totals) for totals in ((0, 1), (0,), (0, 0, 0)))
    assert run(Swap(), ctx, right) == right
    swapped = run(Swap(when=lambda found: True), ctx, right)
    assert [e.total for e in swapped.episodes] == [1, 1] and swapped.episodes[1] == right.episodes[1]
    assert [e.total for e in run(Swap(), ctx, one).episodes] == [1]
    assert sorted(e.total for e in run(Swap(), ctx, two).episodes) == [0, 0, 1]  # there is one demonstration


def failures(ctx, n, *demonstrations, index=0):
    group = group_of(ctx, index, *[0.0] * n)
    meta = {**group.task.meta, "demonstrations": list(demonstrations)} if demonstrations else group.task.meta
    return replace(group, task=replace(group.task, meta=meta))


def swapped_texts(ctx, group, **options):
    """Demonstrations that were put in, in the order of the group."""
    made = run(Swap(**options), ctx, group)
    return [e.rows[0].segments[-1].text for e in made.episodes if e.facts.get("demonstration")]


def test_the_best_of_several_demonstrations(context):
    """AMPO: answer probabilities [.9, .8] behind A's reasoning and [.5, .3] behind B's, .2 without any: .65 and .20, A first.
    Of equal scores the shorter counts, and what cannot be scored is not taken."""
    ctx, known = (
        context("chain"),
        {"B": [0.5, 0.3], "A": [0.9, 0.8], "C, longer": [0.1, 0.1], "C": [0.1, 0.2], "D": None},
    )
    asked = []

    async def comprehension(ctx, group):
        asked.append([response_text(e) for e in group.episodes])
        scores = {k: p and debias(answer_score(np.log(p)), 0.2) for k, p in known.items()}
        return [Fault("none", "no score") if scores[t] is None else Reward(total=scores[t]) for t in asked[-1]]

    assert {k: pytest.approx(debias(answer_score(np.log(known[k])), 0.2)) for k in "ABC"} == {
        "A": 0.65,
        "B": 0.2,
        "C": 0,
    }
    take = lambda k, n=8: swapped_texts(ctx, failures(ctx, n, *known), k=k, score=comprehension)
    assert (take(1), take(2), take(3)) == (["A"], ["A", "B"], ["A", "B", "C"])
    assert take(9) == ["A", "B", "C", "C, longer"]
    assert take(2, n=1) == ["A"]  # there is one failure to take the place of
    assert all(sorted(x) == sorted(known) for x in asked)
    assert run(Swap(score=comprehension), ctx, group_of(ctx, 0, 0, 1)) == group_of(ctx, 0, 0, 1) and len(asked) == 5


def test_what_the_policy_understands_best(context):
    """Its own probability of the answer behind the working, as of AMPO: the task's own working before that of another."""
    ctx = context("chain")
    working = lambda own, task: "\n".join([*ctx.bench.tasks.steps(own), f"= {task.answer}"])
    for index in range(4):
        task, other = (ctx.bench.tasks.task("train", i) for i in (index, index + 10))
        group = failures(ctx, 8, working(other, task), working(task, task), index=index)
        assert swapped_texts(ctx, group, k=1, score=AnswerProbability(baseline="policy")) == [working(task, task)]


def test_without_a_score_they_are_drawn(context):
    ctx = context("chain")
    group, texts = failures(ctx, 8, "a", "b", "c"), set()
    for i in range(12):
        made = run(Swap(k=1), ctx, group, ("k", i))
        texts |= {e.rows[0].segments[-1].text for e in made.episodes if e.facts.get("demonstration")}
    assert texts == {"a", "b", "c"}


def test_the_prompt_that_was_shown_is_what_is_recorded(context, tmp_path):
    """Of a hinted answer the one with the hint, also where training does not see it; of others that of the task."""
    ctx = context("add")
    bare = group_of(ctx)
    made = run(links(Sample(n=1), Under(Examples(), Sample(n=1)), Under(Hinted(), Sample(n=1)), Hide()), ctx, bare)
    rollouts.write(tmp_path / "step-0.parquet", 0, [made], rollouts.NOTHING, ctx.decode)
    prompts = pq.read_table(tmp_path / "step-0.parquet")["prompt"].to_pylist()
    question = question_text(bare.task)
    assert prompts[0] == question != prompts[1] and prompts[1].startswith("example:\n")
    assert prompts[2].startswith(f"{question}\nhint:\n")
    for prompt, episode in zip(prompts, made.episodes, strict=True):
        assert prompt in ctx.decode(episode.rows[0].context())


def test_feedback_is_hidden_as_well(context):
    """Critique-GRPO's refinement: sampled after the attempt and what is said of it, trained behind the question alone."""
    ctx = context("add")
    group = run(links(Sample(n=4)), ctx, group_of(ctx))
    group = replace(group, episodes=tuple(replace(e, reward=Reward(total=0.0)) for e in group.episodes))
    made = run(links(Under(Feedback("answer"), Sample(n=1)), Hide()), ctx, group)
    bare = ids_of(ctx.engine().dialect.extend(group.task.prompt, first=True, closed=False))
    refined = made.episodes[-1]
    assert tuple(refined.rows[0].view().ids_T) == (*bare, *refined.rows[0].segments[-1].ids)
    assert f"wrong, it is {group.task.answer}" in ctx.decode(refined.rows[0].context())
    assert question_text(made.task) == question_text(group.task)

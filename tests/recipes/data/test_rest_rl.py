"""ReST-RL: which problems and states a round gives, what the value model learns from a tree, and how it decodes."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.explanation.method import explain
from palaestra.recipes.data import rest_rl
from palaestra.recipes.data.rest_rl import decoding
from palaestra.recipes.data.rest_rl import states as starts
from palaestra.rollout.collect import Score
from palaestra.run.driver import prepare
from palaestra.settings.overrides import make_smallest
from palaestra.step import start, step
from palaestra.types import Group, Reward, Task
from palaestra.values import flatten

from tests.fake import episode
from tests.recipes.objectives.helpers import near


def test_a_problem_with_one_good_answer_is_kept():
    """[1, .2, .2, .2, .2]: std .32 over the answers (ddof 0); .05 is enough."""
    one_good = [1, 0.2, 0.2, 0.2, 0.2]
    assert starts.is_varied(one_good) and starts.is_varied(one_good, 0.3199) and not starts.is_varied(one_good, 0.3201)
    assert not starts.is_varied([0.3] * 5)
    assert starts.is_varied([0.5, 0.601]) and not starts.is_varied([0.5, 0.599])
    assert not starts.is_varied([0.0, 0.08])  # .04, and .057 with ddof 1


def test_short_prefixes_are_likelier():
    """Four lines at .95: [.269551, .256073, .243270, .231106], of which two are drawn."""
    assert starts.prefix_odds(4).tolist() == near([0.269551, 0.256073, 0.243270, 0.231106], 1e-6)
    drawn = starts.states_of("a\nb\nc\nd\n", 0.5, 0.95, pl.rng_of(("k",)))
    assert len(drawn) == 2 and set(drawn) <= {"a\n", "a\nb\n", "a\nb\nc\n", "a\nb\nc\nd\n"}
    assert len(starts.states_of("a\nb\nc", 0.5, 0.95, pl.rng_of(("k",)))) == 2  # half of three, rounded up
    assert starts.states_of("a", 0.0, 0.95, pl.rng_of(("k",))) == []
    odds = np.bincount(
        [t.count("\n") - 1 for i in range(2000) for t in starts.states_of("a\nb", 1.0, 0.5, pl.rng_of((i,)))]
    )
    assert (odds / odds.sum()).tolist() == near([2 / 3, 1 / 3], 0.03)


def test_the_score_of_a_node():
    """V = .5, c = .1, eps = .1, N = 10, n = 4: .589750."""
    from palaestra.rollout.tree import TreeNode

    node, child = TreeNode(state=0, parent=-1, visits=10), TreeNode(state=1, parent=0, visits=4, total=2.0)
    select = rest_rl.ValueDecoding().search(Score()).select
    assert (select.c, select.eps) == (0.1, 0.1) and select.score(node, child) == near(0.589750, 5e-7)
    assert rest_rl.value_model().collect.links[0].select == pl.rollout.Uct(0.2, 0.1)


class Graded:
    """A reward by the number of an answer among those of its problem, round after round."""

    def __init__(self, *rewards):
        self.rewards = rewards

    async def __call__(self, ctx, group):
        given = (self.rewards * len(group.episodes))[: len(group.episodes)]
        return [Reward(total=float(r), solved=r >= 1) for r in given]


def drawn(ctx, n=6, state=None, **options):
    return asyncio.run(rest_rl.StartStates(tasks=4, **options)(ctx, ("k", 0), n, state or {}))


def with_reward(ctx, reward):
    return ctx.with_bench(replace(ctx.bench, reward=reward))


def text_of(ctx, task):
    return task.meta.get(starts.SAID, "")


def test_a_round_gives_problems_and_states_of_their_best_answers(context):
    """Of five answers the second is right: its first lines are states, and half as many as it has lines."""
    ctx = with_reward(context("chain"), Graded(0.2, 1.0, 0.2, 0.2, 0.2))
    tasks, state = drawn(ctx, 1)
    tasks += state["waiting"]
    by_id = {}
    for t in tasks:
        by_id.setdefault(t.id, []).append(text_of(ctx, t))
    assert set(by_id) == {ctx.bench.tasks.task("train", i).id for i in range(4)}
    assert state["found"] == {"problems": 4, "varied": 4, "starts": len(tasks)}
    assert rest_rl.StartStates().draw_numbers(state) == {"varied": 1.0, "states": len(tasks) - 4}
    sample, score = pl.Sample(n=5, temperature=0.7), Score()
    for i in range(4):
        task, here = ctx.bench.tasks.task("train", i), ("k", 0, "round", 0, 0, i)
        played = asyncio.run(score(ctx, here, asyncio.run(sample(ctx, here, Group(task=task)))))
        best = max(played.episodes, key=lambda e: e.total)
        lines, said = best.text.rstrip().split("\n"), by_id[task.id]
        states = [s for s in said if s]
        assert said.count("") == 1 and len(states) == math.ceil(len(lines) / 2)
        assert all(s.rstrip("\n").split("\n") == lines[: s.count("\n")] for s in states)


def test_states_of_the_worst_and_none_at_all(context):
    ctx = with_reward(context("chain"), Graded(0.0, 1.0, 0.5, 0.5, 0.5))
    whole = {of: drawn(ctx, 1, of=of) for of in ("best", "worst", "none")}
    said = {of: sorted(text_of(ctx, t) for t in [*found, *state["waiting"]]) for of, (found, state) in whole.items()}
    assert said["none"] == [""] * 4 and said["best"] != said["worst"]
    assert whole["none"][1]["found"]["varied"] == 4
    numbers = {of: rest_rl.StartStates().draw_numbers(state)["states"] for of, (_, state) in whole.items()}
    assert numbers["none"] == 0 < numbers["best"]


def test_rewards_alike_give_nothing_and_a_low_best_gives_its_problem_alone(context, monkeypatch):
    low = with_reward(context("chain"), Graded(0.2, 0.8, 0.2, 0.2, 0.2))
    tasks, state = drawn(low, 4)
    assert [text_of(low, t) for t in tasks] == [""] * 4 and state["waiting"] == []
    alike = with_reward(context("chain"), Graded(1.0))
    monkeypatch.setattr(starts, "TRIES", 2)
    with pytest.raises(pl.Fault, match="8 problems have equal rewards"):
        drawn(alike)


def test_rounds_follow_one_another(context):
    """Every start state of a round once, then the next problems."""
    ctx = with_reward(context("chain"), Graded(0.2, 0.8, 0.2, 0.2, 0.2))
    first, state = drawn(ctx, 3)
    second, state = drawn(ctx, 3, state)
    assert [t.id for t in first + second][:4] != [ctx.bench.tasks.task("train", i).id for i in range(4)]  # mixed
    assert {t.id for t in (first + second)[:4]} == {ctx.bench.tasks.task("train", i).id for i in range(4)}
    assert {t.id for t in (first + second)[4:]} <= {ctx.bench.tasks.task("train", i).id for i in range(4, 8)}
    assert len(state["waiting"]) == 2


def test_attempts_go_on_from_a_state(context):
    """What was said so far stands at the start of every reply, untrained; the answer is judged as a whole."""
    ctx = context("chain")
    task = ctx.bench.tasks.task("train", 0)
    said = f"{ctx.bench.tasks.steps(task)[0]}\n"
    at = replace(task, meta={**task.meta, starts.SAID: said})
    link = pl.links(rest_rl.FromState(pl.Sample(n=3)), Score())
    begun = asyncio.run(link(ctx, ("k",), Group(task=at))).episodes
    whole = asyncio.run(link(ctx, ("k",), Group(task=task))).episodes
    assert len(begun) == len(whole) == 3
    for e in begun:
        forced = [s for s in e.rows[0].segments if s.author == "forced"]
        assert [s.text for s in forced] == [said] and not forced[0].trained and e.facts[starts.MARK] == 1
    assert not any(s.author == "forced" for e in whole for s in e.rows[0].segments)


def test_an_answer_that_ends_by_itself_has_a_little_more(context):
    ctx = with_reward(context("chain"), Graded(1.0, 0.0))

    def ended(how):
        made = episode((1,), (2,), 0.0)
        row = made.rows[0]
        return replace(
            made, reward=None, rows=(replace(row, segments=(row.segments[0], replace(row.segments[1], finish=how))),)
        )

    group = Group(task=ctx.bench.tasks.task("train", 0), episodes=(ended("eos"), ended("length")))
    found = asyncio.run(Score(reward=rest_rl.EndsByItself(0.001))(ctx, ("k",), group)).episodes
    assert [e.total for e in found] == near([1.001, 0.0], 1e-12) and [e.solved for e in found] == [True, False]
    assert rest_rl.rest_grpo(bonus=0.0).collect.links[1].reward is None


def test_advantages_are_those_of_a_start_state():
    """Of one state: rewards [1, 0, 0, 0] give (r - .25) / (.5 + 1e-4), ddof 1."""
    found = explain(rest_rl.rest_grpo(), [[{"reward": r, "length": 1} for r in (1, 0, 0, 0)]])["advantages"][0]
    assert found == near([0.75 / 0.5001, *[-0.25 / 0.5001] * 3], 1e-6)


# ---- stage 2


def answer(ids, reward, shared, opened):
    return replace(episode((9,), ids, reward), facts={"shared": shared, "opened": opened})


def test_states_are_worth_what_was_found_at_and_below_them():
    """The root's two answers, then two from the state (1, 2) and one below it: V(root) = 2 / 5, V(1, 2) = 2 / 3."""
    tree = [
        answer((1, 2, 3), 0.0, 0, 0),
        answer((1, 2, 4), 0.0, 0, 0),
        answer((1, 2, 5), 1.0, 2, 1),
        answer((1, 2, 6, 7), 0.0, 2, 1),
        answer((1, 2, 6, 8), 1.0, 3, 2),
    ]
    group = Group(task=Task(id="t"), episodes=tuple(tree))
    found = {e.rows[-1].context(): e.total for e in decoding.valued_states(group)}
    assert found == {
        (9,): pytest.approx(2 / 5),
        (9, 1, 2): pytest.approx(2 / 3),
        (9, 1, 2, 6): pytest.approx(1.0),
    }
    examples, _ = rest_rl.RateStates()([group], {}, {})
    targets = [(e.row.context()[:-1], float(e.columns["target_total"])) for e in examples]
    assert targets[:5] == [((9, *e.rows[0].segments[1].ids), e.total) for e in tree]
    assert dict(targets[5:]) == found


def test_a_failed_answer_is_worth_nothing_to_a_state():
    broken = replace(answer((1, 2, 3), 0.0, 0, 0), status="error:judge", reward=None)
    group = Group(task=Task(id="t"), episodes=(broken, answer((1, 2, 4), 1.0, 0, 0)))
    assert [e.total for e in decoding.valued_states(group)] == [1.0]


class Likes:
    """A value of the user's own: answers, or states, that hold a text."""

    def __init__(self, ctx, text):
        self.ctx, self.text, self.asked = ctx, text, []

    async def __call__(self, ctx, group):
        said = [self.ctx.decode(r.context()) for e in group.episodes for r in e.rows[-1:]]
        self.asked.append(said)
        return [Reward(total=float(self.text in s)) for s in said]


def test_mixed_values_are_the_same_values_in_another_order(context):
    ctx = context("chain")
    group = Group(task=Task(id="t"), episodes=tuple(episode((1,), (2, i), 0.0) for i in range(8)))

    async def by_place(ctx, group):
        return [Reward(total=float(i)) for i in range(len(group.episodes))]

    found = [r.total for r in asyncio.run(decoding.MixedValues(by_place)(ctx, group))]
    assert sorted(found) == list(range(8)) and found != list(range(8))


@pytest.fixture
def liked(context, monkeypatch):
    """A context whose value model likes one text, and the judge of what it was asked."""
    ctx = context("chain")
    judge = Likes(ctx, "= 7")
    monkeypatch.setattr(decoding, "VALUE", judge)
    return ctx, judge


def worked(ctx):
    """A task that is answered in several lines."""
    return pl.tasks.add_instruction(ctx.bench.tasks.task("test", 0), pl.tasks.THINK_STEPWISE)


def test_answers_of_one_line_leave_nothing_to_open(liked):
    """The rest of the budget goes to whole answers."""
    ctx, _ = liked
    task = pl.tasks.add_instruction(ctx.bench.tasks.task("test", 0), pl.tasks.ANSWER_AT_ONCE)
    found = asyncio.run(rest_rl.ValueDecoding(tokens=100, n=3)._answers(ctx, task))
    searched = [e for e in found.group.episodes if "opened" in e.facts]
    assert len(searched) < len(found.values) and found.tokens >= 100


@pytest.mark.parametrize("method", ["vm-mcts", "outcome search", "mixed values", "best of n"])
def test_what_the_value_model_likes_is_chosen(liked, method):
    """Right answers are only looked at afterwards; so many tokens are sampled, and the wave under way ends."""
    ctx, _ = liked
    program = rest_rl.ValueDecoding(method, tokens=100, n=3, tasks=3, temperature=1.5)
    tasks = [ctx.bench.tasks.task("test", i) for i in range(3)]
    answers = [asyncio.run(program._answers(ctx, t)) for t in tasks]
    for a, task in zip(answers, tasks, strict=True):
        texts = [e.text for e in a.group.episodes]
        assert list(a.values) == [float("= 7" in t) for t in texts] and len(a.values) % 3 == 0
        assert a.best().text == next((t for t in texts if "= 7" in t), texts[0])
        assert [e.solved for e in a.group.episodes] == [pl.tasks.exact_match(t, task) == 1 for t in texts]
        assert 100 <= a.tokens < 100 + 3 * ctx.bench.max_tokens


def test_states_are_asked_about_only_where_they_lead(liked):
    ctx, judge = liked
    task = worked(ctx)
    for method, states in (("vm-mcts", True), ("outcome search", False), ("best of n", False), ("oracle", False)):
        judge.asked.clear()
        program = rest_rl.ValueDecoding(method, tokens=60, n=3)
        found = asyncio.run(program._answers(ctx, task))
        whole = {ctx.decode(e.rows[-1].context()) for e in found.group.episodes}
        broken = [s for said in judge.asked for s in said if s not in whole]
        assert bool(broken) == states
        assert bool(judge.asked) == (method != "oracle")


def test_the_oracle_chooses_a_right_answer_where_there_is_one(context):
    ctx = context("add(d=2)")
    program = rest_rl.ValueDecoding("oracle", tokens=120, n=4, tasks=8)
    metrics = asyncio.run(program.run(ctx)).metrics
    assert metrics["accuracy_after"]["mean"] == metrics["found"] > 0


def valued(*pairs, texts=()):
    said = [episode((1,), (2,), float(r)) for r, _ in pairs]
    group = Group(task=Task(id="t"), episodes=tuple(said))
    return decoding.ValuedAnswers(group=group, values=tuple(v for _, v in pairs), tokens=10)


def test_how_often_right_is_valued_above_wrong():
    """Two right ones and two wrong ones: of four pairs two are ranked right and one is a tie."""
    assert valued((1, 0.9), (1, 0.2), (0, 0.2), (0, 0.5)).ranked() == (2 + 0.5 + 0) / 4 + 0.0
    assert math.isnan(valued((1, 0.9)).ranked())
    told = decoding.tell([valued((1, 0.9), (0, 0.1)), valued((0, 0.9))])
    assert (told["found"], told["ranked"], told["tokens"], told["answers"]) == (0.5, 1.0, 10.0, 1.5)


def test_what_answers_of_a_tree_share_was_sampled_once():
    tree = (answer((1, 2, 3), 0.0, 0, 0), answer((1, 2, 4, 5), 0.0, 2, 1))
    assert decoding.sampled_in(Group(task=Task(id="t"), episodes=tree)) == 3 + 2


def test_a_greedy_answer_is_measured_alone(context):
    found = asyncio.run(rest_rl.ValueDecoding("greedy", tasks=8).run(context("chain"))).metrics
    assert found["accuracy_before"] == found["accuracy_after"] and found["found"] == found["accuracy_after"]["mean"]


def test_settings_of_the_released_code():
    whole = rest_rl.build()
    found = flatten(whole.parts["rl"].runnable) | {
        f"v.{k}": x for k, x in flatten(whole.parts["values"].runnable).items()
    }
    expected = {
        "draw.sample.n": 5, "draw.sample.temperature": 0.7, "draw.spread": 0.05, "draw.good": 0.9, "draw.share": 0.5,
        "draw.decay": 0.95, "collect.links.0.sample.n": 8, "collect.links.0.sample.temperature": 0.7,
        "collect.links.1.reward.bonus": 1e-3, "learners.policy.objective.reduce": "tokens",
        "v.collect.links.0.n": 5, "v.collect.links.0.children": 5, "v.collect.links.0.select.c": 0.2,
        "v.collect.links.0.temperature": 0.7,
    }  # fmt: skip
    assert {k: found[k] for k in expected} == expected
    assert set(whole.parts) == {"rl", "values", "decode"}


def test_two_steps_of_both_stages(context):
    ctx = context("add(d=6)")
    recipe = make_smallest(rest_rl.rest_grpo())
    prepare(recipe, ctx)
    state, seen = start(0), []
    for _ in range(2):
        state, metrics = asyncio.run(step(recipe, ctx, state))
        seen.append(metrics)
    assert all(math.isfinite(m["loss"]) for m in seen) and state["draw"]["found"]["varied"] > 0
    ctx, values = context("chain"), rest_rl.value_model(openings=3, n=2)
    values = pl.vary(values, schedule=pl.Schedule(prompts=2))
    prepare(values, ctx)
    policy = ctx.model("policy").causal.state_dict()["model.embed_tokens.weight"].clone()
    _, metrics = asyncio.run(step(values, ctx, start(0)))
    assert metrics["squared_error"] > 0 and metrics["updates"] == 1
    assert (policy == ctx.model("policy").causal.state_dict()["model.embed_tokens.weight"]).all()

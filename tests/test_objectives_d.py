"""Consistency losses, replay, prefix values, step pairs and critiques: the papers' numbers, then where gradients flow."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fake import episode

from palaestra.context import Bench
from palaestra.credit.length import Shortest, shortness
from palaestra.credit.links import Center, Chain
from palaestra.credit.preferences import Compare, Rate
from palaestra.credit.rows import Imitate, Prefer
from palaestra.credit.soft import soft_mean
from palaestra.credit.steps import StepPairs, best_of, pit, progress, step_of_tokens, wrong_steps
from palaestra.credit.table import Table
from palaestra.curriculum.partial import Whole
from palaestra.curriculum.pool import Mixed
from palaestra.curriculum.prioritised import Prioritised, Successes, weights
from palaestra.curriculum.replay import Replay, draw_by_priority, group_by_prompt, trim_buffer
from palaestra.errors import Fault, UserError
from palaestra.explanation.method import explain
from palaestra.ledger.experiment import experiment_of
from palaestra.models.latent import LatentHead, straight_through
from palaestra.models.load import weights_sha256
from palaestra.objective.residual import Balance, PathConsistency, ValueConsistency
from palaestra.pipeline import Pipeline
from palaestra.recipes.objectives import agro, capo, cola, kimi_k1_5, oreo, pav, tba
from palaestra.recipes.objectives import incorrect_synthetic_data as isd
from palaestra.rewards.critic import Critique, ModelCritic, Oracle, read_steps
from palaestra.rollout.branch import Finished, Partial, PrefixValues, Rescue, prefix, sample_continuations
from palaestra.rollout.collect import Sample as Play
from palaestra.rollout.collect import Score, links
from palaestra.rollout.player import Continued, EnginePlayer
from palaestra.rollout.steps import answer_steps, line_ends
from palaestra.run.driver import prepare
from palaestra.schedule import Jump
from palaestra.step import Schedule, start, step
from palaestra.store.codec import decode, encode
from palaestra.types import (
    Ask,
    Completion,
    Episode,
    Example,
    Frame,
    Group,
    Message,
    Reward,
    Row,
    Sampling,
    Segment,
    Task,
    rng_of,
)
from palaestra.update import pack


def pair(reference="ref_logp"):
    """r = [1, 0], log-ratios of whole generations [.2, -.1] over two tokens each."""
    return [
        {"reward": 1, "logp": [-0.9, -0.9], reference: [-1.0, -1.0]},
        {"reward": 0, "logp": [-1.0, -1.1], reference: [-1.0, -1.0]},
    ]


def balance(objective, ratios, advantages, units=None, lengths=None):
    """Loss and d loss / d log pi per generation of given whole-row log-ratios, spread evenly over each row's tokens."""
    n = lengths or [1] * len(ratios)
    rows = [
        Example(
            row=Row(
                segments=(Segment(ids=(0,)), Segment(ids=(1,) * k, logp=(0.0,) * k, trained=True, policy="policy"))
            ),
            columns={"advantage": np.full(k + 1, a), "episode": i, "ref_logp": np.zeros(k + 1)},
            unit=f"group {u}",
        )
        for i, (a, k, u) in enumerate(zip(advantages, n, units or [0] * len(ratios), strict=True))
    ]
    batch = pack(rows, "policy", dtype=torch.float64)
    logp = torch.stack([h / k * batch.mask[i] for i, (h, k) in enumerate(zip(ratios, n, strict=True))]).requires_grad_()
    loss, metrics = objective({"logp": logp}, batch)
    return float(loss.detach()), torch.autograd.grad(loss, logp)[0][:, 1].tolist(), metrics


# ---- agro, tba, kimi-k1.5: one residual


def test_agro_reference_values():
    """d = [.9, .05], mean .475: L = .0903125, dL/dlogpi = -+.10625; on-policy adds (1/n)(d - mean)^2 / 2 = .045156."""
    loss, slope, _ = balance(Balance(beta=0.5), [0.2, -0.1], [0.5, -0.5])
    assert loss == pytest.approx(0.0903125)
    assert slope == pytest.approx([-0.10625, 0.10625])
    same, more, _ = balance(Balance(beta=0.5, on_policy=True), [0.2, -0.1], [0.5, -0.5])
    assert same == pytest.approx(loss)
    assert [b - a for a, b in zip(slope, more, strict=True)] == pytest.approx([0.045156, 0.045156], abs=1e-6)
    found = explain(agro.build(beta=0.5), [pair()])
    assert found["advantages"] == [[0.5, -0.5]]
    assert found["token_weights"][0] == [pytest.approx([0.10625] * 2), pytest.approx([-0.10625] * 2)]


@pytest.mark.parametrize(("unbiased", "n"), [(False, 7), (True, 6)])
def test_balance_keeps_the_digits_of_its_batch(unbiased, n):
    """Seven generations, whose share 1/7 (1/6) float32 rounds: sum delta^2 / 2 n in float64."""
    h, A = np.array([0.2, -0.1, 0.3, 0.0, -0.4, 0.5, 0.1]), np.array([0.5, -0.5, 0.3, -0.3, 0.1, -0.1, 0.0])
    expected = (((0.5 * (h - h.mean()) - A) ** 2).sum()) / (2 * n)
    found, _, _ = balance(Balance(beta=0.5, unbiased=unbiased), h.tolist(), A.tolist())
    assert found == pytest.approx(expected, rel=1e-14)


def test_the_mean_of_the_ratios_carries_no_gradient():
    """Advantages 1 and 0, which no mean was taken from: hbar = -.1, delta = [-.85, -.15], dL/dlogpi = beta delta / n."""
    loss, slope, _ = balance(Balance(beta=0.5), [0.2, -0.4], [1.0, 0.0])
    assert loss == pytest.approx((0.85**2 + 0.15**2) / 4)
    assert slope == pytest.approx([-0.2125, -0.0375])


def test_agro_vanishes_at_the_optimum():
    """beta = .5 and r = [1, 0] need log-ratios 2 apart."""
    loss, slope, _ = balance(Balance(beta=0.5), [1.0, -1.0], [0.5, -0.5])
    assert loss == pytest.approx(0) and slope == pytest.approx([0, 0])


def test_tba_is_agro_times_two_over_beta_squared():
    """z = [1.8, .1], log Z = .95: L = .7225 = 8 * .0903125."""
    loss, slope, _ = balance(Balance(beta=0.5, weight="balance"), [0.2, -0.1], [0.5, -0.5])
    assert loss == pytest.approx(0.7225)
    assert slope == pytest.approx([-0.10625 * 8, 0.10625 * 8])
    found = explain(tba.build(beta=0.5, beta_end=0.5), [pair()])["token_weights"][0]
    assert found == [pytest.approx([0.85] * 2), pytest.approx([-0.85] * 2)]


def test_tba_beta_falls():
    beta = tba.build().learners["policy"].objective.beta
    assert [beta.at(i) for i in (0, 250, 500, 900)] == pytest.approx([0.012, 0.008, 0.004, 0.004])


def test_kimi_reference_values():
    """tau = .5, log-ratios [.1, -.1] to the sampling policy: (r - rbar) - tau h = [.45, -.45], over k = 2."""
    group = [{"reward": r, "logp": [-1 + h], "behaviour_logp": [-1.0]} for r, h in ((1, 0.1), (0, -0.1))]
    found = explain(kimi_k1_5.build(tau=0.5), [group])["token_weights"][0]
    assert found == [pytest.approx([0.225]), pytest.approx([-0.225])]
    soft = explain(kimi_k1_5.build(tau=0.5, baseline="soft"), [group])["token_weights"][0]
    assert [2 * w[0] for w in soft] == pytest.approx([0.233110, -0.666890], abs=1e-6)
    assert soft_mean(np.array([1.0, 0.0]), np.array([0, 0]), 0.5)[0] == pytest.approx(0.716890, abs=1e-6)
    assert soft_mean(np.array([1.0, 0.0]), np.array([0, 0]), 1e4)[0] == pytest.approx(0.5, abs=1e-4)


def test_mirror_descent_is_agro_without_the_mean_of_the_ratios():
    """Equal where the log-ratios of a group have mean 0; apart by tau * hbar / n elsewhere. AGRO's slope is beta times."""
    for ratios in ([0.1, -0.1], [0.2, -0.1]):
        centred = balance(Balance(beta=0.5), ratios, [0.5, -0.5])[1]
        mirror = balance(Balance(beta=0.5, centred=False, weight="policy"), ratios, [0.5, -0.5])[1]
        apart = [m - c / 0.5 for m, c in zip(mirror, centred, strict=True)]
        assert apart == pytest.approx([0.5 * sum(ratios) / 2 / 2] * 2)


def test_at_the_reference_all_three_are_one_policy_gradient():
    """h = 0: slopes -A / n times beta, 1 and 2 / beta."""
    A, beta = [0.75, -0.25, -0.25, -0.25], 0.3
    for weight, factor in (("variance", beta), ("policy", 1.0), ("balance", 2 / beta)):
        slope = balance(Balance(beta=beta, weight=weight), [0.0] * 4, A)[1]
        assert slope == pytest.approx([-a / 4 * factor for a in A])


def test_prompts_weigh_the_same_whatever_their_groups_size():
    loss, slope, _ = balance(Balance(beta=0.5), [0.2, -0.1, 0.3], [0.5, -0.5, 0.0], units=[0, 0, 1])
    assert loss == pytest.approx(0.0903125 / 2)
    assert slope == pytest.approx([-0.10625 / 2, 0.10625 / 2, 0.0])  # a group of one has no residual


def test_a_unit_is_a_group():
    groups = [Group(task=Task(id=i), episodes=(episode((0,), (1,), 1.0), episode((0,), (2,), 0.0))) for i in "ab"]
    one, two = (Chain((Center(),), unit=unit)(groups, [], {})[0] for unit in ("group", "row"))
    assert [pack(found).unit_B.tolist() for found in (one, two)] == [[0, 0, 1, 1], [0, 1, 2, 3]]


def test_generations_are_whole_whatever_their_length():
    _, slope, _ = balance(Balance(beta=0.5), [0.2, -0.1], [0.5, -0.5], lengths=[3, 1])
    assert slope == pytest.approx([-0.10625, 0.10625])


def test_equal_rewards_pull_ratios_together():
    _, slope, _ = balance(Balance(beta=0.5), [0.2, -0.2], [0.0, 0.0])
    assert slope[0] > 0 > slope[1]


def test_a_reference_is_needed():
    for recipe in (agro.build(), tba.build()):
        found = explain(recipe, [[{"reward": 1}, {"reward": 0}]])
        assert found["advantages"] == [[0.5, -0.5]] and found["token_weights"] is None
        assert "'ref_logp'" in found["notes"][0]


# ---- kimi-k1.5: length, draws, partial rollouts, the optimiser's moments


def test_length_reward_reference_values():
    """lens [100, 200, 300]: lambda [.5, 0, -.5]; a wrong answer gets min(0, lambda); equal lengths nothing."""
    lengths = np.array([100, 200, 300])
    assert shortness(lengths, np.array([1, 1, 1], bool)) == pytest.approx([0.5, 0, -0.5])
    assert shortness(lengths, np.array([1, 1, 0], bool)) == pytest.approx([0.5, 0, -0.5])
    assert shortness(lengths, np.array([0, 1, 1], bool)) == pytest.approx([0, 0, -0.5])
    assert not shortness(np.array([7, 7]), np.array([1, 0], bool)).any()
    group = [{"reward": 1, "length": 1}, {"reward": 1, "length": 3}, {"reward": 0, "length": 2}]
    found = explain(kimi_k1_5.build(length=0.4, length_from=0), [group])["advantages"][0]
    assert found == pytest.approx([1.2 - 2 / 3, 0.8 - 2 / 3, -2 / 3])
    assert explain(kimi_k1_5.build(length=0.4, length_from=60), [group])["advantages"][0] == pytest.approx(
        [1 / 3, 1 / 3, -2 / 3]
    )


def test_long2short_takes_the_shortest_right_answer():
    """Lengths 2 and 4 right, 3 and 1 wrong: 4 >= 1.5 * 2 and the longer wrong one are rejected, the shorter wrong one is not."""
    group = [{"reward": r, "length": n, "ref_logp": [-1.0] * n} for r, n in ((1, 4), (1, 2), (0, 3), (0, 1))]
    imitated = explain(kimi_k1_5.build(long2short="rejection"), [group])["token_weights"][0]
    assert imitated == [[0.0] * 4, pytest.approx([0.5] * 2), [0.0] * 3, [0.0]]
    preferred = explain(kimi_k1_5.build(long2short="dpo"), [group])["advantages"][0]
    assert preferred == [-1.0, 1.0, -1.0, 0.0]
    near = [{"reward": 1, "length": n, "ref_logp": [-1.0] * n} for n in (2, 2)]  # neither is longer
    assert explain(kimi_k1_5.build(long2short="dpo"), [near])["advantages"] == [[0.0, 0.0]]


def test_length_weight_jumps():
    assert [Jump(0.0, 0.5, 20).at(i) for i in (0, 19, 20, 99)] == [0.0, 0.0, 0.5, 0.5]


def test_prioritised_weights():
    assert weights(np.array([0.9, 0.5, 0.0])) == pytest.approx([0.0625, 0.3125, 0.625])
    assert weights(np.array([1.0, 1.0])) == pytest.approx([0.5, 0.5])


def test_prioritised_draw_leaves_solved_problems_alone(context):
    ctx, draw = context(), Prioritised(problems=8)
    ids = [ctx.bench.tasks.task("train", i).id for i in range(8)]
    state = {"tried": dict.fromkeys(ids[:6], (4, 4))}
    found, state = draw(ctx, (0, "a"), 2, state)
    assert {t.id for t in found} == set(ids[6:])
    found, _ = draw(ctx, (0, "b"), 5, state)  # more than are unsolved: each again
    assert len(found) == 5 and {t.id for t in found} == set(ids[6:])
    assert [t.id for t in draw(ctx, (0, "a"), 2, state)[0]] == [t.id for t in draw(ctx, (0, "a"), 2, state)[0]]


def test_curriculum_opens_from_easy_to_hard(context):
    ctx, draw = context(), Prioritised(problems=32, rise=10)
    size = lambda tasks: max(len(t.prompt[0].content) for t in tasks)
    everything = [ctx.bench.tasks.task("train", i) for i in range(32)]
    first, _ = draw(ctx, (0,), 8, {})
    assert size(first) <= sorted(len(t.prompt[0].content) for t in everything)[7]
    assert size(draw(ctx, (0,), 32, {"draws": 10})[0]) == size(everything)


def test_successes_are_counted_and_kept():
    seen = [Group(task=Task(id="a"), episodes=(episode((0,), (1,), 1.0), episode((0,), (1,), 0.0)))]
    state = Successes()(seen, {}, {"cursor": 3})
    assert Successes()(seen, {}, state) == {"cursor": 3, "tried": {"a": (2, 4)}}
    assert decode(*encode(state)) == state


def test_partial_rollouts_go_on_where_they_stopped(context):
    """Capped at 6 tokens an iteration, a group ends as answers whose first tokens are those sampled first."""
    ctx = context()
    collect, pool = links(Partial(n=3, cap=6), Finished(Score())), Whole()
    group = Group(task=ctx.bench.tasks.task("train", 0))
    begun = asyncio.run(collect(ctx, (0, "x"), group))
    assert all(len(e.rows[0].segments[-1].ids) <= 6 for e in begun.episodes)
    running = [i for i, e in enumerate(begun.episodes) if e.status == "running"]
    assert running and all(begun.episodes[i].reward is None for i in running)
    ready, again, _ = asyncio.run(pool(ctx, [begun], {}))
    assert ready is None and again == [begun]
    ctx.at(None, 1)
    more = begun
    for n in range(20):
        more = asyncio.run(collect(ctx, (0, "y", n), more))
        if all(e.status != "running" for e in more.episodes):
            break
    for i in running:
        before, after = begun.episodes[i].rows[0].segments[-1], more.episodes[i].rows[0].segments[-1]
        assert after.ids[:6] == before.ids and after.logp[:6] == before.logp
        assert after.version == 0 and len(after.ids) <= ctx.bench.max_tokens  # the older version: no age is hidden
        assert after.text == ctx.decode(after.ids[:-1] if after.finish == "eos" else after.ids)
    assert all(e.reward is not None for e in more.episodes)


class Short:
    """Two turns of at most `most` tokens, paid by their tokens."""

    seats = ("policy",)
    most = 4

    def reset(self, task, key):
        return Frame(state=(), asks=(Ask(seat="policy", say=task.prompt, max_tokens=self.most),))

    def step(self, state, acts, key):
        state = (*state, acts[0].n_tokens)
        asks = self.reset(Task(id="t"), key).asks if len(state) < 2 else ()
        return Frame(state=state, asks=asks, pay={} if asks else {("policy", ""): float(sum(state))})


def turns_of(e):
    return [s for s in e.rows[0].segments if s.trained]


@pytest.mark.parametrize("cap", [2, 4, 8])
def test_a_turn_is_whole_where_the_world_ends_it(cap, context):
    """The world allows four tokens of the bench's 64: a rollout waits for the cap alone, and no turn outgrows the world."""
    ctx = context(bench=Bench(name="short", tasks=None, world=Short(), max_tokens=64))
    group = Group(task=Task(id="t", prompt=(Message(role="user", content="1+2+3+4+5"),)))
    played = []
    for n in range(6):
        group = asyncio.run(Partial(n=2, cap=cap)(ctx, (n,), group))
        played.append(group.episodes)
        assert all((e.reward is None) == (e.status == "running") for e in group.episodes)
    for e in group.episodes:
        assert e.status != "running" and len(turns_of(e)) == 2 and max(len(s.ids) for s in turns_of(e)) <= 4
        assert e.total == sum(len(s.ids) for s in turns_of(e))
    assert any(e.status == "running" for e in played[0]) == (cap < 4)
    assert max(len(s.ids) for e in group.episodes for s in turns_of(e)) == 4


def test_a_begun_answer_that_fills_the_context_ends(context):
    ctx = context()
    collect, group = Partial(n=2, cap=3), Group(task=ctx.bench.tasks.task("train", 0))
    begun = asyncio.run(collect(ctx, (0,), group))
    vars(ctx.model("policy"))["context"] = len(begun.episodes[0].rows[0].context())
    ended = asyncio.run(collect(ctx, (1,), begun)).episodes[0]
    assert ended.status == "truncated:length"
    assert turns_of(ended)[0].ids == turns_of(begun.episodes[0])[0].ids


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_a_partial_run_has_the_right_behaviour_log_probs(temperature, context):
    """Law 11 for rollouts that were put together from parts, weights unchanged."""
    ctx = context()
    collect = links(*(Partial(n=4, cap=cap, temperature=temperature) for cap in (5, 5, 64)))
    group = asyncio.run(collect(ctx, (0,), Group(task=ctx.bench.tasks.task("train", 1))))
    signals = ctx.measure([group], (("policy", "logp"),))[0]
    for e, rows in zip(group.episodes, signals, strict=True):
        view = e.rows[0].view()
        assert rows[0]["policy_logp"][view.trained_T] == pytest.approx(view.logp_T[view.trained_T], abs=1e-5)


def test_kimi_trains_with_everything_on(context, small):
    recipe = kimi_k1_5.build(length=0.5, length_from=0, sampling="curriculum", partial=12, baseline="soft")
    recipe = small(recipe, **{"collect.links.0.n": 2})
    ctx, state = context(), start(0)
    prepare(recipe, ctx)
    for _ in range(2):
        state, metrics = asyncio.run(step(recipe, ctx, state))
    assert np.isfinite(metrics["loss"]) and state["draw"]["tried"]
    assert encode(decode(*encode(state)))[0] == encode(state)[0]


def test_fresh_moments():
    """With AdamW a first step from fresh moments has the size of the rate, whatever the gradient before."""
    from fake import FakeContext

    from palaestra.step import Learner
    from palaestra.update import AdamW, Plain

    class Ctx(FakeContext):
        def optimiser(self, name, learner):
            if name not in self.optimisers:
                self.optimisers[name] = learner.optimiser.build(self.models[name].trainable())
            return self.optimisers[name]

    steps = []
    for fresh in (True, False):
        ctx = Ctx()
        learner = Learner(
            credit=None, objective=Balance(centred=False), update=Plain(fresh=fresh), optimiser=AdamW(lr=1e-2)
        )
        update = learner.update
        for A in ((99.0, -99.0), (-99.0, 99.0)):
            rows = [
                Example(
                    row=episode((1, 2), ids, 1.0).rows[0],
                    columns={"advantage": np.full(4, a), "episode": 0, "ref_logp": np.zeros(4)},
                )
                for ids, a in zip(((1, 2), (3, 4)), A, strict=True)
            ]
            before = ctx.models["policy"].U.detach().clone()
            update(ctx, "policy", learner, pack(rows, "policy", dtype=torch.float64), {})
        steps.append(float((ctx.models["policy"].U.detach() - before)[1].abs().max()))
    assert steps[0] == pytest.approx(1e-2, rel=1e-3) and steps[1] < 2e-3


# ---- replay


def grown(n, rewards=(0.0, 1.0)):
    return [
        Group(task=Task(id=str(i)), episodes=tuple(episode((0,), (i, k), r) for k, r in enumerate(rewards)))
        for i in range(n)
    ]


def test_replay_keeps_the_newest():
    buffer = trim_buffer([*grown(3), *grown(1), *grown(1)], prompts=2, capacity=3)
    assert [g.task.id for g in buffer] == ["2", "0", "0"]
    assert [len(g.episodes) for g in buffer] == [2, 1, 2]  # five of "0", the oldest two gone
    assert list(group_by_prompt(buffer)) == ["2", "0"]


def test_replay_takes_recent_or_good_samples(context):
    ctx = context()
    newest = asyncio.run(Replay(size=2, samples=2, recent=1.0)(ctx, grown(4), {}))[0]
    assert [g.task.id for g in newest] == ["3", "2"]
    episodes = [episode((0,), (k,), r) for k, r in enumerate([0.0, 0.0, 1.0, 0.0])]
    best = [draw_by_priority(episodes, 1, 50.0, rng_of((i,)))[0].total for i in range(50)]
    any_ = [draw_by_priority(episodes, 1, 0.0, rng_of((i,)))[0].total for i in range(400)]
    assert min(best) == 1.0 and np.mean(any_) == pytest.approx(0.25, abs=0.07)


def test_replay_waits_until_it_is_filled_and_survives_a_checkpoint(context):
    ctx, pool = context(), Replay(size=3, samples=2, fill=6, recent=0.5)
    ready, _, state = asyncio.run(pool(ctx, grown(2), {}))
    assert ready is None
    again = decode(*encode(state))
    assert again == state
    one, two = (asyncio.run(pool(ctx, grown(4)[2:], s))[0] for s in (state, again))
    assert one == two and len(one) == 3


def test_law_07_replay_gives_nothing_older_than_max_age(context, small):
    recipe = small(replace(tba.build(lag=0, recent=0.0), schedule=Schedule(prompts=2, max_age=1)))
    ctx, state = context(), start(0)
    prepare(recipe, ctx)
    for n in range(4):
        state, metrics = asyncio.run(step(recipe, ctx, state))
        ages = [n - e.oldest() for g in state["pool"]["buffer"] for e in g.episodes]
        assert max(ages) <= 1 and metrics["groups_ready"] == (2 if n == 0 else 4)


# ---- oreo


def test_oreo_reference_values():
    """beta .5, l = [.2, -.1], R = 1, V = [.6, .8]: residuals [-.35, -.25], losses .0925, dL_pi/dl = [-.175, -.125]."""
    group = [{"reward": 1, "logp": [-0.8, -1.1], "ref_logp": [-1, -1], "critic_value": [0.6, 0.8]}]
    recipe = oreo.build(beta=0.5, alpha=0.0)
    assert explain(recipe, [group])["token_weights"][0][0] == pytest.approx([0.175, 0.125])
    (policy, logp), (value, values) = consistent([0.2, -0.1], [0.6, 0.8], reward=1.0)
    assert [float(policy.detach()), float(value.detach())] == pytest.approx([0.0925, 0.0925])
    assert torch.autograd.grad(value, values)[0][0, 1:].tolist() == pytest.approx([-0.35, -0.25])  # 2 delta / T
    assert torch.autograd.grad(policy, logp)[0][0, 1:].tolist() == pytest.approx([-0.175, -0.125])


def test_oreo_by_response_is_trajectory_balance_with_a_learned_baseline():
    """One residual, V(s_0) - R + beta sum l = .6 - 1 + .05 = -.35; every token has the slope 2 beta delta."""
    loss, logp = consistent([0.2, -0.1], [0.6, 0.8], reward=1.0, level="response")[0]
    assert torch.autograd.grad(loss, logp)[0][0, 1:].tolist() == pytest.approx([-0.35, -0.35])
    balanced = balance(Balance(beta=0.5, centred=False), [0.1], [1 - 0.6])[1]  # the same residual under 1/2
    assert balanced == pytest.approx([-0.35 / 2])


def test_oreo_vanishes_where_the_value_is_right():
    """l = 0 everywhere: V* = R at every prefix."""
    (policy, logp), (value, _) = consistent([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], reward=1.0)
    assert float(policy.detach()) == float(value.detach()) == 0.0
    assert not torch.autograd.grad(policy, logp)[0].any()


def consistent(ratios, values, reward, level="token"):
    """The losses of the policy and of the value, each with what it moves, for beta = 1/2."""
    T = len(ratios)
    padded = lambda x: np.array([0.0, *x])
    row = Row(segments=(Segment(ids=(0,)), Segment(ids=(1,) * T, logp=(0.0,) * T, trained=True, policy="policy")))
    columns = {
        "reward": reward,
        "ref_logp": np.zeros(T + 1),
        "policy_logp": padded(ratios),
        "critic_value": padded(values),
    }
    batch = pack([Example(row=row, columns=columns)], "policy", torch.float64)
    logp, value = (torch.tensor(padded(x)[None], requires_grad=True) for x in (ratios, values))
    losses = (
        PathConsistency(beta=0.5, level=level)({"logp": logp}, batch)[0],
        ValueConsistency(beta=0.5)({"value": value}, batch)[0],
    )
    return (losses[0], logp), (losses[1], value)


def test_oreo_learns_from_the_start_models_answers(context, small):
    recipe, ctx, state = small(oreo.build()), context(), start(0)
    prepare(recipe, ctx)
    for _ in range(2):
        state, metrics = asyncio.run(step(recipe, ctx, state))
    episodes = [e for g in ctx.seen for e in g.episodes]
    assert all(e.oldest() is None for e in episodes)  # offline data have no age
    signals = ctx.measure(ctx.seen, (("ref", "logp"),))
    for g, group in enumerate(ctx.seen):
        for i, e in enumerate(group.episodes):
            view = e.rows[0].view("policy")
            assert signals[g][i][0]["ref_logp"][view.trained_T] == pytest.approx(view.logp_T[view.trained_T], abs=1e-5)
    assert metrics["critic/value_error"] > 0 and metrics["policy/policy_error"] > 0
    assert (
        weights_sha256(ctx.model("policy")) != weights_sha256(ctx.model("ref")) != weights_sha256(ctx.model("critic"))
    )


# ---- steps, and going on from their ends


def test_lines_are_steps():
    assert line_ends(list("a\nb\n")) == [2, 4]
    assert line_ends(list("\na\n\nb")) == [3, 5]
    assert line_ends(["a", "\n\n", "b"]) == [2, 3]
    assert line_ends(list("  \n")) == line_ends([]) == []


def test_steps_of_an_answer(context):
    ctx = context()
    e = answer(ctx, "1+2=3\n3*4=2\n= 2")
    found = answer_steps(e, ctx.decode)
    assert [s.text for s in found] == ["1+2=3", "3*4=2", "= 2"]
    view = e.rows[0].view()
    assert found[-1].token == len(view.ids_T) - 1  # the end token belongs to the last step
    assert ctx.decode(view.ids_T[found[0].token + 1 : found[1].token + 1]) == "3*4=2\n"
    assert [s.text for s in answer_steps(e, ctx.decode, most=2)] == ["1+2=3", "3*4=2\n= 2"]
    assert [s.kept for s in answer_steps(answer(ctx, "= 2\n \n"), ctx.decode)] == [7]  # all that was said
    hint = Segment(ids=(5, 6), hidden=True)  # no token of the view
    hinted = replace(e, rows=(replace(e.rows[0], segments=(hint, *e.rows[0].segments)),))
    assert answer_steps(hinted, ctx.decode) == found


def answer(ctx, text, index=0):
    """A finished episode as if sampled: known log-probs, version 0."""
    from palaestra.rollout.recorded import recorded_episode

    task = ctx.bench.tasks.task("train", index)
    e = recorded_episode(ctx, "policy", task.prompt, text, ctx.bench.tasks.check(text, task))
    said = e.rows[0].segments[-1]
    logp = tuple(-1.0 - n / 64 for n in range(len(said.ids)))
    said = replace(said, logp=logp, author="policy", version=0)
    return replace(e, rows=(replace(e.rows[0], segments=(*e.rows[0].segments[:-1], said)),))


def test_continuations_begin_with_the_prefix(context):
    ctx = context()
    e = answer(ctx, "\n".join([*ctx.bench.tasks.steps(ctx.bench.tasks.task("train", 0)), "= 7"]))
    first = answer_steps(e, ctx.decode)[0]
    task = ctx.bench.tasks.task("train", 0)
    tried = asyncio.run(sample_continuations(ctx, (0,), Group(task=task), prefix(e, first.turn, first.kept), 3))
    logp = e.rows[0].segments[-1].logp[: first.kept]
    for t in tried:
        assert t.rows[0].segments[-1].logp[: first.kept] == logp and t.rows[0].segments[-1].logp[first.kept :] != logp
        assert t.text.startswith(first.text + "\n") and t.reward is not None
        assert (
            t.rows[0].context()[: len(e.rows[0].segments[0].ids) + first.kept] == e.rows[0].context()[: first.token + 1]
        )


def test_a_prefix_is_what_was_said_up_to_there():
    """Two rows of turns 0 and 2, 1 and 3: a prefix in turn 2 holds turns 0 and 1 and nothing of turn 3."""
    said = lambda turn: Segment(
        ids=tuple(10 * turn + k for k in range(3)), logp=(-turn, -turn - 0.25, -turn - 0.5), turn=turn, finish="eos"
    )
    heard = lambda turn: Segment(ids=(90 + turn,), turn=turn)
    first, second = (Row(segments=tuple(f(t) for t in turns for f in (heard, said))) for turns in ((0, 2), (1, 3)))
    found = prefix(Episode(rows=(first, second)), 2, 2)
    broken = replace(said(2), ids=(20, 21), logp=(-2, -2.25), finish="")
    assert sorted(found.said, key=lambda s: s.turn) == [said(0), said(1), broken]
    assert found.context == (90, 0, 1, 2, 92, 20, 21)


def test_a_continuation_from_the_end_of_a_turn_goes_on_in_the_next(context):
    """Nothing is sampled after an end token."""
    ctx = context(bench=Bench(name="short", tasks=None, world=Short(), max_tokens=64))
    ctx.bench.world.most = 12
    group = Group(task=Task(id="t", prompt=(Message(role="user", content="1+2 mod 10"),)))
    (e,) = asyncio.run(Play(n=1)(ctx, (0,), group)).episodes
    first, _ = turns_of(e)
    assert first.finish == "eos"
    for t in asyncio.run(sample_continuations(ctx, (0,), group, prefix(e, first.turn, len(first.ids)), 3)):
        assert turns_of(t)[0] == first and len(turns_of(t)) == 2


def test_a_stop_string_may_begin_in_what_was_said_before():
    """Two tokens were said, the engine looks only at the five after them; the first place where a stop string ends counts."""
    spelt = lambda ids: "".join(map(chr, ids))
    more, begun = tuple(map(ord, "= 7= ")), Segment(ids=tuple(map(ord, "x\n")), logp=(-6.0, -7.0), turn=3)

    def act(finish, *stop):
        async def generate(prompt, sampling, key):
            return Completion(ids=more, logp=(-1.0, -2.0, -3.0, -4.0, -5.0), text=spelt(more), cut=5, finish=finish)

        engine = SimpleNamespace(dialect=SimpleNamespace(decode=spelt), generate=generate)
        player = Continued(player=EnginePlayer(engine=engine, sampling=Sampling()), said=(begun,), cap=5)
        return asyncio.run(player.act(Row(), (), Ask(seat="policy", stop=stop), ("k", 3)))

    for finish in ("stop", "length", "eos"):
        found = act(finish, "\n= ", "7=")
        assert (found.text, found.cut, found.finish) == ("x\n= ", 4, "stop")
        assert (spelt(found.ids), found.logp) == ("x\n= ", (-6.0, -7.0, -1.0, -2.0))
    found = act("stop", "7= ")
    assert (found.text, found.cut, found.finish) == ("x\n= 7= ", 7, "stop")
    found = act("length", "8")
    assert (found.text, found.cut, found.finish, len(found.logp)) == ("x\n= 7= ", 7, "", 7)


def test_prefix_values_know_a_hopeless_prefix_from_a_sure_one(context):
    ctx = context()
    task = ctx.bench.tasks.task("train", 0)
    work = ctx.bench.tasks.steps(task)
    right, lost = answer(ctx, "\n".join([*work, f"= {task.answer}"])), answer(ctx, "\n".join([*work, "= 99"]))
    group = asyncio.run(PrefixValues(n=4)(ctx, (0,), Group(task=task, episodes=(right, lost))))
    a, b = (e.facts["prefix_values"] for e in group.episodes)
    assert len(a) == len(work) + 2 == len(b) and a[0] == b[0] == 0.5
    assert a[1:-1] == b[1:-1]  # shared prefixes are estimated once
    assert a[-1] == 1.0 and b[-1] == 0.0
    assert a[-2] > 0.5  # the working is done: the answer can be read off
    only = asyncio.run(PrefixValues(n=1, wrong_only=True)(ctx, (0,), Group(task=task, episodes=(right, lost))))
    assert ["prefix_values" in e.facts for e in only.episodes] == [False, True]
    assert only.episodes[1].facts["prefix_values"][0] == 0.5  # of the group, not of those that get values


def test_a_failing_judge_makes_an_error_not_a_value(context):
    async def broken(ctx, group):
        raise Fault("judge", "gone")

    ctx = context()
    e = answer(ctx, "1+2=3\n= 2")
    ctx.bench = replace(ctx.bench, reward=broken)
    group = asyncio.run(PrefixValues(n=2)(ctx, (0,), Group(task=ctx.bench.tasks.task("train", 0), episodes=(e,))))
    assert group.episodes[0].status == "error:judge" and "prefix_values" not in group.episodes[0].facts


def test_a_world_that_does_not_repeat_itself_is_refused(context):
    from palaestra.types import Message

    ctx = context()
    e, other = answer(ctx, "1+2=3\n= 2"), ctx.bench.tasks.task("train", 0)
    strayed = replace(other, prompt=(Message(role="user", content="2+2 mod 10"),))
    with pytest.raises(UserError, match="does not repeat itself"):
        asyncio.run(sample_continuations(ctx, (0,), Group(task=strayed), prefix(e, 0, 4), 1))


# ---- pav


def test_pav_reference_values():
    """Q .1 -> .2: best of 4 goes .3439 -> .5904, A = .2465; at .9 -> .95 nothing is left to gain."""
    assert best_of(np.array([0.1, 0.2, 0.9]), 4) == pytest.approx([0.3439, 0.5904, 0.9999])
    assert progress([0.1, 0.2], k=1) == pytest.approx([0.1])
    assert progress([0.1, 0.2], k=4) == pytest.approx([0.2465])
    assert progress([0.9, 0.95], k=4) == pytest.approx([9.4e-5], abs=1e-6)
    for alpha, effective in ((0.5, 0.32325), (3, 0.9395), (5, 1.4325)):
        assert 0.2 + alpha * progress([0.1, 0.2], k=4)[0] == pytest.approx(effective)
    assert 0.2 + 3 * progress([0.4, 0.55])[0] == pytest.approx(0.65)
    assert progress([0.99, 0.99])[0] == 0 and progress([0.0, 0.0], k=4)[0] == 0


def test_pav_credits_each_step_with_its_own_progress():
    group = [
        {"reward": 1, "turn_rewards": [0, 1], "turn_lengths": [1, 2], "prefix_values": [0.1, 0.2, 1.0]},
        {"reward": 0, "turn_rewards": [0, 0], "turn_lengths": [1, 1], "prefix_values": [0.1, 0.1, 0.0]},
    ]
    found = explain(pav.build(alpha=3.0), [group])
    last = 1 - 0.5904
    assert found["advantages"][0][0] == pytest.approx([0.5 + 3 * 0.2465, 0.5 + 3 * last, 0.5 + 3 * last])
    assert found["advantages"][0][1] == pytest.approx([-0.5, -0.5 - 3 * 0.3439])
    assert found["token_weights"][0][1] == pytest.approx([-0.125, (-0.5 - 3 * 0.3439) / 4])
    with pytest.raises(UserError, match="prefix_values"):
        explain(pav.build(), [[{"reward": 1}]])
    with pytest.raises(UserError, match="3 prefix_values, not 2"):
        explain(pav.build(), [[{"turn_rewards": [0, 1], "turn_lengths": [1, 1], "prefix_values": [0.1, 0.2]}]])


# ---- incorrect-synthetic-data


def test_pit_reference_values():
    """[.5, .75, .25, .25]: A = [.25, -.5, 0]; the lowest value is first reached at the second step, K or no K."""
    rates = [0.5, 0.75, 0.25, 0.25]
    assert progress(rates) == pytest.approx([0.25, -0.5, 0])
    assert best_of(np.array(rates), 5) == pytest.approx([0.968750, 0.999023, 0.762695, 0.762695], abs=1e-6)
    assert progress(rates, k=5) == pytest.approx([0.030273, -0.236328, 0], abs=1e-6)
    assert pit(rates) == pit(best_of(np.array(rates), 5).tolist()) == 1


def wrong_and_right(h=0.0):
    values = [0.5, 0.75, 0.25, 0.25]
    wrong = {"reward": 0, "turn_rewards": [0, 0, 0], "turn_lengths": [1, 1, 1], "prefix_values": values}
    return [
        {"reward": 1, "length": 1, "ref_logp": [-1.0], "logp": [-1 + (0.5 if h else 0)]},
        wrong | {"ref_logp": [-1.0] * 3, "logp": [-1 - 0.15 * bool(h), -1 - 0.15 * bool(h), -1 + 7.0 * bool(h)]},
    ]


def test_per_step_negatives_end_at_the_pit():
    """Log-ratios +.5 and -.3 (steps 1 and 2; the third does not count), beta .1: slope beta sigmoid(-.08)."""
    found = explain(isd.build(), [wrong_and_right(h=1)])["token_weights"][0]
    slope = 0.1 / (1 + np.exp(0.08))
    assert found[0] == pytest.approx([slope]) and found[1] == pytest.approx([-slope, -slope, 0])
    whole = explain(isd.build(form="whole"), [wrong_and_right()])["token_weights"][0]
    assert whole[1] == pytest.approx([-0.05] * 3)


def test_no_pair_without_a_right_or_a_wrong_answer():
    for only in (0, 1):
        found = explain(isd.build(), [[wrong_and_right()[only]]])
        assert not any(any(w) for w in found["token_weights"][0])
    with pytest.raises(UserError, match="prefix_values"):
        explain(isd.build(), [[{"reward": r, "ref_logp": [-1.0] * 4} for r in (1, 0)]])


@pytest.mark.parametrize("credit", [Prefer(), Compare(), Rate(), StepPairs(), Shortest(pairs=True)])
def test_a_muted_episode_is_not_preferred_to_or_against(credit):
    """Of a right and a wrong answer either is muted: no pair has it, and it is not rated."""
    for muted in (0, 1):
        values = {"prefix_values": (0.5, 0.25)}
        both = tuple(episode((0,), (1, 2)[: 2 - r], float(r), muted=r == muted, facts=values) for r in (0, 1))
        found, _ = credit([Group(task=Task(id="t"), episodes=both)], [[[{}], [{}]]], {})
        rated = [float(1 - muted)] if isinstance(credit, Rate) else []
        assert [e.columns.get("target_total") for e in found] == rated


def test_errors_and_muted_episodes_are_not_imitated():
    told = episode((0,), (1, 2), 1.0), episode((0,), (1, 3), 1.0, muted=True), Episode(status="error:x")
    found, _ = Imitate()([Group(task=Task(id="t"), episodes=told)], [[[{}], [{}], []]], {})
    assert [e.row for e in found] == list(told[0].rows)


@pytest.mark.parametrize("credit", [Prefer(), Compare(), StepPairs(), StepPairs(form="whole"), Shortest(pairs=True)])
def test_a_pair_is_of_one_task(credit):
    """A right answer to one problem and a wrong one to another make none."""
    values = {"prefix_values": (0.5, 0.25)}
    right, wrong = (episode((0,), (1, 2)[: 2 - r], float(r), facts=values) for r in (1, 0))
    both = lambda *groups: [Group(task=Task(id=str(i)), episodes=g) for i, g in enumerate(groups)]
    assert credit(both((right,), (wrong,)), [[[{}]]] * 2, {})[0] == []
    found, _ = credit(both((right, wrong), (right, wrong)), [[[{}], [{}]]] * 2, {})
    assert len(found) == 4 and len({e.unit for e in found}) == 2


def test_a_step_ends_with_the_token_that_is_named():
    """Two rows; the last step goes on to the end, and that of one row does not reach into the next."""
    said = lambda n: Segment(ids=(1,) * n, trained=True, logp=(0.0,) * n)
    rows = tuple(Row(segments=(Segment(ids=(0,)), said(n))) for n in (4, 3))
    ends = {"step_ends": ((0, 2), (0, 4), (1, 2))}
    e = Episode(rows=rows, reward=Reward(total=1.0), status="finished", facts=ends)
    table = Table([Group(task=Task(id="t"), episodes=(e,))], [], {})
    assert step_of_tokens(table, 0).tolist() == [0, 0, 1, 1, 2, 2, 2]


async def nothing(ctx, group):
    return [Reward(total=0.0)] * len(group.episodes)


def test_branches_share_their_prefix_with_the_wrong_answer(context):
    """The chosen row is a right continuation from before the pit; gradients of what both rows share cancel."""
    ctx = context()
    task = ctx.bench.tasks.task("train", 0)
    work = ctx.bench.tasks.steps(task)
    lost = answer(ctx, "\n".join([*work, "= 99"]))
    collect = links(PrefixValues(n=3, wrong_only=True), Rescue(n=6))
    group = asyncio.run(collect(ctx, (0,), Group(task=task, episodes=(lost,))))
    assert len(group.episodes) == 2
    branch = group.episodes[1]
    at = branch.origin.turn
    assert branch.muted and branch.total == 1 and branch.origin.parent == 0
    ends = group.episodes[0].facts["step_ends"]
    shared = ends[at - 1][1] + 1
    assert branch.rows[0].context()[:shared] == lost.rows[0].context()[:shared]
    ctx.bench = replace(ctx.bench, reward=nothing)
    assert asyncio.run(Rescue(n=2)(ctx, (1,), replace(group, episodes=group.episodes[:1]))).episodes[1:] == ()
    pairs, _ = StepPairs("branch")([group], [[[{}], [{}]]], {})
    assert [e.columns["sign"] for e in pairs] == [1.0, -1.0] and len({e.unit for e in pairs}) == 1
    assert [e.columns["late"] for e in pairs] == [0.0, float(at + 1 < len(ends))]
    assert not StepPairs("root")([group], [[[{}], [{}]]], {})[0]  # a branch is no answer of its own


# ---- capo

CRITIQUES = [{1, 3}, {1, 2, 3}, {1, 3}, {2, 3}]


def test_votes_reference_values():
    assert wrong_steps(CRITIQUES, "union") == {1, 2, 3}
    assert wrong_steps(CRITIQUES, "intersection") == {3}
    assert wrong_steps(CRITIQUES, "majority") == {1, 3}
    assert wrong_steps(CRITIQUES, "half") == {1, 2, 3}
    assert wrong_steps([[0], [1], [0]], "half") == wrong_steps([[0], [1], [0]], "majority") == {0}
    assert (
        wrong_steps([], "union")
        == wrong_steps([], "intersection")
        == wrong_steps([[], []], "majority")
        == wrong_steps([], "half")
        == set()
    )


def test_capo_reference_values():
    """R = [2, 2, 1, 1] and [0, -1, -1]: mean .571429, std 1.178030 over all seven tokens."""
    one = {"reward": 1, "turn_rewards": [0, 1], "turn_lengths": [2, 2], "critiques": [[1]] * 4}
    two = {"reward": 0, "turn_rewards": [0, 0], "turn_lengths": [1, 2], "critiques": [[1]] * 4}
    found = explain(capo.build(), [[one, two]])["advantages"][0]
    assert found[0] == pytest.approx([1.212678, 1.212678, 0.363803, 0.363803], abs=2e-6)
    assert found[1] == pytest.approx([-0.485071, -1.333946, -1.333946], abs=2e-6)
    clean = [{"reward": 0, "length": 2, "critiques": []}] * 2
    assert explain(capo.build(), [clean])["advantages"] == [[[0.0] * 2, [0.0] * 2]]
    with pytest.raises(UserError, match="critiques"):
        explain(capo.build(), [[{"reward": 1}]])


def test_a_right_answer_with_a_bad_step_beats_a_clean_wrong_one():
    """C > P; with C < P it is the other way round."""
    group = [{"reward": 1, "length": 2, "critiques": [[0]]}, {"reward": 0, "length": 2, "critiques": [[]]}]
    good, bad = explain(capo.build(), [group])["advantages"][0]
    assert good > bad
    good, bad = explain(capo.build(right=1.0, wrong=2.0), [group])["advantages"][0]
    assert good < bad


def test_the_oracle_finds_the_first_wrong_line(context):
    ctx = context()
    task = ctx.bench.tasks.task("train", 0)
    work = ctx.bench.tasks.steps(task)
    lines = [*work[:-1], work[-1] + "1", "= 3"]
    judge = lambda critic, key=(0,): asyncio.run(critic(ctx, key, task, lines))
    assert judge(Oracle()) == {len(work) - 1}
    assert judge(Oracle(noise=1.0)) == set(range(len(lines))) - {len(work) - 1}
    turned = [judge(Oracle(noise=0.3), (i,)) ^ {len(work) - 1} for i in range(300)]
    assert np.mean([len(t) for t in turned]) == pytest.approx(0.3 * len(lines), rel=0.2)


def test_every_critique_has_its_own_noise(context):
    ctx = context()
    group = Group(task=ctx.bench.tasks.task("train", 0), episodes=(answer(ctx, "1\n2\n3\n= 2"),) * 2)
    found = asyncio.run(Critique(Oracle(noise=0.5), n=8)(ctx, (0,), group)).episodes
    assert all(len(set(e.facts["critiques"])) > 1 for e in found)
    assert found[0].facts["critiques"] != found[1].facts["critiques"]


def test_the_oracle_of_a_mixture_is_the_tasks_own(context):
    ctx = context("chain+add")
    task = next(t for i in range(20) if (t := ctx.bench.tasks.task("train", i)).domain == "add")
    lines = [*task.meta["steps"], f"= {task.answer}"]
    assert asyncio.run(Oracle()(ctx, (0,), task, lines)) == frozenset()
    assert asyncio.run(Oracle()(ctx, (0,), task, ["1+1=3", *lines[1:]])) == {0}


def test_what_a_model_critic_says_is_read_strictly():
    assert read_steps("I see.\nwrong steps: 2, 4", 4) == {1, 3}
    assert read_steps("Wrong step: 1.", 3) == {0}
    assert read_steps("wrong steps: none", 3) == read_steps("all is well", 3) == read_steps("", 3) == frozenset()
    assert read_steps("wrong steps: 0, 3, 9", 3) == {2}  # the others do not exist


def test_a_model_critic_and_a_broken_one(context):
    ctx = context()
    task = ctx.bench.tasks.task("train", 0)
    group = Group(task=task, episodes=(answer(ctx, "1+2=3\n= 2"),))
    found = asyncio.run(Critique(ModelCritic(max_tokens=4), n=2)(ctx, (0,), group)).episodes[0]
    assert len(found.facts["critiques"]) == 2 and len(found.facts["step_ends"]) == 2
    assert found.rows == group.episodes[0].rows  # the critic's words are not in the context
    broken = asyncio.run(Critique(Broken(), n=2)(ctx, (0,), group)).episodes[0]
    assert broken.status == "error:critic" and "critiques" not in broken.facts


class Broken:
    async def __call__(self, ctx, key, task, lines):
        raise Fault("critic", "no answer")


# ---- cola


def test_straight_through_reference_values():
    """(.2, .5, .3): one-hot (0, 1, 0) forward, the gradient of the softmax backward."""
    p = torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64)
    w = torch.tensor([[1.0, 2.0, 4.0]], dtype=torch.float64)
    slopes = []
    for f in (straight_through, lambda x: x.softmax(-1)):
        logits = p.log().requires_grad_()
        slopes.append(torch.autograd.grad((f(logits) * w).sum(), logits)[0])
    assert straight_through(p.log()).tolist() == [pytest.approx([0, 1, 0])]
    assert torch.allclose(*slopes) and slopes[0].abs().sum() > 0


def test_cola_clips_the_ratio_of_codes():
    """Policy (.7, .3) against (.5, .5): ratio 1.4, beyond 1.2 at A = 1.5; one of four right, ddof 1."""
    old, new = [float(np.log(0.5))], [float(np.log(0.7))]
    group = [{"reward": r, "behaviour_logp": old, "logp": new} for r in (1, 0, 0, 0)]
    found = explain(cola.build(), [group])
    assert found["advantages"][0] == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)
    assert found["token_weights"][0][0] == [0.0]
    assert found["token_weights"][0][1] == pytest.approx([-0.5 * 1.4 / 4], abs=1e-5)


@pytest.fixture
def latent():
    """A head over 3 codes whose world and policy are random, and a vocabulary of 5."""
    head = LatentHead(3, 4, 5, torch.float64)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in (head.shift.weight, head.policy.weight):
            p.copy_(torch.randn(p.shape, generator=generator, dtype=torch.float64))
    words = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    return head, lambda h: h @ words.T, torch.randn(6, 4, generator=generator, dtype=torch.float64)


def test_tokens_by_way_of_codes_have_the_gradient_of_the_codes(latent):
    """sum_x p(x) = 1; grad log p(x) = sum_a p(a | x) grad log pi(a); only the policy over codes gets one."""
    head, words, hidden = latent
    logp = head.logits(hidden, words).double()
    assert logp.exp().sum(-1).tolist() == pytest.approx([1.0] * 6)
    token = torch.tensor([0, 1, 2, 3, 4, 0])
    grads = torch.autograd.grad(logp.gather(1, token[:, None]).sum(), [*head.parameters()], allow_unused=True)
    named = dict(zip([n for n, _ in head.named_parameters()], grads, strict=True))
    moved = {n for n, g in named.items() if g is not None}
    assert moved == {"think.weight", "think.bias", "policy.weight", "policy.bias"}
    with torch.no_grad():
        world = torch.stack([words(head.merge(hidden, c.expand(6, -1))).log_softmax(-1) for c in head.code], 1)
        joint = head.choose(hidden) + world[torch.arange(6), :, token]
    posterior = (joint - joint.logsumexp(-1, keepdim=True)).exp()
    again = torch.autograd.grad((posterior * head.choose(hidden)).sum(), head.policy.weight)[0]
    assert torch.allclose(again, named["policy.weight"], atol=1e-6)


def test_codes_that_steer_and_codes_in_use(latent):
    """By the definitions, code by code; alike codes steer nothing, a uniform policy uses all of them."""
    head, words, hidden = latent
    p = torch.stack([words(head.merge(hidden, c.expand(6, -1))).softmax(-1) for c in head.code])
    apart = [0.5 * (each - p.mean(0)).abs().sum(-1) for each in p]
    assert head.steering(hidden, words).tolist() == pytest.approx((sum(apart) / 3).tolist(), abs=1e-6)
    mean = head.choose(hidden).exp().mean(0)
    assert head.usage(hidden).mean().item() == pytest.approx(-(mean * mean.log()).sum().item())
    with torch.no_grad():
        head.shift.weight.zero_()
        head.shift.bias.zero_()
        head.policy.weight.zero_()
        head.policy.bias.zero_()
    assert head.steering(hidden, words).tolist() == pytest.approx([0.0] * 6, abs=1e-6)
    assert head.usage(hidden).tolist() == pytest.approx([float(np.log(3))] * 6)


def test_construction_leaves_no_gradient_to_the_label(latent):
    """The world trains the inverse model; the cloned policy does not."""
    head, words, hidden = latent
    hidden.requires_grad_()
    cost = head.construct(hidden, torch.tensor([0, 1, 2, 3, 4, 0]), words)
    grads = dict(
        zip([n for n, _ in head.named_parameters()], torch.autograd.grad(cost.sum(), [*head.parameters()]), strict=True)
    )
    assert all(g.abs().sum() > 0 for g in grads.values())
    with torch.no_grad():
        head.shift.weight.zero_()  # a world that does not look at codes
    cost = head.construct(hidden, torch.tensor([0, 1, 2, 3, 4, 0]), words)
    inverse, trunk = torch.autograd.grad(cost.sum(), [head.seen, hidden], allow_unused=True)
    assert not inverse.any() and trunk is None


def test_a_latent_head_starts_as_the_model_and_only_it_moves(context, small, tmp_path):
    from palaestra.models.load import load, save

    ctx, state = context(), start(0)
    recipe = small(cola.build(construct=1), **{"collect.then.links.0.n": 4, "collect.first.links.0.n": 4})
    hidden = torch.randn(3, ctx.model("policy").width)
    plain = ctx.model("policy").logits(hidden).log_softmax(-1)
    trunk = [p.clone() for p in ctx.model("policy").module.parameters()]
    prepare(recipe, ctx)
    model = ctx.model("policy")
    assert torch.allclose(model.logits(hidden), plain, atol=1e-5)
    state, metrics = asyncio.run(step(recipe, ctx, state))
    assert metrics["coded_nll"] > 0
    before = {n: p.clone() for n, p in model.heads["latent-16"].named_parameters()}
    assert before["shift.weight"].any()
    state, metrics = asyncio.run(step(recipe, ctx, state))
    changed = {n for n, p in model.heads["latent-16"].named_parameters() if not torch.equal(p, before[n])}
    assert "coded_nll" not in metrics and changed <= {"think.weight", "think.bias", "policy.weight", "policy.bias"}
    assert all(torch.equal(a, b) for a, b in zip(trunk, model.module.parameters(), strict=True))
    save(model, tmp_path)
    again = load(str(tmp_path))
    assert torch.equal(again.logits(hidden), model.logits(hidden))
    assert set(again.named_trainable()) == set(model.named_trainable()) == {f"head.latent-16.{n}" for n in before}


def test_a_latent_models_samples_have_its_log_probs(context):
    """Law 11 by way of codes."""
    ctx = context()
    head = ctx.model("policy").add_head("latent-8")
    with torch.no_grad():
        head.shift.weight.normal_(std=0.05, generator=torch.Generator().manual_seed(0))
        head.policy.weight.normal_(std=0.5, generator=torch.Generator().manual_seed(1))
    group = asyncio.run(links(Play(n=4))(ctx, (0,), Group(task=ctx.bench.tasks.task("train", 0))))
    signals = ctx.measure([group], (("policy", "logp"),))[0]
    for e, rows in zip(group.episodes, signals, strict=True):
        view = e.rows[0].view()
        assert rows[0]["policy_logp"][view.trained_T] == pytest.approx(view.logp_T[view.trained_T], abs=1e-5)


# ---- all


@pytest.mark.parametrize(
    "build", [capo.build, pav.build, lambda: kimi_k1_5.build(length=0.5)], ids=["capo", "pav", "kimi"]
)
def test_what_learns_from_equal_rewards_refuses_a_gate(build):
    with pytest.raises(UserError, match="learns from groups whose rewards are all equal"):
        replace(build(), pool=Mixed(size=2))
    assert replace(kimi_k1_5.build(), pool=Mixed(size=2)).pool == Mixed(size=2)


ARMS = [
    (method, name, recipe)
    for method in ("agro", "capo", "cola", "incorrect-synthetic-data", "kimi-k1.5", "oreo", "pav", "tba")
    for name, arm in experiment_of(method).arms.items()
    for recipe in ([part.runnable for part in arm.parts.values()] if isinstance(arm, Pipeline) else [arm])
]


@pytest.mark.slow
@pytest.mark.parametrize("arm", [pytest.param(a, id=f"{i}:{n}") for i, n, a in ARMS])
def test_every_arm_runs(arm, context, small):
    recipe, ctx, state = small(arm), context(), start(0)
    prepare(recipe, ctx)
    for _ in range(2):
        state, metrics = asyncio.run(step(recipe, ctx, state))
    assert metrics["episodes"] > 0 and np.isfinite(metrics.get("loss", 0.0))


@pytest.mark.slow
@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param(tba.build(lag=1, recent=0.5), id="tba"),
        pytest.param(kimi_k1_5.build(sampling="curriculum", partial=10, length=0.5, length_from=1), id="kimi-k1.5"),
        pytest.param(cola.build(construct=2), id="cola"),
        pytest.param(oreo.build(), id="oreo"),
    ],
)
def test_law_06_buffers_rates_and_heads_survive_a_stop(recipe, context, small, tmp_path):
    """Four steps at once, or two and two more from the checkpoint of a process that is gone: the same weights."""
    found = []
    for stops in ([4], [2, 4]):
        out = tmp_path / str(len(stops))
        for last in stops:
            out.mkdir(exist_ok=True)
            found.append(asyncio.run(small(recipe).run(context(out=out, steps=last))).metrics["weights_sha256"])
    assert found[0] == found[2] != found[1]

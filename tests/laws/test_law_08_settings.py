"""Law 8: an unknown configuration key is an error with a suggestion, wherever it is given."""

import asyncio
from dataclasses import dataclass, replace

import pytest
from palaestra.credit.links import Center, Scale
from palaestra.credit.preferences import Compare
from palaestra.credit.rows import Imitate
from palaestra.credit.turns import Blend
from palaestra.errors import UserError
from palaestra.method import Learner, Unchanged
from palaestra.objective.reward_model import BradleyTerry
from palaestra.pipeline import Part, Pipeline
from palaestra.recipes.base import grpo, ppo
from palaestra.rollout.collect import MuteTruncated, Sample, links
from palaestra.rollout.recorded import Recorded
from palaestra.run.benches import bench_by_name
from palaestra.run.driver import prepare
from palaestra.schedule import Sigmoid, read, resolve
from palaestra.settings.fields import Settings
from palaestra.settings.overrides import build, merge
from palaestra.step import start, step
from palaestra.types import Reward
from palaestra.values import brief, digest, find, flatten, override, vary, walk


@dataclass(frozen=True)
class Inner:
    n: int


@dataclass(frozen=True)
class Outer:
    inner: Inner
    n: int


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("objective.hgih", "objective.high"),
        ("optimizer.lr", "optimiser.lr"),
        ("schedule.step", "schedule.steps"),
        ("collect.links.0.tempreature", "temperature"),
    ],
)
def test_unknown_field(path, says):
    with pytest.raises(UserError, match=rf"(did you mean .*|write ){says}"):
        override(grpo.build(), path, 1)


UNKNOWN = {
    "objective.hihg": r"policy\.objective\.parts\.0\.high",
    "objective.tei": r"reward\.objective\.tie",
    "objektive.hihg": r"policy\.objective\.parts\.0\.high",
}


def test_an_unknown_field_of_a_part_is_known_by_its_last_name():
    reward = Learner(credit=Compare(), objective=BradleyTerry(center=0.01), heads=("score",))
    model = vary(grpo.build(), collect=links(Recorded()), learners={"reward": reward})
    two = Pipeline(parts={"rm": Part(model), "rl": Part(ppo.build(kl=0.1))})
    for path, says in UNKNOWN.items():
        with pytest.raises(UserError, match=rf"did you mean (\w+\.)*{says}\?$"):
            override(two, path, 1)


def test_unknown_setting():
    with pytest.raises(UserError, match="did you mean recipe"):
        merge(Settings(), {"recpie": "grpo"})


def test_every_field_of_a_recipe_can_be_set_by_its_path_and_back():
    recipe = ppo.build(kl=0.1)
    for path, x in flatten(recipe).items():
        assert digest(override(recipe, path, x)) == digest(recipe), path


def test_a_digest_tells_values_apart_and_no_orders_or_spellings():
    same = [{"a": 1, "b": 2.0}, {"b": 2, "a": 1.0}]
    others = [
        {"a": 2, "b": 1},
        {"a": "1", "b": 2},
        {"a": True, "b": 2},
        (1, 2),
        (2, 1),
        ("a", 1, "b", 2),
        {1: 1, "b": 2},
    ]
    others += [Center("group"), Center("batch"), Center("group", others=True), {"1": 1, "b": 2}, 1.5, "1.5"]
    others += [Imitate(), Unchanged()]  # neither has a field
    assert len({digest(x) for x in same}) == 1
    assert len({digest(x) for x in (same[0], *others)}) == 1 + len(others)


@pytest.mark.parametrize(
    ("path", "given"), [("update.epochs", "true"), ("schedule.lag", "false"), ("links.1.eps", "true")]
)
def test_a_truth_value_is_no_number(path, given):
    """Not even where the number that stands there compares equal to it."""
    with pytest.raises(UserError, match=f"{path.split('.')[-1]} takes "):
        override(override(grpo.build(), "links.1.eps", 1.0), path, given)


def test_short_paths_reach_the_single_learner():
    changed = override(grpo.build(), "objective.high", "0.3")
    assert changed.learners["policy"].objective.high == 0.3
    assert dict(walk(changed))["learners.policy.objective.high"] == 0.3


def test_a_schedule_stands_for_a_number():
    changed = override(grpo.build(), "optimiser.lr", "cosine(3e-4, 0, 50)")
    rates = [resolve(changed, step).learners["policy"].optimiser.lr for step in (0, 25, 50, 99)]
    assert rates == pytest.approx([3e-4, 1.5e-4, 0.0, 0.0])
    eps = override(grpo.build(), "links.1.eps", "jump(1, 3, 5)")  # inside a tuple
    assert [resolve(eps, step).learners["policy"].credit.links[1].eps for step in (4, 5)] == [1.0, 3.0]
    ends = {"linear(1, 3, 10)": (1.0, 2.0, 3.0), "exponential(1, 4, 10)": (1.0, 2.0, 4.0), "jump(1, 3, 5)": (1, 3, 3)}
    for text, values in ends.items():
        assert [read(text).at(step) for step in (0, 5, 10)] == pytest.approx(values), text
    for text in ("cosine(3e-4)", "cosine(3e-4, 0, many)", "cosine(1, 0, inf)", "cosin(1, 0, 5)", "sigmoid(1)"):
        with pytest.raises(UserError, match=r"optimiser\.lr takes float"):
            override(grpo.build(), "optimiser.lr", text)
    with pytest.raises(UserError):
        override(grpo.build(), "optimiser.betas", "cosine(1, 0, 5)")


@pytest.mark.parametrize("text", ["('eyes', 'ears')", "('eyes','ears',)", '["eyes", "ears"]'])
def test_lists_may_be_written_as_python_writes_tuples(text):
    assert override(grpo.build(), "learners.policy.heads", text).learners["policy"].heads == ("eyes", "ears")
    for wrong in ("('eyes'", "(eyes)", "(open('x'),)"):
        with pytest.raises(UserError, match="heads takes a list"):
            override(grpo.build(), "learners.policy.heads", wrong)


def test_staircases_and_sigmoids():
    """ScalingInter's rounds 10, 20, 30 with a period of 100; RuscaRL at step 71 of 350: alpha 125, t0 .2."""
    turns = override(grpo.build(), "links.0.turns", "staircase(10, 20, 30, 100)")
    found = [resolve(turns, step).collect.links[0].turns for step in (1, 99, 100, 199, 200, 500)]
    assert found == [10, 10, 20, 20, 30, 30] and all(type(n) is int for n in found)
    assert Sigmoid(1.0, 0.0, 1 + 0.2 * 349, 349 / 125).at(71) == pytest.approx(0.482099, abs=1e-6)
    assert [read("sigmoid(2, 4, 10, 1)").at(step) for step in (-1000, 10, 1000)] == pytest.approx([2, 3, 4])
    with pytest.raises(UserError, match="at least one step"):
        override(grpo.build(), "links.0.turns", "staircase(1, 2, 0)")
    with pytest.raises(UserError, match=r"Sigmoid\.width"):
        Sigmoid(1.0, 0.0, 5.0, 0.0)


def test_ambiguous_paths_list_the_candidates():
    with pytest.raises(UserError, match=r"ambiguous.*links\.0\.scope.*links\.1\.scope"):
        override(grpo.build(), "scope", "batch")


def test_a_field_that_several_terms_of_a_sum_have_names_them_all():
    """With a KL term the path ends only that term's own, which was then changed in place of the policy's loss."""
    summed = grpo.build(kl=0.01)
    of_policy, of_kl = "learners.policy.objective.parts.0.reduce", "learners.policy.objective.parts.1.objective.reduce"
    with pytest.raises(UserError) as refused:
        override(summed, "objective.reduce", "tokens")
    assert f"{of_policy} (of Clipped) or {of_kl} (of KL)" in str(refused.value)
    with pytest.raises(UserError, match=r"parts\.1\.objective\.weight \(of KL\) or .*parts\.1\.weight \(of Scaled\)"):
        override(summed, "objective.weight", 0.3)
    both = summed
    for path in ("clipped.reduce", "scaled.objective.reduce"):
        both = override(both, path, "tokens")
    clipped, scaled = both.learners["policy"].objective.parts
    assert (clipped.reduce, scaled.objective.reduce, scaled.weight) == ("tokens", "tokens", 0.01)
    for path in (of_policy, "parts.0.reduce"):
        clipped, scaled = override(summed, path, "tokens").learners["policy"].objective.parts
        assert (clipped.reduce, scaled.objective.reduce) == ("tokens", "sequences")
    # what one term alone has is found, and a loss that is no sum has one mean
    assert override(summed, "objective.low", 0.1).learners["policy"].objective.parts[0].low == 0.1
    assert override(grpo.build(), "objective.reduce", "tokens").learners["policy"].objective.reduce == "tokens"


def test_arguments_of_build_are_settings_too():
    assert build("grpo", {"kl": "0.2"}).references == {"ref": "policy"}
    with pytest.raises(UserError, match="kl"):
        build("grpo", {"kl": "much"})


async def by_length(ctx, group):
    return [Reward(total=float(e.n_sampled)) for e in group.episodes]


def test_schedules_of_an_optimiser(context, small):
    """The decay follows its schedule; what the moments were made with is refused one."""
    recipe = small(grpo.build(), **{"optimiser.weight_decay": "jump(0.1, 0.7, 1)"})
    ctx, state = context(bench=replace(bench_by_name("chain")[0], reward=by_length)), start(0)
    prepare(recipe, ctx)
    for decay in (0.1, 0.7):
        state, metrics = asyncio.run(step(recipe, ctx, state))
        assert metrics["updates"] == 1
        assert ctx.optimisers["policy"].param_groups[0]["weight_decay"] == decay
    for path in ("optimiser.eps", "optimiser.betas.0"):
        with pytest.raises(UserError, match="eps and betas stay"):
            override(grpo.build(), path, "linear(0.9, 0.5, 10)")


def test_a_part_of_a_tuple_is_called_by_its_class():
    recipe = grpo.build()
    for path in ("collect.links.sample.n", "collect.sample.n", "sample.n"):
        assert find(recipe, path) == find(recipe, "collect.links.0.n") == "collect.links.0.n"
    assert override(recipe, "sample.n", "3") == override(recipe, "collect.links.0.n", 3)
    twice = vary(recipe, collect=links(Sample(n=2), Sample(n=3)))
    with pytest.raises(UserError, match=r"no field 'sample\.n'"):
        find(twice, "sample.n")
    assert find(twice, "collect.links.1.n") == "collect.links.1.n"
    assert find(vary(recipe, collect=links(Sample(), MuteTruncated())), "mute_truncated") == "collect.links.1"
    assert find((Outer(n=1, inner=Inner(n=2)),), "outer.n") == "0.n"  # not outer.inner.n as well


def test_a_sum_of_chains_is_told_as_one():
    """Weights stand before what they weigh, and arrows between what follows on one another."""
    links = Center(), Scale()
    told = brief(Blend(parts=((0.8, links), (1 - 0.8, links[:1]))))
    assert told == "Blend(0.8 * (Center() -> Scale()) + 0.2 * (Center()))"
    assert brief(links) == "Center() -> Scale()"

"""Credit by stratum, prefix, turn and state, and ratios by turn: the catalogue's numbers, and others by hand."""

import asyncio

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palaestra.api.training import make_smallest
from palaestra.claims.objectives import embodied_planner_r1 as planner_claim
from palaestra.claims.objectives import stratified_grpo as stratified_grpo_claim
from palaestra.credit.pass_at_k import pass_at_k_advantages
from palaestra.credit.scopes import anchor
from palaestra.credit.table import Table
from palaestra.credit.trie import branch_terms, episode_ids, node_means, prefix_nodes, td_terms
from palaestra.errors import UserError
from palaestra.explanation.method import explain
from palaestra.ledger.experiment import Cell
from palaestra.objective.policy import Clipped, log_ratio
from palaestra.recipes.base import grpo, rloo
from palaestra.recipes.objectives import embodied_planner_r1 as planner
from palaestra.recipes.objectives import gigpo, igpo, loop, spa_rl, srpo_gream, stratified_grpo, tempo
from palaestra.run.driver import prepare
from palaestra.step import start, step
from palaestra.toys.grid import GridTasks
from palaestra.toys.hop import Hop, HopTasks
from palaestra.types import Episode, Event, Example, Group, Reward, Row, Segment, Task
from palaestra.update import pack
from palaestra.values import override, vary
from palaestra.worlds.blind import Blind

near = lambda x, tolerance=1e-5: pytest.approx(x, abs=tolerance)


def advantages(recipe, *group):
    return explain(recipe, [list(group)])["advantages"][0]


def by_token(*credit, n=4):
    """The same credit at each of a trajectory's n tokens."""
    return [near([x] * n) for x in credit]


def scored(*rewards, **fields):
    return [{"reward": r, **{k: v[i] for k, v in fields.items()}} for i, r in enumerate(rewards)]


# ---- stratified GRPO


@pytest.mark.parametrize(
    ("alpha", "ddof", "expected"),
    [
        (1.0, 0, [1.414214, -0.707107, -0.707107, 0.707107, 0.707107, -1.414214]),
        (0.0, 0, [1, -1, -1, 1, 1, -1]),
        (0.8, 0, [1.331371, -0.765685, -0.765685, 0.765685, 0.765685, -1.331371]),
        (1.0, 1, [1.154701, -0.577350, -0.577350, 0.577350, 0.577350, -1.154701]),
        (0.0, 1, [0.912871, -0.912871, -0.912871, 0.912871, 0.912871, -0.912871]),
        (0.8, 1, [1.106335, -0.644454, -0.644454, 0.644454, 0.644454, -1.106335]),
    ],
)
def test_stratified(alpha, ddof, expected):
    group = scored(1, 0, 0, 1, 1, 0, stratum=[1, 1, 1, 2, 2, 2])
    assert advantages(stratified_grpo.build(alpha=alpha, ddof=ddof), *group) == near(expected)


def test_structure_is_reported_by_stratum():
    """Searches 0, 0, 1 with outcomes 0, 1, 1: mean 2/3, spread 2/3; only the first stratum varies, by 1/4 twice."""
    task = HopTasks(hops=(2, 2)).task("train", 0)
    episodes = (Episode(facts={"searches": s}, reward=Reward(total=r)) for s, r in ((0, 0.0), (0, 1.0), (1, 1.0)))
    found = asyncio.run(stratified_grpo_claim.Structure()(None, (), Group(task=task, episodes=tuple(episodes))))
    parts = {k: sum(e.reward.parts[k] for e in found.episodes) for k in found.episodes[0].reward.parts}
    assert parts == near({"searches": 1, "two hops": 3, "two hops solved": 2, "spread": 2 / 3, "within": 0.5})
    steps = [{"part/within": w, "part/spread": 1.0} for w in (0.9, 0.1, 0.3)]
    share = [stratified_grpo_claim.Share("within", "spread", n)(Cell(summary={}, steps=steps)) for n in (0, 2)]
    assert share == near([1.3 / 3, 0.2])


def test_one_stratum_is_grpo_and_a_stratum_of_one_keeps_the_global_term():
    group = scored(1, 0, 0)
    assert advantages(stratified_grpo.build(), *group) == near(advantages(grpo.build(), *group))
    alone = advantages(stratified_grpo.build(alpha=0.8, ddof=0), *scored(1, 0, 1, 0, stratum=[1, 2, 2, 2]))
    assert alone[0] == near(0.2)  # A_GN = 1, A_SAN = 0
    assert advantages(stratified_grpo.build(), *scored(1)) == [0.0]


def test_strata_are_those_of_one_prompt():
    group = scored(1, 0, stratum=[1, 1])
    both = explain(stratified_grpo.build(), [group, scored(1, 1, stratum=[1, 1])])["advantages"]
    assert both[0] == near(advantages(stratified_grpo.build(), *group)) and both[1] == [0.0, 0.0]


def test_without_a_count_the_stratum_is_the_number_of_calls():
    long = {"turn_lengths": [1, 1]}
    group = [{"reward": 1}, {"reward": 0}, {"reward": 1, **long}, {"reward": 1, **long}]
    found = advantages(stratified_grpo.build(alpha=1.0, ddof=0), *group)
    assert found == near([1, -1, 0, 0])


# ---- TEMPO

A, B, C, D, E, F, G = range(10, 17)
FOUR = scored(1, 0, 0, 0, tokens=[[A, B, C], [A, B, D], [A, E, F], [A, E, G]])


def test_tempo():
    found = advantages(tempo.build(), *FOUR)
    assert found[0] == near([1.5, 2, 2.5]) and found[1] == near([-0.5, 0, -1.5])
    assert found[2] == near([-0.5, -1, -0.5]) and found[3] == near([-0.5, -1, -0.5])
    found = advantages(tempo.build(ddof=0), *FOUR)
    assert found[0] == near([1.732051, 2.309401, 2.886751]) and found[1] == near([-0.577350, 0, -1.732051])
    assert found[2] == near([-0.577350, -1.154701, -0.577350])


def test_tempo_without_std_and_td_alone():
    """Without std: V(root) .25, V(A) .25, V(AB) .5; the TD terms of ABC are 0, .25, .5."""
    assert advantages(tempo.build(std=False), *FOUR)[0] == near([0.75, 1.0, 1.25])
    assert advantages(tempo.build(outcome=0.0, std=False), *FOUR)[0] == near([0.0, 0.25, 0.5])


def test_tempo_weights_count_tokens():
    weights = explain(tempo.build(), [FOUR])["token_weights"][0]
    assert weights[0] == near([x / 12 for x in (1.5, 2, 2.5)])


def test_tempo_edges():
    for group, n in (([FOUR[0]], 3), (scored(1, 1, tokens=[[A, B], [A, C]]), 2)):
        assert advantages(tempo.build(), *group) == by_token(*[0.0] * len(group), n=n)
    same = advantages(tempo.build(), *scored(1, 0, tokens=[[A], [A]]))  # one leaf: no token tells them apart
    assert same == by_token(0.707107, -0.707107, n=1)
    shorter = advantages(tempo.build(outcome=0.0, std=False), *scored(1, 0, tokens=[[A, B], [A]]))
    assert shorter == [near([0.0, 0.5]), [0.0]]  # an answer that ends in an inner node


def test_no_token_is_a_break_between_rows():
    said = Segment(ids=(0, 5), trained=True, logp=(0.0, 0.0))
    one, two = ((Row(segments=(Segment(ids=(7,)), said)),) * n for n in (1, 2))
    group = Group(task=Task(id="t"), episodes=tuple(Episode(rows=r, reward=Reward(total=1.0)) for r in (one, two)))
    table = Table([group], [], {})
    assert [episode_ids(table, e) for e in (0, 1)] == [[-1, 7, 0, 5], [-1, 7, 0, 5, -1, 7, 0, 5]]


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 2), max_size=6), st.floats(-1, 1)), min_size=1, max_size=8),
)
def test_td_terms_telescope(group):
    paths, x_S = prefix_nodes([ids for ids, _ in group]), np.array([x for _, x in group])
    leaf = node_means(paths, x_S)
    for path, td_T, branch_T in zip(paths, td_terms(paths, x_S), branch_terms(paths), strict=True):
        assert td_T.sum() == pytest.approx(leaf[path[-1]] - x_S.mean(), abs=1e-9)
        assert np.all(np.abs(td_T[~branch_T]) < 1e-9)


# ---- IGPO

TWO = [
    {"turn_rewards": [0, 0, 1.0], "turn_lengths": [1, 1, 1], "gold_prob": [0.1, 0.3, 0.25]},
    {"turn_rewards": [0, 0, 0], "turn_lengths": [1, 1, 1], "gold_prob": [0.2, 0.2, 0.3]},
]


def test_igpo():
    found = advantages(igpo.build(), *TWO)
    assert found[0] == near([1.444939, 1.467874, 2.178876]) and found[1] == near([-1.444939, -0.871550, -0.573388])


def test_igpo_by_position_centres_returns():
    """Returns 1.15 .95 1 and .1 .1 0, minus their means .625 .525 .5."""
    found = advantages(igpo.build("position"), *TWO)
    assert found[0] == near([0.525, 0.425, 0.5]) and found[1] == near([-0.525, -0.425, -0.5])


def test_igpo_separate_pools():
    """Outcomes 1 0 give 1 -1; gains .2 -.05 0 .1: mean .0625, std .0960."""
    found = advantages(igpo.build("separate"), *TWO)
    z = [(x - 0.0625) / np.std([0.2, -0.05, 0, 0.1]) for x in (0.2, -0.05, 0, 0.1)]
    assert found[0] == near([z[0] + z[1] + 1, z[1] + 1, 1], 1e-4)
    assert found[1] == near([z[2] + z[3] - 1, z[3] - 1, -1], 1e-4)


def test_igpo_discounts():
    found = advantages(igpo.build(gamma=0.5), *TWO)[0]
    assert found == near([-0.022936 + 0.5 * (-0.711002 + 0.5 * 2.178876), -0.711002 + 0.5 * 2.178876, 2.178876])


def test_igpo_edges():
    assert advantages(igpo.build(), *scored(1, 0)) == by_token(1, -1)  # one turn: GRPO, ddof 0
    equal = [{**t, "turn_rewards": [0, 0, 0]} for t in TWO]
    assert any(np.ptp(a) > 0.1 for a in advantages(igpo.build(), *equal))  # advantages do not collapse
    short = [{**TWO[0], "gold_prob": [0.1, 0.3]}, {**TWO[1], "gold_prob": [0.2]}]
    assert advantages(igpo.build(), *short) == by_token(
        1, -1, n=sum(TWO[0]["turn_lengths"])
    )  # the outcome alone, for every turn
    with pytest.raises(UserError, match="gold_prob"):
        advantages(igpo.build(), {"reward": 1, "turn_lengths": [1, 1]})


def test_shuffled_gains_are_the_same_gains():
    a = advantages(igpo.build("position", shuffle=True), *TWO)
    assert sum(x[-1] for x in a) == near(0) and a != advantages(igpo.build("position"), *TWO)


def test_gold_probability_is_that_of_the_answer(context):
    """Two turns: the fact equals the geometric mean that the model gives after each context."""
    ctx = context("hop")
    task = ctx.bench.tasks.task("train", 0)
    dialect = ctx.engine().dialect
    first, tool = dialect.encode_text("hello"), dialect.encode_text("there")
    said = {"author": "policy", "policy": "policy", "trained": True, "logp": (-1.0,)}
    row = Row(
        segments=(
            Segment(ids=first),
            Segment(ids=first[:1], **said),
            Segment(ids=tool),
            Segment(ids=tool[:1], turn=1, **said),
        )
    )
    group = Group(task=task, episodes=(Episode(rows=(row,), reward=Reward(total=0.0)), Episode(status="error:x")))
    found = asyncio.run(igpo.GoldProbability()(ctx, ("k",), group)).episodes[0].facts["gold_prob"]
    ids = (*first, first[0], *tool, *dialect.encode_text("ANSWER("))
    gold, module, expected = dialect.encode_text(task.answer), ctx.model("policy"), 0.0
    for j, token in enumerate(gold):
        hidden = module.hidden(torch.tensor([[*ids, *gold[:j]]]))[0, -1:]
        expected += torch.log_softmax(module.logits(hidden)[0].float(), -1)[token].item()
    assert len(found) == 2 and found[1] == pytest.approx(np.exp(expected / len(gold)), rel=1e-3)


# ---- GiGPO

SUCCESS = {"turn_rewards": [0, 0, 10], "turn_lengths": [2, 1, 1], "states": ["s0", "a", "b"]}
FAILURE = {"turn_rewards": [0] * 5, "turn_lengths": [1] * 5, "states": ["s0", "c", "d", "e", "f"]}


@pytest.mark.parametrize(
    ("options", "first", "later"),
    [
        ({}, (9.5125, -9.5125), (5, -5)),
        ({"variant": "released"}, (10.7625, -8.2625), (6.25, -3.75)),
        ({"std": True}, (1.414214, -1.414214), (0.707107, -0.707107)),
        ({"std": True, "variant": "released"}, (1.914722, -1.431676), (1.207615, -0.724569)),
        ({"omega": 0.0}, (5, -5), (5, -5)),
        ({"episode": 0.0}, (4.5125, -4.5125), (0, 0)),
        ({"gamma": 1.0, "episode": 0.0}, (5, -5), (0, 0)),
    ],
)
def test_gigpo(options, first, later):
    """Every token of a turn gets the turn's advantage: the first turn of the success has two."""
    won, lost = advantages(gigpo.build(**options), SUCCESS, FAILURE)
    won, lost = np.broadcast_to(won, 4), np.broadcast_to(lost, 5)
    assert list(won) == near([first[0]] * 2 + [later[0]] * 2, 2e-5)
    assert list(lost) == near([first[1]] + [later[1]] * 4, 2e-5)


def test_gigpo_counts_a_state_as_often_as_it_is_visited():
    """gamma 1: returns 1 1 0 at s: mean 2/3."""
    again = {"turn_rewards": [0, 1], "turn_lengths": [1, 1], "states": ["s", "s"]}
    found = advantages(gigpo.build(gamma=1.0, episode=0.0), again, {"reward": 0, "length": 1, "states": ["s"]})
    assert found == [near([1 / 3, 1 / 3]), near([-2 / 3])]


def test_gigpo_charges_actions_that_were_not_executed():
    """Returned 1 each: .1 less for the turn of the second; in the released code for its episode score as well."""
    group = [{"reward": 1, "length": 1, "executed": [x], "states": ["s"]} for x in (True, False)]
    assert advantages(gigpo.build(), *group) == by_token(0.05, -0.05, n=1)
    assert advantages(gigpo.build(variant="released"), *group) == by_token(0.1, -0.1, n=1)


def test_gigpo_edges():
    assert advantages(gigpo.build(), *scored(1, 0)) == by_token(1, -1)  # no states: all first turns start alike
    assert advantages(gigpo.build(std=True), *scored(1, 1)) == by_token(0, 0)
    assert advantages(gigpo.build(), *scored(1)) == by_token(0)
    with pytest.raises(UserError, match="'states' for its turn 1"):
        advantages(gigpo.build(), {"reward": 1, "turn_lengths": [1, 1]})
    apart = explain(gigpo.build(omega=1.0, episode=0.0), [[SUCCESS], [FAILURE]])["advantages"]
    assert apart == [by_token(0), by_token(0, n=5)]  # the same key in another task is another state


def test_similar_states_join_the_first_anchor():
    anchors: list[str] = []
    assert [anchor(s, anchors, 0.9) for s in ("at a1, box b2", "at a1, box b3", "elsewhere", "at a1, box b2")] == [
        0,
        0,
        1,
        0,
    ]
    near_states = [{"reward": r, "states": [s]} for r, s in ((1, "at a1, box b2"), (0, "at a1, box b3"))]
    assert advantages(gigpo.build(episode=0.0), *near_states) == by_token(0, 0)
    assert advantages(gigpo.build(episode=0.0, similarity=0.9), *near_states) == by_token(0.5, -0.5)


# ---- LOOP


def ratios(level, logp, advantage, eps=0.1):
    """Token weights of one row of one turn whose behaviour log-probs are 0."""
    found = explain(
        replace_credit(loop.build(level, eps=eps), advantage),
        [[{"reward": 1, "logp": logp, "behaviour_logp": [0.0] * len(logp)}]],
    )
    return found["token_weights"][0][0]


def replace_credit(recipe, advantage):
    from palaestra.credit.links import Shift, chain

    return vary(recipe, credit=chain(Shift(advantage - 1)))


def test_loop_advantages():
    assert advantages(loop.build(), *scored(1, 0, 0, 0.5)) == near([0.833333, -0.5, -0.5, 0.166667])
    assert advantages(grpo.build(), *scored(1, 0, 0, 0.5)) == near([1.305582, -0.783349, -0.783349, 0.261116])
    assert advantages(loop.build(), *scored(1)) == [0.0]


def test_loop_bounds():
    clip = loop.build().learners["policy"].objective
    assert isinstance(clip, Clipped) and (1 - clip.low, 1 + clip.high) == near((0.909091, 1.1), 1e-6)


@pytest.mark.parametrize(("ratio", "advantage"), [(1.06, 1.0), (0.95, -1.0)])
def test_loop_clips_the_product_before_the_token(ratio, advantage):
    """1.06^2 = 1.1236 > 1.1, and .95^2 = .9025 < .909091: the trajectory is clipped, its tokens are not."""
    logp = [float(np.log(ratio))] * 2
    assert ratios("token", logp, advantage) == near([advantage * ratio / 2] * 2)
    assert ratios("sequence", logp, advantage) == [0.0, 0.0]
    assert ratios("turn", logp, advantage) == [0.0, 0.0]


def test_loop_turn_ratios_stop_at_the_turn():
    t = {"reward": 1, "turn_lengths": [1, 1], "logp": [float(np.log(1.06))] * 2, "behaviour_logp": [0.0, 0.0]}
    assert explain(replace_credit(loop.build("turn"), 1.0), [[t]])["token_weights"][0][0] == near([0.53, 0.53])


def test_turn_ratios_of_a_short_row_late_in_an_episode():
    """The sixth turn of an episode in a row of three tokens: its number is beyond the row."""
    said = Segment(ids=(1, 2), logp=(0.0, 0.0), policy="policy", trained=True, turn=5)
    row = Row(segments=(Segment(ids=(0,), turn=5), said))
    batch = pack([Example(row=row, columns={})], dtype=torch.float64)
    found = log_ratio({"logp": torch.tensor([[0.0, 0.25, 0.5]])}, batch, "turn")
    assert found.tolist() == [[0.0, 0.75, 0.75]]


def test_loop_drops_what_has_no_advantage():
    def group(*rewards):
        return Group(task=Task(id="t"), episodes=tuple(Episode(reward=Reward(total=r)) for r in rewards))

    muted = lambda *r: [e.muted for e in asyncio.run(loop.MuteSmall()(None, (), group(*r))).episodes]
    assert muted(1, 1) == [True, True] and muted(1) == [True]
    assert muted(1, 0.5, 0) == [False, True, False]
    assert advantages(rloo.build(), *scored(1, 0.5, 0)) == near([0.75, 0, -0.75])


# ---- Embodied Planner-R1


def test_planner_advantages_and_token_mean():
    free = planner.build(kl=0.0, entropy=0.0)
    assert advantages(free, *scored(1, 0, 0, 1)) == near([0.866025, -0.866025, -0.866025, 0.866025])
    assert advantages(free, *scored(0, 0, 0, 0)) == [0.0] * 4
    group = scored(1, 0, length=[4, 2])
    weights = explain(free, [group])["token_weights"][0]
    assert sum(map(sum, weights)) == near(0.235702)  # the loss is minus this at ratio 1
    by_row = explain(planner.build(kl=0.0, entropy=0.0, reduce="sequences"), [group])["token_weights"][0]
    assert sum(map(sum, by_row)) == near(0.0)


def test_planner_needs_what_it_names():
    found = explain(planner.build(), [scored(1, 0)])
    assert found["advantages"][0] == near([0.707107, -0.707107]) and found["token_weights"] is None
    assert "'ref_logp' and 'entropy'" in found["notes"][0]


def test_observations_carry_no_gradient():
    """think act obs obs think act: four agent tokens."""
    said = {"author": "policy", "policy": "policy", "trained": True}
    row = Row(
        segments=(
            Segment(ids=(0,)),
            Segment(ids=(1, 2), logp=(-1.0, -1.0), **said),
            Segment(ids=(3, 4)),
            Segment(ids=(5, 6), logp=(-1.0, -1.0), turn=1, **said),
        )
    )
    group = Group(task=Task(id="t"), episodes=(Episode(rows=(row,), reward=Reward(total=1.0)),))
    examples, _ = planner.build().learners["policy"].credit([group], [[[{}]]], {})
    batch = pack(examples)
    assert batch.mask[0].tolist() == [0, 1, 1, 0, 0, 1, 1] and batch.n_tokens == 4


@pytest.mark.parametrize(
    ("paid", "status", "reward"),
    [
        ([0.0, 1.0, 0.0], "finished", 1.0),  # success is sticky
        ([1.0], "truncated:length", 0.0),  # its marker was cut off
        ([0.0, -1.0], "finished", 0.0),
        ([0.0], "truncated:turns", 0.0),
        ([0.3, 1.0], "truncated:turns", 1.0),
    ],
)
def test_completion(paid, status, reward):
    events = tuple(Event(row=0, token=-1, value=x) for x in paid)
    assert planner.completion(Reward(total=sum(paid), events=events), status).total == reward


def test_a_dense_reward_pays_for_the_way_behind_it():
    task = GridTasks().task("train", 0)
    way = task.meta["start"].distance
    left = (way, 1, 0, way + 2)
    group = Group(
        task=task,
        episodes=tuple(Episode(facts={"distance": d}, reward=Reward(total=float(d == 0))) for d in left),
    )
    found = asyncio.run(planner_claim.Approach()(None, (), group))
    assert [e.total for e in found.episodes] == near([0.0, 1 - 1 / way, 1.0, 0.0])


def test_a_blind_world_hides_its_answers():
    from palaestra.types import Act

    world, task = Blind(Hop()), HopTasks().task("train", 0)
    frame = asyncio.run(world.reset(task, ()))
    act = Act(ask=frame.asks[0], text=f"SEARCH({task.meta['path'][0]})", call=None, finish="eos", n_tokens=1)
    after = asyncio.run(world.step(frame.state, (act,), ()))
    assert frame.asks[0].say == task.prompt and [m.content for m in after.asks[0].say] == ["ok"]
    assert after.state_key == Hop().step(frame.state, (act,), ()).state_key


# ---- SPA-RL


def turn_rewards(recipe, **fields):
    """What the three turns of one trajectory are paid, one token each."""
    link = recipe.learners["policy"].credit.links[0]
    from palaestra.credit.table import Table, Values

    said = {"author": "policy", "policy": "policy", "trained": True, "logp": (-1.0,)}
    segments = (Segment(ids=(0,)), *(Segment(ids=(t + 1,), turn=t, **said) for t in range(3)))
    row = Row(segments=segments)
    facts = {k: v for k, v in fields.items() if k == "executed"}
    group = Group(task=Task(id="t"), episodes=(Episode(rows=(row,), reward=Reward(total=1.0), facts=facts),))
    signals = [[[{spa_rl.SIGNAL: np.array([9.0, *fields["c"]])}]]]
    table = Table([group], signals, {})
    return link(Values(level="episode", x_N=table.reward_E), table).x_N.tolist()


def test_spa_turn_rewards():
    c = [0.2, 0.5, 0.3]
    assert turn_rewards(spa_rl.build(), c=c, executed=(True, False, True)) == near([0.7, 0.5, 0.8])
    assert turn_rewards(spa_rl.build(), c=c, executed=(True, False, False)) == near([0.7, 0.5, 0.8])  # the last counts
    assert turn_rewards(spa_rl.build(beta=0.0), c=c) == near(c)
    assert turn_rewards(spa_rl.build(by="uniform", beta=0.0), c=c) == near([1 / 3] * 3)
    assert turn_rewards(spa_rl.build(by="outcome", beta=0.0), c=c) == [0.0] * 3  # nobody to compare with


def test_spa_pays_at_the_end_of_the_turn():
    """Values 0, gamma 1, lambda .95: turns of 2 and 1 tokens paid 1 and 0 give .95 1 0, then whitened over the batch."""
    t = {
        "reward": 1,
        "turn_lengths": [2, 1],
        "executed": [True, True],
        "value": [0, 0, 0],
        "estimator_progress": [9, 1, 0],
    }
    found = np.array(advantages(spa_rl.build(beta=0.0), t)[0])
    raw = np.array([0.95, 1.0, 0.0])
    assert found == near((raw - raw.mean()) / raw.std(ddof=1))
    with pytest.raises(UserError, match="estimator_progress"):
        advantages(spa_rl.build(), {"reward": 1, "value": [0]})


@pytest.mark.parametrize(("c", "expected"), [([0.2, 0.5, 0.2], 1.0), ([0.5, 0.2, 0.5], -1.0), ([0.3] * 3, 0.0)])
def test_spa_agreement_is_the_correlation_with_progress(c, expected):
    from palaestra.credit.table import Table, Values

    said = {"author": "policy", "policy": "policy", "trained": True, "logp": (-1.0,)}
    row = Row(segments=(Segment(ids=(0,)), *(Segment(ids=(t + 1,), turn=t, **said) for t in range(3))))
    episode = Episode(rows=(row,), reward=Reward(total=1.0), facts={"closer": (0, 1, 0)})
    table = Table([Group(task=Task(id="t"), episodes=(episode,))], [[[{}]]], {})
    spa_rl.ProgressAgreement()(Values(level="turn", x_N=np.array(c)), table)
    assert table.columns["agreement"].x_N.mean() == near(expected)


def test_spa_trains_the_estimator_before_the_policy(context):
    ctx, state = context("grid"), start(0)
    recipe = make_smallest(spa_rl.build(warmup=1))
    prepare(recipe, ctx)
    moved = []
    for _ in range(2):
        state, metrics = asyncio.run(step(recipe, ctx, state))
        moved.append([n for n in ("policy", "estimator") if metrics.get(f"{n}/updates")])
    assert moved == [["estimator"], ["policy"]]


def estimator_loss(c, total, mask=(0, 1, 1, 1)):
    row = Row(segments=(Segment(ids=(0,)), *(Segment(ids=(t,), turn=t, trained=True, logp=(-1.0,)) for t in (1, 2, 3))))
    group = Group(task=Task(id="t"), episodes=(Episode(rows=(row,), reward=Reward(total=total)),))
    batch = pack(spa_rl.TurnEnds()([group], [[[{}]]], {})[0], "estimator")
    assert batch.mask[0].tolist() == list(mask)
    out = torch.tensor([[5.0, *c]], requires_grad=True)
    loss, _ = spa_rl.Decompose()({"progress": out}, batch)
    loss.backward()
    return loss.item(), out.grad[0].tolist()


def test_spa_estimator():
    assert estimator_loss([0.2, 0.5, 0.3], 1.0)[0] == near(0.0)
    loss, gradient = estimator_loss([0.1, 0.4, 0.3], 1.0)
    assert loss == near(0.04) and gradient == near([0, -0.4, -0.4, -0.4])  # 2 (sum - R) at turn ends, nowhere else


# ---- SRPO


def test_srpo():
    assert advantages(srpo_gream.build(k=2), *scored(1, 0, 0, 0, 0)) == near([3.013593] + [-0.753398] * 4)
    graded = scored(1, 0.707, 0.5, 0, 0)
    assert advantages(srpo_gream.build(k=2), *graded) == near([2.493238, 0.296951, -0.173114, -1.308538, -1.308538])
    assert advantages(srpo_gream.build(bonus=0.0), *graded) == near(
        [1.268495, 0.603137, 0.133072, -1.002352, -1.002352]
    )
    assert advantages(srpo_gream.build(), *scored(1, 1)) == [0.0, 0.0]
    assert advantages(srpo_gream.build(), *scored(1)) == [0.0]


@pytest.mark.parametrize(
    ("n", "hits", "k", "expected"),
    [(5, 1, 2, (1.224742, -0.306186)), (10, 1, 4, (1.224742, -0.136083)), (4, 0, 2, (0, 0)), (4, 3, 2, (0, 0)),
     (4, 4, 4, (0, 0)), (2, 1, 4, (0, 0))],
)  # fmt: skip
def test_pass_at_k(n, hits, k, expected):
    found = pass_at_k_advantages(n, hits, k)
    assert found == near(expected)
    assert hits * found[0] + (n - hits) * found[1] == near(0.0)


def test_pass_at_k_is_the_mean_over_subsets():
    """n 4, c 2, k 2: five of six pairs have a hit. A hit is in three pairs, all right; a miss in three, two right."""
    rho = 5 / 6
    sigma = (rho * (1 - rho)) ** 0.5
    assert pass_at_k_advantages(4, 2, 2) == near(((1 - rho) / sigma, (2 / 3 - rho) / sigma))


def test_partial_credit():
    worth = srpo_gream.worth
    assert [worth(x, "aeim") for x in ("aeim", "aeip", "aejm", "afim", "beim")] == [1.0, 0.866, 0.707, 0.5, 0.0]
    assert worth(None, "aeim") == worth("aei", "aeim") == 0.0 and worth("aeimx", "aeimy") == 0.95


# ---- they run where they belong


@pytest.mark.parametrize(
    ("recipe", "task"),
    [(gigpo.build(std=True), "grid"), (igpo.build(), "hop"), (spa_rl.build(), "grid"),
     (override(planner.build(kl=0.0, observe=False), "link.n", "2"), "grid"),
     (stratified_grpo.build(), "hop"), (loop.build("turn"), "hop"), (tempo.build(), "hop")],
    ids=["gigpo", "igpo", "spa-rl", "planner", "stratified", "loop", "tempo"],
)  # fmt: skip
def test_two_steps_in_a_world(recipe, task, context):
    ctx, state = context(task), start(0)
    recipe = make_smallest(recipe)
    prepare(recipe, ctx)
    for _ in range(2):
        state, metrics = asyncio.run(step(recipe, ctx, state))
    assert metrics["episodes"] >= 4
    for group in ctx.seen:
        for e in group.episodes:
            turns = {s.turn for r in e.rows for s in r.segments if s.trained}
            assert len(e.facts["states"]) == len(e.facts["executed"]) == len(turns)


def test_a_learner_without_a_model_starts_from_the_policy(context):
    ctx = context()
    prepare(spa_rl.build(), ctx)
    policy, estimator = ctx.model("policy"), ctx.model("estimator")
    assert policy.module is not estimator.module and "progress" in estimator.heads and "progress" not in policy.heads
    assert all(
        torch.equal(a, b) for a, b in zip(policy.module.parameters(), estimator.module.parameters(), strict=True)
    )

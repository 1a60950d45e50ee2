"""Losses by name: what their credit gives by hand, what they are made of, and what collects for them."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra import catalogue
from palaestra.explanation.method import explain
from palaestra.rollout.recorded import Recorded
from palaestra.run import setup
from palaestra.settings.fields import Settings
from palaestra.types import Episode, Group, Reward, Row, Segment, Task

near = lambda x: pytest.approx(x, abs=1e-5)
LOSSES = [e.id for e in catalogue.all_entries() if e.family == catalogue.LOSSES]
PAIRS = ("ipo", "simpo", "cpo", "orpo", "aot")


def rows(*rewards, length=2, **columns):
    return [{"reward": r, "length": length} | {k: v[i] for k, v in columns.items()} for i, r in enumerate(rewards)]


def group_of(*totals, facts=None, muted=None, lengths=None):
    """Sampled answers with these rewards."""
    episodes = []
    for i, total in enumerate(totals):
        n = lengths[i] if lengths else 2
        said = Segment(ids=(i + 1,) * n, trained=True, policy="policy", logp=(-1.0,) * n)
        episodes.append(
            Episode(
                rows=(Row(segments=(Segment(ids=(0,)), said)),),
                reward=Reward(total=float(total)),
                status="finished",
                facts=facts[i] if facts else {},
                muted=bool(muted and muted[i]),
            )
        )
    return Group(task=Task(id="t"), episodes=tuple(episodes))


def test_losses_by_name_are_no_rows_of_the_literature():
    assert len(LOSSES) == 22 and len(catalogue.rows()) == 221
    assert not {e.id for e in catalogue.rows()} & set(LOSSES)
    assert all(not catalogue.entry_of(name).claim for name in LOSSES)


def test_dapo_punishes_overlong_answers():
    """length 20, cache 8: 12 tokens are free, 16 cost a half, 24 cost 1; rewards 1, 1, 0."""
    given = [group_of(1, 1, 0, lengths=[12, 16, 24])]
    (overlong, *_) = pl.recipe("dapo", length=20, cache=0.4).learners["policy"].credit.links
    examples, _ = pl.chain(overlong)(given, [], {})
    assert [float(e.columns["advantage"][1]) for e in examples] == near([1.0, 0.5, -1.0])
    assert len(pl.recipe("dapo", cache=0).learners["policy"].credit.links) == 2
    with pytest.raises(pl.UserError, match=r"dapo: cache is 1\.5"):
        pl.recipe("dapo", cache=1.5)


def test_dapo_asks_whether_answers_are_right_and_not_how_long_they_are():
    recipe = pl.recipe("dapo")
    assert recipe.pool == pl.Mixed(16, solved=True)
    assert recipe.learners["policy"].objective == pl.Clipped(low=0.2, high=0.28, reduce="tokens")


def test_reinforce_plus_plus_normalises_the_tokens_of_the_batch():
    """Rewards 1 and 0 with no KL: tokens 2 and 4 of them, so the mean is 1/3; the deviation has ddof 1."""
    groups = [[{"reward": 1, "length": 2}], [{"reward": 0, "length": 4}]]
    found = explain(pl.recipe("reinforce-plus-plus", kl=0.0), groups)["advantages"]
    std = np.std([1, 1, 0, 0, 0, 0], ddof=1)
    assert found[0][0] == near([2 / 3 / std] * 2) and found[1][0] == near([-1 / 3 / std] * 4)


def test_the_kl_of_reinforce_plus_plus_is_that_of_the_rest():
    """log pi = -1 and log ref = -1.5, -1.2: k1 is .5 and .2, to go .7 and .2; beta .1."""
    group = [{"reward": 1, "length": 2, "logp": [-1.0, -1.0], "ref_logp": [-1.5, -1.2]}]
    recipe = pl.vary(pl.recipe("reinforce-plus-plus"), credit=pl.chain(pl.credit.KLToGo(0.1)))
    (found,) = explain(recipe, [group])["advantages"][0]
    assert found == near([1 - 0.07, 1 - 0.02])


def test_the_baseline_of_reinforce_plus_plus():
    """The group's mean first: (1, 0) and (1, 1) give .5, -.5, 0, 0; then the deviation of all eight tokens."""
    recipe = pl.recipe("reinforce-plus-plus", baseline=True)
    found = explain(recipe, [rows(1, 0), rows(1, 1)])["advantages"]
    std = np.std([0.5] * 2 + [-0.5] * 2 + [0] * 4, ddof=1)
    assert found == [[near([0.5 / std] * 2), near([-0.5 / std] * 2)], [near([0, 0]), near([0, 0])]]
    assert pl.objective.Scaled(pl.KL("k2", reduce="tokens"), 0.01) in recipe.learners["policy"].objective.parts


def test_opo_weighs_a_groups_rewards_by_length():
    """Rewards 1, 0, 0 of lengths 1, 3, 4: b = 1/8. Equal lengths give a group's mean, a group of one gives 0."""
    given = [group_of(1, 0, 0, lengths=[1, 3, 4]), group_of(1, 0), group_of(1)]
    credit = pl.recipe("opo").learners["policy"].credit
    examples, _ = credit(given, [], {})
    assert [float(e.columns["advantage"][1]) for e in examples] == near([0.875, -0.125, -0.125, 0.5, -0.5, 0])


def test_otb_weighs_them_by_the_gradient_so_far():
    """pi .5, .8 and .25, sums of squares .5, .7 and .3: W = .5, .6 and .8, so b_1 = .5 / 1.3; the second token is alone."""
    group = [
        {"reward": 1, "length": 2, "policy_logp": np.log([0.5, 0.8]).tolist(), "policy_collision": [0.5, 0.7]},
        {"reward": 0, "length": 1, "policy_logp": [float(np.log(0.25))], "policy_collision": [0.3]},
    ]
    b = 0.5 / 1.3
    for alone, last in (("own", 0.0), ("zero", 1.0)):
        found = explain(pl.recipe("otb", alone=alone), [group])["advantages"][0]
        assert found == [near([1 - b, last]), near([-b])]
    single = explain(pl.recipe("otb", alone="zero"), [group[:1]])["advantages"][0]
    assert single == [near([0, 0])]


def test_the_sum_of_squares_that_otb_reads_is_the_models(context):
    ctx = context("chain")
    task = ctx.bench.tasks.task("train", 0)
    group = asyncio.run(pl.Sample(n=1, max_tokens=4)(ctx, (0,), Group(task=task)))
    found = ctx.measure([group], (("policy", "collision"), ("policy", "vocab_logp")))[0][0][0]
    on = group.episodes[0].rows[0].view().trained_T
    assert found["policy_collision"][on] == near((np.exp(found["policy_vocab_logp"][on]) ** 2).sum(1))


def test_gpg_makes_up_for_groups_that_teach_nothing():
    """(1, 0) and (1, 1): four answers, two of a group that differs, three whose reward is not 0."""
    for count, scale in (("groups", 2.0), ("rewards", 4 / 3)):
        found = explain(pl.recipe("gpg", count=count), [rows(1, 0), rows(1, 1)])["advantages"]
        assert found == [near([scale / 2, -scale / 2]), near([0, 0])]
    silent = explain(pl.recipe("gpg"), [rows(1, 1)])["advantages"][0]
    assert silent == near([0, 0])
    assert pl.recipe("gpg").learners["policy"].objective == pl.Reinforce(reduce="tokens")


def test_remax_compares_with_the_greedy_answer():
    """Greedy .25: A = .75 and -.25, and the greedy answer trains nothing. A group of sampled answers alone has A = r."""
    greedy = group_of(1, 0, 0.25, facts=[{}, {}, {"greedy": 1.0}], muted=[False, False, True])
    credit = pl.recipe("remax").learners["policy"].credit
    examples, _ = credit([greedy, group_of(0.5)], [], {})
    assert [float(e.columns["advantage"][1]) for e in examples] == near([0.75, -0.25, 0.5])
    assert examples[0].columns["track:greedy_reward"][1] == near(0.25)
    assert credit.keeps_equal and not credit.needs_several


def test_the_greedy_answer_is_the_same_for_every_seed(context):
    ctx = context("chain")
    task = ctx.bench.tasks.task("train", 0)
    found = [asyncio.run(pl.rollout.Greedy()(ctx, (seed,), Group(task=task))).episodes for seed in (0, 1)]
    assert [len(e) for e in found] == [1, 1] and found[0][0].text == found[1][0].text
    assert found[0][0].muted and found[0][0].facts["greedy"] == 1.0


@pytest.mark.parametrize("name", PAIRS)
def test_losses_of_pairs_read_the_users_pairs_and_make_their_own_where_there_are_none(name):
    assert pl.recipe(name).collect.recorded
    assert not catalogue.find(name).embedded().collect.recorded
    free = name in ("simpo", "cpo", "orpo")
    assert bool(pl.recipe(name).references) is not free


@pytest.mark.parametrize(("name", "sum_of"), [("dpo", 2), ("ipo", 2), ("simpo", 2)])
def test_the_sft_term_is_an_option(name, sum_of):
    loss = pl.recipe(name, sft=0.5).learners["policy"].objective
    assert len(loss.parts) == sum_of and loss.parts[1] == pl.objective.Scaled(pl.objective.ImitatePreferred(), 0.5)


def test_the_options_of_dpo_are_off():
    assert pl.recipe("dpo").learners["policy"].objective == pl.DPO()
    robust = pl.recipe("dpo", robust=True, smoothing=0.1, normalise=True).learners["policy"].objective
    assert robust == pl.DPO(robust=True, smoothing=0.1, normalise=True)


@pytest.fixture
def labels(tmp_path):
    """A context over labelled answers in TRL's columns."""
    file = tmp_path / "labels.jsonl"
    data = [{"prompt": f"1+{i}", "completion": str(i + i % 2), "label": i % 2 > 0} for i in range(1, 7)]
    file.write_text("".join(json.dumps(row) + "\n" for row in data))
    return setup.context(Settings(data=str(file)), talk=False)


def test_an_answer_behind_another_prompt(labels):
    """KTO's reference point: this prompt, another record's answer; no reward is made of it, and it is label 0."""
    tasks = [labels.bench.tasks.task("train", i) for i in range(4)]
    collect = pl.recipe("kto").collect
    groups = [asyncio.run(collect(labels, (0, i), Group(task=t))) for i, t in enumerate(tasks)]
    texts = {Recorded().texts(labels.bench.tasks.task("train", i))[0][1] for i in range(5)}
    for group in groups:
        own, other = group.episodes
        assert own.rows[0].segments[:-1] == other.rows[0].segments[:-1]  # the prompt
        assert other.rows[0].segments[-1].text in texts and not other.reward.judged
    examples, _ = pl.credit.LabelAnswers()(groups, [[[{}], [{}]]] * 4, {})
    right = [1.0 if t.meta["right"] else -1.0 for t in tasks]
    assert [e.columns["label"] for e in examples] == [x for r in right for x in (r, 0.0)]
    again = asyncio.run(collect(labels, (0, 0), Group(task=tasks[0])))
    assert again == groups[0]


def test_labels_follow_rewards_and_leave_out_what_is_muted():
    group = group_of(1, 0.4, 0.5, 0.6, muted=[False, False, False, True])
    broken = replace(group, episodes=(*group.episodes, Episode(status="error:engine")))
    examples, _ = pl.credit.LabelAnswers()([broken], [[[{}]] * 4 + [[]]], {})
    assert [e.columns["label"] for e in examples] == [1.0, -1.0, -1.0]
    graded = lambda right: pl.credit.LabelAnswers(right)([group], [[[{}]] * 4], {})[0]
    assert [e.columns["label"] for e in graded(0.45)] == [1.0, -1.0, 1.0]
    for name in ("kto", "bco"):
        assert pl.recipe(name, right=0.7).learners["policy"].credit == pl.credit.LabelAnswers(0.7)
    assert pl.credit.LabelAnswers().keeps_equal


def test_no_other_prompt_to_estimate_from_is_said(tmp_path):
    one = tmp_path / "one.jsonl"
    row = {"prompt": "1+1", "completion": "2", "label": True, "split": "train"}
    one.write_text("".join(json.dumps(x) + "\n" for x in (row, row | {"prompt": "1+2", "split": "test"})))
    ctx = setup.context(Settings(data=str(one)), talk=False)
    group = Group(task=ctx.bench.tasks.task("train", 0))
    with pytest.raises(pl.UserError, match="has no other training task"):
        asyncio.run(pl.rollout.MismatchedAnswer()(ctx, (0,), group))

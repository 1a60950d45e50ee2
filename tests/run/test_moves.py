"""What an update does to each token, as the run folder holds it."""

import asyncio

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from palaestra.api.run import Run
from palaestra.catalogue import recipe
from palaestra.recipes.rewards.mm_rlhf import embedded
from palaestra.rollout.outcomes import outcomes
from palaestra.run.driver import train
from palaestra.run.moves import TokenMoves, has_tokens_of, moves_by_row
from palaestra.store.columns import path
from palaestra.types import Episode, Example, Group, Reward, Row, Segment, Task
from palaestra.values import override


def episodes(out, step=1):
    return pq.ParquetFile(path(out, step)).read().to_pylist()


def trained(row, name):
    return [x for x, own in zip(row[name], row["trained"], strict=True) if own]


def test_weights_are_those_that_explain_computes(context, small, tmp_path):
    """Before the first update the ratio is 1, so both are minus the derivative of the loss at the same place."""
    ctx = context(out=tmp_path / "run", steps=1)
    (tmp_path / "run").mkdir()
    asyncio.run(train(small(recipe("grpo")), ctx))
    lines = episodes(tmp_path / "run")
    assert {e["kept"] for e in lines} == {"trained"} and {e["oldest_version"] for e in lines} == {0}
    (tmp_path / "run" / "config.toml").write_text('recipe = "grpo"\ntask = "chain"\nmodel = "tiny"\n')
    seen = False
    for g in {e["group"] for e in lines}:
        told = Run(tmp_path / "run").group(1, g).explain("grpo", **{"schedule.prompts": 2, "collect.links.0.n": 4})
        mine = sorted((e for e in lines if e["group"] == g), key=lambda e: -e["reward"])
        for e, weights in zip(mine, told["token_weights"][0], strict=True):
            assert trained(e["rows"][0], "weight") == pytest.approx(weights, rel=1e-4, abs=1e-7)
            assert trained(e["rows"][0], "ratio") == pytest.approx(np.ones(len(weights)), abs=1e-4)
            seen |= any(weights)
    assert seen or all(e["advantage"] == 0 for e in lines)


@pytest.mark.parametrize("changes", [{"epochs": 2}, {"budget": 1}, {"minibatches": 2}])
def test_weights_add_up_over_updates_and_do_not_depend_on_the_split(context, small, tmp_path, changes):
    found = {}
    for name, fields in (("plain", {}), ("other", changes)):
        made = small(recipe("reinforce"))
        for k, v in fields.items():
            made = override(made, f"learners.policy.update.{k}", v)
        made = override(made, "learners.policy.optimiser.lr", 0.0)
        out = tmp_path / name
        out.mkdir()
        asyncio.run(train(made, context(out=out, steps=1)))
        found[name] = np.concatenate([trained(r, "weight") for e in episodes(out) for r in e["rows"]])
    times = {"epochs": 2, "budget": 1}.get(next(iter(changes)))
    if times:
        assert found["other"] == pytest.approx(times * found["plain"], rel=1e-3, abs=1e-8)
    else:  # each minibatch has denominators of its own
        assert np.sign(found["other"]).tolist() == np.sign(found["plain"]).tolist()
    assert np.abs(found["plain"]).max() > 0


def test_why_an_episode_was_not_trained_on():
    """By hand: trained, muted, without credit, waiting in the pool, too old, and dropped."""

    def group(name, version=5, muted=False):
        segment = Segment(ids=(1,), trained=True, logp=(0.0,), version=version)
        row = Row(segments=(segment,), key=(name,))
        return Group(task=Task(id=name), episodes=(Episode(rows=(row,), reward=Reward(total=0.0), muted=muted),))

    seen = [group("a"), group("b", muted=True), group("c"), group("d"), group("e", version=2), group("f")]
    learned = {"policy": [Example(row=seen[0].episodes[0].rows[0], columns={})]}
    found = outcomes(seen, ready=seen[:3], later=[seen[3]], examples=learned, oldest=5, pool="Mixed")
    assert [found[n,] for n in "abcdef"] == ["trained", "muted", "no credit", "held:Mixed", "stale", "dropped:Mixed"]


def test_what_ranks_saw_is_joined_pass_by_pass():
    """Two ranks, two updates: the row's pass of the second update is the other rank's, and a ghost adds 0."""
    number = lambda *x: torch.tensor([x])
    passes = lambda *each: [(torch.tensor([place]), number(w, w), number(r, r)) for place, w, r in each]
    moves = TokenMoves()
    moves.join([passes((1.0, 3.0, 7.0), (0.0, 2.0, 9.0)), passes((0.0, 1.0, 4.0), (1.0, 0.0, 8.0))])
    weights, ratios = moves.rows([2, 1])
    assert weights[0].tolist() == [3.0, 3.0] and ratios[0].tolist() == [9.0, 9.0]
    assert weights[1].tolist() == [3.0] and ratios[1].tolist() == [8.0]


def test_rows_that_a_credit_lengthened_say_nothing_of_the_row_that_was_sampled(context, small, tmp_path):
    """The reward model of mm-rlhf reads a marker behind the critique, under the key of the critique's row."""
    out = tmp_path / "run"
    out.mkdir()
    asyncio.run(train(small(embedded()), context(out=out, steps=1)))
    for episode in episodes(out):
        assert all(len(r["trained"]) == len(r["ids"]) for r in episode["rows"])


def test_whose_tokens_training_saw():
    row = Row(key=("k",), segments=(Segment(ids=(1, 2), trained=True),))
    longer = row.add(Segment(ids=(3,), trained=True))
    assert has_tokens_of(row, row) and has_tokens_of(Row(key=("k",), segments=row.segments), row)
    assert not has_tokens_of(longer, row) and not has_tokens_of(row, None)
    hidden = row.add(Segment(ids=(3,), hidden=True))
    assert has_tokens_of(hidden, row)  # training sees neither


def test_moves_of_a_row_that_is_not_kept_count_for_nothing():
    moves = TokenMoves()
    moves.keep(torch.tensor([0.0, 1.0]), -torch.ones(2, 3), torch.full((2, 3), 2.0))
    row = Row(key=("k",), segments=(Segment(ids=(1, 2), trained=True, policy="policy"),))
    examples = {"policy": [Example(row=row, columns={}), Example(row=row.add(Segment(ids=(3,))), columns={})]}
    weights, ratios = moves_by_row({"policy": moves}, examples, {("k",): row})
    assert weights[("k",)].tolist() == [1.0, 1.0] and ratios[("k",)].tolist() == [2.0, 2.0]

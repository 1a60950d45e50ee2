"""`explain`: hand-computed advantages and token weights."""

import json

import pytest

from palaestra import cli
from palaestra.credit.links import Center, chain
from palaestra.credit.table import Table
from palaestra.explain import explain
from palaestra.recipes.base import dpo, grpo, ppo, reinforce, rloo, sft
from palaestra.runtime.config import vary
from palaestra.types import Episode, Group, Reward, Row, Segment, Task, UserError

FOUR = [[{"reward": r, "length": n} for r, n in zip([1, 0, 0, 0], [2, 4, 4, 4], strict=True)]]


def test_grpo():
    """ddof 1: A = 1.5, -.5; weight A / (G |o|) = .1875 (right, 2 tokens), -.03125 (wrong, 4 tokens)."""
    found = explain(grpo.build(), FOUR)
    assert found["advantages"][0] == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)
    assert found["token_weights"][0][0] == pytest.approx([0.1875] * 2, abs=1e-6)
    assert found["token_weights"][0][3] == pytest.approx([-0.03125] * 4, abs=1e-6)


def test_rloo():
    """A_i = r_i - mean of the others; every token of a sequence weighs A / B."""
    found = explain(rloo.build(), FOUR)
    assert found["advantages"][0] == pytest.approx([1, -1 / 3, -1 / 3, -1 / 3])
    assert found["token_weights"][0][1] == pytest.approx([-1 / 12] * 4)


def test_reinforce_has_one_baseline_for_the_batch():
    found = explain(reinforce.build(), [[{"reward": 1}, {"reward": 1}], [{"reward": 0}, {"reward": 0}]])
    assert found["advantages"] == [[0.5, 0.5], [-0.5, -0.5]]


def test_grpo_edge_cases():
    """A lone sample and equal rewards carry no gradient."""
    for group in ([{"reward": 1.0}], [{"reward": 1.0}, {"reward": 1.0}]):
        found = explain(grpo.build(), [group])
        assert found["advantages"] == [[0.0] * len(group)]
        assert not any(any(w) for w in found["token_weights"][0])


def test_clipping_needs_ratios():
    """ratio e^.3 = 1.35 > 1.2: a positive advantage is clipped to weight 0, a negative one keeps A rho."""
    group = [{"reward": r, "behaviour_logp": [-1.0], "logp": [-0.7]} for r in (1.0, 0.0)]
    found = explain(grpo.build(), [group])["token_weights"][0]
    assert found[0] == [0.0]
    assert found[1] == pytest.approx([-0.7071057 * 1.3498588 / 2], abs=1e-5)


def test_kl_term_needs_the_reference():
    with pytest.raises(UserError, match="ref_logp"):
        explain(grpo.build(kl=0.1), FOUR)
    group = [{"reward": 1, "logp": [-1.0], "ref_logp": [-1.5]}, {"reward": 1, "logp": [-1.0], "ref_logp": [-1.0]}]
    found = explain(grpo.build(kl=0.1), [group])["token_weights"][0]
    assert found[0] == pytest.approx([-0.1 * (1 - 2.718281828**-0.5) / 2])  # d k3 / d logp = 1 - exp(-d)
    assert found[1] == pytest.approx([0.0])


def test_ppo_gae():
    """One trajectory, reward 1 at the end, values .5 .5: deltas 0, .5; GAE(1, .95) = .475, .5; whitened with one other."""
    found = explain(ppo.build(), [[{"reward": 1, "value": [0.5, 0.5]}, {"reward": 0, "value": [0.5, 0.5]}]])[
        "advantages"
    ]
    raw = [0.475, 0.5, -0.475, -0.5]
    mean, std = sum(raw) / 4, (sum(x * x for x in raw) / 3) ** 0.5
    assert found[0][0] + found[0][1] == pytest.approx([(x - mean) / (std + 1e-6) for x in raw])


def test_dpo_weights_are_those_of_the_logistic_loss():
    """margin 0: d loss / d logp of every token of the chosen row = -beta / 2."""
    group = [{"reward": 1, "length": 2, "ref_logp": [-1, -1]}, {"reward": 0, "length": 3, "ref_logp": [-1, -1, -1]}]
    found = explain(dpo.build(), [group])
    assert found["advantages"] == [[1.0, -1.0]]
    assert found["token_weights"][0][0] == pytest.approx([0.05, 0.05])
    assert found["token_weights"][0][1] == pytest.approx([-0.05] * 3)


def test_sft_counts_tokens():
    assert explain(sft.build(), FOUR)["token_weights"][0][0] == pytest.approx([1 / 14] * 2)


def test_turn_rewards_reach_their_turn():
    found = explain(
        ppo.build(),
        [
            [
                {"turn_rewards": [1, 0], "turn_lengths": [1, 1], "value": [0, 0]},
                {"reward": 0, "length": 2, "value": [0, 0]},
            ]
        ],
    )
    a = found["advantages"][0][0]
    assert a[0] > a[1]


def test_command_line(capsys, tmp_path):
    assert cli.main(["explain", "grpo", "--rewards", "[[1,0,0,0]]", "--lengths", "[[2,4,4,4]]", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["token_weights"][0][0] == pytest.approx([0.1875, 0.1875], abs=1e-6)
    group = tmp_path / "g.json"
    group.write_text(json.dumps([[{"reward": 1}, {"reward": 0}]]))
    assert cli.main(["explain", "rloo", "--group", str(group), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["advantages"] == [[1.0, -1.0]]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["explain", "grpo"], "--rewards"),
        (["explain", "grpo", "--rewards", "[[1,0"], "not JSON"),
        (["explain", "grpo", "--rewards", "[1,0]"], "list of groups"),
        (["explain", "grpo", "--rewards", "[[1,0]]", "--lengths", "[[1]]"], "shape"),
        (["explain", "grpoo", "--rewards", "[[1,0]]"], "did you mean grpo"),
        (["explain", "best-of-n", "--rewards", "[[1,0]]"], "no advantages"),
        (["explain", "grpo", "--group", "nowhere.json"], "No such file"),
        (["explain", "grpo", "--rewrds", "[[1,0]]"], "did you mean --rewards"),
        (["explain", "grpo", "--rewards", "[[1,0]]", "links.0.scope=gruop"], "'domain', 'state', 'stratum', 'agent'"),
        (["explain", "grpo", "--rewards", "[[1,0]]", "links.0.scope=state"], "level=turn"),
        (["explain", "rec", "--rewards", "[[1,0]]", "trust=ringe"], "trust takes one of 'all', 'one-side'"),
    ],
)
def test_mistakes(argv, says, capsys):
    assert cli.main(argv) == 2
    assert says in capsys.readouterr().err


def test_scopes_by_name():
    """Centred among equals: by the stratum of episodes, their agent, and the state that a turn starts in."""

    def centred(scope, *group, **at):
        recipe = vary(grpo.build(), credit=chain(Center(scope, **at)))
        return explain(recipe, [list(group)])["advantages"][0]

    by = lambda name, *values: [{"reward": r, name: v} for r, v in zip((1, 0, 3, 0), values, strict=True)]
    assert centred("stratum", *by("stratum", 1, 1, 2, 2)) == [0.5, -0.5, 1.5, -1.5]
    assert centred("agent", *by("agent", "a", "b", "b", "a")) == [0.5, -1.5, 1.5, -0.5]
    states = [{"reward": r, "turn_lengths": [1, 1], "states": s} for r, s in ((1, "xy"), (0, "xz"), (3, "yz"))]
    # x starts turns worth 1 and 0, y 1 and 3, z 0 and 3
    assert centred("state", *states, level="turn") == [[0.5, -1.0], [-0.5, -1.5], [1.0, 1.5]]
    with pytest.raises(UserError, match="group, batch, episode, position, domain, state, stratum, agent"):
        centred("gruop", *by("stratum", 1, 1, 2, 2))


def test_the_agent_is_the_seat_where_no_fact_says_more():
    said = Segment(ids=(1,), trained=True, logp=(0.0,))
    rows = {s: Row(segments=(Segment(ids=(0,)), said), seat=s) for s in "ab"}
    episodes = (Episode(rows=(rows[s],), reward=Reward(total=r)) for s, r in (("a", 1.0), ("b", 0.0), ("a", 0.0)))
    table = Table([Group(task=Task(id="t"), episodes=tuple(episodes))], [], {})
    assert table.keys("agent").tolist() == [0, 1, 0]

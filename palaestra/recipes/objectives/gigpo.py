"""GiGPO: trajectories are compared within their group, and actions with actions taken in the same state.

    A(i, t) = (R_i - mean R) / F + omega (R^s_{i,t} - mean_{S(s)} R^s) / F_S,    R^s_{i,t} = sum_{k>=t} gamma^{k-t} r_{i,k},

S(s) = all turns of the group that start in state s (arXiv:2505.10978). F is 1, or with `std` the standard deviation
(ddof 1) + 1e-6. Every token of a turn gets the turn's advantage. A state seen once has a step advantage of 0; a state
visited twice by one trajectory counts twice; a lone trajectory has credit only where it visits a state again.

`released` (verl-agent): the episode mean and std are over turns, so that longer episodes weigh more, and an action
that was not executed costs `invalid` of its turn's episode return too. In `paper` statistics are over trajectories,
and `invalid` is taken from the turn's step return alone. A row is a whole trajectory here, one turn in the released
code: with a token mean the loss is the same.
"""

from typing import Literal

from palaestra.card import Card, Size
from palaestra.credit.links import Center, Link, Scale, chain
from palaestra.credit.scopes import SameState
from palaestra.credit.turns import Blend, Executed, Peers, TurnReturns
from palaestra.ledger.experiment import Experiment, Final, Greater, Logged
from palaestra.objective.policy import KL, Clipped
from palaestra.objective.track import Track
from palaestra.recipes.base import grpo
from palaestra.step import Recipe, Schedule
from palaestra.values import vary

CARD = Card(
    id="gigpo",
    family="objectives",
    title="Group-in-Group Policy Optimization",
    paper="arXiv:2505.10978",
    parent="grpo",
    claim="Comparing actions taken in the same state adds step-level credit to GRPO at no extra rollout, and raises success.",
    changes={
        "credit": "group advantage of the episode plus omega times the advantage among turns that start in the same state",
        "objective": "token mean; the scripts add a k3 KL loss of 0.01",
    },
    source="a fork of the official code (core_gigpo.py) and the abstract",
    paper_scale=(
        "Qwen2.5-1.5B and 7B-Instruct, G = 8, 16 groups, gamma 0.95, omega 1, lr 1e-6, KL 0.01; ALFWorld: 50 steps "
        "of 512 tokens, std; WebShop: 15 steps, no std"
    ),
    size=Size(
        model="qwen2.5-7b",
        prompts=16,
        samples=8,
        tokens=25600,
        lr=1e-6,
        arguments={"std": True, "kl": 0.01, "collect.links.0.max_tokens": 512},
    ),
)


def build(
    omega: float = 1.0,
    episode: float = 1.0,
    std: bool = False,
    gamma: float = 0.95,
    similarity: float = 1.0,
    invalid: float = 0.1,
    kl: float = 0.0,
    variant: Literal["paper", "released"] = "paper",
) -> Recipe:
    """`episode` weighs the episode advantage: 0 leaves steps alone. `similarity` below 1 joins states that look alike."""
    state = SameState(similarity)
    level, cost = ("turn", (Executed(invalid),)) if variant == "released" else ("episode", ())
    whole: tuple[Link, ...] = (*cost, Center("group", level=level), *((Scale("group"),) if std else ()))
    steps: tuple[Link, ...] = (TurnReturns(gamma), Executed(invalid), Center(state), *((Scale(state),) if std else ()))
    loss = Clipped(reduce="tokens") + Track(("peers",))
    return vary(
        grpo.build(),
        credit=chain(Peers(state), Blend(((episode, whole), (omega, steps)))),
        objective=loss + kl * KL("k3", reduce="tokens") if kl else loss,
        needs=(("ref", "logp"),) if kl else (),
        references={"ref": "policy"} if kl else {},
    )


def anywhere(gamma: float = 0.95) -> Recipe:
    """The same returns by turn, compared with all turns of the group instead of those in the same state."""
    whole = (Center("group"), Scale("group"))
    steps = (TurnReturns(gamma), *whole)
    return vary(build(), credit=chain(Peers(SameState()), Blend(((1.0, whole), (1.0, steps)))))


def small(recipe: Recipe) -> Recipe:
    """Half the prompts, so that twice as many steps fit into a cell."""
    return vary(recipe, schedule=Schedule(prompts=8))


EXPERIMENT = Experiment(
    claim="On T-grid, GRPO's advantage plus an advantage among actions in the same state earns at least 2 points more reward "
    "over the run than GRPO's advantage alone.",
    arms={
        "episode-only": small(build(omega=0.0, std=True, invalid=0.0)),
        "gigpo": small(build(std=True, invalid=0.0)),
        "any-state": small(anywhere()),
        "step-only": small(build(episode=0.0, std=True, invalid=0.0)),
    },
    expect=Greater("gigpo", "episode-only"),
    measure=Logged("reward", last=0),
    metric="mean training reward over the whole run",
    falsified_if="the step advantage adds less than 2 points although states repeat within a group",
    task="grid",
    tokens=36_000,
    evaluate=64,
    seconds=75.0,
    controls={
        "final accuracy": Final(),
        "turns in the same state": Logged("peers", last=0),
        "tokens an episode": Logged("length"),
    },
    note="Every advantage is divided by the standard deviation of what it is compared with (ddof 1), as the paper does on "
    "ALFWorld, so `episode-only` is GRPO with a token mean. No arm has the penalty for impossible actions, which would be a "
    "second difference. `any-state` has gigpo's discounted returns by turn, compared with the whole group: what it gains as well "
    "is not due to states. A state is the whole observation; one seen once has a step advantage of 0. 8 prompts x 8 answers "
    "a step.",
)

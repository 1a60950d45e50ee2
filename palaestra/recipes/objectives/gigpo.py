"""GiGPO: trajectories are compared within their group, and actions with actions taken in the same
state.

    A(i, t) = (R_i - mean R) / F + omega (R^s_{i,t} - mean_{S(s)} R^s) / F_S,    R^s_{i,t} = sum_{k>=t} gamma^{k-t} r_{i,k},

S(s) = all turns of the group that start in state s (arXiv:2505.10978). F is 1, or with `std` the
standard deviation (ddof 1) + 1e-6. Every token of a turn gets the turn's advantage. A state seen
once has a step advantage of 0; a state visited twice by one trajectory counts twice; a lone
trajectory has credit only where it visits a state again.

`released` (verl-agent): the episode mean and std are over turns, so that longer episodes weigh
more, and an action that was not executed costs `invalid` of its turn's episode return too. In
`paper` statistics are over trajectories, and `invalid` is taken from the turn's step return alone.
A row is a whole trajectory here, one turn in the released code: with a token mean the loss is the
same.
"""

from typing import Any, Literal

import palaestra as pl

CARD = pl.Card(
    title="Group-in-Group Policy Optimization",
    paper="arXiv:2505.10978",
    claim="Comparing actions taken in the same state adds step-level credit to GRPO at no extra "
    "rollout, and raises success.",
    source="a fork of the official code (core_gigpo.py) and the abstract",
    size=pl.Size(
        setting="Qwen2.5-1.5B and 7B-Instruct, G = 8, 16 groups, gamma 0.95, omega 1, lr 1e-6, KL "
        "0.01; ALFWorld: 50 steps of 512 tokens, std; WebShop: 15 steps, no std",
        model="qwen2.5-7b",
        prompts=16,
        samples=8,
        tokens=25600,
        lr=1e-6,
        arguments={"std": True, "kl": 0.01, "collect.sample.max_tokens": 512},
    ),
    task="grid",
    needs=pl.needs.Requirements(
        columns=(),
        places=(
            pl.needs.NeededPlace(
                "environment",
                "of several turns, in which states come again",
                built_in=("grid", "grid-legal", "lake", "hop"),
                also=("tools",),
            ),
        ),
        shows="step_credit",
        off={"omega": 0.0},
        own={"model": "tiny-agent", "schedule.prompts": 2, "collect.links.0.n": 4},
    ),
    use="It helps where attempts at one task pass through the same states; where no state comes again, it "
    "is GRPO with returns by turn.",
    lacks=(
        "ALFWorld and WebShop do not come with it: bring them as an environment.",
        "A state is the text that the environment shows; a World of your own has to give a "
        "`state_key`.",
    ),
    grade="A",
)


@pl.stage
class StepCredit:
    """Logs "step_credit": the mean size of the turns' weighted step advantages."""

    omega: float

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        size_N = abs(self.omega * table.lift(x, "turn").x_N)
        table.track("step_credit", pl.Values(level="turn", x_N=size_N))
        return x


def build(
    omega: float = 1.0,
    episode: float = 1.0,
    std: bool = False,
    gamma: float = 0.95,
    similarity: float = 1.0,
    invalid: float = 0.1,
    kl: float = 0.0,
    variant: Literal["paper", "released"] = "paper",
) -> pl.Recipe:
    """`episode` weighs the episode advantage: 0 leaves steps alone. `similarity` below 1 joins
    states that look alike.
    """
    state = pl.credit.SameState(similarity)
    level, cost = (
        ("turn", (pl.credit.Executed(invalid),)) if variant == "released" else ("episode", ())
    )
    whole: tuple[pl.Link, ...] = (
        *cost,
        pl.Center("group", level=level),
        *((pl.Scale("group"),) if std else ()),
    )
    steps: tuple[pl.Link, ...] = (
        pl.credit.TurnReturns(gamma),
        pl.credit.Executed(invalid),
        pl.Center(state),
        *((pl.Scale(state),) if std else ()),
        StepCredit(omega),
    )
    loss = pl.Clipped(reduce="tokens") + pl.Track(("peers",))
    return pl.vary(
        pl.recipe("grpo"),
        credit=pl.chain(
            pl.credit.Peers(state), pl.credit.Blend(((episode, whole), (omega, steps)))
        ),
        objective=loss + kl * pl.KL("k3", reduce="tokens") if kl else loss,
        needs=(("ref", "logp"),) if kl else (),
        references={"ref": "policy"} if kl else {},
    )


def embedded(**options: Any) -> pl.Recipe:
    """On few rooms a step: the small model starts with seven of ten sampled attempts right."""
    return pl.vary(build(**options), schedule=pl.Schedule(prompts=4, steps=24))

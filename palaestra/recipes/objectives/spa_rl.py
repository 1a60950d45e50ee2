"""SPA-RL: a learned estimator says how much each turn contributed, and PPO is paid by turn
(arXiv:2505.20732).

Progress estimator: a copy of the start model with one linear output c_t at each agent turn, trained
so that contributions add up to the outcome, and rewards from them:

    min E (sum_t c_t - R)^2,        r_t = alpha c_t + beta g_t,     alpha = 1, beta = 0.5,

g_t = 1 if the world executed the action (the last one always counts). r_t sits at the last token of
turn t; PPO with GAE runs over the agent tokens of the trajectory. An episode without turns
contributes nothing.

The paper trains the estimator once, on explored trajectories, before RL: here in `warmup` steps in
which the policy stands still, for an estimator that knows nothing pays every turn the same, so that
long failures earn most. With `learns` it goes on learning beside the policy, from the same
episodes. Its output is read from the last hidden state that predicts the turn's last token (in the
code: from the vocabulary's logits at that token). Contributions that are wrong change the optimum:
they are no potential.

Long because a second learner is trained beside the policy: the recipe has its rows at the ends of
turns, its loss over whole episodes, the rewards of its outputs, and the policy's rest at first.
"""

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from torch import Tensor

import palaestra as pl

CARD = pl.Card(
    title="Stepwise Progress Attribution",
    paper="arXiv:2505.20732",
    claim="Contributions of turns that add up to the outcome make a better reward for PPO than the "
    "outcome at the end.",
    source="released code (WangHanLinHenry/SPA-RL-Agent); alpha and beta as in its data builder",
    size=pl.Size(
        setting="Llama-3.2-3B-Instruct; WebShop, ALFWorld, VirtualHome; offline trajectories, one "
        "epoch",
        model="llama-3.2-3b",
    ),
    task="grid",
    needs=pl.needs.Requirements(
        columns=(),
        places=(
            pl.needs.NeededPlace(
                "environment",
                "of several turns, which pays at the end",
                built_in=("grid", "grid-legal", "lake", "hop"),
                also=("tools",),
            ),
        ),
        shows="estimator/progress_error",
        off={"by": "uniform"},
        own={"warmup": 1, "schedule.prompts": 2, "collect.links.0.n": 2},
    ),
    use="It helps where episodes are long and paid at their end alone; an estimator that has seen few "
    "attempts pays turns at random, so let `warmup` run until its error stops falling.",
    lacks=(
        "The estimator is trained on attempts of the start policy, not on a file of trajectories.",
        "WebShop, ALFWorld and VirtualHome do not come with it: bring them as an environment.",
    ),
    grade="A",
)
SIGNAL = "estimator_progress"  # the head "progress" of the learner "estimator"


@pl.stage
class Contributions:
    """r_t = alpha c_t + beta g_t by turn. c_t: the estimator's, an equal share of the outcome, or R
    - mean of the others.
    """

    alpha: float = 1.0
    beta: float = 0.5
    by: Literal["progress", "uniform", "outcome"] = "progress"

    @property
    def weighs_fact(self) -> str:
        return "executed" if self.beta else ""

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        turn = table.turns
        last_N = np.append(turn.episode_N[1:] != turn.episode_N[:-1], [True])[: len(turn.episode_N)]
        done_N = np.array(pl.credit.fact_by_turn(table, "executed", default=True), bool) | last_N
        return pl.Values(
            level="turn", x_N=self.alpha * self._contributions(x, table) + self.beta * done_N
        )

    def _contributions(self, x: pl.Values, table: pl.Table) -> np.ndarray:
        turn, at = table.turns, table.tokens
        if self.by == "uniform":
            return table.lift(x, "turn").x_N / np.bincount(turn.episode_N)[turn.episode_N]
        if self.by == "outcome":
            return pl.credit.leave_one_out(table.reward_E, table.group_E)[turn.episode_N]
        c = dict(
            zip(
                zip(at.episode_N, at.row_N, at.position_N, strict=True),
                pl.credit.table_signal(table, SIGNAL),
                strict=True,
            )
        )
        return np.array(
            [c[k] for k in zip(turn.episode_N, turn.row_N, turn.position_N, strict=True)]
        )


@pl.stage
class TurnEnds:
    """Rows whose trained tokens are the last ones of turns, with the episode's reward; the rows of
    an episode are one unit.
    """

    def __call__(
        self, groups: pl.Groups, signals: pl.Signals, state: pl.State
    ) -> tuple[list[pl.Example], pl.State]:
        table = pl.Table(groups, signals, state)
        ends: dict[tuple[int, int], list[int]] = {}
        for e, r, p in zip(
            table.turns.episode_N, table.turns.row_N, table.turns.position_N, strict=True
        ):
            ends.setdefault((int(e), int(r)), []).append(int(p))
        examples: list[pl.Example] = []
        for (e, r), positions in ends.items():
            trained = np.zeros(len(table.views[e][r].ids_T), bool)
            trained[positions] = True
            columns = {"trained": trained, "reward": float(table.reward_E[e])}
            examples.append(
                pl.Example(row=table.episodes[e].rows[r], columns=columns, unit=f"episode {e}")
            )
        return examples, table.state


@pl.stage
class Decompose(pl.Algebra):
    """mean over episodes of (sum_t c_t - R)^2: return decomposition. A unit is an episode."""

    @property
    def needs(self) -> tuple[str, ...]:
        return ("progress",)

    @property
    def couples(self) -> pl.objective.Couples:
        return "unit"

    def __call__(self, out: pl.Outputs, batch: pl.Batch) -> tuple[Tensor, dict[str, Tensor]]:
        _, unit_B = batch.unit_B.unique(return_inverse=True)
        n = int(unit_B.max()) + 1
        sum_B = (out["progress"] * batch.mask).sum(1)
        sum_U = sum_B.new_zeros(n).index_add(0, unit_B, sum_B)
        target_U = sum_B.new_zeros(n).scatter(0, unit_B, batch["reward"].to(sum_B))
        loss = ((sum_U - target_U) ** 2).sum() / batch.n_units
        return loss, {"progress_error": loss.detach()}


@pl.stage
class ProgressAgreement:
    """Leaves the column "agreement": z-scores of what came in times those of the change of distance
    (the fact "closer").

    Its mean over tokens is their correlation.
    """

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        closer = pl.Values(
            level="turn", x_N=np.array(pl.credit.fact_by_turn(table, "closer"), float)
        )
        by_token = [table.lift(y, "token").x_N for y in (x, closer)]
        a_N, b_N = ((y - y.mean()) / (y.std() + 1e-9) for y in by_token)
        table.add_column("agreement", pl.Values(level="token", x_N=a_N * b_N))
        return x


def build(
    alpha: float = 1.0,
    beta: float = 0.5,
    by: Literal["progress", "uniform", "outcome"] = "progress",
    warmup: int = 10,
    learns: bool = False,
    compare: bool = False,
    kl: float = 0.0,
) -> pl.Recipe:
    """`warmup` steps train the estimator alone; after them it learns on only with `learns`.

    `compare` logs the correlation of turn rewards with the change of distance, where the world
    tells it. `kl` takes kl * (log pi_old - log pi_ref) off every token's reward.
    """
    ppo = pl.recipe("ppo", kl=kl)
    paid: tuple[pl.Link, ...] = (
        Contributions(alpha, beta, by),
        *((ProgressAgreement(),) if compare else ()),
    )
    credit = pl.chain(
        *paid, pl.Gae(gamma=1.0, lam=0.95, kl=kl), pl.Center("batch"), pl.Scale("batch")
    )
    if by != "progress":
        return pl.vary(ppo, credit=credit)
    policy = rest_learner(ppo, warmup).learners["policy"]
    needs = (*policy.needs, ("estimator", "progress"))
    objective = (
        pl.objective.Sum((policy.objective, pl.Track(("agreement",))))
        if compare
        else policy.objective
    )
    estimator = pl.Learner(
        credit=TurnEnds(),
        objective=Decompose(),
        update=pl.Cycle(
            pl.Plain(epochs=2, minibatches=4),
            period=1,
            on=(0,) if learns else (),
            warmup=warmup,
            warms=True,
        ),
        heads=("progress",),
    )
    policy = replace(policy, credit=credit, objective=objective, needs=needs)
    return pl.vary(ppo, learners={"policy": policy, "estimator": estimator})


def rest_learner(learned: pl.Recipe, warmup: int) -> pl.Recipe:
    """A recipe of one learner that does not move in the first `warmup` steps."""
    (learner,) = learned.learners.values()
    return pl.vary(learned, update=pl.Cycle(learner.update, period=1, on=(0,), warmup=warmup))


def embedded(warmup: int = 4, **options: Any) -> pl.Recipe:
    """On few rooms a step, of which the estimator has four to itself."""
    return pl.vary(build(warmup=warmup, **options), schedule=pl.Schedule(prompts=4, steps=16))

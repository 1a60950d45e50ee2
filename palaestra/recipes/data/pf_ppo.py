"""PF-PPO: PPO on samples from the region where the reward model can be trusted.

After the advantages are known a batch is drawn anew from its own samples, with replacement, since a reward
model errs most in the middle. The weights w of a sample are (arXiv:2409.06957) by its rank within the answers
of its prompt

    "best"         1 for the best answer, 0 else
    "best_random"  1/2 for the best, 1/2 shared by the others
    "best_worst"   1/2 for the best, 1/2 for the worst

or, as in verl, by its reward s in the whole batch

    "pow"          |s|^k, k = 2
    "max_min"      1 for the largest and the smallest s, 0 else
    "max_random"   0.4 for the largest s, 0.1 else

Answers with equal rewards share their weight, and all of equal rewards are drawn alike. It is no importance
sampling: the estimate moves to the extremes on purpose. Under "pow" a negative reward is a large one.

`choose=True` takes the form that the paper's rule prefers: each form filters the answers to `tasks` held-out
problems, and that with the largest R^2 of a straight line through the true scores against the rewards is
trained with. The rewards are `reward`'s, a reward model or a judge; the true scores are the problem's. The
paper averages both within bins of the reward; here there are `BINS` of equal width. The held-out problems
choose the form, so measure the result on others.

Long because the paper compares six forms of weights, by rank or by reward: the recipe has the forms, the draw
by rank within a prompt, and the program that measures how reliable rewards are under each.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np

import palaestra as pl

Ranked = Literal["best", "best_random", "best_worst"]
Scored = Literal["pow", "max_min", "max_random"]
Form = Literal["best", "best_random", "best_worst", "pow", "max_min", "max_random"]

CARD = pl.Card(
    title="Policy Filtration for PPO",
    paper="arXiv:2409.06957",
    claim="PPO on the samples whose reward model is reliable writes better programs than PPO on "
    "all of them.",
    source="verl (compute_pf_ppo_reweight_data) and excerpts of the paper; rank weights by prompt from memory",
    size=pl.Size(setting="a 7B code model of the class of DeepSeek-Coder, 5 answers a prompt"),
    needs=pl.needs.Requirements(
        models=(
            pl.needs.NeededModel(
                "reward model",
                "reward",
                "scores the answers, and errs where it is not sure",
                inert=None,
                example="DIR",
                otherwise="the problem's own reward scores them, which has no middle to err in",
            ),
        ),
        shows="redrawn",
        off={"form": "all"},
        own={"form": "best_worst", "schedule.prompts": 4, "collect.links.0.n": 4},
    ),
    use="It helps where a learned reward is right about very good and very bad answers and unsure between; with "
    "a verifier it only throws samples away.",
    lacks=(
        "By default samples are weighed as in verl (`pow`); the forms that the paper prefers "
        "have to be asked for, or chosen with `choose=True`.",
    ),
    grade="A",
)
BINS = 10  # of the rewards, in which they and the true scores are averaged
SAMPLES = 5  # answers a problem when a form is chosen, as in the paper


@pl.stage
class ByReward:
    """The weight of a sample by its reward."""

    form: Scored = "pow"
    k: float = 2.0

    def __call__(self, reward_N: np.ndarray) -> np.ndarray:
        largest_N, smallest_N = reward_N == reward_N.max(), reward_N == reward_N.min()
        if self.form == "max_min":
            return (largest_N | smallest_N).astype(float)
        if self.form == "max_random":
            return np.where(largest_N, 0.4, 0.1)
        return np.abs(reward_N) ** self.k


def rank_weights(reward_G: np.ndarray, form: Ranked) -> np.ndarray:
    """[G] weights of the answers of one prompt, which sum to 1; equal rewards share theirs."""
    best_G, worst_G = reward_G == reward_G.max(), reward_G == reward_G.min()
    if best_G.all():
        return np.full(len(reward_G), 1 / len(reward_G))
    best_G = best_G / best_G.sum()
    if form == "best":
        return best_G
    others_G = worst_G if form == "best_worst" else best_G == 0
    return (best_G + others_G / others_G.sum()) / 2


def weigh(reward_N: np.ndarray, group_N: np.ndarray, form: Form, k: float = 2.0) -> np.ndarray:
    """[N] weights of samples by their rewards and the prompts that they answer."""
    chosen: Any = form
    if form in get_args(Scored):
        return ByReward(chosen, k)(reward_N)
    weight_N = np.zeros(len(reward_N))
    for group in np.unique(group_N):
        mine = group_N == group
        weight_N[mine] = rank_weights(reward_N[mine], chosen)
    return weight_N


@pl.stage
class ResampledByRank:
    """As many examples as `credit` gives, drawn from them by the ranks of their rewards within the
    answers to a prompt.
    """

    credit: pl.Credit
    form: Ranked = "best_worst"

    @property
    def keeps_equal(self) -> bool:
        return pl.abilities.keeps_equal(self.credit)

    def __call__(
        self, groups: pl.Groups, signals: pl.Signals, state: pl.State
    ) -> tuple[list[pl.Example], pl.State]:
        examples, state = self.credit(groups, signals, state)
        if not examples:
            return examples, state
        reward_N, group_N = (
            np.array([float(e.columns[c]) for e in examples]) for c in ("reward", "group")
        )
        weight_N = weigh(reward_N, group_N, self.form)
        rng = pl.rng_of(("resampled", *examples[0].row.key))
        at = rng.choice(len(examples), len(examples), p=weight_N / weight_N.sum())
        return [examples[i] for i in at], state


@pl.stage
class MarkRedrawn:
    """The column "redrawn" of examples: how many more there are than different ones, as a share."""

    credit: pl.Credit

    @property
    def keeps_equal(self) -> bool:
        return pl.abilities.keeps_equal(self.credit)

    def __call__(
        self, groups: pl.Groups, signals: pl.Signals, state: pl.State
    ) -> tuple[list[pl.Example], pl.State]:
        examples, state = self.credit(groups, signals, state)
        share = 1 - len({id(e) for e in examples}) / len(examples) if examples else 0.0
        marked = (np.full(len(e.row.context()), share) for e in examples)
        return [
            replace(e, columns={**e.columns, "redrawn": x})
            for e, x in zip(examples, marked, strict=True)
        ], state


def fit_r2(reward_N: np.ndarray, truth_N: np.ndarray, weight_N: np.ndarray) -> float:
    """R^2 of the straight line of the truth against the rewards, of weighted samples; 0 where either
    is constant.
    """
    w_N = weight_N / weight_N.sum()
    x_N, y_N = reward_N - w_N @ reward_N, truth_N - w_N @ truth_N
    spread = (w_N @ x_N**2) * (w_N @ y_N**2)
    return float((w_N @ (x_N * y_N)) ** 2 / spread) if spread > 1e-12 else 0.0


def reliability(
    reward_N: np.ndarray, truth_N: np.ndarray, group_N: np.ndarray, form: Form, k: float = 2.0
) -> float:
    """R^2 of what a form leaves: both are averaged within bins of the reward, and a bin counts once."""
    weight_N = weigh(reward_N, group_N, form, k)
    kept = weight_N > 0
    if not kept.any():
        return 0.0
    reward_N, truth_N, weight_N = reward_N[kept], truth_N[kept], weight_N[kept]
    width = max(float(np.ptp(reward_N)), 1e-12) / BINS
    bin_N = np.minimum(((reward_N - reward_N.min()) / width).astype(int), BINS - 1)
    bins = [bin_N == b for b in np.unique(bin_N)]
    x_B, y_B = (
        np.array([np.average(z[b], weights=weight_N[b]) for b in bins]) for z in (reward_N, truth_N)
    )
    return fit_r2(x_B, y_B, np.ones(len(bins)))


@pl.stage
class ChooseForm:
    """A program: measures how reliable the rewards are that each form leaves, and trains with the
    best one. Its summary is that of the run, with "form" and "r2", by form.

    Args:
        reward: of which the middle may err.
        recipe: the parent, whose credit is filtered.
        tasks: held-out problems, each answered five times.
    """

    recipe: pl.Recipe
    reward: pl.RewardFn
    k: float = 2.0
    tasks: int = 128

    async def run(self, ctx: pl.Context) -> pl.Result:
        groups = await pl.run.attempt_tasks(ctx, self.tasks, pl.Sample(n=SAMPLES), label="forms")
        reward, truth, group = list[float](), list[float](), list[int]()
        for i, each in enumerate(groups):
            scores = await pl.judge_group(ctx, self.reward, each)
            for score, episode in zip(scores, each.episodes, strict=True):
                if isinstance(score, pl.Reward) and episode.reward is not None:
                    reward.append(score.total)
                    truth.append(episode.total)
                    group.append(i)
        if not reward:
            raise pl.Fault("starved", "no answer to a held-out problem has both scores")
        reward_N, truth_N, group_N = np.array(reward), np.array(truth), np.array(group)
        r2: Mapping[Form, float] = {
            f: reliability(reward_N, truth_N, group_N, f, self.k) for f in get_args(Form)
        }
        form = max(r2, key=lambda f: r2[f])
        ctx.say(f"{form} filters best: R^2 {', '.join(f'{f} {v:.2f}' for f, v in r2.items())}")
        result = await ctx.train(filtered(self.recipe, form, self.k))
        return replace(result, metrics={**result.metrics, "form": form, "r2": dict(r2)})


def filtered(parent: pl.Recipe, form: Form, k: float = 2.0) -> pl.Recipe:
    """A recipe whose examples are drawn anew by a form."""
    (learner,) = parent.learners.values()
    chosen: Any = form
    if form in get_args(Scored):
        return pl.vary(parent, credit=pl.credit.Resampled(learner.credit, ByReward(chosen, k)))
    return pl.vary(parent, credit=ResampledByRank(learner.credit, chosen))


def build(
    form: Literal[
        "all", "best", "best_random", "best_worst", "pow", "max_min", "max_random"
    ] = "pow",
    k: float = 2.0,
    reward: pl.RewardFn | None = None,
    choose: bool = False,
    tasks: int = 128,
) -> pl.Recipe | ChooseForm:
    """`reward` stands in place of the problem's own; form="all" filters nothing. With `choose` the
    form follows from `tasks` held-out problems.
    """
    parent = pl.recipe("ppo")
    if reward is not None:
        score = pl.Score(reward=reward, shadow=True)
        parent = pl.vary(parent, collect=pl.links(pl.Sample(n=8), score))
    if choose:
        if reward is None:
            raise pl.UserError(
                "pf-ppo: choose=True compares a reward model with the problem's own reward; give "
                "reward=DIR, or reward=judge(url=...,rubric=...)"
            )
        return ChooseForm(parent, reward, k, tasks)
    made = parent if form == "all" else filtered(parent, form, k)
    (learner,) = made.learners.values()
    loss: Any = learner.objective
    return pl.vary(
        made, credit=MarkRedrawn(learner.credit), objective=loss + pl.Track(("redrawn",))
    )

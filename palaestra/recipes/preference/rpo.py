"""RPO, Regularized Preference Optimization: DPO, and imitation of a baseline's answers that is weighed
by eta * beta. Imitation stands for an adversary that lowers the reward of what the pairs do not cover.

    max_pi min_R  eta * {E[R(x, y ~ pi) - R(x, y_base ~ pi_base)] - beta KL(pi || ref)} + E[softplus(R(y_l) - R(y_w))]

Max and min change places, and R = beta (log pi - log ref) + a constant of x leaves one loss:

    L = -log sigmoid(beta [h(y_w) - h(y_l)]) - eta * beta * log pi(y_base|x),    h(y) = log pi(y|x) - log ref(y|x)

(arXiv:2405.16436; released code, scripts/rpo_trainer.py). `baseline` is pi_base:

    "chosen"          y_base = y_w, what people preferred: the paper's practice, DPO with a loss of SFT
    "demonstration"   the column of this name, such as the data that the start was fine-tuned on; in a
                      row without one the chosen answer stands for it, which the run says, and a file
                      without any is refused
    "reference"       an answer that the start samples at every visit: a KL(ref || pi) up to a constant

log pi sums over the tokens of an answer, so a long one is imitated more; reduce="mean" divides by
their number, as the second release does (there the whole weight is 0.2 at beta 0.5: `beta=0.5
eta=0.4 reduce=mean`). An eta says nothing without its reduction. At eta=0 the method is DPO to the
bit. Answers of one line need a larger eta than chats of hundreds of tokens, of which 0.005 is.

    palaestra train rpo --data pairs.jsonl --model DIR [eta=0.005] [baseline=demonstration]

`baseline_loss` is the whole term in nats, and `chosen` and `rejected` are the means of h: DPO lets both
sink, which is what the term is to prevent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Literal

import torch
from torch import Tensor

import palaestra as pl

CARD = pl.Card(
    title="Regularized Preference Optimization (DPO + SFT)",
    paper="arXiv:2405.16436",
    claim="The loss of supervised fine-tuning, added to that of DPO, is an adversarial regulariser "
    "that mitigates over-optimisation.",
    source="abstract for the problem; released code and its configurations for the loss, eta, beta "
    "and the learning rate",
    size=pl.Size(
        setting="Zephyr-7B (mistral-7b-sft-beta) and Gemma-7B on UltraFeedback and dpo-mix-7k, eta "
        "0.005, beta 0.01 and 0.05, lr 5e-7 cosine, 1 and 2 epochs, 1,024 tokens",
        model="mistral-7b",
        tokens=1024,
        lr=5e-7,
    ),
    task="preferences",
    needs=pl.needs.Requirements(
        columns=(
            *pl.needs.PAIRS,
            replace(
                pl.needs.DEMONSTRATION,
                meaning="an answer of the baseline, such as the start was fine-tuned on, which is imitated; "
                "in a row without one the chosen answer is",
                when={"baseline": ("demonstration",)},
            ),
        ),
        shows="baseline_loss",
        off={"eta": 0.0},
        own={"schedule.prompts": 4},
    ),
    use="It helps where the pairs are few or cover little, and the chosen answers are good enough to "
    "be imitated; where chosen answers are bad themselves, DPO alone is better.",
    lacks=(
        "The theoretical algorithm, a maximin over an explicit class of rewards, is not run, and "
        "its bound on the samples under partial coverage is not tested.",
        "MT-Bench and AlpacaEval, judged by GPT-4, are not measured.",
        "Its advantage over DPO on a model of the paper's size is not measured.",
    ),
    grade="B",
)
Baseline = Literal["chosen", "demonstration", "reference"]
MARK = "baseline"  # the fact of an episode that is imitated and not compared


@pl.stage
class RPO(pl.DPO):
    """DPO, and -eta * beta * log pi of each pair's baseline answer: of the rows of its unit with
    `sign` 0, else of the chosen one.

    Args:
        eta: the weight of the adversary, in units of beta.
        reduce: log pi summed over the tokens of an answer, in nats, or its mean over them.
    """

    eta: float = 0.005
    reduce: Literal["sum", "mean"] = "sum"

    def __post_init__(self) -> None:
        super().__post_init__()
        pl.check_bounds("RPO.eta", self.eta, least=0)

    def __call__(self, out: pl.Outputs, batch: pl.Batch) -> tuple[Tensor, dict[str, Tensor]]:
        loss, metrics = super().__call__(out, batch)
        nll = baseline_nll(out, batch, self.reduce).sum() / batch.n_units
        term = self.eta * self.beta * nll
        logged = {"baseline_nll": nll.detach(), "baseline_loss": term.detach()}
        return loss + term, {**metrics, **logged}


def baseline_nll(out: pl.Outputs, batch: pl.Batch, reduce: str = "sum") -> Tensor:
    """[units in this part] -log pi of the baseline's answer, in nats; several are averaged. By
    "mean" it is per token of it.
    """
    sum_B, n_B = (out["logp"] * batch.mask).sum(1), batch.mask.sum(1).clamp(min=1)
    given_B = (batch["sign"] == 0).to(sum_B.dtype)
    given_U = pl.objective.sum_by_unit(given_B, batch)
    each_B = -given_B * (sum_B / n_B if reduce == "mean" else sum_B)
    own_U = pl.objective.sum_by_unit(each_B, batch) / given_U.clamp(min=1)
    chosen_U = pl.objective.chosen_nll(out, batch, total=reduce == "sum")
    return torch.where(given_U > 0, own_U, chosen_U)


@pl.declare(facts=(("baseline", bool, "whether the answer is a baseline's, which no pair has"),))
@pl.stage
class AddBaseline:
    """Adds an answer of the baseline to a group, marked as one: the task's `demonstration`, or what
    the model "ref" samples. A task without a demonstration gets none.
    """

    source: Baseline

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        return replace(group, episodes=(*group.episodes, *await self._answers(ctx, key, group)))

    async def _answers(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> list[pl.Episode]:
        task = group.task
        if self.source == "demonstration":
            text = task.meta.get("demonstration")
            if not text:
                return []
            where = f"task {task.id!r}: its demonstration"
            given = pl.recorded_episode(
                ctx, "policy", task.prompt, str(text), 1.0, of=where, judged=False
            )
            return [replace(given, facts={MARK: True})]
        sampled = pl.links(pl.Sample(n=1, model="ref"), pl.Offline())
        made = await sampled(ctx, (*key, MARK), pl.Group(task=task))
        none = pl.Reward(total=0.0, judged=False)  # a baseline is imitated whatever it is worth
        return [replace(e, reward=none, facts={**e.facts, MARK: True}) for e in made.episodes]


@pl.stage
class PairsAndBaselines:
    """The pairs of `credit`, made without the marked episodes; each of these joins its group's
    pair as rows with `sign` 0, or is left out where the group has no pair.
    """

    credit: pl.Credit = pl.credit.Prefer()

    def __call__(
        self, groups: pl.Groups, signals: pl.Signals, state: pl.State
    ) -> tuple[list[pl.Example], pl.State]:
        kept = [[e for e, x in enumerate(g.episodes) if not x.facts.get(MARK)] for g in groups]
        compared = [
            replace(group, episodes=tuple(group.episodes[e] for e in at))
            for group, at in zip(groups, kept, strict=True)
        ]
        measured = [[rows[e] for e in at] for rows, at in zip(signals, kept, strict=True)]
        pairs, state = self.credit(compared, measured, state)
        group_of = {
            id(row): g for g, x in enumerate(compared) for e in x.episodes for row in e.rows
        }
        examples: list[pl.Example] = []
        for unit, rows in groupby(pairs, lambda x: x.unit):
            pair = list(rows)
            examples += pair
            g = group_of[id(pair[0].row)]
            examples += baseline_rows(groups[g], signals[g], pair[0].columns["gap"], unit)
        return examples, state


def baseline_rows(
    group: pl.Group, signals: Sequence[Sequence[Mapping[str, Any]]], gap: float, unit: str
) -> list[pl.Example]:
    """The rows of a group's marked episodes, with `sign` 0, as a part of a pair's unit."""
    return [
        pl.Example(row=row, columns={"sign": 0.0, "gap": gap, **signals[e][r]}, unit=unit)
        for e, episode in enumerate(group.episodes)
        if episode.facts.get(MARK) and episode.ok
        for r, row in enumerate(episode.rows)
    ]


def build(
    pairs: Literal["data", "rollouts"] = "data",
    baseline: Baseline = "chosen",
    beta: float = 0.01,
    eta: float = 0.005,
    reduce: Literal["sum", "mean"] = "sum",
) -> pl.Recipe:
    """`beta` and `eta` are those of the paper's Zephyr, whose answers have hundreds of tokens."""
    parent = pl.recipe("dpo", pairs=pairs, beta=beta)
    if eta == 0:
        return parent
    made = pl.vary(parent, objective=RPO(beta=beta, eta=eta, reduce=reduce))
    if baseline == "chosen":
        return made
    (learner,) = made.learners.values()
    return pl.vary(
        made,
        collect=pl.links(parent.collect, AddBaseline(baseline)),
        credit=PairsAndBaselines(learner.credit),
    )


def embedded(beta: float = 0.1, eta: float = 0.2, **options: Any) -> pl.Recipe:
    """On pairs that differ in a letter or two, of which some are labelled wrongly; answers have some
    tens of tokens, so that eta is larger than the paper's.
    """
    return build(beta=beta, eta=eta, **options)

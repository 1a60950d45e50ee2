"""CARFT: PPO, and a pull of the policy's own reasoning towards the worked solution of the same
problem, and away from those of others.

The embedding of a chain of thought is z = sum_t softmax(v)_t proj(h_t) over its reasoning tokens
(prompt and answer line left out), with v the values of the critic and proj a linear map to 64
numbers. z1 is the annotated solution's, measured before the update, without gradient; z2 the
policy's own, with gradient (arXiv:2508.15868; the released trainer v4):

    L_cl = - mean over b with a right answer of log( exp(cos(z1_b, z2_b) / tau) / sum_c exp(cos(z1_b, z2_c) / tau) ),  tau = 0.2
    L = L_ppo + 0.1 L_value + L_cl

over all rows c of the optimiser batch. PPO is ReFT's: reward at the last token minus 0.05 (log pi -
log pi_ref), GAE(1, 0.95). One sample a prompt, so that the other rows are other problems. Nobody
right: L_cl = 0. An answer or solution of one line is embedded whole. The values are used as
attention, so a bad critic also harms the embedding.

Left out: the variant with wrong answers as negatives, split by longest common subsequences, which
embeds parts of the annotation apart and is not the one that the authors say gives the paper's
numbers.

Long because the contrastive term crosses three places that no shared part connects: a collect link that adds the
worked solution as a row, a credit that separates this row from the policy's own, and a loss over the whole batch.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

import palaestra as pl

CARD = pl.Card(
    title="CARFT: contrastive learning with annotated CoT",
    paper="arXiv:2508.15868",
    claim="Contrasting the policy's reasoning with annotated solutions makes reinforced "
    "fine-tuning more stable and better.",
    source="released code (WNQzhu/CARFT, trainer v4) and abstract",
    size=pl.Size(
        setting="CodeLlama-7B and Qwen2.5 on GSM8K and SVAMP, batch 32, 1,024 tokens, lr 3e-7, up "
        "to 100 epochs",
        model="llama-2-7b",
        prompts=32,
        tokens=1024,
        lr=3e-7,
    ),
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.ANSWER,
            replace(
                pl.needs.DEMONSTRATION,
                meaning="a worked solution; of several lines the last is its answer",
            ),
        ),
        shows="contrast",
        off={"contrast": 0.0},
        own={"schedule.prompts": 16},
    ),
    use="It helps where worked solutions are there and the policy solves some problems; it learns only "
    "from right answers, and needs a batch of several problems to contrast.",
    lacks=("Wrong answers as negatives, the paper's other form, are left out.",),
    grade="B",
)
ANNOTATION = "annotation"


@pl.declare(facts=(("answer_tokens", int, "tokens of the answer line of the reply"),))
@pl.stage
class Annotate:
    """Adds the worked solution, without its answer line, as a last row of every episode; nobody's
    policy, so never trained on. A solution of the user's in one line is taken whole.

    The fact "answer_tokens" says how many tokens of the reply are its answer line (0 where it has
    no other line).
    """

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        task, dialect = group.task, ctx.engine().dialect
        own = str(task.meta.get("demonstration") or "").strip()
        written = own or pl.tasks.demonstration(ctx.bench.tasks, task, pl.rng_of(key), "work")
        reasoning = written.rpartition("\n")[0] or own
        if not reasoning:
            raise pl.UserError(
                f"task {task.id!r} has no worked solution: give it a `demonstration` column, or "
                "train grpo"
            )
        annotation = pl.Segment(
            ids=dialect.encode_text(reasoning), author=ANNOTATION, trained=True, text=reasoning
        )

        def annotated(e: pl.Episode) -> pl.Episode:
            heard = tuple(takewhile(lambda s: not s.trained, e.rows[0].segments))
            facts = {**e.facts, "answer_tokens": answer_tokens(ctx, e.rows[-1])}
            return replace(e, rows=(*e.rows, pl.Row(segments=(*heard, annotation))), facts=facts)

        return replace(
            group, episodes=tuple(annotated(e) if e.ok and e.rows else e for e in group.episodes)
        )


def answer_tokens(ctx: pl.Context, row: pl.Row) -> int:
    """Tokens of the last line of the row's last reply."""
    ids = next((s.ids for s in reversed(row.segments) if s.trained), ())
    for n in range(1, len(ids) + 1):
        if "\n" in ctx.decode(ids[-n:]):
            return n
    return 0


@pl.stage
class WithAnnotation:
    """Credit of the policy's own rows, with columns "annotation" [1, D] (z1), "right", and "span"
    [T], the reasoning tokens.

    `shuffled` gives every group the annotation of the next one: a placebo.
    """

    credit: pl.Credit
    shuffled: bool = False
    right: float | None = None
    reads_right: ClassVar[bool] = True

    def __call__(
        self, groups: pl.Groups, signals: pl.Signals, state: pl.State
    ) -> tuple[list[pl.Example], pl.State]:
        own = [
            replace(g, episodes=tuple(replace(e, rows=own_rows(e)) for e in g.episodes))
            for g in groups
        ]
        kept = [
            [s[: len(e.rows)] for s, e in zip(each, g.episodes, strict=True)]
            for each, g in zip(signals, own, strict=True)
        ]
        examples, state = self.credit(own, kept, state)
        z1 = [annotation(g, each) for g, each in zip(groups, signals, strict=True)]
        z1 = z1[1:] + z1[:1] if self.shuffled else z1
        place = {
            id(r): (g, e, i)
            for g, x in enumerate(own)
            for e, y in enumerate(x.episodes)
            for i, r in enumerate(y.rows)
        }
        return [self._example(x, own, kept, z1, place[id(x.row)]) for x in examples], state

    def _example(
        self,
        x: pl.Example,
        own: Sequence[pl.Group],
        signals: pl.Signals,
        z1: Sequence[np.ndarray | None],
        at: tuple[int, int, int],
    ) -> pl.Example:
        g, e, i = at
        episode, vector = own[g].episodes[e], z1[g]
        span_T = x.row.view().trained_T.astype(float)
        if i == len(episode.rows) - 1 and (n := int(episode.facts.get("answer_tokens", 0))):
            span_T[np.flatnonzero(span_T)[-n:]] = 0
        if not span_T.any():
            span_T = x.row.view().trained_T.astype(float)
        z2 = np.atleast_2d(signals[g][e][i]["policy_embedding"])
        known = vector is not None
        columns = {
            "annotation": vector if known else np.zeros_like(z2),
            "right": float(known and episode.is_right(self.right)),
            "span": span_T,
        }
        return replace(x, columns={**x.columns, **columns})


def own_rows(episode: pl.Episode) -> tuple[pl.Row, ...]:
    return tuple(r for r in episode.rows if not r.segments or r.segments[-1].author != ANNOTATION)


def annotation(
    group: pl.Group, signals: Sequence[Sequence[dict[str, np.ndarray]]]
) -> np.ndarray | None:
    """[1, D] z1 of a group's task."""
    for e, each in zip(group.episodes, signals, strict=True):
        if len(own_rows(e)) < len(e.rows):
            return each[-1]["policy_embedding"]
    return None


def info_nce(sim_BB: Tensor, on_B: Tensor, temperature: float) -> Tensor:
    """[B] -log softmax(sim / temperature) at the row's own column, 0 where not `on`."""
    return -torch.log_softmax(sim_BB / temperature, 1).diagonal() * on_B


@pl.stage
class InfoNCE(pl.Algebra):
    """L_cl over the rows of the optimiser batch."""

    temperature: float = 0.2

    @property
    def needs(self) -> tuple[str, ...]:
        return ("embedding",)

    @property
    def couples(self) -> pl.objective.Couples:
        return "batch"

    def __call__(self, out: pl.Outputs, batch: pl.Batch) -> tuple[Tensor, dict[str, Tensor]]:
        z1_BD, z2_BD = (
            normalize(z.flatten(1), dim=1) for z in (batch["annotation"], out["embedding"])
        )
        sim_BB, on_B = z1_BD.to(z2_BD.dtype) @ z2_BD.T, batch["right"].to(z2_BD.dtype)
        loss = info_nce(sim_BB, on_B, self.temperature).sum() / (on_B.sum() + 1e-8)
        return loss, {"contrast": loss.detach(), "similarity": sim_BB.diagonal().mean().detach()}


def build(
    contrast: float = 1.0,
    shuffled: bool = False,
    kl: float = 0.05,
    value: float = 0.1,
    right: float | None = None,
) -> pl.Recipe:
    """`value` weighs the value loss; the released configuration class says 5, its help text 0.1.
    `right` is the reward from which on an answer is right; None = as the reward says, else 1.
    """
    parent = pl.recipe("ppo", kl=kl)
    (learner,) = parent.learners.values()
    surrogate = pl.Clipped(reduce="sequences") + value * pl.ValueLoss(clip=0.2)
    reft = pl.vary(
        parent,
        collect=pl.links(pl.Sample(1), pl.Score()),
        objective=surrogate,
        schedule=pl.Schedule(prompts=128, steps=50),
    )
    if not contrast:
        return reft
    return pl.vary(
        reft,
        collect=pl.links(pl.Sample(1), pl.Score(), Annotate()),
        credit=WithAnnotation(learner.credit, shuffled, right),
        objective=surrogate + contrast * InfoNCE(),
        needs=(*learner.needs, ("policy", "embedding")),
        heads=("value", "projection"),
    )

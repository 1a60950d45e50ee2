"""PAV, process advantage verifiers: a step is rewarded for the progress it makes under a prover.

With Q^mu(s_h, a_h) the chance of success after step h when a prover mu goes on, A^mu = Q^mu(s_h,
a_h) - Q^mu(s_{h-1}, a_{h-1}):

    grad = E[ sum_h grad log pi(a_h | s_h) * (Q^pi(s_h, a_h) + alpha A^mu(s_h, a_h)) ]       (arXiv:2410.08146, eq. 5)

The prover must be complementary: mu = pi only shifts the baseline, a very strong one succeeds from
everywhere. Here it is the best of `k` tries of the policy, or of another model, `prover`: Q = 1 - (1
- Q^pi)^k. Q^pi of the sum is the outcome, an unbiased sample of it, less the group's mean. Steps are
lines. Where A^mu comes from:

    default            Q^pi from `n` continuations of every step's prefix (shared prefixes once), each step anew
    verifier=train     first a verifier is trained on such prefixes of the start's answers, by cross-entropy,
                       -Q log p - (1 - Q) log(1 - p); it stays as it is and predicts Q^pi in all steps
    verifier=DIR       a verifier that such a run has trained, RUN/verifier/checkpoints/step-N

    palaestra train pav --data FILE.jsonl --model DIR verifier=train --out RUN
    palaestra search --data FILE.jsonl --model RUN/rl/checkpoints/step-N --with "beam(progress=0.5)"
        --reward-model RUN/verifier/checkpoints/step-N

The search keeps the beginnings with the greatest Q^pi + progress A^mu.

A prefix from which nothing succeeds has A^mu = 0; the progress of an answer telescopes to at most 1. With
`right` the chance is the share of continuations whose reward is `right` or more, for rewards that are no
chance of success by themselves; else it is their mean reward. Equal rewards still carry progress; a group of
one has an outcome advantage of 0. The continuations count as sampled tokens. One verifier predicts both Q^pi
and, by `k`, Q^mu; the paper trains two.

Long because progress has three sources: sampled continuations, a verifier that the run trains on rated prefixes,
and one from an earlier run; the recipe has the rows, the loss and the predictions of that verifier.
"""

import asyncio
from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.nn.functional import softplus

import palaestra as pl

PROVER, VERIFIER, HEAD = "prover", "verifier", "value"
TRAIN = "train"
CARD = pl.Card(
    title="Rewarding Progress: process advantage verifiers (PAV)",
    paper="arXiv:2410.08146",
    claim="Rewarding the progress of steps under a complementary prover learns from five times "
    "fewer samples.",
    source="equation from a public study of the paper; k, steps as lines and Monte-Carlo values "
    "are choices",
    size=pl.Size(
        setting="Gemma 2B and 9B on MATH, alpha 5 and 3, KL .001, lr 1e-7, batch 32, 512 tokens",
        model="gemma-2-9b",
        answers=32,
        tokens=512,
        lr=1e-7,
        arguments={"kl": 1e-3},
    ),
    needs=pl.needs.Requirements(
        models=(
            pl.needs.NeededModel(
                PROVER,
                "prover",
                "goes on from every step",
                otherwise="the policy's best of `k` tries goes on",
                reads_tokens=True,
            ),
        ),
        shows="progress",
        off={"alpha": 0.0},
        own={"schedule.prompts": 4, "collect.links.0.n": 4, "n": 2},
    ),
    use="It helps where answers have several steps and some lead nowhere; every step costs `n` more "
    "samples.",
    lacks=(
        "The verifier is trained only with `verifier=train`; the default estimates progress by continuations "
        "of every step, which costs `n` answers for each.",
        "The verifier is trained on answers of the start alone, and not again while the policy moves.",
        "A prover or verifier of another model must have the policy's tokenizer.",
        "Of any prover the best of `k` tries counts: a weak or strong one as such needs `k=1`.",
    ),
    grade="B",
)


@pl.declare(reads=("prefix_values",))
@pl.stage
class RatePrefixes:
    """Training rows of a verifier: the prompt, and every answer up to the end of each of its steps,
    with the chance of success from there as the column target_total.
    """

    def __call__(
        self, groups: pl.Groups, signals: pl.Signals, state: pl.State
    ) -> tuple[list[pl.Example], pl.State]:
        rated = [replace(g, episodes=tuple(valued_prefixes(g))) for g in groups]
        return pl.Rate()(rated, [[[{}]] * len(g.episodes) for g in rated], state)


def valued_prefixes(group: pl.Group) -> list[pl.Episode]:
    """The prefixes as episodes that break off, the chance of success their reward; the prompt, which
    all share, once. Raises UserError for a chance outside of 0 to 1.
    """
    made = list[pl.Episode]()
    for e in group.valid:
        if "prefix_values" not in e.facts:
            continue
        first, *inner, whole = e.facts["prefix_values"]
        if not 0 <= min(e.facts["prefix_values"]) <= max(e.facts["prefix_values"]) <= 1:
            raise pl.UserError(
                f"task {group.task.id!r}: a reward outside of 0 to 1 is no chance of success; give right=, "
                "the reward from which on an answer is right"
            )
        cuts = [cut_at(e, end) for end in e.facts["step_ends"][:-1]]
        some = [] if made else [(pl.rollout.cut_episode(e, 0), first)]
        some += [*zip(cuts, inner, strict=True), (e, whole)]
        made += [replace(c, reward=pl.Reward(total=float(q))) for c, q in some]
    return made


def cut_at(e: pl.Episode, end: tuple[int, int]) -> pl.Episode:
    """The episode up to the token of its row's view at which a step ends, unjudged."""
    row, token = end
    sampled = 0
    for r, each in enumerate(e.rows[: row + 1]):
        at = 0
        for s in each.segments:
            seen = 0 if s.hidden else len(s.ids)
            if s.logp is not None:
                sampled += seen if r < row else max(0, min(seen, token + 1 - at))
            at += seen
    return pl.rollout.cut_episode(e, sampled)


@pl.stage
class PrefixCrossEntropy(pl.Algebra):
    """-Q log p - (1 - Q) log(1 - p) of the rated prefixes, p = sigmoid of the head at their ends; mean
    over prefixes, in nats. Logs the mean size of p - Q.
    """

    @property
    def needs(self) -> tuple[str, ...]:
        return (HEAD,)

    def __call__(self, out: pl.Outputs, batch: pl.Batch) -> tuple[Tensor, dict[str, Tensor]]:
        logit_B = (out[HEAD] * batch["marker"]).sum(1)
        q_B = batch["target_total"]
        loss = (softplus(logit_B) - q_B * logit_B).sum() / batch.n_rows
        error = (logit_B.detach().sigmoid() - q_B).abs().sum() / batch.n_rows
        return loss, {"verifier_error": error}


@pl.declare(facts=("prefix_values", "step_ends"))
@pl.stage
class VerifierValues:
    """Leaves `prefix_values` and `step_ends` as `PrefixValues` does, predicted by a verifier: nothing is
    sampled. Of the whole answer its own reward is known.
    """

    most: int = 16  # steps an episode; the last holds the rest
    right: float | None = None  # the total from which on an answer is; None = the reward says it

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        return replace(
            group,
            episodes=tuple(
                await asyncio.gather(*(self._valued(ctx, group, e) for e in group.episodes))
            ),
        )

    async def _valued(self, ctx: pl.Context, group: pl.Group, e: pl.Episode) -> pl.Episode:
        if not e.ok or e.reward is None:
            return e
        ends = [(s.row, s.token) for s in pl.rollout.answer_steps(e, ctx.decode, self.most)]
        if not ends:
            return e
        cuts = [pl.rollout.cut_episode(e, 0), *(cut_at(e, end) for end in ends[:-1])]
        verifier = pl.Learned(VERIFIER, (HEAD,), squash=True)
        verdicts = await verifier(ctx, replace(group, episodes=tuple(cuts)))
        broken = next((f for f in verdicts if isinstance(f, pl.Fault)), None)
        if broken is not None:
            return replace(e, status=f"error:{broken.cause}")
        whole = e.total if self.right is None else float(e.is_right(self.right))
        values = (*(r.total for r in verdicts if isinstance(r, pl.Reward)), whole)
        return replace(e, facts={**e.facts, "prefix_values": values, "step_ends": tuple(ends)})


def verifier_recipe(
    values: pl.rollout.PrefixValues, references: dict[str, str], steps: int
) -> pl.Recipe:
    """Trains the model "verifier" on prefixes of the policy's answers; the policy stays as it is."""
    return pl.Recipe(
        draw=pl.Shuffled(),
        collect=pl.links(pl.Sample(n=8), pl.Score(), values),
        learners={
            VERIFIER: pl.Learner(
                credit=RatePrefixes(),
                objective=PrefixCrossEntropy(),
                heads=(HEAD,),
                optimiser=pl.AdamW(lr=1e-3),
            )
        },
        references=references,
        schedule=pl.Schedule(prompts=8, steps=steps),
    )


def build(
    alpha: float = 3.0,
    k: int = 4,
    n: int = 4,
    kl: float = 0.0,
    prover: str = "policy",
    right: float | None = None,
    verifier: str = "",
    verifier_steps: int = 40,
) -> Any:
    """`prover` is a model's folder or id; of "policy", and of any other, the best of `k` counts.
    `right`: the reward from which on a continuation succeeds; None = its reward is its success.
    `verifier`: "train" trains one in `verifier_steps` steps and then the policy, a folder is one that
    was trained; "" = continuations.
    """
    other = prover != "policy"
    values = pl.rollout.PrefixValues(n=n, model=PROVER if other else "policy", right=right)
    provers = {PROVER: prover} if other else {}
    if not verifier:
        return progressive(values, alpha, k, kl, provers)
    if other and verifier != TRAIN:
        raise pl.UserError("a verifier that was trained knows its prover; leave prover= out")
    if verifier != TRAIN:
        return progressive(VerifierValues(right=right), alpha, k, kl, {VERIFIER: verifier})
    first = verifier_recipe(values, provers, verifier_steps)
    then = progressive(VerifierValues(right=right), alpha, k, kl, {})
    models = {VERIFIER: pl.Output(VERIFIER, VERIFIER)}
    return pl.Pipeline(parts={VERIFIER: pl.Part(first), "rl": pl.Part(then, models=models)})


def progressive(
    values: pl.Collect, alpha: float, k: int, kl: float, models: dict[str, str]
) -> pl.Recipe:
    """REINFORCE with progress by `values`."""
    made = pl.vary(
        pl.recipe("grpo", kl=kl),
        collect=pl.links(pl.Sample(n=8), pl.Score(), values),
        credit=pl.chain(pl.Center("group"), pl.credit.StepProgress(alpha=alpha, k=k)),
        objective=pl.Reinforce() + kl * pl.KL("k3") if kl else pl.Reinforce(),
    )
    return pl.vary(made, references={**made.references, **models}) if models else made

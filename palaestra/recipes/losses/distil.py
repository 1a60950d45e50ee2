"""On-policy distillation: the student writes, and a teacher says of each token what it would have written.

    palaestra train distil --data FILE.jsonl teacher=DIR --model DIR

    reverse   KL(pi | T), of the student's own samples: it drops what the teacher would not say
    forward   KL(T | pi): it spreads over all that the teacher would say
    jsd       beta KL(T | M) + (1 - beta) KL(pi | M), M = beta T + (1 - beta) pi

(arXiv:2306.13649, eq. 1 to 3.) Mean over all tokens of the batch, from both models' whole
distributions, T x V numbers a row; no reward is asked for. With `over="tokens"` only the log-probs of the
sampled tokens are compared, for large vocabularies: k2 as a loss for reverse and k3 for forward, which
have the same gradients in the mean (`objective.kl`), with more noise; jsd has no such form. The metric is
then `kl_teacher`.

With probability `mix` a prompt's answer is that of the data (`demonstration`, else the answer as text)
instead of the student's: 0 is on-policy, 1 is distillation on fixed answers. A token of the data was
not drawn from the student, so `over="tokens"` allows no mix.

The teacher has the student's tokenizer; "policy", a copy of the start, teaches nothing.
"""

from typing import Any, Literal

import palaestra as pl

CARD = pl.Card(
    title="On-policy distillation (GKD: reverse KL, forward KL, generalised JSD)",
    paper="arXiv:2306.13649",
    claim="Learning from a teacher on the student's own answers beats distillation on fixed answers.",
    source="abstract and eq. 1 to 3; TRL's GKDTrainer for the ends of beta",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.PROMPT,
            pl.needs.NeededColumn(
                "demonstration",
                "text",
                ("17 + 25 = 30 + 12 = 42", "8 + 31 = 39", "40 + 9 = 49"),
                "an answer of the data, for the share `mix`",
                otherwise="`mix` takes the answer as text; mix=0 reads neither",
            ),
        ),
        models=(
            pl.needs.NeededModel(
                "teacher",
                "teacher",
                "says how likely each next token is",
                reads_tokens=True,
            ),
        ),
        shows="divergence_teacher",
        own={"schedule.prompts": 4, "collect.links.0.sample.n": 2},
    ),
    use="It helps where a better model with the same tokenizer fits beside the student; what the teacher "
    "cannot do is not learned, and no reward corrects it.",
    lacks=(
        "A teacher of another tokenizer than the student's, or one behind an API, cannot teach.",
        "The teacher reads the student's prompt: it cannot be shown a hint or a solution beside it.",
        "The paper's sum of distillation and a reward is `kdrl`.",
        "There is no top-k form of the divergence: the default holds a number for each word of the vocabulary "
        "and token of a step, 40 GB for 64 answers of 512 tokens and 150,000 words; take over=tokens there.",
        "TRL's seq_kd, answers of the teacher in place of the student's, is not there; its lmbda is 1 - mix.",
    ),
)
TEACHER = "teacher"
Divergence = Literal["reverse", "forward", "jsd"]


@pl.stage
class StudentOrData:
    """For a share of the prompts the data's answer, for the others what the student samples; the draw
    belongs to the prompt's key.
    """

    sample: pl.Sample
    share: float = 0.0

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        if self.share and pl.rng_of((*key, "mix")).random() < self.share:
            return await pl.Demonstrate()(ctx, key, group)
        return await self.sample(ctx, key, group)


def build(
    divergence: Divergence = "reverse",
    beta: float = 0.5,
    mix: float = 0.0,
    over: Literal["vocabulary", "tokens"] = "vocabulary",
    samples: int = 4,
    teacher: str = "policy",
) -> pl.Recipe:
    """`beta` is of jsd alone: the teacher's weight in the mixture, above 0 and below 1."""
    if not 0 <= mix <= 1:
        raise pl.UserError(f"distil: mix is {mix}; it is a share, from 0 to 1")
    if divergence == "jsd" and not 0 < beta < 1:
        raise pl.UserError(
            f"distil: beta is {beta}; of jsd it lies between 0 and 1, whose ends are divergence=forward "
            "and divergence=reverse"
        )
    if over == "tokens" and (divergence == "jsd" or mix):
        raise pl.UserError(
            "distil: sampled tokens alone give no jsd, and need the student's own answers; take "
            "over=vocabulary, or divergence=reverse mix=0"
        )
    weight = {"reverse": 1.0, "forward": 0.0, "jsd": beta}[divergence]
    loss: Any = pl.objective.GeneralisedJSD(weight, model=TEACHER)
    if over == "tokens":
        loss = pl.KL("k2" if divergence == "reverse" else "k3", model=TEACHER, reduce="tokens")
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(StudentOrData(pl.Sample(n=samples), mix)),
        credit=pl.credit.Imitate(),
        objective=loss,
        needs=((TEACHER, "logp" if over == "tokens" else "vocab_logp"),),
        references={TEACHER: teacher},
    )


def embedded(teacher: str = "policy", **options: Any) -> pl.Runnable:
    """On the embedded problem: the teacher imitates its answers for some steps, then it teaches. A
    teacher of the user takes its place.
    """
    taught = build(teacher=teacher, **options)
    if teacher != "policy":
        return taught
    imitates = pl.vary(pl.recipe("sft"), schedule=pl.Schedule(prompts=32, steps=12))
    return pl.Pipeline(
        parts={
            TEACHER: pl.Part(imitates),
            "distil": pl.Part(taught, models={TEACHER: pl.Output(TEACHER)}),
        }
    )

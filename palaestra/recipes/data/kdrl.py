"""KDRL: GRPO and distillation from a teacher in one loss, both on the student's own answers.

    J = J_GRPO - beta KL(pi || pi_T),    u = log pi(o_t) - log pi_T(o_t)
    k2 = u^2 / 2,   whose gradient as a loss is that of the reverse KL
    k3 = exp(-u) - 1 + u,   whose value is unbiased, and whose gradient is that of KL(pi_T || pi)

(arXiv:2506.02208; see `objective.kl`.) Mean over all tokens of the batch, one update a batch, so that
the ratio is 1 and nothing is clipped; the reward is 1 for a right answer, else 0, and there is no
other KL. The teacher reads each answer once and gives the log-probs of its tokens alone; with over=spans
those of the smallest spans of text that it can spell too, where its tokenizer is another one. It may be
an endpoint (see `distil`). `beta` is a constant or a schedule: the paper's falls by 5e-5 a step from 5e-3 to
1e-3, `ANNEALED`.

`mask` distils where the reward asks for it alone: "answers" that are wrong, or "groups" of which none
is right; the mean stays one over all tokens. `how="reward"` takes beta sum_t u from each answer's
advantage instead, the paper's other form. `rl=False` leaves out the reward: distillation alone.

The teacher is a reference: `teacher` is a name or a folder, or a model of that name in a pipeline.
"policy", a copy of the start, teaches nothing and makes it a KL to the start.

Edges: where the student's answers are far from the teacher's, u may be some tens of nats: k3 is then as
large as exp(-u), k2 stays finite. Nothing is cut off.
"""

from typing import Any, Literal

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="KDRL: unified knowledge distillation + RL",
    paper="arXiv:2506.02208",
    claim="A reverse KL to a teacher inside GRPO's loss beats GRPO, and distillation alone.",
    source="abstract and public reviews for the objective, k2 and the range of beta; annealing and "
    "masks partly from memory",
    size=pl.Size(
        setting="DeepSeek-R1-Distill-Qwen-1.5B taught by Skywork-OR1-Math-7B, G = 8, 128 prompts, lr "
        "1e-6, temperature 1; beta 2e-3, or 5e-3 falling to 1e-3",
        model="qwen2.5-1.5b",
        prompts=128,
        samples=8,
        lr=1e-6,
        beside={"teacher": 7.6},
    ),
    needs=pl.needs.Requirements(
        models=(
            pl.needs.NeededModel(
                "teacher",
                "teacher",
                "gives the log-probs of the student's tokens",
                reads_tokens=True,
                scores=True,
            ),
        ),
        shows="kl_teacher",
        off={"beta": 0.0},
        own={"schedule.prompts": 4, "collect.links.0.n": 4},
    ),
    use="It helps where a better model fits beside the student, or is served, and rewards alone "
    "are rare; a teacher that is no better only holds the student back.",
    lacks=("With how=reward a teacher has the student's tokenizer.",),
    grade="A",
)
TEACHER = "teacher"
ANNEALED = pl.Linear(5e-3, 1e-3, 80)  # max(5e-3 - 5e-5 t, 1e-3)
Mask = Literal["", "answers", "groups"]


@pl.stage
class Taught:
    """Leaves the column "taught" of every token: 1 where an answer is distilled.

    That is where it is wrong, or, with `whole`, where all answers of its group are. A link that
    leaves the values as they are.
    """

    whole: bool = False

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        wrong_E = ~np.array([bool(e.solved) for e in table.episodes], bool)
        if self.whole:
            right_E = pl.group_mean((~wrong_E).astype(float), table.group_E)
            wrong_E = right_E == 0
        table.add_column("taught", pl.Values(level="episode", x_N=wrong_E.astype(float)))
        return x


def build(
    beta: Any = 2e-3,
    kind: pl.objective.KLKind | None = None,
    mask: Mask = "",
    how: Literal["loss", "reward"] = "loss",
    rl: bool = True,
    teacher: str = "policy",
    over: Literal["tokens", "spans"] = "tokens",
) -> pl.Recipe:
    """`beta` is a number or a schedule, 0 = GRPO; `kind` None is k2 as a loss, and k1 in the reward."""
    if how == "reward" and (mask or not rl or over == "spans"):
        raise pl.UserError(
            'kdrl: how="reward" puts the teacher into the advantage of tokens, so it has no mask, no '
            'rl=False and no over=spans; use how="loss"'
        )
    chosen = kind or ("k2" if how == "loss" else "k1")
    links: list[pl.Link] = [pl.Center("group"), pl.Scale("group")]
    loss: Any = pl.Clipped(reduce="tokens")
    weight = "taught" if mask else ""
    distil: Any = pl.KL(chosen, model=TEACHER, reduce="tokens", weight=weight)
    quantities: tuple[str, ...] = (pl.objective.kl_quantity(chosen),)
    if over == "spans":
        distil = pl.objective.SpanKL(chosen, model=TEACHER, weight=weight)
        quantities = ("span", "span_logp")
    if how == "reward":
        links.append(pl.credit.LessKL(beta, model=TEACHER, kind=chosen))
    else:
        loss = (loss + beta * distil if beta else loss) if rl else distil
    if mask:
        links.insert(0, Taught(mask == "groups"))
    return pl.vary(
        pl.recipe("grpo"),
        credit=pl.chain(*links),
        objective=loss,
        needs=pl.credit.kl_needs(chosen, TEACHER)
        if how == "reward"
        else tuple((TEACHER, quantity) for quantity in quantities),
        references={TEACHER: teacher},
    )


def embedded(beta: Any = 0.1, teacher: str = "policy", **options: Any) -> pl.Runnable:
    """On the embedded problem: the teacher imitates its answers for some steps, then it teaches. A
    teacher of the user takes its place.
    """
    taught = build(beta, teacher=teacher, **options)
    if teacher != "policy":
        return taught
    imitates = pl.vary(pl.recipe("sft"), schedule=pl.Schedule(prompts=32, steps=12))
    return pl.Pipeline(
        parts={
            TEACHER: pl.Part(imitates),
            "kdrl": pl.Part(taught, models={TEACHER: pl.Output(TEACHER)}),
        }
    )

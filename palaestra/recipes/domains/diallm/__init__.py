"""DiaLLM"""

from dataclasses import replace
from typing import Any, Literal

import palaestra as pl
from palaestra.recipes.domains.diallm.exam import DiagnosisExam
from palaestra.recipes.domains.diallm.reward import DiagnosisReward, findings_world

CARD = pl.Card(
    title="DiaLLM: EHR-grounded dialogue, reject sampling, class-sensitive reward",
    paper="arXiv:2506.20059",
    claim="A language model that is trained on dialogues over health records, with reject sampling, a confirmation reward "
    "and a class-sensitive diagnosis reward, recommends tests and predicts diagnoses better than baselines.",
    source="abstract; constants inferred",
    task="patients",
    world="findings",
    model="tiny",
)


@pl.stage
class RejectInvalid:
    """Samples as `sample` does, among the valid actions of a turn where `reject` says so; what is valid, see
    `pl.worlds.AskFindings`.

    Args:
        reject: False lets the model write what it likes.
        answers: "record": tests that the record answers; "all": every test.
    """

    sample: pl.Collect
    reject: bool = True
    answers: Literal["record", "all"] = "record"

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        world = findings_world(ctx)
        world = replace(world, restrict=self.answers if self.reject else "none")
        return await self.sample(ctx.with_bench(replace(ctx.bench, world=world)), key, group)


def build(
    reject: bool = True,
    answers: Literal["record", "all"] = "record",
    confirm: float = 0.2,
    abnormal: float = 0.2,
    unconfirmed: float = 0.05,
    cost: float = 0.2,
    balance: bool = True,
    wrong: float = 1.0,
    samples: int = 1,
    kl: float = 0.05,
    legal: float = 0.1,
    start: Literal["shown", "as-is"] = "shown",
    shown: int = 200,
    exam: int = 200,
) -> pl.Recipe | pl.Pipeline:
    ppo: Any = pl.recipe("ppo")
    collect = RejectInvalid(pl.Sample(n=samples), reject, answers)
    reward = DiagnosisReward(
        confirm=confirm,
        abnormal=abnormal,
        unconfirmed=unconfirmed,
        cost=cost,
        balance=balance,
        wrong=wrong,
    )
    greedy = replace(collect, sample=pl.Sample(n=1, temperature=0.0))
    learned = pl.vary(
        ppo,
        collect=pl.links(collect, pl.Score(), reward, pl.rewards.TellPrevented()),
        objective=ppo.learners["policy"].objective + kl * pl.KL("k3") + legal * pl.objective.LegalMass(),
        needs=(("policy", "value"), ("ref", "logp")),
        references={"ref": "policy"},
        schedule=pl.Schedule(prompts=64, steps=100),
        evaluate={"diagnosis": DiagnosisExam(greedy, exam)} if exam else {},
    )
    if start == "as-is":
        return learned
    imitated = pl.vary(
        pl.recipe("sft"),
        collect=pl.links(RejectInvalid(pl.Demonstrate(), reject, answers)),
        schedule=pl.Schedule(prompts=32, steps=shown),
        optimiser=pl.AdamW(lr=2e-3, warmup=10),
    )
    return pl.Pipeline(
        parts={"shown": pl.warm(imitated), "rl": pl.Part(learned, model=pl.Output("shown"))}
    )


def embedded(shown: int = 100, exam: int = 200, **options: Any) -> pl.Recipe | pl.Pipeline:
    """On synthetic records, in small steps."""
    made: Any = build(shown=shown, exam=exam, **options)
    small = {"schedule": pl.Schedule(prompts=32, steps=60), "update": pl.Plain(epochs=1, minibatches=2)}
    if isinstance(made, pl.Pipeline):
        part = made.parts["rl"]
        return replace(made, parts={**made.parts, "rl": replace(part, runnable=pl.vary(part.runnable, **small))})
    return pl.vary(made, **small)

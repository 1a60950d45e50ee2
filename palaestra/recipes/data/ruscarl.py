"""RuscaRL: an answer is judged by criteria, and some of a group's answers are told of them.

A task has `criteria`, texts, with `points` each, which may be negative; a reward is

    r = sum of the points of the criteria that are met / sum of the positive points,    0 without positive ones

Answer i = 0..G-1 of a group sees round(lambda R) of its R criteria, drawn at random, and none at the
end of the group nor late in training (arXiv:2508.16949; IANNXANG/RuscaRL, vllm_rollout_spmd.py,
healthbench_reward_fn.py):

    lambda = (G - 1 - i) / (G - 1) * 1 / (1 + exp(alpha (x - t0))),    x = (t - 1) / (T - 1),  alpha = 125, t0 = 0.2

with steps t = 1..T; a group of one sees all. Training is on the bare prompt: the log-probs
before the update are taken there, so the ratio begins at 1 and nothing corrects for what was seen
(`context="bare"`). `context="corrected"` has the ratio to the prompt that was seen, as Guide-GRPO has
it, and "scaffolded" trains on that prompt. GRPO with the standard deviation (ddof 1), mean over
tokens, two minibatches, 0.001 of KL (k3) to the start; temperature 0.7, top-p 0.8, top-k 20.

    palaestra train ruscarl --data FILE.jsonl judge="endpoint(url='http://HOST:PORT/v1',model='NAME')"

Rows that keep a criterion beside its points, as HealthBench has them, are read with `--columns rows.py:row`:

    def row(r):
        each = r["rubrics"]  # [{"criterion": "It names the river.", "points": 5}, ...]
        return {"prompt": r["prompt"], "criteria": [x["criterion"] for x in each], "points": [x["points"] for x in each]}

`judge` is asked about each criterion by itself, as its rubric, and a verdict of a half or more means
met; no `answer` is read. Without a judge (`--anyway`) the problem's own reward counts, which may check
criteria by a program. A judge that fails makes a failed episode; in the released code it is a 0
(`pl.Judge(unparsed=0.0)` for a verdict that cannot be read). `graded=False` tells all answers as much,
`fades=False` never stops. A chat template that has a system message of its own needs
`place="prompt"`. Whoever judges by what was shown can be told what is asked for without its being
done: keep a held-out judge. The released data are medical: for research, no advice to anyone.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import palaestra as pl

CARD = pl.Card(
    title="RuscaRL: rubric-scaffolded RL",
    paper="arXiv:2508.16949",
    claim="Showing some answers of a group the criteria that judge them, ever less, finds answers that "
    "RL on the same criteria does not find.",
    source="released code (IANNXANG/RuscaRL: vllm_rollout_spmd.py, healthbench_reward_fn.py, "
    "healthbench_RuscaRL.sh)",
    size=pl.Size(
        setting="Qwen2.5-7B-Instruct, HealthBench, a judge of the 32B class, batch 64 in minibatches of 32, "
        "G = 8, 4,096 tokens, lr 1e-6, KL 0.001, 350 steps",
        model="qwen2.5-7b",
        prompts=64,
        samples=8,
        tokens=4096,
        lr=1e-6,
        beside={"the judge": 32},
    ),
    needs=pl.needs.Requirements(
        columns=(
            replace(pl.needs.PROMPT, examples=("Describe Rome.", "Describe Oslo.")),
            pl.needs.NeededColumn(
                "criteria",
                "texts",
                (
                    ["It names the river.", "It says when to go.", "It invents a place."],
                    ["It names the fjord.", "It says what it costs.", "It invents a place."],
                ),
                "what a good answer does, or a bad one, a sentence each",
            ),
            pl.needs.NeededColumn(
                "points",
                "numbers",
                ([5, 3, -4],),
                "what each criterion is worth if it is met, in their order; below 0 for what is bad",
                otherwise="each criterion is worth 1",
            ),
        ),
        models=(
            pl.needs.chat_model(
                "judge",
                "judge",
                "says of each criterion whether an answer meets it",
            ),
        ),
        shows="is:guided",
        off={"share": 0.0},
        own={"schedule.prompts": 2, "collect.links.0.n": 3, "endpoint": "It is met. [[9]]"},
    ),
    use="It helps where only criteria say what a good answer is and the model keeps those that it is shown "
    "more often than it guesses them; a step asks the judge once for each criterion of each answer.",
    lacks=("Criteria are not written: they are a column of the file.",),
    grade="A",
)
MARK = "guided"


@pl.declare(facts=("guided",))
@pl.stage
class Graduated:
    """`n` answers of which each sees fewer of its task's criteria: answer i of them the share
    `most` (n - 1 - i) / (n - 1), or all `most` where they are not `graded`. The fact "guided" is the
    share.
    """

    n: int = 8
    most: float = 1.0
    graded: bool = True
    place: Literal["system", "prompt"] = "system"
    sample: pl.Sample = pl.Sample()

    def __post_init__(self) -> None:
        pl.check_bounds("Graduated.n", self.n, least=1)
        pl.check_bounds("Graduated.most", self.most, least=0, most=1)

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        bare, one = pl.Group(task=group.task), replace(self.sample, n=1)

        async def answer(i: int, share: float) -> pl.Group:
            with_criteria = pl.Under(pl.rollout.Criteria(share, self.place), one, MARK, share)
            made = await with_criteria(ctx, (*key, i), bare)
            return made if made.episodes else await one(ctx, (*key, i), bare)

        made = await asyncio.gather(*(answer(i, x) for i, x in enumerate(self.shares())))
        episodes = tuple(e for g in made for e in g.episodes)
        return replace(group, episodes=(*group.episodes, *episodes))

    def shares(self) -> list[float]:
        """Of the criteria that each answer sees."""
        if not self.graded or self.n == 1:
            return [self.most] * self.n
        return [self.most * (self.n - 1 - i) / (self.n - 1) for i in range(self.n)]


@pl.stage
class Points:
    """Points of the criteria that `judge` finds met, over the positive ones. Criteria and points are
    the columns `criteria` and `points`; without points each is worth 1.
    """

    judge: pl.Judge

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> list[pl.Reward | pl.Fault]:
        criteria, points = rubric_of(group.task)
        judges = [replace(self.judge, rubric=c) for c in criteria]
        rewards = await asyncio.gather(*(j(ctx, group) for j in judges))
        return [
            next((r for r in each if isinstance(r, pl.Fault)), None)
            or reward_of([r.total >= 0.5 for r in each if isinstance(r, pl.Reward)], points)
            for each in zip(*rewards, strict=True)
        ]


def rubric_of(task: pl.Task) -> tuple[list[str], list[float]]:
    """The criteria of a task and what they are worth. Raises UserError where it has none, or not as
    many points.
    """
    criteria = [str(c) for c in task.meta.get("criteria") or ()]
    points = [float(p) for p in task.meta.get("points") or [1.0] * len(criteria)]
    if not criteria or len(points) != len(criteria):
        raise pl.UserError(
            f"task {task.id!r} has {len(criteria)} criteria and {len(points)} points; give it a column "
            "`criteria` with texts, and a column `points` with a number for each, or none"
        )
    return criteria, points


def reward_of(met: Sequence[bool], points: Sequence[float]) -> pl.Reward:
    """The sum of points met over that of the positive ones; 0 where none is positive."""
    positive = sum(p for p in points if p > 0)
    gained = sum(p for m, p in zip(met, points, strict=True) if m)
    return pl.Reward(total=gained / positive if positive else 0.0)


def faded(share: float, steps: int, at: float, steepness: float) -> pl.Sigmoid:
    """share / (1 + exp(steepness (x - at))) with x = step / (steps - 1), the first step being 0."""
    whole = max(steps - 1, 1)
    return pl.Sigmoid(share, 0.0, middle=at * whole, width=whole / steepness)


def build(
    judge: pl.Judge | None = None,
    context: Literal["bare", "corrected", "scaffolded"] = "bare",
    graded: bool = True,
    fades: bool = True,
    share: float = 1.0,
    steps: int = 350,
    at: float = 0.2,
    steepness: float = 125.0,
    place: Literal["system", "prompt"] = "system",
    kl: float = 0.001,
    temperature: float = 0.7,
    top_p: float = 0.8,
    top_k: int = 20,
) -> pl.Recipe:
    """`share` is that of a group's first answer in the first step, 0 = nobody is told."""
    most: Any = faded(share, steps, at, steepness) if fades and share else share
    sample = pl.Sample(temperature=temperature, top_p=top_p, top_k=top_k)
    graduated_sample = Graduated(most=most, graded=graded, place=place, sample=sample)
    hide = [] if context == "scaffolded" else [pl.Hide(MARK)]
    score = pl.Score(reward=Points(judge)) if judge else pl.Score()
    here = context != "corrected"
    loss = pl.Clipped(reduce="tokens", old="policy" if here else "behaviour")
    penalty = kl * pl.KL("k3", reduce="tokens") if kl else None
    return pl.vary(
        pl.recipe("grpo", kl=kl),
        collect=pl.links(graduated_sample, *hide, score),
        credit=pl.chain(pl.Fact(MARK), pl.Center("group"), pl.Scale("group", ddof=1)),
        objective=(loss + penalty if penalty else loss) + pl.Track((f"is:{MARK}",)),
        needs=(*((("policy", "logp"),) if here else ()), *((("ref", "logp"),) if kl else ())),
        update=pl.Plain(minibatches=2),
        schedule=pl.Schedule(prompts=16, steps=steps),
    )


def embedded(steps: int = 40, **options: Any) -> pl.Pipeline:
    """On the embedded problem, whose criteria a program checks: the model first learns by imitation to
    keep criteria that it is shown, where a topic says nothing.
    """
    with_criteria = pl.Under(pl.rollout.Criteria(1.0), pl.Demonstrate())
    imitate = pl.vary(
        pl.recipe("sft"),
        collect=pl.links(with_criteria, pl.Demonstrate()),
        schedule=pl.Schedule(prompts=16, steps=20),
    )
    rl = pl.vary(build(steps=steps, **options), schedule=pl.Schedule(prompts=8, steps=steps))
    return pl.Pipeline(
        parts={
            "sft": pl.warm(imitate, "rubrics(fixed=False)"),
            "rl": pl.Part(rl, task="rubrics", model=pl.Output("sft")),
        }
    )

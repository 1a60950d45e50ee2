"""OpenAGI: a language model plans with expert models, and learns from what its plans achieve.

A task is a description, with inputs and the targets that they should become. A plan is a sequence of
experts, typed functions: each takes the type that the one before gives, and the last gives the type of
the targets. In each turn the model can only say an expert from which the plan can still be finished.

Reinforcement learning from task feedback (RLTF, arXiv:2304.04370; released code agiresearch/OpenAGI,
rltf_schema_flan_t5), for each task:

    k candidates are sampled;    with probability 1 - epsilon the likeliest is taken, else one of
    them at random by its probability;    epsilon <- decay * epsilon after each step
    r = the mean metric of what the plan makes of the inputs,    -1 where the types do not fit
    loss = -(r - b) log p(plan),    b = 0

    palaestra train openagi --tools experts.py --data tasks.jsonl --model DIR [start=finetuned]

experts.py has functions with type hints, def deblur(photo: Image) -> Image; a row is {"prompt": "Sharpen the
photo and describe it", "inputs": ["a.png", "b.png"], "targets": ["a cat", "a dog"]}, where paths are relative to the
file. A column `plan`, ["deblur", "caption"], is what `start=finetuned` imitates first, and what
--env "experts(shots=3)" shows as examples. The paper's four ways are

    zero-shot     palaestra eval --tools experts.py --env experts --data tasks.jsonl --model DIR
    few-shot      the same with --env "experts(shots=3)"
    fine-tuning   palaestra train openagi ... start=finetuned learn=False
    RLTF          palaestra train openagi ... start=finetuned

Text is measured by edit similarity, pictures and arrays by the mean distance of their pixels, all else by
equality; --env "experts(metric=FILE.py:NAME)" names a function (output, target) -> 0 to 1 of yours, such as
BERTScore or CLIPScore.

Deviations: candidates are sampled, not searched by a beam, nor by top-k 5 and top-p 0.5 as released; a
draw is by the probability of the candidates (released: log-probabilities are given as probabilities);
`baseline=released` multiplies by the running mean of all rewards since the epoch began, as the code
does, where the text has r.

Long because its sampling takes one of many plans and runs that alone: candidates, the choice that explores, the
execution and its reward form one step, beside the release's running mean and an imitated start.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="OpenAGI: RL from task feedback over expert models",
    paper="arXiv:2304.04370",
    claim="A model that plans with typed expert models improves by the results of its plans (RLTF), beyond "
    "zero-shot, few-shot and fine-tuning.",
    source="released code (agiresearch/OpenAGI: rltf_schema_flan_t5, openagi_benchmark.py, generate_trie) and the "
    "abstract; the type-constrained decoding is known by the names of its files",
    size=pl.Size(
        setting="Flan-T5-large after ten examples, 6 tasks x 10 epochs, 30 candidates by beam search, at most 10 "
        "experts, temperature 0.9, lr 1e-5, epsilon 0.2 with decay 0.9; also Vicuna-7B and LLaMA",
        model="llama-2-7b",
        prompts=1,
        samples=30,
        lr=1e-5,
    ),
    model="tiny-agent",
    task="experts",
    world="experts",
    needs=pl.needs.Requirements(
        columns=(
            replace(
                pl.needs.QUESTION,
                examples=(
                    "Say what kind of animal this is.",
                    "Write the number as a word.",
                    "Say how big the animal is.",
                ),
                meaning="what a plan should do, in words",
            ),
            pl.needs.NeededColumn(
                "inputs",
                "any",
                (["lions"], ["4", "7"], ["cats"]),
                "what the plan is run on, a list of texts, numbers, arrays or paths of pictures",
            ),
            pl.needs.NeededColumn(
                "targets",
                "any",
                (["a lion is a cat"], ["four", "seven"], ["cats are small"]),
                "what it should make of each input",
            ),
            pl.needs.NeededColumn(
                "plan",
                "any",
                (["search"], ["search", "search"], ["search"]),
                "names of experts in order, a right plan",
                when={"start": ("finetuned",)},
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "tools",
                "the experts, functions of one value with type hints",
                built_in=("experts",),
                flag="--tools FILE.py",
            ),
        ),
        shows="part/narrowed",
        off={"legal": False},
        own={
            "model": "tiny-agent",
            "candidates": 3,
            "schedule.prompts": 4,
        },
    ),
    use="It helps where tasks are done by functions in the right order and results can be measured; where the "
    "metric hardly tells a good plan from a bad one, fine-tuning on known plans is better.",
    lacks=(
        "The expert models of the paper (Restormer, ViT, GIT, BART and others), its tasks and its metrics BERTScore, "
        "ViT similarity and CLIPScore are not there; functions and metrics of yours take their place.",
        "Open-ended tasks without targets have no feedback, so they cannot be learned from.",
        "No number shows the feedback itself at work: part/narrowed is what the types of the experts rule out.",
        "Plans are sequences; the tree-shaped ones of the later release, whose experts take several values, are not "
        "there.",
    ),
    grade="A",
)
Baseline: TypeAlias = Literal["none", "moving", "released"]


@pl.declare(
    facts=(
        ("candidates", int, "different plans that were sampled"),
        ("explored", bool, "whether the plan taken was not the likeliest candidate"),
    )
)
@pl.stage
class SamplePlans(pl.Sample):
    """Samples `n` plans and takes one, which alone is run and paid.

    Args:
        epsilon: probability of a draw among the candidates, by their probability.
        decay: of epsilon, by step.
        legal: None = as the environment says; False: names may be said whose types do not fit.
    """

    epsilon: float = 0.2
    decay: float = 0.9
    legal: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        pl.check_bounds("openagi: epsilon", self.epsilon, least=0, most=1)
        pl.check_bounds("openagi: decay", self.decay, least=0, most=1)

    async def play(
        self,
        ctx: pl.Context,
        key: pl.Key,
        group: pl.Group,
        players: Mapping[str, pl.Player],
    ) -> pl.Group:
        world = plans_of(ctx)
        world = replace(world, legal=world.legal if self.legal is None else self.legal)
        there = ctx.with_bench(replace(ctx.bench, world=replace(world, paid=False)))
        first = len(group.episodes)
        made = await super().play(there, key, group, players)
        sampled = made.episodes[first:]
        able = [e for e in sampled if e.ok]
        if not able:
            return replace(made, episodes=(*group.episodes, *sampled[:1]))
        plans = {e.facts["plan"]: e for e in able}
        logp_K = np.array([plan_logp(e) for e in plans.values()])
        epsilon = self.epsilon * self.decay**ctx.step
        at = chosen_of(logp_K, epsilon, pl.rng_of((*key, "chosen")))
        taken = list(plans.values())[at]
        facts: dict[str, Any] = {
            "candidates": len(plans),
            "explored": at != int(logp_K.argmax()),
        }
        if taken.facts["plan_fits"]:
            paid, error, failures = await world.score(group.task, taken.facts["plan"])
            facts |= {"expert_errors": failures, "correct": paid >= world.solved}
            facts |= {"expert_error": error} if error else {}
            reward = pl.Reward(total=paid)
        else:
            reward = taken.reward
        taken = replace(taken, reward=reward, facts={**taken.facts, **facts})
        return replace(made, episodes=(*group.episodes, taken))


def plans_of(ctx: pl.Context) -> pl.worlds.ExpertPlans:
    """The environment of a run. Raises UserError where it is another one."""
    world = ctx.bench.world
    if not isinstance(world, pl.worlds.ExpertPlans):
        raise pl.UserError(
            f"openagi plans with typed functions, and {ctx.bench.name} has none; give --tools FILE.py --data "
            "FILE.jsonl, or --task experts"
        )
    return world


def plan_logp(episode: pl.Episode) -> float:
    """The log-probability of all that was said in an episode, in nats."""
    return float(sum(sum(s.logp or ()) for row in episode.rows for s in row.segments if s.trained))


def chosen_of(logp_K: np.ndarray, epsilon: float, rng: np.random.Generator) -> int:
    """Which of K different candidates is taken: the likeliest, or with probability `epsilon` one by
    its share exp(logp) / sum exp(logp).
    """
    if rng.random() >= epsilon:
        return int(logp_K.argmax())
    share_K = np.exp(logp_K - np.logaddexp.reduce(logp_K))
    return int(rng.choice(len(logp_K), p=share_K / share_K.sum()))


@pl.stage
class PlanParts:
    """A link after `Score`. Parts: "narrowed", the share of the names that the types ruled out; "unfit",
    whether the types of the plan do not fit; "explored"; "experts", how many the plan has; "failed",
    whether an expert failed for some input.
    """

    async def __call__(self, ctx: pl.Context | None, key: pl.Key, group: pl.Group) -> pl.Group:
        return replace(group, episodes=tuple(map(self._told, group.episodes)))

    def _told(self, e: pl.Episode) -> pl.Episode:
        if not e.ok or e.reward is None:
            return e
        parts = {
            "narrowed": float(e.facts["narrowed"]),
            "unfit": float(not e.facts["plan_fits"]),
            "explored": float(e.facts.get("explored", False)),
            "experts": float(e.facts["turns"]),
            "failed": float(e.facts["expert_errors"] > 0),
        }
        return replace(e, reward=replace(e.reward, parts=parts, solved=e.solved))

    def first_step_note(self, groups: pl.Groups) -> str:
        """Says it where experts fail, with the first error."""
        valid = [e for g in groups for e in g.valid]
        errors = [e.facts["expert_error"] for e in valid if e.facts.get("expert_error")]
        return (
            f"{len(errors)} of the {len(valid)} plans of the first step met an error, and the input scored 0; the "
            f"first: {errors[0]}"
            if errors
            else ""
        )


MEAN = "openagi running mean"


@pl.stage
class RunningMean:
    """Multiplies by the mean of all rewards since the epoch began, that of the plan included, in place of
    its own: the released code. Rewards of a batch count in the order of their tasks' ids.
    """

    epoch: int = 6  # tasks, of the release
    equal = True

    def __call__(self, x: pl.Values, table: pl.Table) -> pl.Values:
        n, total = table.state.get(MEAN, (0, 0.0))
        ids = [table.group(e).task.id for e in range(len(x.x_N))]
        mean_N = np.zeros(len(x.x_N))
        for e in sorted(range(len(x.x_N)), key=lambda e: (ids[e], e)):
            n, total = (0, 0.0) if n >= self.epoch else (n, total)
            n, total = n + 1, total + float(x.x_N[e])
            mean_N[e] = total / n
        table.remember(MEAN, (n, total))
        return replace(x, x_N=mean_N)


@pl.declare(reads_columns=("plan",))
@pl.stage
class ShowPlans:
    """Demonstrates the column `plan`, turn by turn."""

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        world = replace(plans_of(ctx), worked=True, legal=True, paid=False)
        there = ctx.with_bench(replace(ctx.bench, world=world))
        return await pl.Demonstrate()(there, key, group)


def build(
    epsilon: float = 0.2,
    decay: float = 0.9,
    candidates: int = 30,
    temperature: float = 0.9,
    baseline: Baseline = "none",
    epoch: int = 6,
    legal: bool | None = None,
    start: Literal["as-is", "finetuned"] = "as-is",
    shown: int = 60,
    learn: bool = True,
) -> pl.Recipe | pl.Pipeline:
    """`start=finetuned` first imitates the column `plan` for `shown` steps; then `learn=False` stops there.
    `baseline`: none, b = 0; moving, b = the moving average of the rewards of the same description; released,
    see `RunningMean`, with `epoch` tasks.
    """
    sample = SamplePlans(
        n=candidates, temperature=temperature, epsilon=epsilon, decay=decay, legal=legal
    )
    links: Mapping[Baseline, tuple[Any, ...]] = {
        "none": (),
        "moving": (pl.credit.Ema(decay=0.9, role="prompt"),),
        "released": (RunningMean(epoch),),
    }
    if baseline not in links:
        raise pl.UserError(f"openagi: baseline is {', '.join(links)}, not {baseline!r}")
    rltf = pl.vary(
        pl.recipe("reinforce"),
        collect=pl.links(sample, pl.Score(), PlanParts()),
        credit=pl.chain(*links[baseline]),
    )
    if start == "as-is":
        if not learn:
            raise pl.UserError("openagi: learn=False trains nothing without start=finetuned")
        return rltf
    imitated = pl.vary(
        pl.recipe("sft"),
        collect=pl.links(ShowPlans()),
        schedule=pl.Schedule(prompts=10, steps=shown),
        optimiser=pl.AdamW(lr=2e-3, warmup=10),
    )
    finetuned = pl.warm(imitated)
    parts = {"finetuned": finetuned}
    if learn:
        parts["rltf"] = pl.Part(rltf, model=pl.Output("finetuned"))
    return pl.Pipeline(parts=parts)


def embedded(
    baseline: Baseline = "moving",
    candidates: int = 6,
    shown: int = 12,
    epsilon: float = 0.5,
    decay: float = 0.99,
    **options: Any,
) -> pl.Pipeline:
    """On drawn photos and words. The small model never saw these names, so it is first shown a few
    plans, too few to be right. It explores more than the release, whose epsilon is gone after 20 steps.
    """
    made = build(
        epsilon,
        decay,
        candidates,
        baseline=baseline,
        shown=shown,
        start="finetuned",
        **options,
    )
    assert isinstance(made, pl.Pipeline)
    parts = dict(made.parts)
    if "rltf" in parts:
        learned = pl.vary(
            parts["rltf"].runnable,
            schedule=pl.Schedule(prompts=16, steps=40),
            optimiser=pl.AdamW(lr=5e-4),
        )
        parts["rltf"] = replace(parts["rltf"], runnable=learned)
    return pl.Pipeline(parts=parts)

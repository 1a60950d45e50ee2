"""MLE-Dojo: an agent takes part in machine-learning competitions, step by step.

A competition is a folder with data, hidden answers, a metric and a leaderboard. In each of T steps the agent
requests information, validates a program, executes one, reads its history, or resets it. What a program
writes to submission.csv is graded:

    s = (N - p + 1) / N,    p the place, from 1, of the first of N leaderboard entries that it equals or
                            beats (N + 1: none); the mean over the boards that there are (HumanRank)
    r_t = max(0, s_t - best s before),    0 for every other action, a failed run or an invalid submission

so that an episode's reward is its best position score (arXiv:2505.07782; released code MLE-Dojo/MLE-Dojo). GRPO on
it.

    palaestra eval --env "competition(DIR)" --model DIR
    palaestra train mle-dojo --env "competition(DIR)" --model DIR [start=shown]

DIR is a competition, or a folder of competitions, an eighth of which is held out. `docs/environments.md` says
which files it has. `start=shown` first imitates the programs in its folder `solutions`. Programs run in the sandbox, with
the public files, Python's standard library and numpy alone; answers are compared outside of it.

Part "iterated" of the rewards is what the steps behind the first graded submission added: 0 where there is one
step.

Deviations: the release pays each execution its own s; the improvements add up to the best one, which is
what the paper reports. It has no learning of its own; GRPO is ours. A program has the limits of its
competition, and no GPU. A reset forgets the history, and not what was paid.
"""

from dataclasses import replace
from typing import Any, Literal

import palaestra as pl

CARD = pl.Card(
    title="MLE-Dojo: machine-learning engineering environments",
    paper="arXiv:2505.07782",
    claim="Agents that read structured feedback improve their solutions of machine-learning competitions step by "
    "step, and can be trained on it.",
    source="released code (MLE-Dojo/MLE-Dojo: gym/env.py, interface.py, feedback.py, config.yaml) and the abstract",
    size=pl.Size(
        setting="200 competitions of Kaggle, eight closed and open models evaluated without training, 15 steps in the "
        "paper and 10 in the configuration; sizes of training are ours",
        model="qwen2.5-7b",
        prompts=16,
        samples=8,
        tokens=4096,
        lr=1e-6,
    ),
    model="tiny-agent",
    task="competitions",
    needs=pl.needs.Requirements(
        columns=(),
        places=(
            pl.needs.NeededPlace(
                "environment",
                "competitions with data, answers and a metric",
                built_in=("competitions",),
                flag='--env "competition(DIR)"',
            ),
        ),
        shows="part/iterated",
        off={"turns": 1},
        own={
            "model": "tiny-agent",
            "task": "competitions",
            "start": "shown",
            "shown": 30,
            "turns": 2,
            "samples": 2,
            "steps": 24,
            "rl.schedule.prompts": 1,
            "shown.schedule.prompts": 2,
            "shown.optimiser.lr": 0.003,
            "shown.optimiser.warmup": 0,
            "max_tokens": 48,
        },
    ),
    use="It helps where a model writes programs that mostly run and a score tells better from worse; one that "
    "never writes a valid submission earns 0 everywhere and learns nothing.",
    lacks=(
        "The 200 competitions of Kaggle are not there: a folder of yours is a competition, and two drawn kinds are built in.",
        "Programs have numpy and the standard library, no pandas, scikit-learn or torch, no GPU and no network; public files "
        "are copied for each run, 200 MB at most.",
        "Agents of other frameworks (AIDE, OpenAI's) are not wrapped; a program of yours plays with --agent on data of yours, "
        "not here.",
        "Supervised fine-tuning on recorded trajectories is `palaestra train sft` on conversations of yours; here programs of "
        "the folder `solutions` are shown.",
        "The raw metric cannot be the reward; it is in the fact `raw_score`.",
    ),
    grade="A",
)


@pl.stage
class PlayCompetitions(pl.Sample):
    """Plays `n` episodes of at most `most` steps; 0 = as the environment says."""

    most: int = 0

    async def play(self, ctx: pl.Context, key: pl.Key, group: pl.Group, players: Any) -> pl.Group:
        world = competitions_of(ctx)
        world = replace(world, steps=self.most) if self.most else world
        return await super().play(
            ctx.with_bench(replace(ctx.bench, world=world)), key, group, players
        )


def competitions_of(ctx: pl.Context) -> pl.worlds.CompetitionWorld:
    """The environment of a run. Raises UserError where it is another one."""
    world = ctx.bench.world
    if not isinstance(world, pl.worlds.CompetitionWorld):
        raise pl.UserError(
            f'mle-dojo plays competitions, and {ctx.bench.name} is none; give --env "competition(DIR)", or --task '
            "competitions"
        )
    return world


@pl.stage
class CompetitionParts:
    """A link after `Score`. Parts: "iterated", the best position score less that of the first graded
    submission; "graded", submissions that were graded; "failed", the share of runs that failed; "lost", the
    share of messages that were no action.
    """

    async def __call__(self, ctx: pl.Context | None, key: pl.Key, group: pl.Group) -> pl.Group:
        return replace(group, episodes=tuple(map(self._told, group.episodes)))

    def _told(self, e: pl.Episode) -> pl.Episode:
        if not e.ok or e.reward is None:
            return e
        f = e.facts
        parts = {
            "iterated": float(f["position"] - f["first_position"]),
            "graded": float(f["graded"]),
            "failed": f["tool_errors"] / f["tool_calls"] if f["tool_calls"] else 0.0,
            "lost": f["malformed"] / f["turns"] if f["turns"] else 0.0,
        }
        return replace(e, reward=replace(e.reward, parts=parts, solved=e.solved))

    def first_step_note(self, groups: pl.Groups) -> str:
        """Says it where nothing was graded, so that every reward is 0."""
        valid = [e for g in groups for e in g.valid]
        if not valid or any(e.facts["graded"] for e in valid):
            return ""
        return (
            "no program of the first step wrote a valid submission, so every reward is 0; start=shown imitates the "
            "programs in the folder solutions first"
        )


@pl.stage
class ShowSolutions:
    """Demonstrates programs of the competition, one drawn at random in each step."""

    most: int = 0

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        world = replace(competitions_of(ctx), worked="any")
        world = replace(world, steps=self.most) if self.most else world
        return await pl.Demonstrate()(ctx.with_bench(replace(ctx.bench, world=world)), key, group)


def build(
    turns: int = 0,
    samples: int = 8,
    start: Literal["as-is", "shown"] = "as-is",
    shown: int = 60,
) -> pl.Recipe | pl.Pipeline:
    """`turns` is T; 0 = as the environment says, 10 unless --env "competition(DIR,steps=N)". `start=shown`
    first imitates programs for `shown` steps.
    """
    if turns < 0:
        raise pl.UserError(f"mle-dojo: turns is 0 or more, not {turns}")
    learned = pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(PlayCompetitions(n=samples, most=turns), pl.Score(), CompetitionParts()),
    )
    if start == "as-is":
        return learned
    return pl.imitate_first(
        learned,
        shown,
        prompts=8,
        collect=pl.links(ShowSolutions(turns)),
    )


def embedded(turns: int = 0, samples: int = 6, shown: int = 60) -> pl.Pipeline:
    """On drawn tables, with two steps. The small model never saw an action, so it is first shown programs
    that fit one of six models to the data, whichever; which of them suit what is left to learn.
    """
    made = build(turns=turns, samples=samples, start="shown", shown=shown)
    assert isinstance(made, pl.Pipeline)
    learned = pl.vary(
        made.parts["rl"].runnable,
        schedule=pl.Schedule(prompts=8, steps=25),
        optimiser=pl.AdamW(lr=5e-4),
    )
    return pl.Pipeline(parts={**made.parts, "rl": replace(made.parts["rl"], runnable=learned)})

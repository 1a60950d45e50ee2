"""ScalingInter-RL: an agent is trained with few actions an episode first, and with more of them later.

    horizon(n) = h[min(floor(n / every), m - 1)]     h = 10, 20, 30; n = 0, 1, ... counts updates

An episode that reaches the horizon, or the environment's own limit, ends with what it was paid: 0 where the
environment pays at its goal alone. It is a failure like others, neither masked nor punished; `cut="unknown"`
mutes it instead, for its reward would be another one with more actions. Everything else is GRPO with a
KL of 0.001 to the start, or `algorithm`, without any imitation before (arXiv:2509.08755;
WooooDyy/AgentGym-RL: RoundsScheduler, D = 100, horizons 10, 20, 30 of TextCraft and SciWorld).

    palaestra train agentgym-rl --task "agentgym:http://HOST:PORT" --model DIR [horizons=[5,10,15]] [every=100]
    palaestra train agentgym-rl --env FILE.py:CLASS --model DIR

The first form takes a server of AgentGym's protocol, and `palaestra serve WORLD` makes one of a world of
yours. A server that is down, slow or lies is a fault of the environment, never a reward of 0; in the
released code it is 0 (`failure=zero` of the adapter).

An update with a short horizon takes fewer actions, so runs that are compared need equal numbers of actions,
not of updates: "env_steps" in the metrics counts those before the step, `budget` ends a run at so many, and with
`unit="env_steps"` `every` counts them too. The count and the stage are part of the checkpoint.

"part/cut" is the share of episodes that the horizon cut where the environment would have gone on. Held-out
tasks are played with as many actions as the environment allows.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import palaestra as pl

CARD = pl.Card(
    title="AgentGym-RL / ScalingInter-RL",
    paper="arXiv:2509.08755",
    claim="Horizons that grow during training make reinforcement learning over many turns stable, and end above "
    "a horizon that is short or long from the beginning.",
    source="abstract and released code (WooooDyy/AgentGym-RL: RoundsScheduler, rollout, examples/train)",
    size=pl.Size(
        setting="Qwen2.5-7B-Instruct; TextCraft and SciWorld with horizons 10, 20, 30 of 100 updates each; "
        "GRPO, 8 answers (4 elsewhere), batch 32, lr 1e-6, KL 0.001",
        model="qwen2.5-7b",
        prompts=32,
        samples=8,
        lr=1e-6,
    ),
    model="tiny-agent",
    task="craftgoal",
    needs=pl.needs.Requirements(
        columns=(),
        places=(
            pl.needs.NeededPlace(
                "environment",
                "where an episode has several actions; `--task agentgym:URL` for one behind a server",
                also=("tools", "documents"),
                built_in=("craftgoal", "craftmini", "house", "grid", "lake", "wiki"),
            ),
        ),
        shows="part/cut",
        off={"horizons": ()},
        own={
            "model": "tiny-agent",
            "samples": 2,
            "schedule.prompts": 2,
            "horizons": (1, 2),
            "every": 1,
        },
    ),
    use="It helps where episodes are long and the first goals are near: short episodes are cheap and teach these. "
    "Where nothing can be reached in the first horizon, all rewards there are 0 and nothing is learned.",
    lacks=(
        "WebArena, TextCraft, BabyAI, SciWorld and SearchQA do not come with it; their servers of AgentGym are "
        "reached by `--task agentgym:URL`.",
        "Transcripts are cut by the model's context alone, not at a length of their own.",
        "The paper's 27 tasks and its comparison with commercial models are not repeated.",
        "On the built-in goals nothing is shown: 24 steps moved held-out success from 25% to 37.5% (32 tasks, one "
        "seed, within its error), and constant horizons were not compared.",
    ),
    grade="B",
)

Unit = Literal["updates", "env_steps"]
Algorithm = Literal["grpo", "ppo", "rloo", "reinforce-plus-plus"]


def env_steps(e: pl.Episode) -> int:
    """Actions of an episode: what the environment counts, else replies of the policy."""
    counted = e.facts.get("actions")
    return counted if isinstance(counted, int) else replies(e)


def replies(e: pl.Episode) -> int:
    """Messages of the policy, of which a horizon counts each."""
    return len({s.turn for row in e.rows for s in row.segments if s.policy})


@pl.declare(columns=(("horizon", int, "actions that an episode may have; 0 = any number"),))
@pl.stage
class DrawByHorizon:
    """Draws tasks, and says with which horizon they are played. Counts the actions of the run.

    Args:
        horizons: h_1, ..., h_m; () = the environment's own limit.
        every: updates, or actions, with each horizon.
        budget: actions of the run; 0 = any number.
    """

    horizons: tuple[int, ...] = ()
    every: int = 100
    unit: Unit = "updates"
    budget: int = 0
    source: pl.Draw = pl.Shuffled()

    def __call__(
        self, ctx: pl.Context, key: pl.Key, n: int, state: pl.State
    ) -> tuple[list[pl.Task], pl.State]:
        own = min(ctx.bench.max_turns, getattr(ctx.bench.world, "turns", ctx.bench.max_turns))
        if self.horizons and ctx.step == 0 and min(self.horizons) >= own:
            ctx.say(
                f"note: an episode of {ctx.bench.name} ends after {own} turns, so no horizon of "
                f"{list(self.horizons)} cuts one; give shorter ones"
            )
        drawn, inner = self.source(ctx, key, n, dict(state.get("inner", {})))
        horizon = self.horizon(ctx.step if self.unit == "updates" else int(state.get("steps", 0)))
        tasks = [replace(t, meta={**t.meta, "horizon": horizon}) for t in drawn]
        return tasks, {**state, "inner": inner, "horizon": horizon}

    def horizon(self, done: int) -> int:
        """After so many updates, or actions."""
        if not self.horizons:
            return 0
        return int(pl.Staircase(self.horizons, self.every).at(done))

    def draw_numbers(self, state: pl.State) -> dict[str, float]:
        return {
            "horizon": float(state.get("horizon", 0)),
            "env_steps": float(state.get("steps", 0)),
        }

    def is_finished(self, state: pl.State) -> bool:
        """Whether the budget is used up."""
        return 0 < self.budget <= int(state.get("steps", 0))


@pl.stage
class CountSteps:
    """Adds the actions of all episodes that were seen, also of those that failed."""

    def __call__(
        self, seen: pl.Groups, examples: Mapping[str, list[pl.Example]], state: pl.State
    ) -> pl.State:
        taken = sum(env_steps(e) for g in seen for e in g.episodes)
        return {**state, "steps": int(state.get("steps", 0)) + taken}


@pl.stage
class SampleToHorizon:
    """Plays as `sample` does, up to the task's horizon or the environment's own limit."""

    sample: pl.Sample

    @property
    def n(self) -> int:
        return self.sample.n

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        if ctx.bench.reward is not None and isinstance(ctx.bench.world, pl.worlds.Question):
            raise pl.UserError(
                f"agentgym-rl acts in an environment, and {ctx.bench.name} asks questions; give --env "
                "FILE.py:CLASS, --task agentgym:URL, or --task craftgoal"
            )
        most = ctx.bench.max_turns
        horizon = min(int(group.task.meta.get("horizon") or most), most)
        return await replace(self.sample, turns=horizon)(ctx, key, group)


@pl.stage
class TellHorizon:
    """Parts of the rewards: "cut", whether the horizon ended the episode where the environment would
    have gone on; "actions", how many it had. Mutes the cut ones where a cut is "unknown".
    """

    cut: Literal["failure", "unknown"] = "failure"

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        horizon = int(group.task.meta.get("horizon") or 0)
        horizon = horizon if horizon < ctx.bench.max_turns else 0
        return replace(group, episodes=tuple(self._told(e, horizon) for e in group.episodes))

    def _told(self, e: pl.Episode, horizon: int) -> pl.Episode:
        if e.reward is None:
            return e
        # the environment's own limit has the same status
        cut = horizon > 0 and e.status == "truncated:turns" and replies(e) >= horizon
        counts = {"cut": float(cut), "actions": float(env_steps(e))}
        reward = replace(e.reward, parts={**e.reward.parts, **counts})
        return replace(e, reward=reward, muted=e.muted or (cut and self.cut == "unknown"))


def check_horizons(horizons: tuple[int, ...], every: int, budget: int) -> None:
    """Raises UserError for horizons that do not grow, or are none."""
    if any(h < 1 for h in horizons) or list(horizons) != sorted(set(horizons)):
        raise pl.UserError(
            f"agentgym-rl: horizons={list(horizons)} must be numbers from 1 that grow, such as "
            "horizons=[10,20,30]; one number is a constant horizon"
        )
    pl.check_bounds("agentgym-rl: every", every, least=1)
    pl.check_bounds("agentgym-rl: budget", budget, least=0)


def build(
    horizons: tuple[int, ...] = (10, 20, 30),
    every: int = 100,
    unit: Unit = "updates",
    budget: int = 0,
    cut: Literal["failure", "unknown"] = "failure",
    algorithm: Algorithm = "grpo",
    kl: float = 1e-3,
    samples: int = 8,
) -> pl.Recipe:
    """`horizons` with `every` updates, or actions where `unit` is "env_steps", on each; () = the
    environment's own limit alone. A run ends after `budget` actions, or its steps, whichever is first; 0 =
    its steps. An episode that the horizon cuts is a "failure" or "unknown".
    """
    check_horizons(horizons, every, budget)
    return pl.vary(
        pl.recipe(algorithm, kl=kl),
        draw=DrawByHorizon(horizons, every, unit, budget),
        observe=CountSteps(),
        collect=pl.links(SampleToHorizon(pl.Sample(n=samples)), pl.Score(), TellHorizon(cut)),
    )


def embedded(
    horizons: tuple[int, ...] = (4, 8, 12), every: int = 8, samples: int = 4, **options: Any
) -> pl.Pipeline:
    """On goals of a small world of crafts. The small model has never seen it, so it is shown a few
    episodes first, of which it learns what words are actions.
    """
    made = build(horizons=horizons, every=every, samples=samples, **options)
    sft = pl.vary(
        pl.recipe("sft"),
        collect=pl.links(pl.Demonstrate()),
        schedule=pl.Schedule(prompts=16, steps=48),
        optimiser=pl.AdamW(lr=2e-3, warmup=4),
    )
    rl = pl.vary(made, schedule=pl.Schedule(prompts=6, steps=24), optimiser=pl.AdamW(lr=5e-4))
    return pl.Pipeline(parts={"shown": pl.warm(sft), "rl": pl.Part(rl, model=pl.Output("shown"))})

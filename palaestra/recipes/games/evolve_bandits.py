"""EVOLvE: a language model plays bandits, and learns to explore from an algorithm that explores optimally.

    UCB      a_t = argmax m_k + sqrt(alpha ln t / n_k)
    LinUCB   a_t = argmax theta_k . x + alpha sqrt(x' A_k^-1 x),   A_k = I + sum of x x'
    loss     - log p(name of a_t | what was seen before t),   over turns of the algorithm's own games
    Reg(T) = sum_t (mu* - mu of a_t)

The algorithm plays training bandits; the model sees what it saw in a turn and imitates its choice
(arXiv:2410.06238; algorithm distillation by fine-tuning). Before and after that the model plays held-out bandits
itself, beside UCB, Thompson sampling, the greedy algorithm and random choice, all with the same rewards: the run reports
expected regret, mean reward, and in which way exploration fails.

    palaestra train evolve-bandits --data logged.jsonl --model DIR
    palaestra train evolve-bandits --env FILE.py:CLASS --model DIR --evaluate 0
    palaestra train evolve-bandits --task "bandit(arms=20,gap=0.2,horizon=300)" --model DIR view=guide shots=5 --steps 0

A row of a log is {"context": {"hour": 9}, "arm": "banner", "reward": 1}; `context` may be left out, be text or a list of
numbers. A class is an environment whose asks have choices, or that has legal(state), and that pays each turn; with
expected(state), the mean reward of each arm by name, regret is known, and with features(state), numbers of the context,
LinUCB teaches. `view` is what the model sees of the past: each pull ("history"), pulls and mean by arm ("summary"), or
these with the bonus of UCB, which is the algorithm's support during inference ("guide"). `shots` decisions of the teacher
are shown before each question: with `--steps 0` that is distillation in context alone.

The run's own held-out numbers are mean rewards of further games, of as many turns as the environment says: with
`--evaluate 0` the exam alone is played. A name needs few tokens, so `--max-tokens 16` makes games of a model that goes
on writing shorter. A log with a column for each thing that is known is read with `--columns rows.py:row`:

    def row(r):
        return {"context": {"device": r["device"]}, "arm": r["subject"], "reward": float(r["opened"])}

A reply that names no arm pulls one at random, as in the paper: that explores, so look at "unread" beside the regret.

On the built-in bandits, of 3 arms and 20 turns, the small model, which at first names no arm, comes from a regret of 7.1 to 3.4
(8 held-out bandits, seed 0); UCB has 2.8, Thompson sampling 3.5, the greedy algorithm 4.7 and random choice 6.6. In two of the
eight games its last half never pulls the best arm, which happens to UCB in none.

Long because no shared part plays an algorithm in an environment: the recipe does so to make demonstrations,
settles how each player sees the bandit, and marks which imitated choices explore.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import palaestra as pl

SKIPPED, EVERY = 2, 2  # decisions before the first one that is shown, and from one to the next
PLAYERS = tuple(pl.control.ALGORITHMS)

CARD = pl.Card(
    title="EVOLvE: bandit exploration, algorithm distillation",
    paper="arXiv:2410.06238",
    claim="A model that is shown what an optimal exploration algorithm computes, or imitates its choices in context or "
    "by fine-tuning, explores so well that small models surpass larger ones.",
    source="abstract and the released package (banditbench 0.0.8), as a survey of it says; form of the regret fit and "
    "failure shares from memory; thresholds and wording are ours",
    size=pl.Size(
        setting="Gemini-1.5 Flash and Pro, Gemma-2B and 9B; 5 or 20 arms, 300 or 1,000 turns; 10 or 30 films, 200 turns",
        model="gemma-2-9b",
    ),
    task="bandit(arms=3,horizon=20,scenario=brief)",
    world="logged",
    needs=pl.needs.Requirements(
        columns=(
            pl.needs.NeededColumn(
                "context",
                "any",
                (
                    {"hour": 9, "device": "phone"},
                    {"hour": 20, "device": "desk"},
                    {"hour": 9, "device": "desk"},
                ),
                "what was known before the choice: numbers and texts by name, a list of numbers, or a text",
                otherwise="all turns are alike",
            ),
            pl.needs.NeededColumn(
                "arm",
                "any",
                ("banner", "mail", "banner", "mail", "none"),
                "what was chosen",
                otherwise="--env FILE.py:NAME is the bandit",
            ),
            pl.needs.NeededColumn(
                "reward",
                "number",
                (1, 0, 0.5, 0),
                "what it brought",
                otherwise="--env FILE.py:NAME is the bandit",
            ),
        ),
        places=(
            pl.needs.NeededPlace(
                "environment",
                "a bandit of one seat, whose asks have choices and whose every turn is paid",
                built_in=("bandit",),
                otherwise="a log, --data FILE.jsonl, is the bandit",
            ),
        ),
        shows="explored",
        off={"teacher": "greedy"},
        own={"schedule.prompts": 4, "horizon": 20, "points": 8, "exam": 0},
    ),
    use="It helps where a model has to choose again and again and hardly tries what it knows little of; where the past "
    "says at once what is best, or choices are not paid, it teaches nothing.",
    lacks=(
        "MovieLens is not built in: contextual bandits are linear with drawn weights, or your log.",
        "The scenarios' wording and the names of arms are ours.",
        "Models are not compared by size, and win rates are paired intervals over held-out bandits, one game each, in "
        "place of tests over 30 games of one bandit.",
        "The bandit of a log is made of its rewards as they are; choices that the log never made in a context are paid "
        "as in the nearest ones, and propensities are not used.",
    ),
    grade="B",
)


@dataclass(frozen=True)
class BanditDecision:
    """A turn of an algorithm: what the player saw, the arm that it pulled, and whether that explores."""

    say: tuple[pl.Message, ...]
    arm: str
    explored: bool


async def play_algorithm(
    world: pl.worlds.ExploreBandit, task: pl.Task, key: pl.Key, algorithm: str
) -> tuple[list[BanditDecision], Mapping[str, Any]]:
    """The decisions of an algorithm in a bandit, and the facts of its game."""
    frame = await world.reset(task, key)
    decisions, facts = list[BanditDecision](), dict[str, Any]()
    try:
        while frame.asks:
            ask, n = frame.asks[0], len(decisions)
            if n >= world.most_turns:
                raise pl.UserError("a bandit without an end needs a horizon: horizon=100")
            arm, explored = world.advise(frame.state, algorithm)
            decisions.append(BanditDecision(ask.say, arm, explored))
            act = pl.Act(ask=ask, text=arm, call=None, finish="eos", n_tokens=0)
            frame = await world.step(frame.state, (act,), (*key, n + 1))
            facts |= frame.facts
    finally:
        await world.leave(frame.state)
    return decisions, facts


@pl.stage
class Sight:
    """How the run's bandit is shown to players. None = as the environment says.

    Args:
        shots: decisions of the teacher in a training bandit that stand before each question.
    """

    teacher: str = "ucb"
    horizon: int | None = None
    view: str | None = None
    alpha: float = pl.control.ALPHA
    shots: int = 0

    def __post_init__(self) -> None:
        pl.control.bandit_algorithm(self.teacher)
        pl.check_bounds("evolve-bandits: shots", self.shots, least=0)

    async def explore(self, ctx: pl.Context, *, common: bool = False) -> pl.worlds.ExploreBandit:
        """The bandit. Raises UserError where the environment is none."""
        world: Any = ctx.bench.world
        if len(world.seats) != 1:
            raise pl.UserError(
                f"evolve-bandits: a bandit has one seat, and {ctx.bench.name} has {len(world.seats)}"
            )
        made = (
            world if isinstance(world, pl.worlds.ExploreBandit) else pl.worlds.ExploreBandit(world)
        )
        given = {"horizon": self.horizon, "view": self.view}
        made = replace(
            made,
            alpha=self.alpha,
            common=common,
            **{k: x for k, x in given.items() if x is not None},
        )
        if not self.shots:
            return made
        task = ctx.bench.tasks.task("train", pl.curriculum.first_number(ctx))
        decisions, _ = await play_algorithm(made, task, ("shots", ctx.seed), self.teacher)
        examples = decisions[SKIPPED::EVERY][: self.shots]
        return replace(made, examples=tuple((d.say[-1].content, d.arm) for d in examples))


@pl.declare(
    facts=(("not_greedy", bool, "whether the choice that is imitated is not the greedy one"),)
)
@pl.stage
class PlayTeacher:
    """Adds `points` decisions, drawn, of the teacher's game in the task's bandit, to imitate; 0 = all."""

    sight: Sight
    points: int = 0

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        world = await self.sight.explore(ctx)
        decisions, _ = await play_algorithm(world, group.task, (*key, "world"), self.sight.teacher)
        chosen = list(range(len(decisions)))
        if 0 < self.points < len(decisions):
            drawn = pl.rng_of((*key, "points")).permutation(len(decisions))[: self.points]
            chosen = sorted(drawn.tolist())
        of = f"a turn of {group.task.id}"
        made = [
            replace(
                pl.recorded_episode(ctx, "policy", d.say, d.arm, 1.0, of=of, judged=False),
                facts={"not_greedy": d.explored},
            )
            for d in map(decisions.__getitem__, chosen)
        ]
        return replace(group, episodes=(*group.episodes, *made))

    def first_step_note(self, groups: pl.Groups) -> str:
        if any(e.facts["not_greedy"] for g in groups for e in g.episodes):
            return ""
        return (
            "no choice of the first step explores: the teacher took the arm of the highest mean in every turn; take "
            "teacher=ucb, a larger alpha or a longer horizon"
        )


@pl.stage
class ImitateTeacher:
    """Every decision is imitated; "explored" is the share of trained tokens whose choice is not the greedy one."""

    imitate: pl.credit.Imitate = pl.credit.Imitate()

    def __call__(
        self, groups: pl.Groups, signals: pl.Signals, state: pl.State
    ) -> tuple[list[pl.Example], pl.State]:
        examples, state = self.imitate(groups, signals, state)
        explored = [
            float(e.facts.get("not_greedy", False))
            for g in groups
            for e in g.episodes
            if e.ok and not e.muted
            for _ in e.rows
        ]
        return [
            replace(
                x,
                columns={**x.columns, "track:explored": np.full(len(x.row.view().ids_T), share)},
            )
            for x, share in zip(examples, explored, strict=True)
        ], state


@pl.stage
class RegretExam:
    """The policy's likeliest replies in `n` held-out bandits, beside the algorithms on the same rewards. By
    player:

    "regret": cumulative expected regret of a game, the mean over bandits, and "regret_halfway"; "reward": mean reward of a turn;
    "suffix_failure": the share of games whose last half never pulls a best arm; "least_share": K times the
    share of the arm pulled least; "linear": what regret grows by in a turn for ever, as fitted.

    "ahead": the share of the algorithms that the policy's reward is above, and "behind" below, by a paired 95%
    interval over bandits; "unread": the share of replies that name no arm.
    """

    sight: Sight
    n: int = 16

    async def __call__(self, ctx: pl.Context) -> Mapping[str, Any]:
        world = await self.sight.explore(ctx, common=True)
        bench = replace(ctx.bench, world=world, max_turns=world.most_turns)
        sample = pl.Sample(n=1, temperature=0.0)
        groups = await pl.run.attempt_tasks(ctx.with_bench(bench), self.n, sample, label="bandits")
        played = [
            (g.task, e.facts) for g in groups for e in g.episodes if e.ok and "arms" in e.facts
        ]
        if not played:
            why = next((e.facts.get("error", e.status) for g in groups for e in g.episodes), "none")
            raise pl.UserError(f"evolve-bandits: no held-out bandit could be played: {why}")
        if len(played) < len(groups):
            ctx.say(
                f"{len(groups) - len(played)} of {len(groups)} held-out games failed, and are left out"
            )
        games = {"policy": [facts for _, facts in played]}
        for name in PLAYERS:
            each = (play_algorithm(world, task, ("exam", task.id), name) for task, _ in played)
            games[name] = [facts for _, facts in await asyncio.gather(*each)]
        pulls = sum(len(f["arms"]) for f in games["policy"])
        unread = sum(f["unread_arms"] for f in games["policy"])
        return {
            **summarise(games),
            "unread": unread / max(1, pulls),
            "bandits": len(played),
        }


def mean_curve(games: Sequence[Mapping[str, Any]]) -> list[float]:
    """[T] cumulative regret, the mean over games as far as all of them go; [] = nobody knows."""
    turns = min(len(f["regrets"]) for f in games)
    return np.mean([np.cumsum(f["regrets"][:turns]) for f in games], 0).tolist() if turns else []


def summarise(games: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """What `RegretExam` says of games by player, "policy" first; without means there is no regret."""
    reward = {name: [float(np.mean(f["rewards"])) for f in facts] for name, facts in games.items()}
    numbers: dict[str, Any] = {}
    curves = {name: mean_curve(facts) for name, facts in games.items()}
    if all(curves.values()):
        numbers["regret"] = {
            name: float(np.mean([sum(f["regrets"]) for f in facts]))
            for name, facts in games.items()
        }
        numbers["regret_halfway"] = {name: c[(len(c) - 1) // 2] for name, c in curves.items()}
        numbers["suffix_failure"] = {
            name: float(np.mean([pl.control.suffix_failure(f["best_arms"]) for f in facts]))
            for name, facts in games.items()
        }
        numbers["linear"] = {name: pl.control.fit_growth(c)["linear"] for name, c in curves.items()}
    numbers["reward"] = {name: float(np.mean(x)) for name, x in reward.items()}
    numbers["least_share"] = {
        name: float(
            np.mean([pl.control.least_share(f["arms"], len(f["arm_names"])) for f in facts])
        )
        for name, facts in games.items()
    }
    others = [name for name in games if name != "policy"]
    gains = [np.subtract(reward["policy"], reward[name]).tolist() for name in others]
    intervals = [pl.stats.mean_interval(x) for x in gains]
    numbers["ahead"] = sum(x.low > 0 for x in intervals) / len(others)
    numbers["behind"] = sum(x.high < 0 for x in intervals) / len(others)
    return numbers


def build(
    teacher: str = "ucb",
    view: str | None = None,
    horizon: int | None = None,
    alpha: float = pl.control.ALPHA,
    shots: int = 0,
    points: int = 0,
    exam: int = 16,
    lr: float = 1e-5,
) -> pl.Recipe:
    """`teacher` is "ucb", "thompson", "greedy" or "random". `horizon` and `view` None are those of the environment, else
    50 turns and "summary". `points` of the teacher's turns in a bandit are imitated; 0 = all. `exam` are the held-out
    bandits that are played before and after; 0 = none.
    """
    pl.check_bounds("evolve-bandits: points", points, least=0)
    pl.check_bounds("evolve-bandits: exam", exam, least=0)
    sight = Sight(teacher, horizon, view, alpha, shots)
    sft = pl.recipe("sft")
    learner = replace(
        sft.learners["policy"],
        credit=ImitateTeacher(),
        optimiser=pl.AdamW(lr=lr),
    )
    return pl.vary(
        sft,
        collect=pl.links(PlayTeacher(sight, points)),
        learners={"policy": learner},
        evaluate={"bandits": RegretExam(sight, exam)} if exam else {},
        schedule=pl.Schedule(prompts=8, steps=100),
    )


def embedded(points: int = 6, exam: int = 8, lr: float = 2e-3, **options: Any) -> pl.Recipe:
    """On small bandits, for the built-in model."""
    made: pl.Recipe = build(points=points, exam=exam, lr=lr, **options)
    learner = replace(made.learners["policy"], optimiser=pl.AdamW(lr=lr, warmup=10))
    return pl.vary(made, learners={"policy": learner}, schedule=pl.Schedule(prompts=8, steps=100))

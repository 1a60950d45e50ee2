"""The study: games by agent and partner, then questions."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np

import palaestra as pl
from palaestra.recipes.games.llm_coordination.agent import (
    CAC,
    DIRECT,
    PLAN,
    RANDOM,
    RepliesAlone,
    SeatMinds,
    TeamOfMinds,
)
from palaestra.recipes.games.llm_coordination.questions import (
    answer_questions,
    question_numbers,
    questions_of,
)

ITSELF, PARTNER = "itself", "partner"
NAMES = {
    ITSELF: "itself",
    PARTNER: "the partner",
    PLAN: "the best plan's player",
    RANDOM: "random actions",
}
TOKENS, BRIEF = 256, 32  # of a call: at least, and at most where prompts are brief


@dataclass(frozen=True, slots=True)
class TeamGame:
    """A game of an agent with a partner, and what was done in it."""

    agent: str
    partner: str
    deal: int
    score: float
    result: str
    turns: int | None
    seats: tuple[str, ...]  # the agent's
    decisions: tuple[Mapping[str, Any], ...]

    def json(self) -> dict[str, Any]:
        return {"kind": "game", **asdict(self)}

    @staticmethod
    def from_json(line: Mapping[str, Any]) -> "TeamGame":
        own = {k: v for k, v in line.items() if k != "kind"}
        own["seats"], own["decisions"] = tuple(own["seats"]), tuple(own["decisions"])
        return TeamGame(**own)


@pl.declare(reads=("decisions", "team_turns", "result"))
@pl.stage
class LlmCoordination:
    """The study; see the module of the package.

    Args:
        cac: whether the agent that thinks of its partner plays, beside the one that answers at once.
        partner: a model that the policy has not played with; None = there is none.
        partners: whether partners that are no models play: the world's own, and random actions.
        questions: a file of them; "" = made of the game, where it is one in rooms.
        tasks: games of each agent with each partner.
        problems: questions, at most.
        samples: how often each question is asked.
        replans: second plans of a CAC agent in a turn.
    """

    cac: bool = True
    partner: pl.Source | None = None
    partners: bool = True
    questions: str = ""
    tasks: int = 16
    problems: int = 198
    samples: int = 3
    replans: int = 1
    temperature: float = 0.6
    top_p: float = 0.9
    question: ClassVar[str] = (
        "Does the model play well with others, also with those that it has never met?"
    )
    check_up: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name, value, least in (
            ("games", self.tasks, 0),
            ("asked", self.problems, 0),
            ("trials", self.samples, 1),
            ("replans", self.replans, 0),
        ):
            pl.check_bounds(name, value, least=least)

    async def run(self, ctx: pl.Context) -> pl.Result:
        world = team_world(ctx)
        if self.tasks and getattr(world, "brief", False):
            ctx.say(
                "the prompts of this game are brief and do not tell its rules: a model that was not shown "
                "it needs --task collab-escape or --task collab-capture"
            )
        power = pl.studies.tell_power(ctx, self.tasks) if self.tasks else "no games"
        games = list[TeamGame]()
        for agent in (CAC, DIRECT) if self.cac else (DIRECT,):
            for partner in self._partners(world):
                games += await self._cell(ctx, world, agent, partner)
        tasks = questions_of(self.questions, world) if self.problems else None
        if tasks is None and self.problems:
            ctx.say(
                "no questions are made of this game; bring some with questions=FILE.jsonl, rows with "
                "prompt, options, answer and type"
            )
        items = (
            await answer_questions(
                ctx, tasks, self.problems, self.samples, self.temperature, self.top_p
            )
            if tasks is not None
            else []
        )
        if not games and not items:
            raise pl.UserError(
                "no game came to an end and no question was asked; the notes above say why. Where the "
                'model\'s context is short, take --task "collab-escape(brief=True)"'
            )
        bounds = pl.run.bounds_of_pay(ctx.bench)
        return pl.studies.publish(ctx, self.report(games, items, power, world, bounds))

    def _partners(self, world: Any) -> list[str]:
        names = [ITSELF]
        if self.partner is not None:
            names.append(PARTNER)
        if self.partners and isinstance(world, RepliesAlone):
            names.append(PLAN)
        return [*names, RANDOM] if self.partners else names

    async def _cell(self, ctx: pl.Context, world: Any, agent: str, partner: str) -> list[TeamGame]:
        """The games of an agent with a partner; a run that goes on does not play them again."""

        async def lines() -> list[dict[str, Any]]:
            games = list[TeamGame]()
            for turn in range(min(len(world.seats), self.tasks) if partner != ITSELF else 1):
                games += await self._games(ctx, world, agent, partner, turn)
            return [g.json() for g in sorted(games, key=lambda g: g.deal)]

        name = f"{agent}-{partner}"
        return [TeamGame.from_json(x) for x in await ctx.once(name, lines)]

    async def _games(
        self, ctx: pl.Context, world: Any, agent: str, partner: str, first: int
    ) -> list[TeamGame]:
        """The deals that the agent plays in the seat `first`; with itself, all of them in all seats."""
        seats: tuple[str, ...] = world.seats
        own = seats if partner == ITSELF else (seats[first],)
        kinds = tuple(
            agent if s in own else DIRECT if partner == PARTNER else partner for s in seats
        )
        deals = list(pl.run.chosen_tasks(ctx.bench, self.tasks))
        if partner != ITSELF:
            deals = deals[first :: len(seats)]
        # a greedy model says the same again
        team = TeamOfMinds(world, kinds, self.replans, beside=2 if self.temperature else 1)
        tokens = ctx.bench.max_tokens
        bench = replace(ctx.bench, world=team, max_turns=ctx.bench.max_turns * team.calls)
        sample = pl.Sample(
            n=1,
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=min(tokens, BRIEF)
            if getattr(world, "brief", False)
            else max(tokens, TOKENS),
            cast=SeatMinds(own, self.partner if partner == PARTNER else None),
        )
        there, label = ctx.with_bench(bench), f"{agent}-{partner}"

        async def one(deal: int) -> pl.Group:
            key = ctx.key("team", deal)
            return await sample(there, key, pl.Group(task=ctx.bench.tasks.task("test", deal)))

        groups = await asyncio.gather(*(one(deal) for deal in deals))
        made = list[TeamGame]()
        broken = list[str]()
        for deal, group in zip(deals, groups, strict=True):
            for e in group.episodes:
                if e.ok and e.reward is not None:
                    made.append(team_game(agent, partner, deal, own, e))
                else:
                    broken.append(str(e.facts.get("error", e.status)))
        if broken:
            ctx.say(f"{len(broken)} of {len(deals)} games of {label} broke off: {broken[0]}")
        return made

    def report(
        self,
        games: Sequence[TeamGame],
        items: Sequence[Mapping[str, Any]],
        power: str,
        world: Any,
        bounds: tuple[float, float] | None,
    ) -> pl.studies.StudyReport:
        """What the games and the questions show."""
        numbers = {**game_numbers(games, bounds), **question_numbers(items)}
        ceiling = world.ceiling() if isinstance(world, pl.worlds.CollabGame) else None
        if ceiling is not None:
            numbers["score_of_the_best_plan"] = ceiling
        return pl.studies.StudyReport(
            study="llm-coordination",
            question=self.question,
            findings=tell(numbers),
            numbers=numbers,
            protocol={
                "games": f"{self.tasks} of each agent with each partner, the seats in turn, at temperature "
                f"{self.temperature:g} and top-p {self.top_p:g}",
                "questions": f"{len(items)}, each asked {self.samples} times",
                "power": power,
            },
            tables=[t for t in (games_table(games, bounds), questions_table(numbers)) if t.rows],
            items=[*(g.json() for g in games), *items],
        )


def team_world(ctx: pl.Context) -> Any:
    """The game of a bench, of a user's file the class itself. Raises UserError for one that no team plays."""
    world: Any = ctx.bench.world
    if isinstance(world, pl.worlds.UserWorld):
        own = pl.worlds.instance_of(world.spec)
        world = own if isinstance(own, pl.worlds.CollabGame) else world
    if len(world.seats) < 2:
        raise pl.UserError(
            f"{ctx.bench.name} has one seat for players; take --task collab-escape, collab-capture, "
            "spiel:hanabi, or --env FILE.py:CLASS of a game whose seats share their pay"
        )
    return world


def team_game(
    agent: str, partner: str, deal: int, seats: tuple[str, ...], episode: pl.Episode
) -> TeamGame:
    """A game by its episode. Raises UserError where the seats are paid apart."""
    assert episode.reward is not None
    paid = {episode.reward.parts.get(f"seat:{s}") for s in episode.reward.payees}
    if len(paid) > 1:
        raise pl.UserError(
            "the seats of this game are paid apart, and this study measures games in which all share the "
            "pay: pay every seat the same; for others there is palaestra tournament"
        )
    made = [asdict(d) for d in episode.facts.get("decisions", ()) if d.seat in seats]
    return TeamGame(
        agent=agent,
        partner=partner,
        deal=deal,
        score=episode.total,
        result=str(episode.facts.get("result", episode.status)),
        turns=episode.facts.get("team_turns"),
        seats=seats,
        decisions=tuple(made),
    )


def interval(values: Sequence[float], bounds: tuple[float, float] | None) -> pl.stats.Interval:
    if bounds is None:
        return pl.stats.unbounded_interval(values)
    return pl.stats.bounded_interval(values, *bounds)


def game_numbers(games: Sequence[TeamGame], bounds: tuple[float, float] | None) -> dict[str, Any]:
    """The numbers of the module of the package, without those of questions."""
    numbers: dict[str, Any] = {}
    score: dict[tuple[str, str], dict[int, float]] = {}
    for g in games:
        score.setdefault((g.agent, g.partner), {})[g.deal] = g.score
    for (agent, partner), by_deal in score.items():
        numbers[f"score_{agent}_{partner}"] = interval(list(by_deal.values()), bounds)
    for agent in (CAC, DIRECT):
        alone = score.get((agent, ITSELF), {})
        others = [x for (a, p), x in score.items() if a == agent and p != ITSELF]
        lost = [
            alone[deal] - float(np.mean([x[deal] for x in others if deal in x]))
            for deal in alone
            if any(deal in x for x in others)
        ]
        if lost:
            numbers[f"lost_with_others_{agent}"] = differences(lost, bounds)
    means = {who: float(np.mean(list(x.values()))) for who, x in score.items()}
    by_agent = [[m for (a, _), m in means.items() if a == agent] for agent in (CAC, DIRECT)]
    numbers["partner_spread"] = max((max(x) - min(x) for x in by_agent if x), default=0.0)
    gained = [
        x - score[DIRECT, partner][deal]
        for (agent, partner), by_deal in score.items()
        if agent == CAC and (DIRECT, partner) in score
        for deal, x in by_deal.items()
        if deal in score[DIRECT, partner]
    ]
    if gained:
        numbers["gained_by_cac"] = differences(gained, bounds)
    numbers |= changed_moves([d for g in games for d in g.decisions])
    own = [d for g in games for d in g.decisions]
    if own:
        numbers["actions_not_grounded"] = sum(d["grounding"] == "drawn" for d in own) / len(own)
    return numbers


def changed_moves(decisions: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The share of actions that are others than without thinking, "moves_changed", and that of answers
    without thinking that differ when they are asked for again, "moves_changed_by_chance". Actions drawn at
    random, for want of a legal one, say nothing and are left out.
    """
    able = [d for d in decisions if d["direct"] and d["grounding"] != "drawn"]
    twice = [d for d in decisions if d["direct"] and d["again"]]
    share = lambda x: sum(x) / len(x) if x else 0.0
    numbers = {"moves_changed": share([d["direct"] != d["move"] for d in able])}
    if twice:
        numbers["moves_changed_by_chance"] = share([d["direct"] != d["again"] for d in twice])
    return numbers


def differences(values: Sequence[float], bounds: tuple[float, float] | None) -> pl.stats.Interval:
    width = None if bounds is None else bounds[1] - bounds[0]
    return interval(values, None if width is None else (-width, width))


def games_table(
    games: Sequence[TeamGame], bounds: tuple[float, float] | None
) -> pl.studies.StudyTable:
    rows = list[list[str]]()
    for agent, partner in dict.fromkeys((g.agent, g.partner) for g in games):
        own = [g for g in games if (g.agent, g.partner) == (agent, partner)]
        made = [d for g in own for d in g.decisions]
        turns = [g.turns for g in own if g.turns is not None]
        ends = Counter(g.result for g in own)
        hows = Counter(d["grounding"] for d in made)
        rows.append(
            [
                agent,
                NAMES[partner],
                str(len(own)),
                pl.studies.tell_interval(interval([g.score for g in own], bounds), share=False),
                f"{np.mean(turns):.1f}" if turns else "",
                ", ".join(f"{name} {n}" for name, n in ends.most_common()),
                f"{hows['similar'] / len(made):.0%}" if made else "",
                f"{hows['drawn'] / len(made):.0%}" if made else "",
            ]
        )
    return pl.studies.StudyTable(
        "Games",
        ("agent", "with", "games", "score", "turns", "ends", "similar", "drawn"),
        rows,
        'The agent "cac" thinks of its partner, plans and verifies; "direct" answers at once. "similar": '
        'actions that were written almost as a legal one is; "drawn": no legal action was written, and one '
        "at random stands for it.",
    )


def questions_table(numbers: Mapping[str, Any]) -> pl.studies.StudyTable:
    rows = [
        (
            name.removeprefix("qa_").replace("_", " "),
            pl.studies.tell_interval(x),
            f"{numbers[f'{name}_chance']:.1%}",
        )
        for name, x in numbers.items()
        if name.startswith("qa_") and not name.endswith("_chance")
    ]
    return pl.studies.StudyTable("Questions", ("type", "right", "at random"), rows)


def tell(numbers: Mapping[str, Any]) -> list[str]:
    """The findings as sentences."""
    number = lambda x, signed=False: pl.studies.tell_interval(x, share=False, signed=signed)
    findings = list[str]()
    for agent in (CAC, DIRECT):
        if (x := numbers.get(f"score_{agent}_{ITSELF}")) is None:
            continue
        line = f"The agent {agent} scores {number(x)} with itself"
        lost = numbers.get(f"lost_with_others_{agent}")
        if lost is not None:
            sure = "" if lost.low > 0 or lost.high < 0 else ", which may be chance"
            line += f"; with others it scores {number(lost)} less{sure}"
        findings.append(f"{line}.")
    if (best := numbers.get("score_of_the_best_plan")) is not None and findings:
        findings.append(f"The best joint plan scores {best:.3f}.")
    if (gained := numbers.get("gained_by_cac")) is not None:
        sure = "" if gained.low > 0 or gained.high < 0 else ", which may be chance"
        findings.append(
            f"To think of the partner first changes the score by {number(gained, True)}{sure}, and "
            f"{numbers['moves_changed']:.0%} of the actions"
            + (
                f"; {by_chance:.0%} change where it is asked the same question twice."
                if (by_chance := numbers.get("moves_changed_by_chance")) is not None
                else "."
            )
        )
    for name, x in numbers.items():
        if name.startswith("qa_") and not name.endswith("_chance"):
            chance = numbers[f"{name}_chance"]
            above = (
                "more than" if x.low > chance else "fewer than" if x.high < chance else "as many as"
            )
            kind = name.removeprefix("qa_").replace("_", " ")
            findings.append(
                f"Of questions about {kind} it answers {pl.studies.tell_interval(x)}, {above} "
                f"at random ({chance:.1%})."
            )
    return findings

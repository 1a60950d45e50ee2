"""The study: all cells of players, then the probes."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, ClassVar

import palaestra as pl
from palaestra.recipes.games.decrypto.play import (
    PARTNER,
    POLICY,
    VECTORS,
    Cell,
    PlayedGame,
    RepliesItself,
    check_world,
    play_cell,
)
from palaestra.recipes.games.decrypto.probes import (
    MindReader,
    belief_numbers,
    prediction_numbers,
    probed_turns,
    random_numbers,
)

ROLES = ("encoder", "decoder", "interceptor")
ENDS = ("survived", "interception", "miscommunication", "both")
PROBES: Mapping[str, str] = {
    "perspective": "predicts the interceptor's guess",
    "perspective_of_the_true_code": "one who always names the true code would",
    "predicts_the_true_code": "names the true code as the prediction",
    "keywords_right": "names the four keywords",
    "change_weak": "after the reveal: says that it believed something else (weak)",
    "change_strong": "after the reveal: says what it had believed (strong)",
    "false_belief_weak": "expects another one to believe something else (weak)",
    "false_belief_strong": "expects another one to believe what it had believed (strong)",
    "consistency": "says the same of itself and of another one",
}


@pl.declare(reads=("turns_played",))
@pl.stage
class DecryptoStudy:
    """The study; see the module of the package.

    Args:
        partner: a third player of every role; None = there is none.
        rivals: whether the world's own player has roles too; without it and without a partner the
            model plays with itself alone.
        tasks: deals, which are played once in each cell.
        n: turns at which each probe is put, at most; 0 = none.
        retries: of a probe whose reply cannot be read.
    """

    partner: pl.Source | None = None
    rivals: bool = True
    tasks: int = 32
    n: int = 64
    retries: int = 2
    temperature: float = 1.0
    question: ClassVar[str] = "Does the model hint, guess and know what others believe in Decrypto?"
    check_up: ClassVar[bool] = False

    def __post_init__(self) -> None:
        pl.check_bounds("games", self.tasks, least=1)
        pl.check_bounds("probes", self.n, least=0)
        pl.check_bounds("retries", self.retries, least=0)

    async def run(self, ctx: pl.Context) -> pl.Result:
        world = check_world(ctx)
        names = [POLICY]
        if self.rivals and isinstance(world, RepliesItself):
            names.append(VECTORS)
        if self.partner is not None:
            names.append(PARTNER)
        power = pl.studies.tell_power(ctx, self.tasks)
        deals = pl.run.chosen_tasks(ctx.bench, self.tasks)
        games = list[PlayedGame]()
        for a, b, c in product(names, repeat=3):
            games += await self._cell(ctx, (a, b, c), deals)
        if not any(POLICY in g.cell for g in games):
            raise pl.UserError(
                "no game of the model came to an end; the notes above say why. Where its context is "
                'short, take --task "decrypto(brief=True)"'
            )
        minds, items = await self._minds(ctx, world, games)
        report = self.report(games, minds, items, power, world)
        return pl.studies.publish(ctx, report)

    async def _cell(self, ctx: pl.Context, cell: Cell, deals: Sequence[int]) -> list[PlayedGame]:
        """The games of a cell; a run that goes on does not play them again."""

        async def lines() -> list[dict[str, Any]]:
            games = await play_cell(ctx, cell, deals, self.temperature, self.partner)
            return [g.json() for g in games]

        return [PlayedGame.from_json(x) for x in await ctx.once("-".join(cell), lines)]

    async def _minds(
        self, ctx: pl.Context, world: Any, games: Sequence[PlayedGame]
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """The numbers of the probes, and what was said."""
        reader = MindReader(ctx, world, self.temperature, self.retries)
        encoded = [g for g in games if g.cell[0] == POLICY]
        heard = [g for g in games if g.cell[2] == POLICY]
        key = ctx.key("probed")
        encoders = probed_turns(encoded, (*key, "encoder"), self.n)
        interceptors = probed_turns(heard, (*key, "interceptor"), self.n)
        predicted = await asyncio.gather(*(reader.predict(*at) for at in encoders))
        believed = await asyncio.gather(*(reader.believe(*at) for at in interceptors))
        if self.n and not predicted:
            ctx.say(
                "the model gave no hints that could be read, so perspective taking is not measured; "
                "see illegal replies in items.jsonl, and try a model that follows instructions"
            )
        numbers = prediction_numbers(predicted) | belief_numbers(believed)
        unread = [not p.prediction for p in predicted] + [
            not x for b in believed for x in (b.guessed, b.before, b.other)
        ]
        if unread:
            numbers["probes_unread"] = sum(unread) / len(unread)
        code = pl.worlds.code_text
        items: list[dict[str, Any]] = [
            {
                "kind": "perspective",
                "said": code(p.prediction),
                "guess": code(p.guess),
                "code": code(p.code),
            }
            for p in predicted
        ]
        items += [
            {
                "kind": "keywords",
                "true": b.true,
                "guessed": b.guessed,
                "before": b.before,
                "other": b.other,
            }
            for b in believed
        ]
        return numbers, items

    def report(
        self,
        games: Sequence[PlayedGame],
        minds: Mapping[str, Any],
        items: Sequence[Mapping[str, Any]],
        power: str,
        world: pl.worlds.Decrypto,
    ) -> pl.studies.StudyReport:
        """What the games and the probes show."""
        most = world.turns
        cells = sorted({g.cell for g in games}, key=lambda c: [x != POLICY for x in c])
        turns = {c: mean_turns([g for g in games if g.cell == c], most) for c in cells}
        means = [x.mean for x in turns.values()]
        roles = role_effects(games, most)
        numbers: dict[str, Any] = {
            "told_apart": max(means) - min(means),
            **{f"turns_{'_'.join(c)}": x for c, x in turns.items()},
            **{f"turns_as_{role}": x for role, x in roles.items()},
            **minds,
        }
        return pl.studies.StudyReport(
            study="decrypto",
            question=self.question,
            findings=tell(turns, roles, minds),
            numbers=numbers,
            protocol={
                "games": f"{self.tasks} deals, the same in each of {len(cells)} cells, at temperature {self.temperature:g}",
                "probes": f"at most {self.n} turns each; a reply that cannot be read is asked for again "
                f"{self.retries} times, and is a miss then",
                "power": power,
            },
            tables=[cells_table(games, turns), *minds_table(minds, lexicon_size(world))],
            items=[*(g.json() for g in games), *items],
        )


def lexicon_size(world: Any) -> int:
    """Keywords that a deal is drawn from, for the odds of an answer at random; 4 where that is unknown."""
    lexicon = getattr(world, "lexicon", None)
    return len(lexicon.keywords) if lexicon is not None else 4


def mean_turns(games: Sequence[PlayedGame], most: int) -> pl.stats.Interval:
    return pl.stats.bounded_interval([float(len(g.turns)) for g in games], 0.0, float(most))


def role_effects(games: Sequence[PlayedGame], most: int) -> dict[str, pl.stats.Interval]:
    """By role, how many turns more a game has with the model in it than with the world's own player, the
    other two roles and the deal being the same. Few turns are good for the interceptor alone.
    """
    length = {(g.cell, g.deal): len(g.turns) for g in games}
    effects: dict[str, pl.stats.Interval] = {}
    for i, role in enumerate(ROLES):
        by_deal: dict[int, list[int]] = {}
        for (cell, deal), n in length.items():
            a, b, c = (VECTORS if j == i else name for j, name in enumerate(cell))
            other = (a, b, c)
            if cell[i] == POLICY and (other, deal) in length:
                by_deal.setdefault(deal, []).append(n - length[other, deal])
        means = [sum(x) / len(x) for x in by_deal.values()]
        if means:
            effects[role] = pl.stats.bounded_interval(means, -float(most), float(most))
    return effects


def cells_table(
    games: Sequence[PlayedGame], turns: Mapping[Cell, pl.stats.Interval]
) -> pl.studies.StudyTable:
    rows = list[list[str]]()
    for cell, interval in turns.items():
        own = [g for g in games if g.cell == cell]
        ends = Counter(g.result for g in own)
        illegal = sum(sum(g.illegal.values()) for g in own)
        shares = [f"{ends[end] / len(own):.0%}" for end in ENDS]
        interval_text = pl.studies.tell_interval(interval, share=False)
        rows.append([*cell, interval_text, *shares, str(illegal)])
    return pl.studies.StudyTable(
        "Games by who plays",
        (*ROLES, "turns", *ENDS, "unread replies"),
        rows,
        "Survived is a win of encoder and decoder. The others say how the game was lost.",
    )


def minds_table(minds: Mapping[str, Any], keywords: int) -> list[pl.studies.StudyTable]:
    """The probes beside an answer at random; nothing where none was put."""
    at_random = random_numbers(keywords)
    rows = [
        (words, pl.studies.tell_interval(minds[name]), chance_text(at_random.get(name)))
        for name, words in PROBES.items()
        if name in minds
    ]
    note = (
        "The weak forms are passed by answering at random. They and the strong ones are of turns at which the "
        "keywords were named wrongly."
    )
    columns = ("the model", "share", "at random")
    return [pl.studies.StudyTable("Probes", columns, rows, note)] if rows else []


def chance_text(chance: float | None) -> str:
    if chance is None:
        return ""
    return "below 0.1%" if 0 < chance < 0.001 else f"{chance:.1%}"


def tell(
    turns: Mapping[Cell, pl.stats.Interval],
    roles: Mapping[str, pl.stats.Interval],
    minds: Mapping[str, Any],
) -> list[str]:
    """The findings as sentences."""
    alone, own = (POLICY, POLICY, POLICY), (VECTORS, VECTORS, VECTORS)
    number = lambda x: pl.studies.tell_interval(x, share=False)
    findings = list[str]()
    if alone in turns:
        line = f"A game of the model with itself has {number(turns[alone])} turns"
        findings.append(
            f"{line}; one of the players made of word vectors has {number(turns[own])}."
            if own in turns
            else f"{line}."
        )
    for role, x in roles.items():
        seen = "more" if x.low > 0 else "fewer" if x.high < 0 else "no clearly other number of"
        good = (
            {"more": "worse", "fewer": "better"}
            if role == "interceptor"
            else {"more": "better", "fewer": "worse"}
        )
        verdict = f", so it plays {good[seen]}" if seen in good else ""
        findings.append(
            f"As {role} in the place of the vector player it makes games of {seen} turns: "
            f"{pl.studies.tell_interval(x, share=False, signed=True)}{verdict}."
        )
    if "perspective" in minds:
        findings.append(
            f"As encoder it predicts the interceptor's guess in {pl.studies.tell_interval(minds['perspective'])} "
            "of turns; one who always names the true code would in "
            f"{pl.studies.tell_interval(minds['perspective_of_the_true_code'])}."
        )
    if "change_strong" in minds:
        findings.append(
            "After the keywords were revealed it says what it had believed in "
            f"{pl.studies.tell_interval(minds['change_strong'])} of turns, and expects the same of another one in "
            f"{pl.studies.tell_interval(minds['false_belief_strong'])}."
        )
    return findings

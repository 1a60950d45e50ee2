"""The built-in game: strategies of the space, or rules, play the real-time game of `rts`."""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import palaestra as pl
from palaestra.recipes.games.sap.match import ChangePlan, PlayedMatch
from palaestra.recipes.games.sap.rts import LENGTH, RtsGame, RtsOrders, RtsSide, orders_of
from palaestra.recipes.games.sap.space import (
    DISTANCES,
    FORM,
    TARGETS,
    TRIGGERS,
    UNITS,
    PlannedStrategy,
    RtsStrategy,
    read_strategy,
    rts_space,
)

RtsRule = Callable[[RtsGame, int], RtsStrategy]
PLANNER_TRIES = 3
VIEWS = 5  # of the opponent that are counted
ORDERS = (
    '{"harvesters": 0 to 4, "build": true to build barracks as soon as they can be paid, "train": some of '
    '"worker", "light", "heavy", "ranged", "target": "building", "unit", or "" to defend, "distance": of the '
    "defence}"
)
PLAN = """You plan a side of a real-time strategy game. A worker costs 1, light, heavy and ranged units 2, which \
barracks train (5). Orders hold for {every} ticks of {length}.
Your strategy: {text}
Tick {tick}. You have {own}. Your opponent has {other}.
Reply with your orders as one JSON object: {form}"""


def rushes_with(unit: str, barracks: int) -> RtsRule:
    """One harvester, one kind of units, and the nearest unit is attacked: a rush of MicroRTS."""
    plan = RtsStrategy(
        harvesters=1, barracks=barracks, units=(unit,), aggressive=True, target="unit"
    )
    return lambda game, side: plan


def defends_then_attacks(game: RtsGame, side: int) -> RtsStrategy:
    """Two harvesters, and a defence until there are six soldiers."""
    soldiers = len(game.of(side, "light", "ranged"))
    plan = RtsStrategy(
        harvesters=2, barracks=6, units=("light", "ranged"), aggressive=soldiers >= 6, distance=3
    )
    return replace(plan, target="building", distance=0) if plan.aggressive else plan


def counters(game: RtsGame, side: int) -> RtsStrategy:
    """Trains what costs the unit that the other side has most of: ranged for heavy, light for ranged, heavy for
    light and workers.
    """
    most = Counter(u.kind for u in game.of(1 - side, *UNITS)).most_common(1)
    unit = {"heavy": "ranged", "ranged": "light"}.get(most[0][0] if most else "", "heavy")
    return RtsStrategy(harvesters=2, barracks=6, units=(unit,), aggressive=True, target="unit")


RULE_PLAYERS: Mapping[str, RtsRule] = {
    "worker rush": rushes_with("worker", 0),
    "light rush": rushes_with("light", 5),
    "heavy rush": rushes_with("heavy", 5),
    "ranged rush": rushes_with("ranged", 5),
    "defends, then attacks": defends_then_attacks,
    "counters": counters,
}
RULES = tuple(PlannedStrategy(name=name, text=name, vector=()) for name in RULE_PLAYERS)


class MiniRts:
    """Games in which rules, or a `planner`, turn a strategy into orders every `every` ticks. `noise` is the
    chance that a feature of the opponent is seen wrong.
    """

    form = f"Reply with the opponent's strategy as one JSON object: {FORM}"

    def __init__(
        self,
        noise: float,
        every: int,
        ctx: pl.Context | None = None,
        planner: pl.Source | None = None,
    ) -> None:
        self.space = tuple(s.planned() for s in rts_space())
        self.at = {s.vector: made for s, made in zip(self.space, rts_space(), strict=True)}
        self.noise, self.every, self.ctx, self.planner = noise, every, ctx, planner

    async def play(
        self,
        own: PlannedStrategy,
        other: PlannedStrategy,
        key: pl.Key,
        change: ChangePlan | None = None,
    ) -> PlayedMatch | None:
        rng = pl.rng_of(key)
        game, side = RtsGame(rng), int(rng.integers(2))
        orders: RtsOrders | None = None
        while not game.over:
            if game.tick % self.every == 0:
                if change is not None and game.tick:
                    own = await change(self._seen(game, 1 - side, key))
                if self.planner is not None:
                    orders = await self._planned(self.planner, own, game, side)
            both = [orders or self._orders(own, game, side), self._orders(other, game, 1 - side)]
            game.play((both[side], both[1 - side]))
        mine, theirs = game.sides[side], game.sides[1 - side]
        return PlayedMatch(
            won=game.won(side),
            damage=float(mine.damage - theirs.damage),
            seen=self._seen(game, 1 - side, key),
            spent=float(mine.spent - theirs.spent),
            harvested=float(mine.harvested - theirs.harvested),
        )

    def _orders(self, s: PlannedStrategy, game: RtsGame, side: int) -> RtsOrders:
        rule = RULE_PLAYERS.get(s.name)
        plan = rule(game, side) if rule else self.at[s.vector]
        return orders_of(plan, game.sides[side])

    async def _planned(
        self, planner: pl.Source, own: PlannedStrategy, game: RtsGame, side: int
    ) -> RtsOrders | None:
        """The orders of the planner; None = none could be read in three tries, and the rules give them."""
        assert self.ctx is not None
        text = PLAN.format(
            every=self.every,
            length=LENGTH,
            text=own.text,
            tick=game.tick,
            own=holdings(game, side),
            other=holdings(game, 1 - side),
            form=ORDERS,
        )
        for i in range(PLANNER_TRIES):
            request = pl.ChatRequest(
                messages=pl.services.question_messages(text), temperature=0.7 if i else 0.0
            )
            if (made := read_orders(await self.ctx.ask(planner, request, seed=i))) is not None:
                return made
        return None

    def _seen(self, game: RtsGame, side: int, key: pl.Key) -> str:
        """What a side has been seen to do so far, each feature wrong with the chance `noise`."""
        rng = pl.rng_of((*key, "seen", game.tick))
        view = game.shown(side)
        wrong = lambda: rng.random() < self.noise
        pick = lambda options: str(options[int(rng.integers(len(options)))])
        view["harvesters"] = pick((1, 2)) if wrong() else view["harvesters"]
        if view["barracks"] != "0" and wrong():
            view["barracks"] = pick(TRIGGERS)
        kinds = view["units"].split()
        view["units"] = " ".join(u for u in UNITS if (u in kinds) != wrong())
        for name, options in (("target", TARGETS), ("distance", DISTANCES)):
            if view[name] and wrong():
                view[name] = pick(options)
        return "; ".join((f"tick {game.tick}", *(f"{k} {v}" for k, v in view.items() if v)))

    def read(self, text: str) -> PlannedStrategy | None:
        """The strategy that a recogniser names."""
        made = read_strategy(text)
        return None if made is None else made.planned()

    def recognise(self, seen: Sequence[str]) -> PlannedStrategy | None:
        """The strategy by the features that were seen most often in the last views with soldiers and what these
        do; None = there is no such view, or the space has no such strategy.
        """
        views = [dict(part.split(" ", 1) for part in view.split("; ")) for view in seen]
        games = [v for v in views if "units" in v and {"target", "distance"} & {*v}][-VIEWS:]
        half = len(games) / 2
        units = tuple(
            u for u in UNITS if sum(u in g.get("units", "").split() for g in games) > half
        )
        target, distance = most_seen(games, "target"), most_seen(games, "distance")
        aggressive = sum("target" in g for g in games) > half
        barracks = min(10, max(5, int(most_seen(games, "barracks") or 5)))
        made = RtsStrategy(
            harvesters=min(2, max(1, int(most_seen(games, "harvesters") or 1))),
            barracks=0 if units == ("worker",) else barracks,
            units=units,
            aggressive=aggressive,
            target=target if aggressive else "",
            distance=0 if aggressive else min(4, max(1, int(distance or 1))),
        )
        return made.planned() if made.vector() in self.at else None


def most_seen(games: Sequence[Mapping[str, str]], name: str) -> str:
    """The value of a feature that was seen most often, 0 not counted; "" = none was."""
    values = Counter(g[name] for g in games if g.get(name, "0") != "0")
    return values.most_common(1)[0][0] if values else ""


def holdings(game: RtsGame, side: int) -> str:
    """What a side has, in words."""
    counts = Counter(u.kind for u in game.of(side))
    purse: RtsSide = game.sides[side]
    return ", ".join((f"{purse.resources} resources", *(f"{n} {k}" for k, n in counts.items())))


def read_orders(text: str) -> RtsOrders | None:
    """The orders of the last JSON object in a reply that gives such; None = there is none."""
    for body in reversed(re.findall(r"\{[^{}]*\}", pl.verifiers.strip_thinking(text))):
        try:
            fields: Any = json.loads(body)
            made = RtsOrders(
                harvesters=min(4, max(0, int(fields["harvesters"]))),
                build=fields["build"] is True,
                train=tuple(u for u in UNITS if u in list(fields["train"])),
                target=str(fields.get("target", "")),
                distance=min(8, max(1, int(fields.get("distance") or 1))),
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
        if made.target in ("", *TARGETS):
            return made
    return None

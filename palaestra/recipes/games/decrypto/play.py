"""Games of a cell: who encodes, who decodes, who intercepts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import palaestra as pl

POLICY, VECTORS, PARTNER = "policy", "vectors", "partner"
Cell = tuple[str, str, str]  # the encoder, the decoder, the interceptor


@runtime_checkable
class RepliesItself(Protocol):
    """A world with a player of its own for each seat."""

    def reply(self, state: Any, seat: str, rng: Any) -> str: ...


@dataclass(frozen=True, slots=True)
class SeatedState:
    """A state, and the turns in it that are the world's own player's."""

    state: Any
    own: tuple[pl.Ask, ...]


@pl.stage
class WithOwnPlayer:
    """A world in which its own player has the seats `played`; the others are asked."""

    world: Any
    played: tuple[str, ...]

    @property
    def seats(self) -> tuple[str, ...]:
        return self.world.seats

    @property
    def most_turns(self) -> int:
        return self.world.most_turns

    def reset(self, task: pl.Task, key: pl.Key) -> pl.Frame:
        return self._past_own(self.world.reset(task, key), key)

    def step(self, state: SeatedState, acts: tuple[pl.Act, ...], key: pl.Key) -> pl.Frame:
        own = tuple(self._act(state.state, ask, key) for ask in state.own)
        return self._past_own(self.world.step(state.state, (*acts, *own), key), key)

    def _past_own(self, frame: pl.Frame, key: pl.Key) -> pl.Frame:
        """The frame, played on to where another player is asked."""
        pay, n = dict(frame.pay), 0
        while frame.asks:
            own = tuple(a for a in frame.asks if a.seat in self.played)
            if len(own) < len(frame.asks):
                asks = tuple(a for a in frame.asks if a.seat not in self.played)
                return replace(frame, state=SeatedState(frame.state, own), asks=asks, pay=pay)
            n += 1
            acts = tuple(self._act(frame.state, ask, (*key, n)) for ask in own)
            frame = self.world.step(frame.state, acts, (*key, n))
            for who, x in frame.pay.items():
                pay[who] = pay.get(who, 0.0) + x
        return replace(frame, pay=pay)

    def _act(self, state: Any, ask: pl.Ask, key: pl.Key) -> pl.Act:
        text = self.world.reply(state, ask.seat, pl.rng_of((*key, "own", ask.seat)))
        return pl.Act(ask=ask, text=text, call=None, finish="eos", n_tokens=0)


@pl.stage
class SeatCast:
    """The policy in its seats of a cell, the partner in the others."""

    cell: Cell
    partner: pl.Source | None = None

    def __call__(
        self, ctx: pl.Context, key: pl.Key, sampling: pl.Sampling, seats: Mapping[str, pl.Player]
    ) -> dict[str, pl.Player]:
        def player(name: str) -> pl.Player:
            if name != PARTNER or self.partner is None:
                return pl.rollout.EnginePlayer(engine=ctx.engine("policy"), sampling=sampling)
            client = ctx.client(self.partner)
            return pl.engines.EndpointPlayer(
                client=client, sampling=sampling, name=PARTNER, illegal="random"
            )

        return {seat: player(name) for seat, name in zip(seats, self.cell, strict=True)}


@dataclass(frozen=True, slots=True)
class PlayedGame:
    """A game of a cell: how it ended, and its turns."""

    cell: Cell
    deal: int
    result: str
    turns: tuple[pl.worlds.DecryptoTurn, ...]
    keywords: tuple[str, ...]
    illegal: Mapping[str, int]

    @staticmethod
    def from_json(line: Mapping[str, Any]) -> "PlayedGame":
        code = pl.worlds.read_code
        turns = [
            pl.worlds.DecryptoTurn(
                code=code(t["code"]),
                hints=tuple(t["hints"]),
                decoded=code(t["decoded"]),
                intercepted=code(t["intercepted"]),
            )
            for t in line["turns"]
        ]
        encoder, decoder, interceptor = line["players"].values()
        return PlayedGame(
            cell=(encoder, decoder, interceptor),
            deal=line["deal"],
            result=line["result"],
            turns=tuple(turns),
            keywords=tuple(line["keywords"]),
            illegal=line["illegal"],
        )

    def json(self) -> dict[str, Any]:
        turns = [
            {
                "code": pl.worlds.code_text(t.code),
                "hints": list(t.hints),
                "decoded": pl.worlds.code_text(t.decoded),
                "intercepted": pl.worlds.code_text(t.intercepted),
            }
            for t in self.turns
        ]
        return {
            "kind": "game",
            "players": dict(zip(("encoder", "decoder", "interceptor"), self.cell, strict=True)),
            "deal": self.deal,
            "keywords": list(self.keywords),
            "result": self.result,
            "illegal": dict(self.illegal),
            "turns": turns,
        }


async def play_cell(
    ctx: pl.Context,
    cell: Cell,
    deals: Sequence[int],
    temperature: float,
    partner: pl.Source | None,
) -> list[PlayedGame]:
    """The games of a cell, one for each deal; those that broke off are left out, and told."""
    world: Any = check_world(ctx)
    seats: tuple[str, ...] = world.seats
    played = tuple(s for s, name in zip(seats, cell, strict=True) if name == VECTORS)
    seated = WithOwnPlayer(world, played) if played else world
    tasks = [ctx.bench.tasks.task("test", i) for i in deals]
    if len(played) == len(seats):
        frames = [
            seated.reset(t, ctx.key("cell", *cell, i)) for i, t in zip(deals, tasks, strict=True)
        ]
        return [game_of(cell, i, t, f.facts) for i, t, f in zip(deals, tasks, frames, strict=True)]
    there = ctx.with_bench(replace(ctx.bench, world=seated))
    sample = pl.Sample(n=1, temperature=temperature, cast=SeatCast(cell, partner))
    label = f"{'-'.join(cell)}"
    groups = await pl.run.attempt_tasks(there, len(deals), sample, label=label)
    pairs = [(i, g.task, e) for i, g in zip(deals, groups, strict=True) for e in g.episodes]
    broken = [e for _, _, e in pairs if "turns_played" not in e.facts]
    if broken:
        why = sorted({str(e.facts.get("error", e.status)) for e in broken})
        ctx.say(f"{len(broken)} of {len(pairs)} games of {label} broke off: {why[0]}")
    return [game_of(cell, i, t, e.facts) for i, t, e in pairs if "turns_played" in e.facts]


def game_of(cell: Cell, deal: int, task: pl.Task, facts: Mapping[str, Any]) -> PlayedGame:
    """A game by the facts of its episode."""
    mark = "illegal:"
    return PlayedGame(
        cell=cell,
        deal=deal,
        result=facts["result"],
        turns=facts["turns_played"],
        keywords=tuple(task.meta["keywords"]),
        illegal={k.removeprefix(mark): n for k, n in facts.items() if k.startswith(mark)},
    )


def check_world(ctx: pl.Context) -> pl.worlds.Decrypto:
    """The world of a bench, of a user's file the class itself. Raises UserError for one that is no game
    of Decrypto.
    """
    world: Any = ctx.bench.world
    if isinstance(world, pl.worlds.UserWorld):
        world = pl.worlds.instance_of(world.spec)
    named = ("seats", "reset", "step", "shown", "public", "turns")
    if any(not hasattr(world, name) for name in named) or len(world.seats) != 3:
        raise pl.UserError(
            f"{ctx.bench.name} is no game of Decrypto; take --task decrypto, or "
            "--task \"decrypto(words='FILE')\" with your own keywords, a line each, or --env FILE.py:CLASS "
            "of a class that extends palaestra.worlds.Decrypto"
        )
    return world

"""The agents that play: CAC, which thinks of its partner before it acts, one that answers at once, and
partners that are no models.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, runtime_checkable

import palaestra as pl

CAC, DIRECT, PLAN, RANDOM = "cac", "direct", "plan", "random"
SIMILAR = 0.6  # of 1, by difflib: an action that is written almost so
REMEMBERED = 8  # own actions in a prompt
LONGEST = 600  # characters of a thought that are shown again
LEAD = "Action: "
ACTION = re.compile(r"\baction\s*:\s*(.*)", re.IGNORECASE)
SAID_FIRST = re.compile(r"\W*(not\s+okay|okay|ok|yes)\b|\W*(no)\b\s*(?:[.,;!]|\Z)", re.IGNORECASE)
OKAY = re.compile(r"\b((?:not\s+)?(?:okay|ok))\b", re.IGNORECASE)
VERDICT = re.compile(
    r"\b((?:not|\w+n['\u2019]t)\s+(?:an?\s+)?(?:okay|ok|safe|legal|possible|good)|(?:un|in)safe|illegal|impossible|no|yes"
    r"|safe|legal)\b",
    re.IGNORECASE,
)

PARTNER = (
    "Before you act, think of {partners}: what do they know, what do they need, and what will they most "
    "likely do now? Answer in one or two sentences, and do not choose an action yet."
)
THINK = (
    "You think of your partner: {belief}\nReason briefly about the best action of yours, and write it in a "
    "last line: Action: ONE OF {actions}"
)
REFUSED = "\nThese do not do: {refused}. Choose another action."
VERIFY = "You want to do this: {action}. Is it possible now, and safe for your team? Reply Okay or Not okay."
BRIEF = {
    PARTNER: "partner?",
    THINK: "partner: {belief}\nplan?",
    REFUSED: " not {refused}",
    VERIFY: "do {action}, okay?",
}

Grounding = Literal["named", "similar", "drawn", "free"]


@runtime_checkable
class RepliesAlone(Protocol):
    """A world with a player of its own for each seat."""

    def reply(self, state: Any, seat: str, rng: Any) -> str: ...


def ground(
    text: str, legal: Sequence[str], rng: Any, similar: float = SIMILAR
) -> tuple[str, Grounding]:
    """The legal action that a reply means: the one that is named last behind its last "Action:", or in
    its last line that names one; else the most similar one, if it has the same numbers and is at least
    `similar` (2 M / T, M characters that match, of T in both); else one at random.

    Returns:
        The action, and how it was found: "named", "similar", "drawn", or "free" where nobody lists
        the legal ones.
    """
    bare = pl.verifiers.strip_thinking(text)
    marked = [m.strip() for m in ACTION.findall(bare) if m.strip()]
    parts = marked[-1:] or [line.strip() for line in reversed(bare.splitlines()) if line.strip()]
    if not legal:
        return (parts[0] if parts else "").strip(" .*"), "free"
    for part in parts:
        if (name := last_of(part, legal)) is not None:
            return name, "named"
    for part in parts[:1]:
        own = [x for x in legal if re.findall(r"\d+", x) == re.findall(r"\d+", part)]
        ratio = {x: difflib.SequenceMatcher(None, part.lower(), x.lower()).ratio() for x in own}
        if own and max(ratio.values()) >= similar:
            return max(own, key=ratio.__getitem__), "similar"
    return legal[int(rng.integers(len(legal)))], "drawn"


def last_of(text: str, names: Sequence[str]) -> str | None:
    """The name that stands last in a text, of those that end there the longest, in any letter case."""
    places = [
        (m.end(), m.end() - m.start(), name)
        for name in names
        for m in re.finditer(rf"(?<!\w){re.escape(name.lower())}(?!\w)", text.lower())
    ]
    return max(places)[2] if places else None


def is_accepted(text: str) -> bool:
    """Whether a verification says yes: the verdict that it begins with, else its last "okay" or "not okay", else
    the first other word that judges. One without a verdict is no objection.
    """
    bare = pl.verifiers.strip_thinking(text)
    if first := SAID_FIRST.match(bare):
        return (first[1] or first[2]).lower() in ("okay", "ok", "yes")
    okays = OKAY.findall(bare)
    verdict = okays[-1:] or VERDICT.findall(bare)[:1]
    return not verdict or verdict[0].lower() in ("okay", "ok", "yes", "safe", "legal")


@dataclass(frozen=True, slots=True)
class Decision:
    """What a seat did in a turn. `direct` is what it says without thinking, in the same place, and
    `again` what it says when it is asked that once more; "" = not asked, or no legal action was named.
    """

    seat: str
    move: str
    grounding: Grounding
    direct: str = ""
    again: str = ""
    belief: str = ""
    replans: int = 0
    partner_did: str = ""


@dataclass(frozen=True, slots=True)
class Mind:
    """A seat in a turn: what it is asked by the world, and how far it has come."""

    ask: pl.Ask
    kind: str
    stage: str = "direct"  # then "again", "partner", "plan", "verify", "done"
    direct: str = ""
    again: str = ""
    belief: str = ""
    refused: tuple[str, ...] = ()
    move: str = ""
    grounding: Grounding = "named"


@dataclass(frozen=True, slots=True)
class MindsState:
    """The state of a game, the minds of those who move, and what was done so far."""

    state: Any
    minds: tuple[Mind, ...] = ()
    heard: Mapping[str, tuple[pl.Message, ...]] = field(default_factory=dict)
    done: tuple[Decision, ...] = ()
    n: int = 0


@pl.declare(facts=(("decisions", tuple, "what each seat of a team did, and how it came to it"),))
@pl.stage
class TeamOfMinds:
    """Another world, whose seats are played by agents. The calls of a CAC agent are turns of this world,
    all seats' at once:

        direct    the world's own question; its answer is kept beside, and not played
        again     the same, for how much chance alone changes
        partner   what the partner knows, needs and will do
        plan      an action, by the rules, the state, the own last actions and what was said of the partner
        verify    is the action possible and safe? Else plan again, `replans` times at most. An action
                  that is not legal is planned again without being asked about

    Args:
        world: the game.
        kinds: by seat: "cac", "direct" (a model that answers the world's question), "plan" (the world's own
            player), "random" (any legal action).
        replans: second plans of a turn.
        beside: how often a CAC agent is asked the world's question too: 0, 1 or 2 times.

    Where the world holds a seat to its legal actions, a plan is held to those that were not refused.
    """

    world: Any
    kinds: tuple[str, ...]
    replans: int = 1
    beside: int = 2

    @property
    def seats(self) -> tuple[str, ...]:
        return self.world.seats

    @property
    def calls(self) -> int:
        """Replies of a seat in a turn, at most."""
        return self.beside + 1 + 2 * (1 + self.replans)

    async def reset(self, task: pl.Task, key: pl.Key) -> pl.Frame:
        frame = await pl.rollout.frame_of(self.world.reset(task, key))
        return await self._go_on(MindsState(None), frame, key, {})

    async def step(self, state: MindsState, acts: tuple[pl.Act, ...], key: pl.Key) -> pl.Frame:
        texts = {a.ask.seat: a.text for a in acts}
        minds = tuple(
            self._hear(state, m, texts[m.ask.seat], key) if m.ask.seat in texts else m
            for m in state.minds
        )
        state = replace(state, minds=minds)
        if asks := self._asks(state):
            return pl.Frame(state=state, asks=asks, facts={"decisions": state.done})
        return await self._move(state, key, {})

    async def leave(self, state: MindsState) -> None:
        if hasattr(self.world, "leave"):
            await pl.rollout.await_if_needed(self.world.leave(state.state))

    # ---- a turn of the game

    async def _go_on(
        self, state: MindsState, frame: pl.Frame, key: pl.Key, pay: Mapping[Any, float]
    ) -> pl.Frame:
        """The frame of this world for one of the game, and what was paid on the way to it."""
        pay = {who: pay.get(who, 0.0) + frame.pay.get(who, 0.0) for who in {**pay, **frame.pay}}
        heard = dict(state.heard)
        minds = list[Mind]()
        for ask in frame.asks:
            before = () if ask.new_row else heard.get(ask.seat, ())
            heard[ask.seat] = (*before, *ask.say)
            kind = self.kinds[self.seats.index(ask.seat)]
            begin = "partner" if kind == CAC and not self.beside else "direct"
            minds.append(Mind(ask, kind, begin))
        facts = {**frame.facts, "decisions": state.done}
        state = replace(state, state=frame.state, heard=heard, n=state.n + 1)
        state = replace(state, minds=tuple(self._alone(state, m, key) for m in minds))
        asks = self._asks(state)
        if asks or not frame.asks:
            return replace(frame, state=state, asks=asks, facts=facts, pay=pay)
        return await self._move(state, (*key, "alone"), pay)

    def _alone(self, state: MindsState, mind: Mind, key: pl.Key) -> Mind:
        """The mind of a seat that no model has, with its move."""
        if mind.kind not in (PLAN, RANDOM):
            return mind
        seat, rng = mind.ask.seat, pl.rng_of((*key, "alone", mind.ask.seat, state.n))
        if mind.kind == PLAN:
            move = self.world.reply(state.state, seat, rng)
        else:
            legal = self.legal(state.state, mind.ask)
            if not legal:
                raise pl.UserError(
                    "a random partner needs the legal actions, and this world does not list them; give "
                    "its class a method legal_for(state, seat), or take partners=false"
                )
            move = legal[int(rng.integers(len(legal)))]
        return replace(mind, stage="done", move=move)

    async def _move(self, state: MindsState, key: pl.Key, pay: Mapping[Any, float]) -> pl.Frame:
        """The game's next frame, all having decided."""
        acts = tuple(
            pl.Act(ask=m.ask, text=m.move, call=None, finish="eos", n_tokens=0) for m in state.minds
        )
        others = {m.ask.seat: m.move for m in state.minds}
        made = tuple(
            Decision(
                seat=m.ask.seat,
                move=m.move,
                grounding=m.grounding,
                direct=m.direct,
                again=m.again,
                belief=m.belief,
                replans=len(m.refused),
                partner_did=", ".join(x for s, x in others.items() if s != m.ask.seat),
            )
            for m in state.minds
            if m.kind in (CAC, DIRECT)
        )
        state = replace(state, done=(*state.done, *made))
        frame = await pl.rollout.frame_of(self.world.step(state.state, acts, key))
        return await self._go_on(state, frame, key, pay)

    def legal(self, state: Any, ask: pl.Ask) -> tuple[str, ...]:
        return pl.worlds.legal_replies(self.world, state, ask)

    # ---- the calls

    def _hear(self, state: MindsState, mind: Mind, text: str, key: pl.Key) -> Mind:
        """A mind after what its model said."""
        seat, legal = mind.ask.seat, self.legal(state.state, mind.ask)
        rng = pl.rng_of((*key, "ground", seat, state.n, mind.stage))
        if mind.stage == "partner":
            thought = " ".join(pl.verifiers.strip_thinking(text).split())[:LONGEST]
            return replace(mind, belief=thought, stage="plan")
        if mind.stage == "verify":
            return replace(mind, stage="done") if is_accepted(text) else self._refuse(mind)
        move, grounding = ground(text, legal, rng)
        if mind.stage in ("direct", "again"):
            if mind.kind != CAC:
                return replace(mind, move=move, grounding=grounding, stage="done")
            named = "" if grounding == "drawn" else move
            if mind.stage == "again":
                return replace(mind, again=named, stage="partner")
            return replace(mind, direct=named, stage="again" if self.beside > 1 else "partner")
        mind = replace(mind, move=move, grounding=grounding, stage="verify")
        return self._refuse(mind) if grounding == "drawn" else mind

    def _refuse(self, mind: Mind) -> Mind:
        """A mind that plans again, or does as it planned where it may not any more."""
        if len(mind.refused) >= self.replans:
            return replace(mind, stage="done")
        named = mind.move if mind.grounding != "drawn" else "what you wrote"
        return replace(mind, stage="plan", refused=(*mind.refused, named))

    def _asks(self, state: MindsState) -> tuple[pl.Ask, ...]:
        return tuple(self._ask(state, m) for m in state.minds if m.stage != "done")

    def _ask(self, state: MindsState, mind: Mind) -> pl.Ask:
        seat, heard = mind.ask.seat, state.heard[mind.ask.seat]
        if mind.stage in ("direct", "again"):
            return replace(mind.ask, say=heard, new_row=True, thread=mind.stage)
        say = (*heard[:-1], replace(heard[-1], content=self.prompt(state, mind, heard[-1].content)))
        ask = pl.Ask(seat=seat, say=say, new_row=True, thread=mind.stage)
        if mind.stage != "plan" or mind.ask.choices is None:
            return ask
        left = tuple(x for x in mind.ask.choices if x not in mind.refused)
        return replace(ask, prefix=LEAD, choices=left or mind.ask.choices)

    def prompt(self, state: MindsState, mind: Mind, view: str) -> str:
        """What a stage asks, behind what the world shows."""
        brief = getattr(self.world, "brief", False)
        wording = lambda text: BRIEF[text] if brief else text
        seat = mind.ask.seat
        done = [d.move for d in state.done if d.seat == seat][-REMEMBERED:]
        memory = [f"You did so far: {', '.join(done)}."] if done and not brief else []
        if mind.stage == "partner":
            others = " and ".join(s for s in self.seats if s != seat)
            asked = wording(PARTNER).format(partners=others)
        elif mind.stage == "plan":
            legal = self.legal(state.state, mind.ask)
            asked = wording(THINK).format(
                belief=mind.belief, actions=", ".join(legal) or "your own"
            )
            if mind.refused:
                asked += wording(REFUSED).format(refused=", ".join(mind.refused))
        else:
            asked = wording(VERIFY).format(action=mind.move)
        return "\n".join([view, *memory, asked])


@pl.stage
class SeatMinds:
    """The policy in its seats, a partner's model in the others."""

    own: tuple[str, ...]
    partner: pl.Source | None = None

    def __call__(
        self, ctx: pl.Context, key: pl.Key, sampling: pl.Sampling, seats: Mapping[str, pl.Player]
    ) -> dict[str, pl.Player]:
        def player(seat: str) -> pl.Player:
            if seat in self.own or self.partner is None:
                return pl.rollout.EnginePlayer(engine=ctx.engine("policy"), sampling=sampling)
            client = ctx.client(self.partner)
            return pl.engines.EndpointPlayer(
                client=client, sampling=sampling, name="partner", illegal="random"
            )

        return {seat: player(seat) for seat in seats}

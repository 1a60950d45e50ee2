"""Pangu-Agent: calls that think before an action, imitated without them, and then reinforcement.

An agent has a memory M and functions of two kinds. Intrinsic ones write into the memory, M' = mu_k(M), and
do nothing in the environment; the extrinsic one says the action, a = pi(M). One step of the environment:

    the observation joins M,    mu_1, ..., mu_K in turn,    a = pi(M)

and what is to be large is E[sum_t gamma^t r_t], where t counts actions: calls of the mu_k have no reward and
are not discounted (arXiv:2312.14878). With K = 0 that is ordinary RL.

    bootstrap   the start plays with `functions`; the actions of solved episodes are imitated behind the
                observations alone, so that the plain policy takes over what the calls brought about
                (`inherit=thoughts` imitates the calls as well, as part of the conversation)
    rl          PPO from there, without calls: they would make episodes long and credit sparse; `rl_functions`
                are called all the same, as part of the conversation. After `inherit=thoughts` they are
                `functions`, since there the policy has learned to act behind them

    palaestra train pangu-agent --env FILE.py:NAME --model DIR [functions=plan,think] [train=actions]

A function is a name of `FUNCTIONS` or a text of yours, said to the model as the user. `train` says what of
an episode with calls the second stage trains: all turns, the actions, or the thoughts. The part "changed" of
the rewards is 1 where the greedy first action behind the calls is another one than without them; whole
texts are compared, without thinking and outer blanks.

Gamma, lambda and the clipping are common values: the paper's are not known to us.

Long because episodes with intrinsic calls have two views: the recipe hides calls for the policy that
inherits, keeps them for the one that acts behind them, and counts actions alone when it discounts.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import palaestra as pl

COLLECTOR = "collector"
FUNCTIONS: Mapping[str, str] = {
    "think": "Think step by step about what to do next. Do not act yet.",
    "plan": "Write a short plan that leads from here to the goal. Do not act yet.",
    "reflect": "Say what went wrong so far and what follows from it. Do not act yet.",
    "predict": "Say what each possible action would lead to. Do not act yet.",
}
ACT = "Now write the action alone, in the form that was asked for."
CARD = pl.Card(
    title="Pangu-Agent: structured reasoning, intrinsic functions",
    paper="arXiv:2312.14878",
    claim="Structured reasoning makes better trajectories to imitate, and reinforcement from the imitating "
    "model goes beyond both.",
    source="the abstract and public summaries of the formalism and of the two stages; settings of PPO are ours",
    size=pl.Size(
        setting="OpenChat-3.5 and Llama-2-7B with LoRA in ALFWorld and BabyAI; from memory",
        model="llama-2-7b",
    ),
    task="grid",
    needs=pl.needs.Requirements(
        columns=(),
        places=(
            pl.needs.NeededPlace(
                "environment",
                "whose episodes are solved or not",
                built_in=("grid", "grid-4", "lake", "tictactoe"),
            ),
        ),
        shows="part/changed",
        off={"functions": ""},
        own={
            "bootstrap.schedule.prompts": 2,
            "bootstrap.schedule.steps": 2,
            "rl.schedule.prompts": 2,
            "samples": 2,
        },
    ),
    use="It helps where the model acts better after a thought than at once and the environment rewards "
    "rarely; where no episode with calls is solved, nothing is imitated.",
    lacks=(
        "Programs of calls that are composed, such as self-consistency or tree search, are not there: the "
        "functions are called in a fixed order before every action.",
        "Functions that call a tool or another agent are not there; --tools gives tools to the action.",
        "Only the environment's first seat calls functions.",
        "One model learns in one environment; several at once are not mixed.",
        "The paper's environments are not built in; ALFWorld and BabyAI come as an environment of yours.",
    ),
    grade="B",
)


def text_of(function: str) -> str:
    """What a function says to the model: that of its name, else the text itself."""
    return FUNCTIONS.get(function, function)


def function_names(given: str | Sequence[str]) -> tuple[str, ...]:
    """The functions of "plan,think", of one text, or of a list of names and texts. A comma parts names
    alone, and is else part of the text.

    Raises:
        UserError: a single word is none of `FUNCTIONS`.
    """
    if isinstance(given, str):
        words = [part.strip() for part in given.split(",") if part.strip()]
        given = (given,) if any(len(w.split()) > 1 for w in words) else words
    names = tuple(name.strip() for name in given if name.strip())
    if unknown := [n for n in names if n not in FUNCTIONS and len(n.split()) == 1]:
        raise pl.UserError(
            f"pangu-agent: {unknown[0]!r} is no function; there are {', '.join(FUNCTIONS)}, or write what "
            "is said to the model, in more than one word"
        )
    return names


@pl.value_class
class CallState:
    """The state of the environment, its open questions, and the intrinsic calls made for them.

    Args:
        turns: messages so far, of all seats.
        intrinsic: those of them that were no action.
    """

    inner: Any
    asks: tuple[pl.Ask, ...] = ()
    made: int = 0
    turns: int = 0
    intrinsic: tuple[int, ...] = ()


@pl.declare(facts=(("intrinsic", tuple, "turns that called an intrinsic function"),))
@pl.stage
class WithCalls:
    """An environment whose first seat is asked for each of `functions` before every action. With `hides`
    what they and `act` say is hidden: a training view without the replies to them is that of the plain
    policy. Without, it is part of the conversation that is trained on.
    """

    world: pl.World
    functions: tuple[str, ...]
    act: str = ACT
    tokens: int | None = None  # of the reply to a function
    hides: bool = True

    @property
    def seats(self) -> tuple[str, ...]:
        return self.world.seats

    async def reset(self, task: pl.Task, key: pl.Key) -> pl.Frame:
        return self._open(await frame_of(self.world.reset(task, key)), CallState(inner=None))

    async def step(self, state: CallState, acts: tuple[pl.Act, ...], key: pl.Key) -> pl.Frame:
        if state.made < len(self.functions) and self._callers(state):
            called = tuple(range(state.turns, state.turns + len(acts)))
            state = replace(
                state,
                made=state.made + 1,
                turns=state.turns + len(acts),
                intrinsic=(*state.intrinsic, *called),
            )
            return self._next(state, {})
        own = tuple(replace(a, ask=ask) for a, ask in zip(acts, state.asks, strict=True))
        frame = await frame_of(self.world.step(state.inner, own, key))
        return self._open(frame, replace(state, turns=state.turns + len(acts)))

    async def leave(self, state: CallState) -> None:
        leave: Any = getattr(self.world, "leave", None)
        left = leave(state.inner) if leave else None
        await left if inspect.isawaitable(left) else None

    def oracle(self, state: CallState) -> Any:
        """What the environment's own says; a call is answered by the action that follows."""
        solver: Any = self.world
        return solver.oracle(state.inner)

    def _callers(self, state: CallState) -> tuple[pl.Ask, ...]:
        return tuple(a for a in state.asks if a.seat == self.world.seats[0])

    def _open(self, frame: pl.Frame, before: CallState) -> pl.Frame:
        """A frame of the environment, with what is asked for first."""
        state = replace(before, inner=frame.state, asks=tuple(frame.asks), made=0)
        following = self._next(state, frame.facts)
        return replace(frame, state=state, asks=following.asks, facts=following.facts)

    def _next(self, state: CallState, facts: Mapping[str, Any]) -> pl.Frame:
        facts = {**facts, "intrinsic": state.intrinsic}
        callers = self._callers(state)
        if state.made < len(self.functions) and callers:
            message = self._said(text_of(self.functions[state.made]))
            asks = tuple(self._call(a, message, first=state.made == 0) for a in callers)
        elif self.functions:
            asks = tuple(self._acted(a) if a in callers else a for a in state.asks)
        else:
            asks = state.asks
        return pl.Frame(state=state, asks=asks, facts=facts)

    def _call(self, ask: pl.Ask, message: pl.Message, *, first: bool) -> pl.Ask:
        return pl.Ask(
            seat=ask.seat,
            thread=ask.thread,
            tools=ask.tools,
            max_tokens=self.tokens,
            say=(*ask.say, message) if first else (message,),
            new_row=first and ask.new_row,
            begins=ask.begins if first else None,
        )

    def _acted(self, ask: pl.Ask) -> pl.Ask:
        return replace(ask, say=(self._said(self.act),), new_row=False, begins=None)

    def _said(self, text: str) -> pl.Message:
        return pl.Message(role="user", content=text, hidden=self.hides)


async def frame_of(given: Any) -> pl.Frame:
    """What an environment's method returned, once it is there."""
    return await given if inspect.isawaitable(given) else given


@pl.stage
class Play:
    """Plays the environment with intrinsic functions; `hides` as of `WithCalls`."""

    sample: pl.Sample
    functions: tuple[str, ...] = ()
    act: str = ACT
    tokens: int | None = None
    hides: bool = True

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        bench = ctx.bench
        world = WithCalls(bench.world, self.functions, self.act, self.tokens, self.hides)
        turns = bench.max_turns * (len(self.functions) + 1)
        ctx = ctx.with_bench(replace(bench, world=world, max_turns=turns))
        return await self.sample(ctx, key, group)


def without_calls(row: pl.Row, intrinsic: Sequence[int]) -> pl.Row:
    """The row with the replies to intrinsic functions hidden, and all from there to the action: its
    training view is what the plain policy sees.
    """
    segments, inside = list[pl.Segment](), False
    for s in row.segments:
        if s.trained:
            inside = s.turn in intrinsic
        segments.append(replace(s, hidden=True, trained=False) if inside else s)
    return replace(row, segments=tuple(segments))


def as_played(row: pl.Row) -> pl.Row:
    """The row with nothing hidden: its training view is what was seen when it was played."""
    return replace(row, segments=tuple(replace(s, hidden=False) for s in row.segments))


@pl.stage
class InheritStructure:
    """Mutes episodes that are not solved; of the others the plain policy imitates the actions alone,
    or with `thoughts` also the replies to the intrinsic functions, each behind what it replied to. Parts
    of the reward: "solved"; "changed", whether the calls changed the greedy first action.
    """

    thoughts: bool = False
    model: str = COLLECTOR

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        episodes = [await self._inherited(ctx, key, e) for e in group.episodes]
        return replace(group, episodes=tuple(episodes))

    def first_step_note(self, groups: pl.Groups) -> str:
        """Says it where there is nothing to imitate."""
        played = [e for g in groups for e in g.valid if "intrinsic" in e.facts]
        if not played or any(e.solved for e in played):
            return ""
        calls = " with calls" if any(e.facts["intrinsic"] for e in played) else ""
        return (
            f"no episode{calls} was solved in the first step, so there is nothing to imitate; if none is "
            "later, rl begins at the start model: take an easier environment, a stronger model, or more samples"
        )

    async def _inherited(self, ctx: pl.Context, key: pl.Key, e: pl.Episode) -> pl.Episode:
        if not e.ok or e.reward is None:
            return e
        intrinsic = e.facts["intrinsic"]
        plain = tuple(without_calls(r, intrinsic) for r in e.rows)
        solved = e.solved
        new_parts = {"solved": float(solved), "changed": await self._changed(ctx, key, e, plain)}
        reward = replace(
            e.reward, parts={**e.reward.parts, **new_parts}, events=(), solved=solved
        )  # events name tokens of the view with calls
        rows = tuple(map(as_played, e.rows)) if self.thoughts else plain
        return replace(e, rows=rows, reward=reward, muted=not solved)

    async def _changed(
        self, ctx: pl.Context, key: pl.Key, e: pl.Episode, plain: tuple[pl.Row, ...]
    ) -> float:
        if not e.facts["intrinsic"]:
            return 0.0
        engine = ctx.engine(self.model)
        greedy = pl.Sampling(temperature=0.0, max_tokens=ctx.bench.max_tokens)
        at = next((i for i, s in enumerate(plain[0].segments) if s.trained), None)
        if at is None:
            return 0.0
        replies = list[str]()
        for keep in (True, False):
            before = plain[0].segments[:at]
            ids = tuple(i for s in before if keep or not s.hidden for i in s.ids)
            reply = await engine.generate(ids, greedy, (*key, "changed"))
            replies.append(pl.judges.reply_after_thinking(reply.text))
        return float(replies[0] != replies[1])


@pl.stage
class DiscountActions:
    """r_t becomes gamma^t r_t, t the actions before it; intrinsic calls do not count. What is solved
    stays so. With `train` only the actions, or only the thoughts, carry gradient.
    """

    gamma: float = 0.99
    train: Literal["all", "actions", "thoughts"] = "all"

    def __post_init__(self) -> None:
        if not 0 < self.gamma <= 1:
            raise pl.UserError(f"pangu-agent: gamma is above 0 and at most 1, not {self.gamma}")

    async def __call__(self, ctx: pl.Context | None, key: pl.Key, group: pl.Group) -> pl.Group:
        return replace(group, episodes=tuple(map(self._discounted, group.episodes)))

    def _discounted(self, e: pl.Episode) -> pl.Episode:
        if not e.ok or e.reward is None:
            return e
        intrinsic = e.facts["intrinsic"]
        events = tuple(
            replace(x, value=x.value * self.gamma ** actions_before(e, x, intrinsic))
            for x in e.reward.events
        )
        first = e.reward.payees[:1] or ("",)
        paid = [x for x in events if not x.part or not first[0] or x.part == pl.payment(first[0])]
        whole = sum(x.value for x in paid) if paid else e.total
        reward = replace(e.reward, total=whole, events=events, solved=e.solved)
        rows = tuple(self._chosen(r, intrinsic) for r in e.rows)
        return replace(e, reward=reward, rows=rows)

    def _chosen(self, row: pl.Row, intrinsic: Sequence[int]) -> pl.Row:
        if self.train == "all":
            return row
        wanted = self.train == "thoughts"
        segments = (
            replace(s, trained=s.trained and (s.turn in intrinsic) == wanted) for s in row.segments
        )
        return replace(row, segments=tuple(segments))


def actions_before(e: pl.Episode, event: pl.Event, intrinsic: Sequence[int]) -> int:
    """Actions of an event's seat before the one that it pays, those of earlier rows included."""
    if not 0 <= event.row < len(e.rows):
        return 0
    row, seen, paid = e.rows[event.row], 0, None
    for s in row.segments:
        if s.hidden:
            continue
        if seen > event.token >= 0:
            break
        seen += len(s.ids)
        paid = s.turn if s.trained and s.turn not in intrinsic else paid
    own = (s for r in e.rows if r.seat == row.seat for s in r.segments if s.trained)
    turns = {s.turn for s in own} - set(intrinsic)
    return 0 if paid is None else sum(turn < paid for turn in turns)


def build(
    functions: str | Sequence[str] = "plan",
    rl_functions: str | Sequence[str] | None = None,
    inherit: Literal["actions", "thoughts"] = "actions",
    train: Literal["all", "actions", "thoughts"] = "all",
    gamma: float = 0.99,
    samples: int = 4,
    steps: int = 40,
    lr: float = 1e-5,
    act: str = ACT,
    tokens: int | None = None,
) -> pl.Pipeline:
    """`functions` are called before every action of the episodes that are imitated, `rl_functions` in the
    second stage; None = none, or with `inherit=thoughts` those of the first. They are names or texts, with
    commas. `samples` episodes are played a task, `steps` and `lr` are of the first stage. A function's
    reply has at most `tokens`, None = as many as an action.
    """
    names = function_names(functions)
    imitated = names if inherit == "thoughts" else ()
    called = imitated if rl_functions is None else function_names(rl_functions)
    if imitated and not called:
        raise pl.UserError(
            "pangu-agent: inherit=thoughts teaches replies to functions, so the second stage must call "
            f"them: leave rl_functions out, or give rl_functions={','.join(names)}"
        )
    bootstrap = pl.vary(
        pl.recipe("sft"),
        collect=pl.links(
            Play(pl.Sample(n=samples, model=COLLECTOR), names, act, tokens),
            pl.Score(),
            InheritStructure(inherit == "thoughts"),
            pl.Offline(),
        ),
        references={COLLECTOR: "policy"},
        optimiser=pl.AdamW(lr=lr),
        schedule=pl.Schedule(prompts=16, steps=steps),
    )
    rl = pl.vary(
        pl.recipe("ppo"),
        collect=pl.links(
            Play(pl.Sample(n=samples), called, act, tokens, hides=False),
            pl.Score(),
            DiscountActions(gamma, train),
        ),
    )
    return pl.Pipeline(
        parts={
            "bootstrap": pl.Part(bootstrap),
            "rl": pl.Part(rl, model=pl.Output("bootstrap")),
        }
    )


@pl.stage
class ShowCalls:
    """Demonstrates the environment, and a share of the episodes with calls, whose replies are the
    action that follows.
    """

    functions: tuple[str, ...]
    act: str
    share: float = 0.5

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        if pl.rng_of((*key, "calls")).random() < self.share:
            world = WithCalls(ctx.bench.world, self.functions, self.act, hides=False)
            ctx = ctx.with_bench(replace(ctx.bench, world=world))
        return await pl.Demonstrate()(ctx, key, group)


def embedded(
    functions: str | Sequence[str] = "do next", act: str = "do", samples: int = 4, **options: Any
) -> pl.Pipeline:
    """On the small grid. The small model knows the grid and no calls, so it is shown some episodes with
    calls first.
    """
    sft = pl.vary(
        pl.recipe("sft"),
        collect=pl.links(ShowCalls(function_names(functions), act)),
        schedule=pl.Schedule(prompts=16, steps=16),
        optimiser=pl.AdamW(lr=2e-3, warmup=10),
    )
    given: dict[str, Any] = {"steps": 10, "lr": 5e-4, **options}
    made = build(functions, act=act, samples=samples, **given)
    bootstrap = replace(made.parts["bootstrap"], model=pl.Output("shown"))
    rl = pl.override(made.parts["rl"].runnable, "schedule.prompts", 8)
    return pl.Pipeline(
        parts={
            "shown": pl.warm(sft),
            "bootstrap": bootstrap,
            "rl": replace(made.parts["rl"], runnable=rl),
        }
    )

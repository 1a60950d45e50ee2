"""Before the first step: gold answers must score 1, and empty ones less. What is wrong is said task
by task.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeAlias, runtime_checkable

from palaestra.abilities import HoldsEpisodes, PaysGold, PutsAnswers, Solves, solves
from palaestra.context import RewardFn
from palaestra.errors import Fatal, Fault, NotApplicable
from palaestra.tasks.procedural import demonstration
from palaestra.types import (
    SOLVED_TOTAL,
    Act,
    Call,
    Episode,
    Frame,
    Group,
    Reward,
    Row,
    Segment,
    Task,
    Tasks,
    World,
    rng_of,
    seed_of,
    value_class,
)

Payer: TypeAlias = RewardFn | World  # whoever says what an episode is worth
Adviser: TypeAlias = Callable[[Any], Any]  # what to say, by a world's state
Encode: TypeAlias = Callable[[str], Sequence[int]]  # the tokens of a response
# what each response to a task is paid
Ask: TypeAlias = Callable[[Task, Sequence[str]], Awaitable[list[float | None]]]

FORMS = (  # of an answer in a response, for rewards that do not say theirs
    "{}",
    "The answer is {}.",
    "\\boxed{{{}}}",
    "<answer>{}</answer>",
    "<think>Hm.</think>\n<answer>{}</answer>",
    "#### {}",
)
RECORDED = "demonstration"  # a column: how the data itself writes a right response
CONSTANT = "constant"  # a kind of finding: the same for everything
TURNS = 256  # of a scripted game
UNREADABLE = (
    "judge-unparsed",
    "chat-format",
)  # causes of a judge that answers, and gives no verdict
OUTAGE = 2  # tasks in a row of which a judge that does not answer judged nothing
EXCERPT = 60  # characters of an answer in a message


def no_tokens(_: str) -> tuple[int, ...]:
    """Stands for a tokenizer where none is known."""
    return ()


def whole_reply(encode_text: Encode, end: int) -> Encode:
    """The tokens of a response as a policy samples it, from those of a text and the one that ends a
    turn.
    """

    @lru_cache(maxsize=1024)
    def encode(text: str) -> tuple[int, ...]:
        readable = text.encode("utf-8", "replace").decode("utf-8")  # no half of a pair
        return (*encode_text(readable), end)

    return encode


@value_class
class Finding:
    """What is wrong with a task, or with all; `kind` is that of others where the same is wrong."""

    kind: str
    line: str


@runtime_checkable
class SolvesAtTimes(Solves, Protocol):
    """A world whose oracle may be a guess, such as the words of a user as they are. Without it, it never is."""

    def is_solution(self, task: Task) -> bool:
        """Whether what the oracle says in this task must earn 1."""
        ...


async def find_problems(
    tasks: Tasks, judge: Payer, n: int = 16, *, ctx: Any = None, encode: Encode = no_tokens
) -> list[Finding]:
    """What is wrong with the first `n` training tasks under `judge`, a reward or a world; nothing =
    all is well. `encode` gives the tokens of a response, for rewards that count them.
    """
    first = _first_tasks(tasks, n)
    if isinstance(judge, World):
        return await _of_world(first, judge)
    asker = Asker(judge, ctx, encode)
    problems = await _of_reward(tasks, first, judge, asker)
    if line := asker.unjudged():
        asker.say(line)
    return problems


async def demonstrations_paid_less(
    tasks: Tasks, judge: RewardFn, n: int = 16, *, ctx: Any = None, encode: Encode = no_tokens
) -> str:
    """A line about demonstrations of the first `n` training tasks that `judge` pays less than their
    answer alone, so that what is imitated would be called wrong; "" where there is none.
    """
    first, asker = _first_tasks(tasks, n), Asker(judge, ctx, encode)
    tried, less, example = 0, 0, ""
    for task in first:
        paid = task.meta.get(RECORDED)
        bare = put(tasks, task, judge) if task.answer is not None else None
        if not isinstance(paid, str) or bare is None:
            continue
        worked, alone = await asker(task, (paid, bare))
        tried += 1
        if worked is not None and alone is not None and worked < alone:
            less += 1
            example = (
                example or f"task {task.id!r}: {worked:g}, and {alone:g} for {bare[:EXCERPT]!r}"
            )
    if not less:
        return ""
    return (
        f"{less} of {tried} demonstrations that were tried are paid less than their answer alone, "
        f"e.g. {example}; what is imitated is no right answer by this reward"
    )


class Asker:
    """Asks a judge what each response to a task is paid; None = nothing is known of it.

    A fault is the error of one answer here, as it is of one episode in a run. It is raised where the
    judge seems to be out of order: nothing of OUTAGE tasks in a row could be judged.
    """

    def __init__(self, judge: RewardFn, ctx: Any, encode: Encode):
        self.judge, self.ctx, self.encode = judge, ctx, encode
        self.faults, self.asked, self.in_a_row = list[Fault](), 0, 0
        self.any_score = False  # of an answer with words; what is empty may be paid unasked

    async def __call__(self, task: Task, texts: Sequence[str]) -> list[float | None]:
        episodes = tuple(episode_saying(t, self.encode(t)) for t in texts)
        rewards = await self.judge(self.ctx, Group(task=task, episodes=episodes))
        faults = [r for r in rewards if isinstance(r, Fault) and not isinstance(r, NotApplicable)]
        if fatal := next((f for f in faults if isinstance(f, Fatal)), None):
            raise fatal
        scores = [score_of(r) for r in rewards]
        with_words = [x for x, t in zip(scores, texts, strict=True) if t.strip()]
        has_score = any(x is not None for x in with_words)
        self.any_score = self.any_score or has_score
        down = not has_score and any(f.cause not in UNREADABLE for f in faults)
        self.in_a_row = self.in_a_row + 1 if down else 0
        self.asked, self.faults = self.asked + len(texts), [*self.faults, *faults]
        if self.in_a_row == OUTAGE:
            raise self.faults[-1]
        return scores

    def unjudged(self) -> str:
        """A line about the answers that ended in a fault, "" without any. Raises the fault where
        no answer could be judged.
        """
        if not self.faults:
            return ""
        if not self.any_score:
            raise self.faults[-1]
        return (
            f"oracle check: {len(self.faults)} of {self.asked} answers could not be judged, e.g. "
            f"{self.faults[0]}"
        )

    def say(self, line: str) -> None:
        if self.ctx is not None:
            self.ctx.say(line)


def _first_tasks(tasks: Tasks, n: int) -> list[Task]:
    return [tasks.task("train", i) for i in range(n if tasks.size is None else min(n, tasks.size))]


def says_its_form(judge: Payer) -> bool:
    """Whether a gold answer that it does not pay best is its own mistake or the data's: a world
    plays its oracle, and a reward says what gold is worth or how it is written. Any other reward
    may want a response in a form that nobody tried.
    """
    return isinstance(judge, World | PutsAnswers) or worth(judge) is not None


def merge_alike(findings: Sequence[Finding]) -> list[str]:
    """A line for each kind, with how many more tasks have it."""
    alike: dict[str, list[Finding]] = {}
    for each in findings:
        alike.setdefault(each.kind, []).append(each)
    return [
        same[0].line + (f" (and {len(same) - 1} more alike)" if same[1:] else "")
        for same in alike.values()
    ]


def how_it_was_tried() -> str:
    """What to make of findings about a reward that does not say its form."""
    tried = ", ".join(" ".join(form.format("N").split()) for form in FORMS)
    return (
        f"the reward may want a response in another form than {tried}, so the run goes on; a column "
        f"{RECORDED!r} in the data would be tried as well, and `palaestra audit` says what is paid"
    )


async def _of_reward(
    source: Tasks, tasks: Sequence[Task], judge: RewardFn, ask: Ask
) -> list[Finding]:
    """A gold answer is worth `judge.gold` where a judge has it, else no less than any other answer
    that is tried. A judge that says neither this nor how answers are written may want any of the
    common forms, or that of a recorded demonstration.
    """
    plain = {t.id: put(source, t, judge) for t in tasks if t.answer is not None}
    findings, seen = await _of_form(tasks, judge, ask, plain)
    if findings and not says_its_form(judge):
        for golds in _other_forms(tasks, plain):
            if (await _of_form(tasks[:1], judge, ask, golds))[0]:
                continue  # a call may cost money
            other, paid = await _of_form(tasks, judge, ask, golds)
            findings, seen = min((findings, seen), (other, paid), key=lambda tried: len(tried[0]))
    if findings and len(seen) == 1:
        line = f"each gold, wrong or empty answer to {len(tasks)} tasks scores {seen.pop():g}"
        return [Finding(kind=CONSTANT, line=line)]
    return findings


Golds: TypeAlias = Mapping[str, str | None]  # responses with the answer, by task; None = none known


def _other_forms(tasks: Sequence[Task], plain: Golds) -> list[Golds]:
    """The golds in the common forms, and as the data demonstrates them."""
    forms: list[Golds] = [
        {identity: text and form.format(text) for identity, text in plain.items()}
        for form in FORMS[1:]
    ]
    recorded = {t.id: t.meta.get(RECORDED) for t in tasks if t.answer is not None}
    return [*forms, recorded] if all(isinstance(x, str) for x in recorded.values()) else forms


async def _of_form(
    tasks: Sequence[Task], judge: RewardFn, ask: Ask, written: Golds
) -> tuple[list[Finding], set[float]]:
    """What is wrong where answers are written so, and all scores. Where a reward, or one of its
    parts, says nothing of an answer, nothing is wrong.
    """
    findings, seen = list[Finding](), set[float]()
    golds = {t.id: text for t in tasks if (text := written.get(t.id)) is not None}
    for task in tasks:
        gold_said = golds.get(task.id)
        wrong = next((g for g in golds.values() if g != gold_said), "")
        texts = ["", wrong, *([] if gold_said is None else [gold_said])]
        scores = await ask(task, texts)
        seen |= {x for x in scores if x is not None}
        if gold_said is not None and (wrongly := _complaint(texts, scores, worth(judge))):
            kind, line = wrongly
            findings.append(Finding(kind=kind, line=f"task {task.id!r}: {line}"))
    return findings, seen


def _complaint(
    texts: Sequence[str], scores: Sequence[float | None], exact: float | None
) -> tuple[str, str] | None:
    """What is wrong with the scores of an empty answer, a wrong one and the gold, and its kind."""
    gold, empty = scores[-1], scores[0]
    if gold is None:
        return None
    known = [(x, text) for x, text in zip(scores, texts, strict=True) if x is not None]
    best, text = max(known, key=lambda pair: pair[0])
    start = f"the gold answer {texts[-1][:EXCERPT]!r} scores {gold:g}"
    if exact is not None and gold != exact:
        return "not exact", f"{start}, not {exact:g}"
    if exact is None and gold < best:
        return "not best", f"{start}, less than {text[:EXCERPT]!r} with {best:g}"
    if empty is not None and empty >= gold:
        return "not above silence", f"{start}, no more than an empty answer with {empty:g}"
    return None


def worth(judge: RewardFn) -> float | None:
    """What a gold answer is worth, where the judge says so."""
    return judge.gold if isinstance(judge, PaysGold) else None


def score_of(reward: Reward | Fault) -> float | None:
    """What an answer scores; None where a reward, or a part of a sum, says nothing of it, or it
    could not be judged.
    """
    return None if isinstance(reward, Fault) or reward.silent else reward.total


def put(source: Tasks, task: Task, judge: RewardFn) -> str | None:
    """The task's answer as a response, as the judge writes it or as its source demonstrates it."""
    if isinstance(judge, PutsAnswers):
        return judge.put(task)
    return demonstration(source, task, rng_of(("oracle", task.id)), "guess")


def episode_saying(text: str, ids: Sequence[int] = ()) -> Episode:
    """A finished episode in which the policy said `text`, of which `ids` are the tokens. Nobody
    sampled them: their log-probs are 0, as those of what was certain.
    """
    segment = Segment(
        ids=tuple(ids),
        logp=(0.0,) * len(ids),
        author="policy",
        policy="policy",
        trained=True,
        text=text,
        finish="eos",
    )
    return Episode(rows=(Row(segments=(segment,)),), status="finished")


async def _of_world(tasks: Sequence[Task], world: World) -> list[Finding]:
    """Plays every task as the world's oracle says, and in silence. A world without an oracle is not
    checked. Where the oracle is a guess, silence must be paid less than 1 and no more than the guess.
    """
    if not (isinstance(world, Solves) and solves(world)):
        return []
    return [line for task in tasks for line in await _of_game(task, world, world.oracle)]


async def _of_game(task: Task, world: World, oracle: Adviser) -> list[Finding]:
    paid, end = await play_oracle(world, task, oracle)
    if end != "finished":
        line = f"task {task.id!r}: the oracle's game is {end}; it must come to an end"
        return [Finding(kind="no end", line=line)]
    if len(world.seats) > 1:
        return []  # the oracle played all sides
    sure = not isinstance(world, SolvesAtTimes) or world.is_solution(task)
    if sure and paid < SOLVED_TOTAL:
        line = f"task {task.id!r}: the oracle is paid {paid:g}; a solved task pays 1"
        return [Finding(kind="not exact", line=line)]
    silent, _ = await play_oracle(world, task, None)
    if silent > paid or silent >= (paid if sure else SOLVED_TOTAL):
        line = (
            f"task {task.id!r}: saying nothing is paid {silent:g}, the oracle {paid:g}; it must be "
            "paid less"
        )
        return [Finding(kind="not above silence", line=line)]
    return []


async def play_oracle(world: World, task: Task, oracle: Adviser | None) -> tuple[float, str]:
    """What the first seat is paid in a game that `oracle(state)` (or silence) plays for all seats,
    and how it ended.
    """
    key = ("oracle", seed_of((task.id,)))
    frame: Frame = await _await(world.reset(task, key))
    paid, turn = _first_pay(frame, world), 0
    try:
        while frame.asks and turn < TURNS:
            oracle_text = await _await(oracle(frame.state)) if oracle else ""
            text, call = (
                ("", oracle_text) if isinstance(oracle_text, Call) else (str(oracle_text), None)
            )
            acts = tuple(
                Act(ask=a, text=text, call=call, finish="eos", n_tokens=0) for a in frame.asks
            )
            turn += 1
            frame = await _await(world.step(frame.state, acts, (*key, turn)))
            paid += _first_pay(frame, world)
    finally:
        if isinstance(world, HoldsEpisodes):
            await _await(world.leave(frame.state))
    return paid, f"not over after {TURNS} turns" if frame.asks else frame.status


def _first_pay(frame: Frame, world: World) -> float:
    return sum(float(x) for (seat, _), x in frame.pay.items() if seat == world.seats[0])


async def _await(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value

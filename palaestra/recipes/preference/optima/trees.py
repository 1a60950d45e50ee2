"""Dialogues as trees of messages: what each is worth, and pairs of messages."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

import palaestra as pl

SCORER = "scorer"
COST = (
    "track:trained_cost"  # mean token_cost of the dialogues that are trained on, a number of a step
)
FAR, SAME = 0.25, 0.1  # edit distances over lengths
BEST = 10  # candidates of an expansion


def messages_of(e: pl.Episode) -> list[pl.Segment]:
    """What the agents said, in order."""
    segments = [s for r in e.rows for s in r.segments if s.logp is not None]
    return sorted(segments, key=lambda s: s.turn)


def worst_nll(e: pl.Episode, logps: Sequence[np.ndarray]) -> float:
    """The largest over messages of the mean NLL of a message's tokens, in nats; 0 without a message.

    Args:
        e: a dialogue.
        logps: [T] of each of its rows, of a training view's tokens.
    """
    means = [0.0]
    for row, logp_T in zip(e.rows, logps, strict=True):
        view = row.view()
        for turn in np.unique(view.turn_T[view.trained_T]):
            means.append(float(-logp_T[view.trained_T & (view.turn_T == turn)].mean()))
    return max(means)


@pl.declare(
    facts=(("worst_nll", float, "the largest mean NLL of a message, in nats, under the scorer"),)
)
@pl.stage
class DialogueReward:
    """R of every scored dialogue of a group, with the parts "task", "token_cost" and "readable".
    Called again with more dialogues, it measures those alone and pays all anew.

    Args:
        tokens: the weight of a dialogue's tokens over those of the longest of the group.
        readable: the weight of 1 / worst NLL, which counts as 1 at most.
        model: under which the NLL is.
    """

    tokens: float = 0.6
    readable: float = 1.0
    model: str = SCORER

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        scored = [i for i, e in enumerate(group.episodes) if e.ok and e.reward is not None]
        fresh = [i for i in scored if "worst_nll" not in group.episodes[i].facts]
        episodes = list(group.episodes)
        if fresh:
            new = replace(group, episodes=tuple(episodes[i] for i in fresh))
            measured = ctx.measure([new], ((self.model, "logp"),))[0]
            for i, rows in zip(fresh, measured, strict=True):
                nll = worst_nll(episodes[i], [row[f"{self.model}_logp"] for row in rows])
                facts = {**episodes[i].facts, "worst_nll": nll}
                episodes[i] = replace(episodes[i], facts=facts)
        longest = max((episodes[i].n_sampled for i in scored), default=1)
        for i in scored:
            episodes[i] = self.pay(episodes[i], max(1, longest))
        return replace(group, episodes=tuple(episodes))

    def pay(self, e: pl.Episode, longest: int) -> pl.Episode:
        """The dialogue with its R, where the longest one of the group has so many tokens."""
        assert e.reward is not None
        task, nll = e.reward.parts.get("task", e.reward.total), float(e.facts["worst_nll"])
        clear = 0.0 if e.facts.get("repeated") else min(1.0, 1 / nll if nll > 0 else 1.0)
        parts = {
            "task": task,
            "token_cost": self.tokens * e.n_sampled / longest,
            "readable": self.readable * clear,
        }
        total = task - parts["token_cost"] + parts["readable"]
        return replace(e, reward=replace(e.reward, total=total, parts=parts, solved=e.solved))


def cost_of(e: pl.Episode, row: pl.Row) -> np.ndarray:
    """[T] what a dialogue's tokens cost it, at each token of one of its rows."""
    cost = 0.0 if e.reward is None else e.reward.parts.get("token_cost", 0.0)
    return np.full(len(row.view().ids_T), cost)


@dataclass
class MessageNode:
    """A message of a tree. The root, number 0, is before the first one."""

    parent: int
    text: str
    turn: int
    first: int  # the dialogue in which it was said first
    answer: str | None = None  # what it states as the answer
    below: list[int] = field(default_factory=list)  # dialogues through it
    children: list[int] = field(default_factory=list)

    def value(self, totals: Sequence[float]) -> float:
        """The mean reward of the dialogues through it."""
        return float(np.mean([totals[i] for i in self.below])) if self.below else 0.0


class MessageTree:
    """Dialogues of a question by what was said.

    Args:
        read: what a message states as the answer; None = it states none.
        same: messages that are nearer and state the same are one node.
    """

    def __init__(
        self, read: Callable[[str], str | None] = pl.stated_answer, same: float = SAME
    ) -> None:
        self.read, self.same = read, same
        self.nodes = [MessageNode(-1, "", -1, 0)]
        self.paths: dict[int, tuple[int, ...]] = {}

    def add(self, dialogue: int, e: pl.Episode) -> None:
        """Enters a dialogue: messages that are nearly one of the same node's, and state no other
        answer, are it.
        """
        at, path = 0, list[int]()
        for segment in messages_of(e):
            at = self._child(at, segment.text, segment.turn, dialogue)
            self.nodes[at].below.append(dialogue)
            path.append(at)
        self.paths[dialogue] = tuple(path)

    def _child(self, at: int, text: str, turn: int, dialogue: int) -> int:
        answer = self.read(text)
        for i in self.nodes[at].children:
            node = self.nodes[i]
            near = distance(node.text, text) < self.same and node.answer == answer
            if near or node.text == text:
                return i
        self.nodes.append(MessageNode(at, text, turn, dialogue, answer=answer))
        self.nodes[at].children.append(len(self.nodes) - 1)
        return len(self.nodes) - 1

    def candidates(self, expanded: Sequence[int], totals: Sequence[float]) -> list[int]:
        """The ten best nodes that a dialogue went on from, unlike those that were expanded; the root
        alone where there is none.
        """
        open_ = [
            i
            for i, node in enumerate(self.nodes)
            if node.children
            and all(distance(node.text, self.nodes[j].text) >= FAR for j in expanded)
        ]
        return sorted(open_ or [0], key=lambda i: (-self.nodes[i].value(totals), i))[:BEST]


def distance(a: str, b: str) -> float:
    """Edits from one text to the other over the length of the longer one, in [0, 1]."""
    return round(1 - pl.verifiers.edit_similarity(a, b), 9)  # 1 of 10 edits is 0.1


def softmax(x_N: np.ndarray) -> np.ndarray:
    """[N] odds."""
    e_N = np.exp(x_N - x_N.max())
    return e_N / e_N.sum()


@pl.declare(
    facts=(
        (
            "message_nodes",
            tuple,
            "by message, its node in the tree of dialogues, and that before it",
        ),
        ("message_values", tuple, "by message, the mean reward of the dialogues through its node"),
    )
)
@pl.stage
class DialogueTree:
    """Dialogues from a tree of messages: `rollouts` from its root and from the node of each of
    `expansions`, all scored. Leaves in each its nodes and their values.
    """

    expansions: int = 8
    rollouts: int = 3
    reward: DialogueReward = DialogueReward()
    temperature: float = 0.7

    def __post_init__(self) -> None:
        pl.check_bounds("DialogueTree.expansions", self.expansions, least=0)
        pl.check_bounds("DialogueTree.rollouts", self.rollouts, least=2)

    async def __call__(self, ctx: pl.Context, key: pl.Key, group: pl.Group) -> pl.Group:
        world = ctx.bench.world
        tree = MessageTree(
            world.read if isinstance(world, pl.worlds.Dialogue) else pl.stated_answer
        )
        expanded = [0]
        start = pl.rollout.Prefix(said=(), context=())
        group = await self._grow(ctx, key, group, start, tree)
        for n in range(self.expansions):
            if not tree.paths:  # every dialogue failed
                break
            totals = totals_of(group)
            able = tree.candidates(expanded, totals)
            odds = softmax(np.array([tree.nodes[i].value(totals) for i in able]))
            at = able[int(pl.rng_of((*key, "expand", n)).choice(len(able), p=odds))]
            expanded.append(at)
            begun = start
            if at:
                source = group.episodes[tree.nodes[at].first]
                segment = next(s for s in messages_of(source) if s.turn == tree.nodes[at].turn)
                begun = pl.rollout.prefix(source, segment.turn, len(segment.ids))
            group = await self._grow(ctx, key, group, begun, tree)
        totals = totals_of(group)
        episodes = (
            replace(e, facts={**e.facts, **facts_of(tree, i, totals)}) if i in tree.paths else e
            for i, e in enumerate(group.episodes)
        )
        return replace(group, episodes=tuple(episodes))

    async def _grow(
        self,
        ctx: pl.Context,
        key: pl.Key,
        group: pl.Group,
        begun: pl.rollout.Prefix,
        tree: MessageTree,
    ) -> pl.Group:
        """The group with `rollouts` more dialogues from a node, rewarded anew and entered."""
        sampling = pl.Sampling(temperature=self.temperature, max_tokens=ctx.bench.max_tokens)
        first = len(group.episodes)
        numbers = range(first, first + self.rollouts)
        played = await asyncio.gather(
            *(pl.rollout.continuation(ctx, (*key, i), group.task, begun, sampling) for i in numbers)
        )
        group = replace(group, episodes=(*group.episodes, *played))
        group = await self.reward(ctx, key, await pl.Score()(ctx, key, group))
        for i in numbers:
            if group.episodes[i].ok and group.episodes[i].reward is not None:
                tree.add(i, group.episodes[i])
        return group


def totals_of(group: pl.Group) -> list[float]:
    """Rewards by dialogue, 0 where there is none, which no node counts."""
    return [e.total if e.ok and e.reward is not None else 0.0 for e in group.episodes]


def facts_of(tree: MessageTree, dialogue: int, totals: Sequence[float]) -> dict[str, Any]:
    """Of a dialogue."""
    path = tree.paths[dialogue]
    return {
        "message_nodes": tuple((i, tree.nodes[i].parent) for i in path),
        "message_values": tuple(tree.nodes[i].value(totals) for i in path),
    }


@dataclass(frozen=True)
class MessageChoice:
    """A message that stands in a pair: of which dialogue of a group, and its number there."""

    episode: int
    message: int
    value: float


@pl.declare(reads=("message_nodes", "message_values"))
@pl.stage
class MessagePairs:
    """The best and the worst message after each node, if the best is worth more than `least` and they
    are more than `gap` apart; of all pairs the `share` whose best is worth most, rounded up. Only the
    message's tokens are trained. The rows of a pair are a unit, `sign` is +1 and -1.
    """

    least: float = 0.5
    gap: float = 0.2
    share: float = 0.5
    needs_several: ClassVar[bool] = True

    def __post_init__(self) -> None:
        pl.check_bounds("MessagePairs.share", self.share, above=0, most=1)

    def __call__(
        self, groups: pl.Groups, signals: pl.Signals, state: pl.State
    ) -> tuple[list[pl.Example], pl.State]:
        pairs = [(g, *pair) for g, group in enumerate(groups) for pair in self._pairs(group)]
        pairs.sort(key=lambda p: -p[1].value)
        examples: list[pl.Example] = []
        for n, (g, best, worst) in enumerate(pairs[: int(np.ceil(self.share * len(pairs)))]):
            for choice, sign in ((best, 1.0), (worst, -1.0)):
                e = groups[g].episodes[choice.episode]
                turn = messages_of(e)[choice.message].turn
                r = next(r for r, row in enumerate(e.rows) if turn in turns_of(row))
                view = e.rows[r].view()
                columns = {
                    **signals[g][choice.episode][r],
                    "sign": sign,
                    COST: cost_of(e, e.rows[r]),
                    "trained": view.trained_T & (view.turn_T == turn),
                }
                examples.append(pl.Example(row=e.rows[r], columns=columns, unit=f"pair {n}"))
        return examples, state

    def _pairs(self, group: pl.Group) -> Iterator[tuple[MessageChoice, MessageChoice]]:
        after = dict[int, dict[int, MessageChoice]]()
        for i, e in enumerate(group.episodes):
            if not e.ok or e.muted or "message_nodes" not in e.facts:
                continue
            steps = zip(e.facts["message_nodes"], e.facts["message_values"], strict=True)
            for n, ((node, parent), value) in enumerate(steps):
                after.setdefault(parent, {}).setdefault(node, MessageChoice(i, n, value))
        for choices in after.values():
            best = max(choices.values(), key=lambda c: c.value)
            worst = min(choices.values(), key=lambda c: c.value)
            if best.value > self.least and best.value - worst.value > self.gap:
                yield best, worst


def turns_of(row: pl.Row) -> set[int]:
    """In which the row's agent spoke."""
    return {s.turn for s in row.segments if s.logp is not None}

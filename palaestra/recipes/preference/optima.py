"""Optima: two agents talk, and learn from those of their dialogues that are right, short and readable.
Both agents are the policy, each with a context that the other does not see; the first stated answer
ends the talk.

    R = R_task - tokens * (tokens of the dialogue / those of the longest of the question)
        + readable * min(1, 1 / worst NLL)

R_task is what the dialogue is paid: 1 for the right answer, else the F1 of its words. The worst NLL
is the largest over messages of the mean NLL of a message's tokens, in nats, under a frozen copy of the
start, so that no private code pays; the last term is 0 where an agent says the same twice. tokens is
0.6, readable 1 (arXiv:2410.08115; thunlp/Optima: deploy_reward.py, monte_carlo_deploy.py, dpo.py).
Each step is a round: generate, rank, select, train.

iSFT  imitates the best of 8 dialogues of a question, if its R is `least` or more and its R_task
      `least_task` or more, without which what is wrong, but short, would be imitated.

iDPO  grows a tree of dialogues, a message a node, worth the mean R of the dialogues through it. The
      first `rollouts` dialogues begin at its root. Each of `expansions` expansions draws a node that a
      dialogue went on from, by softmax of the values of the ten best, without those whose message
      is nearer than 0.25 (edit distance over length) to that of a node that was expanded, and goes
      on from it in `rollouts` dialogues; where none is left, from the root. Messages after one node nearer
      than 0.1 are one node, unless they state different answers. The best and the worst message after a
      node are a pair, if V of the best is above `least` and they are `gap` apart; the half of a batch's
      pairs with the best V learns by

          DPO(beta 0.1) + mean NLL of the tokens of the chosen message

iSFT-DPO  takes turns, in the parts of a pipeline: `rounds` of both.

In the released code a node that is expanded has grandchildren, the longest dialogue is a percentile of
100 probes, 1 / NLL has no bound, R_task has no least, the first round has a pool of formats to ask for, and a talk also ends
when both say the same. In iSFT-DPO the frozen copy and DPO's reference are those of the part's start.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

import palaestra as pl

CARD = pl.Card(
    title="Optima: effectiveness and efficiency of multi-agent LLM communication",
    paper="arXiv:2410.08115",
    claim="Iterated generation, ranking and training make two agents right more often with far fewer tokens.",
    source="released code (thunlp/Optima: deploy_reward.py, reward.py, monte_carlo_deploy.py, dpo.py) and the "
    "abstract",
    size=pl.Size(
        setting="Llama 3 8B on HotpotQA, 2WikiMultiHopQA, TriviaQA, CBT, MATH, GSM8K, ARC-C and MMLU; 10 dialogues "
        "or 8 expansions of 3 a question, temperature 0.7, lr 2e-5 of iSFT and 5e-7 of iDPO, 5 to 6 rounds",
        model="llama-3.1-8b",
        lr=2e-5,
    ),
    task="halves",
    world="dialogue",
    needs=pl.needs.Requirements(
        columns=(
            replace(
                pl.needs.PROMPT,
                examples=(
                    "When was the author of Emma born?",
                    "Who wrote the older book?",
                    "How many legs have both animals?",
                ),
            ),
            replace(pl.needs.ANSWER, examples=("1775", "Ann Lee", "12"), otherwise=""),
            pl.needs.NeededColumn(
                "context_a",
                "text",
                ("Emma is by Jane Austen.", "Rain is by Ann Lee, of 1950.", "Mine is an ant."),
                "what only the first agent knows",
            ),
            pl.needs.NeededColumn(
                "context_b",
                "text",
                ("Jane Austen was born in 1775.", "Snow is by Bo Li, of 1960.", "Mine is a bee."),
                "what only the second agent knows",
            ),
        ),
        shows="trained_cost",
        off={"tokens": 0.0},
        own={
            "schedule.prompts": 4,
            "dialogues": 4,
            "least_task": 0.0,
            "env": "dialogue(turns=3,plain=1)",
            "max_tokens": 12,
        },
    ),
    use="It helps where an answer needs what two agents know apart and they talk at length; where one of them knows "
    "enough, it only shortens, and where working a question out makes the answer right, the cost of tokens favours "
    "lucky guesses: lower `tokens`.",
    lacks=(
        "Reasoning in a debate of a solver and a critic on one question is not there.",
        "Single agents and untrained multi-agent systems, with which the abstract compares, are not run beside.",
        "How accuracy grows with more dialogues at inference is not measured.",
        "The released reward's penalties of very short and very long dialogues and of wrong speakers are not "
        "there, so a lucky short guess is not punished.",
        "Readability is measured given the dialogue so far, where the released code takes each message alone.",
        "In isft-dpo the scorer of readability is the model at each part's start, not the first model.",
        "The first round has no pool of formats, and iSFT keeps the best of the batch, not of each question.",
    ),
    grade="B",
)

Variant = Literal["isft", "idpo", "isft-dpo"]
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


@pl.stage
class BestDialogue:
    """Rows of the best dialogue of each group, if its reward is `least` or more and what the task paid
    for it is `least_task` or more.
    """

    least: float = 0.5
    least_task: float = 0.5
    needs_several: ClassVar[bool] = True

    def __call__(
        self, groups: pl.Groups, signals: pl.Signals, state: pl.State
    ) -> tuple[list[pl.Example], pl.State]:
        examples: list[pl.Example] = []
        for g, group in enumerate(groups):
            able = [i for i, e in enumerate(group.episodes) if e.ok and not e.muted]
            best = max(able, key=lambda i: group.episodes[i].total, default=None)
            if best is None or not self._is_good(group.episodes[best]):
                continue
            for row, signal in zip(group.episodes[best].rows, signals[g][best], strict=True):
                columns = {**signal, COST: cost_of(group.episodes[best], row)}
                examples.append(pl.Example(row=row, columns=columns))
        return examples, state

    def _is_good(self, e: pl.Episode) -> bool:
        assert e.reward is not None
        task = e.reward.parts.get("task", e.total)
        return e.total >= self.least and task >= self.least_task


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


def isft(
    reward: DialogueReward, dialogues: int = 8, least: float = 0.5, least_task: float = 0.5
) -> pl.Recipe:
    """Imitates the best dialogue of each question."""
    return pl.vary(
        pl.recipe("grpo"),
        collect=pl.links(pl.Sample(n=dialogues, temperature=0.7), pl.Score(), reward),
        credit=BestDialogue(least, least_task),
        objective=pl.Imitation(),
        references={SCORER: "policy"},
    )


def idpo(
    reward: DialogueReward,
    expansions: int = 8,
    rollouts: int = 3,
    least: float = 0.5,
    gap: float = 0.2,
    share: float = 0.5,
    beta: float = 0.1,
) -> pl.Recipe:
    """Learns from pairs of messages of a tree of dialogues."""
    return pl.vary(
        pl.recipe("dpo", beta=beta),
        collect=pl.links(DialogueTree(expansions, rollouts, reward)),
        credit=MessagePairs(least, gap, share),
        objective=pl.DPO(beta=beta) + pl.objective.ImitatePreferred(),
        references={"ref": "policy", SCORER: "policy"},
    )


def build(
    variant: Variant = "isft",
    tokens: float = 0.6,
    readable: float = 1.0,
    dialogues: int = 8,
    expansions: int = 8,
    rollouts: int = 3,
    least: float = 0.5,
    least_task: float = 0.5,
    gap: float = 0.2,
    share: float = 0.5,
    beta: float = 0.1,
    rounds: int = 2,
) -> pl.Recipe | pl.Pipeline:
    """`tokens` and `readable` weigh the two terms beside the task's. `dialogues` a question and
    `least_task` are of iSFT, `expansions`, `rollouts`, `gap`, `share` and `beta` of iDPO, `rounds` of isft-dpo.
    """
    for name, weight in (("tokens", tokens), ("readable", readable)):
        pl.check_bounds(name, weight, least=0)
    pl.check_bounds("rounds", rounds, least=1)
    reward = DialogueReward(tokens, readable)
    imitation = isft(reward, dialogues, least, least_task)
    if variant == "isft":
        return imitation
    pairs = idpo(reward, expansions, rollouts, least, gap, share, beta)
    if variant == "idpo":
        return pairs
    parts, before = dict[str, pl.Part](), None
    for n in range(1, rounds + 1):
        for name, recipe in ((f"isft-{n}", imitation), (f"idpo-{n}", pairs)):
            parts[name] = pl.Part(recipe, model=before)
            before = pl.Output(name)
    return pl.Pipeline(parts=parts)


def embedded(variant: Variant = "isft", **options: Any) -> pl.Recipe | pl.Pipeline:
    """On the embedded problem: a few steps of each part."""
    made = build(variant, **options)
    few = pl.Schedule(prompts=8, steps=15)
    if isinstance(made, pl.Recipe):
        return pl.vary(made, schedule=few)
    return pl.Pipeline(
        parts={
            name: replace(part, runnable=pl.vary(part.runnable, schedule=few))
            for name, part in made.parts.items()
        }
    )

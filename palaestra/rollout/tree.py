"""Search trees over hashable states: which node is opened next, what its opening says of the nodes
above, and an exact number of openings.

The tree knows nothing of language models or games. `expand(state, key)` is asked once per opened
node and gives its children and what it is worth. Selections are values: `Uct`, `Ucb`, `Puct` go
down from the root to a leaf, `BestFirst` takes the best leaf of all.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from palaestra.errors import UserError
from palaestra.types import Key, need_at_least, stage, value_class


@value_class
class Branch:
    """A state that one action leads to.

    Args:
        state: equal states below one node are one child, the first of them.
        action: what leads there, for the reader.
        logp: of the action, in nats; what `BestFirst` adds up along a path.
        prior: of the action, for `Puct`.
        value: of a first visit, where one was made, in the eyes of who moves there; every node above
            counts it.
        end: whether nothing follows. It is never opened.
        visits: that `value` counts for, e.g. how many attempts led there.
    """

    state: Hashable
    action: str = ""
    logp: float = 0.0
    prior: float = 1.0
    value: float | None = None
    end: bool = False
    visits: int = 1


@value_class
class Opening:
    """What opening a node gave: its children, and its value in the eyes of who moves there, which
    every node above counts as so many `visits`.
    """

    children: tuple[Branch, ...] = ()
    value: float | None = None
    visits: int = 1


Expand = Callable[[Any, Key], Awaitable[Opening]]


@dataclass(slots=True)
class TreeNode:
    """A node of a tree. `total` and `value` are in the eyes of who moves at the node above."""

    state: Hashable
    parent: int  # -1 = the root
    action: str = ""
    depth: int = 0
    logp: float = 0.0  # of all actions on its path
    prior: float = 1.0
    end: bool = False
    visits: int = 0
    total: float = 0.0
    asked: int = 0  # openings below it that were asked for and are not known yet
    leaves: int = 0  # nodes at or below it that can still be opened
    children: list[int] = field(default_factory=list)

    @property
    def value(self) -> float:
        """The mean of what was seen at it and below; 0 where nothing was."""
        return self.total / self.visits if self.visits else 0.0


class Selection(Protocol):
    """Chooses the node to open next."""

    def __call__(self, tree: SearchTree) -> int | None:
        """Its number; None where nothing can be opened."""
        ...


@dataclass(slots=True)
class SearchTree:
    """What a search has seen. Node 0 is the root; a parent stands before its children.

    Args:
        turns: whether two players move in turn, so that what is good for one is bad for the other:
            values change their sign from a node to the one above.
        merge: whether a state that is in the tree already is no child of a second node.
        opened: numbers of the nodes that were opened, in their order.
    """

    nodes: list[TreeNode]
    turns: bool = False
    merge: bool = False
    opened: list[int] = field(default_factory=list)

    def path(self, node: int) -> list[int]:
        """From the root to a node."""
        nodes = [node]
        while (above := self.nodes[nodes[-1]].parent) >= 0:
            nodes.append(above)
        return nodes[::-1]

    def most_visited(self, node: int = 0) -> int:
        """The child of a node that was visited most, the better and then the earlier of two.

        Raises:
            UserError: it has none.
        """
        if not (below := self.nodes[node].children):
            raise UserError(f"node {node} of the tree has no children")
        return max(below, key=lambda i: (self.nodes[i].visits, self.nodes[i].value, -i))

    def ask(self, node: int) -> None:
        """Marks a node as being opened."""
        for i in self.path(node):
            self.nodes[i].leaves -= 1
            self.nodes[i].asked += 1

    def add(self, node: int, opening: Opening) -> None:
        """Enters what opening a node gave."""
        self.opened.append(node)
        for i in self.path(node):
            self.nodes[i].asked -= 1
        if opening.value is not None:
            self._count(node, opening.value, opening.visits)
        known = {x.state for x in self.nodes} if self.merge else set[Hashable]()
        above = self.nodes[node]
        for child in opening.children:
            if child.state in known:
                continue
            known.add(child.state)
            at = len(self.nodes)
            self.nodes.append(
                TreeNode(
                    state=child.state,
                    parent=node,
                    action=child.action,
                    depth=above.depth + 1,
                    logp=above.logp + child.logp,
                    prior=child.prior,
                    end=child.end,
                )
            )
            above.children.append(at)
            if not child.end:
                for i in self.path(at):
                    self.nodes[i].leaves += 1
            if child.value is not None:
                self._count(at, child.value, child.visits)

    def _count(self, node: int, value: float, visits: int) -> None:
        for i in reversed(self.path(node)):
            value = -value if self.turns else value
            self.nodes[i].visits += visits
            self.nodes[i].total += visits * value


def descend(tree: SearchTree, score: Callable[[TreeNode, TreeNode], float]) -> int | None:
    """The leaf that is reached from the root by always taking the child of the highest score, the
    earliest of equals, among those below which something can still be opened.
    """
    if not tree.nodes[0].leaves:
        return None
    at = 0
    while (node := tree.nodes[at]).children:
        below = [i for i in node.children if tree.nodes[i].leaves]
        at = max(below, key=lambda i: (score(node, tree.nodes[i]), -i))
    return at


@stage
class Uct:
    """V + c sqrt((1 + ln N) / (eps + n)), N the visits of the node, n those of its child
    (ReST-RL's VM-MCTS, github.com/THUDM/ReST-RL). Openings that run count as visits.
    """

    c: float = 0.2
    eps: float = 0.1

    def __post_init__(self) -> None:
        need_at_least(self, c=0)
        if self.eps <= 0:
            raise UserError("Uct(eps=0) has no score for a node without visits; take Ucb")

    def __call__(self, tree: SearchTree) -> int | None:
        return descend(tree, self.score)

    def score(self, node: TreeNode, child: TreeNode) -> float:
        """Of a child."""
        seen = 1 + math.log(max(1, node.visits + node.asked))
        return child.value + self.c * math.sqrt(seen / (self.eps + child.visits + child.asked))


@stage
class Ucb:
    """V + c sqrt(ln N / n): every child once, then the highest bound (UCB1, Auer et al. 2002;
    c = sqrt 2 for values in [0, 1]). Openings that run count as visits.
    """

    c: float = math.sqrt(2)

    def __post_init__(self) -> None:
        need_at_least(self, c=0)

    def __call__(self, tree: SearchTree) -> int | None:
        return descend(tree, self.score)

    def score(self, node: TreeNode, child: TreeNode) -> float:
        """Of a child."""
        n = child.visits + child.asked
        seen = math.log(max(1, node.visits + node.asked))
        return child.value + self.c * math.sqrt(seen / n) if n else math.inf


@stage
class Puct:
    """Q + c P sqrt(N) / (1 + n) with the prior P of a child (AlphaZero; c = 1.5 in CPL,
    github.com/keesh0410/CPL-Reasoning). Openings that run count as visits.
    """

    c: float = 1.5

    def __post_init__(self) -> None:
        need_at_least(self, c=0)

    def __call__(self, tree: SearchTree) -> int | None:
        return descend(tree, self.score)

    def score(self, node: TreeNode, child: TreeNode) -> float:
        """Of a child."""
        spread = math.sqrt(node.visits + node.asked) / (1 + child.visits + child.asked)
        return child.value + self.c * child.prior * spread


@stage
class BestFirst:
    """The leaf of the highest sum of log-probs along its path over (length of the path)^alpha, the
    earliest of equals (BFS-Prover, arXiv:2502.03438).
    """

    alpha: float = 0.5

    def __post_init__(self) -> None:
        need_at_least(self, alpha=0)

    def __call__(self, tree: SearchTree) -> int | None:
        leaves = [i for i, x in enumerate(tree.nodes) if x.leaves and not x.children]
        return max(leaves, key=lambda i: (self.score(tree.nodes[i]), -i), default=None)

    def score(self, node: TreeNode) -> float:
        """Of a leaf; the root comes first."""
        return node.logp / node.depth**self.alpha if node.depth else math.inf


async def grow_tree(
    root: Hashable,
    expand: Expand,
    select: Selection,
    openings: int,
    *,
    key: Key,
    width: int = 1,
    turns: bool = False,
    merge: bool = False,
) -> SearchTree:
    """A tree of exactly `openings` opened nodes, or of all where there are fewer.

    The same key gives the same tree, whatever order answers come in.

    Args:
        root: the state that it begins from.
        expand: `await expand(state, (*key, node))` opens a node.
        select: which node comes next.
        openings: of nodes, at most.
        key: of all random draws.
        width: nodes that are opened at a time; more than 1 chooses with less knowledge.
        turns, merge: of the tree (`SearchTree`).
    """
    if openings < 1 or width < 1:
        raise UserError("openings and width of a search are 1 or more")
    tree = SearchTree(nodes=[TreeNode(state=root, parent=-1, leaves=1)], turns=turns, merge=merge)
    while len(tree.opened) < openings:
        wave: list[int] = []
        while len(wave) < min(width, openings - len(tree.opened)):
            if (chosen := select(tree)) is None:
                break
            tree.ask(chosen)
            wave.append(chosen)
        if not wave:
            break
        opened: Sequence[Opening] = await asyncio.gather(
            *(expand(tree.nodes[i].state, (*key, i)) for i in wave)
        )
        for i, opening in zip(wave, opened, strict=True):
            tree.add(i, opening)
    return tree

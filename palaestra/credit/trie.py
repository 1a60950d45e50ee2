"""Prefix trees over the token ids of a group: what several answers have in common, and where they
part.

A node is a prefix. Position t of a sequence leads from the node of ids[:t] to that of ids[:t + 1];
the root is node 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestra.credit.table import Table, Values
from palaestra.errors import UserError
from palaestra.types import stage


def prefix_nodes(sequences: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """[len + 1] per sequence: the nodes it passes, from the root to its own end. Equal prefixes
    have equal nodes.
    """
    children: dict[tuple[int, int], int] = {}
    nodes: list[np.ndarray] = []
    for ids in sequences:
        path = np.zeros(len(ids) + 1, np.int64)
        for t, token in enumerate(ids):
            path[t + 1] = children.setdefault((int(path[t]), int(token)), len(children) + 1)
        nodes.append(path)
    return nodes


def node_counts(paths: Sequence[np.ndarray]) -> np.ndarray:
    """[nodes] how many sequences pass each node."""
    return np.bincount(np.concatenate(paths))  # a path visits a node at most once


def node_means(paths: Sequence[np.ndarray], x_S: np.ndarray) -> np.ndarray:
    """[nodes] V(s) = mean of x over the sequences that pass s (P2T, arXiv:2509.18314)."""
    sums = np.bincount(np.concatenate(paths), np.repeat(x_S, [len(p) for p in paths]))
    return sums / node_counts(paths)


def td_terms(paths: Sequence[np.ndarray], x_S: np.ndarray) -> list[np.ndarray]:
    """[len] per sequence: V(s_{t+1}) - V(s_t), not zero only where others part from it. Sums to x_S
    - mean x.
    """
    value = node_means(paths, x_S)
    return [value[p[1:]] - value[p[:-1]] for p in paths]


def branch_terms(paths: Sequence[np.ndarray]) -> list[np.ndarray]:
    """[len] per sequence: whether the token leaves a node that other sequences pass and leave
    otherwise.
    """
    count = node_counts(paths)
    return [count[p[1:]] < count[p[:-1]] for p in paths]


def episode_ids(table: Table, episode: int) -> list[int]:
    """The episode's rows as one sequence, in their training views; -1 starts a row.

    Prompts and observations are part of the prefix: two answers after different observations are
    not the same node.
    """
    return [i for view in table.views[episode] for i in (-1, *view.ids_T.tolist())]


@stage
class PrefixTree:
    """A_t = outcome * x + V(s_{t+1}) - V(s_t), V = mean of x over the group's answers with that
    prefix (TEMPO).

    x is by episode. The column "branching" is 1 where a token leaves a branching node. A group of
    one, or of equal x, has no TD term. O(tokens).
    """

    outcome: float = 1.0  # 0 = the TD term alone

    def __call__(self, x: Values, table: Table) -> Values:
        if x.level != "episode":
            raise UserError(
                f"the values of a prefix tree are outcomes of episodes, not of a {x.level}"
            )
        at = table.tokens
        td_N, branching_N = np.zeros(len(at.episode_N)), np.zeros(len(at.episode_N))
        for g in np.unique(table.group_E):
            members = np.flatnonzero(table.group_E == g)
            paths = prefix_nodes([episode_ids(table, int(e)) for e in members])
            terms = zip(members, td_terms(paths, x.x_N[members]), branch_terms(paths), strict=True)
            for e, td_T, branching_T in terms:
                starts = np.cumsum([0] + [1 + len(v.ids_T) for v in table.views[e]])
                mine = np.flatnonzero(at.episode_N == e)
                place = starts[at.row_N[mine]] + 1 + at.position_N[mine]
                td_N[mine], branching_N[mine] = td_T[place], branching_T[place]
        table.add_column("branching", Values(level="token", x_N=branching_N))
        return Values(level="token", x_N=self.outcome * table.lift(x, "token").x_N + td_N)

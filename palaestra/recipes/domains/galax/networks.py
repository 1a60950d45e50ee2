"""The graph process reward model and the generator of subgraphs. B subgraphs, M nodes around one sample,
D features, K classes.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

import palaestra as pl
from palaestra.recipes.domains.galax.graphs import InteractionGraph, SubgraphCase

IDENTITY = 8  # features of a node by its name
SMALLEST, LARGEST = 3, 25  # nodes of the random subgraphs that the reward model is trained on
BATCH, RATE = 32, 1e-2


class SubgraphClassifier(nn.Module):
    """f: the class of a sample by a subgraph: two layers that add the mean over a node's neighbours in the
    subgraph, and a mean over its nodes.
    """

    def __init__(self, nodes: int, classes: int, width: int = 24):
        super().__init__()
        self.identity = nn.Embedding(nodes, IDENTITY)
        self.first = nn.Linear(1 + 2 * IDENTITY, width)
        self.own = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.beside = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(2))
        self.last = nn.Linear(width, classes)

    def forward(self, node_M: Tensor, x_M: Tensor, in_BM: Tensor, edge_BMM: Tensor) -> Tensor:
        """[B, K] logits. in_BM and edge_BMM are 1 for the nodes and edges of a subgraph."""
        known = self.identity(node_M)
        features = torch.cat([x_M[..., None], known, x_M[..., None] * known], -1)
        h = torch.relu(self.first(features)).expand(*in_BM.shape, -1)
        near = edge_BMM / edge_BMM.sum(-1, keepdim=True).clamp(min=1)
        for own, beside in zip(self.own, self.beside, strict=True):
            h = torch.relu(own(h) + beside(near @ h))
        whole = (h * in_BM[..., None]).sum(1) / in_BM.sum(1, keepdim=True).clamp(min=1)
        return self.last(whole)


class EdgeGenerator(nn.Module):
    """pi: three layers of graph attention (Velickovic and others, 2018) of 16, 24 and 32 features over the
    interaction graph among M nodes, and two heads: of the start of the next edge, and of its end given
    the start.
    """

    def __init__(self) -> None:
        super().__init__()
        sizes = (2 + IDENTITY, 16, 24, 32)
        self.value = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.score = nn.ModuleList(nn.Linear(b, 2, bias=False) for b in sizes[1:])
        self.start = nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))
        self.end = nn.Sequential(nn.Linear(65, 16), nn.ReLU(), nn.Linear(16, 1))

    def encode(self, feature_BMF: Tensor, linked_MM: Tensor) -> Tensor:
        """[B, M, 32]"""
        h, away = feature_BMF, ~(linked_MM | torch.eye(len(linked_MM), dtype=torch.bool))
        for value, score in zip(self.value, self.score, strict=True):
            h = value(h)
            a, b = score(h).unbind(-1)
            raw = nn.functional.leaky_relu(a[..., :, None] + b[..., None, :], 0.2)
            h = torch.relu(torch.softmax(raw.masked_fill(away, -torch.inf), -1) @ h)
        return h

    def start_logits(self, h_BMD: Tensor) -> Tensor:
        return self.start(h_BMD)[..., 0]

    def end_logits(self, h_BMD: Tensor, start_B: Tensor, linked_MM: Tensor) -> Tensor:
        """[B, M] the head also reads whether the end interacts with the start."""
        chosen = h_BMD[torch.arange(len(h_BMD)), start_B][:, None].expand_as(h_BMD)
        linked = linked_MM[start_B].to(h_BMD.dtype)[..., None]
        return self.end(torch.cat([h_BMD, chosen, linked], -1))[..., 0]


@dataclass(frozen=True)
class Surroundings:
    """The M nodes around a sample that its subgraphs are made of: numbers, values, whether two interact, and
    which ones a subgraph begins with.
    """

    node_M: Tensor
    x_M: Tensor
    linked_MM: Tensor
    seed_M: Tensor
    label: int

    @property
    def size(self) -> int:
        return len(self.node_M)


def surroundings(
    graph: InteractionGraph, case: SubgraphCase, seeds: int, most: int, more: tuple[int, ...] = ()
) -> Surroundings:
    """Seeds are the sample's own, else `more`, else the nodes of the largest values; candidates are these, the
    nodes of the largest values and all neighbours of the seeds, `most` in all.
    """
    order = [int(i) for i in np.argsort(-case.signal_N, kind="stable")]
    first = list(case.seeds[:20] or more[:20] or order[:seeds])
    near = [int(j) for j in np.flatnonzero(graph.linked_NN[first].any(0))]
    near.sort(key=lambda j: -case.signal_N[j])
    room = max(most, len(first))
    nodes = list(dict.fromkeys([*first, *more, *order[: room // 2], *near, *order]))[:room]
    at = torch.tensor(nodes)
    return Surroundings(
        node_M=at,
        x_M=torch.tensor(case.signal_N[nodes], dtype=torch.float32),
        linked_MM=torch.tensor(graph.linked_NN[np.ix_(nodes, nodes)]),
        seed_M=torch.tensor([n in first for n in nodes]),
        label=case.label,
    )


def random_subgraph(
    graph: InteractionGraph, case: SubgraphCase, size: int, rng: np.random.Generator
) -> list[int]:
    """Nodes that hang together, grown from one of a sample's twenty largest values by random neighbours."""
    order = np.argsort(-case.signal_N, kind="stable")[:20]
    nodes = [int(rng.choice(order))]
    while len(nodes) < size:
        near = np.setdiff1d(np.flatnonzero(graph.linked_NN[nodes].any(0)), nodes)
        if not len(near):
            break
        nodes.append(int(rng.choice(near)))
    return nodes


def classify_case(
    f: SubgraphClassifier, graph: InteractionGraph, case: SubgraphCase, nodes: list[int]
) -> Tensor:
    """[K] logits of the subgraph of these nodes with all their edges."""
    at, M = torch.tensor(nodes), len(nodes)
    x = torch.tensor(case.signal_N[nodes], dtype=torch.float32)
    edges = torch.tensor(graph.linked_NN[np.ix_(nodes, nodes)], dtype=torch.float32)
    return f(at, x, torch.ones(1, M), edges[None])[0]


def train_classifier(
    graph: InteractionGraph,
    cases: list[SubgraphCase],
    classes: int,
    updates: int,
    key: pl.Key,
    shuffled: bool = False,
) -> SubgraphClassifier:
    """The reward model: the classes of training samples by random subgraphs. `shuffled`: of which each has
    the class of another one. Frozen when it is done.
    """
    rng = pl.rng_of((*key, "classifier", shuffled))
    torch.manual_seed(int(rng.integers(2**31)))
    f = SubgraphClassifier(len(graph.names), classes)
    label = np.array([c.label for c in cases])
    label = rng.permutation(label) if shuffled else label
    optimiser = torch.optim.Adam(f.parameters(), lr=RATE)
    for _ in range(updates):
        optimiser.zero_grad()
        chosen = rng.integers(len(cases), size=BATCH)
        loss = torch.zeros(())
        parts = [
            random_subgraph(graph, cases[i], int(rng.integers(SMALLEST, LARGEST)), rng)
            for i in chosen
        ]
        width = max(map(len, parts))
        node_BM = torch.zeros(BATCH, width, dtype=torch.long)
        x_BM, in_BM = torch.zeros(BATCH, width), torch.zeros(BATCH, width)
        edge_BMM = torch.zeros(BATCH, width, width)
        for b, (i, nodes) in enumerate(zip(chosen, parts, strict=True)):
            n = len(nodes)
            node_BM[b, :n], in_BM[b, :n] = torch.tensor(nodes), 1.0
            x_BM[b, :n] = torch.tensor(cases[i].signal_N[nodes], dtype=torch.float32)
            edge_BMM[b, :n, :n] = torch.tensor(
                graph.linked_NN[np.ix_(nodes, nodes)], dtype=torch.float32
            )
        logits = f(node_BM, x_BM, in_BM, edge_BMM)
        loss = nn.functional.cross_entropy(logits, torch.tensor(label[chosen]))
        loss.backward()
        optimiser.step()
    return f.eval().requires_grad_(False)

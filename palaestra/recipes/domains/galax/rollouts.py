"""How one subgraph is built: an edge a step, rewarded by the frozen classifier, for one sample at a time."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

import palaestra as pl
from palaestra.recipes.domains.galax.networks import EdgeGenerator, SubgraphClassifier, Surroundings

Edge = tuple[int, int]


@dataclass(frozen=True)
class Subgraph:
    """Nodes and edges, by their places in the surroundings of a sample."""

    nodes: frozenset[int]
    edges: frozenset[Edge] = frozenset()

    def with_edge(self, edge: Edge) -> "Subgraph":
        a, b = edge
        return Subgraph(self.nodes | {a, b}, self.edges | {(min(a, b), max(a, b))})


@dataclass(frozen=True)
class GraphReward:
    """The graph process reward of a subgraph S of a sample of class c among K:

        q(S) = f_c(S) - 1 / K
        R(S) = q(S) + ahead * mean_m q(S + edge_m) + valid * v(S),   v = 0 if all edges interact, else -1

    with `rollouts` edges that are sampled from the generator.
    """

    ahead: float = 1.0
    valid: float = 1.0
    rollouts: int = 5


@dataclass
class SubgraphMeter:
    """What a search took, and what it proposed."""

    calls: int = 0  # subgraphs that the classifier judged
    proposed: int = 0
    interacting: int = 0
    accepted: int = 0


@dataclass
class SubgraphSearch:
    """The search for one sample's subgraph.

    Args:
        around: what it is made of.
        f: the frozen reward model.
        reward: the process reward.
        baseline: the rate of the running mean of R that is subtracted from it; 0 = none is, as published.
        sign: +1 raises the probability of rewarded edges; -1 lowers it, as the released code does.
    """

    around: Surroundings
    f: SubgraphClassifier
    reward: GraphReward
    key: pl.Key
    sign: float = 1.0
    baseline: float = 0.0
    meter: SubgraphMeter = field(default_factory=SubgraphMeter)

    def __post_init__(self) -> None:
        self.chance = torch.Generator().manual_seed(pl.seed_of((*self.key, "edges")) % 2**62)
        torch.manual_seed(pl.seed_of((*self.key, "generator")) % 2**62)
        self.policy = EdgeGenerator()
        known = self.f.identity(self.around.node_M).detach()
        self.fixed_MF = torch.cat([self.around.x_M[:, None], known], 1)

    @property
    def begin(self) -> Subgraph:
        return Subgraph(frozenset(int(i) for i in torch.nonzero(self.around.seed_M)[:, 0]))

    # ---- the reward

    @torch.no_grad()
    def belief(self, subgraphs: Sequence[Subgraph], closed: bool = False) -> Tensor:
        """[B] f_c of some subgraphs; `closed` with all interactions among their nodes."""
        self.meter.calls += len(subgraphs)
        M = self.around.size
        in_BM, edge_BMM = torch.zeros(len(subgraphs), M), torch.zeros(len(subgraphs), M, M)
        for b, s in enumerate(subgraphs):
            in_BM[b, sorted(s.nodes)] = 1.0
            for i, j in s.edges:
                edge_BMM[b, i, j] = edge_BMM[b, j, i] = 1.0
        if closed:
            edge_BMM = self.around.linked_MM * in_BM[:, :, None] * in_BM[:, None, :]
        logits = self.f(self.around.node_M, self.around.x_M, in_BM, edge_BMM)
        return torch.softmax(logits, -1)[:, self.around.label]

    def interacts(self, edge: Edge) -> bool:
        return bool(self.around.linked_MM[edge])

    def reward_of(self, subgraph: Subgraph) -> float:
        """R of the subgraph; edges ahead are drawn from the generator."""
        n = self.reward.rollouts if self.reward.ahead else 0
        with torch.no_grad():
            ahead = [
                subgraph.with_edge(edge) for edge, _ in (self.propose([subgraph] * n) if n else [])
            ]
        q = self.belief([subgraph, *ahead]) - 1 / self.f.last.out_features
        valid = all(self.interacts(e) for e in subgraph.edges)
        return process_reward(float(q[0]), q[1:].tolist(), valid, self.reward)

    # ---- the generator

    def logits(self, subgraphs: Sequence[Subgraph]) -> Tensor:
        """[B, M, 32] what the generator makes of each node."""
        in_BM1 = torch.zeros(len(subgraphs), self.around.size, 1)
        for b, s in enumerate(subgraphs):
            in_BM1[b, sorted(s.nodes)] = 1.0
        fixed = self.fixed_MF.expand(len(subgraphs), *self.fixed_MF.shape)
        return self.policy.encode(torch.cat([in_BM1, fixed], -1), self.around.linked_MM)

    def propose(self, subgraphs: Sequence[Subgraph]) -> list[tuple[Edge, Tensor]]:
        """An edge for each subgraph, and log pi(a) + log pi(b | a): the start a among the nodes of the
        subgraph, the end b among all nodes but a and those that a is linked with in the subgraph.
        """
        h = self.logits(subgraphs)
        start = masked_log_softmax(
            self.policy.start_logits(h), starts_of(subgraphs, self.around.size)
        )
        a_B = self._draw(start)
        others = ends_of(subgraphs, a_B.tolist(), self.around.size)
        end = masked_log_softmax(self.policy.end_logits(h, a_B, self.around.linked_MM), others)
        b_B = self._draw(end)
        logp_B = start.gather(1, a_B[:, None])[:, 0] + end.gather(1, b_B[:, None])[:, 0]
        return [((int(a), int(b)), logp) for a, b, logp in zip(a_B, b_B, logp_B, strict=True)]

    def _draw(self, logp_BM: Tensor) -> Tensor:
        return torch.multinomial(logp_BM.detach().exp(), 1, generator=self.chance)[:, 0]

    @torch.no_grad()
    def first_edges(self) -> Tensor:
        """[seeds, M] the probability of each first edge."""
        begin, M = self.begin, self.around.size
        h = self.logits([begin])
        start = masked_log_softmax(self.policy.start_logits(h), starts_of([begin], M))[0].exp()
        rows = list[Tensor]()
        for a in sorted(begin.nodes):
            others = ends_of([begin], [a], M)
            end = masked_log_softmax(
                self.policy.end_logits(h, torch.tensor([a]), self.around.linked_MM), others
            )
            rows.append(start[a] * end[0].exp())
        return torch.stack(rows)

    # ---- training and drawing

    def train(self, epochs: int, edges: int, lr: float) -> None:
        """REINFORCE after every step: loss = -(R - baseline) (log pi(a) + log pi(b)). The step counts only
        if R > 0, else the next one begins at the old subgraph.
        """
        optimiser = torch.optim.Adam(self.policy.parameters(), lr=lr, betas=(0.9, 0.99))
        base = 0.0
        for _ in range(epochs):
            state = self.begin
            for _ in range(edges):
                ((edge, logp),) = self.propose([state])
                self._count([edge])
                R = self.reward_of(state.with_edge(edge))
                self._update(optimiser, step_loss(R - base, logp, self.sign))
                base += self.baseline * (R - base)
                if R > 0:
                    state, self.meter.accepted = state.with_edge(edge), self.meter.accepted + 1

    def train_on_outcome(self, epochs: int, edges: int, lr: float) -> None:
        """REINFORCE after the last step alone: q of the whole subgraph is the reward of each of its edges, of
        which those that do not interact are left out.
        """
        optimiser = torch.optim.Adam(self.policy.parameters(), lr=lr, betas=(0.9, 0.99))
        for _ in range(epochs):
            state, total = self.begin, torch.zeros(())
            for _ in range(edges):
                ((edge, logp),) = self.propose([state])
                self._count([edge])
                total = total + logp
                state = state.with_edge(edge) if self.interacts(edge) else state
            R = float(self.belief([state])[0]) - 1 / self.f.last.out_features
            self._update(optimiser, step_loss(R, total, self.sign))

    def _update(self, optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    def _count(self, edges: Sequence[Edge]) -> None:
        self.meter.proposed += len(edges)
        self.meter.interacting += sum(map(self.interacts, edges))

    @torch.no_grad()
    def draw(self, draws: int, edges: int, check: bool = True) -> list[Subgraph]:
        """Subgraphs by the generator; with `check` edges that do not interact are left out."""
        states = [self.begin] * draws
        for _ in range(edges):
            proposed = [edge for edge, _ in self.propose(states)]
            self._count(proposed)
            states = [
                s.with_edge(e) if self.interacts(e) or not check else s
                for s, e in zip(states, proposed, strict=True)
            ]
        return states

    def walk(self, draws: int, edges: int) -> list[Subgraph]:
        """Subgraphs by chance: each step adds an interaction of a node in the subgraph, all alike."""
        made = list[Subgraph]()
        for _ in range(draws):
            state = self.begin
            for _ in range(edges):
                near = torch.nonzero(self.around.linked_MM[sorted(state.nodes)])
                if not len(near):
                    break
                row, b = near[int(torch.randint(len(near), (1,), generator=self.chance))].tolist()
                edge = (sorted(state.nodes)[row], b)
                state = state.with_edge(edge)
            made.append(state)
        return made

    def best(self, subgraphs: Sequence[Subgraph]) -> tuple[Subgraph, float]:
        """The one that the reward model believes most, with all interactions among its nodes, and its
        belief.
        """
        belief_B = self.belief(subgraphs, closed=True)
        at = int(belief_B.argmax())
        return self.close(subgraphs[at]), float(belief_B[at])

    def close(self, subgraph: Subgraph) -> Subgraph:
        """The subgraph with all interactions among its nodes, and no other edges."""
        nodes = sorted(subgraph.nodes)
        edges = [(i, j) for i in nodes for j in nodes if i < j and self.interacts((i, j))]
        return replace(subgraph, edges=frozenset(edges))


def process_reward(q: float, ahead: Sequence[float], valid: bool, reward: GraphReward) -> float:
    """R from the q of a subgraph and those of the subgraphs with one more edge; see `GraphReward`."""
    mean = sum(ahead) / len(ahead) if ahead else 0.0
    return q + reward.ahead * mean - reward.valid * (not valid)


def step_loss(R: float, logp: Tensor, sign: float = 1.0) -> Tensor:
    """-R log pi, or with sign -1 the released form, which lowers the probability of what is rewarded."""
    return -sign * R * logp


def starts_of(subgraphs: Sequence[Subgraph], size: int) -> Tensor:
    """[B, M] whether a node is in the subgraph."""
    mask = torch.zeros(len(subgraphs), size, dtype=torch.bool)
    for b, s in enumerate(subgraphs):
        mask[b, sorted(s.nodes)] = True
    return mask


def ends_of(subgraphs: Sequence[Subgraph], starts: Sequence[int], size: int) -> Tensor:
    """[B, M] whether a node may be the end of the next edge: not its start, and not linked with that; where
    this leaves none, all but the start.
    """
    mask = torch.ones(len(subgraphs), size, dtype=torch.bool)
    for b, (s, a) in enumerate(zip(subgraphs, starts, strict=True)):
        known = {j for edge in s.edges if a in edge for j in edge} - {a}
        mask[b, [a, *(known if len(known) < size - 1 else ())]] = False
    return mask


def masked_log_softmax(logit_BM: Tensor, allowed_BM: Tensor) -> Tensor:
    """log softmax over what is allowed; -inf elsewhere."""
    return torch.log_softmax(logit_BM.masked_fill(~allowed_BM, -torch.inf), -1)

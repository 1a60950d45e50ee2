"""A graph of facts (head, relation, tail), and the chains of relations that lead from one entity to
others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from functools import cached_property
from typing import TypeAlias

from palaestra.errors import UserError
from palaestra.types import stage

Triple: TypeAlias = tuple[str, str, str]  # head, relation, tail
RelationPath: TypeAlias = tuple[str, ...]  # relations that are followed one after the other
INVERSE = "^-1"  # behind a relation that is followed from tail to head
MOST_REACHED = 20_000  # entities that a search for paths visits


def plain_name(name: str) -> str:
    """How a name is compared: without case, and with single spaces."""
    return " ".join(name.split()).casefold()


@stage
class TripleGraph:
    """Facts, in the order in which they were given. Names are compared without case.

    A relation with "^-1" behind it is followed backwards: of (Bako, boss, Tiru) the neighbour of
    Tiru by "boss^-1" is Bako.

    Raises:
        UserError: there is no fact, or a name is empty.
    """

    triples: tuple[Triple, ...]

    def __post_init__(self) -> None:
        if not self.triples or not all(name.strip() for t in self.triples for name in t):
            raise UserError("a graph takes facts (head, relation, tail), with no empty name")

    def __repr__(self) -> str:
        digest = hashlib.sha256(repr(self.triples).encode()).hexdigest()[:12]
        return f"TripleGraph({len(self.triples)} triples, {digest})"

    @cached_property
    def entities(self) -> dict[str, str]:
        """The entities as they are written, by their plain names."""
        return {plain_name(e): e for h, _, t in reversed(self.triples) for e in (t, h)}

    @cached_property
    def relations(self) -> dict[str, str]:
        """The relations as they are written, by their plain names, those backwards included."""
        forward = {plain_name(r): r for _, r, _ in self.triples}
        return forward | {plain_name(r + INVERSE): r + INVERSE for r in forward.values()}

    @cached_property
    def edges(self) -> dict[str, dict[str, tuple[str, ...]]]:
        """By the plain names of an entity and a relation, the plain names of its neighbours."""
        neighbours: dict[str, dict[str, dict[str, None]]] = {}
        for head, relation, tail in self.triples:
            for a, r, b in ((head, relation, tail), (tail, relation + INVERSE, head)):
                by_relation = neighbours.setdefault(plain_name(a), {})
                by_relation.setdefault(plain_name(r), {})[plain_name(b)] = None
        return {e: {r: tuple(x) for r, x in of.items()} for e, of in neighbours.items()}

    def neighbours(
        self, entity: str, relation: str, added: Collection[Triple] = ()
    ) -> tuple[str, ...]:
        """The entities that a relation leads to, those of the `added` facts behind them."""
        e, r = plain_name(entity), plain_name(relation)
        entities = {x: self.entities[x] for x in self.edges.get(e, {}).get(r, ())}
        if added:
            more = TripleGraph(tuple(added)).neighbours(entity, relation)
            entities = {plain_name(x): x for x in more} | entities
            entities = {
                x: entities[x] for x in sorted(entities, key=lambda x: x not in self.entities)
            }
        return tuple(entities.values())

    def relations_of(self, entity: str) -> tuple[str, ...]:
        """The relations that an entity has, those backwards included."""
        return tuple(self.relations[r] for r in self.edges.get(plain_name(entity), {}))

    def follow(self, starts: Iterable[str], path: RelationPath) -> frozenset[str]:
        """The plain names of the entities at the end of a chain of relations."""
        at = frozenset(map(plain_name, starts))
        for relation in map(plain_name, path):
            at = frozenset(b for a in at for b in self.edges.get(a, {}).get(relation, ()))
        return at

    def paths(
        self, starts: Iterable[str], goals: Iterable[str], hops: int = 3, most: int = 8
    ) -> tuple[RelationPath, ...]:
        """Chains of at most `hops` relations from some of `starts` to some of `goals`, by a search
        in breadth: the shortest first, `most` of them. No step of a chain undoes the one before.
        """
        begin, wanted = frozenset(map(plain_name, starts)), frozenset(map(plain_name, goals))
        level: dict[RelationPath, frozenset[str]] = {(): begin}
        chains, reached = list[RelationPath](), 0
        for _ in range(hops):
            longer: dict[RelationPath, frozenset[str]] = {}
            for path, at in level.items():
                back = plain_name(inverse_of(path[-1])) if path else ""
                by_relation: dict[str, set[str]] = {}
                for a in at:
                    for r, ends in self.edges.get(a, {}).items():
                        if r != back:
                            by_relation.setdefault(r, set()).update(ends)
                for r, ends in by_relation.items():
                    reached += len(ends)
                    if reached > MOST_REACHED:
                        return tuple(chains[:most])
                    extended = (*path, self.relations[r])
                    longer[extended] = frozenset(ends)
                    if ends & wanted:
                        chains.append(extended)
            if len(chains) >= most:
                break
            level = longer
        return tuple(chains[:most])


def inverse_of(relation: str) -> str:
    """The same relation the other way round."""
    return relation.removesuffix(INVERSE) if relation.endswith(INVERSE) else relation + INVERSE

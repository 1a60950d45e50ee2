"""T-graph: questions over the facts of a made-up wiki, a share of which stands only in its pages.

user: host of boss of bako?        the graph      (bako, boss, tiru)
                                   a page         tiru: host of tiru is mema.        answer: mema
"""

from __future__ import annotations

from dataclasses import replace

from palaestra.declared import declare
from palaestra.services.triples import Triple
from palaestra.toys.wiki import WikiTasks, wiki
from palaestra.types import Task, rng_of, stage


@declare(
    columns=(
        "path",
        "entity",
        ("relations", tuple, "the chain of relations that leads to the answer"),
    )
)
@stage
class GraphTasks:
    """Questions of `hops` relations in a row, see `WikiTasks`.

    Args:
        hops: at least, at most.
        pages: facts, in fours, one for each relation of somebody.
        missing: the share of the facts that only documents have.
        seed: of the facts.
    """

    hops: tuple[int, int] = (1, 2)
    pages: int = 120
    missing: float = 0.2
    seed: int = 0
    name: str = "graph"
    size: int | None = None

    def triples(self) -> tuple[Triple, ...]:
        """The facts of the graph."""
        return tuple(f for f in self.facts() if not self._lacks(f))

    def missing_triples(self) -> tuple[Triple, ...]:
        """The facts that only documents have."""
        return tuple(f for f in self.facts() if self._lacks(f))

    def documents(self) -> tuple[tuple[str, str], ...]:
        """The pages of what the graph lacks, (id, text)."""
        return tuple(
            (f"{who}/{way}", f"{who}: {way} of {who} is {whom}.")
            for who, way, whom in self.missing_triples()
        )

    def facts(self) -> tuple[Triple, ...]:
        """All facts."""
        people = wiki(self.pages, self.seed)
        return tuple((who, way, whom) for who, own in people.items() for way, whom in own.items())

    def task(self, split: str, index: int) -> Task:
        asked = WikiTasks(self.hops, None, self.pages, self.seed, self.name, self.size)
        task = asked.task(split, index)
        ways = tuple(query.partition(" ")[0] for query in task.meta["queries"])
        path = task.meta["path"]
        return replace(task, meta={"path": path, "entity": path[0], "relations": ways})

    def _lacks(self, fact: Triple) -> bool:
        return bool(rng_of(("graph", self.seed, *fact)).random() < self.missing)

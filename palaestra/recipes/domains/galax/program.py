"""Subgraphs of held-out samples by several arms, and how many of their nodes are targets."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch

import palaestra as pl
from palaestra.recipes.domains.galax.graphs import (
    CaseFile,
    InteractionGraph,
    SubgraphCase,
    known_nodes,
    listed_names,
    planted,
    read_cases,
    read_graph,
    shuffle,
)
from palaestra.recipes.domains.galax.networks import (
    SubgraphClassifier,
    Surroundings,
    classify_case,
    random_subgraph,
    surroundings,
    train_classifier,
)
from palaestra.recipes.domains.galax.rollouts import (
    GraphReward,
    Subgraph,
    SubgraphMeter,
    SubgraphSearch,
)

Arm = Literal["guide", "none", "top", "outcome", "unchecked", "baseline", "published", "shuffled"]
ARMS: tuple[Arm, ...] = (
    "none", "top", "outcome", "unchecked", "guide", "baseline", "published", "shuffled"
)  # fmt: skip
RATE = 0.1  # of the running mean that the arm "baseline" subtracts
SHOWN = 10  # nodes of the largest values that a language model reads
CHECKED = 200  # random subgraphs that the reward model is checked on
FIRST = (
    "A sample of class {label} has these nodes of a network with its largest values, in standard deviations, and "
    "their neighbours:\n{top}\n\nWhich nodes are likely to matter for this class? Reply with a JSON list of up to "
    "{k} names."
)
LAST = (
    "A sample of class {label} has these nodes of a network with its largest values:\n{top}\n\n{subgraph}Which nodes "
    "are its targets? Reply with a JSON list of up to {k} names, the most likely first."
)


@pl.stage
class BuildSubgraphs:
    """A program: trains the reward model on random subgraphs of training samples, then builds a subgraph for
    each held-out sample in every arm.

    Args:
        graph, samples: files; "" = the planted graph.
        asked: a language model that names the first nodes and writes the final list; None = nobody does.
        reward: the process reward.
        arms: which are run beside "guide" and "none".
        tasks: held-out samples.
        seeds: nodes of the largest values that a search begins with, where a sample and the model name none.
        edges: steps of a subgraph.
        epochs: subgraphs that a generator is trained on; 0 = it is not trained.
        lr: its learning rate.
        draws: subgraphs that are drawn after training, of which the one is kept that the reward model believes
            most.
        most: nodes around a sample.
        updates: of the reward model.
        k: names in a list of the language model.
    """

    graph: str = ""
    samples: str = ""
    asked: pl.Source | None = None
    reward: GraphReward = GraphReward()
    arms: tuple[Arm, ...] = ARMS
    tasks: int = 8
    seeds: int = 3
    edges: int = 14
    epochs: int = 12
    lr: float = 1e-2
    draws: int = 10
    most: int = 60
    updates: int = 200
    k: int = 10
    smallest: ClassVar[Mapping[str, float]] = {
        "tasks": 1,
        "edges": 3,
        "epochs": 2,
        "draws": 2,
        "updates": 4,
    }

    def __post_init__(self) -> None:
        if bool(self.graph) != bool(self.samples):
            raise pl.UserError("galax needs both: graph=EDGES.csv samples=SAMPLES.csv")
        if (
            min(self.tasks, self.seeds, self.edges, self.draws, self.updates, self.k) < 1
            or self.most < 4
        ):
            raise pl.UserError(
                "galax: tasks, seeds, edges, draws, updates and k are 1 or more, and most 4 or more"
            )
        if unknown := sorted({*self.arms} - {*ARMS}):
            raise pl.UserError(f"galax has no arm {unknown[0]!r}; arms are {', '.join(ARMS)}")

    async def run(self, ctx: pl.Context) -> pl.Result:
        if self.graph:
            graph, notes = read_graph(self.graph)
            file = shuffle(read_cases(self.samples, graph), ctx.seed)
        else:
            (graph, file), notes = planted(seed=ctx.seed), ()
        for note in (*notes, *file.notes):
            ctx.say(note)
        setting = SubgraphSetting(self, ctx, graph, file)
        await setting.ask_first()
        names: list[Arm] = [a for a in ARMS if a in {*self.arms, "none", "guide"}]
        runs = [setting.arm(name) for name in names]
        results = await pl.control.compare_arms(ctx, dict(zip(names, runs, strict=True)))
        setting.say_unread()
        own = results["guide"]
        ctx.spend("forwards", sum(r["gnn_calls"] for r in results.values()))
        ctx.log(
            {"arm": "guide", **{k: own[k] for k in ("moved", "precision", "belief") if k in own}}
        )
        answers = ("answer", "answer_recall", "answer_bare", "answer_bare_recall")
        columns = ("precision", "recall", "belief", "moved", "valid", *answers)
        return pl.Result(
            metrics={
                **{k: own[k] for k in columns if k in own},
                **(
                    {"gain": own["precision"] - results["none"]["precision"]}
                    if "precision" in own
                    else {}
                ),
                "classifier": setting.accuracy(),
                "arms": dict(results),
                "sampled_tokens": 0,
            },
            artifacts={} if ctx.out is None else {"subgraphs": str(ctx.out / "subgraphs.md")},
        )


@dataclass
class SubgraphSetting:
    """What the arms of a run share."""

    program: BuildSubgraphs
    ctx: pl.Context
    graph: InteractionGraph
    file: CaseFile

    def __post_init__(self) -> None:
        self.key: pl.Key = ("galax", self.ctx.seed)
        self.models = {False: self._classifier(False)}
        held = self.file.part(True)
        self.cases = held[: self.program.tasks]
        if len(held) > len(self.cases):
            self.ctx.say(
                f"{len(self.cases)} of {len(held)} held-out samples are searched; tasks={len(held)} searches all"
            )
        self.text: list[str] = []
        self.replies, self.unread = 0, 0
        self.first: list[list[int]] = [[] for _ in self.cases]
        self.ctx.say(
            f"the reward model tells {self.accuracy():.0%} of random subgraphs of held-out samples apart, among "
            f"{len(self.file.classes)} classes"
        )

    def _classifier(self, shuffled: bool) -> SubgraphClassifier:
        known = self.file.part(False)
        return train_classifier(
            self.graph, known, len(self.file.classes), self.program.updates, self.key, shuffled
        )

    def accuracy(self) -> float:
        """Of the reward model, on random subgraphs of held-out samples."""
        rng, right = pl.rng_of((*self.key, "check")), 0
        held = self.file.part(True)
        for i in range(CHECKED):
            case = held[i % len(held)]
            nodes = random_subgraph(self.graph, case, 12, rng)
            right += (
                int(classify_case(self.models[False], self.graph, case, nodes).argmax())
                == case.label
            )
        return right / CHECKED

    def arm(self, name: Arm) -> pl.control.ArmRun:
        """What `compare_arms` runs."""

        async def run() -> Mapping[str, Any]:
            known = zip(self.cases, self.first, strict=True)
            measures = [await self.measure(name, case, first) for case, first in known]
            means = {
                k: float(np.mean([m[k] for m in measures if k in m]))
                for k in sorted({k for m in measures for k in m})
            }
            means["gnn_calls"] = int(sum(m["gnn_calls"] for m in measures))
            if name == "guide" and self.ctx.out is not None:
                (self.ctx.out / "subgraphs.md").write_text(
                    "\n".join(self.text) + "\n", encoding="utf-8"
                )
            return means

        return run

    async def measure(
        self, name: Arm, case: SubgraphCase, first: Sequence[int] = ()
    ) -> dict[str, float]:
        """One arm on one sample, from the `first` nodes of the language model. "moved" is the total variation
        between the probabilities of first edges before and after training.
        """
        program = self.program
        around = surroundings(self.graph, case, program.seeds, program.most, tuple(first))
        search = self.search(name, around, case)
        before = search.first_edges()
        train(search, name, program)
        moved = 0.5 * float((search.first_edges() - before).abs().sum())
        if name == "top":
            chosen = torch.argsort(-around.x_M)[: program.edges]
            subgraphs = [Subgraph(frozenset(chosen.tolist()))]
        elif name == "none":
            subgraphs = search.walk(program.draws, program.edges)
        else:
            subgraphs = search.draw(program.draws, program.edges, check=name != "unchecked")
        subgraph, belief = search.best(subgraphs)
        nodes = [int(around.node_M[i]) for i in sorted(subgraph.nodes)]
        numbers = {
            "belief": belief,
            "moved": moved,
            "nodes": len(nodes),
            **rates(nodes, case.targets),
        }
        numbers |= meter_numbers(search.meter)
        if name == "guide":
            self.text += self.describe(case, around, subgraph, belief)
        if name == "guide" and program.asked is not None:
            numbers |= await self.final_lists(case, around, subgraph)
        return numbers

    def search(self, name: Arm, around: Surroundings, case: SubgraphCase) -> SubgraphSearch:
        if name == "shuffled" and True not in self.models:
            self.models[True] = self._classifier(True)
        reward = self.program.reward
        return SubgraphSearch(
            around,
            self.models[name == "shuffled"],
            replace(reward, valid=0.0) if name == "unchecked" else reward,
            (*self.key, name, case.name),
            sign=-1.0 if name == "published" else 1.0,
            baseline=RATE if name == "baseline" else 0.0,
        )

    # ---- the language model

    async def ask_first(self) -> None:
        """Asks the language model once for the first nodes of each sample, with which all arms begin."""
        if self.program.asked is not None:
            ask = lambda: asyncio.gather(*map(self.first_nodes, self.cases))
            self.first = await self.ctx.once("first-nodes", ask)

    async def first_nodes(self, case: SubgraphCase) -> list[int]:
        """The nodes that the language model names from the largest values."""
        label = self.file.classes[case.label]
        question = FIRST.format(label=label, top=self._top(case), k=self.program.k)
        return known_nodes(await self._ask(question), self.graph.names)

    async def final_lists(
        self, case: SubgraphCase, around: Surroundings, subgraph: Subgraph
    ) -> dict[str, float]:
        """Precision and recall of the language model's final list with the subgraph, and without it. A name that
        is no node counts as a wrong one.
        """
        edges = "\n".join(self._edges(around, subgraph))
        found_text = f"A subgraph that was found for it:\n{edges}\n\n"
        label, top, k = self.file.classes[case.label], self._top(case), self.program.k
        numbers: dict[str, float] = {}
        for name, text in (("answer", found_text), ("answer_bare", "")):
            listed = await self._ask(LAST.format(label=label, top=top, subgraph=text, k=k))
            condition = "with the subgraph" if text else "without it"
            self.text += [f"Named {condition}: {', '.join(listed[:k]) or 'nothing'}", ""]
            shares = rates(known_nodes(listed[:k], self.graph.names), case.targets, len(listed[:k]))
            if shares:
                numbers |= {name: shares["precision"], f"{name}_recall": shares["recall"]}
        return numbers

    async def _ask(self, question: str) -> list[str]:
        """The names of a reply, known or not."""
        assert self.program.asked is not None
        source = pl.services.TranscribedSource(self.program.asked)
        listed = listed_names(await self.ctx.ask(source, question), self.graph.names)
        self.replies += 1
        self.unread += not known_nodes(listed, self.graph.names)
        return listed

    def say_unread(self) -> None:
        """Says how many replies named no node, so that nothing was learned from them."""
        if self.unread:
            self.ctx.say(
                f"{self.unread} of {self.replies} replies of the language model name no node of the graph; without "
                "first nodes a search begins at the largest values"
            )

    def _top(self, case: SubgraphCase) -> str:
        lines = list[str]()
        for i in np.argsort(-case.signal_N, kind="stable")[:SHOWN]:
            near = [self.graph.names[int(j)] for j in np.flatnonzero(self.graph.linked_NN[i])[:8]]
            lines.append(f"{self.graph.names[int(i)]} {case.signal_N[i]:.1f}: {', '.join(near)}")
        return "\n".join(lines)

    def _edges(self, around: Surroundings, subgraph: Subgraph) -> list[str]:
        """The relations of a subgraph's edges, one a line."""
        names, lines = self.graph.names, list[str]()
        for i, j in sorted(subgraph.edges):
            a, b = sorted((int(around.node_M[i]), int(around.node_M[j])))
            lines += [f"{names[x]} {how} {names[y]}" for x, how, y in self.graph.relations[a, b]]
        return lines

    def describe(
        self, case: SubgraphCase, around: Surroundings, subgraph: Subgraph, belief: float
    ) -> list[str]:
        """A subgraph as a list in Markdown, targets in bold where they are known."""
        nodes = [int(around.node_M[i]) for i in sorted(subgraph.nodes)]
        names = [
            f"**{self.graph.names[n]}**" if n in case.targets else self.graph.names[n]
            for n in nodes
        ]
        label = self.file.classes[case.label]
        head = [
            f"## {case.name}",
            "",
            f"Class {label}, believed with {belief:.2f}: {', '.join(names)}",
            "",
        ]
        return [*head, *(f"- {line}" for line in self._edges(around, subgraph)), ""]


def train(search: SubgraphSearch, name: Arm, program: BuildSubgraphs) -> None:
    """Trains the generator of an arm, where it has one."""
    if name == "outcome":
        search.train_on_outcome(program.epochs, program.edges, program.lr)
    elif name not in ("none", "top"):
        search.train(program.epochs, program.edges, program.lr)


def rates(nodes: Sequence[int], targets: frozenset[int], n_listed: int = 0) -> dict[str, float]:
    """Precision and recall of nodes, which are those of `n_listed` names where these are more; nothing where no
    targets are known.
    """
    if not targets:
        return {}
    hits, n = len(targets & {*nodes}), max(n_listed, len({*nodes}))
    return {"precision": hits / n if n else 0.0, "recall": hits / len(targets)}


def meter_numbers(meter: SubgraphMeter) -> dict[str, float]:
    numbers: dict[str, float] = {"gnn_calls": meter.calls}
    if meter.proposed:
        numbers |= {"valid": meter.interacting / meter.proposed}
    return numbers

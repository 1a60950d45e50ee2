"""The user's graph and samples: files, and a planted graph whose targets are known."""

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import palaestra as pl

HEADS = ("head", "source", "from", "subject", "node1", "gene1", "protein1")
TAILS = ("tail", "target", "to", "object", "node2", "gene2", "protein2")
RELATIONS = ("relation", "predicate", "type", "interaction", "label")
LABELS, TARGETS, SEEDS = ("label", "class", "disease"), ("targets",), ("seeds", "nodes")
OTHERS = (*LABELS, *TARGETS, *SEEDS, "split", "signal", "id")  # columns that are no values of nodes
BLANK = ("", "nan", "na", "n/a", "null", "none", "-")  # texts of a cell without a value
SPLITS = {
    **dict.fromkeys(("", "train", "training"), False),
    **dict.fromkeys(
        ("test", "testing", "valid", "validation", "val", "dev", "held_out", "held-out"), True
    ),
}  # which words of a column `split` hold a sample out
HELD_OUT = 5  # one sample in so many, where no column `split` says which
Fact = tuple[int, str, int]  # from a node, a relation, to a node
BETWEEN = re.compile(r"[;|,]")


@dataclass(frozen=True)
class InteractionGraph:
    """The reference graph: names, whether two nodes interact [N, N], and by both numbers, the smaller one first,
    how: each fact (from, relation, to), with its direction.
    """

    names: tuple[str, ...]
    linked_NN: np.ndarray
    relations: Mapping[tuple[int, int], tuple[Fact, ...]]


@dataclass(frozen=True)
class SubgraphCase:
    """A sample: a value of each node [N], its class, the nodes that should be found, where they are
    known, and those that the search begins at, where they are given.
    """

    name: str
    signal_N: np.ndarray
    label: int
    targets: frozenset[int] = frozenset()
    seeds: tuple[int, ...] = ()
    held_out: bool = False


@dataclass(frozen=True)
class CaseFile:
    """Samples with the names of their classes, and what was left out of the files."""

    cases: tuple[SubgraphCase, ...]
    classes: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def part(self, held_out: bool) -> list[SubgraphCase]:
        return [c for c in self.cases if c.held_out == held_out]


def read_graph(path: str) -> tuple[InteractionGraph, tuple[str, ...]]:
    """A file of edges, and what is said of it. Lines head<TAB>relation<TAB>tail, or records with two columns
    of nodes (source and target, head and tail, ...) and perhaps one of the relation. Edges have no direction;
    relations keep theirs, for what is told and printed.

    Raises:
        UserError: an edge lacks a node, or there is none.
    """
    edges = _triples(path) if Path(path).suffix.lower() in (".tsv", ".txt") else None
    edges = _records(path) if edges is None else edges
    own = sum(a == b for a, _, b in edges)
    names = tuple(dict.fromkeys(n for a, _, b in edges for n in (a, b)))
    number = {n: i for i, n in enumerate(names)}
    linked_NN, relations = (
        np.zeros((len(names), len(names)), bool),
        dict[tuple[int, int], tuple[Fact, ...]](),
    )
    for a, relation, b in edges:
        i, j = number[a], number[b]
        if i != j:
            linked_NN[i, j] = linked_NN[j, i] = True
            pair, fact = (min(i, j), max(i, j)), (i, relation, j)
            relations[pair] = tuple(dict.fromkeys([*relations.get(pair, ()), fact]))
    if not relations:
        raise pl.UserError(
            f"{path}: no edge between two different nodes; write one a row, source,target"
        )
    merged = len(edges) - own - len(relations)
    notes = (
        f"{path}: {len(names)} nodes, {len(relations)} edges",
        *(
            [f"{merged} rows name a pair that another one names; each pair is one edge"]
            if merged
            else []
        ),
    )
    return InteractionGraph(names, linked_NN, relations), (
        *notes,
        *([f"{own} edges from a node to itself are left out"] if own else []),
    )


def _triples(path: str) -> list[tuple[str, str, str]] | None:
    """The facts of a file of lines; None where it has a header of other columns."""
    try:
        return list(pl.tasks.read_triples(path))
    except pl.UserError:
        if Path(path).suffix.lower() == ".txt":
            raise
        return None


def _records(path: str) -> list[tuple[str, str, str]]:
    edges = list[tuple[str, str, str]]()
    for records in pl.tasks.open_records(path).values():
        for i, row in enumerate(records):
            lower = {str(k).strip().casefold(): v for k, v in row.items()}
            ends = [next((lower[n] for n in names if n in lower), None) for names in (HEADS, TAILS)]
            if any(_is_blank(x) for x in ends):
                raise pl.UserError(
                    f"{records.where(i)}: no edge; it needs two nodes, in columns such as source and target, and has "
                    f"{', '.join(map(str, row))}"
                )
            kind = next(
                (lower[n] for n in RELATIONS if not _is_blank(lower.get(n))), "interacts with"
            )
            edges.append((str(ends[0]).strip(), str(kind).strip(), str(ends[1]).strip()))
    return edges


def read_cases(path: str, graph: InteractionGraph) -> CaseFile:
    """The samples of a file: `label` (or class, disease), the values of nodes in a record `signal` or in columns
    of their names, and perhaps `targets`, `seeds` and `split`. Values are put in standard deviations from the
    mean over training samples.

    Raises:
        UserError: a sample has no label, no value or one that is no number, or a split has one class.
    """
    number, cases, classes = (
        {n: i for i, n in enumerate(graph.names)},
        list[SubgraphCase](),
        list[str](),
    )
    unknown, splits, columns = set[str](), list[str](), set[str]()
    for records in pl.tasks.open_records(path).values():
        for i, row in enumerate(records):
            lower = {str(k).strip().casefold(): v for k, v in row.items()}
            label = next((lower[n] for n in LABELS if not _is_blank(lower.get(n))), None)
            if label is None:
                raise pl.UserError(
                    f"{records.where(i)}: no class; give each sample a column `label`"
                )
            name = str(label).strip()
            classes += [] if name in classes else [name]
            signal = row.get("signal")
            columns |= {str(k) for k in row}
            values = (
                signal
                if isinstance(signal, Mapping)
                else {k: v for k, v in row.items() if k in number}
            )
            splits.append(_split(lower.get("split"), records.where(i)))
            case = SubgraphCase(
                name=str(lower.get("id") or records.label(i)),
                signal_N=_signal(values, number, unknown, records.where(i)),
                label=classes.index(name),
                targets=frozenset(_nodes(lower, TARGETS, number, unknown)),
                seeds=tuple(_nodes(lower, SEEDS, number, unknown)),
            )
            cases.append(case)
    columns -= {c for c in columns if c.strip().casefold() in OTHERS}
    held = [SPLITS[s] for s in splits]
    if not any(splits):
        order = np.random.default_rng(0).permutation(len(cases))
        held = [bool(order[i] % HELD_OUT == 0) for i in range(len(cases))]
    file = CaseFile(
        tuple(replace(c, held_out=h) for c, h in zip(cases, held, strict=True)),
        tuple(classes),
        (
            *(
                [f"{len(unknown)} names of samples are no node: {_some(unknown)}"]
                if unknown
                else []
            ),
            *_without_values(cases, graph, columns - number.keys()),
        ),
    )
    return standardise(check_cases(file, path))


def check_cases(file: CaseFile, path: str) -> CaseFile:
    """The same samples. Raises UserError where there is nothing to tell apart, or to measure."""
    trained, held = ({c.label for c in file.part(h)} for h in (False, True))
    if len(file.classes) < 2 or len(trained) < len(file.classes) or not held:
        raise pl.UserError(
            f"{path}: training samples have {len(trained)} of {len(file.classes)} classes, and {len(file.part(True))} "
            "samples are held out; it needs two classes or more, each in training, and a held-out sample"
        )
    return file


def standardise(file: CaseFile) -> CaseFile:
    """Each node's values less the training mean, over the training deviation, of the values that there are. A
    value that is not there (NaN) becomes 0, the mean.
    """
    known = np.stack([c.signal_N for c in file.part(False)])
    there = np.isfinite(known)
    n_N = np.maximum(there.sum(0), 1)
    mean_N = np.where(there, known, 0.0).sum(0) / n_N
    std_N = np.sqrt((np.where(there, known - mean_N, 0.0) ** 2).sum(0) / n_N)
    scale = lambda x_N: np.nan_to_num((x_N - mean_N) / np.where(std_N > 0, std_N, 1.0), nan=0.0)
    return replace(file, cases=tuple(replace(c, signal_N=scale(c.signal_N)) for c in file.cases))


def shuffle(file: CaseFile, seed: int) -> CaseFile:
    """The same samples in an order of the seed, so that the first ones are not those of one class or place."""
    order = np.random.default_rng(seed).permutation(len(file.cases))
    return replace(file, cases=tuple(file.cases[int(i)] for i in order))


def _signal(
    values: Mapping[str, Any], number: Mapping[str, int], unknown: set[str], where: str
) -> np.ndarray:
    signal_N, n = np.full(len(number), np.nan), 0
    for name, value in values.items():
        if name not in number:
            unknown.add(name)
        elif str(value).strip().casefold() not in BLANK:
            try:
                signal_N[number[name]] = float(value)
            except (TypeError, ValueError):
                raise pl.UserError(f"{where}: {name} is {value!r}; write a number") from None
            if not math.isfinite(signal_N[number[name]]):
                raise pl.UserError(f"{where}: {name} is {value!r}; write a finite number")
            n += 1
    if not n:
        raise pl.UserError(
            f"{where}: no value of a node of the graph; give columns with the names of nodes, or a record `signal`"
        )
    return signal_N


def _nodes(
    row: Mapping[str, Any], columns: Sequence[str], number: Mapping[str, int], unknown: set[str]
) -> list[int]:
    """The nodes that a column lists: a list, or names with commas, semicolons or bars between them."""
    value = next((row[c] for c in columns if not _is_blank(row.get(c))), None)
    listed = (
        value if isinstance(value, list) else BETWEEN.split(str(value)) if value is not None else []
    )
    names = [str(x).strip() for x in listed if str(x).strip()]
    unknown |= {n for n in names if n not in number}
    return list(dict.fromkeys(number[n] for n in names if n in number))


def _split(value: Any, where: str) -> str:
    """The word of a column `split`, in small letters. Raises UserError for one that is not known."""
    word = "" if _is_blank(value) else str(value).strip().casefold()
    if word not in SPLITS:
        raise pl.UserError(
            f"{where}: split is {value!r}; write train or test, or leave the column out"
        )
    return word


def _without_values(
    cases: Sequence[SubgraphCase], graph: InteractionGraph, columns: set[str]
) -> list[str]:
    """A line about nodes of the graph that have no value in any sample, and columns that are no node."""
    empty_N = np.isnan(np.stack([c.signal_N for c in cases])).all(0) if cases else np.zeros(0, bool)
    nodes = [graph.names[int(i)] for i in np.flatnonzero(empty_N)]
    if not nodes:
        return []
    line = f"{len(nodes)} nodes of the graph have no value in any sample and count as average: {_some(nodes)}"
    return [line + (f"; columns that are no node: {_some(columns)}" if columns else "")]


def _some(names: Collection[str]) -> str:
    return ", ".join(sorted(names)[:5])


def _is_blank(value: Any) -> bool:
    return (
        value is None or (isinstance(value, float) and math.isnan(value)) or not str(value).strip()
    )


def listed_names(reply: str, names: Sequence[str]) -> list[str]:
    """The names that a reply says, known or not, each once: of the last JSON list with a known node behind
    the thinking, or the last one of names, else all known names that stand in the text as whole words or
    phrases, the longer one first where two begin alike.
    """
    text = pl.verifiers.strip_thinking(reply)
    known = {n.casefold() for n in names}
    lists = [
        names_here
        for at in re.finditer(r"\[", text)
        if (names_here := _json_names(text, at.start()))
    ]
    named = [names_here for names_here in lists if known & {x.casefold() for x in names_here}]
    if lists and not named and all(re.search(r"[^\W\d_]", x) for x in lists[-1]):
        named = [lists[-1]]
    listed = named[-1] if named else [m[0] for m in _phrases(tuple(names)).finditer(text)]
    return list({x.casefold(): x for x in listed}.values())


def _json_names(text: str, at: int) -> list[str]:
    """The texts of the JSON list that begins at a place; [] = there is none."""
    try:
        value, _ = json.JSONDecoder().raw_decode(text, at)
    except (ValueError, RecursionError):
        return []
    plain = [str(x).strip() for x in value if isinstance(x, str | int | float)]
    return [x for x in plain if x]


@lru_cache(maxsize=4)
def _phrases(names: tuple[str, ...]) -> re.Pattern[str]:
    """Any of some names, in any case, with no letter, digit or underscore beside it, nor behind a hyphen."""
    longest = sorted(filter(None, names), key=len, reverse=True)
    return re.compile(
        rf"(?<!\w)(?<!\w-)(?:{'|'.join(map(re.escape, longest))})(?!-?\w)", re.IGNORECASE
    )


def known_nodes(listed: Sequence[str], names: Sequence[str]) -> list[int]:
    """The nodes among some names, whatever their case."""
    number = {n.casefold(): i for i, n in enumerate(names)}
    return [number[x.casefold()] for x in listed if x.casefold() in number]


# ---- a planted graph


def planted(
    nodes: int = 80, module: int = 10, samples: int = 240, signal: float = 2.0, seed: int = 0
) -> tuple[InteractionGraph, CaseFile]:
    """A Barabasi-Albert graph (two edges for each new node) with two connected modules. A sample of class c
    has noise of deviation 1 at each node, and `signal` more at four fifths of the nodes of module c. Its
    targets are the whole module, which the search does not see.
    """
    rng = np.random.default_rng(seed)
    linked_NN = np.zeros((nodes, nodes), bool)
    ends = [0, 1]
    linked_NN[0, 1] = linked_NN[1, 0] = True
    for i in range(2, nodes):
        chosen: set[int] = set()
        while len(chosen) < 2:
            chosen.add(int(ends[int(rng.integers(len(ends)))]))
        for j in chosen:
            linked_NN[i, j] = linked_NN[j, i] = True
            ends += [i, j]
    first = _module(linked_NN, module, rng, ())
    modules = (first, _module(linked_NN, module, rng, first))
    cases = list[SubgraphCase]()
    for k in range(samples):
        label = k % 2
        lit_N = np.isin(np.arange(nodes), modules[label]) & (rng.random(nodes) < 0.8)
        x_N = rng.normal(size=nodes) + signal * lit_N
        cases.append(
            SubgraphCase(
                f"sample {k}", x_N, label, frozenset(modules[label]), (), k >= samples * 4 // 5
            )
        )
    names = tuple(f"n{i}" for i in range(nodes))
    pairs = {
        (int(i), int(j)): ((int(i), "interacts with", int(j)),)
        for i, j in zip(*np.nonzero(np.triu(linked_NN)), strict=True)
    }
    return InteractionGraph(names, linked_NN, pairs), standardise(
        CaseFile(tuple(cases), ("first", "second"))
    )


def _module(
    linked_NN: np.ndarray, size: int, rng: np.random.Generator, without: Sequence[int]
) -> tuple[int, ...]:
    """Nodes that hang together, grown from a random one, none of them in `without`."""
    free = [i for i in range(len(linked_NN)) if i not in without]
    for _ in range(1000):
        grown = [int(rng.choice(free))]
        while len(grown) < size:
            near = np.flatnonzero(linked_NN[grown].any(0))
            near = [int(j) for j in near if j not in grown and j not in without]
            if not near:
                break
            grown.append(int(rng.choice(near)))
        if len(grown) == size:
            return tuple(sorted(grown))
    raise pl.UserError(f"galax: the graph has no connected module of {size} nodes; make it larger")

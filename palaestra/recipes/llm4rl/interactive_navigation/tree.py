"""The tree of primitives: each node is one call of a primitive, with what it is expected to bring about."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

import palaestra as pl

ROOT = 0
DEPTH, CHILDREN = 6, 3  # of a tree: calls that are left on a path, and branches of a node
TRIES = 2  # times that a planner is asked about a node that stays without children


@pl.value_class
class PrimitiveCall:
    """A primitive with its arguments, each the name of something."""

    name: str
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.arguments)})"


class NavigationWorld(Protocol):
    """A world with primitives. States and views are values: nothing changes one in place.

    `about` says what it is about; `primitives` has by name of a primitive the types of its arguments. A
    world may have `explore`, the name of a primitive without arguments that is done where no plan
    reaches the goal; `certain = True` where `execute` draws nothing, so that an oracle can search and what
    failed is not planned again; and
    `surprising(state)`, whether a start hides what no view tells.
    """

    @property
    def about(self) -> str: ...
    @property
    def primitives(self) -> Mapping[str, Sequence[str]]: ...

    def reset(self, rng: np.random.Generator) -> Any:
        """A start."""
        ...

    def view(self, state: Any) -> Any:
        """What is known of a state: all that plans may read."""
        ...

    def values(self, view: Any) -> Mapping[str, Sequence[str]]:
        """By type of an argument the names that it may have."""
        ...

    def spell(self, view: Any) -> str:
        """A view in words, for a language model."""
        ...

    def refuse(self, view: Any, name: str, arguments: tuple[str, ...]) -> str:
        """Why a call cannot be done there, as far as is known; "" = it can. Its precondition."""
        ...

    def predict(self, view: Any, name: str, arguments: tuple[str, ...]) -> Any:
        """The view that a call should lead to, where it is not refused."""
        ...

    def execute(
        self, state: Any, name: str, arguments: tuple[str, ...], rng: np.random.Generator
    ) -> tuple[Any, float, bool]:
        """The state after a call, what it cost, and whether it succeeded."""
        ...

    def reached(self, view: Any) -> bool:
        """Whether the goal is."""
        ...


def plain(name: Any) -> str:
    return " ".join(str(name).replace("_", " ").casefold().split())


def banned_calls(
    world: NavigationWorld, failed: Sequence[PrimitiveCall] | set[PrimitiveCall]
) -> set[PrimitiveCall]:
    """Calls that are not planned again: those that failed, in a world where a call that is done again
    goes as before; in others a failure may be chance.
    """
    return set(failed) if getattr(world, "certain", False) else set()


def checked_values(world: NavigationWorld, view: Any) -> Mapping[str, Sequence[str]]:
    """The names that arguments may have. Raises UserError for one that is no text, and for two of a type
    that differ by case, spaces or "_" alone, which a model's spelling could not tell apart.
    """
    values = world.values(view)
    for kind, names in values.items():
        if other := [n for n in names if not isinstance(n, str)]:
            raise pl.UserError(
                f"interactive-navigation: values(view) has {other[0]!r} for {kind!r}, which is no text; "
                f"give str({other[0]!r})"
            )
        known = dict[str, str]()
        for n in names:
            if plain(n) in known:
                raise pl.UserError(
                    f"interactive-navigation: values(view) has {known[plain(n)]!r} and {n!r} for {kind!r}; "
                    "names differ by more than case, spaces and _, and each is there once"
                )
            known[plain(n)] = n
    return values


def predicted(world: NavigationWorld, view: Any, call: PrimitiveCall) -> Any:
    """The view that a call should lead to. Raises UserError where the world's own code ends in an error."""
    try:
        return world.predict(view, call.name, call.arguments)
    except Exception as error:  # of a user's code
        raise pl.UserError(
            f"interactive-navigation: predict(view, {call.name!r}, {call.arguments}) of the world ended in "
            f"{type(error).__name__}: {error}; it is asked of every call that refuse(...) lets pass"
        ) from error


def checked_call(
    world: NavigationWorld, view: Any, name: str, arguments: Sequence[str]
) -> PrimitiveCall:
    """The call that a model names, spelled as the world does. Raises ValueError for an unknown
    primitive, an argument of another type, or a call that cannot be done there.
    """
    known = {plain(n): n for n in world.primitives}
    own = name if name in world.primitives else known.get(plain(name))
    if own is None:
        raise ValueError(f"there is no {name!r}; there are {', '.join(world.primitives)}")
    types = world.primitives[own]
    if len(types) != len(arguments):
        raise ValueError(f"{own} takes {len(types)} arguments, not {len(arguments)}")
    values, spelled = world.values(view), list[str]()
    for kind, argument in zip(types, arguments, strict=True):
        names = {plain(v): v for v in values.get(kind, ())}
        if plain(argument) not in names:
            there = ", ".join(names.values())
            raise ValueError(f"{own}: {argument!r} is no {kind}; there are {there}")
        spelled.append(names[plain(argument)])
    if why := world.refuse(view, own, tuple(spelled)):
        raise ValueError(why)
    return PrimitiveCall(name=own, arguments=tuple(spelled))


@dataclass
class PrimitiveNode:
    """One call. `view` is what it should lead to, None where it cannot be done as things are."""

    number: int
    parent: int
    call: PrimitiveCall
    cost: float
    reason: str = ""
    view: Any = None
    failures: int = 0
    done: bool = False
    empty: int = 0  # times that the planner named no child that can be done


PlanCost: TypeAlias = tuple[float, int]  # what is left to pay, and the node at its end


class PrimitiveTree:
    """Plans that share their beginnings. The root is where things stand; calls that were done stay in
    the tree and cost nothing more, so another branch is still there when one fails.

        left(leaf) = sum of the costs of the calls up to the leaf that are not done

    Args:
        failed: calls that failed, which are not added again where the world is certain.
    """

    def __init__(self, world: NavigationWorld, view: Any, failed: Sequence[PrimitiveCall] = ()):
        self.world, self.view, self.failed = world, view, set(failed)
        self.nodes: dict[int, PrimitiveNode] = {}
        self.empty_here = 0
        self.refusals: list[str] = []  # why nodes of the planner's last reply were refused
        self._next = ROOT + 1

    def path(self, number: int) -> list[PrimitiveNode]:
        """The nodes from the root's child to a node."""
        nodes = list[PrimitiveNode]()
        while number != ROOT:
            nodes.append(self.nodes[number])
            number = nodes[-1].parent
        return nodes[::-1]

    def undone(self, number: int) -> list[PrimitiveNode]:
        return [n for n in self.path(number) if not n.done]

    def left(self, number: int) -> float:
        return sum(n.cost for n in self.undone(number))

    def children(self, number: int) -> list[PrimitiveNode]:
        return [n for n in self.nodes.values() if n.parent == number]

    def view_at(self, number: int) -> Any:
        """What is known where a node's children begin; None where it cannot be reached."""
        if number == ROOT or self.nodes[number].done:
            return self.view
        return self.nodes[number].view

    def add(
        self, parent: int, name: str, arguments: Sequence[str], cost: float, reason: str = ""
    ) -> PrimitiveNode:
        """A new node. Raises ValueError, with the reason, for one that is not one of a tree: an unknown
        parent, a wrong call, a call that cannot be done, failed, or leads back, or too deep or many.
        """
        if parent != ROOT and parent not in self.nodes:
            raise ValueError(f"there is no node {parent}")
        view = self.view_at(parent)
        if view is None:
            raise ValueError(f"node {parent} cannot be reached")
        if not (cost > 0 and np.isfinite(cost)):
            raise ValueError(f"a cost is above 0, not {cost}")
        call = checked_call(self.world, view, name, arguments)
        if call in banned_calls(self.world, self.failed):
            raise ValueError(f"{call} failed before")
        siblings = [n for n in self.children(parent) if not n.done]
        if any(n.call == call for n in siblings):
            raise ValueError(f"{call} is there already")
        if sum(n.view is not None for n in siblings) >= CHILDREN:
            raise ValueError(f"node {parent} has {CHILDREN} children")
        if len(self.undone(parent)) >= DEPTH:
            raise ValueError(f"a plan has at most {DEPTH} calls")
        after = predicted(self.world, view, call)
        earlier = [self.view, *(n.view for n in self.undone(parent))]
        if any(bool(after == v) for v in earlier):
            raise ValueError(f"{call} leads back to where the plan was")
        node = PrimitiveNode(self._next, parent, call, float(cost), reason, view=after)
        self.nodes[node.number] = node
        self._next += 1
        return node

    def prune(self, number: int) -> None:
        """Takes a node and all below it away. Raises ValueError for one that is not there, or done."""
        if number not in self.nodes or self.nodes[number].done:
            raise ValueError(f"there is no node {number} to prune")
        for child in self.children(number):
            self.prune(child.number)
        del self.nodes[number]

    def recost(self, number: int, cost: float) -> None:
        """Gives a node another cost. Raises ValueError for an unknown node or no cost."""
        if number not in self.nodes:
            raise ValueError(f"there is no node {number}")
        if not (cost > 0 and np.isfinite(cost)):
            raise ValueError(f"a cost is above 0, not {cost}")
        self.nodes[number].cost = float(cost)

    def refresh(self, view: Any) -> None:
        """Things stand otherwise: predicts every call again that is not done. One that cannot be done
        any more, or not behind those before it, has no view until it can.
        """
        self.view = view
        for number in sorted(self.nodes):
            node = self.nodes[number]
            if node.done:
                continue
            before = self.view_at(node.parent)
            name, arguments = node.call.name, node.call.arguments
            known = self.world.values(before) if before is not None else {}
            types = self.world.primitives[name]
            fits = all(a in known.get(kind, ()) for kind, a in zip(types, arguments, strict=True))
            if before is None or not fits or self.world.refuse(before, name, arguments):
                node.view = None
            else:
                node.view = predicted(self.world, before, node.call)

    def plans(self) -> list[PlanCost]:
        """Every plan that reaches the goal, the cheapest first; of equal ones the older."""
        reach = [
            n for n in self.nodes.values() if n.view is not None and self.world.reached(n.view)
        ]
        return sorted((self.left(n.number), n.number) for n in reach if not n.done)

    def best(self) -> list[PrimitiveNode]:
        """The calls that are left of the cheapest plan; [] = no plan reaches the goal."""
        plans = self.plans()
        return self.undone(plans[0][1]) if plans else []

    def open(self, most: int) -> list[int]:
        """The cheapest nodes that may have children and have none, at most `most`. What is behind a call
        that explores is not known before it is done.
        """
        explore = getattr(self.world, "explore", "")
        leaves = [
            n.number
            for n in self.nodes.values()
            if n.view is not None
            and not n.done
            and n.empty < TRIES
            and n.call.name != explore
            and not self.world.reached(n.view)
            and not self.children(n.number)
            and len(self.undone(n.number)) < DEPTH
        ]
        if not leaves and not self._begun() and self.empty_here < TRIES:
            leaves = [max((n.number for n in self.nodes.values() if n.done), default=ROOT)]
        return sorted(leaves, key=lambda k: (self.left(k), k))[:most]

    def _begun(self) -> bool:
        """Whether a call that is not done can be done as things are."""
        here = {ROOT, *(n.number for n in self.nodes.values() if n.done)}
        return any(
            n.parent in here and n.view is not None and not n.done for n in self.nodes.values()
        )

    def count_empty(self, number: int) -> None:
        """The planner named nothing that can be done behind a node."""
        if number == ROOT or self.nodes[number].done:
            self.empty_here += 1
        else:
            self.nodes[number].empty += 1

    def reopen(self) -> None:
        """More is known: the planner may have something to do everywhere."""
        self.empty_here = 0
        for node in self.nodes.values():
            node.empty = 0

    def lines(self) -> list[str]:
        """The tree as a question tells it."""
        lines = list[str]()
        for n in self.nodes.values():
            marks = [
                "done" if n.done else "",
                f"failed {n.failures} times" if n.failures else "",
                "" if n.done or n.view is not None else "cannot be done as things are",
                "reaches the goal" if n.view is not None and self.world.reached(n.view) else "",
            ]
            rest = "; ".join(m for m in marks if m)
            lines.append(
                f"node {n.number} under {n.parent}: {n.call}, cost {n.cost:g}"
                + (f" ({rest})" * bool(rest))
            )
        return lines


def names_seen(world: NavigationWorld, view: Any) -> set[str]:
    """All that arguments may name in a view."""
    return {name for names in checked_values(world, view).values() for name in names}


def all_calls(world: NavigationWorld, view: Any) -> list[PrimitiveCall]:
    """Every call that can be done, as far as is known."""
    values, calls = world.values(view), list[PrimitiveCall]()
    for name, types in world.primitives.items():
        choices: list[tuple[str, ...]] = [()]
        for kind in types:
            choices = [(*c, v) for c in choices for v in values.get(kind, ())]
        calls += [
            PrimitiveCall(name=name, arguments=c)
            for c in choices
            if not world.refuse(view, name, c)
        ]
    return calls

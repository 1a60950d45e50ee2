"""A game: plans are made, done call by call, and mended where something happens."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import palaestra as pl
from palaestra.recipes.llm4rl.interactive_navigation.roles import (
    NavigationRoles,
    add_planned,
    apply_edits,
)
from palaestra.recipes.llm4rl.interactive_navigation.tree import (
    DEPTH,
    NavigationWorld,
    PrimitiveCall,
    PrimitiveNode,
    PrimitiveTree,
    all_calls,
    banned_calls,
    names_seen,
    predicted,
)

Planning = Literal["flat", "advisor", "arborist"]
SHOWN = 8  # open nodes that a planner sees at a time
OVERRUN = 2.0  # times its own cost that a call may cost before it is an event


@pl.value_class
class NavigationLimits:
    """Of a game: calls of primitives, what they may cost together, and calls of language models."""

    acts: int = 30
    cost: float = 150.0
    calls: int = 20


class NavigationGame:
    """One game of an arm that asks.

    Args:
        planning: "flat" = a plan that is written anew at every failure; "advisor" = a tree, written anew
            where the advisor says repair or replan; "arborist" = a tree, edited where it says repair.
    """

    def __init__(
        self,
        world: NavigationWorld,
        roles: NavigationRoles,
        planning: Planning,
        limits: NavigationLimits,
        key: pl.Key,
    ):
        self.world, self.roles, self.planning, self.limits = world, roles, planning, limits
        self.state = world.reset(pl.rng_of((*key, "start")))
        self.rng = pl.rng_of((*key, "acts"))
        self.cost = 0.0
        self.counts = dict.fromkeys(
            ("acts", "failures", "events", "edits", "invalid", "refused", "replans", "switches"), 0
        )
        self.failed: list[PrimitiveCall] = []
        self.trace: list[str] = []
        self.tree = self._fresh()

    @property
    def reached(self) -> bool:
        return self.world.reached(self.world.view(self.state))

    @property
    def over(self) -> bool:
        return (
            self.reached or self.counts["acts"] >= self.limits.acts or self.cost >= self.limits.cost
        )

    async def play(self) -> dict[str, Any]:
        """Plays to the end; the numbers of the game, and its trace."""
        while not self.over:
            plan = await self._plan()
            node = plan[0] if plan else None
            call = self._explore() if node is None else node.call
            if call is None:
                break
            await self._do(call, node)
        return {
            **self.counts,
            "success": float(self.reached),
            "cost": self.cost,
            "rescued": float(self.reached and self.counts["switches"] > 0),
            "calls": self.roles.calls,
            "tokens": self.roles.tokens,
            "plans": self.roles.plans,
            "fallbacks": self.roles.fallbacks,
            "trace": self.trace,
            "advice": self.roles.records,
        }

    def _fresh(self) -> PrimitiveTree:
        return PrimitiveTree(self.world, self.world.view(self.state), self.failed)

    async def _plan(self) -> list[PrimitiveNode]:
        """The calls that are left of the plan; the planner is asked while none reaches the goal."""
        explore = getattr(self.world, "explore", "")
        for _ in range(DEPTH):  # a planner that names one call at a time is as deep as a path then
            if self.tree.best() or not self.roles.left:
                break
            if self.planning == "flat":
                await self._plan_flat()
                if any(n.call.name == explore for n in self.tree.nodes.values()):
                    break
                continue
            if not (nodes := self.tree.open(SHOWN)):
                break
            reply = await self.roles.plan(self.tree, nodes)
            if reply is not None:
                self.counts["refused"] += add_planned(self.tree, reply, nodes)[1]
            for number in nodes:
                if not self.tree.children(number):
                    self.tree.count_empty(number)
        return self.tree.best()

    async def _plan_flat(self) -> None:
        """A tree of one path. What follows a call that cannot be done is left out."""
        refusals, self.tree = self.tree.refusals, self._fresh()
        self.tree.refusals = refusals
        if (reply := await self.roles.plan_flat(self.tree)) is None:
            return
        parent, self.tree.refusals = 0, []
        for n, call in enumerate(reply.plan):
            try:
                if not call.do:
                    raise ValueError(f"an item is no call: {call.reason}")
                parent = self.tree.add(parent, call.do, call.arguments, call.cost).number
            except ValueError as error:
                self.tree.refusals = [str(error)]
                self.counts["refused"] += len(reply.plan) - n
                return

    def _explore(self) -> PrimitiveCall | None:
        """What is done where no plan reaches the goal."""
        name, view = getattr(self.world, "explore", ""), self.world.view(self.state)
        call = PrimitiveCall(name=name) if name else None
        if call is None or call in banned_calls(self.world, self.failed):
            return None
        return None if self.world.refuse(view, name, ()) else call

    async def _do(self, call: PrimitiveCall, node: PrimitiveNode | None) -> None:
        """Does a call, and what follows from how it went."""
        before = names_seen(self.world, self.world.view(self.state))
        self.state, cost, success = self.world.execute(
            self.state, call.name, call.arguments, self.rng
        )
        self.cost += cost
        self.counts["acts"] += 1
        self.trace.append(f"{call}: {'done' if success else 'failed'}, cost {cost:g}")
        events = list[str]()
        about = f"node {node.number} {call}" if node else str(call)
        if success and node:
            node.done = True
        if not success:
            self.counts["failures"] += 1
            if node:
                node.failures += 1
            events.append(f"{about} failed, it cost {cost:g}")
        view = self.world.view(self.state)
        seen = sorted(names_seen(self.world, view) - before)
        if seen:
            self.failed = []
            events.append(f"after {about} these were seen first: {', '.join(seen)}")
        if not success and call not in self.failed:
            self.failed = [*self.failed, call]
        if success and node and cost > OVERRUN * node.cost:
            events.append(f"{about} cost {cost:g}, more than {OVERRUN:g} times {node.cost:g}")
        self.tree.failed = set(self.failed)
        if seen or success:
            self.tree.reopen()
        self.tree.refresh(view)
        if events and not self.over:
            await self._react("; ".join(events), node if not success else None)

    async def _react(self, event: str, failed: PrimitiveNode | None) -> None:
        """What an event leads to: nothing, edits, or a new tree. Where nobody answers, a call that
        failed is taken out of the tree.
        """
        self.counts["events"] += 1
        if self.planning == "flat":
            if failed is not None or not self.tree.best():
                self._replan(failed)
            return
        reply = await self.roles.advise(self.tree, event)
        advice = "silent" if reply is None else reply.advice
        self.trace.append(f"{event}: {advice}")
        if advice == "continue":
            return
        if advice == "repair" and self.planning == "arborist":
            await self._repair(event, failed)
        elif advice != "silent":
            self._replan(failed)
        else:
            self._take_out(failed)

    async def _repair(self, event: str, failed: PrimitiveNode | None) -> None:
        before = [n.call for n in self.tree.best()]
        reply = await self.roles.edit(self.tree, event)
        if reply is None:
            self._replan(failed)
            return
        done, invalid, broken = apply_edits(self.tree, reply.edits)
        self.counts["edits"] += done
        self.counts["invalid"] += invalid
        self.trace.append(f"edits: {done} done, {invalid} invalid")
        if broken:
            self._replan(failed)
            return
        after = [n.call for n in self.tree.best()]
        self.counts["switches"] += bool(done and after and after != before)

    def _replan(self, failed: PrimitiveNode | None = None) -> None:
        """A new tree; where no call is left to ask for one, the old one stays without what failed."""
        if not self.roles.left:
            self._take_out(failed)
            return
        self.counts["replans"] += 1
        self.tree = self._fresh()

    def _take_out(self, failed: PrimitiveNode | None) -> None:
        if failed is not None and failed.number in self.tree.nodes:
            self.tree.prune(failed.number)


def direct_call(world: NavigationWorld, view: Any) -> PrimitiveCall | None:
    """One call that should reach the goal by itself: what there is to do without changing the world."""
    for call in all_calls(world, view):
        if world.reached(predicted(world, view, call)):
            return call
    return None


def mean_numbers(games: Sequence[Mapping[str, Any]], surprising: Sequence[bool]) -> dict[str, Any]:
    """Means over games; those of success, cost, calls and tokens again over games with a surprise."""
    if not games:
        return {}
    names = [k for k, v in games[0].items() if isinstance(v, int | float)]
    mean = lambda rows, name: float(sum(r[name] for r in rows) / len(rows))
    numbers = {name: mean(games, name) for name in names}
    own = [g for g, s in zip(games, surprising, strict=True) if s]
    some = [k for k in ("success", "cost", "calls", "tokens") if k in names]
    return numbers | ({f"{k}_surprise": mean(own, k) for k in some} if own else {})

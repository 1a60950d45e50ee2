"""Who is asked in a game: a planner, an advisor and an arborist, each with its form, within a budget."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

import palaestra as pl
from palaestra.recipes.llm4rl.interactive_navigation.tree import (
    CHILDREN,
    DEPTH,
    ROOT,
    NavigationWorld,
    PrimitiveTree,
    banned_calls,
)

M = TypeVar("M", bound=BaseModel)
ASKS = 2  # a reply, and one repair
REASONS = 6  # for which calls were refused that a planner hears
Verdict = Literal["continue", "repair", "replan"]


def listed(value: Any) -> Any:
    """Arguments as a list: of a text alone, of none, or of a mapping by name."""
    if value is None or value == "":
        return []
    if isinstance(value, Mapping):
        return list(value.values())
    return [value] if isinstance(value, str | int | float) else value


def letters(value: Any) -> str:
    """A word without what is beside its letters: "Re-cost" is "recost"."""
    return "".join(c for c in str(value).casefold() if c.isalpha())


def number_told(value: Any) -> Any:
    """The first number of a text, as in "2.5 m"; 0 for none, which is no cost."""
    match = re.search(r"-?\d+(\.\d+)?", value) if isinstance(value, str) else None
    return 0.0 if value is None else float(match[0]) if match else value


def with_parent(value: Any, name: str) -> Any:
    """An object that says "parent" for its field `name`."""
    if isinstance(value, Mapping) and "parent" in value and name not in value:
        return {**value, name: value["parent"]}
    return value


def each_or(form: type[M], wrong: Callable[[str], Mapping[str, Any]]) -> BeforeValidator:
    """Items of a list that do not fit are replaced by ones that the tree refuses, so that they are
    counted and the others are kept.
    """

    def keep(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        items = list[Any]()
        for item in value:
            try:
                items.append(form.model_validate(item))
            except ValidationError as error:
                first = error.errors()[0]
                items.append(
                    form.model_validate(wrong(f"{'.'.join(map(str, first['loc']))} {first['msg']}"))
                )
        return items

    return BeforeValidator(keep)


Arguments = Annotated[list[str], BeforeValidator(listed)]
RoughCost = Annotated[float, BeforeValidator(number_told)]


class PlannedCall(BaseModel):
    """A call that a planner names."""

    model_config = ConfigDict(coerce_numbers_to_str=True)
    do: str
    arguments: Arguments = Field(default_factory=list)
    cost: RoughCost
    reason: str = ""


class PlannedNode(PlannedCall):
    """A child for the tree, under a node by its number, or under a node of this reply by its name."""

    name: str = ""
    under: str = "0"

    @model_validator(mode="before")
    @classmethod
    def _parent(cls, value: Any) -> Any:
        return with_parent(value, "under")


def no_call(why: str) -> Mapping[str, Any]:
    return {"do": "", "cost": 0.0, "reason": why}


class PlannerReply(BaseModel):
    nodes: Annotated[list[PlannedNode], each_or(PlannedNode, no_call)] = Field(max_length=60)


class FlatReply(BaseModel):
    plan: Annotated[list[PlannedCall], each_or(PlannedCall, no_call)] = Field(max_length=2 * DEPTH)


class AdvisorReply(BaseModel):
    """What an event means for the plan, and which node it is about."""

    model_config = ConfigDict(coerce_numbers_to_str=True)
    advice: Annotated[Verdict, BeforeValidator(letters)]
    node: str | None = ""


class TreeEdit(BaseModel):
    """An edit: prune a node, add a call under a node, or give a node another cost."""

    model_config = ConfigDict(coerce_numbers_to_str=True, populate_by_name=True)
    edit: Annotated[Literal["prune", "add", "recost"], BeforeValidator(letters)]
    node: str = Field(default="", validation_alias=AliasChoices("node", "under"))
    do: str = ""
    arguments: Arguments = Field(default_factory=list)
    cost: RoughCost = 0.0
    name: str = ""

    @model_validator(mode="before")
    @classmethod
    def _parent(cls, value: Any) -> Any:
        """A call that is added under a "parent" has what is called its node as its name."""
        adds = isinstance(value, Mapping) and letters(value.get("edit")) == "add"
        if not adds or "parent" not in value:
            return value
        return {"name": value.get("node", ""), **value, "node": value["parent"]}


def no_edit(why: str) -> Mapping[str, Any]:
    return {"edit": "prune", "node": "", "do": why}


class ArboristReply(BaseModel):
    edits: Annotated[list[TreeEdit], each_or(TreeEdit, no_edit)] = Field(max_length=60)


PLANNER = """{about}

{view}

Arguments: {values}
{failed}{refused}Plan as a tree whose paths lead to the goal. Write nodes: each is one call that can be done where its \
parent leaves things, with its arguments, a rough cost and a reason. A node is "under" a number below, or under \
the name of a node of your reply. Name 1 to {children} children of each node, and several ways to the goal where \
there are some; a path has at most {depth} calls.
Nodes that want children:
{open}

Answer with {{"nodes": [{{"name": "a", "under": "{first}", "do": PRIMITIVE, "arguments": [...], "cost": ..., \
"reason": "..."}}, {{"name": "b", "under": "a", ...}}]}}."""

FLAT = """{about}

{view}

Arguments: {values}
{failed}{refused}Write one plan that leads from here to the goal: at most {depth} calls, each with its arguments, a rough \
cost and a reason.

Answer with {{"plan": [{{"do": PRIMITIVE, "arguments": [...], "cost": ..., "reason": "..."}}]}}."""

ADVISOR = """{about}

{view}

A robot follows this plan: {plan}
What happened: {event}
Should it continue, repair the tree of its plans, or replan from nothing? Name the node that this is about.

Answer with {{"advice": "continue" or "repair" or "replan", "node": NUMBER}}."""

ARBORIST = """{about}

{view}

Arguments: {values}
{failed}The tree of plans; the cheapest path that reaches the goal is followed:
{tree}
What happened: {event}
Edit the tree, with as few edits as it takes: {{"edit": "prune", "node": NUMBER}} takes a node and all below it \
away; {{"edit": "add", "node": PARENT'S NUMBER, "name": "a", "do": PRIMITIVE, "arguments": [...], "cost": ...}} \
adds a call, and another one may be added under "a"; {{"edit": "recost", "node": NUMBER, "cost": ...}} gives a node \
another cost. 0 is where things stand.

Answer with {{"edits": [...]}}."""


class CountingClient:
    """Counts what a game asks: calls, and tokens; words where a client counts no tokens."""

    def __init__(self, client: pl.Client):
        self.client, self.name, self.meter = client, client.name, client.meter
        self.calls = self.tokens = 0

    async def chat(self, request: pl.ChatRequest) -> pl.Reply:
        self.calls += 1
        reply = await self.client.chat(request)
        counted = reply.prompt_tokens + reply.reply_tokens
        words = sum(len(m.content.split()) for m in request.messages) + len(reply.text.split())
        self.tokens += counted if reply.prompt_tokens else words
        return reply


# what an advisor and an arborist said at an event, with its calls and tokens
AdviceRecord: TypeAlias = dict[str, Any]


class NavigationRoles:
    """The three roles in one game, with its budget of calls.

    Args:
        calls: at most, repairs counted.
        replies: advice of other games, one after another, in the place of asking; None = who is asked
            answers.
    """

    def __init__(
        self,
        ctx: pl.Context,
        world: NavigationWorld,
        sources: Mapping[str, pl.Source],
        calls: int,
        replies: Sequence[AdviceRecord] | None = None,
    ):
        self.world, self.most, self.replies = world, calls, replies
        self.clients = {role: CountingClient(ctx.client(s)) for role, s in sources.items()}
        self.records: list[AdviceRecord] = []
        self.fallbacks = self.plans = 0
        self._replayed = [0, 0]  # calls and tokens of advice of other games

    @property
    def calls(self) -> int:
        return sum(c.calls for c in self.clients.values()) + self._replayed[0]

    @property
    def tokens(self) -> int:
        return sum(c.tokens for c in self.clients.values()) + self._replayed[1]

    @property
    def left(self) -> int:
        return max(0, self.most - self.calls)

    async def _ask(self, role: str, text: str, form: type[M]) -> M | None:
        """The reply; None where no call is left or no reply fits, which is counted."""
        if not self.left:
            return None
        request = pl.ChatRequest(messages=pl.services.question_messages(text), max_tokens=1024)
        try:
            return await pl.services.ask(
                self.clients[role], request, form, asks=min(ASKS, self.left)
            )
        except pl.Fault as fault:
            if fault.cause != "chat-format":
                raise
            self.fallbacks += 1
            return None

    def _words(self, tree: PrimitiveTree) -> dict[str, str]:
        values = self.world.values(tree.view)
        failed = ", ".join(sorted(map(str, tree.failed)))
        refused = "; ".join(dict.fromkeys(tree.refusals[:REASONS]))
        banned = banned_calls(self.world, tree.failed)
        then = "so do not name it" if banned else "and may succeed when it is tried again"
        return {
            "about": self.world.about,
            "view": self.world.spell(tree.view),
            "values": "; ".join(f"{k}: {', '.join(v) or 'none'}" for k, v in values.items()),
            "failed": f"Failed before, {then}: {failed}\n" if failed else "",
            "refused": f"Refused in the last reply: {refused}\n" if refused else "",
        }

    async def plan(self, tree: PrimitiveTree, open_nodes: Sequence[int]) -> PlannerReply | None:
        self.plans += 1
        lines = [
            f"node {n}: after {'; '.join(str(x.call) for x in tree.undone(n)) or 'nothing, as things are'}"
            for n in open_nodes
        ]
        text = PLANNER.format(
            **self._words(tree),
            children=CHILDREN,
            depth=DEPTH,
            open="\n".join(lines),
            first=open_nodes[0],
        )
        return await self._ask("planner", text, PlannerReply)

    async def plan_flat(self, tree: PrimitiveTree) -> FlatReply | None:
        self.plans += 1
        return await self._ask("planner", FLAT.format(**self._words(tree), depth=DEPTH), FlatReply)

    async def advise(self, tree: PrimitiveTree, event: str) -> AdvisorReply | None:
        if self.replies is not None:
            return self._replay()
        before = (self.calls, self.tokens)
        words = self._words(tree)
        plan = "; ".join(f"node {n.number} {n.call}, cost {n.cost:g}" for n in tree.best())
        text = ADVISOR.format(
            about=words["about"],
            view=words["view"],
            plan=plan or "none that reaches the goal",
            event=event,
        )
        reply = await self._ask("advisor", text, AdvisorReply)
        self._note(before, advice=None if reply is None else reply.model_dump(), edits=None)
        return reply

    async def edit(self, tree: PrimitiveTree, event: str) -> ArboristReply | None:
        if self.replies is not None:
            edits = self.records[-1]["edits"]
            return None if edits is None else ArboristReply.model_validate(edits)
        before = (self.calls, self.tokens)
        text = ARBORIST.format(
            **self._words(tree), tree="\n".join(tree.lines()) or "empty", event=event
        )
        reply = await self._ask("arborist", text, ArboristReply)
        own = self.records.pop()
        own["edits"] = None if reply is None else reply.model_dump()
        self._note(before, **own)
        return reply

    def _note(self, before: tuple[int, int], **record: Any) -> None:
        spent = {"calls": self.calls - before[0], "tokens": self.tokens - before[1]}
        self.records.append({**record, **{k: v + record.get(k, 0) for k, v in spent.items()}})

    def _replay(self) -> AdvisorReply | None:
        """The next advice of another game, charged as what it cost there; the first again behind the
        last. None where no call is left.
        """
        if not self.left or not self.replies:
            return None
        record = self.replies[len(self.records) % len(self.replies)]
        self._replayed = [
            a + record[k] for a, k in zip(self._replayed, ("calls", "tokens"), strict=True)
        ]
        self.records.append(record)
        advice = record["advice"]
        return None if advice is None else AdvisorReply.model_validate(advice)


def add_planned(
    tree: PrimitiveTree, reply: PlannerReply, allowed: Sequence[int]
) -> tuple[int, int]:
    """Adds the nodes of a reply in their order; how many were added, and how many refused. A node is
    refused that is neither under one of `allowed` nor under one of the reply that was added.
    """
    named: dict[str, int] = {}
    why = list[str]()
    for node in reply.nodes:
        parent = node_number(node.under, named, allowed)
        try:
            if not node.do:
                raise ValueError(f"an item is no node: {node.reason}")
            if parent is None:
                raise ValueError(f"{node.under!r} is no node that wants children")
            added = tree.add(parent, node.do, node.arguments, node.cost, node.reason)
            if node.name:
                named[node.name] = added.number
        except ValueError as error:
            why.append(str(error))
    tree.refusals = why
    return len(reply.nodes) - len(why), len(why)


def apply_edits(tree: PrimitiveTree, edits: Sequence[TreeEdit]) -> tuple[int, int, bool]:
    """How many edits were done, how many were invalid and left out, and whether two invalid ones came
    one after another, after which the rest is left out, too: then the tree is not to be trusted.
    """
    named: dict[str, int] = {}
    known_nodes = {ROOT, *tree.nodes}
    done = invalid = row = 0
    for edit in edits:
        number = node_number(edit.node, named, known_nodes)
        try:
            if number is None:
                raise ValueError(f"there is no node {edit.node!r}")
            if edit.edit == "prune":
                tree.prune(number)
            elif edit.edit == "recost":
                tree.recost(number, edit.cost)
            else:
                added = tree.add(number, edit.do, edit.arguments, edit.cost)
                if edit.name:
                    named[edit.name] = added.number
            done, row = done + 1, 0
        except ValueError:
            invalid, row = invalid + 1, row + 1
            if row == 2:
                return done, invalid, True
    return done, invalid, False


def node_number(
    text: str | None, named: Mapping[str, int], known_nodes: Collection[int]
) -> int | None:
    """The number of a node: one that the question told, as a number, "node 3" or "root"; else by a name
    of the reply. None = neither.
    """
    name = (text or "").strip()
    word = name.casefold().removeprefix("node").strip()
    number = ROOT if word == "root" else int(word) if word.isdecimal() else None
    return number if number in known_nodes else named.get(name)

"""What a method needs of its user, as data on its card.

A need is required, or it says what happens without it (`otherwise`). `when` names the arguments of
`build` under which it is one, {"kind": ("cue",)}; empty: always.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

ValueType: TypeAlias = Literal[
    "text",
    "number",
    "true or false",
    "texts",
    "numbers",
    "messages",
    "image",
    "record",
    "any",
    "text or messages",
]
PlaceKind: TypeAlias = Literal[
    "environment", "game", "tools", "documents", "graph", "simulator", "reward"
]
Arguments: TypeAlias = Mapping[str, tuple[Any, ...]]

FLAGS: Mapping[PlaceKind, str] = {  # how each kind is given on the command line
    "environment": "--env FILE.py:NAME",
    "game": "--env FILE.py:NAME",  # an environment of several seats
    "tools": "--tools FILE.py:NAME",
    "documents": "--docs FOLDER",
    "graph": "--graph FILE.tsv",
    "simulator": "--env FILE.py:NAME",
    "reward": "--reward FILE.py:NAME",
}


@dataclass(frozen=True, slots=True)
class NeededColumn:
    """A column of the user's data.

    Args:
        name: what the method reads it as; `--columns THEIRS=NAME` reads another one so.
        type: of its values.
        examples: values that rows of a template have in turn, at least one.
        meaning: what it is, for people.
        otherwise: what happens in rows without it; "" = it is required.
        or_else: another declared column that serves in its place, so that one of the two is
            required; "" = none does.
        named_by: the argument of `build` that says what the column is called, where the user chooses
            one; without a value of it nothing is read. "" = `name` it is.
    """

    name: str
    type: ValueType
    examples: tuple[Any, ...]
    meaning: str
    otherwise: str = ""
    or_else: str = ""
    when: Arguments = field(default_factory=dict)
    named_by: str = ""


@dataclass(frozen=True, slots=True)
class NeededModel:
    """A model beside the policy.

    Args:
        role: "teacher", "judge", "guide", "reward model", ...
        argument: of `build`, which takes it.
        meaning: what it does.
        inert: the value of the argument at which nothing acts.
        example: how it is written behind the argument.
        otherwise: what happens without it; "" = it is required.
        reads_tokens: it reads or goes on from the policy's token ids, so it needs its tokenizer.
        scores: it only says how likely tokens are, so an endpoint may stand for it.
        built_in: built-in problems that bring it (`--task`).
    """

    role: str
    argument: str
    meaning: str
    inert: Any = "policy"
    example: str = "DIR"
    otherwise: str = ""
    when: Arguments = field(default_factory=dict)
    reads_tokens: bool = False
    scores: bool = False
    built_in: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """What it does, and that it has the policy's tokenizer where it must."""
        return self.meaning + (", and has the policy's tokenizer" if self.reads_tokens else "")


def chat_model(
    role: str, argument: str, meaning: str, otherwise: str = "", when: Arguments | None = None
) -> NeededModel:
    """A model that is asked by chat messages: behind an endpoint, a folder, or a transcript. See `NeededModel`."""
    example = "endpoint(url='http://HOST:PORT/v1',model='NAME')"
    return NeededModel(role, argument, meaning, None, example, otherwise, when or {})


@dataclass(frozen=True, slots=True)
class NeededPlace:
    """Where the policy acts, or what it acts with.

    Args:
        kind: environment, game, tools, documents, graph, simulator, or a reward.
        meaning: what it has to have.
        built_in: built-in problems that have it (`--task`).
        flag: how it is given; "" = as `FLAGS` says of the kind.
        also: other kinds that do in its place, such as tools where any several turns do.
        otherwise: what happens without it; "" = it is required.
    """

    kind: PlaceKind
    meaning: str
    built_in: tuple[str, ...] = ()
    flag: str = ""
    also: tuple[PlaceKind, ...] = ()
    otherwise: str = ""
    when: Arguments = field(default_factory=dict)

    @property
    def given_by(self) -> str:
        """How it is given on the command line."""
        return self.flag or FLAGS[self.kind]

    @property
    def ways(self) -> str:
        """Every way in which it can be given on the command line."""
        return " or ".join((self.given_by, *(FLAGS[kind] for kind in self.also)))


PROMPT = NeededColumn(
    "prompt",
    "text",
    ("What is 17 + 25?", "What is 8 + 31?", "What is 40 + 9?"),
    "what the model is asked, or `messages`, a chat",
)
ANSWER = NeededColumn(
    "answer",
    "any",
    ("42", "39", "49"),
    "the right answer, which a reply is compared with",
    otherwise="--reward FILE.py:NAME judges in its place",
)
# of methods that search documents
QUESTION = NeededColumn(
    "prompt",
    "text",
    ("boss of bako?", "host of tiru?", "heir of mema?"),
    "a question that documents answer",
)
GOLD_ANSWER = NeededColumn(
    "answer",
    "any",
    ("tiru", "mema", ["bako", "bako the elder"]),
    "the right answer, or a list of them",
)
# of methods that rank documents, or search for those that are relevant
GOLD = NeededColumn(
    "gold",
    "any",
    (["lions.md"], {"lions.md": 2}, ["lions.md"]),
    "the relevant documents: ids of records, names of files, or their grades",
)
CANDIDATES = NeededColumn(
    "items",
    "any",
    (["lions.md", "boss of deci is mema", "heir of tiru is soro"],),
    "the candidates of the row: ids of documents, texts, or records with id and text",
    otherwise="the documents that BM25 finds for the query are its candidates",
)
HINT = NeededColumn(
    "hint",
    "text",
    ("Add the tens first.", "Carry what is above nine.", "Forty and nine more."),
    "what helps to solve it, without the answer",
)
DEMONSTRATION = NeededColumn(
    "demonstration",
    "text",
    ("17 + 25 = 30 + 12 = 42", "8 + 31 = 39", "40 + 9 = 49"),
    "a right reply, written by a person or a better model",
)
CHOSEN = NeededColumn("chosen", "text", ("42", "39", "49"), "the reply that is better")
REJECTED = NeededColumn("rejected", "text", ("32", "29", "31"), "the reply that is worse")
# of methods that take recorded pairs (pairs="data"), or make them of their own answers
PAIRS = (
    PROMPT,
    replace(ANSWER, when={"pairs": ("rollouts",)}),
    replace(CHOSEN, type="text or messages", when={"pairs": ("data",)}),
    replace(REJECTED, type="text or messages", when={"pairs": ("data",)}),
)
# of methods that take labelled answers (answers="data"), or judge their own
LABELLED = (
    PROMPT,
    replace(ANSWER, when={"answers": ("sampled",)}),
    NeededColumn(
        "response",
        "text or messages",
        ("17 + 25 = 42", "8 + 31 = 38", "49"),
        "an answer, good or bad",
        when={"answers": ("data",)},
    ),
    NeededColumn(
        "right",
        "true or false",
        (True, False, True),
        "whether it is good",
        when={"answers": ("data",)},
    ),
)


@dataclass(frozen=True, slots=True)
class Requirements:
    """All that a method needs. The default is that of most: questions and their answers.

    Args:
        columns: of the data; () = the method learns from no file.
        least: the least number of something: "tasks" to train on, "domains".
        shows: the number of a run's metrics that shows the mechanism at work, above 0 where it is.
        off: arguments of `build`, or fields by path, under which that number is 0.
        never_off: why there are none: what the number is without the mechanism, in a sentence. A
            method has either `off` or this.
        own: arguments, fields and settings ("reward", "max_tokens") of the two steps that the
            conformance test trains on a user's file; "endpoint" is what a chat endpoint replies
            there, which then stands for the models that are required.
        policy: whether the run's own model (`--model`) takes part; False = it is no language model
            that is trained or measured, and one that is given is refused.
        flags: flags of the run, without dashes, that set an argument of `build`: {"env": "sim"}.
    """

    columns: tuple[NeededColumn, ...] = (PROMPT, ANSWER)
    models: tuple[NeededModel, ...] = ()
    places: tuple[NeededPlace, ...] = ()
    least: Mapping[str, int] = field(default_factory=dict)
    shows: str = ""
    off: Mapping[str, Any] = field(default_factory=dict)
    never_off: str = ""
    own: Mapping[str, Any] = field(default_factory=dict)
    policy: bool = True
    flags: Mapping[str, str] = field(default_factory=dict)

    def way(self, argument: str, value: str) -> str:
        """How an argument of `build` is given on the command line: by its flag, else as a word."""
        for flag, name in self.flags.items():
            if name == argument:
                return f"--{flag} {value}"
        return f"{argument}={value}"


def holds(when: Arguments, arguments: Mapping[str, Any]) -> bool:
    """Whether a need is one under these arguments of `build`, defaults included."""
    return all(arguments.get(name) in values for name, values in when.items())


def is_required(
    need: NeededColumn | NeededModel | NeededPlace, arguments: Mapping[str, Any]
) -> bool:
    """Whether the method cannot act without it under these arguments of `build`."""
    return not need.otherwise and holds(need.when, arguments)


TRUTHS = {"true": True, "yes": True, "1": True, "1.0": True,
          "false": False, "no": False, "0": False, "0.0": False}  # fmt: skip


def truth_of(value: Any) -> bool | None:
    """What a cell of a column "true or false" says: true and false, 1 and 0, or text of these, also yes
    and no, as tables have it. None = it says neither.
    """
    return TRUTHS.get(str(value).strip().casefold())


def fits(value: Any, kind: ValueType) -> bool:
    """Whether a value of a row is of the declared type."""
    if kind in ("any", "image"):
        return True
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "true or false":
        return truth_of(value) is not None
    if kind == "record":
        return isinstance(value, Mapping)
    if kind in ("text", "text or messages"):  # of messages the last one is left, as text
        return isinstance(value, str)
    rows = list(value) if isinstance(value, list | tuple) else None
    if rows is None:
        return False
    inner: Mapping[str, ValueType] = {"texts": "text", "numbers": "number", "messages": "record"}
    return all(fits(x, inner[kind]) for x in rows)

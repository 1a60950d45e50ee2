"""How answers are read: the option that is chosen, the one that the thought supports, and what both are worth."""

import re
from collections.abc import Sequence
from typing import Any

import palaestra as pl

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
THOUGHT = re.compile(r"<think>(.*?)(?:</think>|$)", re.DOTALL)
ANSWERED = re.compile(r"<answer>.*?(?:</answer>|$)", re.DOTALL)
# of the released code, which looks at the beginning of an answer alone
FORM = re.compile(r"<think>.*?</think>\s*<answer>.*?</answer>", re.DOTALL)
ALONE = re.compile(r"[(\[]?([A-Z])[)\]]?\s*[.:]?\s*(.*)", re.DOTALL)
BARE = re.compile(r"[(\[]?([A-Z])[)\]]?[.:]?")
# "option B", "(B)", and a letter before its text or at the end of a sentence, as "B." and "not D:"
NAMED = re.compile(
    r"\b(?:option|answer|choice)\s*(?:is\s*)?(?:option\s*)?[(\[]?([A-Z])\b|[(\[]([A-Z])[)\]]|(?<!\w)([A-Z])(?=[.:,;]|\s*$)"
)
# what stands before an option that is denied; "have not poured" does not deny pouring
DENIED = re.compile(
    r"(?:(?<!have )(?<!has )(?<!had )(?<!did )\bnot|(?:ca|wo|is|was|are|do|does|would|could|should)n['’]t|\bcannot|\bnever"
    r"|\bneither|\bnor|\binstead of|\brather than)\s+(?:(?!but\b)[\w'’]+\s+){0,3}(?:[(\[]?[A-Z][)\]]?[.:]?\s*)?[\"'“(\[]*$",
    re.IGNORECASE,
)
# and what stands behind one
REFUSED = re.compile(
    r"[)\]\"'”]*(?:\s*\?\s*no\b|\s+(?:is|was)\s+(?:wrong|incorrect|impossible)"
    r"|\s+(?:is not|isn['’]t|was not|wasn['’]t|cannot be|can['’]t be)\s+(?:the\s+)?(?:right|correct|answer|next|it)\b)",
    re.IGNORECASE,
)


def first_letter(text: str) -> str:
    """The first character inside of the first answer's tags, whatever follows it, as the released code
    reads it; "" where there is none.
    """
    tagged = TAGGED.search(text)
    return tagged[1].strip()[:1] if tagged else ""


def strict_letter(text: str, options: Sequence[str]) -> str:
    """The letter that stands in the answer's tags alone, or before the text of its own option; "" for
    anything else, and where there are several answers.
    """
    tagged = TAGGED.findall(text)
    match = ALONE.fullmatch(tagged[0].strip()) if len(tagged) == 1 else None
    if match is None or match[1] not in LETTERS[: len(options)]:
        return ""
    rest, own = match[2].strip().rstrip("."), options[LETTERS.index(match[1])].strip().rstrip(".")
    return match[1] if not rest or rest.casefold() == own.casefold() else ""


def supported_letter(thought: str, options: Sequence[str]) -> str:
    """The option that a thought names last and does not deny, by its text or as "option B", "(B)" or "B."; "" where it
    names none. Of options that end at one place the longer text counts. A rough measure, which knows no more of denial
    than words like "not" in front of a name and "is wrong" behind it; a judge reads.
    """
    bare = BARE.fullmatch(thought.strip())
    if bare:
        return bare[1] if bare[1] in LETTERS[: len(options)] else ""
    named = [
        (m, letter)
        for m in NAMED.finditer(thought)
        if (letter := m[1] or m[2] or m[3]) in LETTERS[: len(options)]
    ]
    for letter, option in zip(LETTERS, options, strict=False):
        text = re.escape(option.strip().rstrip("."))
        mentions = re.finditer(rf"(?<!\w){text}(?!\w)", thought, re.IGNORECASE) if text else ()
        named += [(m, letter) for m in mentions]
    meant = [(m.end(), len(m[0]), letter) for m, letter in named if not is_denied(thought, m)]
    return max(meant)[2] if meant else ""


def is_denied(thought: str, mention: re.Match[str]) -> bool:
    """Whether the words around a mention say that it is not the one. "the answer is not B" is looked at from the B."""
    start = next((mention.start(i) for i in range(1, 4) if mention.re is NAMED and mention[i]), mention.start())  # fmt: skip
    before = DENIED.search(thought, max(0, start - 60), start)
    return before is not None or REFUSED.match(thought, mention.end()) is not None


def thought_of(text: str) -> str:
    """What stands between the tags of the thought, an answer in it left out; "" without one. One that is not closed
    ends with the text.
    """
    match = THOUGHT.search(ANSWERED.sub("", text))
    return match[1].strip() if match else ""


def gold_letter(task: pl.Task) -> str:
    """The letter at which the right option is shown. Raises UserError for a task without options."""
    if not pl.tasks.option_texts(task.meta):
        raise pl.UserError(
            f"task {task.id!r} has no options; give its row a column 'options', a list of two texts or more"
        )
    return pl.verifiers.MultipleChoice().gold_text(
        task.answer, options=task.meta["options"], order=task.meta.get("order")
    )


@pl.stage
class ChoiceReward:
    """1 where the answer names the right option, else 0; and what an arm adds.

    Args:
        strict: the letter has to stand alone; else the first character of the answer decides, as in the
            released code, so that "Bowl" is B.
        form: what the form <think>..</think><answer>..</answer> is worth beside it.
        consistent: what a right answer is worth beside it whose thought names the chosen option last; a thought that
            is a letter alone is not paid.
    """

    strict: bool = False
    form: float = 0.0
    consistent: float = 0.0

    def __post_init__(self) -> None:
        pl.check_bounds("form", self.form, least=0)
        pl.check_bounds("consistent", self.consistent, least=0)

    @property
    def bounds(self) -> tuple[float, float]:
        return 0.0, 1.0 + self.form + self.consistent

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> Sequence[pl.Reward]:
        return [self.judge(pl.response_text(e), group.task) for e in group.episodes]

    def judge(self, text: str, task: pl.Task) -> pl.Reward:
        """The reward with its parts; "lenient": right by its first character and not by the letter alone."""
        read = read_answer(text, task)
        right = read["strict"] if self.strict else read["first"]
        reasons = not BARE.fullmatch(read["thought"])
        consistent = bool(right and read["consistent"] and reasons)
        total = right + self.form * read["form"] + self.consistent * consistent
        parts = {
            "right": float(right),
            "lenient": float(read["first"] and not read["strict"]),
            "format": float(read["form"]),
            "consistent": float(consistent),
        }
        return pl.Reward(total=float(total), parts=parts, solved=bool(right))


def read_answer(text: str, task: pl.Task) -> dict[str, Any]:
    """What an answer says: whether it is right by both rules, has the form, which option it chooses, which
    its thought supports, and whether these agree (None where one of them is not there).
    """
    options, gold = pl.tasks.option_texts(task.meta), gold_letter(task)
    letter = first_letter(text)
    chosen = letter if letter and letter in LETTERS[: len(options)] else ""
    thought = thought_of(text)
    supports = supported_letter(thought, options)
    return {
        "first": letter == gold,
        "strict": strict_letter(text, options) == gold,
        "form": FORM.match(text) is not None,
        "chosen": chosen,
        "thought": thought,
        "supports": supports,
        "consistent": supports == chosen if supports and chosen else None,
    }

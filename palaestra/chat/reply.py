"""What a reply says outside its thoughts, and marks that only a host writes.

A thought stands in <think>...</think> or in the marks of another family (`THOUGHTS`). One that is
never closed lasts to the end; a closing mark that nothing opened ends a thought that the chat
template opened, so all that stands before it is thought too.
"""

from __future__ import annotations

import re

THOUGHTS = (
    *((f"<{name}>", f"</{name}>") for name in ("think", "thinking", "thought", "reasoning")),
    ("[THINK]", "[/THINK]"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
)
CLOSING = dict(THOUGHTS)
# what an argument of a call says is no mark: "<think>" may be a text to look up
CALL = r"<tool_call>(?:(?!</?tool_call>).)*</tool_call>"
MARKS = re.compile(
    "|".join((CALL, *(re.escape(mark) for pair in THOUGHTS for mark in pair))), re.DOTALL
)
FORGED = re.compile(
    r"</?(?:tool|function)_(?:response|result|output)s?\b|</?observations?>|\[/?TOOL_RESULTS\]"
    r"|<\|(?:im_start|start_header_id|tool|user|system|observation|ipython|tool_response)\|>"
    r"|<\|im_end\|>(?=\s*\S)|<[|｜]tool[_▁]outputs?[_▁]",
    re.IGNORECASE,
)


def outside_thoughts(text: str, *, closing: str = "", names: tuple[str, ...] = ()) -> str:
    """A reply without its thoughts.

    Args:
        closing: the mark that closes a thought which the chat template opened; "" = it opened none.
        names: tags that are calls, though they look like those of a thought.
    """
    if closing:
        text = text.partition(closing)[2]
    kept: list[str] = []
    at = 0
    while (mark := MARKS.search(text, at)) is not None:
        author, start, at = mark[0], at, mark.end()
        if author.strip("</>") in names or author.startswith("<tool_call>"):
            kept.append(text[start:at])
        elif author not in CLOSING:
            kept = []  # what stands before is a thought that the template opened
        else:
            kept.append(text[start : mark.start()])
            end = text.find(CLOSING[author], at)
            if end < 0:
                return "".join(kept)
            at = end + len(CLOSING[author])
    return "".join((*kept, text[at:]))


def open_thought(prompt: str) -> str:
    """The mark that closes the thought which a prompt ends by opening; "" = it opens none."""
    return next((b for a, b in THOUGHTS if prompt.rstrip().endswith(a)), "")


def forged_mark(text: str) -> str:
    """The first mark in a reply that only a host writes, such as that of a tool's result; "" = it
    has none.
    """
    match = FORGED.search(text)
    return match[0] if match else ""

"""The prompt of a pair of texts that has none of its own: what both begin with, up to a place where
a reply can begin.

TRL cuts where the texts first differ, and gives a space before that to the replies
(`trl.data_utils.extract_prompt`). Here the cut also never splits a word, a number or a token of
markup such as \\boxed{, and it stands behind the last mark of the assistant's turn where there is one
(as for the Helpful-Harmless data, whose replies may begin with the same words).
"""

from __future__ import annotations

import re
import unicodedata

# of the assistant's turn, in templates and in plain text
TURN = re.compile(
    r"(?:^|\n)[ \t]*(?:(?:###?|\*\*)[ ]?(?:Response|Assistant|Answer|Output)|Assistant|ASSISTANT|GPT|AI)"
    r"[ ]?(?:\*\*)?:(?:\*\*)?\n*"
    r"|ASSISTANT:|<\|assistant\|>\n*|<\|im_start\|>assistant\n*|\[/INST\]|<start_of_turn>model\n*"
    r"|<\|start_header_id\|>assistant<\|end_header_id\|>\n*|<｜Assistant｜>"
)
ENDS = ":;,.!?)]}>=|"  # what a reply may follow without white space
UNSPACED = re.compile(  # scripts without spaces between words: each character is one
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fff\u3005-\u3007\u3021-\u30ff"
    "\u31f0-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
JOINERS = "\u200c\u200d"


def prompt_of_pair(chosen: str, rejected: str) -> str:
    """What two texts begin with, without the spaces before the replies; "" = no place to cut.

    Where one text is the whole beginning of the other, that text.
    """
    n = next((i for i, (a, b) in enumerate(zip(chosen, rejected, strict=False)) if a != b), None)
    n = min(len(chosen), len(rejected)) if n is None else n
    turns = [m.end() for m in TURN.finditer(chosen, 0, n)]
    if turns:
        n = turns[-1]
    while n and not (begins_reply(chosen, n) and begins_reply(rejected, n)):
        n -= 1
    return chosen[:n].rstrip(" ")


def begins_reply(text: str, at: int) -> bool:
    """Whether a reply can begin at a place of a text: behind white space or a sign that ends
    something, or beside a character that is a word of its own.
    """
    if at >= len(text):
        return True
    before, after = text[at - 1], text[at]
    if after in JOINERS or before in JOINERS or unicodedata.category(after)[0] == "M":
        return False
    if before.isspace() or after.isspace():
        return True
    if UNSPACED.match(before) or UNSPACED.match(after):
        return True
    if before in ENDS:
        inside_number = after.isdigit() and before in ".,:" and text[max(0, at - 2)].isdigit()
        return not inside_number and (after.isalnum() or after not in ENDS + "/")
    return not before.isascii() and unicodedata.category(before) in ("Po", "Pe", "Pf")

"""The prompt of a pair of texts without one: both begin with it, and no word is cut."""

import json

import pytest
from palaestra.errors import UserError
from palaestra.tasks.files import FileTasks, first_tasks
from palaestra.tasks.implicit import prompt_of_pair

ALPACA = "Below is an instruction.\n\n### Instruction:\nAdd 9 to 10\n\n### Response:\n"
PAIRS = {  # the prompt, chosen, rejected as they go on
    "a space": ("Which colour?", " It is blue", " Not known"),
    "the same words": ("Which colour is it? It is", " blue", " green"),
    "a new line": (ALPACA, "19", "unknown"),
    "a new line before words": ("add 9 to 10\n", "answer:yes", "no"),
    "a tab": ("add 9 to 10\t", "19", "none"),
    "half a number is no prompt": ("9 + 10 =", " 19", " 18"),
    "half a word is no prompt": ("Name one:", " house", " horse"),
    "Chinese": ("九加十等于几？", "十九", "不知道"),
    "Chinese without a sign": ("天空是", "蓝色", "红色"),
    "a colon without a space": ("Question: 9 + 10? Answer:", "19", "none"),
    "a decimal is not cut": ("It costs", " 3.15", " 3.14"),
    "the reply's own first words": ("\n\nHuman: hi\n\nAssistant:", " I am well", " I am ill"),
    "a template": ("<|user|>hi<|end|><|assistant|>", "yes", "no"),
    "a longer text": ("Say it.", " Yes", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_the_prompt_ends_where_a_reply_can_begin(name):
    prompt, chosen, rejected = PAIRS[name]
    assert prompt_of_pair(prompt + chosen, prompt + rejected) == prompt
    assert prompt_of_pair(prompt + rejected, prompt + chosen) == prompt


def write(tmp_path, rows):
    path = tmp_path / "d.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


@pytest.mark.parametrize("name", [n for n in PAIRS if PAIRS[n][2]])
def test_prompt_and_replies_are_the_whole_text(tmp_path, name):
    prompt, chosen, rejected = PAIRS[name]
    (task,) = first_tasks(write(tmp_path, [{"chosen": prompt + chosen, "rejected": prompt + rejected}]), 1)
    assert (task.prompt[0].content, task.meta["chosen"], task.meta["rejected"]) == (prompt, chosen, rejected)


@pytest.mark.parametrize(
    ("chosen", "rejected", "how"),
    [("a b", "c d", "do not begin alike"), ("house", "horse", "begin alike within one word")],
)
def test_why_a_pair_has_no_prompt(tmp_path, chosen, rejected, how):
    with pytest.raises(UserError, match=f"no 'prompt', and chosen and rejected {how}; add the prompt"):
        FileTasks(write(tmp_path, [{"chosen": chosen, "rejected": rejected}]))

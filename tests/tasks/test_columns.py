"""Rows of others, written from their documented formats, and which columns are read as what."""

# ruff: noqa: E501  one line a case

import json

import pytest
from palaestra.errors import UserError
from palaestra.tasks.columns import after_mark, last_boxed, parse_columns
from palaestra.tasks.files import FileTasks, first_tasks, load


@pytest.fixture(autouse=True)
def fresh():
    load.cache_clear()


def write(folder, rows, name="d.jsonl"):
    path = folder / name
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def said(*contents):
    """Messages of the user and the assistant, in turn."""
    return [{"role": ("user", "assistant")[i % 2], "content": c} for i, c in enumerate(contents)]


def verl(i):
    return {
        "data_source": "openai/gsm8k", "prompt": said(f"{i} + 2?"), "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(i + 2)}, "extra_info": {"split": "train", "index": i},
    }  # fmt: skip


SKY = said("What color is the sky?")
BLUE, GREEN = ({"role": "assistant", "content": f"It is {c}."} for c in ("blue", "green"))
SKY_TEXT = ["What color is the sky?"]
PAIR = {"chosen": "It is blue.", "rejected": "It is green."}
IMITATED = {"demonstration": "It is blue."}
SHARED = "read question as prompt; --columns changes it"
FORMATS = {  # rows of one kind: (a row, the prompt, the answer, what is recorded and kept, what is said)
    "verl": (verl(1), ["1 + 2?"], "3", {"data_source": "openai/gsm8k", "extra_info": {"split": "train", "index": 1}, "ability": "math"}, "read reward_model.ground_truth as answer; --columns changes it"),
    "TRL, prompts": ({"prompt": "The sky is"}, ["The sky is"], None, {}, ""),
    "TRL, prompts of messages": ({"prompt": SKY}, SKY_TEXT, None, {}, ""),
    "TRL, completions": ({"prompt": "The sky is", "completion": " blue."}, ["The sky is"], None, {"demonstration": " blue."}, "read completion as demonstration; --columns changes it"),
    "TRL, completions of messages": ({"prompt": SKY, "completion": [BLUE]}, SKY_TEXT, None, IMITATED, "read completion as demonstration; --columns changes it"),
    "TRL, messages": ({"messages": [*SKY, BLUE]}, SKY_TEXT, None, IMITATED, ""),
    "TRL, pairs": ({"prompt": "The sky is", "chosen": " blue.", "rejected": " green."}, ["The sky is"], None, {"chosen": " blue.", "rejected": " green."}, ""),
    "TRL, pairs of messages": ({"prompt": SKY, "chosen": [BLUE], "rejected": [GREEN]}, SKY_TEXT, None, PAIR, ""),
    "TRL, pairs without a prompt": ({"chosen": "The sky is blue.", "rejected": "The sky is green."}, ["The sky is"], None, {"chosen": " blue.", "rejected": " green."}, ""),
    "TRL, pairs that part inside a word": ({"chosen": "The sky is blue.", "rejected": "The sky is black."}, ["The sky is"], None, {"chosen": " blue.", "rejected": " black."}, ""),
    "a pair beside a reply": ({"prompt": "q", "chosen": "a", "rejected": "b", "response": "c"}, ["q"], None, {"chosen": "a", "rejected": "b", "response": "c"}, ""),
    "TRL, conversations as pairs": ({"chosen": [*SKY, BLUE], "rejected": [*SKY, GREEN]}, SKY_TEXT, None, PAIR, ""),
    "TRL, a label": ({"prompt": "The sky is", "completion": " blue.", "label": True}, ["The sky is"], None, {"response": " blue.", "right": True}, "read completion as response, label as right; --columns changes it"),
    "TRL, a label of messages": ({"prompt": SKY, "completion": [GREEN], "label": False}, SKY_TEXT, None, {"response": "It is green.", "right": False}, "read completion as response, label as right; --columns changes it"),
    "a prompt beside whole conversations": ({"prompt": SKY_TEXT[0], "chosen": [*SKY, BLUE], "rejected": [*SKY, GREEN], "messages": [*SKY, BLUE], "score_chosen": 8.0}, SKY_TEXT, None, PAIR | {"score_chosen": 8.0}, ""),
    "OpenRLHF": ({"input": "1 + 1?", "output": "It is 2."}, ["1 + 1?"], None, {"demonstration": "It is 2."}, "read input as prompt, output as demonstration; --columns changes it"),
    "OpenRLHF, prompts": ({"context_messages": SKY}, SKY_TEXT, None, {}, "read context_messages as messages; --columns changes it"),
    "OpenRLHF, pairs": ({"prompt": "q", "chosen": "a", "rejected": "b"}, ["q"], None, {"chosen": "a", "rejected": "b"}, ""),
    "verifiers": ({"question": "1 + 1?", "answer": "2", "info": {"level": 1}, "task": "sums"}, ["1 + 1?"], "2", {"info": {"level": 1}, "task": "sums", "question": "1 + 1?"}, SHARED),
    "verifiers, messages": ({"prompt": SKY, "question": "What?", "answer": "blue"}, SKY_TEXT, "blue", {"question": "What?"}, ""),
    "Alpaca": ({"instruction": "Translate.", "input": "ja", "output": "yes"}, ["Translate.\nja"], None, {"demonstration": "yes"}, "read instruction and input as prompt, output as demonstration; --columns changes it"),
    "Alpaca without input": ({"instruction": "Say yes.", "input": "", "output": "yes"}, ["Say yes."], None, {"demonstration": "yes"}, "read instruction and input as prompt, output as demonstration; --columns changes it"),
    "ShareGPT": ({"conversations": [{"from": "system", "value": "Be brief."}, {"from": "human", "value": "hi"}, {"from": "gpt", "value": "ho"}]}, ["Be brief.", "hi"], None, {"demonstration": "ho"}, "read conversations as messages; --columns changes it"),
    "ShareGPT under a system message of another kind": ({"messages": [{"role": "system", "content": "s"}, {"from": "human", "value": "hi"}, {"from": "gpt", "value": "ho"}]}, ["s", "hi"], None, {"demonstration": "ho"}, ""),
    "a list of parts": ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}], "answer": "c"}, ["ab"], "c", {}, ""),
    "a problem and its solution": ({"problem": "1 + 1?", "solution": "$2$"}, ["1 + 1?"], "$2$", {"solution": "$2$"}, "read problem as prompt, solution as answer; --columns changes it"),
    "a working beside the answer": ({"question": "1 + 1?", "answer": "2", "solution": "One\nand one\nis two."}, ["1 + 1?"], "2", {"solution": "One\nand one\nis two."}, SHARED),
    "names in capitals": ({"Question": "1 + 1?", "ANSWER": "2", "Level": 1}, ["1 + 1?"], "2", {"Question": "1 + 1?", "ANSWER": "2", "Level": 1}, "read Question as prompt, ANSWER as answer; --columns changes it"),
    "uses in capitals": ({"Prompt": "1 + 1?", "Target": "2", "Id": "a", "System": "Be brief."}, ["Be brief.", "1 + 1?"], "2", {}, "read Prompt as prompt, System as system, Id as id, Target as answer; --columns changes it"),
    "an exact name before one in capitals": ({"prompt": "1 + 1?", "Prompt": "x", "Messages": "y", "answer": "2", "Answer": "3", "ANSWER": "4"}, ["1 + 1?"], "2", {"Prompt": "x", "Messages": "y", "Answer": "3", "ANSWER": "4"}, ""),
    "an exact question before one in capitals": ({"question": "1 + 1?", "Question": "x", "answer": "2"}, ["1 + 1?"], "2", {"Question": "x"}, SHARED),
    "a pair in capitals": ({"Prompt": "q", "Chosen": "a", "Rejected": "b"}, ["q"], None, {"chosen": "a", "rejected": "b"}, "read Prompt as prompt, Chosen as chosen, Rejected as rejected; --columns changes it"),
    "Alpaca in capitals": ({"Instruction": "Translate.", "Input": "ja", "Output": "yes"}, ["Translate.\nja"], None, {"demonstration": "yes"}, "read Instruction and Input as prompt, Output as demonstration; --columns changes it"),
    "a label in capitals": ({"Prompt": "q", "Response": "a", "Right": True}, ["q"], None, {"response": "a", "right": True}, "read Prompt as prompt, Response as response, Right as right; --columns changes it"),
    "ARC": ({"question": "Which?", "choices": {"text": ["red", "blue"], "label": ["1", "2"]}, "answerKey": "2"}, ["Which?\nA. red\nB. blue"], "B", {"options": ["red", "blue"]}, "read question as prompt, answerKey as answer, choices as options; --columns changes it"),
    "MMLU": ({"question": "Which?", "choices": ["red", "blue"], "answer": 1}, ["Which?\nA. red\nB. blue"], 1, {"options": ["red", "blue"]}, "read question as prompt, choices as options; --columns changes it"),
    "choices without the answer": ({"prompt": "Which?", "choices": ["red", "blue"], "answer": "green"}, ["Which?"], "green", {"choices": ["red", "blue"]}, ""),
    "columns that agree": ({"query": "1 + 1?", "target": "2", "ground_truth": "2"}, ["1 + 1?"], "2", {"target": "2"}, "read query as prompt, ground_truth as answer; --columns changes it"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_rows_of_others(tmp_path, name):
    row, prompt, answer, kept, told = FORMATS[name]
    path = write(tmp_path, [row])
    needs = answer is not None or bool({"demonstration", "chosen", "right"} & kept.keys())
    tasks = FileTasks(path, test=write(tmp_path, [row], "t.jsonl"), answers=needs)
    task = tasks.task("train", 0)
    assert ([m.content for m in task.prompt], task.answer) == (prompt, answer)
    assert task.prompt[-1].role == "user" and kept.items() <= task.meta.items()
    assert not {"completion", "output", "conversations"} & set(task.meta)
    assert [n for n in tasks.notes if n.startswith("read")] == ([told] if told else [])


WORKED = [{"problem": f"{i}?", "solution": f"We see that it is $\\boxed{{\\frac{{{i}}}{{2}}}}$."} for i in range(3)]
GSM = [{"question": f"{i}?", "answer": f"So 1 < {i}.\n#### {i},000\n"} for i in range(3)]
ASKED = {  # rows, --columns, the prompt and the answer of the second
    "a name": ([{"q": f"{i}?", "gold": i} for i in range(3)], "q=prompt, gold=answer", "1?", 1),
    "a name the other way": ([{"q": f"{i}?", "gold": i} for i in range(3)], "prompt=q,answer=gold", "1?", 1),
    "after a mark": (GSM, "answer=####", "1?", "1,000"),
    "in a box": (WORKED, "answer=boxed", "1?", "\\frac{1}{2}"),
    "another column's box": (WORKED, "solution=answer,answer=boxed", "1?", "\\frac{1}{2}"),
    "inside": ([{"prompt": f"{i}?", "info": {"gold": [0, i]}} for i in range(3)], "answer=info.gold.1", "1?", 1),
    "a name with points": ([{"data.prompt": f"{i}?", "gold.x": i} for i in range(3)], "data.prompt=prompt,gold.x=answer", "1?", 1),
    "a name with points inside": ([{"prompt": f"{i}?", "a": {"b.c": {"d": i}}} for i in range(3)], "answer=a.b.c.d", "1?", 1),
    "a name with points before what is inside": ([{"prompt": f"{i}?", "a.b": {"c": i}} for i in range(3)], "answer=a.b.c", "1?", 1),
    "a name in spaces": ([{"prompt": f"{i}?", " gold ": i} for i in range(3)], "gold=answer", "1?", 1),
    "inside text": ([{"prompt": f"{i}?", "info": json.dumps({"gold": i})} for i in range(3)], "answer=info.gold", "1?", 1),
    "swapped": ([{"prompt": f"{i}", "answer": f"{i}?"} for i in range(3)], "prompt=answer,answer=prompt", "1?", "1"),
    "a usual name in spaces": ([{" prompt": f"{i}?", " answer": i} for i in range(3)], "", "1?", 1),
    "both of a choice": ([{"question": "x", "problem": f"{i}?", "answer": i} for i in range(3)], "problem=prompt", "1?", 1),
    "a prompt beside messages": ([{"messages": [*SKY, BLUE], "problem": f"{i}?", "answer": i} for i in range(3)], "problem=prompt", "1?", 1),
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_columns_that_are_named(tmp_path, name):
    rows, columns, prompt, answer = ASKED[name]
    task = first_tasks(write(tmp_path, rows), 2, columns)[1]
    assert ([m.content for m in task.prompt], task.answer) == ([prompt], answer)


def test_a_column_can_be_imitated_whole_and_cut_for_the_answer(tmp_path):
    task = first_tasks(write(tmp_path, GSM), 1, "answer=demonstration,answer=####")[0]
    assert (task.meta["demonstration"], task.answer) == (GSM[0]["answer"], "0,000")


def test_a_function_reads_rows(tmp_path):
    code = "def row(r):\n    return {'prompt': r['a'] + '?', 'answer': r['b'], 'kept': 1}\n\ndef bad(r):\n    return r['none']\n\ndef text(r):\n    return 'x'\n"
    (tmp_path / "clean.py").write_text(code)
    path, file = write(tmp_path, [{"a": str(i), "b": i} for i in range(3)]), tmp_path / "clean.py"
    task = first_tasks(path, 1, f"{file}:row")[0]
    assert (task.prompt[0].content, task.answer, task.meta) == ("0?", 0, {"kept": 1})
    with pytest.raises(UserError, match=r"d\.jsonl:1: .*clean\.py:5: KeyError: 'none'$"):
        FileTasks(path, columns=f"{file}:bad")
    with pytest.raises(UserError, match=r"d\.jsonl:1: .*clean\.py:text gave a string; return a row"):
        FileTasks(path, columns=f"{file}:text")


MISTAKES = {  # rows, --columns, what is said
    "two prompts": ([{"question": "a", "problem": "b", "answer": "c"}], "", r"d\.jsonl: 'question' and 'problem' could each be the prompt; say which, --columns question=prompt"),
    "a prompt and a conversation": ([{"conversations": SKY, "question": "b", "answer": "c"}], "", r"'conversations' and 'question' could each be the prompt"),
    "two answers": ([{"prompt": "a", "target": "b", "ground_truth": "c"}], "", r"'ground_truth' and 'target' could each be the answer; say which, --columns ground_truth=answer"),
    "two replies": ([{"prompt": "a", "completion": "b", "output": "c"}], "", r"'completion' and 'output' could each be the demonstration"),
    "whole workings": (WORKED, "", r"d\.jsonl: 'solution' holds whole workings, not answers to compare with; give --columns answer=boxed or answer=####"),
    "a label that is text": ([{"prompt": "a", "completion": "b", "label": "good"}], "", r"'label' is no true or false, so it does not say which 'completion' is right"),
    "a label that is a rating": ([{"prompt": "a", "completion": "b", "label": i} for i in (1, 2)], "", r"'label' is no true or false"),
    "no such column": (GSM, "qestion=prompt", r"d\.jsonl: --columns names 'qestion', and no record has it; did you mean question\?; they have question, answer"),
    "nothing inside": (GSM, "answer=info.gold", r"--columns names 'info\.gold', and no record has it"),
    "nothing so far inside": ([{"prompt": "a", "gold": [1]}], "answer=gold.1", r"--columns names 'gold\.1', and no record has it"),
    "no use": (GSM, "question=promt", r"--columns question=promt: neither side is one of prompt, messages, .*; did you mean prompt\?"),
    "no sign": (GSM, "question", r"--columns question: write COLUMN=USE"),
    "twice": (GSM, "question=prompt,answer=prompt", r"--columns answer=prompt: 'prompt' is said twice"),
    "no mark": ([*GSM, {"question": "x?", "answer": "7"}], "answer=####", r"d\.jsonl:4: answer has no ####; write it or drop the record"),
    "no box": ([{"prompt": "a", "answer": "\\boxed{7"}], "answer=boxed", r"d\.jsonl:1: answer has no \\boxed\{\.\.\.\}"),
    "a cut number": ([{"prompt": "a", "answer": 7}], "answer=boxed", r"d\.jsonl:1: answer is a number; 'boxed' is looked for in text"),
    "no common start": ([{"chosen": "a b", "rejected": "c d"}], "", r"d\.jsonl:1: no 'prompt', and chosen and rejected do not begin alike"),
    "equal conversations": ([{"chosen": [*SKY, BLUE], "rejected": [*SKY, BLUE]}], "", r"d\.jsonl:1: chosen and rejected do not differ"),
    "another prompt": ([{"prompt": "x", "chosen": [*SKY, BLUE], "rejected": [*SKY, GREEN]}], "", r"d\.jsonl:1: chosen and rejected begin with other messages than the prompt"),
    "several replies": ([{"prompt": "x", "chosen": [BLUE, GREEN], "rejected": [GREEN]}], "", r"d\.jsonl:1: chosen\[0\] and chosen\[1\] are both from the assistant"),
    "a reply of the user": ([{"prompt": "x", "chosen": SKY, "rejected": [GREEN]}], "", r"d\.jsonl:1: chosen is a list .*; write text, or messages after the prompt that end with the assistant"),
    "tools": ([{"conversations": [{"from": "human", "value": "a"}, {"from": "tool", "value": "b"}]}], "", r"conversations\[1\] is a tool's result; only what ends with the assistant has results"),
    "marks of a user": ([{"messages": [{"role": "user", "content": "a", "weight": 1}, BLUE]}], "", r"messages\[0\]\.weight marks a message of the user; only the assistant is imitated"),
    "a strange mark": ([{"messages": [*SKY, {**BLUE, "weight": 0.5}]}], "", r"messages\[1\]\.weight is a number \('0\.5'\); write 0 or 1"),
    "no messages": ([{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}, {"conversations": []}], "", r"d\.jsonl:2: conversations is an empty list; write messages, \[\{"),
    "the user has the last word": ([{"messages": [*SKY, BLUE]}, {"messages": SKY}], "", r"d\.jsonl:2: messages ends with the user, so it shows no reply to imitate, and there is no answer"),
    "a talk of the user's own name": ([{"Talk": [*SKY, BLUE]}, {"Talk": SKY}], "Talk=messages", r"d\.jsonl:2: Talk ends with the user"),
    "a talk that ends otherwise": ([{"Talk": [BLUE]}], "Talk=messages", r"d\.jsonl:1: the last message of Talk is from 'assistant'"),
    "an empty value": ([{"Q": "1?", "Ans": "1"}, {"Q": "2?", "Ans": None}], "Q=prompt,Ans=answer", r"d\.jsonl:2: Ans is empty; write it or drop the record"),
    "an empty answer that is cut": ([*GSM, {"question": "x?", "answer": None}], "answer=####", r"d\.jsonl:4: answer is empty; write it"),
    "an empty text": ([{"Q": "1?", "Ans": "1"}, {"Q": "", "Ans": "2"}], "Q=prompt,Ans=answer", r"d\.jsonl:2: Q is empty; write it"),
    "an empty place": ([{"prompt": "1?", "info": {"gold": 1}}, {"prompt": "2?", "info": {}}], "answer=info.gold", r"d\.jsonl:2: info\.gold is empty"),
    "an answer of another kind": ([{"question": "1?", "target": ["1"]}], "", r"d\.jsonl:1: target is a list; write text or a number"),
    "a column that is missing": ([{"Q": "1?", "Ans": "1"}, {"Question 2": "2?", "Ans": 2}], "Q=prompt,Ans=answer", r"d\.jsonl:2: no 'Q'; the record has Question 2, Ans; say which column it is, --columns COLUMN=prompt"),
    "a column of no known name": ([{"text": "1?", "Gold": "1"}], "", r"d\.jsonl:1: no 'prompt' \(nor 'messages'\); the record has text, Gold; say which column it is, --columns text=prompt"),
    "no column for the answer": ([{"Question": "1?", "Gold": "1"}], "", r"d\.jsonl:1: no 'answer'; the record has Question, Gold; say which column it is, --columns COLUMN=answer"),
    "a reply of two messages": ([{"prompt": "x", "Picked": SKY, "rejected": [GREEN]}], "Picked=chosen", r"d\.jsonl:1: Picked is a list .*; write text, or messages after the prompt that end with the assistant"),
    "two columns but for capitals": ([{"Question": "a", "QUESTION": "b", "answer": "c"}], "", r"'QUESTION' and 'Question' could each be the prompt; say which, --columns QUESTION=prompt"),
    "two answers but for capitals": ([{"question": "a", "Answer": "b", "ANSWER": "c"}], "", r"'ANSWER' and 'Answer' could each be the answer; say which, --columns ANSWER=answer"),
    "a wrong split": ([{"prompt": "a", "answer": "b", "Fold": "dev"}], "Fold=split", r"d\.jsonl:1: Fold is 'dev'; write 'train' or 'test'"),
    "no marks": ([{"messages": [*SKY, {**BLUE, "weight": 0}]}], "", r"messages marks no message of the assistant to be imitated"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line(tmp_path, name):
    rows, columns, said = MISTAKES[name]
    with pytest.raises(UserError, match=said) as error:
        FileTasks(write(tmp_path, rows), columns=columns)
    assert "\n" not in str(error.value)


def test_whole_workings_are_no_mistake_where_no_answer_is_needed(tmp_path):
    tasks = FileTasks(write(tmp_path, WORKED), answers=False)
    assert tasks.task("train", 0).answer is None and "boxed" in tasks.task("train", 0).meta["solution"]


def test_one_long_answer_among_short_ones_makes_no_workings(tmp_path):
    rows = [{"problem": f"{i}?", "solution": a} for i, a in enumerate(("2", "3", "one\nor two"))]
    assert [t.answer for t in first_tasks(write(tmp_path, rows), 3)] == ["2", "3", "one\nor two"]


def test_the_last_mark_counts():
    assert after_mark("#### 1, no:\n#### 2", "####") == " 2" and after_mark("1", "####") is None


def test_the_last_box_that_is_closed():
    assert last_boxed("\\boxed{1} then \\boxed{a_{2}} and \\boxed{3") == "a_{2}"
    assert last_boxed("\\fbox{x\\}y}") == "x\\}y" and last_boxed("box") is None


def test_items_stand_in_any_order():
    (one,) = parse_columns("answer=boxed,solution=answer")
    assert (one.use, one.paths, one.cut) == ("answer", (("solution",),), "boxed")


TALK = said("a", "b", "c", "d", "e", "f")
MARKS = {  # weights or marks of the assistant's messages: (the prompt, imitated in it, the last reply)
    "all": ([{}, {}, {}], 5, [1, 3], "f"),
    "one left out": ([{}, {"weight": 0}, {}], 5, [1], "f"),
    "the last left out": ([{}, {}, {"weight": 0}], 3, [1], "d"),
    "only what is marked": ([{}, {"trained": True}, {}], 3, None, "d"),
    "not what is marked false": ([{"trained": False}, {}, {}], 5, [3], "f"),
}  # fmt: skip


@pytest.mark.parametrize("name", MARKS)
def test_which_messages_are_imitated(tmp_path, name):
    marks, n, places, reply = MARKS[name]
    talk = [{**m, **marks[i // 2]} if i % 2 else m for i, m in enumerate(TALK)]
    task = first_tasks(write(tmp_path, [{"messages": talk}]), 1)[0]
    assert (len(task.prompt), task.meta.get("imitated"), task.meta["demonstration"]) == (n, places, reply)
    task = first_tasks(write(tmp_path, [{"system": "s", "messages": talk}]), 1)[0]
    assert task.meta.get("imitated") == (places and [i + 1 for i in places])


def test_of_a_completion_the_prompts_own_replies_are_not_imitated(tmp_path):
    row = {"prompt": said("a", "b", "c"), "completion": [{"role": "assistant", "content": "d"}]}
    (task,) = first_tasks(write(tmp_path, [row]), 1)
    assert ([m.content for m in task.prompt], task.meta.get("demonstration")) == (["a", "b", "c"], "d")
    assert "imitated" not in task.meta


def test_a_weight_before_a_last_question_is_heard(tmp_path):
    talk = said("a", "b", "c")
    asked, shown = first_tasks(
        write(tmp_path, [{"messages": talk}, {"messages": [talk[0], {**talk[1], "weight": 1}, talk[2]]}]), 2
    )
    assert len(asked.prompt) == 3 and "demonstration" not in asked.meta
    assert len(shown.prompt) == 1 and shown.meta["demonstration"] == "b"


def test_an_answer_that_only_later_records_have_is_recognised(tmp_path):
    rows = [{**verl(0), "reward_model": {"style": "model"}}, verl(1)]
    assert [t.answer for t in first_tasks(write(tmp_path, rows), 2)] == [None, "3"]

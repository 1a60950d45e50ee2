"""Silent faults of data are told, each in one line with a count and a place; sane data is left in peace."""

# ruff: noqa: E501  one line a case

import itertools
import json

import pytest
from palaestra.rewards.audit import audit
from palaestra.rewards.verified import Verified
from palaestra.settings.rewards import reward_by_name
from palaestra.tasks.files import FileTasks, load, tasks_and_notes
from palaestra.tasks.preflight import place_of
from palaestra.toys.chain import ArithmeticChain
from palaestra.toys.count import Count
from palaestra.toys.knights import Knights
from palaestra.toys.rec import Rec
from palaestra.toys.variants import Variants
from palaestra.types import rng_of

NAMES = ("Natalia", "Weng", "Betty", "Julie", "Ken")


@pytest.fixture(autouse=True)
def fresh():
    load.cache_clear()


def write(folder, rows, name="d.jsonl"):
    path = folder / name
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def notes(folder, rows, **settings):
    return FileTasks(write(folder, rows), **settings).notes


def sums(n=40, **more):
    return [
        {"prompt": f"{NAMES[i % 5]} has {i} pens and buys 7 more. How many?", "answer": str(i + 7), **more}
        for i in range(n)
    ]


def at(rows, index, **changes):
    """The rows, one of them changed."""
    return [{**r, **changes} if i == index else r for i, r in enumerate(rows)]


def each(rows, **changes):
    """The rows with columns made from what they hold."""
    return [{**r, **{k: make(r) for k, make in changes.items()}} for r in rows]


def permuted(values, i):
    """One of their orders."""
    orders = list(itertools.permutations(values))
    return list(orders[i % len(orders)])


def choices(n):
    """Questions whose answers are told by no rule."""
    return [
        {
            "prompt": f"Which is case {i}?",
            "options": permuted([f"kind {i:02}", f"sort {i + 1:02}", f"form {i + 2:02}"], i),
            "answer": f"kind {i:02}",
        }
        for i in range(n)
    ]


def pairs(n=20):
    return [{"prompt": f"{i}?", "chosen": f"yes {i}", "rejected": "no"} for i in range(n)]


FAULTS = {  # rows, what is said
    "two answers": ([*sums(), {**sums()[4], "answer": "12"}], r"1 prompt has different answers: .*d\.jsonl:5 and another, e\.g\. .*d\.jsonl:41 \('12'\)"),
    "three answers to one prompt": ([*sums(), *({**sums()[4], "answer": a} for a in ("12", "13"))], r"1 prompt has different answers: "),
    "duplicates": ([*sums(), sums()[4], sums()[9]], r"2 of 42 records repeat an earlier one, e\.g\. .*d\.jsonl:41 \('Ken has 4"),
    "some have no demonstration": (at(each(sums(), demonstration=lambda r: f"so {r['answer']}"), 3, demonstration=None), r"1 of 40 records have no demonstration, e\.g\. .*d\.jsonl:4 .*; their answer alone is imitated there, and they give no hint"),
    "a repeated demonstration": ([{"prompt": f"{i % 9}?", "demonstration": "d"} for i in range(10)], r"1 of 10 records repeat"),
    "zero width": (at(sums(), 3, prompt="How many\u200b pens?"), r"1 of 40 records have invisible characters in the prompt, e\.g\. .*d\.jsonl:4 \('How many\\u200b pens\?'\)"),
    "a mark of byte order": (at(sums(), 3, answer="\ufeff10"), r"1 of 40 records have invisible characters in the answer, e\.g\. .*:4 \('\\ufeff10'\)"),
    "a control character": (at(sums(), 3, prompt="How\x07 many?"), r"1 of 40 records have invisible characters in the prompt"),
    "a hard space in an answer": (at(sums(), 3, answer="10\u00a0000"), r"1 of 40 records have invisible characters in the answer"),
    "a hard space between words": (at(sums(), 3, prompt="How\u00a0many?"), r"invisible characters in the prompt"),
    "a Cyrillic letter in a word": (at(sums(), 3, prompt="How m\u0430ny?"), r"1 of 40 records mix scripts whose letters look alike in the prompt, e\.g\. .*:4 \('How m\\u0430ny\?'\)"),
    "a Greek capital in a word": (at(sums(), 3, prompt="\u0391nna has 3?"), r"mix scripts .* in the prompt"),
    "an answer in another script": (at(sums(), 3, answer="\u0410"), r"1 of 40 records mix scripts .* in the answer, e\.g\. .*:4 \('\\u0410'\)"),
    "wide digits count once": ([{"prompt": f"q{i}", "answer": f"\uff11{chr(0xff10 + i % 10)}"} for i in range(20)], r"^20 of 20 records mix scripts"),
    "JSON as prompts": (each(sums(), prompt=lambda r: json.dumps({"q": r["prompt"]})), r"^40 of 40 records have JSON as the prompt, .*--columns prompt=prompt\.NAME$"),
    "a chat template": (at(sums(), 3, prompt="<|im_start|>user\\nhi<|im_end|>"), r"^1 of 40 records have marks of a chat template in the prompt.*take it out"),
    "a wide digit": (at(sums(), 3, answer="\uff11\uff10"), r"mix scripts .* in the answer"),
    "the answer said": (each(sums(), prompt=lambda r: f"(The answer is {r['answer']}.) {r['prompt']}"), r"40 of 40 records say their answer in the prompt, e\.g\. .*d\.jsonl:1 \("),
    "the answer said sometimes": (each(sums(10), prompt=lambda r: f"{r['prompt']} Solution: **{r['answer']}**") + sums()[10:], r"10 of 40 records say their answer"),
    "the answer at the end": (each(sums(), prompt=lambda r: f"{r['prompt']} {r['answer']}"), r"40 of 40 records end their prompt with its answer"),
    "the working before": (each(sums(), prompt=lambda r: f"7 more = {r['answer']}, as you see. {r['prompt']}"), r"40 of 40 records end their prompt with its answer|say their answer"),
    "one answer": (each(sums(), answer=lambda r: "7"), r"40 of 40 records have one and the same answer, e\.g\. .*:1 \('7'\)"),
    "one answer for nearly all": (at(each(sums(), answer=lambda r: "yes"), 7, answer="no"), r"39 of 40 records have one and the same answer"),
    "the answer said, sorted by it": ([{"prompt": f"(The answer is {i // 10 + 50}.) Pens in {i}?", "answer": str(i // 10 + 50)} for i in range(40)], r"40 of 40 records say their answer in the prompt"),
    "swapped": ([{"prompt": r["answer"], "answer": r["prompt"]} for r in sums()], r"40 of 40 records look like answers with questions, e\.g\. .*if they are swapped: --columns prompt=answer,answer=prompt"),
    "numbers as prompts": ([{"prompt": str(i), "answer": f"the sum of {i} and 0"} for i in range(40)], r"look like answers with questions"),
    "whole sentences": (each(sums(), answer=lambda r: f"In the end there are {r['answer']} pens in the box."), r"40 of 40 records have whole sentences as answers, .*keep what is to be compared"),
    "workings as in GSM8K": (each(sums(), answer=lambda r: f"First she has some pens.\nThen she buys 7 more of them.\n#### {r['answer']}"), r"40 of 40 records have whole sentences as answers, .*--columns answer=####"),
    "workings with a box": (each(sums(), answer=lambda r: f"We add the two numbers of pens. So it is $\\boxed{{{r['answer']}}}$."), r"whole sentences as answers, .*--columns answer=boxed"),
    "several boxes": (at(sums(), 2, answer="\\boxed{9} or \\boxed{10}"), r"1 of 40 records have several boxes in the answer, e\.g\. .*:3"),
    "units of some": (each(sums(20), answer=lambda r: f"{r['answer']} pens") + sums()[20:], r"20 answers are numbers with a unit and 20 without, e\.g\. .*:1 \('7 pens'\); write all in one way"),
    "per cent of some": (each(sums(5), answer=lambda r: f"{r['answer']}\\%") + sums()[5:], r"5 answers are numbers with a unit and 35 without"),
    "units of one kind": (each(sums(30), answer=lambda r: f"{r['answer']} km") + each(sums()[30:], answer=lambda r: f"{r['answer']} m"), r"answers are in km and in m, e\.g\. .*:31 \('37 m'\)"),
    "the longest option": (each(choices(40), options=lambda r: permuted(["red", "blue", r["answer"]], int(r["answer"][-2:]))), r"^the longest option is right in 40 of 40 questions, by chance in 13, e\.g\. .*:1 .*the questions left out$"),
    "the shortest option": (each(choices(40), options=lambda r: permuted(["it is red because", "it is blue because of the leaves", r["answer"]], int(r["answer"][-2:]))), r"^the shortest option is right in 40 of 40"),
    "one option whenever it stands": ([*choices(40), *({"prompt": f"Which of {i}?", "options": permuted(["all three", f"{i % 7} mm", f"{i % 6} km"], i), "answer": "all three"} for i in range(30))], r"^the option 'all three' is right in 30 of 30 questions that have it, e\.g\. "),
    "a pair of equals": (at(pairs(), 6, chosen="no"), r"1 of 20 records have the same text as chosen and rejected, e\.g\. .*:7"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told_in_one_line(tmp_path, name):
    import re

    rows, said = FAULTS[name]
    found = notes(tmp_path, rows)
    assert len([line for line in found if re.search(said, line)]) == 1, found
    assert all("\n" not in line and line.isprintable() for line in found)
    others = {"one answer", "one answer for nearly all"}  # who says one thing alone may say two
    assert len(found) == 1 or name in others, found


def toy(source, n=400):
    tasks = (source.task("train", i) for i in range(n))
    return [{"prompt": p, "answer": a} for p, a in {t.prompt[0].content: t.answer for t in tasks}.items()]


def chosen(name, words):
    rng = rng_of((name,))
    return lambda: words[rng.integers(len(words))]


LETTER, COLOUR = chosen("letter", "ABCD"), chosen("colour", ("red", "green", "blue", "white"))
SANE = {
    "options of one length": choices(300),
    "few questions": each(choices(6), options=lambda r: ["a", "b", r["answer"]]),
    "chain": toy(ArithmeticChain()), "count": toy(Count()), "rec": toy(Rec()), "knights": toy(Knights()), "variants": toy(Variants()),
    "problems as GSM8K's": [{"prompt": f"{NAMES[i % 5]} sold {i} clips in April and twice as many in May. How many in both?", "answer": f"{3 * i:,}"} for i in range(900)],
    "letters of options": [{"prompt": f"Which fits case {i}?", "options": [f"a{i}", "b", "The plant grows taller because it has light."], "answer": LETTER()} for i in range(300)],
    "letters of options after a mark": [{"prompt": f"Case {i}? The answer is A or B.", "options": ["x", f"y{i}"], "answer": "A" if i % 5 else "B"} for i in range(60)],
    "letters in the text": [{"prompt": f"Case {i}? A. red B. green C. blue D. white. Answer: A, B, C or D.", "answer": LETTER()} for i in range(300)],
    "words in the text": [{"prompt": f"Case {i}? red, green, blue or white", "answer": COLOUR()} for i in range(300)],
    "yes or no": [{"prompt": f"Is {7 * i} divisible by 5? Answer: yes or no", "answer": "no" if 7 * i % 5 else "yes"} for i in range(300)],
    "the larger one": [{"prompt": f"Which is larger, {a} or {b}?", "answer": max(a, b)} for a, b in itertools.permutations(range(20), 2)],
    "examples before": [{"prompt": f"Q: 1+1\nAnswer: 2\nQ: 2+2\nAnswer: 4\nQ: {a}+{b}\nAnswer:", "answer": a + b} for a, b in itertools.product(range(20), range(20))],
    "a few of one answer": [{"prompt": f"Pens in box {i}?", "answer": "7"} for i in range(9)],
    "two spellings of a number": [*sums(20), {"prompt": "How many grams?", "answer": "1,000"}, {"prompt": "How many grams?", "answer": "1000"}],
    "reading": [{"prompt": f"In {1500 + i} Thal{i} was founded by Anna{i}, who was born nearby. Who founded it?", "answer": f"Anna{i}"} for i in range(100)],
    "trivia": [{"prompt": f"Number {i}: who, or when?", "answer": a} for i, a in enumerate(["Paris", "1984", "5 pm", "Ada Lovelace", "a bird", "12 angry men", "42", "Rome"] * 12)],
    "French": [{"prompt": f"Que font {i}\u00a0+\u00a03\u00a0? «\u00a0x\u00a0» est Pâques.", "answer": str(i + 3)} for i in range(60)],
    "Russian": [{"prompt": f"Сколько будет {i} + 3? IT-отдел, x = {i}.", "answer": str(i + 3)} for i in range(60)],
    "formulas": [{"prompt": f"Let α = {i}, Δx = 3. Find 2αx in μm.", "answer": (f"\\frac{{{i}}}{{7}}", f"{i}", f"{i}\\sqrt{{3}}", f"({i}, 1)")[i % 4]} for i in range(200)],
    "physics": [{"prompt": f"How far in {i} s at 3 m/s?", "answer": f"{3 * i} m"} for i in range(60)],
    "numbers among words": [{"prompt": f"What is in box {i}?", "answer": ("a bird", "red", "Ada Lovelace", f"{i} km", str(i))[i % 5]} for i in range(60)],
    "one record the other way": at(sums(), 3, prompt="10", answer="How many pens has Julie?"),
    "queries": [{"prompt": f"Who is older than {i}?", "answer": f"SELECT name FROM users WHERE age > {i} ORDER BY name LIMIT 3;"} for i in range(60)],
    "emoji and joiners": [{"prompt": f"\U0001f469\u200d\U0001f469\u200d\U0001f467 {i}? \u0915\u094d\u200d\u0937 \u0645\u06cc\u200c\u062e", "answer": str(i)} for i in range(60)],
    "poems": [{"prompt": f"Write about {i}.", "demonstration": "Roses are red. Violets are blue, and so it goes."} for i in range(60)],
    "pairs of one prompt": [{"prompt": f"{i // 2}?", "chosen": f"good {i}", "rejected": f"bad {i}"} for i in range(60)],
    "prompts alone": [{"prompt": "Solve it.", "tests": [i]} for i in range(60)] + [{"prompt": "And this.", "tests": []}],
}  # fmt: skip


@pytest.mark.parametrize("name", SANE)
def test_sane_data_is_left_in_peace(tmp_path, name):
    answers = "answer" in SANE[name][0] or len(SANE[name][0]) > 2 or "demonstration" in SANE[name][0]
    assert notes(tmp_path, SANE[name], answers=answers and name != "prompts alone") == ()


@pytest.mark.parametrize(
    ("prompt", "place"),
    [
        ("The answer is 7.", "marked"), ("What is 3 + 4? 7", "end"), ("3 + 4 = 7, is it not?", "end"),
        ("The answer is 71?", ""), ("Answer: 17", ""), ("7 pens and how many?", ""), ("", ""),
    ],
)  # fmt: skip
def test_where_a_prompt_says_an_answer(prompt, place):
    assert place_of("7", prompt) == place


def test_the_held_out_file_is_looked_at_too(tmp_path):
    path, test = write(tmp_path, sums()), write(tmp_path, at(sums(9), 1, answer="\u200b8"), "t.jsonl")
    (told,) = FileTasks(path, test=test).notes
    assert "t.jsonl:2" in told


def test_the_audit_looks_at_the_whole_data(tmp_path):
    path = write(tmp_path, at(sums(), 39, answer="\u200b46"))
    tasks, seen = tasks_and_notes(path, 8)
    assert len(tasks) == 8
    found = audit("exact", Verified("exact"), tasks, data=seen)
    assert [line.partition(", e.g.")[0] for line in found.data] == [
        "1 of 40 records have invisible characters in the answer"
    ]
    assert audit("exact", reward_by_name("exact"), tasks).data == ()

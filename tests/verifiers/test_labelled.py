"""Labelled answers: what users and models write, with a person's judgement of each.

`labelled.tsv` was written before the verifiers were changed for it; ↵ stands for a line break. A wrong answer that is
paid is a fault. A right one may be refused where it can be read in two ways: those are `REFUSED`, with the reason.

`labelled_plain.tsv` holds answers in plain sentences, in the order in which they were written: `first`, `second`,
`third` and `fourth` without knowledge of the rules, `attack` against them. What it still gets wrong is listed:
`PAID` and `REFUSED` are known failures, and each of them must still be one.

`labelled_asked.tsv` holds answers to questions, each with its question, as a user's data has it. Its sets were
written before the verifiers were changed for them, and judged once before they were looked at.
"""

import json
from pathlib import Path

import pytest
from palaestra.verifiers.registry import get_verifier


def rows_of(name):
    return [tuple(line.split("\t")) for line in Path(__file__).with_name(name).read_text("utf-8").split("\n")[1:-1]]


ROWS = rows_of("labelled.tsv")
PLAIN = rows_of("labelled_plain.tsv")
ASKED = rows_of("labelled_asked.tsv")
REFUSED = {  # verifier, answer, response
    ("number", "20", "The answer is 20%."): "20% is not 20",
    ("math", "4", "\\boxed{\\sqrt 16}"): "an operation is left to be done",
    ("math", "2", "\\boxed{\\log_{10} 100}"): "an operation is left to be done",
    ("math", "1024", "\\boxed{2^{10}}"): "an operation is left to be done",
    ("number", "0.25", "25%"): "25% is not 0.25",
    ("number", "0.25", "25 percent"): "25% is not 0.25",
    ("math", "\\frac{1}{2}", "50\\%"): "50% is not 0.5",
    ("number", "120", "120 m"): "m may be million",
    ("exact", "9:30", "9:30 AM"): "the reference may be in the evening",
    ("exact", "9:30", "at 9:30 a.m."): "the reference may be in the evening",
    ("exact", "9:30", "9:30 in the morning"): "the reference may be in the evening",
    ("exact", "Paris", "Paris, France"): "Paris, Texas has the same form",
    ("number", "1000000", "10^6"): "an operation is left to be done",
    ("number", "1000000", "$10^{6}$"): "an operation is left to be done",
    ("exact", "photosynthesis", "Plants use photosynthesis."): "the verb is not known",
    ("number", "42", "42 of the 60 students"): "may be a share",
    ("number", "42", "42 out of 100"): "may be a share",
}
PAID = {
    ("number", "42", "42 in each box"): "a rate may be what was asked for",
    ("number", "12", "12 eggs each"): "a rate may be what was asked for",
    ("number", "12", "12 before tax"): "what is before tax may be what was asked for",
    ("number", "12", '12"'): "the mark of inches is read as a quotation mark",
    ("number", "12", "12 is the question number"): "the sense of the words is not known",
    ("number", "12", "12 more"): "a difference may be what was asked for",
    ("number", "12", "12 points"): "points may be percentage points, or what a game counts",
    ("set", '["a", "b"]', "The missing items are a and b"): "the missing items may be what was asked for",
}


ASKED_REFUSED = {  # answer, response
    ('["France", "Spain"]', "Andorra borders France to the north and Spain to the south."): "items apart",
    ("5\\sqrt{2}", "5 times the square root of 2"): "an operation in words",
    ("26", "Probably 26"): "a guess",
    ("38%", "0.38"): "0.38 is not 38%",
    ("2/5", "40%"): "40% is not 2/5",
    ("\\frac{\\pi}{4}", "45°"): "another unit than the reference's",
    ("the Amazon", "Amazon River, at about 6,400 km"): "the kind of thing and a remark behind the name",
    ("404", "404 Not Found"): "words that deny stand behind the number",
    ("O(log n)", "Binary search runs in O(log n) time."): "the verb is not known",
    ("Orion", "Betelgeuse lies in Orion."): "the verb is not known",
    ("The Two Towers", "The second volume is titled The Two Towers."): "a second thing may be another",
    ("1847", "The book first appeared in 1847 under a pen name."): "under may limit the number",
    ("no", "It does not land in Oslo."): "the subject is a pronoun",
    ("4.37", "≈ 4.37 light years"): "rounded, and nothing in front of it",
    ("4.37", "4.37 ly"): "letters behind the number",
    ("Augustus", "Augustus (Octavian)"): "the name in brackets may be another answer",
    ("14th century", "In the fourteenth century."): "a preposition stands in front",
    ("x \\neq 2", "all real numbers except 2"): "a set in words",
    ("\\infty", "The limit is infinite (+∞)."): "a value that is said twice",
}
ASKED_PAID = {("32", "'32'"): "quotation marks around an answer are left out"}


def score(verifier, answer, response, options, question=""):
    fields = {"options": options.split("|")} if options else {}
    if question and verifier != "json":
        fields["prompt"] = question.replace("↵", "\n")
    gold = json.loads(answer) if verifier in ("set", "list") else answer
    return get_verifier(verifier)(response.replace("↵", "\n"), gold, **fields).score


@pytest.mark.parametrize("verifier", ["exact", "number", "math", "choice", "set", "list"])
def test_labelled_answers(verifier):
    if verifier == "math":
        pytest.importorskip("math_verify")
    paid, refused = [], []
    for name, right, _, answer, response, options in ROWS:
        if name != verifier:
            continue
        found = score(name, answer, response, options)
        if right == "0" and found:
            paid.append((answer, response))
        if right == "1" and not found and (name, answer, response) not in REFUSED:
            refused.append((answer, response))
    assert paid == [] and refused == []


@pytest.mark.parametrize("verifier", sorted({row[0] for row in PLAIN}))
def test_labelled_plain_answers(verifier):
    if verifier == "math":
        pytest.importorskip("math_verify")
    wrong = {"1": set(), "0": set()}
    for name, right, _, answer, response, options in PLAIN:
        if name == verifier and (score(name, answer, response, options) > 0) != (right == "1"):
            wrong[right].add((name, answer, response))
    plain = {(row[0], row[3], row[4]) for row in PLAIN if row[0] == verifier}
    assert wrong["0"] == plain & PAID.keys()
    assert wrong["1"] == plain & REFUSED.keys()


@pytest.mark.parametrize("verifier", sorted({row[0] for row in ASKED}))
def test_labelled_answers_to_questions(verifier):
    if verifier == "math":
        pytest.importorskip("math_verify")
    wrong = {"1": set(), "0": set()}
    for name, right, _, answer, response, options, question in ASKED:
        if name == verifier and (score(name, answer, response, options, question) > 0) != (right == "1"):
            wrong[right].add((answer, response))
    here = {(row[3], row[4]) for row in ASKED if row[0] == verifier}
    assert wrong["0"] == here & ASKED_PAID.keys()
    assert wrong["1"] == here & ASKED_REFUSED.keys()


def test_the_table_is_balanced():
    right = sum(row[1] == "1" for row in ROWS)
    assert len(ROWS) >= 300 and 0.45 < right / len(ROWS) < 0.55
    assert REFUSED.keys() | PAID.keys() <= {(row[0], row[3], row[4]) for row in ROWS + PLAIN}
    seen = [row for row in PLAIN if row[2] != "attack"]
    assert len(seen) >= 1000 and 0.4 < sum(row[1] == "1" for row in seen) / len(seen) < 0.5

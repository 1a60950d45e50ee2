"""Notations of one value, by kind: what is the same answer, and the near miss that is not."""

import pytest
from palaestra.verifiers.answers.measures import read_measure, same_measure
from palaestra.verifiers.answers.plain_replies import point_decimals, spelled_fractions
from palaestra.verifiers.answers.values import contradicts, spoken_times
from palaestra.verifiers.registry import get_verifier

KINDS = [  # verifier, question, reference, right, wrong
    ("exact", "How long does it take?", "90 minutes",
     ["1.5 h", "1 hour and 30 minutes", "1h30", "5400 s"],
     ["1.5 minutes", "1 hour and 3 minutes", "90 seconds", "1 hour or 90 minutes", "It takes less than 90 minutes.",
      "90 minutes too long", "90 minutes more", "-90 minutes", "It does not take 90 minutes."]),
    ("exact", "What force acts?", "12 N", ["12 newtons", "0.012 kN", "F = 12 N"], ["12 kN", "12 Nm", "12", "12 J"]),
    ("exact", "How cold was it?", "-7 °C", ["7 degrees below zero (Celsius)", "minus 7 degrees Celsius", "-7 C"],
     ["7 °C", "-7 °F", "7 degrees above zero (Celsius)", "-7 K"]),
    ("exact", "When does it start?", "6:45 pm", ["18:45", "18h45", "quarter to seven in the evening", "6.45 p.m."],
     ["6:45 am", "06:45", "6:45", "18:54", "after 18:45", "18:45 or 19:00", "not at 18:45"]),
    ("exact", "When was it founded?", "3 May 1791", ["1791-05-03", "May 3rd, 1791", "3.5.1791", "on the 3rd of May 1791"],
     ["5 March 1791", "05/03/1791", "before 3 May 1791", "3 May 1792", "3 May 1791 or 4 May 1791", "May 1791"]),
    ("exact", "Which years did it last?", "1618-1648",
     ["from 1618 to 1648", "1618–1648", "It began in 1618 and ended in 1648.", "between 1618 and 1648"],
     ["1618-1649", "1648-1618", "1618", "not from 1618 to 1648", "from 1618 to 1648 or 1650"]),
    ("exact", "What was the result?", "-$250", ["($250)", "a loss of $250", "minus 250 dollars"],
     ["$250", "a profit of $250", "a loss of $-250,000", "€-250"]),
    ("exact", "What was the profit?", "$250", ["$250", "250 dollars"], ["a loss of $250"]),
    ("exact", "What is the price?", "$12.30", ["12 dollars and 30 cents", "1230 cents", "USD 12.30"],
     ["12 dollars and 3 cents", "12.30 cents", "$12.30 or $13", "€12.30"]),
    ("exact", "How many inhabitants are there?", "52,000", ["52k", "52 000"], ["52", "520 00", "52k or 53k"]),
    ("exact", "What share is left?", "3/4", ["three quarters", "three quarters of the share", "3/4 ≈ 0.75"],
     ["three quarters of a dozen", "a quarter", "3/4 ≈ 0.85", "four thirds"]),
    ("exact", "What percentage passed?", "40%", ["40", "40 per cent"], ["0.4", "40 points more", "60"]),
    ("exact", "What percentage passed?", "40", ["40%", "40 percent"], ["40 percentage points", "4%"]),
    ("exact", "Which metal melts first?", "tin", ["Tin melts first.", "The metal tin", "tin did"],
     ["Tin melts last.", "Lead melts first, tin second.", "Tin does not melt first.", "tinsel"]),
    ("exact", "Who beat Spain?", "Italy", ["Italy beat Spain."], ["Spain beat Italy.", "Italy lost to Spain."]),
    ("exact", "Which is better, tin or lead?", "tin", ["tin"],
     ["Which is better, tin or lead?", "tin or lead", "lead is better, tin", "Lead is better than tin."]),
    ("exact", "Is a bat a bird?", "No", ["A bat is not a bird.", "Nope, it's a mammal."],
     ["A bat is a bird.", "A bird is not a bat.", "A bat is no insect."]),
    ("exact", "Which city in Peru is it?", "Lima", ["Lima, Peru", "Lima city"], ["Lima, Ohio", "Lima beans"]),
    ("exact", "Quel est le prix ?", "1.234,50 €", ["1 234,50 €", "€1,234.50", "Le prix est de 1.234,50 euros."],
     ["1.234 €", "1,23450 €", "Ce n'est pas 1.234,50 €"]),
    ("exact", "Wie heißt die Stadt?", "Bonn", ["Die Stadt heißt Bonn.", "Das ist Bonn."],
     ["Das ist nicht Bonn.", "Köln oder Bonn"]),
    ("exact", "Which command lists files?", "ls -a", ["```\nls -a\n```", "Use `ls -a`."], ["ls -A", "```\nls -a\nls\n```"]),
    ("math", "Solve |x| < 1.", "(-1, 1)", ["-1 < x < 1", "]-1, 1[", "x \\in (-1, 1)"], ["-1 <= x < 1", "[-1, 1]", "]1, -1["]),
    ("math", "Add the vectors.", "(1, -2, 3)",
     ["\\begin{pmatrix} 1 \\\\ -2 \\\\ 3 \\end{pmatrix}", "[1, -2, 3]", "i - 2j + 3k", "⟨1, -2, 3⟩"],
     ["i + 2j + 3k", "i - 2j", "\\begin{pmatrix} 1 \\\\ -2 \\end{pmatrix}", "[1, 3, -2]"]),
    ("math", "Where do they meet?", "(1, 2)", [], ["[1, 2]", "i + 3j"]),
    ("math", "Integrate.", "\\sin(2x)", ["sin(2*x)", "\\sin 2x"], ["sin(2)*x", "cos(2*x)"]),
    ("math", "Compute.", "2+\\pi", ["2 + pi", "π + 2 ≈ 5.14"], ["2 pi", "5.14", "≈ 5.14"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "question", "gold", "right", "wrong"), KINDS)
def test_notations_of_a_value(name, question, gold, right, wrong):
    if name == "math":
        pytest.importorskip("math_verify")
    judge = get_verifier(name)
    refused = [r for r in right if not judge(r, gold, prompt=question).score]
    paid = [r for r in wrong if judge(r, gold, prompt=question).score]
    assert refused == [] and paid == []


def test_options_by_place_and_by_the_words_of_the_question():
    judge, options = get_verifier("choice"), ["5", "6", "7"]
    asked = "How many sides has a hexagon?\n(1) 5\n(2) 6\n(3) 7"
    score = lambda reply, prompt: judge(reply, "6", options=options, prompt=prompt).score
    for reply in ("A hexagon has 6 sides.", "the second one", "(2)", "Option 2", "(2) 6"):
        assert score(reply, asked) == 1, reply
    for reply in ("A hexagon has 5 sides.", "the third one", "(3)", "(2) 7", "A hexagon has 6 or 7 sides."):
        assert score(reply, asked) == 0, reply
    assert score("(2)", "How many sides has a hexagon?") == 0  # no numbers are shown


def test_measures_add_up_and_keep_their_dimension():
    assert read_measure("2 h 15 min") == read_measure("135 minutes") == read_measure("2h15")
    assert same_measure("180 g mol⁻¹", "0.18 kg/mol") and same_measure("1.8e-5 M", "1.8e-5 mol/L")
    for text, gold in (("12 m", "12 s"), ("15 min 2 h", "135 minutes"), ("2 h 15 s", "135 minutes"), ("5 mA", "5 MA")):
        assert not same_measure(text, gold)


def test_texts_are_rewritten_for_one_reading():
    assert spoken_times("at half past nine in the evening") == "at 9:30 pm"
    assert spelled_fractions("two and a quarter cups") == "2 1/4 cups"
    assert spelled_fractions("a third of 9") == "a third of 9"
    assert point_decimals("1.234,5 und 12.500") == "1234.5 und 12500"
    assert contradicts("6 a week", "How many a day?") and not contradicts("6 a day", "How many a day?")

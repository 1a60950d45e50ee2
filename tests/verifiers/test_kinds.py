"""Wrong answers that look like right ones, and right ones in unusual dress, by kind."""

import pytest
from palaestra.errors import UserError
from palaestra.verifiers.answers.final import gold_of
from palaestra.verifiers.answers.notation import read_notation, text_key
from palaestra.verifiers.registry import get_verifier
from palaestra.verifiers.text.constraints import keeps_constraint
from palaestra.verifiers.text.writing import sentences_in, shown_text, words_in

from tests.rows import every


def boxed(text):
    return f"\\boxed{{{text}}}"


def pays(name, gold, response, **fields):
    return get_verifier(name)(response, gold, **fields).score == 1.0


PLAIN = [  # of exact; kind, gold, right, wrong
    ("case", "2x+1", ["2x+1"], ["2X+1"]),
    ("case", "X", ["X"], ["x"]),
    ("case", "aB", ["aB"], ["Ab", "ab"]),
    ("case", "Paris", ["paris", "PARIS"], ["Pari"]),
    ("amount", "7", ["7", "7 apples", "He has 7 apples left.", "7 km/h"],
     ["7 million", "The answer is 7 million", "Answer: minus 7", "negative 7", "half of 7", "half 7", "a third of the 7",
      "7 dozen", "7 thousand", "7 percent", "It is 7 per cent.", "twice 7", "less than 7", "Answer: 7 squared",
      "the square root of 7", "Answer: 7 halves", "7 and a half", "Answer: 7 plus one", "7 point five", "7 (in millions)",
      "7 lakh", "7 tens", "7 gross", "7 per thousand", "7M", "7k", "three more than 7", "7 dollars and fifty cents",
      "7 is not the answer", "7 below zero", "under 7", "7 percentage points", "7 1/2", "7½", "7 over 2"]),
    ("amount", "7000000", ["7 million", "7 million dollars", "The answer is 7 million."], ["7", "8 million", "7 billion"]),
    ("amount", "84", ["The answer is 7 dozen eggs."], ["7"]),
    ("amount", "-7", ["minus 7", "negative 7", "-7"], ["7"]),
    ("amount", "50%", ["50 percent", "50 per cent", "\\boxed{50 \\text{ percent}}", "$50$ %"],
     ["50", "0.5", "50 percentage points"]),
    ("beside a box", "7", [boxed("7") + ".", "- \\boxed{7}", "half of the cake, so \\boxed{7}", "$3+4=\\boxed{7}$"],
     ["-\\boxed{7}", "$-\\boxed{7}$", "half of \\boxed{7}", "\\boxed{7} percent", "\\boxed{7}\\%", "\\boxed{7} million",
      "\\boxed{7}^2", "\\boxed{7}00", "\\boxed{7}.5", "$\\frac{\\boxed{7}}{2}$", "2\\boxed{7}", "\\boxed{7} lakh",
      "<answer>7</answer> million", "\\boxed{7!}"]),
    ("base", "101_2", ["\\boxed{101_2}", "101_{2}", "(101)_2", "101_{\\text{two}}", "101 in base 2"],
     ["101", "101_3", "5", "110_2"]),
    ("base", "101", ["101", "101_{10}"],
     ["101_2", "101 in base 2", "101 (base 2)", "The answer is 101 in binary.", "0b101", "0x101", "hex 101"]),
    ("base", "0x1f", ["0x1F", "\\boxed{0x1f}", "1f_{16}"], ["1f", "0x2f", "31"]),
    ("clock", "3:30", ["3:30", "03:30", "\\boxed{3:30}"], ["3.5", "3.30", "6:60", "1/10", "3:31", "3:30 PM"]),
    ("clock", "3:30 PM", ["3:30 p.m.", "3:30 pm", "\\boxed{3:30 \\text{ PM}}"], ["3:30 AM", "3:30"]),
    ("prime", "f'", ["f'", "$f'$"], ["f", "f''"]),
    ("boxes", "7", ["first \\boxed{6}, no: \\boxed{7}", "\\boxed{7}, \\boxed{7}"],
     ["\\boxed{6} and \\boxed{7}", "\\boxed{6} or \\boxed{7}", "\\boxed{6} \\boxed{7}", "$\\boxed{6}$, $\\boxed{7}$"]),
    ("boxes", "\\boxed{1} and \\boxed{2}", ["\\boxed{1} and \\boxed{2}", "1, 2"], ["\\boxed{2}", "2", "\\boxed{1}"]),
    ("markup", "1/2", ["\\boxed{\\cfrac{1}{2}}", "\\boxed{\\frac1{2}}", "\\boxed{\\quad \\dfrac 12}"],
     ["\\boxed{\\cfrac{2}{1}}"]),
    ("markup", "0.5", ["\\boxed{0,5}", "\\boxed{0{,}5}"], ["\\boxed{5,0}", "\\boxed{5{,}0}"]),
    ("markup", "1.234", ["\\boxed{1,2340}"], ["\\boxed{1{,}234}"]),
    ("markup", "12", ["12"], ["1,2", "12,0"]),
    ("markup", "7", ["\\boxed{\\quad 7}", "\\boxed{\\displaystyle 7}", "\\boxed{\\mathbf{7}}"], ["\\boxed{7 \\quad 8}"]),
    ("markup", "1/3", ["\\boxed{0.\\overline{3}}"], ["\\boxed{0.3}"]),
]  # fmt: skip
FORMULAS = [  # of math, in a box
    ("case", "x+X", ["X+x"], ["x+x", "2x", "X+X"]),
    ("case", "\\pi R^2", ["R^2\\pi"], ["\\pi r^2"]),
    ("case", "e", ["e"], ["E"]),
    ("case", "ABCD", ["ABCD"], ["abcd"]),
    ("case", "\\text{Even}", ["\\text{even}", "Even"], ["\\text{odd}"]),
    ("unit", "3", ["3\\text{ cm}", "3\\text{ bananas}", "3 \\text{ meters}", "3 students"],
     ["3x", "3\\text{ lakh}", "3\\text{ pairs}", "3\\text{ tens}", "3\\text{ nillion}", "3\\text{ less}", "3\\text{ M}",
      "3\\text{ or less}", "3\\text{ score}", "3\\text{ kilo}", "3\\text{ per cent}", "3\\text{ zonk}"]),
    ("unit", "3 \\text{ cm}", ["3\\text{ centimeters}"], ["3\\text{ m}", "3\\text{ cm}^2"]),
    ("unit", "\\$5", ["5\\text{ dollars}"], ["5\\text{ cents}"]),
    ("base", "2A_{16}", ["2a_{16}", "2A_{\\text{16}}"], ["2A", "2B_{16}", "42"]),
    ("prime", "f'(x)", ["f'(x)", "f^{\\prime}(x)", "f′(x)"], ["f''(x)", "f(x)", "f^{(2)}(x)"]),
    ("prime", "y''+y", ["y+y''", "y^{(2)}+y"], ["y'+y", "y+y"]),
    ("prime", "f^{(3)}(x)", ["f'''(x)"], ["f^3(x)", "f''(x)"]),
    ("mark", "\\overline{z}", ["\\overline{z}"], ["z"]),
    ("mark", "A^T", ["A^T", "A^{T}"], ["A"]),
    ("mark", "f^{-1}(x)", ["f^{-1}(x)"], ["\\frac{1}{f(x)}"]),
    ("list", "\\{1,2\\}", ["\\{2,1\\}", "1,2", "1 \\text{ and } 2"], ["\\{1,1,2\\}", "1,2,2", "\\{1\\}", "1,3"]),
    ("list", "1,1,2", ["2,1,1"], ["1,2", "1,2,2"]),
    ("list", "(1,2),(1,2)", ["(1,2),(1,2)"], ["(1,2)"]),
    ("list", "(1,1,2)", ["(1,1,2)"], ["(1,2)", "(2,1,1)"]),
    ("list", "\\{\\{1,1\\},2\\}", ["\\{2,\\{1,1\\}\\}"], ["\\{\\{1\\},2\\}"]),
    ("list", "x=1, x=2", ["1,2", "x=2 \\text{ or } x=1"], ["x=1", "y=1, y=2"]),
    ("list", "x_1=1, x_2=2", ["1,2", "2,1"], ["1", "2,2"]),
    ("list", "a_3=2, a_7=19", ["a_7=19, a_3=2"], ["a_3=19, a_7=2", "2,19"]),
    ("list", "\\pm 5", ["5,-5", "-5, 5"], ["5", "5,5"]),
    ("list", "(x,y)=(3,2)", ["(3,2)"], ["(2,3)"]),
    ("clock", "3:30", ["3:30"], ["\\frac{1}{10}", "6:60", "1:10"]),
    ("clock", "V_1:V_2=11:21", ["11:21"], ["21:11"]),
    ("markup", "x^2", ["x^2\\quad", "\\quad x^{2}"], ["x^2\\quad x"]),
    ("markup", "x \\leq 5", ["x <= 5", "5 \\ge x", "x ≤ 5"], ["x < 5", "x >= 5", "5"]),
    ("markup", "1,2", ["1,\\quad 2"], ["1\\quad 3"]),
    ("over", "\\frac{a}{b+1}", ["{a \\over b+1}", "a \\over b+1"], ["{b+1 \\over a}", "{a \\over b}+1"]),
    ("root", "2\\sqrt{3}", ["2√3", "2√(3)"], ["3√2"]),
    ("power", "x^2+1", ["x²+1"], ["x³+1", "x2+1"]),
    ("log", "\\ln 2", ["\\log_e 2", "\\log_{\\mathrm{e}} 2"], ["\\log_2 e"]),
    ("constant", "x^2 + C", ["x^2 + c", "x^2+K", "x^2+C_1"], ["x^2", "x^2 + cx", "cx^2 + c", "x^2 + 1", "x^2 + x"]),
    ("interval", "[0,1)", ["0 \\le x < 1", "0 \\leq t<1"], ["0 < x < 1", "0 \\le x \\le 1", "x < 1", "0 \\le x"]),
    ("interval", "(2,\\infty)", ["x > 2", "2 < x"], ["x \\ge 2", "x < 2", "2"]),
    ("interval", "(-\\infty,3]", ["x \\le 3", "3 \\ge x"], ["x < 3", "x \\ge 3"]),
    ("interval", "(0,1)", ["(0,1)"], ["0 < x < 1"]),
    ("equation", "y=2x+3", ["2x+3=y", "y-2x-3=0", "2y = 4x+6"], ["y=2x", "y=3x+2", "y-2x+3=0", "2x+3=z"]),
    ("equation", "x=5", ["5=x", "5"], ["2x=10", "x=-5", "y-5=0"]),
    ("ratio", "3:4", ["3:4", "\\frac34", "3/4"], ["4:3", "\\frac43", "7", "34"]),
    ("inverse", "\\frac{\\pi}{4}", ["\\pi/4"], ["\\tan^{-1} 1", "\\arctan 1"]),
]  # fmt: skip
SENTENCES = [  # of math, as they are
    ("\\sqrt{2}", "Hence we find that the length of the diagonal is equal to $\\sqrt{2}$.", True),
    ("(7,6)", "So, the ordered pair $(x, y)$ that solves the system is $(7, 6)$.", True),
    ("x^2", "The final answer is $x^2$. I hope it is correct.", True),
    ("120", "Final Answer: The volume of $ABCDEFGH$ is 120. I hope it is correct.", True),
    ("1,2", "$\\boxed{1}$ and $\\boxed{2}$", True),
    ("2", "$\\boxed{1}$ and $\\boxed{2}$", False),
    ("\\boxed{1} and \\boxed{2}", "\\boxed{2}", False),
    ("\\sqrt{2}", "Hence the length is not $\\sqrt{2}$.", False),
    ("\\sqrt{2}", "It is $\\sqrt{3}$ or $\\sqrt{2}$.", False),
    ("\\sqrt{2}", "Here is $\\sqrt{3}$, and here is $\\sqrt{2}$.", False),
    ("x^2", "The sum of 3 and $x^2$.", False),
    ("x^2", "It is half of $x^2$.", False),
    ("x^2", "It is the square root of $x^2$.", False),
    ("x^2", "We are asked for the derivative of $x^2$.", False),
    ("x^2", "If it were $x^2$.", False),
    ("x^2", "So it is less than $x^2$.", False),
    ("x^2", "Is the area $x^2$?", False),
    ("\\sqrt2", "-\\boxed{\\sqrt2}", False),
    ("\\sqrt2", "2\\boxed{\\sqrt2}", False),
]


@every(("kind", "gold", "right", "wrong"), PLAIN)
def test_plain_answers(kind, gold, right, wrong):
    assert [x for x in right if not pays("exact", gold, x)] == []
    assert [x for x in wrong if pays("exact", gold, x)] == []


@every(("kind", "gold", "right", "wrong"), FORMULAS)
def test_formulas(kind, gold, right, wrong):
    pytest.importorskip("math_verify")
    assert [x for x in right if not pays("math", gold, boxed(x))] == []
    assert [x for x in wrong if pays("math", gold, boxed(x))] == []


def test_answers_in_sentences_and_boxes():
    pytest.importorskip("math_verify")
    assert [(g, x) for g, x, right in SENTENCES if pays("math", g, x) != right] == []


def test_a_thing_of_the_question_is_a_unit():
    asked = "How many zonks are there, in million?"
    assert pays("exact", "3", "3 zonk", prompt=asked) and not pays("exact", "3", "3 zonk")
    assert not pays("exact", "3", "3 million", prompt=asked)


@pytest.mark.parametrize("thing", ["zonks", "octopus arms", "wooden spoons"])
def test_things_that_are_counted(thing):
    assert pays("exact", "3", f"There are 3 {thing}.") and not pays("exact", "4", f"There are 3 {thing}.")


@every(
    "scale",
    [
        "myriads",
        "quintillions",
        "tens",
        "sevens",
        "dozens",
        "lakhs",
        "halves",
        "bps",
        "times",
        "pairs",
        "red dozens",
        "full pairs",
        "whole hundreds",
    ],
)
def test_a_plural_that_scales_is_no_thing(scale):
    assert not pays("exact", "3", f"There are 3 {scale}.") and not pays("exact", "3", f"3 {scale}")


@pytest.mark.parametrize(
    ("gold", "right", "wrong"),
    [
        (
            "12 m/s",
            ["12 meters per second", "v = 12 m/s", "\\boxed{12 \\text{ m/s}}", "It moves at 12 m/s."],
            ["12 km/h", "12 m", "12 m/s^2", "12", "-12 m/s", "less than 12 m/s"],
        ),
        ("€50", ["50 €", "50 euros", "50"], ["$50", "50 dollars", "50 cents", "It costs £50."]),
        (
            "July 4, 1776",
            ["4 July 1776", "1776-07-04", "the 4th of July 1776"],
            ["July 5, 1776", "June 4, 1776", "July 4"],
        ),
        ("H2O", ["H₂O", "$\\text{H}_2\\text{O}$"], ["H₂O₂", "HO2", "h2o2", "2H2O"]),
        ("1234567.5", ["1.234.567,5"], ["1.234.567,8", "1.234,5"]),
    ],
)
def test_ways_to_write_a_quantity(gold, right, wrong):
    assert [x for x in right if not pays("exact", gold, x)] == []
    assert [x for x in wrong if pays("exact", gold, x)] == []


@pytest.mark.parametrize(
    ("gold", "right", "wrong"),
    [
        (
            "5",
            ["5 apples, not 7", "5 (five)", "Tom needs 5 minutes to finish."],
            [
                "7 apples, not 5",
                "5 (six)",
                "So it is 3. It is not 5.",
                "5 apples short",
                "5 is too small",
                "#5",
                "❌ 5",
                "My first guess was 5",
                "maybe 5",
                "5!",
                "5 minutes to eight",
            ],
        ),
        ("0.25", ["0.25, i.e. 25%", "0.25 (25%)"], ["0.25 (2.5%)", "0.25, i.e. 75%"]),
    ],
)
def test_a_value_that_its_sentence_repeats_or_rejects(gold, right, wrong):
    assert [x for x in right if not pays("exact", gold, x)] == []
    assert [x for x in wrong if pays("exact", gold, x)] == []


@pytest.mark.parametrize(("integrand", "right", "wrong"), [
    ("\\frac{1}{x}", ["\\ln|x|", "\\ln\\left|x\\right| + C", "\\ln x", "\\log|2x|"],
     ["\\ln x^2", "|\\ln x|", "\\ln|x| + 10^{-9}x"]),
    ("\\tan x", ["-\\ln|\\cos x| + C"], ["\\ln|\\cos x|"]),
    ("e^x", ["e^x + C"], ["e^x + 0.00001x", "e^x + 10^{-12}x"]),
    ("x + 10^{-6}", ["\\frac{x^2}{2} + 10^{-6}x"], ["\\frac{x^2}{2}"]),
    ("x^2", ["\\frac{x^3}{3}"], ["0.3333333333x^3"]),
    ("0.5x", ["0.25x^2"], ["0.25001x^2"]),
    ("0", ["5", "C"], ["10^{-9}x"]),
    ("|x|", ["\\frac{x|x|}{2}"], ["\\frac{x^2}{2}"]),
])  # fmt: skip
def test_antiderivatives(integrand, right, wrong):
    pytest.importorskip("math_verify")
    assert [x for x in right if not pays("antiderivative", integrand, boxed(x))] == []
    assert [x for x in wrong if pays("antiderivative", integrand, boxed(x))] == []


def test_labels_of_a_list_are_no_items():
    for text in (
        "1. alpha\n2. beta",
        "1) alpha\n2) beta",
        "(1) alpha\n(2) beta",
        "a) alpha\nb) beta",
        "1. alpha, 2. beta",
    ):
        assert pays("list", ["alpha", "beta"], text), text
    assert pays("set", ["5", "7"], "The numbers:\n1. 5\n2. 7") and pays("set", ["1.5", "2.5"], "1.5\n2.5")
    for text in ("1. 7\n2. 8", "1. 5\n1. 7", "2. 5\n3. 7", "1. 5\n2. 7\n3. 9", "5. 1\n7. 2"):
        assert not pays("set", ["5", "7"], text), text
    assert not pays("list", ["alpha", "beta"], "1. beta\n2. alpha")


def test_items_keep_their_case_where_they_are_formulas():
    assert pays("set", ["2x", "Rome"], "rome, 2x") and not pays("set", ["2x", "Rome"], "Rome, 2X")
    options = ["x + X", "2x", "2X"]
    assert pays("choice", "2X", "<answer>2X</answer>", options=options)
    assert not pays("choice", "2X", "<answer>2x</answer>", options=options)


def test_several_boxes_of_a_reference_are_one_answer():
    assert gold_of("It is \\boxed{1}, or \\boxed{2}.") == "1, 2" and gold_of("\\boxed{3}, so \\boxed{3}.") == "3"
    assert gold_of("$\\boxed{20}$ percent") == "20 percent"
    with pytest.raises(UserError, match="no number"):
        get_verifier("number")("\\boxed{2}", "\\boxed{1} and \\boxed{2}")


def test_notations():
    same = [("101_2", "(101)_{2}"), ("0x1F", "1f_{16}"), ("12 base 3", "12_3"), ("3:30", "03:30"), ("3 : 2", "3:2")]
    assert all(read_notation(a) == read_notation(b) is not None for a, b in same)
    assert [read_notation(x) for x in ("101", "12_1", "19_8", "x_2", "AB", "a:b", "3:30:99")] == [None] * 6 + [
        ("ratio", "3", "30", "99")
    ]
    for a, b in (("2x", "2X"), ("aB", "ab"), ("\\Delta", "\\delta"), ("x_AB", "x_ab")):
        assert text_key(a) != text_key(b)
    assert text_key("New  York") == text_key("new york") and text_key("US dollars") == text_key("us Dollars")


@every(("text", "words"), [
    ("one two <!-- three four five --> six", 3),
    ("one <!-- never closed, so nothing behind it is shown", 1),
    ("<b>bold</b> text <span title='four more words here'>x</span>", 3),
    ("code `<!-- x -->` stays", 3),
    ("[//]: # (hidden words)\nshown", 1),
    ("1 < 2 and 3 > 2", 5),
    ("TheCatSatOnTheMat and more", 8),
    ("TheCat SatOn TheMat today we", 8),
    ("JavaScript is a language that people write often", 8),
    ("NASA and the USA", 4),
])  # fmt: skip
def test_words_that_are_shown(text, words):
    assert words_in(text) == words


def test_what_is_not_shown_keeps_no_constraint():
    hidden = "<!-- cat\n- a\n- b\n# c\n-->A dog. <!-- The end. -->"
    assert sentences_in(shown_text(hidden)) == 1
    for constraint in (
        ["content", "keyword", "cat"],
        ["content", "end", "The end. -->"],
        ["format", "bullets", "at least", 2],
        ["format", "headings"],
        ["length", "words", "at least", 3],
        ["length", "sentences", "at least", 2],
        ["length", "characters", "at least", 10],
        ["content", "forbidden", "cat"],
    ):
        assert not keeps_constraint(hidden, constraint), constraint
    assert keeps_constraint(hidden, ["length", "words", "at most", 2])
    assert not keeps_constraint("a c&#97;t", ["content", "forbidden", "cat"])
    assert not keeps_constraint("a c<b></b>at", ["content", "forbidden", "cat"])

"""Formulas of docstrings as MathML: what is found, what it means, and that nothing of the text is lost."""

import ast
import html
import re
import xml.dom.minidom
from pathlib import Path

import pytest
from palaestra.site.formulas import article, mathml, mixed

from tests.rows import every

RECIPES = sorted((Path(__file__).parents[2] / "palaestra" / "recipes").rglob("*.py"))


def found(text):
    """The plain text of the formulas in a line."""
    return [html.unescape(x) for x in re.findall(r'alttext="([^"]*)"', mixed(text))]


@every(
    ("text", "formulas"),
    [
        ("A_i = r_i - mean(r), and the clipped surrogate", ["A_i = r_i - mean(r)"]),
        ("a group of one gets A = 0. A truncated answer is wrong", ["A = 0"]),
        ("GRPO's 1 / |o_i| makes a long wrong answer cheap", ["1 / |o_i|"]),
        ("With r~ = (r - mean r) / (std r + eps), ddof 1,", ["r~ = (r - mean r) / (std r + eps)"]),
        ("(c_i = 0) is wrong", ["(c_i = 0)"]),
        ("(that is, c_i = 0) is wrong", ["c_i = 0"]),
        (
            "J = E_{y ~ pi}[r] - alpha KL(pihat || pi) + beta H(pi)",
            ["J = E_{y ~ pi}[r] - alpha KL(pihat || pi) + beta H(pi)"],
        ),
        ("D[i, i] - mean_{i != j} D[i, j]", ["D[i, i] - mean_{i != j} D[i, j]"]),
        ("r = sum of the points", []),
        ("by DQN/PPO and PRV/RDP, weights 0.5/0.6, the max/min player", []),
        ("batches of 1000 / 100, and + sd^2 - 1 - 2 ln sd)", []),
        ("GAE (gamma = lambda = 1) and GAE gamma = 1", ["(gamma = lambda = 1)", "gamma = 1"]),
        ("KL (pi || ref) = 0 and p = 1/2", ["KL (pi || ref) = 0", "p = 1/2"]),
        ("that is what a model is - or was - for", []),
        ("the file part_reward.py, and `A_i = 1` as code", []),
        ("I am, a cat, in (arXiv:2503.20783, section 3.2)", []),
    ],
)
def test_what_is_a_formula(text, formulas):
    assert found(text) == formulas


def shape(text, stacked=True):
    """The MathML of a formula without what only spaces it."""
    return re.sub(r'<mspace[^>]*/>| stretchy="false"|<math[^>]*>|</math>', "", mathml(text, stacked))


def test_indices_powers_and_fractions():
    assert (
        shape("A_i^2")
        == "<mrow><msup><msub><mi>A</mi><mrow><mi>i</mi></mrow></msub><mrow><mn>2</mn></mrow></msup></mrow>"
    )
    assert shape("a / b") == "<mrow><mfrac><mi>a</mi><mi>b</mi></mfrac></mrow>"
    half = "<mfrac><mrow><mi>a</mi><mo>−</mo><mi>b</mi></mrow><mrow><mi>c</mi><mo>+</mo><mn>1</mn></mrow></mfrac>"
    assert shape("(a - b) / (c + 1)") == f"<mrow>{half}</mrow>", "the brackets of a fraction are its line"
    assert "<mfrac>" not in shape("(a - b) / (c + 1)", stacked=False)
    assert "<munder><mo>∑</mo>" in shape("sum_i x_i")
    assert "<msqrt>" in shape("sqrt(2 / n)") and "<mover><mi>π</mi>" in shape("pihat")


@pytest.mark.parametrize("text", ["dL / d log pi", "a / b / c", "1 / sum_i x_i", "x / std r", "2n / m", "log p / q"])
def test_a_fraction_whose_sides_are_not_plain_stays_on_the_line(text):
    """Stacked, these would say something else."""
    first = shape(text).split("<mo>/</mo>")
    assert len(first) > 1


def test_a_call_is_one_side_of_a_fraction():
    assert shape("exp(x) / n") == (
        "<mrow><mfrac><mrow><mi>exp</mi><mrow><mo>(</mo><mi>x</mi><mo>)</mo></mrow></mrow><mi>n</mi></mfrac></mrow>"
    )
    assert "<mfrac>" in shape("pi(y) / pi_ref(y)") and shape("pi(y) / pi_ref(y)").count("<mo>(</mo>") == 2


def test_every_formula_of_every_recipe_is_whole():
    """Well formed, and with each of its letters and numbers."""
    count = 0
    for file in RECIPES:
        made = article(ast.get_docstring(ast.parse(file.read_text())) or "")
        xml.dom.minidom.parseString(f"<x>{made}</x>")
        for source, formula in re.findall(r'<math[^>]*alttext="([^"]*)"[^>]*>(.*?)</math>', made):
            numbers = re.findall(r"\d+(?:\.\d+)?", html.unescape(source))
            shown = re.sub(r"<[^>]*>", " ", formula)
            assert sorted(numbers) == sorted(re.findall(r"\d+(?:\.\d+)?", shown)), source
            assert not re.search(r"[_^{}]", re.sub(r"<mo[^>]*>\^</mo>|<mo[^>]*>[{}]</mo>", "", formula)), source
            count += 1
    assert count > 400


def test_lines_that_are_indented_stand_alone_and_commands_stay():
    made = article("It is\n\n    A = r - b,    b = 1\n\nand\n\n    palaestra train grpo\n")
    assert made.count('<div class="formula">') == 1 and '<span class="gap">' in made
    assert "<pre><code>palaestra train grpo</code></pre>" in made


def test_code_is_escaped():
    assert mixed("a `List<b>` of") == "a <code>List&lt;b&gt;</code> of"
    assert "<pre><code>palaestra train &lt;b&gt; &amp;</code></pre>" in article("    palaestra train <b> &")


def test_text_is_escaped():
    assert "<script>" not in article("<script>alert(1)</script> A = <b>")

"""ReCode: the paper's numbers, and what breaks the released reward."""

import pytest
from palaestra.recipes.rewards import recode

from tests.rewards.texts import asked, totals

NEW = "<think>Hm.</think><answer>```python\n{}\n```</answer>"


def migrated(target, *texts, **settings):
    return totals(recode.build(**settings).collect.links[1].reward, asked("notes", target, old="x"), *texts)


def test_recode_reference_values():
    glued = "np.sum(x)\n```"
    assert migrated("np.sum(a)", NEW.format("np.sum(x)")) == pytest.approx([2.611111], abs=1e-6)
    assert migrated("np.sum(a)", NEW.format("np.sum(a)")) == pytest.approx([3])
    assert migrated("np.sum(a)", f"```python\n{glued}") == pytest.approx([0.611111], abs=1e-6)
    assert migrated("np.sum(a)", NEW.format("np.sum(")) == [-1]
    assert migrated("np.sum(a)", "I do not know") == [-3]
    assert migrated("pd.concat([df, row])", NEW.format("df.append(row)")) == pytest.approx([0.55])
    assert migrated("np.sum(a)", NEW.format("np.sum(x)"), NEW.format("np.sum(a)"), exact=True) == [-0.5, 3]


def test_recode_survives_what_breaks_the_released_reward():
    code = "x = 1  # don't\ny = 'a'\nz = 'b'"
    assert migrated("x = 1\ny = 'a'\nz = 'b'", NEW.format(code)) == pytest.approx([3])
    assert migrated("# nothing", NEW.format("# nothing at all")) == pytest.approx([3])
    assert migrated("f(a)", NEW.format("f(a)\n" * 50)) == pytest.approx([1 - 1.5])


def test_recode_as_released_deletes_the_code_behind_an_apostrophe():
    """The comment's apostrophe pairs with the string's, and the rest up to the line's end goes: nothing is left to compare."""
    target, other = "# don't\nx = 'a'", "# can't\nanything('b', 1)"
    wrong, plain = NEW.format(other), NEW.format("x = 'a'  # b")
    assert migrated(target, wrong, variant="released") == [3] > migrated(target, wrong)
    assert migrated(target, plain) == [3] and migrated(target, plain, variant="released") == [1 - 1.5]
    assert migrated("x = 'a # b'\ny", NEW.format("x = 'a # b'  # c\n\ny"), variant="released") == pytest.approx(
        [1 + 3.5 * 13 / 15 - 1.5]
    )  # two blanks stay before the comment


def test_recode_reads_an_answer_line_as_code():
    rate, task = recode.Migrated(), asked("aeim beim", "ceim")
    assert rate("+1 +0\n= ceim", task)["total"] == pytest.approx(3)
    assert rate("= ceim", task)["total"] == pytest.approx(1)  # no thinking before it
    assert rate("+1 +0\n= deim", task)["total"] == pytest.approx(1 + 3.5 * 0.75 - 1.5)
    assert rate("", task)["total"] == rate("ceim", task)["total"] == -3
    assert recode.Migrated(exact=True)("+1\n= deim", task)["total"] == -0.5
    assert recode.Migrated(gate=False)("ceim", task)["total"] == -2.5

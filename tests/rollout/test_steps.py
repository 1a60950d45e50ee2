"""Where the steps of an answer end."""

from dataclasses import replace

from palaestra.rollout.steps import answer_steps, line_ends
from palaestra.types import Segment

from tests.rollout.helpers import answer


def test_lines_are_steps():
    assert line_ends(list("a\nb\n")) == [2, 4]
    assert line_ends(list("\na\n\nb")) == [3, 5]
    assert line_ends(["a", "\n\n", "b"]) == [2, 3]
    assert line_ends(list("  \n")) == line_ends([]) == []


def test_steps_end_at_a_marker_of_several_tokens():
    assert line_ends(["a", "\n", "b", "##", "c"], "##") == [4, 5]
    assert line_ends(list("a##b"), "##") == [3, 4]
    assert line_ends(list("##a##"), "##") == [5]  # nothing stands before the first one
    assert line_ends(list("####"), "##") == []


def test_steps_of_an_answer(context):
    ctx = context()
    e = answer(ctx, "1+2=3\n3*4=2\n= 2")
    found = answer_steps(e, ctx.decode)
    assert [s.text for s in found] == ["1+2=3", "3*4=2", "= 2"]
    view = e.rows[0].view()
    assert found[-1].token == len(view.ids_T) - 1  # the end token belongs to the last step
    assert ctx.decode(view.ids_T[found[0].token + 1 : found[1].token + 1]) == "3*4=2\n"
    assert [s.text for s in answer_steps(e, ctx.decode, most=2)] == ["1+2=3", "3*4=2\n= 2"]
    assert [s.kept for s in answer_steps(answer(ctx, "= 2\n \n"), ctx.decode)] == [7]  # all that was said
    hint = Segment(ids=(5, 6), hidden=True)  # no token of the view
    hinted = replace(e, rows=(replace(e.rows[0], segments=(hint, *e.rows[0].segments)),))
    assert answer_steps(hinted, ctx.decode) == found

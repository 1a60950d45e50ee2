"""Pages from templates: what is escaped, and what must be given."""

import pytest
from jinja2 import UndefinedError
from palaestra.explanation.recorded import Answer, Explained
from palaestra.view.token_picture import page
from tools.pages.rendering import render

NASTY = "<b>\x00|\"'"


def test_a_token_is_text_and_no_html():
    answer = Answer(tokens=[NASTY, "x\n", "y"], weights=[0.5, -1.0, 0.0], reward=1.0, advantage=[0.1])
    text = page(Explained(method=NASTY, prompt=NASTY, answers=[answer]))
    assert "<b>" not in text and text.count("&lt;b&gt;␀") == 4  # title, heading, prompt, token
    assert text.count("<br>") == 1 and text.index("x⏎") < text.index("<br>") < text.index(">y<")
    assert 'title="-1"' in text and 'title="+0.5"' in text and text.count("<i ") == 21


def test_markdown_is_not_escaped_but_a_bar_in_a_cell_is():
    page = render("catalogue.md", families=[("a & b", 1, [("<b>", "x|y", "", "", "", "")])])
    assert page.endswith(
        "## a & b (1 of 1 built)\n\n| id | title | needs | command | grade | status |\n"
        + "| --- " * 6
        + "|\n| <b> | x\\|y |  |  |  |  |\n"
    )


def test_what_a_template_names_must_be_given():
    with pytest.raises(UndefinedError, match="families"):
        render("catalogue.md")

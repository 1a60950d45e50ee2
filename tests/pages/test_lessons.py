"""What the page of what holds tells practitioners stands on verdicts."""

import re
from importlib import resources
from pathlib import Path

import pytest
from palaestra import catalogue
from palaestra.errors import UserError
from palaestra.ledger.files import parted, read_result
from palaestra.ledger.standing import Standing
from palaestra.settings.overrides import build
from palaestra.values import overrides
from tools.pages import holding

DOCS = Path(__file__).parents[2] / "docs"


def test_a_lesson_whose_verdict_changed_is_not_printed(monkeypatch):
    row = holding._lesson_row("srft", "reversed")
    assert row == "[srft](methods/srft.md) (-0.146 [-0.167, -0.125])"
    monkeypatch.setattr(holding, "standing", lambda entry: Standing(status="reproduced"))
    with pytest.raises(UserError, match="builds on srft being reversed, and it is reproduced: write the lesson anew"):
        holding._lesson_row("srft", "reversed")


def test_what_is_not_measured_is_said_so(monkeypatch):
    monkeypatch.setattr(holding, "read_result", lambda method: None)
    assert holding._lesson_row("srft", "reversed") == "[srft](methods/srft.md) (not measured)"
    assert holding._of_arm("srft", "srft") == "not measured"


def test_every_lesson_is_checked(monkeypatch):
    """Whatever verdict the page builds on, another one is seen."""
    asked = []
    monkeypatch.setattr(holding, "_lesson_row", lambda method, verdict: asked.append((method, verdict)) or "row")
    page = holding.holding_page().split("## What to take from it")[1].split("\n## ")[0]
    assert page.count("\n**") >= 8 and len(asked) >= page.count("\n**")
    assert all((read_result(m) or {})["verdict"] == v and catalogue.entry_of(parted(m)[0]).built for m, v in asked)


def test_the_mean_of_an_arm_is_that_of_its_seeds_or_of_a_control():
    values = (read_result("reinforce-ada") or {})["arms"]["four"]["values"]
    assert holding._of_arm("reinforce-ada", "four") == f"{sum(values) / len(values):.2f}"
    assert holding._of_arm("reinforce-ada", "balance", "groups with both kinds") == "0.96"


def test_a_lesson_may_build_on_a_real_model(monkeypatch):
    name = "nsr@small"
    assert holding._lesson_row(name, "reversed").startswith("[nsr](methods/nsr.md) (-0.3")
    with pytest.raises(UserError, match=f"builds on {name} being smaller, and it is reversed"):
        holding._lesson_row(name, "smaller")
    with pytest.raises(UserError, match="and it is taken back: write"):
        holding._lesson_row("high-entropy-tokens@small", "reversed")
    monkeypatch.setattr(holding, "stale_reason", lambda result: "it was declared otherwise")
    with pytest.raises(UserError, match="and it is stale: write"):
        holding._lesson_row(name, "reversed")


@pytest.mark.parametrize("page", ["what-holds", "choose"])
def test_what_to_begin_with_is_a_command_that_works(page):
    """The table on top of a page: each method is there with its settings, and each page that it names is, too."""
    template = resources.files("tools.pages") / "templates" / f"{page}.md"
    minute = template.read_text(encoding="utf-8").partition("## In one minute\n")[2].partition("\n## ")[0]
    commands = re.findall(r"`palaestra train ([^`]+)`", minute)
    assert {c.split()[0] for c in commands} == {"grpo", "dpo", "sft-grpo", "dr-grpo", "kimi-k1.5", "agro", "tba"}
    for method, *given in map(str.split, commands):
        build(method, overrides([w for w in given if "=" in w]))
    for link in re.findall(r"\]\(([^)#]+)\)", minute):
        assert (DOCS / link).is_file(), link

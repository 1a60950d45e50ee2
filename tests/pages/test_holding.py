"""The page of what holds: a method stands in one place alone."""

import re

import pytest
from palaestra import catalogue
from palaestra.errors import UserError
from palaestra.ledger import standing, wording
from palaestra.ledger.expectations import Greater
from palaestra.ledger.experiment import experiment_of, tiers_of
from tools.pages import holding


def section(page, title):
    """The methods that a section of the page links to."""
    text = re.split(rf"^## {title}.*$", page, flags=re.MULTILINE)[1].split("\n## ")[0]
    return set(re.findall(r"\]\(methods/([\w.-]+)\.md\)", text))


def test_what_cannot_be_tested_is_not_said_to_wait_for_its_measurement(monkeypatch):
    """Without any result, so that every declared method would be listed as not measured."""
    monkeypatch.setattr(holding, "read_result", lambda name: None)
    monkeypatch.setattr(holding, "render", lambda name, **found: found)
    found = holding.holding_page()
    links = lambda rows: {re.findall(r"\[(.*?)\]", str(r))[0] for r in rows}
    refused = {e.id for e in catalogue.all_entries() if e.built and e.claim and experiment_of(e.id).not_testable}
    assert refused and links(found["untestable"]) == refused
    assert not refused & links(found["unmeasured"])
    assert links(found["unmeasured"])


def test_no_verdict_that_was_taken_back_is_listed():
    """Of a claim on the built-in model, or of one on a real model (`ID@small`)."""
    page = holding.holding_page()
    titles = ("Holds", "There, and smaller", "Does not hold here", "The other way round", "Undecided", "Computed")
    decided = set().union(*(section(page, title) for title in titles))
    real, back = section(page, "On a real model"), section(page, "Taken back")
    for entry in (e for e in catalogue.all_entries() if e.built and e.claim):
        if standing.taken_back(entry.id):
            assert entry.id in back and entry.id not in decided, entry.id
        for name in filter(standing.taken_back, tiers_of(entry.id)):
            assert entry.id in back and entry.id not in real, name
    assert {"high-entropy-tokens", "lare"} <= back


def test_every_family_lists_its_studies():
    """Pages that compare several methods, and methods with a decided verdict, each under its own family."""
    entries = [e for e in catalogue.all_entries() if e.built]
    rows = {family: (pages, claims) for family, pages, claims in holding.family_studies(entries)}
    assert set(holding.STUDIES) <= set(rows) <= {e.family for e in entries}
    assert "[Which curriculum, when](curricula.md)" in rows["data"][0]
    for entry in entries:
        status = standing.standing(entry).status
        listed = f"[{entry.id}](methods/{entry.id}.md) ({status})" in rows.get(entry.family, ("", ""))[1]
        assert listed == (status in holding.DECIDED), entry.id


def test_what_an_arm_has_above_another_is_paired_by_seed(monkeypatch):
    found = {"arms": {"a": {"values": [0.1, 0.3, 0.2]}, "b": {"values": [0.4, 0.5, 0.6]}}, "controls": {}}
    monkeypatch.setattr(holding, "read_result", lambda name: found)
    assert holding._lead("x", "b", "a") == "0.3 [0.0516, 0.548]"


def claim(**given):
    """A result of two arms, of which `a` should be better than `b`."""
    one = {"id": "x", "rules": 2, "arms": {"a": {"values": [0.5, 0.7]}, "b": {"values": [0.2, 0.4]}}}
    one |= {"metric": "accuracy", "effect": 0.3, "ci95": [0.1, 0.5], "seeds": 2}
    return {**one, "task": ["add(d=6)"], "model": "tiny", "budget_tokens": 16_000, **given}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "`a` (0.6) is 0.3 higher than `b` (0.3) in accuracy; 95% interval 0.1 to 0.5, 2 seeds"),
        (
            {"effect": -0.02, "ci95": [-0.1, 0.06]},
            "`a` (0.6) is 0.02 lower than `b` (0.3) in accuracy; 95% interval -0.06 to 0.1, 2 seeds",
        ),
        (
            {
                "metric": "tokens, with a minus",
                "arms": {"a": {"values": [-3]}, "b": {"values": [-5]}},
                "effect": 2,
                "ci95": [1, 4],
            },
            "`a` (3) is 2 lower than `b` (5) in tokens; 95% interval 1 to 4, 2 seeds",
        ),
        ({"arms": {}}, ""),
    ],
)
def test_an_effect_in_a_sentence(monkeypatch, given, sentence):
    monkeypatch.setattr(holding, "expectation_of", lambda result: Greater("a", "b"))
    assert holding.effect_sentence(claim(**given)) == sentence


@pytest.mark.parametrize(
    ("given", "scope"),
    [
        ({}, "On addition (`add(d=6)`) with the built-in model"),
        (
            {"task": ["add(d=3)*2+bool(d=3)+add"], "model": "smollm2"},
            "On addition and Boolean formulas (`add(d=3)*2+bool(d=3)+add`) with SmolLM2-135M-Instruct",
        ),
        ({"budget_tokens": 0}, "In a simulation or program"),
        (
            {"budget_tokens": 0, "task": ["facts"], "model": "smollm2"},
            "On common-knowledge questions (`facts`) with SmolLM2-135M-Instruct",
        ),
    ],
)
def test_a_scope_names_the_task_and_the_model(given, scope):
    assert holding.scope_line(claim(**given)) == scope


def test_a_lesson_whose_verdict_changed_is_refused(monkeypatch):
    monkeypatch.setattr(holding, "read_result", lambda name: claim())
    monkeypatch.setattr(holding, "_verdict", lambda name, result: "reversed")
    with pytest.raises(UserError, match="and it is reversed"):
        holding._finding("x", "reproduced")


def test_every_claim_begins_with_its_scope():
    page = holding.holding_page()
    claims = re.findall(r"^\*\*(On|In) [^\n]*:\*\* \S", page, re.MULTILINE)
    assert len(claims) == page.count("<details ") and len(claims) > 100


def test_no_method_of_the_page_is_both_untestable_and_unmeasured():
    page = holding.holding_page()
    assert "modomodo" in section(page, "Cannot be tested here")
    assert not section(page, "Cannot be tested here") & section(page, "Declared and not measured")


def test_what_a_result_does_not_show_is_said_of_measured_rows():
    assert wording.does_not_show("none", "All is well. Cannot show: late entropy, as a run is short. It ran.") == [
        "late entropy, as a run is short"
    ]
    assert wording.does_not_show("none", "What this cannot show: a gain of .3 or more.") == ["a gain of .3 or more"]
    assert wording.does_not_show("none", "A start that cannot show anything.") == []
    assert len(wording.does_not_show("cel", "Cannot show: more.")) == 2
    claims = [e.id for e in catalogue.all_entries() if e.built and e.claim]
    known = {name for c in claims for name in (c, *tiers_of(c))}
    assert set(wording.limits()) <= known and all(not x.endswith(".") for x in wording.limits().values())

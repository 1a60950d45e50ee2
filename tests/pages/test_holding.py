"""The page of what holds: a method stands in one place alone."""

import re

from palaestra import catalogue
from palaestra.ledger import wording
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


def test_what_an_arm_has_above_another_is_paired_by_seed(monkeypatch):
    found = {"arms": {"a": {"values": [0.1, 0.3, 0.2]}, "b": {"values": [0.4, 0.5, 0.6]}}, "controls": {}}
    monkeypatch.setattr(holding, "read_result", lambda name: found)
    assert holding._lead("x", "b", "a") == "0.3 [0.0516, 0.548]"


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

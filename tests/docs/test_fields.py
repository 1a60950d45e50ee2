"""docs/fields.md tells of each field of application the methods that `palaestra list --domain` lists."""

import json
import re

import pytest
from palaestra import catalogue
from palaestra.cli.main import main

from tests.docs.blocks import ROOT


def told():
    sections = re.split(r"^## (.+)$", (ROOT / "docs/fields.md").read_text(), flags=re.M)[1:]
    rows = zip(sections[::2], sections[1::2], strict=True)
    return {name: re.findall(r"\(methods/([\w.-]+)\.md\)", text) for name, text in rows}


def test_the_page_tells_of_every_field():
    """Of what is built: the others have no page to lead to."""
    built = {e.id for e in catalogue.all_entries() if e.built}
    fields = {d: sorted(built.intersection(ids)) for d, ids in catalogue.domains().items()}
    assert {d: sorted(ids) for d, ids in told().items()} == {d: ids for d, ids in fields.items() if ids}


def test_methods_of_fields_are_in_the_catalogue_and_those_of_domains_in_a_field():
    known = {e.id: e for e in catalogue.all_entries()}
    named = {i for ids in catalogue.domains().values() for i in ids}
    assert named <= set(known)
    assert {e.id for e in known.values() if e.family == "domains"} <= named


@pytest.mark.parametrize(("domain", "some"), [("chemistry", "attrilens-mol"), ("hardware", "verirl")])
def test_methods_are_listed_by_field(domain, some, capsys):
    assert main(["list", "--domain", domain, "--json"]) == 0
    listed = [e["id"] for e in json.loads(capsys.readouterr().out.splitlines()[-1])]
    assert some in listed and set(listed) == set(catalogue.domains()[domain])
    assert main(["list", "--domain", "chemisty"]) == 2
    assert "did you mean chemistry" in capsys.readouterr().err

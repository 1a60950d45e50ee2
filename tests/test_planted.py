"""Faults of the kinds that merged tests are for are still seen: each is planted in a copy of the checkout, alone, and the test
that is to see it fails there. The faults are in `planted.tsv`; `MERGED.md` has the table."""

from pathlib import Path

import pytest

from tests.planting import ROOT, Copy, read

FAULTS = read(Path(__file__).with_name("planted.tsv"))


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    return Copy(tmp_path_factory.mktemp("planted"))


@pytest.mark.timeout(900)  # a busy machine takes minutes to import what a fault needs
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.fault)
def test_a_planted_fault_fails_its_test(copy, fault):
    with copy.planted(fault):
        assert copy.fails(fault.sees)


@pytest.mark.timeout(900)
def test_the_tests_pass_without_a_fault(copy):
    """Else they say nothing of it. One process runs them all."""
    assert copy.fails(*dict.fromkeys(f.sees for f in FAULTS)) == ""


def test_every_fault_and_its_test_stand_on_the_page():
    page = (ROOT / "tests" / "MERGED.md").read_text(encoding="utf-8")
    missing = [f.fault for f in FAULTS if f"| {f.fault} | `{f.sees.removeprefix('tests/')}` |" not in page]
    assert len(FAULTS) >= 20 and missing == []

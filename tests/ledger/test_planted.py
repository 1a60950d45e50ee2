"""Faults that are planted in a copy of the package, each alone, move the canaries that should feel them, and no other; what
changes no behaviour moves nothing. The faults are in `planted.tsv`; docs/ledger.md has the table."""

import json
from pathlib import Path

import pytest

from tests.planting import ROOT, Copy, read

FAULTS = read(Path(__file__).with_name("planted.tsv"))
SAME = ("grpo", "kdrl: k3", "spiral: fixed opponent", "ldsc")  # arms that are watched where nothing changes
# What stands for code and configuration, and whether the verdict of a published result follows from its numbers.
DIGESTS = """
import json
from palaestra.ledger import canaries, declared, results, standing
from palaestra.ledger.experiment import experiment_of
from palaestra.ledger.files import read_result
e, c = experiment_of("rloo"), canaries.cases_of("rloo")
print(json.dumps({
    "declaration": declared.digest(e),
    "arms": {a: [results.arm_sha256(e, a), results.arm_code(e, a)] for a in e.every_arm},
    "canaries": {a: canaries.configuration_of(x, (2, 2)) for a, x in c.items()},
    "verdicts": {n: standing.recompute(read_result(n)) for n in standing.published()},
}))
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    return Copy(tmp_path_factory.mktemp("planted"))


def moved(outcomes):
    """What moved or was not compared; a movement that another processor may make would not fail a check, so it is none."""
    return {c: x for c, x in outcomes.items() if x is not None and not (isinstance(x, list) and x[1])}


@pytest.mark.timeout(900)
def test_canaries_of_the_table_hold_without_a_fault(copy):
    """Else a movement says nothing of a fault."""
    cases = dict.fromkeys(c for f in FAULTS for c in (*f.moves, *f.holds))
    assert moved(copy.watch(holds=cases)) == {}


@pytest.mark.timeout(900)  # a busy machine takes minutes to import what a fault needs
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.fault)
def test_a_planted_fault_moves_its_canaries_and_no_other(copy, fault):
    with copy.planted(fault):
        outcomes = copy.watch(fault.moves, fault.holds)
    assert fault.moves and {*moved(outcomes)} == {*fault.moves}, outcomes


@pytest.mark.timeout(900)
def test_a_constant_at_the_end_of_every_file_moves_nothing(copy):
    def digests():
        child = copy.python("-c", DIGESTS)
        assert child.returncode == 0, child.stderr
        return json.loads(child.stdout)

    before = digests()
    assert not any(before["verdicts"].values()) and before["arms"] and before["canaries"]
    files = [p for p in (copy.root / "palaestra").rglob("*.py") if "templates" not in p.parts]
    texts = {p: p.read_bytes() for p in files}
    try:
        for path, text in texts.items():
            path.write_bytes(text + b"\n\nUNUSED = 1\n")
        assert len(texts) > 900 and digests() == before
        assert moved(copy.watch(holds=SAME)) == {}
    finally:
        for path, text in texts.items():
            path.write_bytes(text)


def test_every_fault_stands_on_the_page():
    page = (ROOT / "docs" / "ledger.md").read_text(encoding="utf-8")
    lines = [f"| {f.fault} | {', '.join(f.moves)} | {', '.join(f.holds)} |" for f in FAULTS]
    assert len(lines) > 15 and [line for line in lines if line not in page] == []

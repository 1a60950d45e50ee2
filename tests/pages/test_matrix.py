"""The page of parts: what is a part, and which code uses it."""

from palaestra import catalogue
from tools.pages import matrix


def test_parts_are_the_public_classes_of_their_sections():
    parts = matrix.public_parts()
    assert list(parts) == list(matrix.SECTIONS) and all(parts.values())
    assert {"Sample", "Score", "rollout.TreeSearch"} <= set(parts["Attempts"])
    assert {"Clipped", "DPO", "KL"} <= {*parts["Losses"]} and "KLKind" not in parts["Losses"]
    assert "Center" in parts["Credit"]
    flat = [p for each in parts.values() for p in each]
    assert not {"links", "Run", "Recipe", "ANSWER_PREFIX"} & set(flat) and len(flat) == len(set(flat))


def test_who_uses_a_part(monkeypatch):
    """By the recipe as it is built, by what its claim names, and by the task that the claim is measured on."""
    only = [e for e in catalogue.all_entries() if e.id in ("grpo", "gigpo")]
    monkeypatch.setattr(catalogue, "all_entries", lambda: only)
    used = matrix.rows_by_part()
    assert used["Sample"] == ["grpo", "gigpo"]  # built in
    assert used["SameState"] == ["gigpo"]  # the recipe's code or the claim's
    assert used["GridTasks"] == ["gigpo"]  # its task
    assert "TreeSearch" not in used
    assert matrix.part_row("Sample", list("abcdefgh")) == ("`pl.Sample`", "8", "a, b, c, d, e, f and 2 more")


def test_names_in_code():
    code = "import palaestra as pl\nx = pl.Sample(n=2)\ny = other.Score()\nz = pl.credit.Ema().state\n"
    assert matrix.names_in(code) == {"Sample", "credit.Ema"}

"""docs/grades.md has each graded method once, with the grade of its card."""

import re
from collections import Counter
from pathlib import Path

from palaestra import catalogue

PAGE = (Path(__file__).parents[2] / "docs" / "grades.md").read_text()
LINES = [line.split(" | ") for line in PAGE.splitlines() if re.match(r"\| (`|this page)", line)]


def test_each_grade_has_its_reading():
    """A grade that is changed without saying who read the method fails here."""
    told = [
        (name, grade)
        for line in LINES
        for grade, cell in zip("ABC", line[3:], strict=True)
        for name in cell.strip("| ").split(", ")
        if name
    ]
    twice = [name for name, n in Counter(name for name, _ in told).items() if n > 1]
    cards = {e.id: catalogue.find(e.id).CARD.grade for e in catalogue.all_entries() if e.built}
    assert not twice and len(LINES) > 10
    assert dict(told) == {name: grade for name, grade in cards.items() if grade}

"""T-patients: synthetic records of which one class is common, and one rare.

user: young    assistant: sugar    user: sugar: abnormal    assistant: kiva
"""

from __future__ import annotations

from typing import ClassVar

from palaestra.declared import declare
from palaestra.errors import UserError
from palaestra.tasks.clinical import ABNORMAL, NORMAL, ClinicalRecord, record_task
from palaestra.types import Task, rng_of, stage

TESTS = ("salt", "iron", "acid", "clot", "fat", "gas")
RANGES = {
    "salt": (1, 4),
    "iron": (3, 6),
    "acid": (6, 9),
    "clot": (2, 5),
    "fat": (1, 5),
    "gas": (4, 7),
}
# by class, which of a hundred records have it, and how likely each test is abnormal
CLASSES = {
    "none": (60, (0.1, 0.1, 0.1, 0.1, 0.3, 0.3)),
    "kiva": (25, (0.9, 0.8, 0.1, 0.1, 0.3, 0.3)),
    "toru": (15, (0.1, 0.1, 0.9, 0.8, 0.3, 0.3)),
}


@declare(
    columns=(
        ("findings", dict, "by test, what the record shows"),
        ("abnormal", tuple, "the tests whose results are abnormal"),
        ("measured", dict, "by test, a result that has a reference range, with it"),
    )
)
@stage
class PatientTasks:
    """Records that are drawn: two tests speak for each of two classes, two tests for none; a result is missing with
    probability `missing`, whatever the class.
    """

    missing: float = 0.1
    name: str = "patients"
    size: int | None = None
    tests: ClassVar[tuple[str, ...]] = TESTS
    classes: ClassVar[tuple[tuple[str, int], ...]] = tuple((c, n) for c, (n, _) in CLASSES.items())

    def _measure(self, test: str, meaning: str, split: str, index: int) -> str:
        """A number from 1 to 9 with the test's range, by a stream of its own."""
        low, high = RANGES[test]
        inside = [low <= x <= high for x in range(1, 10)]
        fits = [x for x, own in enumerate(inside, start=1) if own == (meaning == NORMAL)]
        rng = rng_of(("patients", "measured", split, index, test))
        return f"{fits[int(rng.integers(len(fits)))]} (normal {low}-{high})"

    def task(self, split: str, index: int) -> Task:
        if split not in ("train", "test"):
            raise UserError(f"{self.name} has no split {split!r}; use 'train' or 'test'")
        rng = rng_of(("patients", repr(self), split, index))
        names = tuple(CLASSES)
        label = names[int(rng.choice(len(names), p=[CLASSES[c][0] / 100 for c in names]))]
        draws, gone = rng.random(len(TESTS)), rng.random(len(TESTS))
        findings = {
            t: ABNORMAL if u < p else NORMAL
            for t, u, p, v in zip(TESTS, draws, CLASSES[label][1], gone, strict=True)
            if v >= self.missing
        }
        known = {"age": "young" if rng.random() < 0.5 else "old"}
        measured = {t: self._measure(t, x, split, index) for t, x in findings.items()}
        record = ClinicalRecord(label=label, known=known, findings=findings, measured=measured)
        return record_task(record, f"{self.name}/{split}/{index}", self.name)

"""The faces of the context: together they are it, and no question belongs to two of them."""

from collections import Counter

import pytest
from palaestra import context as faces
from palaestra.run.context import RunContext

FACES = ("Situation", "Models", "Training", "Rollouts", "Judging", "Recording", "Programs")


def own(kind: type) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def members(kind: type) -> set[str]:
    return set().union(*(own(base) for base in kind.__mro__))


def test_each_question_belongs_to_one_face():
    times = Counter(name for face in FACES for name in own(getattr(faces, face)))
    assert set(times) == members(faces.Context) and set(times.values()) == {1}
    assert not own(faces.Context)


def test_a_face_is_small():
    """A stage that names its face shows a reader what it can ask: ten things, one that trains sixteen."""
    sizes = {face: len(members(getattr(faces, face))) for face in FACES}
    assert sizes.pop("Training") <= 16 and max(sizes.values()) <= 10


@pytest.mark.parametrize("face", FACES)
def test_the_context_of_a_run_answers_every_question(face):
    given = {*dir(RunContext), *RunContext.__dataclass_fields__}
    assert own(getattr(faces, face)) <= given

"""A program in the place of the judge on the embedded problem, whose scenes it knows."""

import palaestra as pl

MEANINGS = ("praise", "irony", "threat", "sorrow")


def inside(text: str, tag: str) -> str:
    """What stands last between the tags of a judge's prompt."""
    return text.rpartition(f"<{tag}>")[2].partition(f"</{tag}>")[0]


@pl.stage
class SceneJudge:
    """Grades contexts by how many slots of the scene they name, 0, 2 or 5, and 0 where one is wrong; thoughts by a point
    for each: a face, a voice, one of each alone, a meaning alone, and the same face and voice as in the context.
    """

    def __call__(self, request: pl.ChatRequest) -> str:
        text = request.messages[-1].content
        response = inside(text, "response")
        if "<reference>" in text:
            named = pl.toys.recall_of_scene(response, inside(text, "reference"))
            return f"[[{ {0.0: 0, 0.5: 2, 1.0: 5}[named] }]]"
        return f"[[{points_of(response, inside(text, 'rubric'))}]]"


def points_of(thoughts: str, context: str) -> int:
    """From 0 to 5."""
    words, written = thoughts.casefold().split(), context.casefold().split()
    faces, voices, meanings = (
        [w for w in words if w in kind] for kind in (("smile", "frown"), ("rise", "fall"), MEANINGS)
    )
    alone = len(set(faces)) == len(set(voices)) == 1
    slots = {*faces, *voices}
    same = bool(slots) and slots == {w for w in written if w in ("smile", "frown", "rise", "fall")}
    return bool(faces) + bool(voices) + alone + (len(set(meanings)) == 1) + same

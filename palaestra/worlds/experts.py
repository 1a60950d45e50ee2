"""A user's functions as typed experts, and how the results of plans of them are measured.

    def deblur(photo: Image) -> Image        takes "Image", gives "Image"
    def caption(photo: Image) -> str         takes "Image", gives "str"

A plan is a sequence of experts. It fits where each takes the type that is there, and the last one gives
the type that is asked for (OpenAGI, arXiv:2304.04370). A type is known by its name alone:
`Caption = NewType("Caption", str)` is another type than `str`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import numpy as np

from palaestra.errors import Fault, UserError
from palaestra.services.threads import run_in_thread
from palaestra.services.tools.base import wait_for
from palaestra.tasks.user_code import locate_error
from palaestra.verifiers.answers.short import word_f1
from palaestra.verifiers.text.similarity import edit_similarity
from palaestra.worlds.toolbox import function_named, functions_in, is_file

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
STUCK = 16  # plans that may go on beyond their time before the run ends
REMEMBERED = 4096  # scores of plans
WHITE = 255.0


@dataclass(frozen=True)
class Expert:
    """A function of one value. `takes` and `gives` are the names of its types."""

    name: str
    takes: str
    gives: str
    about: str  # the first line of its docstring
    function: Callable[[Any], Any]


class ExpertBox:
    """The experts of a run. Raises UserError for a function that is none.

    Args:
        names: FILE.py:NAME, or FILE.py for all functions that a file defines.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        whole = [x for n in names for x in (functions_in(n) if is_file(n) else (n,))]
        self.types: dict[str, Any] = {}  # by name
        self.experts = {e.name: e for e in map(self._expert, whole)}
        if len(self.experts) < len(whole):
            raise UserError("two experts have one name; rename one, or leave it out")
        self.scores: dict[Any, float] = {}  # of plans that ran without an error
        self.stuck = 0

    def _expert(self, spec: str) -> Expert:
        function = function_named(spec)
        try:
            hints = get_type_hints(function)
        except (NameError, TypeError) as error:
            raise UserError(f"{spec}: its type hints cannot be read: {error}") from None
        parameters = list(inspect.signature(function).parameters.values())
        needed = [p.name for p in parameters if p.default is p.empty]
        if len(needed) != 1 or needed[0] not in hints or "return" not in hints:
            raise UserError(
                f"{spec} is no expert; one takes one value and says the types of both, as def "
                "caption(photo: Image) -> str"
            )
        if inspect.iscoroutinefunction(function):
            raise UserError(f"{spec} is async; an expert is a plain function")
        about = (inspect.getdoc(function) or "").strip().partition("\n")[0]
        takes, gives = (self._type(hints[x], spec) for x in (needed[0], "return"))
        return Expert(function.__name__, takes, gives, about, function)

    def _type(self, hint: Any, spec: str) -> str:
        name = str(getattr(hint, "__name__", "")) if get_origin(hint) is None else str(hint)
        name = name or str(hint)
        if self.types.setdefault(name, hint) != hint:
            raise UserError(f"{spec}: two types are called {name!r}; rename one of them")
        return name

    def distances(self, goal: str) -> dict[str, int]:
        """How many experts the shortest way from each type to `goal` has; types without one are left
        out.
        """
        far = {goal: 0}
        while more := {
            e.takes: far[e.gives] + 1
            for e in self.experts.values()
            if e.gives in far and e.takes not in far
        }:
            far |= more
        return far

    def legal(self, at: str, goal: str, left: int) -> tuple[str, ...]:
        """The experts that take the type `at` and after which `goal` can be reached with `left` experts
        in all.
        """
        far = self.distances(goal)
        return tuple(
            e.name
            for e in self.experts.values()
            if e.takes == at and far.get(e.gives, left) <= left - 1
        )

    def type_of(self, value: Any, what: str) -> str:
        """The type of a value of the user's data. Raises UserError where several, or none, could be."""
        fit = [name for name, hint in self.types.items() if could_be(value, hint)]
        same = [name for name in fit if self.types[name] is type(value)]
        if len(fit) == 1 or len(same) == 1:
            return (fit if len(fit) == 1 else same)[0]
        could = f"could be {', '.join(fit)}" if fit else f"is none of {', '.join(self.types)}"
        raise UserError(f"{what} {could}; name its type in the column takes or gives")

    async def run(
        self, plan: Sequence[str], values: Sequence[Any], seconds: float
    ) -> list[tuple[Any, str]]:
        """What a plan makes of each value: (result, ""), or (None, the error).

        Args:
            seconds: that an expert may take for a value.

        Raises:
            Fault: what an expert raises as one.
            UserError: likewise, or too many plans are stuck.
        """
        steps = [self.experts[name] for name in plan]

        def chain(value: Any) -> tuple[Any, str]:
            for expert in steps:
                try:
                    value = expert.function(value)
                except (Fault, UserError):
                    raise
                except (Exception, SystemExit) as error:
                    place = inspect.getsourcefile(expert.function) or "?"
                    return None, f"{expert.name}: {locate_error(error, place)}"
            return value, ""

        results = list[tuple[Any, str]]()
        for value in values:
            if self.stuck >= STUCK:
                raise UserError(
                    f"{STUCK} plans still run after their time, and a thread cannot be ended; bound the "
                    "work of your experts, or give them more --tool-seconds"
                )
            work = run_in_thread(lambda v=value: chain(v), "experts")
            if await wait_for(work, seconds * max(1, len(steps))):
                results.append(work.result())
                continue
            self.stuck += 1
            work.add_done_callback(self._ended)
            results.append((None, f"the plan took more than {seconds:g} s an expert"))
        return results

    def _ended(self, _: Any) -> None:
        self.stuck -= 1


BOXES: dict[tuple[str, ...], ExpertBox] = {}  # that are open


def expert_box(names: tuple[str, ...]) -> ExpertBox:
    """The experts of these names, the same while they are open."""
    if names not in BOXES:
        BOXES[names] = ExpertBox(names)
    return BOXES[names]


def close_experts(names: tuple[str, ...]) -> None:
    BOXES.pop(names, None)


def base_of(hint: Any) -> Any:
    """The class behind a NewType or a generic type."""
    while hasattr(hint, "__supertype__"):
        hint = hint.__supertype__
    return get_origin(hint) or hint


def is_picture(base: Any) -> bool:
    return getattr(base, "__module__", "").startswith("PIL.") and base.__name__ == "Image"


def could_be(value: Any, hint: Any) -> bool:
    """Whether a value of JSON may stand for a type: a path for a picture or an array, a list for an
    array.
    """
    base, path = base_of(hint), isinstance(value, str) and is_path(value)
    if is_picture(base):
        return path and not value.lower().endswith(".npy")
    if base is np.ndarray:
        return path or isinstance(value, list | np.ndarray)
    if base is float and type(value) is int:
        return True
    return not path and isinstance(base, type) and type(value) is base


def is_path(text: str) -> bool:
    return text.lower().endswith((*PICTURES, ".npy"))


def read_value(value: Any, hint: Any, folder: str, what: str) -> Any:
    """A value of the user's data as an expert takes it. Paths are relative to `folder`."""
    base = base_of(hint)
    if not is_picture(base) and base is not np.ndarray:
        return value
    try:
        if isinstance(value, list | np.ndarray):
            array = np.asarray(value)
            return array if base is np.ndarray else open_picture(array)
        file = Path(folder, str(value)).expanduser()
        if file.suffix.lower() == ".npy":
            return np.load(file, allow_pickle=False)
        picture = open_picture(file)
        return np.asarray(picture) if base is np.ndarray else picture
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{what} is no picture and no array: {error}") from None


def open_picture(source: Any) -> Any:
    """A picture of a file or an array, by Pillow."""
    try:
        from PIL import Image
    except ImportError:
        raise UserError("experts of pictures need Pillow: pip install pillow") from None
    if isinstance(source, np.ndarray):
        return Image.fromarray(source)
    with Image.open(source) as picture:
        picture.load()
        return picture


def similarity(output: Any, target: Any) -> float:
    """1 - edit distance / longer length, of the characters."""
    return edit_similarity(str(output), str(target))


def words(output: Any, target: Any) -> float:
    """F1 of the words, without case."""
    a, b = str(output).lower().split(), str(target).lower().split()
    return word_f1(list(a), list(b)) if a or b else 1.0


def exact(output: Any, target: Any) -> float:
    """1 for what is equal."""
    if isinstance(output, np.ndarray) or isinstance(target, np.ndarray):
        return float(np.array_equal(np.asarray(output), np.asarray(target)))
    return float(output == target)


def pixels(output: Any, target: Any) -> float:
    """1 - mean |a - b| / white, at least 0; 0 for another size. White is 1 in an array of fractions, else
    255.
    """
    if hasattr(target, "mode") and hasattr(output, "convert"):
        output = output.convert(target.mode)
    a, b = np.asarray(output), np.asarray(target)
    if a.shape != b.shape or not b.size or a.dtype.kind not in "biuf":
        return 0.0
    fractions = b.dtype.kind == "f" and float(np.abs(b).max()) <= 1
    gap = np.abs(a.astype(float) - b.astype(float)).mean() / (1.0 if fractions else WHITE)
    return float(max(0.0, 1.0 - gap)) if np.isfinite(gap) else 0.0


METRICS: Mapping[str, Callable[[Any, Any], float]] = {
    "similarity": similarity,
    "words": words,
    "exact": exact,
    "pixels": pixels,
}


def metric_for(name: str, hint: Any) -> Callable[[Any, Any], float]:
    """A metric by its name, or FILE.py:NAME; "" = that of the type: similarity of text, pixels of
    pictures and arrays, else exact.
    """
    if not name:
        base = base_of(hint)
        pictured = base is np.ndarray or is_picture(base)
        name = "similarity" if base is str else "pixels" if pictured else "exact"
    if name in METRICS:
        return METRICS[name]
    if ".py:" not in name:
        raise UserError(
            f"metric={name} is none of {', '.join(METRICS)}; a function of yours is FILE.py:NAME"
        )
    return own_metric(name)


def own_metric(name: str) -> Callable[[Any, Any], float]:
    function = function_named(name)

    def metric(output: Any, target: Any) -> float:
        try:
            score = function(output, target)
        except (Fault, UserError):
            raise
        except Exception as error:
            place = inspect.getsourcefile(function) or "?"
            raise UserError(f"{locate_error(error, place)} (in {name})") from error
        if not isinstance(score, int | float | np.number) or not 0 <= float(score) <= 1:
            raise UserError(f"{name} returned {score!r:.60}; a metric is a number from 0 to 1")
        return float(score)

    return metric

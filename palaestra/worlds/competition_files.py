"""A competition as a folder: data that programs see, answers that they do not, a metric and a leaderboard.

    DIR/competition.toml        metric = "rmse"    target = "price"    id = "id"
    DIR/description.md          what is to be predicted
    DIR/public/                 what programs see: train.csv, test.csv, sample_submission.csv, ...
    DIR/private/answers.csv     the id and the target of each row of the test
    DIR/leaderboard.csv         a column `score`; and DIR/private_leaderboard.csv likewise
    DIR/solutions/*.py          programs that are demonstrated, if any

Without a leaderboard the baseline models of `palaestra.toys.kit` make one.
"""

from __future__ import annotations

import hashlib
import inspect
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from palaestra.errors import Fault, UserError
from palaestra.tasks.user_code import load, locate_error
from palaestra.toys import kit
from palaestra.toys.competitions import as_csv, draw_competition, kit_text
from palaestra.verifiers.tables import TABLE_METRICS, TableMetric, position_score

SETTINGS = "competition.toml"
DESCRIPTIONS = ("description.md", "description.txt")
BOARDS = ("leaderboard.csv", "private_leaderboard.csv")
DRAWN = "drawn:"  # begins the name of a competition that is drawn, as drawn:plants:3
MOST_BYTES = 200_000_000  # of the public files


@dataclass(frozen=True)
class Competition:
    """What a competition is. `answers` are hidden: by id, the texts of the targets."""

    name: str
    description: str
    metric: str
    scorer: TableMetric
    id_column: str
    targets: tuple[str, ...]
    public: Mapping[str, bytes]
    answers: Mapping[str, tuple[str, ...]] = field(repr=False)
    boards: tuple[tuple[float, ...], ...]
    solutions: tuple[str, ...] = ()
    # of programs whose outcome is known without a run: what they print, and their submission
    known: Mapping[str, tuple[str, str]] = field(default_factory=dict, repr=False)
    seconds: float = 30.0
    memory_mb: int = 1024

    @cached_property
    def digest(self) -> str:
        """Of the public files."""
        whole = hashlib.blake2b(digest_size=16)
        for name, content in sorted(self.public.items()):
            whole.update(b"%d %d " % (len(name.encode()), len(content)) + name.encode() + content)
        return whole.hexdigest()

    def grade(self, text: str) -> tuple[float | None, str]:
        """The metric of a submission, a table as text; or None, and what is wrong with it."""
        rows = kit.read_table(text)
        wanted = (self.id_column, *self.targets)
        if not rows or any(c not in rows[0] for c in wanted):
            return None, f"the submission needs the columns {', '.join(wanted)} and rows"
        ids = [(r[self.id_column] or "").strip() for r in rows]
        if len(set(ids)) < len(ids):
            return None, "an id comes twice"
        if set(ids) != set(self.answers):
            return (
                None,
                f"the submission has {len(ids)} ids, and must have those of the {len(self.answers)} test rows",
            )
        scores = list[float]()
        for at, target in enumerate(self.targets):
            given = [r[target] or "" for r in rows]
            try:
                score = self.scorer.score(given, [self.answers[i][at] for i in ids])
            except ValueError as error:
                return None, f"column {target}: {error}"
            if not np.isfinite(score):
                return None, f"column {target}: the metric is no number"
            scores.append(score)
        return sum(scores) / len(scores), ""

    def position(self, raw: float) -> float:
        """The mean position score over the leaderboards, from 0 to 1 (HumanRank)."""
        each = [position_score(raw, board, self.scorer.higher) for board in self.boards]
        return sum(each) / len(each)

    def better(self, raw: float, than: float | None) -> bool:
        return than is None or (raw > than if self.scorer.higher else raw < than)


def competition_named(name: str, kit_too: bool = False) -> Competition:
    """The competition of a folder, or one that is drawn. Raises UserError with what is missing.

    Args:
        kit_too: programs may import the baseline models as `kit`.
    """
    if name.startswith(DRAWN):
        return drawn_competition(name)
    made = unchanged_competition(name, stamp_of(Path(name)))
    if not kit_too:
        return made
    return replace(made, public={**made.public, "kit.py": kit_text(made.scorer.predicts).encode()})


@lru_cache(maxsize=64)
def unchanged_competition(name: str, stamp: int) -> Competition:
    return read_competition(Path(name))


def stamp_of(folder: Path) -> int:
    """A number that changes with the files of a folder."""
    stats = ((p, p.stat()) for p in sorted(folder.rglob("*")) if p.is_file())
    return hash(tuple((str(p), s.st_mtime_ns, s.st_size) for p, s in stats))


@lru_cache(maxsize=256)
def drawn_competition(name: str) -> Competition:
    _, kind, seed = name.split(":")
    drawn = draw_competition(kind, int(seed))
    made = Competition(
        name=f"{kind}-{seed}",
        description=drawn.description,
        metric=drawn.metric,
        scorer=TABLE_METRICS[drawn.metric],
        id_column="id",
        targets=(drawn.target,),
        public={n: text.encode() for n, text in drawn.public.items()},
        answers=answers_of(drawn.answers, "id", (drawn.target,), name),
        boards=(),
        solutions=drawn.solutions,
        seconds=10.0,
        memory_mb=512,
    )
    tables = baseline_submissions(made)
    scores = scores_of(made, tables)
    order = sorted(range(len(scores)), key=lambda i: scores[i], reverse=made.scorer.higher)
    outputs = zip(tables, tables.values(), strict=True)
    known = {
        code: (f"{model}: {len(made.answers)} rows written", table)
        for code, (model, table) in zip(made.solutions, outputs, strict=True)
    }
    solutions = tuple(made.solutions[i] for i in order)  # the best first
    return replace(made, boards=(scores,), solutions=solutions, known=known)


def competitions_in(folder: str) -> tuple[str, ...]:
    """The folders of competitions in a folder, or itself. Raises UserError where it has none."""
    path = Path(folder).expanduser()
    if (path / SETTINGS).is_file():
        return (str(path.resolve()),)
    folders = sorted(str(p.parent.resolve()) for p in path.glob(f"*/{SETTINGS}"))
    if not folders:
        raise UserError(
            f"{folder}: no competition; one is a folder with {SETTINGS} (metric, target), "
            "description.md, public/ and private/answers.csv"
        )
    return tuple(folders)


def read_competition(folder: Path) -> Competition:
    """A competition from its folder. Raises UserError with what is missing."""
    text = read_text(folder / SETTINGS)
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{folder / SETTINGS}: {error}") from None
    known = {"metric", "target", "id", "higher", "seconds", "memory_mb"}
    if unknown := sorted(set(given) - known):
        raise UserError(
            f"{folder / SETTINGS}: {unknown[0]} is no setting; there are {', '.join(sorted(known))}"
        )
    targets = given.get("target", ())
    targets = (targets,) if isinstance(targets, str) else tuple(targets)
    if not targets or not all(isinstance(t, str) for t in targets):
        raise UserError(f'{folder / SETTINGS} needs target = "COLUMN", what is predicted')
    described = [p for n in DESCRIPTIONS if (p := folder / n).is_file()]
    if not described:
        raise UserError(f"{folder} has no description.md, which says what is to be predicted")
    id_column = str(given.get("id", "id"))
    made = Competition(
        name=folder.name,
        description=read_text(described[0]).strip(),
        metric=str(given.get("metric", "")),
        scorer=metric_of(folder, given),
        id_column=id_column,
        targets=targets,
        public=public_files(folder / "public"),
        answers=answers_of(
            read_text(folder / "private" / "answers.csv"), id_column, targets, str(folder)
        ),
        boards=tuple(read_board(p) for n in BOARDS if (p := folder / n).is_file()),
        solutions=tuple(read_text(p) for p in sorted((folder / "solutions").glob("*.py"))),
        seconds=float(given.get("seconds", 30.0)),
        memory_mb=int(given.get("memory_mb", 1024)),
    )
    return made if made.boards else replace(made, boards=(baseline_scores(made),))


def read_text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {error}; a competition needs this file as text") from None


def public_files(folder: Path) -> dict[str, bytes]:
    """The files that programs see, by their paths in the folder. Links that lead out of it are refused."""
    home = folder.resolve()
    files = dict[str, bytes]()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        if not path.resolve().is_relative_to(home):
            raise UserError(f"{path} leads out of {folder}; programs would see what lies there")
        files[path.relative_to(folder).as_posix()] = path.read_bytes()
    if not files:
        raise UserError(f"{folder} has no files; programs see what lies there, such as train.csv")
    if (size := sum(map(len, files.values()))) > MOST_BYTES:
        raise UserError(
            f"{folder} has {size / 1e6:.0f} MB, which each run would copy; at most "
            f"{MOST_BYTES / 1e6:.0f} MB"
        )
    return files


def answers_of(
    text: str, id_column: str, targets: Sequence[str], where: str
) -> dict[str, tuple[str, ...]]:
    rows = kit.read_table(text)
    if not rows or any(c not in rows[0] for c in (id_column, *targets)):
        raise UserError(
            f"{where}: private/answers.csv needs the columns {', '.join((id_column, *targets))} and rows"
        )
    return {(r[id_column] or "").strip(): tuple(r[t] or "" for t in targets) for r in rows}


def read_board(path: Path) -> tuple[float, ...]:
    rows = kit.read_table(read_text(path))
    try:
        scores = tuple(
            float({k.strip().lower(): v for k, v in r.items() if k}["score"]) for r in rows
        )
    except (KeyError, ValueError, AttributeError):
        scores = ()
    if not scores or not all(map(np.isfinite, scores)):
        raise UserError(f"{path} needs a column score with numbers, a row for each entry")
    return scores


def metric_of(folder: Path, given: Mapping[str, Any]) -> TableMetric:
    """The metric by its name, or a function `(predictions, answers)` of lists of texts."""
    name = str(given.get("metric", ""))
    if name in TABLE_METRICS:
        return TABLE_METRICS[name]
    if ".py:" not in name or not isinstance(given.get("higher"), bool):
        raise UserError(
            f"{folder / SETTINGS}: metric is {', '.join(TABLE_METRICS)}, or FILE.py:NAME with higher = true "
            f"or false, not {name!r}"
        )
    function = load(str(folder / name), "function")
    return TableMetric(own_score(function, name), given["higher"], "number")


def own_score(
    function: Callable[..., Any], name: str
) -> Callable[[Sequence[str], Sequence[str]], float]:
    def score(given: Sequence[str], answers: Sequence[str]) -> float:
        try:
            return float(function(list(given), list(answers)))
        except (Fault, UserError, ValueError):  # ValueError: the predictions cannot be used
            raise
        except Exception as error:
            place = inspect.getsourcefile(function) or "?"
            raise UserError(f"{locate_error(error, place)} (in {name})") from error

    return score


def baseline_scores(competition: Competition) -> tuple[float, ...]:
    """What each baseline model scores. Raises UserError where they cannot."""
    return scores_of(competition, baseline_submissions(competition))


def scores_of(competition: Competition, tables: Mapping[str, str]) -> tuple[float, ...]:
    scores = list[float]()
    for model, table in tables.items():
        raw, reason = competition.grade(table)
        if raw is None:
            raise UserError(f"{competition.name}: the baseline {model} cannot be graded: {reason}")
        scores.append(raw)
    return tuple(scores)


def baseline_submissions(competition: Competition) -> dict[str, str]:
    """What each baseline model submits. Raises UserError without tables of one target."""
    c = competition
    tables = [c.public.get(n) for n in ("train.csv", "test.csv")]
    if None in tables or len(c.targets) != 1:
        raise UserError(
            f"{c.name} has no leaderboard.csv, and baseline models can make one for public/train.csv and "
            "public/test.csv with one target alone; write a column score"
        )
    train, test = (kit.read_table((t or b"").decode()) for t in tables)
    if not train or c.targets[0] not in train[0]:
        raise UserError(f"{c.name}: public/train.csv has no column {c.targets[0]!r}")
    submissions = dict[str, str]()
    for model in kit.MODELS:
        try:
            given = kit.predict(model, train, test, c.id_column, c.targets[0], c.scorer.predicts)
        except (ValueError, np.linalg.LinAlgError) as error:
            raise UserError(f"{c.name}: the baseline {model} failed: {error}") from None
        rows = zip([r[c.id_column] for r in test], given, strict=True)
        submissions[model] = as_csv((c.id_column, c.targets[0]), rows)
    return submissions

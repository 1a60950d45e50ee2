"""Between pictures, their tokens and texts: what a language model reads and writes, and how it is paid."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import palaestra as pl
from palaestra.recipes.multimodal.selftok.detector import Sized, check_tests, score
from palaestra.recipes.multimodal.selftok.tokenizer import VisualTokenizer, load_tokenizer

TOKEN = re.compile(r"<v(\d+)>")
HELD_OUT = 0.1  # of the problems, where the splits have some in common
SIZED = "things.json"  # beside a tokenizer: how large the things of its pictures are


def names_of_tokens(codes: int) -> list[str]:
    return [f"<v{i}>" for i in range(codes)]


def spell_tokens(tokens: Sequence[int]) -> str:
    return "".join(f"<v{i}>" for i in tokens)


def read_tokens(text: str, tokenizer: VisualTokenizer) -> list[int] | None:
    """The tokens of a reply; None where it is not exactly as many tokens as a picture has, and nothing
    else.
    """
    s = tokenizer.settings
    tokens = [int(x) for x in TOKEN.findall(text)]
    whole = spell_tokens(tokens) == text.strip()
    return tokens if whole and len(tokens) == s.tokens and max(tokens) < s.codes else None


def decode_text(text: str, tokenizer: VisualTokenizer) -> np.ndarray | None:
    """uint8 [H, W, 3]; None for a reply that is no picture."""
    tokens = read_tokens(text, tokenizer)
    return None if tokens is None else tokenizer.decode(np.array([tokens]))[0]


def small(picture: pl.Picture, grid: int) -> np.ndarray:
    """uint8 [grid, grid, 3]: each cell the mean of the pixels in it."""
    pixels = np.frombuffer(picture.data, np.uint8).reshape(picture.shape)
    image = Image.fromarray(pixels[..., 0] if picture.shape[2] == 1 else pixels).convert("RGB")
    return np.asarray(image.resize((grid, grid), Image.Resampling.BOX))


@dataclass(frozen=True)
class Captioned:
    """A record: its words, its picture on the grid, and what the picture must show."""

    prompt: str
    pixels: np.ndarray
    tests: list[Mapping[str, Any]]


def read_records(ctx: pl.Context, split: str, most: int, grid: int) -> list[Captioned]:
    """Records with one picture, in order. Raises UserError for one without words, or with another
    number of pictures.
    """
    first = 0 if split == "test" else pl.curriculum.first_number(ctx)
    records = list[Captioned]()
    for i in pl.run.chosen_tasks(ctx.bench, most, split):
        task = ctx.bench.tasks.task(split, first + i)
        media = pl.tasks.media_of(task)
        words = " ".join(m.content.replace(pl.PICTURE_MARK, " ") for m in task.prompt)
        prompt = " ".join(words.split())
        if len(media) != 1 or not isinstance(media[0], pl.Picture):
            raise pl.UserError(
                f"task {task.id!r} has {len(media)} pictures; selftok learns from one picture with its words, "
                "the columns `image` and `prompt`; the task `grids` has them"
            )
        if not prompt:
            raise pl.UserError(
                f"task {task.id!r} has no words beside its picture, which `prompt` has"
            )
        given = task.meta.get("shows")
        tests = [] if given is None else check_tests(given, f"task {task.id!r}")
        records.append(Captioned(prompt, small(media[0], grid), tests))
    return records


def part_prompts(
    train: Sequence[Captioned], test: Sequence[Captioned]
) -> tuple[list[Captioned], list[Captioned], str]:
    """Both splits without a problem in common, and what is to be said of it. A problem is words with
    tests, whatever the picture, as reinforcement learning shows none.

    Where both have some, a tenth of all problems, those with the smallest hashes, leave training, and
    the others leave the test; problems of one split alone stay. Raises UserError where nothing is left
    of training.
    """
    of = lambda r: pl.seed_of(("problem", r.prompt, json.dumps(r.tests, sort_keys=True)))
    trained, asked = ({of(r) for r in records} for records in (train, test))
    common = sorted(trained & asked)
    if not common:
        return list(train), list(test), ""
    wanted = max(1, round(HELD_OUT * len(trained | asked)))
    held = set(common[: max(0, wanted - len(asked - trained))])
    kept = [r for r in train if of(r) not in held]
    left = [r for r in test if of(r) in held or of(r) not in trained]
    if not kept:
        raise pl.UserError(
            "all records ask for one and the same picture, by their words and `shows`; give records with other words"
        )
    note = (
        f"{len(common)} of the {len(asked)} held-out problems, words with tests, are training problems too: "
        f"{len(train) - len(kept)} records leave training and {len(test) - len(left)} the exam"
    )
    return kept, left, note


def write_rows(file: Path, records: Sequence[Captioned], tokenizer: VisualTokenizer) -> str:
    """Records as data for a language model: prompt, tokens as the demonstration, tests. Returns the path."""
    tokens = tokenizer.encode(np.stack([r.pixels for r in records]))
    rows = (
        {
            "prompt": r.prompt,
            "demonstration": spell_tokens(t),
            **({"shows": list(r.tests)} if r.tests else {}),
        }
        for r, t in zip(records, tokens.tolist(), strict=True)
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(file)


def save_sized(folder: Path, sized: Sized) -> None:
    (folder / SIZED).write_text(json.dumps([sized.least, sized.most, sized.fill]))


def load_sized(folder: str) -> Sized:
    return Sized(*json.loads((Path(folder) / SIZED).read_text()))


@pl.declare(reads_columns=("shows",))
@pl.stage
class DecodedPicture:
    """Decodes a reply by the tokenizer of a folder and tests the picture: the mean of its tests, 0 for
    what is no picture. Parts: "whole", whether it is one; "loose", the mean of the tests where every
    patch of a colour is a thing; "strict", the same by a second program, for which only things of the size
    and shape of the data's own count. It pays `strict`, else loose.
    """

    folder: str
    strict: bool = False
    bounds: tuple[float, float] = (0.0, 1.0)

    async def __call__(self, ctx: pl.Context, group: pl.Group) -> Sequence[pl.Reward]:
        return [self.judge(pl.response_text(e), group.task) for e in group.episodes]

    def judge(self, text: str, task: pl.Task) -> pl.Reward:
        tests = check_tests(task.meta.get("shows"), f"task {task.id!r}")
        pixels = decode_text(text, load_tokenizer(self.folder))
        if pixels is None:
            parts = {"whole": 0.0, "loose": 0.0, "strict": 0.0}
            return pl.Reward(total=0.0, parts=parts, solved=False)
        loose, strict = score(tests, pixels), score(tests, pixels, load_sized(self.folder))
        parts = {"whole": 1.0, "loose": loose, "strict": strict}
        total = strict if self.strict else loose
        return pl.Reward(total=total, parts=parts, solved=total == 1.0)

"""A folder to begin from: example rows, the files that a method needs, and its settings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np

from palaestra import catalogue, values
from palaestra.errors import UserError
from palaestra.needs.declared import FLAGS, NeededPlace, PlaceKind, Requirements, holds, is_required
from palaestra.needs.describe import lines
from palaestra.needs.rows import columns_of, template
from palaestra.run.trust import trust
from palaestra.run.unmet import needs_under
from palaestra.toys.chain import ArithmeticChain

TEMPLATES = Path(__file__).parent.parent / "templates" / "project"
ROWS, TEST_ROWS = 240, 24
CONFIG, DATA = "config.toml", "data.jsonl"
# the file of each kind of place and what it defines, as its flag takes it
FILES: Mapping[PlaceKind, str] = {
    "environment": "corridor.py:Corridor",
    "simulator": "corridor.py:Corridor",
    "game": "high_number.py:HighNumber",
    "tools": "search.py:search",
    "graph": "graph.tsv",
    "reward": "reward.py:score",
}
DOCUMENTS = {
    "lions.txt": "A lion is a large cat. Lions live in Africa and in one forest of India.",
    "sums.txt": "The sum of 17 and 25 is 42. The sum of 8 and 31 is 39.",
}
MEANINGS = {
    CONFIG: "the method, its files and its settings",
    DATA: "{n} example rows; write your own with the same columns",
    "reward.py": "what a reply is worth",
    "test_reward.py": "tests of the reward: `pytest test_reward.py`",
    "corridor.py": "the environment that the model acts in",
    "high_number.py": "the game that it plays",
    "search.py": "the tool that it may call",
    "graph.tsv": "the facts that it may follow",
    "documents": "texts that are searched",
}


def write_project(method: str, folder: Path, words: Mapping[str, Any]) -> list[str]:
    """Writes a folder in which `palaestra train @config.toml` trains the method.

    Args:
        method: of the catalogue.
        folder: a new or an empty one.
        words: arguments of the method, which go into the configuration.

    Returns:
        The names of what was written.

    Raises:
        UserError: the folder is not empty, or the method has no such argument.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is not empty; name a new folder")
    needs, read, given = needs_under(method, words)
    card = getattr(catalogue.find(method), "CARD", None)
    texts = dict(files_of(method, needs, given, read))
    title = method if card is None else card.title
    texts["README.md"] = readme(title, method, needs, given, texts)
    try:
        for name, text in texts.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror}") from None
    with chdir(folder):
        trust(CONFIG)  # the files that it names were written here
    return list(texts)


def files_of(
    method: str, needs: Requirements, given: Mapping[str, Any], words: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """Names and texts of the files of a project, the README left out."""
    settings: dict[str, Any] = {
        "recipe": method,
        "model": "tiny",
        "steps": 20,
        "evaluate": TEST_ROWS,
    }
    if needs.columns:
        settings["data"] = DATA
        rows = example_rows(needs, given, ROWS)
        yield DATA, "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
    required = [p for p in needs.places if is_required(p, given)]
    for place in required:
        if place.kind == "documents":
            if place.flag:
                words |= {"documents": "documents"}
            else:
                settings[setting_of(place)] = "documents"
            yield from ((f"documents/{name}", text) for name, text in DOCUMENTS.items())
            continue
        name = setting_of(place)
        settings[name] = [FILES[place.kind]] if name == "tools" else FILES[place.kind]
        name = FILES[place.kind].partition(":")[0]
        yield name, template_of(name)
    needs_reward = any(p.kind == "reward" for p in required)
    if needs_reward or any(c.name == "answer" for c in columns_of(needs, given)):
        for name in ("test_reward.py",) if needs_reward else ("reward.py", "test_reward.py"):
            yield name, template_of(name)
    yield CONFIG, config_text(settings, words, needs, given, own_reward=not needs_reward)


def template_of(name: str) -> str:
    """The text of a file of the template, as it is in a project."""
    return (TEMPLATES / f"{name}.txt").read_text(encoding="utf-8")


def setting_of(place: NeededPlace) -> str:
    """The setting that a place is given by."""
    return FLAGS[place.kind].split()[0].removeprefix("--")


def config_text(
    settings: dict[str, Any],
    words: Mapping[str, Any],
    needs: Requirements,
    given: Mapping[str, Any],
    *,
    own_reward: bool,
) -> str:
    """config.toml, with what is to be replaced as comments."""
    out = values.to_toml(settings)
    out = out.replace('model = "tiny"', 'model = "tiny"  # yours: a folder, or an id of the hub')
    if own_reward and "data" in settings:
        out += '# reward = "reward.py:score"  # in place of comparing with the column answer\n'
    missing = [
        f'# {m.argument} = "{m.example}"  # required: {m.role}, which {m.words}\n'
        for m in needs.models
        if is_required(m, given) and given.get(m.argument) == m.inert
    ]
    if words or missing:
        out += (
            "\n" + (values.to_toml({"set": dict(words)}) if words else "[set]\n") + "".join(missing)
        )
    return out


def readme(
    title: str, method: str, needs: Requirements, given: Mapping[str, Any], texts: Mapping[str, str]
) -> str:
    """README.md: what each file is, and what the method needs."""
    names = dict.fromkeys(name.partition("/")[0] for name in texts)
    table = "\n".join(f"- `{name}`: {MEANINGS[name].format(n=ROWS)}" for name in names)
    needed = "\n".join(f"    {line}" for line in lines(method, needs, given))
    text = (TEMPLATES / "README.md").read_text(encoding="utf-8")
    return text.format(title=title, method=method, table=table, needs=needed)


def example_rows(needs: Requirements, given: Mapping[str, Any], n: int) -> list[dict[str, Any]]:
    """`n` rows as a user has them: sums that the small model gets right at times, unless the card
    has examples of its own. A prompt that would come again has its number behind it.
    """
    rows, sums = template(needs, given, n), ArithmeticChain()
    own = {c.name: c for c in needs.columns if holds(c.when, given)}
    for i, row in enumerate(rows):
        task, rng = sums.task("train", i), np.random.default_rng(i)
        if "prompt" in row and own["prompt"].examples[0].startswith("What is 17"):
            row["prompt"] = task.prompt[0].content
            if "answer" in row and own["answer"].examples[0] == "42":
                row["answer"] = task.answer
            for name in ("demonstration", "chosen"):
                if name in row:
                    row[name] = sums.demonstration(task, rng, "work")
            if "demonstrations" in row:
                both = (
                    sums.demonstration(task, np.random.default_rng(i), h) for h in ("work", "guess")
                )
                row["demonstrations"] = list(both)
        elif "prompt" in row and len(own["prompt"].examples) < n:
            row["prompt"] = f"{row['prompt']} ({i})"
    return rows

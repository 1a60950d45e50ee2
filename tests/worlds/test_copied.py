"""Queries that are copied from their documents are told before the run."""

import json

import pytest
from palaestra.services.index import BM25
from palaestra.types import Message, Task
from palaestra.worlds.copied import copied_note, is_copied

TEXT = "The lion sleeps for twenty hours of the day, and hunts at night with others."


@pytest.mark.parametrize(
    ("query", "copied"),
    [
        ("The lion sleeps for twenty hours of the day", True),
        ("Is it so that the LION sleeps for twenty hours of the day?", True),
        ("lion sleeps for twenty", True),  # four words, whole
        ("lion sleeps for", False),
        ("How long does a lion sleep in a day?", False),
        ("the lion sleeps for ten hours of the day and hunts with others", False),
        ("ion sleeps for twenty", False),  # no part of a word
        ("", False),
    ],
)
def test_words_in_a_row(query, copied):
    assert is_copied(query, TEXT) is copied


def query(text, gold):
    return Task(id=text, prompt=(Message(role="user", content=text),), meta={"gold": gold})


def test_some_are_told_and_few_are_not():
    index = BM25(docs=(("lions.md#1", TEXT), ("lions.md#2", "A lion has a mane."), ("cats.md#1", "Cats purr.")))
    honest = [query(f"what does animal {i} eat at noon", ["lions.md"]) for i in range(8)]
    copy = query("the lion sleeps for twenty hours of the day", ["lions.md"])
    assert copied_note([*honest, copy], index) == ""
    assert copied_note([*honest, copy, copy], index).startswith("2 of 10 queries stand, whole or 8 words in a row")
    assert copied_note([query("the lion sleeps for twenty hours of the day", ["cats.md"])] * 9, index) == ""
    assert copied_note([query("x", {"lions.md": "high"}), query("y", None)], index) == ""


def test_a_run_says_it(tmp_path, capsys):
    from palaestra.cli.main import main

    docs = tmp_path / "docs"
    docs.mkdir()
    rows = []
    for i, word in enumerate(("lion", "cat", "dog", "owl", "fox", "bear")):
        text = f"The {word} sleeps for twenty hours of each day and then it hunts."
        (docs / f"{word}.md").write_text(text)
        rows.append({"prompt": text, "gold": [f"{word}.md"], "id": str(i)})
    data = tmp_path / "queries.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)))
    words = [
        "train",
        "iranker",
        "--env",
        "eliminate(k=2)",
        "--model",
        "tiny-agent",
        "--docs",
        str(docs),
        "--data",
        str(data),
        "--smoke",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(words) == 0
    assert "queries stand, whole or 8 words in a row" in capsys.readouterr().err

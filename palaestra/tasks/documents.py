"""Documents of a folder or file, as passages of some hundred words that an index finds.

    notes/a.md   notes/b.html   corpus.jsonl: {"id": "7", "title": "Bako", "text": "The boss of ..."}

A file of text is cut between paragraphs; a longer paragraph is cut between words, or between
characters where a script has no spaces. Records keep the
text of their columns `title` and `text` (or `contents`, as the corpora of BEIR and of Search-R1 have
it). Passages of 100 words are those of Karpukhin et al. (arXiv:2004.04906).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, TypeAlias

from palaestra.errors import UserError
from palaestra.services.index import UNSPACED
from palaestra.tasks.records import BOM, Records, decode_text
from palaestra.tasks.sources import SAVED_FILES, SUFFIXES, open_records, read_file, suffixes_of
from palaestra.types import Message, Task, stage

Passage: TypeAlias = tuple[str, str]  # id, text

WORDS = 100  # of a passage
PROSE = (".txt", ".md", ".markdown", ".rst", ".html", ".htm")
PAGES = (".html", ".htm")
TEXT_COLUMNS = ("text", "contents", "content", "passage", "body")
ID_COLUMNS = ("id", "_id", "docid", "doc_id")
BLOCKS = {"p", "div", "li", "tr", "br", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "blockquote"}
HIDDEN = {"script", "style", "template", "noscript"}
PIECE = re.compile(rf"(?:[{UNSPACED}]|[^\s{UNSPACED}]+) ?")  # a word, and the space behind it
BLANK_LINE = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")


@stage
class SeedDocuments:
    """A task for each document, which names it and asks nothing yet: questions are written about it."""

    names: tuple[str, ...]
    name: str = "documents"

    @property
    def size(self) -> int:
        return len(self.names)

    def task(self, split: str, index: int) -> Task:
        name = self.names[index % len(self.names)]
        return Task(id=name, prompt=(Message(role="user", content=name),), answer=name)


def read_documents(given: str, words: int = WORDS) -> tuple[Passage, ...]:
    """The passages of a folder, a file, or a data set, in the order of their names.

    Args:
        given: a folder with files of text (.txt, .md, .rst, .html) and of records, such a file, or
            what `--data` takes.
        words: that a passage may have; 0 = a document is one passage.

    Returns:
        (id, text): the id is "FILE#N", N from 1, and "FILE" of a document that is one passage;
        of a record its own id where it has one.

    Raises:
        UserError: where nothing can be read, or two records have one id.
    """
    path = Path(given).expanduser()
    passages = [p for name, text in documents_of(path, given) for p in cut(name, text, words)]
    if not passages:
        raise UserError(
            f"{given}: no text is in these documents; name a folder with .txt, .md, ..."
        )
    known = set[str]()
    for name, _ in passages:
        if name in known:
            raise UserError(f"{given}: two documents have the id {name!r}; give each its own")
        known.add(name)
    return tuple(passages)


def whole_documents(given: str) -> tuple[Passage, ...]:
    """The documents of a folder, a file, or a data set as (name, text), with their lines.

    Raises:
        UserError: where nothing can be read.
    """
    documents = tuple(documents_of(Path(given).expanduser(), given))
    if not any(text.strip() for _, text in documents):
        raise UserError(
            f"{given}: no text is in these documents; name a folder with .txt, .md, ..."
        )
    return documents


def documents_of(path: Path, given: str) -> Iterator[Passage]:
    """Each document, whole."""
    if path.is_dir() and not any((path / name).exists() for name in SAVED_FILES):
        files = [f for f in sorted(path.rglob("*")) if f.is_file() and is_document(f, path)]
        if not files:
            raise UserError(
                f"{given}: no documents in this folder; they are files of {', '.join(PROSE)}, or of "
                f"records, {', '.join(s for s in SUFFIXES if s not in PROSE)}"
            )
        for file in files:
            yield from documents_of_file(file, str(file.relative_to(path)))
    elif path.is_file():
        yield from documents_of_file(path, path.name)
    else:
        for records in open_records(given).values():
            yield from documents_of_records(records, path.name)


def is_document(file: Path, folder: Path) -> bool:
    """Whether a file of a folder is one to read: no hidden one, and of a known kind."""
    hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
    return not hidden and suffixes_of(file)[0] in (*PROSE, *SUFFIXES) and file.stat().st_size > 0


def documents_of_file(file: Path, name: str) -> Iterator[Passage]:
    suffix, packed = suffixes_of(file)
    if suffix in PROSE and not packed:
        text = decode_text(file.read_bytes().removeprefix(BOM), str(file))
        yield name, text_of_page(text) if suffix in PAGES else text
    else:
        yield from documents_of_records(read_file(file), name)


def documents_of_records(records: Records, name: str) -> Iterator[Passage]:
    for i, record in enumerate(records):
        text = next((record[c] for c in TEXT_COLUMNS if record.get(c)), None)
        if not isinstance(text, str):
            raise UserError(
                f"{records.where(i)}: no text of a document; write it in the column 'text', or drop the "
                "line"
            )
        own = next((record[c] for c in ID_COLUMNS if record.get(c) is not None), None)
        title = str(record.get("title") or "").strip()
        whole = f"{title}: {text}" if title and not text.startswith(title) else text
        yield str(own) if own is not None else f"{name}:{i + 1}", whole


def cut(name: str, text: str, words: int) -> Iterator[Passage]:
    """The passages of a document: whole paragraphs, as many as have `words` words together."""
    pieces = list(pieces_of(text, words))
    if len(pieces) == 1:
        yield name, pieces[0]
        return
    for i, piece in enumerate(pieces):
        yield f"{name}#{i + 1}", piece


def pieces_of(text: str, words: int) -> Iterator[str]:
    held = list[str]()
    for paragraph in BLANK_LINE.split(text.replace("\r\n", "\n")):
        own = PIECE.findall(" ".join(paragraph.split()) + " ")
        if not own:
            continue
        if words and held and len(held) + len(own) > words:
            yield "".join(held).rstrip()
            held = []
        held += own
        while words and len(held) > words:
            yield "".join(held[:words]).rstrip()
            held = held[words:]
    if held:
        yield "".join(held).rstrip()


def text_of_page(html: str) -> str:
    """The text of a page of HTML, a blank line between blocks."""
    reader = PageText()
    reader.feed(html)
    reader.close()
    return "".join(reader.parts)


class PageText(HTMLParser):
    """Collects the text that a page shows."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.hidden = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.hidden += tag in HIDDEN
        self.parts += ["\n\n"] if tag in BLOCKS else []

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in HIDDEN and self.hidden > 0
        self.parts += ["\n\n"] if tag in BLOCKS else []

    def handle_data(self, data: str) -> None:
        self.parts += [] if self.hidden else [data]

"""Two collections that packages ship, as queries with candidates, for the study of rankings.

    python -m benchmarks.ranking.collections FOLDER      fetches the packages and writes FOLDER/NAME.json

Both have one index of documents, in which BM25 searches. Of what it finds the documents of the query's own kind count.

"graded": 50 news reports whose likeness to each other was judged by people, from 0 to 1 (Lee, Pincombe and Welsh,
2005), in the test data of gensim. A query is the beginning of a report, the documents are the other reports. No query
of these is trained on: training queries are beginnings of the 300 other reports of that data, whose
relevant document is the rest of the same report.

"known-item": manual pages of six packages of Debian. A query is the description in a page's section NAME, the document is
the page's name with its section DESCRIPTION. A description that the document repeats word for word, or that
contains the page's name, is no query.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
import subprocess
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from math import log
from pathlib import Path
from typing import Any

from palaestra.services.index import BM25, STOP_WORDS, words_of

GENSIM = "gensim==4.4.0"
DEBIAN = ("manpages", "manpages-dev", "git-man", "perl-doc", "coreutils", "util-linux")
K, DEEP = 4, 10  # candidates that a model orders, and places that count
WORDS = 5  # of a candidate's snippet
QUERY, BODY = 12, 160  # words of a report that are a query; words of a document that are indexed
TEST = 64  # known-item queries that are held out
LIKE = (
    0.5  # from this mean judgement on a report counts as relevant, with its judgement as the grade
)
TEXTS = "gensim/test/test_data/"
ROFF = re.compile(r"\\f(?:\[[^]]*\]|\([A-Z]{2}|.)|\\s[-+]?\d|\\\*\(..|\\\[[^]]*\]|\\[&|^,/]")


def fetch(folder: Path) -> None:
    """Brings the packages into `folder`, by pip and apt-get."""
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("gensim-*.whl")):
        pip = ("pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "-d", ".", GENSIM)
        subprocess.run(pip, cwd=folder, check=True)
    missing = [name for name in DEBIAN if not list(folder.glob(f"{name}_*.deb"))]
    if missing:
        subprocess.run(("apt-get", "download", "-qq", *missing), cwd=folder, check=True)


# ---- reports whose likeness was judged


def graded(folder: Path) -> dict[str, Any]:
    """The judged reports as test queries, the others as training queries."""
    with zipfile.ZipFile(next(folder.glob("gensim-*.whl"))) as wheel:
        read = lambda name: wheel.read(TEXTS + name).decode("utf-8", "replace")
        judged = [x.strip() for x in read("lee.cor").splitlines() if x.strip()]
        others = [x.strip() for x in read("lee_background.cor").splitlines() if x.strip()]
        rows = [
            [float(x) for x in line.split("\t")]
            for line in read("similarities0-1.txt").splitlines()
        ]
    known = {x[:80] for x in judged}
    rest = [x for x in dict.fromkeys(others) if x[:80] not in known]
    split = [(first_words(x), shorten(" ".join(x.split()[QUERY:]))) for x in rest]
    split = [(q, d) for q, d in split if len(d.split()) > QUERY]
    docs = {f"r{i}": shorten(x) for i, x in enumerate(judged)}
    docs |= {f"b{i}": d for i, (_, d) in enumerate(split)}
    index = BM25(tuple(docs.items()))
    train = [made_query(f"t{i}", q, {f"b{i}": 1.0}, index, "b") for i, (q, _) in enumerate(split)]
    test = list[dict[str, Any]]()
    for i, text in enumerate(judged):
        grades = {f"r{j}": max(rows[min(i, j)][max(i, j)], rows[max(i, j)][min(i, j)])
                  for j in range(50) if j != i}  # fmt: skip
        grades = {name: x for name, x in grades.items() if x >= LIKE}
        if grades:
            test.append(made_query(f"r{i}", first_words(text), grades, index, "r"))
    return {"judges": "people", "docs": docs, "train": train, "test": test}


def first_words(text: str) -> str:
    """The beginning of a report, which is a query."""
    return " ".join(text.split()[:QUERY])


def shorten(text: str) -> str:
    """What is indexed of a document."""
    return " ".join(text.split()[:BODY])


# ---- manual pages


def known_items(folder: Path) -> dict[str, Any]:
    """Manual pages by the descriptions of their section NAME."""
    pages = dict[str, tuple[str, str]]()
    for package in DEBIAN:
        for name, source in manual_pages(next(folder.glob(f"{package}_*.deb"))):
            told, body = name_line(source), section(source, "DESCRIPTION")
            if told and len(body.split()) >= 20:
                pages.setdefault(name, (told, body))
    docs = {n: shorten(f"{n.split('.')[0]} {body}") for n, (_, body) in pages.items()}
    index = BM25(tuple(docs.items()))
    same = dict[str, list[str]]()
    for n, (told, _) in pages.items():
        same.setdefault(told.casefold(), []).append(n)
    queries = list[dict[str, Any]]()
    for told, names in same.items():
        bodies = " ".join(pages[n][1] for n in names).casefold()
        own = {n.split(".")[0].casefold() for n in names}
        if len(words_of(told)) < 3 or told in bodies or own & set(words_of(told)):
            continue
        queries.append(made_query(f"? {names[0]}", told, dict.fromkeys(names, 1.0), index))
    queries.sort(key=lambda q: hashlib.sha256(q["id"].encode()).hexdigest())
    judges = "the page that a description is of"
    return {"judges": judges, "docs": docs, "train": queries[TEST:], "test": queries[:TEST]}


def manual_pages(package: Path) -> Sequence[tuple[str, str]]:
    """Names and sources of the manual pages in English of a package, links left out."""
    import tarfile
    from io import BytesIO

    data = subprocess.run(("dpkg-deb", "--fsys-tarfile", package), check=True, capture_output=True)
    with tarfile.open(fileobj=BytesIO(data.stdout)) as files:
        at = [m for m in files.getmembers()
              if m.isfile() and re.fullmatch(r"\./usr/share/man/man\d[^/]*/[^/]+\.gz", m.name)]  # fmt: skip
        read = [(Path(m.name).name[:-3], files.extractfile(m)) for m in at]
        texts = [(n, gzip.decompress(f.read()).decode("utf-8", "replace")) for n, f in read if f]
    return sorted((n, t) for n, t in texts if not re.search(r"^\.so ", t, re.MULTILINE))


def name_line(source: str) -> str:
    """What a page's section NAME says behind the dash."""
    told = re.split(r"\s(?:\\-|-|\\\(em|--|\\-\\-)+\s", section(source, "NAME"), maxsplit=1)
    return told[1].strip(" .") if len(told) == 2 else ""


def section(source: str, title: str) -> str:
    """The words of a section, without macros."""
    found = re.search(rf'^\.S[Hh] "?{title}"?\s*$(.*?)(?=^\.S[Hh] |\Z)', source, re.M | re.S)
    lines = list[str]()
    for line in found[1].splitlines() if found else ():
        if line.startswith(
            ('.\\"', "'\\\"", ".if", ".ie", ".el", ".de", ".ds", ".sp", ".nr", ".ne", ".ad", ".na")
        ):
            continue
        macro = re.match(r"^[.']\s*(\w+) ?(.*)$", line)
        if macro:  # fonts and links have words behind them, other macros have numbers
            joined = "" if macro[1] in ("BR", "BI", "RB", "RI", "IR", "IB") else " "
            line = joined.join(re.findall(r'"[^"]*"|\S+', macro[2])).replace('"', "") if len(
                macro[1]) <= 2 and macro[1] not in ("IX", "PD", "RS", "RE", "in", "br", "Vb", "Ve") else ""  # fmt: skip
        lines.append(ROFF.sub("", line).replace("\\-", "-").replace("\\e", "\\"))
    return " ".join(" ".join(lines).replace("\\", "").split())


# ---- what a model is shown


def made_query(
    name: str, query: str, grades: Mapping[str, float], index: BM25, kind: str = ""
) -> dict[str, Any]:
    """A query with what BM25 finds, best first, the first K with their places and snippets. Documents count
    whose ids begin with `kind`, but for the one that is called as the query is.
    """
    wanted = set(words_of(query)) - STOP_WORDS
    hits = [(i, text) for i, text, _ in index.search(query, len(index.docs))
            if i.startswith(kind) and i != name][:DEEP]  # fmt: skip
    items = [{"id": i, "text": f"#{n} {snippet(text, wanted, index, not kind)}"}
             for n, (i, text) in enumerate(hits[:K], 1)]  # fmt: skip
    return {"id": name, "prompt": query, "gold": dict(grades), "items": items,
            "found": [i for i, _ in hits]}  # fmt: skip


def snippet(text: str, wanted: set[str], index: BM25, named: bool) -> str:
    """The WORDS in a row that say most of the query, by rarity, and of what is `named` the name before them."""
    words, seen = text.split(), counted(index)
    value = [max((log(len(index.docs) / seen[w]) for w in words_of(x) if w in wanted and seen[w]),
                 default=0.0) for x in words]  # fmt: skip
    start = max(range(max(1, len(words) - WORDS)), key=lambda i: (sum(value[i : i + WORDS]), -i))
    return " ".join((words[:1] if start and named else []) + words[start : start + WORDS])


_COUNTS = dict[int, Counter[str]]()


def counted(index: BM25) -> Counter[str]:
    """In how many documents each word is."""
    if id(index) not in _COUNTS:
        _COUNTS[id(index)] = Counter(w for _, text in index.docs for w in {*words_of(text)})
    return _COUNTS[id(index)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    fetch(folder)
    for name, made in (("graded", graded(folder)), ("known-item", known_items(folder))):
        text = json.dumps(made, indent=0, ensure_ascii=False)
        (folder / f"{name}.json").write_text(text)
        reach = [any(i["id"] in q["gold"] for i in q["items"]) for q in made["test"]]
        print(name, len(made["docs"]), len(made["train"]), len(made["test"]), f"{sum(reach)} within {K}",
              hashlib.sha256(text.encode()).hexdigest()[:12])  # fmt: skip


if __name__ == "__main__":
    main()

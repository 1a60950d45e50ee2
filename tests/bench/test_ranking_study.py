"""The study of rankings: what is read of packages, what models are shown, and what its page says of numbers."""

import numpy as np
import pytest
from benchmarks.ranking import collections, page, study
from palaestra.services.index import BM25

SOURCE = r"""
.TH fopen 3
.SH NAME
fopen, fdopen \- stream open functions
.SH LIBRARY
Standard C library
.SH DESCRIPTION
The
.BR fopen ()
function opens the file whose name is the string \fIpathname\fP
.IX Header "left out"
and associates a stream with it.
"""
DOCS = (("open.3", "open opens a file by its path"), ("close.3", "close shuts a file"))
QUERY = {
    "id": "?",
    "prompt": "shut a file",
    "gold": {"close.3": 1.0},
    "items": [{"id": "open.3", "text": "#1 open a path"}, {"id": "close.3", "text": "#2 close it"}],
    "found": ["open.3", "close.3", "lseek.2"],
}


def test_a_manual_page_is_read_without_its_macros():
    assert collections.name_line(SOURCE) == "stream open functions"
    assert collections.section(SOURCE, "DESCRIPTION") == (
        "The fopen() function opens the file whose name is the string pathname and associates a stream with it."
    )


def test_candidates_have_their_places_and_a_query_is_not_its_own_candidate():
    index = BM25(DOCS)
    made = collections.made_query("open.3", "a file by its path", {"close.3": 1.0}, index)
    assert made["found"] == ["close.3"]
    assert made["items"][0]["text"].startswith("#1 close")
    assert [i["id"] for i in collections.made_query("?", "shuts a file", {}, index, "clo")["items"]] == ["close.3"]


def test_a_snippet_is_where_the_rare_words_of_the_query_are():
    text = "name " + "a b c d e f g h " * 3 + "rare x y"
    index = BM25((("1", text), ("2", "a b c")))
    assert "rare" in collections.snippet(text, {"rare", "a"}, index, named=True).split()
    assert collections.snippet(text, {"rare"}, index, named=True).split()[0] == "name"


def test_shifted_words_keep_places_and_ids():
    other = {**QUERY, "items": [{"id": "x", "text": "#1 red"}, {"id": "y", "text": "#2 green"}]}
    first, second = study.shifted([QUERY, other])
    assert first["items"] == [{"id": "open.3", "text": "#1 red"}, {"id": "close.3", "text": "#2 green"}]
    assert [i["text"] for i in second["items"]] == ["#1 open a path", "#2 close it"]


def test_what_was_found_follows_the_order_of_a_model():
    order = study.behind(["close.3", "open.3"], QUERY)
    assert order == ["close.3", "open.3", "lseek.2"]
    assert study.measure({"?": order}, [QUERY]) == {"ndcg": [1.0], "rr": [1.0]}
    assert study.measure({"?": QUERY["found"]}, [QUERY])["rr"] == [0.5]


def test_calls_of_coranking_and_rec_r1_in_training_are_those_of_the_others():
    d = study.DECLARED
    of = d["coranking"]
    # a query: the small order, five orders of the large one, and what is trained on: one, or two of four
    chosen, preferred = of["chosen steps"] * of["prompts"] * 7, of["preferred steps"] * of["prompts"] * 9
    assert study.HALF * d["batch"] + chosen + preferred == d["calls"]
    assert (study.HALF * d["batch"]) + d["rec-r1"]["prompts"] * 8 * d["rec-r1"]["steps"] == d["calls"]


def test_an_interval_covers_queries_and_seeds():
    rng = np.random.default_rng(0)
    base = rng.random((1, 60))
    better = np.clip(base + 0.2, 0, 2).repeat(3, 0)
    mean, low, high = page.interval(better, base)
    assert mean == pytest.approx(0.2) and low == pytest.approx(0.2) and high == pytest.approx(0.2)
    assert page.verdict((mean, low, high), 3, 3) == "better"
    assert page.verdict((mean, low, high), 2, 3) == "trial: 2 of 3 seeds"
    assert page.verdict((0.0, -0.1, 0.1), 3, 3) == "not decided"
    assert page.verdict((0.0, -0.02, 0.02), 3, 3) == "no difference that matters"
    assert page.verdict((0.0, 0.0, 0.0), 3, 3, unread=0.9) == "mostly unreadable"
    uneven = np.stack([base[0] + 0.3, base[0] - 0.3])
    assert page.interval(uneven, base)[1] < -0.2

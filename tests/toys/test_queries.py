"""Queries of three kinds over a wiki, each found first by its own rewrite."""

import pytest
from palaestra.services.index import BM25
from palaestra.toys.queries import RIGHT, QueryTasks


@pytest.fixture(scope="module")
def source():
    return QueryTasks(pages=64)


def test_the_strategy_of_a_kind_finds_the_page_first_and_no_other_does_better(source):
    index, first = BM25(source.documents()), {}
    for i in range(90):
        task = source.task("train", i)
        for name, query in task.meta["rewrites"].items():
            hit = index.search(query, 1)[0][0] == task.meta["gold"][0]
            first.setdefault((task.meta["query_kind"], name), []).append(hit)
    assert {kind for kind, _ in first} == set(RIGHT)
    for kind, right in RIGHT.items():
        assert all(first[kind, right])
        others = [hit for (k, name), hits in first.items() if k == kind and name != right for hit in hits]
        assert sum(others) / len(others) < 0.5, kind


def test_the_demonstration_is_the_right_rewrite(source):
    for i in range(12):
        meta = source.task("test", i).meta
        right = RIGHT[meta["query_kind"]]
        assert meta["demonstration"] == f"<strategy>{right}</strategy><query>{meta['rewrites'][right]}</query>"

"""The made-up wiki and its questions."""

import pytest
from palaestra.errors import UserError
from palaestra.toys.wiki import RELATIONS, WikiTasks

TASKS = WikiTasks(hops=(1, 3))


def test_pages_are_short_sentences_of_one_fact_each():
    pages = TASKS.documents()
    assert len(pages) == 2000 == len({i for i, _ in pages}) == len({t for _, t in pages})
    assert pages == WikiTasks(hops=(2, 2), name="other").documents() != WikiTasks(seed=1).documents()
    assert max(len(t) for _, t in pages) == 27
    assert len(WikiTasks(pages=16).documents()) == 16


def test_everybody_has_one_of_each_relation_and_is_ones():
    facts = {i: text.split()[-1][:-1] for i, text in TASKS.documents()}
    for relation in RELATIONS:
        whose = {i.split("/")[0]: to for i, to in facts.items() if i.endswith(relation)}
        assert len(whose) == 500 and set(whose) == set(whose.values())
        assert all(who != to for who, to in whose.items())


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_pages_lead_to_the_answer(split):
    facts = {i: text.split()[-1][:-1] for i, text in TASKS.documents()}
    hops = set()
    for i in range(60):
        task = TASKS.task(split, i)
        ways = task.prompt[0].content.rstrip("?").split(" of ")
        who = ways.pop()
        path = [who]
        for way in reversed(ways):
            path.append(facts[f"{path[-1]}/{way}"])
        assert tuple(path) == task.meta["path"] and path[-1] == task.answer and len(set(path)) == len(path)
        assert task.meta["gold"] == tuple(f"{w}/{r}" for w, r in zip(path, reversed(ways), strict=False))
        assert not any(p in task.prompt[0].content for p in path[1:]), "only the first is named"
        hops.add(len(ways))
    assert hops == {1, 2, 3}


def test_splits_are_disjoint_and_repeat():
    of = {s: {TASKS.task(s, i).prompt[0].content for i in range(300)} for s in ("train", "test")}
    assert not of["train"] & of["test"] and len(of["train"]) > 200
    assert TASKS.task("train", 7) == WikiTasks(hops=(1, 3)).task("train", 7)


@pytest.mark.parametrize("pages", [15, 28_904])
def test_too_few_pages_and_too_many(pages):
    with pytest.raises(UserError, match="pages"):
        WikiTasks(pages=pages)


def test_held_out_questions_may_be_longer():
    tasks = WikiTasks(hops=(2, 2), held_out=(3, 3))
    assert {len(tasks.task("train", i).meta["gold"]) for i in range(20)} == {2}
    assert {len(tasks.task("test", i).meta["gold"]) for i in range(20)} == {3}
    assert tasks.documents() == TASKS.documents()
    with pytest.raises(UserError, match="pages"):
        WikiTasks(hops=(1, 1), held_out=(5, 5), pages=16)

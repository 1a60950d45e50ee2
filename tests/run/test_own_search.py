"""A search of the user's own, in the place of an index of documents."""

import json

import palaestra
import pytest
from palaestra.errors import UserError

QUESTIONS = [
    {"prompt": "Who is the boss of Bako?", "answer": "Tiru"},
    {"prompt": "Who is the boss of Mema?", "answer": "Lola"},
]
SEARCH = """
BOSSES = {"bako": "tiru", "mema": "lola"}

async def search(query):
    return [(name, f"boss of {name} is {boss}") for name, boss in BOSSES.items() if name in query.lower()]
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "find.py").write_text(SEARCH)
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(q) + "\n" for q in QUESTIONS))
    return {
        "data": str(tmp_path / "questions.jsonl"),
        "tools": f"{tmp_path}/find.py:search",
        "out": tmp_path / "run",
        "model": "tiny-agent",
        "steps": 1,
        "evaluate": 0,
        "quiet": True,
    }


@pytest.mark.parametrize("method", ["ikea", "sem", "inforage", "reseek"])
def test_methods_that_search_documents_search_with_it(method, own):
    chosen = {"ikea": {"probes": 2}, "sem": {"probes": 2, "warm": 0}}.get(method, {})
    run = palaestra.train(method, set={**chosen, "schedule.prompts": 2, "collect.links.0.n": 2}, **own)
    (step,) = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert step["step"] == 1


def test_what_it_finds_is_shown_and_paid_for():
    import asyncio

    from palaestra.types import Act, Message, Task
    from palaestra.worlds.search import Search

    class Own:
        async def search(self, query, k=3):
            return tuple((f"{query}-{i}", f"boss of {query} is tiru", 1.0) for i in range(5))[:k]

    world = Search(index=Own(), k=2)
    task = Task(id="q", prompt=(Message(role="user", content="boss of bako?"),), answer="tiru")
    frame = world.reset(task, ("k",))
    said = Act(ask=frame.asks[0], text="<search>bako</search>", call=None, finish="eos", n_tokens=1)
    frame = asyncio.run(world.step(frame.state, (said,), ("k",)))
    assert frame.asks[0].say[-1].content.splitlines() == ["boss of bako is tiru"] * 2
    assert frame.facts["gains"] == (1.0,) and frame.facts["found"] == (("bako-0", "bako-1"),)
    assert world.oracle(world.reset(task, ("k",)).state) == "<search>boss of bako?</search>"


def test_documents_and_a_search_exclude_each_other(own, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("The boss of Bako is Tiru.")
    with pytest.raises(UserError, match=r"or a search of yours, .*, not both"):
        palaestra.train("sem", docs=str(tmp_path / "notes"), **own)

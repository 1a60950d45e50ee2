"""Which results of calls are used: the definition, what must not count, and the worlds that tell it."""

import asyncio

import pytest
from palaestra.services.index import BM25
from palaestra.types import Act, Ask, Call, Episode, Message, Task
from palaestra.worlds import toolbox
from palaestra.worlds.drafts import DraftSearch
from palaestra.worlds.search import Search
from palaestra.worlds.tool_log import log_facts, log_numbers
from palaestra.worlds.tools import WithTools, tool_numbers
from palaestra.worlds.uptake import Uptake

TASK = Task(id="t", prompt=(Message(role="user", content="Who is the boss of bako?"),), answer="tiru")


def used(asked, *turns):
    """Of a talk: what was asked, then what the policy said and what its calls returned, in turn."""
    uptake = Uptake().heard(asked)
    for said, *results in turns:
        uptake = uptake.said(said).returned(*results)
    return uptake.used


@pytest.mark.parametrize(
    ("turns", "told"),
    [
        ([("find boss", "bako's boss is tiru."), ("It is Tiru.",)], (True,)),
        ([("find boss", "bako's boss is tiru."), ("I do not know.",)], (False,)),
        # a result that repeats the question, or the call, is not used
        ([("find boss", "Who is the boss of bako?"), ("The boss of bako is unknown.",)], (False,)),
        ([("find tiru", "no page on tiru"), ("It is tiru.",)], (False,)),
        # nor is one that only confirms what was said
        ([("I think tiru. find boss", "boss of bako: tiru"), ("tiru",)], (False,)),
        # the second to say it is not used
        ([("find", "it is tiru"), ("find again", "it is tiru"), ("tiru",)], (True, False)),
        # of one message's calls both are the first
        ([("find twice", "it is tiru", "tiru, I say"), ("tiru",)], (True, True)),
        # a common word is none, and neither is a part of a word
        ([("find", "that which you had before"), ("that which you had before",)], (False,)),
        ([("find", "tirus"), ("tiru",)], (False,)),
        ([("find", "3.50"), ("it costs 3, not 50",)], (False,)),
        ([("find", "3.50"), ("it costs 3.50",)], (True,)),
        # said before the result came
        ([("the answer is tiru", "")], (False,)),
        ([("find", ""), ("tiru",)], (False,)),
        # a later call uses it
        ([("find boss", "tiru"), ("find heir of tiru", "mema"), ("mema",)], (True, True)),
        ([("找", "老板是 李"), ("李",)], (True,)),
    ],
)
def test_what_counts_as_used(turns, told):
    assert used("Who is the boss of bako?", *turns) == told


def test_numbers_of_used_results():
    log = ((1, "find", "result"), (2, "find", "error"), (3, "add", "result"), (3, "", "malformed"))
    told = Episode(status="finished", facts={
        "tool_calls": 4, "tool_malformed": 1, "tool_errors": 1,
        **log_facts(log, (0.0,) * 4, ("find", "add"), (True, False, False, False)),
    })  # fmt: skip
    untold = Episode(status="finished", facts={
        "tool_calls": 1, "tool_malformed": 0, "tool_errors": 0,
        **log_facts(((1, "look", "result"),), (0.0,), ("look",)),
    })  # fmt: skip
    numbers = log_numbers([told, untold])
    assert numbers["tools/useful/find"] == 0.5 and numbers["tools/useful/add"] == 0
    assert numbers["tools/calls/look"] == 0.5 and "tools/useful/look" not in numbers
    assert tool_numbers([told, untold])["tools/useful"] == 0.25
    assert "tools/useful" not in tool_numbers([untold])


def play(world, task, *acts):
    async def played():
        frame = world.reset(task, ("k",))
        frame = await frame if asyncio.iscoroutine(frame) else frame
        for n, (text, calls) in enumerate(acts):
            act = Act(ask=Ask(seat="policy"), text=text, call=None, finish="eos", n_tokens=1, calls=calls)
            frame = await world.step(frame.state, (act,), ("k", n))
        return frame.facts

    return asyncio.run(played())


def of(world, *texts):
    return play(world, TASK, *((t, ()) for t in texts))["tool_used"]


DOCS = (("a", "bako: boss of bako is tiru."), ("b", "tiru: heir of tiru is mema."))


def test_searches_tell_which_of_their_results_were_used():
    world = Search(BM25(DOCS), k=1)
    search, again = "<search>boss of bako</search>", "<search>heir of tiru</search>"
    assert of(world, search, "<answer>tiru</answer>") == (True,)
    assert of(world, search, "<answer>mema</answer>") == (False,)
    assert of(world, search, search, "<answer>tiru</answer>") == (True, False)
    assert of(world, search, again, "<answer>mema</answer>") == (True, True)
    assert of(world, "<search>zzz</search>", "nothing I can read", search, "<answer>tiru</answer>") == (
        False,
        False,
        True,
    )
    assert of(world, "<answer>tiru</answer>") == ()


def test_a_tag_of_the_form_uses_no_result():
    """A page that has the word of a tag is not used by whoever answers in the form."""
    world = Search(BM25((("a", "bako: the search has no answer, think again."),)), k=1)
    assert of(world, "<search>bako</search>", "<think></think><answer>mema</answer>") == (False,)


def test_a_search_that_confirms_the_draft_is_not_used():
    world = DraftSearch(BM25(DOCS), k=1)
    draft = lambda x: f"<answer>{x}</answer><search>boss of bako</search>"
    assert of(world, draft("mema"), "<answer>tiru</answer>") == (True,)
    assert of(world, draft("tiru"), "<answer>tiru</answer>") == (False,)


def test_what_a_user_says_is_not_brought_by_a_result():
    after = Uptake().heard("hello").said("call").heard("my name is tiru").said("call")
    assert after.returned("tiru").said("tiru").used == (False,)


def add(a: int, b: int) -> int:
    """The sum of a and b."""
    return a + b


def test_tools_tell_which_of_their_results_were_used():
    world = WithTools(toolbox.tool_names((add,)))
    call = lambda a, b: ("", (Call(name="add", args={"a": a, "b": b}),))
    asked = Task(id="t", prompt=(Message(role="user", content="17 + 25 + 1"),), answer="43")
    assert play(world, asked, call(17, 25), ("It is 42.", ()))["tool_used"] == (True,)
    assert play(world, asked, call(17, 25), ("It is 41.", ()))["tool_used"] == (False,)
    assert play(world, asked, call(17, 25), call(42, 1), ("43", ()))["tool_used"] == (True, True)
    assert play(world, asked, call(17, 0), ("17", ()))["tool_used"] == (False,)  # in the question
    assert play(world, asked, call("x", 1), ("error", ()))["tool_used"] == (False,)  # an error

"""Which row a request goes on with."""

from palaestra.worlds.gateway.history import Histories
from palaestra.worlds.gateway.wire import read_request


def said(role, text):
    return {"role": role, "content": text}


U, A, V = said("user", "u"), said("assistant", "a"), said("user", "v")
TOOL = {"type": "function", "function": {"name": "f"}}


def asked(histories, *messages, **more):
    return histories.ask(read_request({"messages": list(messages), **more}), "policy")


def begun():
    histories = Histories()
    first = asked(histories, U)
    histories.answer(first.thread, A)
    return histories, first


def test_what_goes_on_behind_the_newest_reply_continues_its_row():
    histories, first = begun()
    more = asked(histories, U, A, V)
    assert (more.thread, more.begins, [m.content for m in more.say]) == (first.thread, None, ["v"])


def test_an_earlier_reply_begins_a_row_of_its_own():
    histories, first = begun()
    histories.answer(asked(histories, U, A, V).thread, said("assistant", "b"))
    fork = asked(histories, U, A, said("user", "w"))
    assert fork.thread != first.thread and fork.begins == (first.thread, 1)
    assert [m.content for m in fork.say] == ["w"]
    histories.answer(fork.thread, said("assistant", "c"))
    both = (
        asked(histories, U, A, V, said("assistant", "b"), U),
        asked(histories, U, A, said("user", "w"), said("assistant", "c"), U),
    )
    assert [x.thread for x in both] == [first.thread, fork.thread]


def test_two_requests_at_once_do_not_share_a_row():
    histories, first = begun()
    one, other = asked(histories, U, A, V), asked(histories, U, A, V)
    assert one.thread == first.thread != other.thread and other.begins == (first.thread, 1)


def test_a_changed_reply_is_no_reply_of_the_policy():
    histories, first = begun()
    changed = asked(histories, U, said("assistant", "A"), V)
    assert changed.begins is None and changed.thread != first.thread
    assert [m.content for m in changed.say] == ["u", "A", "v"] and not any(m.trained for m in changed.say)


def test_a_repeated_request_is_a_row_of_its_own():
    histories, first = begun()
    again = asked(histories, U)
    assert again.begins is None and again.thread != first.thread


def test_other_agents_and_other_tools_share_no_row():
    histories, first = begun()
    for more in ({"model": "policy:b"}, {"tools": [TOOL]}):
        other = asked(histories, U, A, V, **more)
        assert other.begins is None and other.thread != first.thread and len(other.say) == 3
    assert asked(histories, U, model="policy:b").thread.startswith("b/")


def test_limits_and_temperature():
    request = read_request({"messages": [U], "max_tokens": 9, "temperature": 0.5})
    assert Histories().ask(request, "policy", 4).max_tokens == 4
    assert Histories().ask(request, "policy").max_tokens == 9
    assert Histories().ask(request, "policy").temperature is None
    assert Histories().ask(request, "policy", obeys=True).temperature == 0.5


def test_two_requests_at_once_that_add_nothing_do_not_share_a_row():
    histories, first = begun()
    one, other = asked(histories, U, A), asked(histories, U, A)
    assert one.thread == first.thread != other.thread and other.begins == (first.thread, 1)

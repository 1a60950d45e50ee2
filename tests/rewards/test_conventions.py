"""Reward functions written for TRL, verl, verifiers and OpenRLHF, called as there. Expected values by hand."""

import asyncio
import functools
import gc
import json
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from palaestra.curriculum.pool import Mixed
from palaestra.errors import Fault, NotApplicable, Paused, UserError
from palaestra.rewards.calls import POOLS
from palaestra.rewards.user import UserReward
from palaestra.rewards.weighted import Weighted
from palaestra.rollout.collect import apply_reward
from palaestra.rollout.queue import check_some
from palaestra.run.describe import describe
from palaestra.tasks.files import first_tasks
from palaestra.tasks.oracle import episode_saying
from palaestra.types import Episode, Group, Message, Reward, Row, Segment, Task

from tests.rows import every

TASK = Task(
    id="t1",
    prompt=(Message(role="system", content="s"), Message(role="user", content="3 + 4?")),
    answer="7",
    meta={"level": 2, "data_source": "sums", "extra_info": {"index": 5}, "info": {"k": 1}, "solution": "so 7"},
)
CHAT = Task(id="t2", prompt=TASK.prompt, answer="7", meta=TASK.meta, conversational=True)


def judge(function, *texts, task=TASK, **settings):
    reward = UserReward(function, **settings)
    return asyncio.run(reward(None, Group(task=task, episodes=tuple(map(episode_saying, texts)))))


def totals(function, *texts, task=TASK):
    return [r.total for r in judge(function, *texts, task=task)]


# ---- TRL


def test_trl_gives_texts_where_the_prompt_is_text():
    def reward(prompts, completions, answer, solution, level, **kwargs):
        assert prompts == ["3 + 4?"] * 2 and solution == ["so 7"] * 2 and level == [2, 2]
        assert kwargs["data_source"] == ["sums"] * 2 and "responses" not in kwargs
        return [float(c == a) for c, a in zip(completions, answer, strict=True)]

    assert totals(reward, "7", "8") == [1.0, 0.0]


def test_trl_gives_messages_where_the_prompt_is_a_conversation():
    def reward(completions, prompts, **kwargs):
        assert prompts[0] == [{"role": "system", "content": "s"}, {"role": "user", "content": "3 + 4?"}]
        return [len(c[0]["content"]) for c in completions if c[0]["role"] == "assistant"]

    assert totals(reward, "7", "88", task=CHAT) == [1.0, 2.0]


def test_trls_own_arguments_are_there_and_its_logging_does_nothing():
    def reward(completions, completion_ids, trainer_state, log_extra, log_metric):
        log_metric("seen", 1.0)
        log_extra("column", completions)
        assert trainer_state is None and len(completion_ids) == len(completions)
        return [0.5] * len(completions)

    assert totals(reward, "a", "b") == [0.5, 0.5]


def test_golds_are_not_taken_for_completions():
    """What a function of two names in this order got before it was known by them."""

    def reward(prompts, completions):
        return [float(c == "right") for c in completions]

    assert totals(reward, "right", "wrong") == [1.0, 0.0]


def test_an_async_function_of_trl():
    async def reward(completions, **kwargs):
        await asyncio.sleep(0)
        return [len(c) for c in completions]

    assert totals(reward, "ab", "c") == [2.0, 1.0]


# ---- verl


def test_verl_is_called_for_each_answer():
    def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
        assert (data_source, ground_truth, extra_info) == ("sums", "7", {"index": 5})
        return float(solution_str == ground_truth)

    assert totals(compute_score, "7", "8") == [1.0, 0.0]


def test_verls_dictionary_says_what_is_right_by_acc():
    def compute_score(data_source, solution_str, ground_truth, extra_info=None):
        right = solution_str == ground_truth
        return {"score": 1.0 if right else -1.0, "acc": right, "pred": solution_str, "length": 3}

    right, wrong = judge(compute_score, "7", "8")
    assert (right.total, right.solved, dict(right.parts)) == (1.0, True, {"length": 3.0})
    assert (wrong.total, wrong.solved) == (-1.0, False)


def test_verls_batch():
    def compute_score(data_sources, solution_strs, ground_truths, extra_infos):
        assert data_sources == ["sums"] * 2 and extra_infos == [{"index": 5}] * 2
        return [{"score": float(s == g)} for s, g in zip(solution_strs, ground_truths, strict=True)]

    assert totals(compute_score, "8", "7") == [0.0, 1.0]


@pytest.mark.parametrize("waits", [False, True])
def test_errors_of_many_calls_are_one_error(caplog, waits):
    """The first ends the run; the others come when nobody waits any more."""

    def plain(response, answer):
        time.sleep(0.02 * int(response))
        raise ConnectionError(503)

    async def waiting(response, answer):
        await asyncio.sleep(0.02 * int(response))
        raise ConnectionError(503)

    async def run():
        reward = UserReward(waiting if waits else plain)
        group = Group(task=TASK, episodes=tuple(episode_saying(str(i)) for i in range(6)))
        with pytest.raises(UserError, match="ConnectionError: 503"):
            await asyncio.create_task(stopped(reward(None, group)))
        await asyncio.sleep(0.3)
        gc.collect()

    async def stopped(work):
        """As a run ends: with the first error all other tasks are cancelled."""
        try:
            await work
        finally:
            for task in asyncio.all_tasks() - {asyncio.current_task(), outer[0]}:
                task.cancel()

    outer = []

    async def main():
        outer.append(asyncio.current_task())
        await run()

    asyncio.run(main())
    gc.collect()
    assert not [r for r in caplog.records if "never retrieved" in r.getMessage()]


# ---- verifiers


def test_verifiers_functions_get_what_they_name():
    async def right(completion, answer):
        return 1.0 if answer in completion[-1]["content"] else 0.0

    def informed(prompt, state, info):
        assert prompt == state["prompt"] and state["answer"] == "7" and info == {"k": 1}
        return 0.25

    assert totals(right, "so 7", "8") == [1.0, 0.0] and totals(informed, "x") == [0.25]


def test_verifiers_group_functions_see_the_answers_to_one_prompt():
    def longest(completions, states):
        lengths = [len(c[-1]["content"]) for c in completions]
        return [float(n == max(lengths)) for n in lengths]

    reward = UserReward(longest)

    async def two_groups():
        groups = [Group(task=TASK, episodes=tuple(map(episode_saying, x))) for x in (("a", "bb"), ("ccc", "d"))]
        return await asyncio.gather(*(reward(None, g) for g in groups))

    assert [[r.total for r in g] for g in asyncio.run(two_groups())] == [[0, 1], [1, 0]]


def test_what_a_function_needs_and_nobody_has_is_named():
    def parsed(completion, parser):
        return 1.0

    with pytest.raises(UserError, match="needs 'parser', which the data has not; it has level"):
        judge(parsed, "x")


# ---- OpenRLHF, and ours


def test_openrlhf():
    def reward_func(queries, prompts, labels):
        assert queries[0] == prompts[0] + "7" and labels == ["7", "7"]
        return {"rewards": torch.tensor([1.0, 0.0]), "extra_logs": {"x": torch.zeros(2)}}

    assert totals(reward_func, "7", "8") == [1.0, 0.0]


def test_for_one_answer():
    def score(response, answer, *, level, prompt):
        assert prompt == "3 + 4?"
        return level * float(response == answer)

    assert totals(score, "7", "8") == [2.0, 0.0]


def test_by_name_where_both_names_are_ours_and_by_place_else():
    def named(prompts, responses, answers):
        return [float(r == a) for r, a in zip(responses, answers, strict=True)]

    def placed(texts, golds):
        return [float(t == g) for t, g in zip(texts, golds, strict=True)]

    assert totals(named, "7", "8") == totals(placed, "7", "8") == [1.0, 0.0]


def test_a_parameter_with_the_name_of_a_column_gets_the_column_wherever_it_stands():
    def second(responses, level):
        return [float(r == "7") * x for r, x in zip(responses, level, strict=True)]

    def first(level, texts, **fields):
        return [float(t == a) * x for t, a, x in zip(texts, fields["answers"], level, strict=True)]

    def prompts_first(prompts, texts):
        return [2.0 * float((p, t) == ("3 + 4?", "7")) for p, t in zip(prompts, texts, strict=True)]

    assert totals(second, "7", "8") == totals(first, "7", "8") == totals(prompts_first, "7", "8") == [2.0, 0.0]


def test_what_the_data_leaves_out_has_a_default():
    """The domain is the source; what is missing, or null as in Parquet, is an empty object."""
    task = Task(id="t", prompt=TASK.prompt, answer="7", domain="sums", meta={"extra_info": None, "info": None})

    def compute_score(data_source, solution_str, ground_truth, extra_info):
        assert (data_source, extra_info) == ("sums", {})
        return 1.0

    def informed(completion, info, task):
        assert (info, task) == ({}, "sums")
        return 1.0

    assert totals(compute_score, "x", task=task) == totals(informed, "x", task=task) == [1.0]


def test_columns_of_the_data_do_not_hide_what_a_convention_gives():
    """But for TRL, whose functions ask for columns by the data's own names."""
    task = replace(TASK, meta=dict.fromkeys(("answers", "ids", "id", "answer", "completion"), "data's"))

    def ours(responses, answers, ids):
        return [float((answers, ids) == (["7"], ["t1"]))]

    def single(response, answer, id):
        return float((answer, id) == ("7", "t1"))

    def verifiers(completion, answer):
        return float(completion[0]["content"] == "x" and answer == "7")

    def trl(completions, answers):
        return [float((completions, answers) == (["x"], ["data's"]))]

    assert [totals(f, "x", task=task) for f in (ours, single, verifiers, trl)] == [[1.0]] * 4


def test_of_a_longer_conversation_the_last_question_and_the_last_answer_count():
    talk = tuple(Message(role=r, content=c) for r, c in (("user", "a"), ("assistant", "b"), ("user", "c")))
    said = (Segment(ids=(1, 2), logp=(0.0, 0.0), text="first"), Segment(ids=(3,)), Segment(ids=(4,), logp=(0.0,)))
    episode = Episode(rows=(Row(segments=said),), status="finished")

    def trl(prompts, completions, completion_ids):
        return [float((prompts, completion_ids) == (["c"], [[4]]))]

    group = Group(task=Task(id="t", prompt=talk), episodes=(episode,))
    assert [r.total for r in asyncio.run(UserReward(trl)(None, group))] == [1.0]


def test_a_function_reads_answers_if_any_of_its_parameters_is_no_text():
    assert UserReward(lambda prompts, completions, answer: []).reads_answers
    assert not UserReward(lambda prompts, completions, **kwargs: []).reads_answers


# ---- what is returned


@pytest.mark.parametrize(
    "found",
    [
        np.array([1.0, 0.5]), np.array([[1.0], [0.5]]), torch.tensor([1.0, 0.5]), torch.tensor([[1.0], [0.5]]),
        [torch.tensor(1.0), np.float32(0.5)], [np.array([1.0]), torch.tensor([[0.5]])], (True, 0.5),
        [torch.tensor(1.0, requires_grad=True), 0.5],
    ],
    ids=str,
)  # fmt: skip
def test_arrays_tensors_and_scalars_are_numbers(found):
    assert totals(lambda responses, answers: found, "a", "b") == [1.0, 0.5]


def test_arrays_of_another_shape_are_refused():
    with pytest.raises(UserError, match="returned 3 values for 2 responses"):
        judge(lambda responses, answers: np.zeros((3, 2)), "a", "b")
    with pytest.raises(UserError, match="not a number"):
        judge(lambda responses, answers: np.zeros((2, 2)), "a", "b")


def test_none_is_no_reward():
    first, second = judge(lambda responses, answers: [None, 1.0], "a", "b")
    assert isinstance(first, NotApplicable) and first.cause == "not-applicable" and second.total == 1.0


def test_of_a_sum_what_does_not_apply_is_left_out():
    """By hand: 2 * 1 + 3 * 10 where both apply, 3 * 10 where the first does not, and nothing where none does."""
    parts = (
        ("a", UserReward(lambda responses, answers: [1.0, None, None]), 2.0),
        ("b", UserReward(lambda responses, answers: [10.0, 10.0, None]), 3.0),
    )
    group = Group(task=TASK, episodes=tuple(map(episode_saying, "xyz")))
    both, one, none = asyncio.run(Weighted(parts)(None, group))
    assert (both.total, dict(both.parts)) == (32.0, {"a": 1.0, "b": 10.0})
    assert (one.total, dict(one.parts)) == (30.0, {"b": 10.0}) and isinstance(none, NotApplicable)


def test_a_fault_of_a_part_is_not_left_out():
    def broken(responses, answers):
        raise Fault("judge", "down")

    parts = (("a", UserReward(broken), 1.0), ("b", UserReward(lambda responses, answers: [1.0]), 1.0))
    (found,) = asyncio.run(Weighted(parts)(None, Group(task=TASK, episodes=(episode_saying("x"),))))
    assert isinstance(found, Fault) and found.cause == "judge"


# ---- calls


class Door:
    """Counts the calls that are inside at a time, and lets them out once `n` are."""

    def __init__(self, n):
        self.n, self.inside, self.most, self.lock, self.open = n, 0, 0, threading.Lock(), threading.Event()

    def __call__(self, response, answer):
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
            if self.inside == self.n:
                self.open.set()
        self.open.wait(5)
        time.sleep(0.01)
        with self.lock:
            self.inside -= 1
        return 1.0


def test_calls_for_single_answers_run_at_a_time_and_are_bounded():
    door = Door(3)
    judge(door, *"abcdefgh", workers=3)
    assert door.most == 3


class Listener:
    """A context that hears what is said."""

    sampling = False

    def __init__(self):
        self.heard = []

    def say(self, text):
        self.heard.append(text)


def test_what_waits_is_counted(monkeypatch):
    monkeypatch.setattr("palaestra.rewards.calls.TELL_EVERY", 0.05)
    ctx, held = Listener(), threading.Event()

    def slow(response, answer):
        if response != "quick":
            held.wait(5)
        return 1.0

    async def run():
        work = asyncio.ensure_future(
            UserReward(slow, workers=2)(ctx, Group(task=TASK, episodes=tuple(map(episode_saying, ("quick", *"abcd")))))
        )
        await asyncio.sleep(0.3)
        held.set()
        found = await work
        (pool,) = POOLS[asyncio.get_running_loop()].values()
        return found, pool.waiting

    found, waiting = asyncio.run(run())
    assert len(found) == 5 and waiting == 0
    assert "test_conventions.py:slow: 4 answers wait for their reward, 1 have it" in ctx.heard


def test_nothing_is_said_of_a_quick_reward():
    ctx = Listener()
    asyncio.run(UserReward(lambda responses, answers: [1.0])(ctx, Group(task=TASK, episodes=(episode_saying("x"),))))
    assert ctx.heard == []


def test_the_time_limit_is_of_a_call_and_not_of_the_wait_for_one():
    def slow(response, answer):
        time.sleep(0.15)
        return 1.0

    assert len(judge(slow, *"abcd", workers=1, timeout=0.4)) == 4


def test_bounds_of_the_fields():
    for wrong in ({"timeout": -1.0}, {"workers": 0}):
        with pytest.raises(UserError, match="must be at least"):
            UserReward(lambda responses, answers: [], **wrong)


def test_a_prompt_written_as_messages_is_a_conversation(tmp_path):
    """As in TRL, and in verl's rows."""
    talk = [{"role": "user", "content": "q"}]
    rows = [{"prompt": "q", "answer": "1"}, {"prompt": talk, "answer": "2"}, {"messages": talk, "answer": "3"}]
    found = []
    for i, row in enumerate(rows):
        path = tmp_path / f"{i}.jsonl"
        path.write_text(json.dumps(row))
        found.append(first_tasks(str(path), 1)[0].conversational)
    assert found == [False, True, True]


# ---- parts, labels, None


def parts_of(found):
    return found.total, found.solved, dict(found.parts), dict(found.labels)


DICTIONARIES = {  # what a function returns: the total, what is right, the parts, the labels
    "as verl's": ({"score": 1.0, "acc": True}, (1.0, True, {}, {})),
    "with others": ({"score": -1.0, "acc": 0, "length": 3, "pred": "8"}, (-1.0, False, {"length": 3.0}, {"pred": "8"})),
    "numpy": ({"score": np.float32(0.5), "acc": np.bool_(True), "n": np.int64(2)}, (0.5, True, {"n": 2.0}, {})),
    "score alone": ({"score": 2.0, "format": 0.5}, (2.0, None, {"format": 0.5}, {})),
    "total before score": ({"total": 3.0, "score": 1.0}, (3.0, None, {"score": 1.0}, {})),
    "labels": ({"total": 0.0, "penalty": -1.0, "why": "late"}, (0.0, None, {"penalty": -1.0}, {"why": "late"})),
    "a sum": ({"a": 1.0, "b": 2.0, "why": "late"}, (3.0, None, {"a": 1.0, "b": 2.0}, {"why": "late"})),
}  # fmt: skip


@every("name", DICTIONARIES)
@every("form", ["answers", "an answer", "verl's"])
def test_dictionaries_mean_the_same_in_every_convention(name, form):
    given, expected = DICTIONARIES[name]
    forms = {
        "answers": lambda responses, answers: [given],
        "an answer": lambda response, answer: given,
        "verl's": lambda data_source, solution_str, ground_truth, extra_info: given,
    }
    (found,) = judge(forms[form], "x")
    assert parts_of(found) == expected


def test_labels_are_kept_with_the_episode_and_in_sums():
    reward = Weighted((("a", UserReward(lambda responses, answers: [{"total": 1.0, "why": "late"}]), 2.0),))
    (found,) = asyncio.run(reward(None, Group(task=TASK, episodes=(episode_saying("x"),))))
    assert (found.total, dict(found.labels)) == (2.0, {"a/why": "late"})
    assert apply_reward(episode_saying("x"), found).facts["labels"] == {"a/why": "late"}


@pytest.mark.parametrize("wrong", [{"total": "1"}, {"score": "1"}, {"solved": "yes", "total": 1.0}, {"why": "late"}])
def test_texts_are_no_numbers(wrong):
    with pytest.raises(UserError, match=r"returned (str '.*, not a number|no parts)"):
        judge(lambda responses, answers: [wrong], "x")


def test_none_is_no_error_of_infrastructure():
    found = judge(lambda responses, answers: [1.0, None, None, 0.0], *"abcd")
    episodes = [apply_reward(e, r) for e, r in zip(map(episode_saying, "abcd"), found, strict=True)]
    failed = apply_reward(episode_saying("e"), Fault("judge", "down"))
    assert [e.unjudged for e in (*episodes, failed)] == [False, True, True, False, False]
    metrics = describe([Group(task=TASK, episodes=(*episodes, failed))], [])
    assert (metrics["unjudged"], metrics["errors"], metrics["reward"]) == (0.4, 0.2, 0.5)
    assert "unjudged" not in describe([Group(task=TASK, episodes=(episodes[0],))], [])
    with pytest.raises(Paused, match="the reward says nothing of all 2 answers; return numbers for some of them"):
        check_some([Group(task=TASK, episodes=tuple(episodes[1:3]))])


def test_a_gate_may_look_at_what_is_right():
    """Rewards that differ by length alone: with `solved` only the group with right and wrong answers is kept."""
    of = lambda *pairs: Group(
        task=TASK,
        episodes=tuple(apply_reward(episode_saying("x"), Reward(total=t, solved=s)) for t, s in pairs),
    )
    wrong, right, both = of((-0.1, False), (-0.2, False)), of((0.9, True), (0.8, True)), of((0.9, True), (-0.1, False))
    kept = lambda gate: asyncio.run(gate(None, [wrong, right, both], {}))[0]
    assert kept(Mixed(1, solved=True)) == [both] and kept(Mixed(3)) == [wrong, right, both]


class Calls:
    """A reward that is an object, as one with settings is."""

    def __call__(self, responses, answers, gain=1.0):
        return [gain * float(responses[99])]


@pytest.mark.parametrize(
    "function",
    [Calls(), Calls().__call__, functools.partial(Calls(), gain=2.0), functools.partial(Calls.__call__, Calls())],
)
def test_errors_of_callable_objects_have_their_line(function):
    line = Calls.__call__.__code__.co_firstlineno + 1
    with pytest.raises(UserError, match=rf"test_conventions\.py:{line}: IndexError: "):
        judge(function, "x")

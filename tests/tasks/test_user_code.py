"""Rewards and environments from the user's own files: what works, and every mistake as one line with its place."""

# ruff: noqa: E501  one line a case

import asyncio
import sys
import time
from itertools import count
from types import SimpleNamespace

import pytest
from palaestra.errors import Fault, UserError
from palaestra.rewards.user import UserReward
from palaestra.rewards.verified import Verified
from palaestra.rollout.collect import Sample
from palaestra.run import setup
from palaestra.run.evaluation import attempt_tasks
from palaestra.settings.fields import Settings
from palaestra.settings.rewards import reward_by_name
from palaestra.tasks.oracle import episode_saying
from palaestra.tasks.repeats import caveat
from palaestra.toys.chain import ArithmeticChain
from palaestra.toys.grid import GridTasks
from palaestra.types import Group, Message, Task
from palaestra.worlds.user import UserTasks, UserWorld, load_environment

from tests.oracle import check_oracle

TASK = Task(
    id="t1",
    prompt=(Message(role="system", content="s"), Message(role="user", content="3 + 4?")),
    answer="7",
    meta={"level": 2, "prompts": "shadowed", "responses": "shadowed"},
    domain="sums",
)


@pytest.fixture
def source(tmp_path):
    def write(text, name="mine.py"):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    yield write
    sys.path[:] = [p for p in sys.path if p != str(tmp_path)]


def scored(path, *texts, function="score", timeout=5.0):
    reward = UserReward(f"{path}:{function}", timeout=timeout)
    return asyncio.run(reward(None, Group(task=TASK, episodes=tuple(map(episode_saying, texts)))))


def test_a_function_gets_the_batch_and_the_columns(source):
    path = source(
        "from beside import right\n"
        "def score(responses, answers, **fields):\n"
        "    assert fields == {'prompts': ['3 + 4?'] * 2, 'ids': ['t1'] * 2, 'domains': ['sums'] * 2, 'level': [2, 2],\n"
        "        'messages': [[{'role': 'system', 'content': 's'}, {'role': 'user', 'content': '3 + 4?'}]] * 2}\n"
        "    return [right(r, a) for r, a in zip(responses, answers, strict=True)]\n"
    )
    source("def right(a, b):\n    return float(a == b)\n", "beside.py")
    assert [r.total for r in scored(path, "7", "8")] == [1.0, 0.0]


@pytest.mark.parametrize(
    "body, totals",
    [
        ("def score(r, a): return [len(x) for x in r]", [1.0, 2.0]),
        ("def score(r, a, level): return level", [2.0, 2.0]),
        ("def score(r, a, *, ids, missing=1): return [missing for _ in ids]", [1.0, 1.0]),
        (
            "async def score(r, a, **k):\n    import asyncio\n    await asyncio.sleep(0.01)\n    return (1, 2)",
            [1.0, 2.0],
        ),
        ("import numpy as np\ndef score(r, a): return np.ones(2)", [1.0, 1.0]),
        ("def score(r, a): return [{'x': 1, 'y': 2}, {'x': 1, 'total': 5}]", [3.0, 5.0]),
        ("class S:\n    async def __call__(self, r, a): return [0, 1]\nscore = S()", [0.0, 1.0]),
    ],
)
def test_forms_of_a_function(source, body, totals):
    assert [r.total for r in scored(source(body), "a", "bb")] == totals


def test_named_parts(source):
    (reward,) = scored(source("def score(r, a): return [{'x': 1, 'y': 2}]"), "a")
    assert dict(reward.parts) == {"x": 1.0, "y": 2.0}


def test_one_call_judges_everything_that_waits(source):
    path = source(
        "calls = 0\ndef score(r, a, ids):\n    global calls\n    calls += 1\n    return [10 * calls + len(r)] * len(r)\n"
    )
    reward, rounds = UserReward(f"{path}:score"), []

    async def waves():
        for _ in range(2):
            groups = [Group(task=TASK, episodes=(episode_saying("x"),) * n) for n in (1, 2, 3)]
            rounds.append(await asyncio.gather(*(reward(None, g) for g in groups)))

    asyncio.run(waves())
    assert [[[r.total for r in group] for group in wave] for wave in rounds] == [
        [[16], [16] * 2, [16] * 3],
        [[26], [26] * 2, [26] * 3],
    ]


def test_every_group_of_a_call_gets_its_own(source):
    """Of the only call: the answer in hundreds, the column `level` in tens (0 where it is missing), the response in ones."""
    path = source(
        "def score(responses, answers, ids, prompts, level):\n"
        "    assert ids == ['a', 'b', 'b', 'c'] and prompts == ['last', '', '', '']\n"
        "    return [100 * int(a) + 10 * (n or 0) + len(r) for r, a, n in zip(responses, answers, level, strict=True)]\n"
    )
    reward = UserReward(f"{path}:score")
    talk = tuple(Message(role=r, content=c) for r, c in (("user", "first"), ("assistant", "hm"), ("user", "last")))
    groups = [
        Group(task=Task(id="a", answer="1", prompt=talk), episodes=(episode_saying("x"),)),
        Group(task=Task(id="b", answer="2", meta={"level": 5}), episodes=(episode_saying("xx"), episode_saying("xxx"))),
        Group(task=Task(id="c", answer="3", meta={"level": 6}), episodes=(episode_saying("xxxx"),)),
    ]

    async def asked():
        return await asyncio.gather(*(reward(None, g) for g in groups))

    assert [[r.total for r in group] for group in asyncio.run(asked())] == [[101], [252, 253], [364]]


def test_the_call_waits_until_nothing_is_sampled(source):
    reward = UserReward(f"{source('def score(r, a): return [len(r)] * len(r)')}:score")
    ctx = SimpleNamespace(sampling=True, say=print)

    async def late():
        first = asyncio.ensure_future(reward(ctx, Group(task=TASK, episodes=(episode_saying("x"),))))
        await asyncio.sleep(0.05)
        assert not first.done()
        second = asyncio.ensure_future(reward(ctx, Group(task=TASK, episodes=(episode_saying("y"),))))
        ctx.sampling = False
        return [r[0].total for r in await asyncio.gather(first, second)]

    assert asyncio.run(late()) == [2, 2]


def test_a_fault_stays_a_fault(source):
    with pytest.raises(Fault, match="judge: down"):
        scored(source("from palaestra.errors import Fault\ndef score(r, a): raise Fault('judge', 'down')"), "a")


def test_a_fault_is_that_of_all_who_waited_for_the_call(source):
    path = source("from palaestra.errors import Fault\ndef score(r, a): raise Fault('judge', 'down')")
    reward, group = UserReward(f"{path}:score"), Group(task=TASK, episodes=(episode_saying("x"),))

    async def asked():
        return await asyncio.gather(*(reward(None, group) for _ in range(3)), return_exceptions=True)

    assert [getattr(f, "cause", f) for f in asyncio.run(asked())] == ["judge"] * 3


MISTAKES = {  # (the file, what the message says)
    "raises": ("def score(r, a):\n    x = 1\n    return [x / 0]\n", r"mine\.py:3: ZeroDivisionError: division by zero \(in score\)"),
    "raises below": ("import json\ndef score(r, a):\n    return [json.loads(x) for x in r]\n", r"mine\.py:3: JSONDecodeError: Expecting value"),
    "async raises": ("async def score(r, a):\n    raise KeyError('k')\n", r"mine\.py:2: KeyError: 'k'"),
    "times out itself": ("def score(r, a):\n    raise TimeoutError('socket')\n", r"mine\.py:2: TimeoutError: socket"),
    "exits": ("import sys\ndef score(r, a):\n    sys.exit(3)\n", r"mine\.py:3: SystemExit: 3"),
    "hangs": ("import time\ndef score(r, a):\n    time.sleep(30)\n", r"gave nothing in 0\.2 s; a hung thread cannot be ended, so the run is; bound its work"),
    "async hangs": ("import asyncio\nasync def score(r, a):\n    await asyncio.sleep(30)\n", r"gave nothing in 0\.2 s; bound its work, or raise --reward-timeout"),
    "NaN": ("def score(r, a): return [1, float('nan')]", r"returned nan, not a finite number, for response 1 \(task 't1'\); return finite numbers"),
    "infinite": ("def score(r, a): return [float('-inf'), 0]", r"returned -inf, not a finite number, for response 0"),
    "NaN part": ("def score(r, a): return [0, {'x': float('nan')}]", r"returned nan in part 'x', not a finite number, for response 1"),
    "a text": ("def score(r, a): return [0, '1']", r"returned str '1', not a number, for response 1"),
    "None in a part": ("def score(r, a): return [{'x': None}, 1]", r"returned NoneType 'None' in part 'x', not a number, for response 0"),
    "too few": ("def score(r, a): return [1]", r"returned 1 values for 2 responses; return one for each"),
    "too many": ("def score(r, a): return [1, 2, 3]", r"returned 3 values for 2 responses"),
    "a number": ("def score(r, a): return 1.0", r"returned float, not a list; return one number a response"),
    "nothing": ("def score(r, a): pass", r"returned NoneType, not a list"),
    "a dictionary": ("def score(r, a): return {'a': 1}", r"returned dict, not a list"),
    "a generator": ("def score(r, a):\n    yield 1", r"returned generator, not a list"),
    "a missing column": ("def score(r, a, color): return color", r"needs 'color', which the data has not; it has level, prompts"),
    "one parameter": ("def score(r): return r", r"takes \(r\); it must take \(responses, answers, \*\*fields\)"),
    "no function": ("score = 3", r"mine\.py:score is no function; write def score\(responses, answers, \*\*fields\)"),
    "a class": ("class score: pass", r"mine\.py:score is no function"),
    "another name": ("def scores(r, a): return r", r"mine\.py: no function 'score'; did you mean scores\?"),
    "nothing defined": ("from json import loads", r"mine\.py: no function 'score'; it defines none"),
    "bad syntax": ("x = 1\ndef score(r, a) return r\n", r"mine\.py:2: .*; mend the syntax"),
    "fails to load": ("x = 1\nx.y\ndef score(r, a): return r", r"mine\.py:2: AttributeError: .* while it was loaded"),
    "missing import": ("import no_such_module_here", r"mine\.py:1: ModuleNotFoundError: No module named 'no_such_module_here' while it was loaded"),
    "exits when loaded": ("import sys\nsys.exit(1)", r"mine\.py:2: SystemExit: 1 while it was loaded"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_every_mistake_is_one_clear_line(source, name):
    body, message = MISTAKES[name]
    started = time.monotonic()
    with pytest.raises(UserError, match=message) as error:
        scored(source(body), "a", "b", timeout=0.2 if "hangs" in name else 5.0)
    assert "\n" not in str(error.value) and time.monotonic() - started < 4


def test_a_composed_reward_stands_in_a_functions_place(source):
    """By hand: 2 * 1 for the right answer, less 0.5 for the number of words beyond it."""
    path = source(
        "from palaestra.rewards.user import UserReward\n"
        "from palaestra.rewards.verified import Verified\n"
        "from palaestra.rewards.weighted import Weighted\n"
        "def words(responses, answers):\n    return [len(r.split()) - 1 for r in responses]\n"
        "OWN = UserReward(__file__ + ':words')\n"
        "score = Weighted((('right', Verified('exact'), 2.0), ('words', OWN, -0.5)))\n"
    )
    found = reward_by_name(f"{path}:score")
    group = Group(task=TASK, episodes=tuple(map(episode_saying, ("7", "so 7", "8"))))
    assert [r.total for r in asyncio.run(found(None, group))] == [2.0, 1.5, 0.0]
    assert reward_by_name("exact") == Verified("exact") and reward_by_name(f"{path}:words") == UserReward(
        f"{path}:words"
    )
    with pytest.raises(UserError, match="no function 'scores'"):
        reward_by_name(f"{path}:scores")


def test_a_function_that_blocks_the_loop_is_noticed(source):
    path = source("import time\nasync def score(r, a):\n    time.sleep(1)\n    return [1]\n")
    with pytest.raises(UserError, match=r"gave nothing in 0\.1 s"):
        scored(path, "a", timeout=0.1)


def test_missing_files(source, tmp_path):
    source("def score(r, a): return r", "reward.py")
    source("x", "notes.txt")
    for spec, message in {
        str(tmp_path / "reword.py:score"): r"reword\.py: no such file; did you mean reward\.py\?",
        str(tmp_path / "zzz.py:score"): r"zzz\.py: no such file \(looked in ",
        str(tmp_path / "notes.txt:score"): r"not a Python file; its name must end in \.py",
        str(tmp_path / "reward.py"): r"name the file and the function, as FILE\.py:NAME",
        "": r"'': name the file and the function",
        "reward.py:": r"name the file and the function",
    }.items():
        with pytest.raises(UserError, match=message):
            UserReward(spec)


GUESS = """
from palaestra.errors import Fault; from palaestra.types import Ask, Frame, Message, Task
class Guess:
    seats = ("policy",)
    max_tokens = 5
    size = 10
    def task(self, split, index): return Task(id=f"{split}/{index}", answer=index % 10)
    def reset(self, task, key):
        return Frame(state=(task.answer, 3), asks=(Ask(seat="policy", say=(Message(role="user", content="0 to 9?"),)),))
    async def step(self, state, acts, key):
        answer, left = state
        if acts[0].text == str(answer): return Frame(state=state, pay={("policy", ""): 1.0})
        return Frame(state=(answer, left - 1), asks=() if left == 1 else (Ask(seat="policy"),), status="finished")
    def oracle(self, state): return str(state[0])
"""


def test_an_environment(source):
    world, tasks = load_environment(source(GUESS) + ":Guess")
    assert world.seats == ("policy",) and world.max_tokens == 5 and world.has_oracle
    assert (tasks.name, tasks.size, tasks.test_size) == ("guess", 10, None) and tasks.task("test", 3).answer == 3
    assert check_oracle(tasks, world) == [] and hash(world) == hash(UserWorld(world.spec))


def test_problems_of_an_environment_that_are_trained_on_are_known(source):
    """Tasks that differ in their ids only are one problem; what the user's code has no more of is not asked for."""
    names = map("world{}.py".format, count())
    told = lambda body: caveat(load_environment(source(body, next(names)) + ":Guess")[1], 30)
    too = "are training problems too: the accuracy is not one on new problems alone"
    assert told(GUESS) == f"the 30 held-out tasks hold 10 different problems, and 10 of them {too}"
    assert told(GUESS.replace("index % 10", "'ab'[split == 'test'] + str(index)")) == ""
    narrow = "the accuracy's interval is narrower than so few allow"
    few = told(GUESS.replace("index % 10", "(split, index % 3)"))
    assert few == f"the 30 held-out tasks hold 3 different problems: {narrow}"
    few = told(GUESS.replace("index % 10", "[1, 2, 3][index]"))
    assert few == f"the 3 held-out tasks hold 3 different problems, and 3 of them {too}"
    assert told(GUESS.replace(", answer=index % 10", "")) == "" == told(GUESS.replace("def task(", "def _task("))


def test_our_own_tasks_repeat_held_out_problems_where_there_are_few():
    assert caveat(ArithmeticChain(), 200) == ""
    assert caveat(GridTasks(), 200).startswith("the 200 held-out tasks hold ") and "training" not in caveat(
        GridTasks(), 200
    )


def test_an_environment_without_tasks_of_its_own(source):
    body = GUESS.replace("def task(", "def _task(").replace("def oracle(", "def _oracle(").replace("size = 10", "")
    world, tasks = load_environment(source(body) + ":Guess")
    assert tasks.task("test", 2) == Task(id="guess/test/2", meta={"split": "test", "index": 2}, domain="guess")
    assert tasks.size is None and not world.has_oracle and check_oracle(tasks, world) == [] and world.max_tokens == 5


ENVIRONMENTS = {  # what is replaced in GUESS: (by what, the message)
    "no seats": ('seats = ("policy",)', "pass", r"mine\.py:Guess has no seats; write the players' names, e\.g\. seats = \(\"policy\",\)"),
    "seats is text": ('seats = ("policy",)', 'seats = "policy"', r"has seats = 'policy'; write the players' names"),
    "empty seats": ('seats = ("policy",)', "seats = ()", r"has seats = \(\)"),
    "equal seats": ('seats = ("policy",)', 'seats = ("a", "a")', r"has seats = \('a', 'a'\)"),
    "no reset": ("def reset(", "def rest(", r"has no method 'reset'; write def reset\(self, task, key\)"),
    "no step": ("def step(", "def stop(", r"has no method 'step'; write def step\(self, state, acts, key\)"),
    "reset of one": ("def reset(self, task, key)", "def reset(self, task)", r"has reset\(task\); write def reset\(self, task, key\)"),
    "step of two": ("def step(self, state, acts, key)", "def step(self, state, acts)", r"has step\(state, acts\); write def step"),
    "oracle of none": ("def oracle(self, state)", "def oracle(self)", r"has oracle\(\); write def oracle\(self, state\)"),
    "step is data": ("async def step(self, state, acts, key):", "step = 3\n    def other(self, state, acts, key):", r"has no method 'step'"),
    "arguments": ("max_tokens = 5", "def __init__(self, n): pass", r"must be made without arguments; give those of __init__ defaults"),
    "failing init": ("max_tokens = 5", "def __init__(self): {}['n']", r"mine\.py:5: KeyError: 'n' \(in Guess\)"),
    "failing task": ('return Task(id=f"{split}/{index}", answer=index % 10)', "return 1 / 0", r"mine\.py:7: ZeroDivisionError: .* \(in Guess\.task\)"),
    "task is text": ('return Task(id=f"{split}/{index}", answer=index % 10)', "return 'a'", r"Guess\.task returned str; return a palaestra\.types\.Task"),
    "task of a number": ('id=f"{split}/{index}"', "id=5", r"Guess\.task: id is int 5; write text"),
    "prompt is text": ("answer=index % 10", 'prompt="0 to 9?"', r"Guess\.task: prompt is str '0 to 9\?'; write a tuple, with its comma: \(Message\("),
    "prompt without its comma": ("answer=index % 10", 'prompt=(Message(role="user", content="x"))', r"Guess\.task: prompt is Message"),
    "content is a number": ("answer=index % 10", 'prompt=(Message(role="user", content=5),)', r"Guess\.task: prompt is tuple"),
    "meta is text": ("answer=index % 10", 'meta="x"', r"Guess\.task: meta is str 'x'; write a dictionary"),
    "no class": ("class Guess:", "class Guest:", r"no class 'Guess'; did you mean Guest\?"),
    "a function": ("class Guess:", "def Guess(): pass\nclass Guest:", r"mine\.py:Guess is function, not a class"),
}  # fmt: skip


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_broken_class_is_one_clear_line(source, name):
    old, new, message = ENVIRONMENTS[name]
    assert GUESS.count(old) == 1
    with pytest.raises(UserError, match=message) as error:
        load_environment(source(GUESS.replace(old, new)) + ":Guess")
    assert "\n" not in str(error.value)


IN_PLAY = {
    "reset raises": ("return Frame(state=(task.answer, 3)", "1 / 0\n        return Frame(state=(task.answer, 3)", r"mine\.py:9: ZeroDivisionError: .* \(in Guess\.reset\)"),
    "async step raises": ("answer, left = state", "answer, left = state, 1, 2", r"mine\.py:11: ValueError: .* \(in Guess\.step\)"),
    "oracle raises": ("return str(state[0])", "return str(state[9])", r"mine\.py:14: IndexError: .* \(in Guess\.oracle\)"),
    "step gives text": ("if acts[0].text == str(answer): return Frame(state=state, pay={(\"policy\", \"\"): 1.0})", "return 'a'", r"Guess\.step returned str; return a palaestra\.types\.Frame"),
    "unknown seat": ('asks=() if left == 1 else (Ask(seat="policy"),)', 'asks=(Ask(seat="polciy"),)', r"Guess\.step names the seat 'polciy'; the seats are policy"),
    "asks without its comma": ('asks=(Ask(seat="policy", say=(Message(role="user", content="0 to 9?"),)),)', 'asks=Ask(seat="policy")', r"Guess\.reset: asks is Ask Ask\(seat='policy'.*; write a tuple, with its comma: asks=\(Ask\(\.\.\.\),\)"),
    "asks of text": ('asks=() if left == 1 else (Ask(seat="policy"),)', 'asks=("policy",)', r"Guess\.step: asks is tuple \('policy',\); write a tuple"),
    "says without its comma": ('say=(Message(role="user", content="0 to 9?"),)', 'say=Message(role="user", content="0 to 9?")', r"Guess\.reset: say is Message .*; write a tuple, with its comma: \(Message\("),
    "says text": ('say=(Message(role="user", content="0 to 9?"),)', 'say="0 to 9?"', r"Guess\.reset: say is str '0 to 9\?'; write"),
    "stops at text": ('Ask(seat="policy"),)', 'Ask(seat="policy", stop="x"),)', r"Guess\.step: stop is str 'x'; write a tuple"),
    "a limit of text": ('Ask(seat="policy"),)', 'Ask(seat="policy", max_tokens="4"),)', r"Guess\.step: max_tokens is str '4'; write a whole number"),
    "pays a number": ('pay={("policy", ""): 1.0}', "pay=1.0", r"Guess\.step: pay is float 1\.0; write a number by seat and thread: pay=\{\(\"policy\", \"\"\): 1\.0\}"),
    "pays a seat without a thread": ('pay={("policy", ""): 1.0}', 'pay={"policy": 1.0}', r"Guess\.step: a key of pay is str 'policy'; write a number by seat and thread"),
    "pays None": ("""): 1.0}""", """): None}""", r"Guess\.step: the pay of 'policy' is NoneType None; write a finite number"),
    "pays NaN": ("""): 1.0}""", """): float('nan')}""", r"Guess\.step: the pay of 'policy' is float nan; write a finite number"),
    "pays text": ("""): 1.0}""", """): '1'}""", r"Guess\.step: the pay of 'policy' is str '1'; write a finite number"),
    "pays nobody": ('pay={("policy", ""): 1.0}', 'pay={("me", ""): 1.0}', r"Guess\.step names the seat 'me'; the seats are policy"),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_PLAY)
def test_a_mistake_in_play_names_the_line(source, name):
    old, new, message = IN_PLAY[name]
    assert GUESS.count(old) == 1
    world, tasks = load_environment(source(GUESS.replace(old, new)) + ":Guess")
    with pytest.raises(UserError, match=message) as error:
        check_oracle(tasks, world)
    assert "\n" not in str(error.value)


def test_a_fault_of_the_world_stays_one(source):
    world = UserWorld(source(GUESS.replace("answer, left = state", "raise Fault('server', 'gone')")) + ":Guess")
    with pytest.raises(Fault, match="server: gone"):
        check_oracle(UserTasks(world.spec), world)


NIM = """
from palaestra.types import Ask, Frame, Message

class Nim:
    seats = ("first", "second")
    {players}

    def reset(self, task, key):
        return self.ask(3, 0)

    def ask(self, stones, who):
        say = (Message(role="user", content=str(stones)),)
        return Frame(state=(stones, who), asks=(Ask(seat=self.seats[who], say=say, max_tokens=2),))

    def step(self, state, acts, key):
        stones, who = state
        left = stones - 1
        if left:
            return self.ask(left, 1 - who)
        return Frame(state=state, pay={{(self.seats[who], ""): 1.0, (self.seats[1 - who], ""): -1.0}})
"""


def test_a_seat_may_be_played_by_a_function(source):
    """The last of three stones is the first seat's; the second seat says what its function says and is not trained."""
    spec = source(NIM.format(players="players = {'second': lambda messages, rng: 'take ' + messages[-1].content}"))
    ctx = setup.context(Settings(env=f"{spec}:Nim", evaluate=0), talk=False)
    (group,) = asyncio.run(attempt_tasks(ctx, 1, Sample(n=1)))
    (episode,) = group.episodes
    said = [
        (s.text, s.trained) for r in episode.rows if r.seat == "second" for s in r.segments if s.author != "environment"
    ]
    assert said == [("take 2", False)]
    assert episode.total == 1.0 and all(s.policy == "policy" for s in episode.rows[0].segments if s.trained)


@pytest.mark.parametrize(
    "players, told",
    [
        ("players = {'third': lambda messages, rng: ''}", "players has the seat 'third'; the seats are first, second"),
        ("players = {'second': lambda messages: ''}", "players is dict .*; write functions by seat"),
        (
            "players = dict.fromkeys(seats, lambda messages, rng: '')",
            "players fills every seat; leave one to the policy",
        ),
    ],
)
def test_players_of_a_world_are_checked(source, players, told):
    spec = source(NIM.format(players=players))
    with pytest.raises(UserError, match=told):
        setup.bench_of(Settings(env=f"{spec}:Nim"))


def test_what_a_player_says_is_text(source):
    spec = source(NIM.format(players="players = {'second': lambda messages, rng: 3}"))
    ctx = setup.context(Settings(env=f"{spec}:Nim", evaluate=0), talk=False)
    with pytest.raises(UserError, match="what the player of 'second' says is int 3; write text"):
        asyncio.run(attempt_tasks(ctx, 1, Sample(n=1)))

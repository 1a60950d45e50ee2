"""Agents that are programs: what they ask is recorded as it was sampled, and what goes wrong is a fault."""

import asyncio
import os
import time

import pytest
import torch
from palaestra.engines.own import OwnEngine
from palaestra.errors import UserError
from palaestra.models.forward import forward
from palaestra.models.load import load
from palaestra.rewards.verify import Verify
from palaestra.rollout.play import play
from palaestra.rollout.player import EnginePlayer
from palaestra.types import Example, Group, Message, Sampling, Task
from palaestra.update import pack
from palaestra.worlds.gateway import agent
from palaestra.worlds.gateway.agent import AgentWorld, JudgeAgents

from tests.gateway.helpers import TASK, episode, scripted, world
from tests.rounding import agree


@pytest.fixture(scope="module")
def engine():
    return OwnEngine(load("tiny"))


@pytest.fixture
def player(engine):
    return EnginePlayer(engine=engine, sampling=Sampling(max_tokens=6))


def test_a_conversation_is_one_row_of_sampled_tokens(engine, player, tmp_path):
    made = world(tmp_path, 'a = chat(task["messages"])\nb = chat([*task["messages"], a, user("9")])\nprint(0.25)')
    e = episode(made, player)
    (row,) = e.rows
    said = [s for s in row.segments if s.trained]
    assert (e.status, e.total, len(said), e.facts["agent_calls"]) == ("finished" if said[-1].finish == "eos" else
                                                                      "truncated:length", 0.25, 2, 2)  # fmt: skip
    assert all(len(s.ids) == len(s.logp) and s.version == 0 for s in said)
    batch = pack([Example(row=row, columns={})])
    with torch.no_grad():
        logp = forward(engine.model, batch, ("logp",))["logp"]
    assert agree((logp - batch["behaviour_logp"]).abs()[batch.mask > 0])


def test_a_fork_begins_with_the_tokens_that_were_sampled(engine, tmp_path):
    odd = "ab" + "c"  # spelled otherwise than a text that is read again would be

    def say(prompt):
        return odd if prompt.count("<|assistant|>") == 1 else "z"

    code = (
        'a = chat(task["messages"]); talk = [*task["messages"], a]\n'
        'chat([*talk, user("x")]); chat([*talk, user("y")]); chat([user("new")]); print(1)'
    )
    first, fork, other = episode(world(tmp_path, code), scripted(engine, say)).rows
    ids = first.segments[1].ids
    assert fork.segments[1].ids == ids and not fork.segments[1].trained and fork.segments[1].logp is None
    assert [s.trained for s in fork.segments if s.finish] == [False, True]
    assert fork.context()[: len(first.segments[0].ids + ids)] == first.context()[: len(first.segments[0].ids + ids)]
    assert "y" in fork.segments[2].text and "x" not in engine.dialect.decode(fork.context())
    assert [s.author for s in other.segments] == ["environment", "policy"]


def test_tools_are_shown_called_and_answered(engine, tmp_path):
    def say(prompt):
        return "it is 7" if "~7~" in prompt else 'so <tool_call>{"name": "add", "arguments": {"x": 3}}</tool_call>'

    code = (
        'tools = [{"type": "function", "function": {"name": "add", "description": "Adds.",\n'
        '  "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}}]\n'
        'talk = [*task["messages"]]; a = chat(talk, tools=tools); c = a["tool_calls"][0]\n'
        'assert a["content"] == "so" and json.loads(c["function"]["arguments"]) == {"x": 3}, a\n'
        'talk += [a, {"role": "tool", "tool_call_id": c["id"], "content": "~7~"}]\n'
        'print(json.dumps({"answer": chat(talk, tools=tools)["content"], "reward": 1}))'
    )
    e = episode(world(tmp_path, code), scripted(engine, say))
    assert (e.status, len(e.rows), e.facts["agent_answer"], e.total) == ("finished", 1, "it is 7", 1.0)
    assert "add(x: integer" in e.rows[0].segments[0].text


def test_several_agents_keep_rows_apart_and_share_the_reward(engine, tmp_path):
    code = (
        'a = chat(task["messages"], model="policy:planner")\n'
        'chat([user("b")], {"x-palaestra-agent": "critic"}); chat([*task["messages"], a, user("c")], model="policy:planner")\n'
        'post(os.environ["PALAESTRA_REWARD_URL"], {"reward": 0.5}); time.sleep(60)'
    )
    begin = time.monotonic()
    e = episode(world(tmp_path, code), scripted(engine, lambda _: "z"))
    assert [r.thread for r in e.rows] == ["planner/0", "critic/1"] and e.total == 0.5
    assert e.facts["agent_names"] == ("critic", "planner") and time.monotonic() - begin < 20


def test_a_kept_agent_plays_one_episode_after_the_other(engine, tmp_path):
    """Its process stays as long as it answers; one that ends or says nothing is another's place."""
    code = (
        "print(json.dumps(task))\n"  # a line of its own, which is no answer
        "while True:\n"
        '    base = task["base_url"]; chat(task["messages"])\n'
        '    if task["id"] == "die": raise SystemExit("gone")\n'
        '    print(json.dumps({"reward": os.getpid()}), flush=True); task = json.loads(sys.stdin.readline())'
    )
    made = world(tmp_path, code.replace("print(json.dumps(task))\n", "print(1)\n"), keep=True, processes=1)
    made_file = tmp_path / "agent.py"
    made_file.write_text(made_file.read_text().replace("json.load(sys.stdin)", "json.loads(sys.stdin.readline())"))
    tasks = [TASK, TASK, Task(id="die", prompt=TASK.prompt), TASK]

    async def one_by_one():
        player = scripted(engine, lambda _: "z")
        return [await play(made, {"policy": player}, t, (i,), (i,)) for i, t in enumerate(tasks)]

    a, b, died, c = asyncio.run(one_by_one())
    made.close()
    assert a.total == b.total != c.total and died.status == "error:agent" and "gone" in died.facts["error"]
    assert not running(int(c.total))


def test_several_choices_are_rows(engine, tmp_path):
    code = 'r = json.load(post(base + "/chat/completions", {"messages": task["messages"], "n": 3}))\nprint(len(r["choices"]))'
    e = episode(world(tmp_path, code), scripted(engine, lambda _: "z"))
    assert (len(e.rows), e.total) == (3, 3.0)


@pytest.mark.parametrize(
    ("code", "status", "why"),
    [
        ('chat(task["messages"]); raise SystemExit("no luck " + key)', "error:agent", "status 1: no luck ..."),
        ("print(1)", "error:agent", "without a request"),
        ('chat(task["messages"]); print("well")', "error:reward", "'well'"),
        ('chat(task["messages"]); print("NaN")', "error:reward", "'NaN'"),
        ('chat(task["messages"]); time.sleep(60)', "error:agent-timeout", "0.5 s"),
        ("time.sleep(60)", "error:agent-timeout", "0.5 s"),
    ],
)
def test_what_goes_wrong_is_a_fault_of_the_episode(engine, tmp_path, code, status, why):
    e = episode(world(tmp_path, code, seconds=0.5), scripted(engine, lambda _: "z"))
    assert e.status == status and why in e.facts["error"] and e.reward is None


def test_the_whole_process_group_is_ended(engine, tmp_path):
    code = (
        "import subprocess\n"
        f'child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])\n'
        f'open({str(tmp_path / "pids")!r}, "w").write(f"{{os.getpid()}} {{child.pid}} {{os.environ[\'PALAESTRA_TASK\']}}")\n'
        'chat(task["messages"]); time.sleep(60)'
    )
    e = episode(world(tmp_path, code, seconds=0.7), scripted(engine, lambda _: "z"))
    own, child, file = (tmp_path / "pids").read_text().split()
    assert e.status == "error:agent-timeout" and not os.path.exists(file)
    assert not any(running(int(pid)) for pid in (own, child)) and not agent._played


def running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_agent_knows_its_task(engine, tmp_path):
    code = (
        'with open(os.environ["PALAESTRA_TASK"]) as f: assert json.load(f) == task\n'
        'assert task["answer"] == "7" and task["meta"] == {"level": 2} and task["prompt"] == "3+4"\n'
        'assert str(task["seed"]) == os.environ["PALAESTRA_SEED"]; chat(task["messages"]); print(1)'
    )
    assert episode(world(tmp_path, code), scripted(engine, lambda _: "z")).total == 1.0


@pytest.mark.parametrize(
    ("line", "total"), [("7", 1.0), ("8", 0.0), ('{"answer": "7"}', 1.0), ('{"reward": 0.5}', 0.5)]
)
def test_a_printed_answer_is_judged(engine, tmp_path, line, total):
    made = world(tmp_path, f'chat(task["messages"]); print({line!r})', last_line="answer")
    e = episode(made, scripted(engine, lambda _: "7"))
    judge = JudgeAgents(Verify(lambda text, task: float(text == task.answer)))
    paid = e.reward or asyncio.run(judge(None, Group(task=TASK, episodes=(e,))))[0]
    assert paid.total == total


def test_64_requests_of_four_agents_run_in_company(tmp_path):
    """What they ask runs in the same passes, and each gets its own answer."""
    engine = OwnEngine(load("tiny"))
    code = (
        "out = []\n"
        'def one(i): out.append(chat([user(f"{i}+{i}")], temperature=1)["content"])\n'
        "threads = [threading.Thread(target=one, args=(i,)) for i in range(16)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]; print(len(out))"
    )
    made, player = world(tmp_path, code), EnginePlayer(engine=engine, sampling=Sampling(max_tokens=32))

    async def all_of_them():
        return await asyncio.gather(*(play(made, {"policy": player}, TASK, (i,), (i,)) for i in range(4)))

    episodes = asyncio.run(all_of_them())
    assert [len(e.rows) for e in episodes] == [16] * 4 and all(e.total == 16 for e in episodes)
    assert engine.most_running >= 16


def test_processes_are_limited(engine, tmp_path):
    """With one place the second agent begins when the first has ended, also where that fails."""
    made = world(tmp_path, 'chat(task["messages"]); print(1)', processes=1)
    bad = Task(id="b", prompt=(Message(role="user", content="fail"),))
    most = []

    def say(_):
        most.append(len(agent._played))
        return "z"

    async def both():
        tasks = [TASK, bad, TASK]
        return await asyncio.gather(*(play(made, {"policy": scripted(engine, say)}, t, (0,), (0,)) for t in tasks))

    assert [e.status for e in asyncio.run(both())] == ["finished"] * 3 and most == [1, 1, 1]


@pytest.mark.parametrize(
    ("command", "part"), [("nosuch-program x", "no program"), ("", "no program"), ("a 'b", "cannot")]
)
def test_a_command_that_cannot_start_is_refused(command, part):
    with pytest.raises(UserError, match=part):
        AgentWorld(command)


def test_an_episode_cannot_be_forked(engine, tmp_path):
    made = world(tmp_path, 'a = chat(task["messages"]); chat([*task["messages"], a, user("x")]); print(1)')

    async def forked():
        from palaestra.types import Act

        frame = await made.reset(TASK, (0,))
        act = Act(ask=frame.asks[0], text="z", call=None, finish="eos", n_tokens=1)
        try:
            await made.step(frame.state, (act,), (0,))
            await made.step(frame.state, (act,), (0,))
        finally:
            await made.leave(frame.state)

    with pytest.raises(UserError, match="forked"):
        asyncio.run(forked())

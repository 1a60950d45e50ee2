"""Re4: what a script calls and repeats, cases of a folder, pseudo-labels, the encoder, and what is shown."""

import asyncio
import json
from types import SimpleNamespace

import palaestra as pl
import pytest
import torch
from palaestra.errors import UserError
from palaestra.recipes.agents import re4
from palaestra.recipes.agents.re4.bank import ScriptCase, read_cases
from palaestra.recipes.agents.re4.retriever import (
    CaseIndex,
    Encoder,
    IntentPair,
    mine_pairs,
    new_encoder,
    tune_encoder,
)
from palaestra.recipes.agents.re4.scripts import (
    call_f1,
    calls_of,
    judge_script,
    repeated_share,
    script_of,
    script_similarity,
)
from palaestra.toys import DeviceTasks
from palaestra.types import Group, Message, Reward, Task

GOLD = "login()\nset_if(1)\nping()\nlogout()"
TWICE = "login()\nset_if(1)\nset_if(1)\nlogout()"


def judge(reply, right=GOLD, shown=(), known=("login", "set_if", "ping", "logout"), **options):
    return judge_script(reply, right, shown, known, **options)


def test_rewards_of_the_catalogue():
    """3 of 4 calls match: F1 .75; one of 4 lines is there twice: r = .75 - .5 * .25 = .625."""
    parts = judge(TWICE)
    assert (parts["calls"], parts["repeated"], parts["total"]) == (0.75, 0.25, 0.625)
    assert judge(GOLD)["total"] == 1.0
    assert judge("login(")["total"] == judge("")["total"] == -0.5


def test_a_right_script_is_paid_whole_though_no_case_has_its_calls():
    right = "def twice(x):\n    return add(x, x)\nprint(twice(3))"
    assert judge_script(right, right, [], [])["total"] == 1
    assert judge_script("foo()\nbar()", "foo()\nbar()", [], [])["total"] == 1
    assert judge_script("foo()\nbaz()", "foo()\nbar()", [], [])["invented"] == 1
    assert judge_script("print", "foo\nbar", [], [], language="commands")["invented"] == 1  # a list has no built-ins


def test_invented_calls_cost_a_tenth_each_and_half_at_most():
    """F1 of login, fly against the 4: 2 * 1 / 6; known from a case is not invented."""
    assert judge("login()\nfly()")["total"] == pytest.approx(1 / 3 - 0.1)
    assert judge("login()\nfly()", shown=["fly()"])["invented"] == 0
    many = judge("\n".join(f"fly{i}()" for i in range(9)))
    assert many["invented"] == 9 and many["total"] == pytest.approx(-0.5)


def test_a_case_alone_and_what_is_reused_of_it():
    """The case has login and logout of 4 right calls: F1 2*2/(4+3); login alone was written: 1/4."""
    parts = judge("login()\nping()", shown=["login()\nlogout()\nstop()"])
    assert parts["case"] == pytest.approx(4 / 7)
    assert parts["reused"] == 0.25
    assert judge(GOLD)["case"] == judge(GOLD)["reused"] == 0


def test_arguments_count_where_that_is_asked():
    other = GOLD.replace("1", "2")
    assert judge(other)["total"] == 1.0
    assert judge(other, whole=True)["total"] == 0.75


@pytest.mark.parametrize(
    "reply",
    [
        "login()",
        "Here it is:\n```python\nlogin()\n```\nDone.",
        "<think>fly()\n```python\nfly()\n```</think>\nlogin()",
        "<answer>login()</answer>",
        "first\n```\nfly()\n```\nbetter\n```py\nlogin()",
    ],
)
def test_a_script_is_found_in_any_form(reply):
    assert script_of(reply) == "login()"


def test_calls_by_language():
    assert calls_of("a.b(c(1)).d(2)", "python") == ["d", "a.b", "c"]
    assert calls_of("a(1)\nb(x=2)", "python", whole=True) == ["a(1)", "b(x=2)"]
    assert calls_of("x = 1", "python") == [] and calls_of("", "python") is None
    commands = "# top\nset  vlan 4\n\nping host"
    assert calls_of(commands, "commands") == ["set", "ping"]
    assert calls_of(commands, "commands", whole=True) == ["set vlan 4", "ping host"]
    assert judge("set vlan 4\nping host", commands, known=("set", "ping"))["total"] == 1
    assert call_f1([], []) == 1 and call_f1(["a"], []) == 0
    assert script_similarity("set a\nping b", "set c\nshow d") == 0.5


def test_lines_that_are_right_twice_are_not_repeated():
    assert repeated_share("a()\na()", "a()\na()") == 0
    assert repeated_share("a()\na()\na()\nb()", "a()\na()\nb()") == 0.25
    assert repeated_share("", GOLD) == 0


def test_cases_of_a_folder(tmp_path):
    files = {
        "a.py": '"""Logs\nin."""\nimport x\nlogin()',
        "b.tcl": "#!/bin/tclsh\n# pings a host\n# twice\nping h\nping h\n",
        "c.cli": "set vlan 4\n",
        "c.md": "A vlan is set.",
        "d.py": "login()",
        "e.jsonl": json.dumps({"intent": "logs out", "script": "logout()"}) + "\n",
        "notes.txt": "nothing",
        "deep/f.py": '"""Deep."""\ngo()',
        ".hidden.py": '"""no"""\nno()',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    cases, skipped = read_cases(str(tmp_path))
    assert [(c.name, c.intent, c.script) for c in cases] == [
        ("a.py", "Logs in.", "import x\nlogin()"),
        ("b.tcl", "pings a host twice", "ping h\nping h"),
        ("c.cli", "A vlan is set.", "set vlan 4"),
        ("deep/f.py", "Deep.", "go()"),
        ("e.jsonl:1", "logs out", "logout()"),
    ]
    assert skipped == ["d.py", "notes.txt"]


def test_folders_without_cases_are_refused(tmp_path):
    with pytest.raises(UserError, match="no such folder"):
        read_cases(str(tmp_path / "gone"))
    with pytest.raises(UserError, match="no case in this folder"):
        read_cases(str(tmp_path))
    (tmp_path / "x.jsonl").write_text('{"intent": "a"}\n')
    with pytest.raises(UserError, match="'intent' and 'script'"):
        read_cases(str(tmp_path))


CASES = [
    ScriptCase(name="0", intent="test red on hub", script="open()\nred()"),
    ScriptCase(name="1", intent="test red on router", script="open()\nred()"),
    ScriptCase(name="2", intent="test blue on hub", script="shut()\nblue()"),
    ScriptCase(name="3", intent="test red on hub", script="open()\nred()"),
]


def test_pseudo_labels_are_high_in_both_or_alike_in_words_alone():
    """0 and 3 are one intent, so 1 is the positive of both; of 1 the first with a like script."""
    pairs = mine_pairs(CASES, pl.services.BM25(tuple((c.name, c.intent) for c in CASES)))
    assert pairs == [IntentPair(0, 1, 2), IntentPair(1, 0, 2), IntentPair(3, 1, 2)]


def test_an_encoder_weighs_words_by_rarity():
    """Unit vectors of words a and b with rarities 1 and 3: "a a b" is (2, 3) / sqrt 13."""
    encoder = Encoder({"a": 0, "b": 1}, [1.0, 3.0], torch.eye(2))
    assert encoder(["a a b", "unknown"]).tolist() == [
        pytest.approx([2 / 13**0.5, 3 / 13**0.5]),
        [0, 0],
    ]


def test_a_tuned_encoder_finds_the_like_script_where_words_mislead():
    tasks = [DeviceTasks().task("train", i) for i in range(160)]
    cases = [ScriptCase(name=t.id, intent=t.prompt[0].content, script=t.answer) for t in tasks]
    index = CaseIndex(cases, "tuned", "auto", seed=0)
    assert index.numbers["words"] < 0.75 and index.numbers["tuned"] > index.numbers["words"] + 0.1
    again = CaseIndex(cases, "tuned", "auto", seed=0)
    assert torch.equal(again.vectors_ND, index.vectors_ND)  # a resumed run finds the same cases


def test_a_step_of_infonce_pulls_the_positive_and_pushes_the_negative():
    start = new_encoder([c.intent for c in CASES], seed=0)
    tuned = tune_encoder(start, CASES, [IntentPair(0, 1, 2)], seed=0, steps=5)

    def likeness(encoder):
        red, router, blue = encoder([CASES[i].intent for i in (0, 1, 2)])
        return float(red @ router), float(red @ blue)

    (before_p, before_n), (after_p, after_n) = likeness(start), likeness(tuned)
    assert after_p - after_n > before_p - before_n + 0.1
    assert tune_encoder(start, CASES, [], seed=0) is start


def test_an_intent_never_sees_itself_or_its_copy():
    index = CaseIndex(CASES, "words", "auto", seed=0)
    assert [c.name for c in index.find(" Test red on  HUB", 4)] == ["1", "2"]
    assert index.find("nothing shared", 4) == []


def context(tasks, said=None):
    rows = [Task(id=str(i), prompt=(Message(role="user", content=q),), answer=a) for i, (q, a) in enumerate(tasks)]
    source = SimpleNamespace(size=len(rows), task=lambda split, i: rows[i])
    say = (said if said is not None else []).append
    return SimpleNamespace(bench=SimpleNamespace(tasks=source), seed=0, say=say), rows


def test_what_the_policy_reads_holds_no_gold_script():
    ctx, rows = context([("log in", "login()"), ("log out", "logout()"), ("log in", "login()")])
    bank = re4.CaseBank(retriever="words")
    told = re4.with_cases(rows[0], bank.shown(ctx, rows[0]))
    assert told.prompt[-1].content == "example:\nlog out\nlogout()\nnow:\nlog in"
    assert re4.CaseBank(retriever="none").shown(ctx, rows[0]) == []
    assert re4.with_cases(rows[0], []) == rows[0]


def test_a_system_message_of_the_user_stays():
    system = Message(role="system", content="Be brief.")
    task = Task(id="t", prompt=(system, Message(role="user", content="log in")), answer="x()")
    told = re4.with_cases(task, [ScriptCase(name="a", intent="now:", script="go()")])
    assert told.prompt[0] == system and told.prompt[-1].content.endswith("now:\nlog in")


def test_a_folder_and_an_api_list_extend_the_bank(tmp_path):
    (tmp_path / "a.py").write_text('"""log in twice"""\nlogin()\nlogin()')
    (tmp_path / "__init__.py").write_text("")
    api = tmp_path / "api.pyi"
    api.write_text("login logout reboot")
    said = []
    ctx, rows = context([("log in", "login()"), ("log out", "logout()")], said)
    bank = re4.CaseBank(folder=str(tmp_path), api=str(api), retriever="tuned", steps=1)
    bank.check(ctx)
    assert bank.shown(ctx, rows[0])[0].name in ("a.py", "1")
    assert bank.known(ctx) == {"login", "logout", "reboot"}
    assert any("2 files" in s and "__init__.py" in s for s in said)


def test_names_of_an_api_file(tmp_path):
    stub = tmp_path / "api.py"
    stub.write_text("class Device:\n    def ping(self): ...\nasync def boot(x): ...\n")
    assert re4.api_names(str(stub)) == ["Device", "ping", "boot"]
    with pytest.raises(UserError, match="cannot be read"):
        re4.api_names(str(tmp_path / "gone"))


@pytest.mark.parametrize("answer", [None, "", 4])
def test_rows_without_a_script_are_refused(answer):
    with pytest.raises(UserError, match="has no script"):
        re4.right_script(Task(id="t", answer=answer))


def test_bad_numbers_are_refused():
    with pytest.raises(UserError, match="re4: k and most"):
        re4.build(k=0)


def test_an_exam_is_a_mean():
    parts = {"calls": 1.0, "repeated": 0.0, "invented": 2.0, "case": 0.5, "reused": 0.0}
    made = [pl.Episode(reward=Reward(total=t, parts=parts), status="finished") for t in (1.0, 0.0)]
    assert re4.exam_numbers(made)["reward"] == 0.5 and re4.exam_numbers(made)["invented"] == 2
    assert re4.exam_numbers([]) == {}


def test_a_failed_episode_has_no_reward():
    episode = pl.Episode(status="error:chat")
    assert re4.ReuseCases()._judged(episode, GOLD, [], frozenset()).reward is None


def test_a_run_on_a_folder_of_cases_rewards_scripts_behind_them(tmp_path):
    (tmp_path / "bank").mkdir()
    (tmp_path / "bank" / "old.py").write_text('"""log in at the old hub"""\nopen()\nlogin()')
    rows = [{"prompt": f"log in at hub {i}", "answer": "open()\nlogin()"} for i in range(12)]
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(r) + "\n" for r in rows))
    words = {"cases": str(tmp_path / "bank"), "samples": 2, "exam": 2, "sft_steps": 1, "rl.schedule.prompts": 2}
    given = {"steps": 2, "model": "tiny-agent", "data": str(data), "max_tokens": 8, "quiet": True}
    run = pl.train("re4", out=tmp_path / "run", set=words | {"sft.schedule.prompts": 2}, evaluate=0, **given)
    logs = [json.loads(x) for f in run.folder.rglob("metrics.jsonl") for x in f.read_text().splitlines()]
    assert any(step.get("part/case") == 1.0 for step in logs)


def test_the_toy_has_one_script_a_topic_and_device():
    tasks = [DeviceTasks().task("train", i) for i in range(40)]
    by_topic = {}
    for t in tasks:
        device = t.prompt[0].content.split()[-1]
        by_topic.setdefault(t.meta["device_topic"], set()).add(t.answer.replace(device, "X"))
        assert DeviceTasks().check(f" {t.answer} ", t) == 1.0 and DeviceTasks().check("", t) == 0.0
    assert all(len(scripts) == 1 for scripts in by_topic.values()) and len(by_topic) > 8


def test_a_shown_demonstration_is_the_users_own():
    heard = []

    async def demonstrate(self, ctx, key, group):
        heard.append(group.task.meta["demonstration"])
        return group

    ctx, rows = context([("log in", "login()"), ("log out", "logout()")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pl.Demonstrate, "__call__", demonstrate)
        link = re4.ImitateCases(re4.CaseBank(retriever="words"))
        asyncio.run(link(ctx, (), Group(task=rows[0])))
        own = pl.Task(id="o", prompt=rows[0].prompt, answer="login()", meta={"demonstration": "login() # mine"})
        asyncio.run(link(ctx, (), Group(task=own)))
    assert heard == ["login()", "login() # mine"]

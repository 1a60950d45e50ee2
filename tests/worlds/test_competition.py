"""Competitions: what is paid, what the model's programs can and cannot see, and folders that are none."""

import asyncio
import os
from collections import Counter
from dataclasses import replace

import palaestra as pl
import pytest
from palaestra.errors import Fault, UserError
from palaestra.run.benches import bench_by_name
from palaestra.services.sandbox import Ran
from palaestra.types import Act, Message, Task
from palaestra.worlds import competition as module
from palaestra.worlds.competition import CompetitionWorld, read_competition_action
from palaestra.worlds.competition_files import competition_named, competitions_in
from palaestra.worlds.competition_tasks import CompetitionTasks, competition_task

from tests.recipes.objectives.helpers import near

SECRET = "zebra7315"
TOML = 'metric = "accuracy"\ntarget = "animal"\n'
TRAIN = "id,legs,animal\n" + "".join(f"{i},{2 + 2 * (i % 2)},{('hen', 'cow')[i % 2]}\n" for i in range(8))
TEST = "id,legs\n8,2\n9,4\n10,2\n11,4\n"
ANSWERS = f"id,animal\n8,hen\n9,cow\n10,hen\n11,{SECRET}\n"


@pytest.fixture
def folder(tmp_path):
    """A competition whose leaderboard is .9, .7, .5, .25 and the hidden board .75, .3."""
    home = tmp_path / "farm"
    for name, text in {
        "competition.toml": TOML,
        "description.md": "Which animal has these legs?",
        "public/train.csv": TRAIN,
        "public/test.csv": TEST,
        "public/sample_submission.csv": "id,animal\n8,hen\n",
        "private/answers.csv": ANSWERS,
        "leaderboard.csv": "team,score\na,0.9\nb,0.7\nc,0.5\nd,0.25\n",
        "private_leaderboard.csv": "Score\n0.75\n0.3\n",
        "solutions/legs.py": "print('legs')",
    }.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    return home


def program(*animals):
    """A message that submits these animals."""
    rows = "\\n".join(f"{i},{a}" for i, a in enumerate(animals, 8))
    return fenced(f"open('submission.csv', 'w').write('id,animal\\n{rows}\\n')")


def fenced(code, action="execute_code"):
    return f"{action}\n```python\n{code}\n```"


def played(world, folder, *texts):
    """The frame after these messages, and what each was paid."""
    task = competition_task(str(folder), "c", "train", 0)
    frame, paid = world.reset(task, ("k",)), []
    for text in texts:
        act = Act(ask=frame.asks[0], text=text, call=None, finish="eos", n_tokens=1)
        frame = asyncio.run(world.step(frame.state, (act,), ("k",)))
        paid.append(frame.pay.get(("policy", ""), 0.0))
    return frame, paid


def said(frame):
    return frame.asks[0].say[0].content


HALF, THREE = program("hen", "hen", "cow", "hen"), program("hen", "cow", "hen", "cow")


def test_the_rise_of_the_best_position_is_paid(folder):
    """By hand: 1 of 4 right beats .25 alone of four (.25) and neither of .75 and .3 (0): .125. 3 of 4 right
    beat .7, .5 and .25 (.75), and equal .75 (1): .875.
    """
    frame, paid = played(CompetitionWorld(), folder, HALF, THREE, HALF)
    assert paid == near([0.125, 0.75, 0])
    assert frame.facts["position"] == near(0.875) and frame.facts["first_position"] == near(0.125)
    assert frame.facts["graded"] == 3 and frame.facts["raw_score"] == 0.75
    assert said(frame) == "raw score 0.25 (best 0.75), position score 0.125 (best 0.875)"
    end, paid = played(CompetitionWorld(steps=2, pays="best"), folder, THREE, HALF)
    assert paid == near([0, 0.875]) and not end.asks and end.status == "finished"
    end, paid = played(CompetitionWorld(steps=2), folder, HALF, THREE)
    assert sum(paid) == near(0.875) and not end.asks


def test_improvements_add_up_to_the_best_as_in_the_catalogue(folder, monkeypatch):
    scores = iter([0.6, 0.2, 0.8])
    monkeypatch.setattr(module.Competition, "position", lambda self, raw: next(scores))
    _, paid = played(CompetitionWorld(), folder, HALF, THREE, HALF)
    assert paid == near([0.6, 0, 0.2])


def test_a_metric_of_which_less_is_better(folder):
    (folder / "competition.toml").write_text('metric = "rmse"\ntarget = "animal"\n')
    (folder / "private" / "answers.csv").write_text("id,animal\n8,1\n9,1\n10,1\n11,1\n")
    (folder / "private_leaderboard.csv").unlink()
    far, near_by = program(1.6, 1.6, 1.6, 1.6), program(1.4, 1.4, 1.4, 1.4)
    frame, paid = played(CompetitionWorld(), folder, near_by, far)  # rmse .4 beats .9, .7, .5; .6 beats .9, .7
    assert paid == near([0.75, 0]) and frame.facts["raw_score"] == near(0.4)


def test_what_is_not_graded_is_paid_nothing_and_said(folder):
    world = CompetitionWorld(told=True, steps=20)
    cases = {
        fenced("1/0"): "FAILED: ZeroDivisionError: division by zero (line 1)",
        fenced("import sklearn"): "there are Python's standard library and numpy",
        fenced("x = ("): "SyntaxError",
        fenced("open('no.csv')"): "lie in the working folder: sample_submission.csv, test.csv, train.csv",
        fenced(
            "print('hello')"
        ): "SubmissionNotFoundError: the program ran and wrote no submission.csv\noutput:\nhello",
        program("hen"): "InvalidSubmissionError: the submission has 1 ids",
        program("hen", "hen", "hen", "hen").replace("id,", "no,"): "needs the columns id, animal",
        fenced("open('submission.csv','w').write('id,animal\\n8,a\\n8,a\\n')"): "an id comes twice",
        fenced("open('submission.csv','w')"): "needs the columns",
        "I think the hen has two legs.": "ActionError: a message has one action",
        "execute_code": "CodeError",
        "request_info gossip": "InfoError: there is overview",
        THREE.replace("execute_code", "validate_code"): "VALID: the program ran, submission.csv was written",
        "<think>execute_code</think> get_history": "1. execute_code: error",
    }
    frame, paid = played(world, folder, *cases)
    assert paid == [0] * len(cases)
    for i, (text, answer) in enumerate(cases.items()):
        reply = said(played(world, folder, *list(cases)[: i + 1])[0])
        assert answer in reply, (text, reply)
        assert f"steps left: {19 - i}" in reply
    assert frame.facts["tool_malformed"] == 3 and frame.facts["tool_calls"] == 10
    log = Counter((tool, outcome) for _, tool, outcome in frame.facts["tool_log"])
    ran = {("validate_code", "result"): 1, ("execute_code", "error"): 9, ("", "malformed"): 3}
    assert log == ran  # a request and the history are no programs


def test_limits_are_typed_results(folder):
    (folder / "competition.toml").write_text(TOML + "seconds = 0.5\nmemory_mb = 128\n")
    frame, paid = played(CompetitionWorld(), folder, fenced("while True: pass"), fenced("x = bytearray(400 << 20)"))
    assert frame.state.steps[0].status == "timeout" and paid == [0, 0]
    assert "MemoryError" in said(frame)
    first, _ = played(CompetitionWorld(), folder, fenced("while True: pass"))
    assert "TimeoutError: the program ran longer than 0.5 s" in said(first)


SEARCH = """
import os, sys
secret, found = b"zebra" + b"7315", []
libraries = ("/proc", "/sys", "/dev", "/usr", "/lib", "/packages", sys.base_prefix)
for here, folders, names in os.walk("/"):
    folders[:] = [x for x in folders if not os.path.join(here, x).startswith(libraries)]
    for name in names:
        path = os.path.join(here, name)
        if name in ("answers.csv", "leaderboard.csv", "competition.toml", "legs.py"):
            found.append(path)
        elif os.path.isfile(path):
            found += [path] if secret in open(path, "rb").read() else []
print(sorted(os.listdir("/tmp")))
for name in ("answers.csv", "../private/answers.csv", HOME + "/private/answers.csv"):
    try:
        found.append(open(name).read())
    except OSError as error:
        print(type(error).__name__)
print("environment", secret.decode() in str(dict(os.environ)), "found", found)
"""


def test_hidden_answers_are_nowhere_in_the_reach_of_programs(folder):
    """Looking for them by name and by content finds nothing; nor do any of the actions tell them."""
    (folder / "solutions" / "legs.py").write_text(f"# {SECRET}")
    code = SEARCH.replace("HOME", repr(str(folder)))
    world = CompetitionWorld(told=True, steps=20, chars=4000)
    frame, _ = played(world, folder, fenced(code))
    assert said(frame).count("FileNotFoundError") == 3 and "environment False found []" in said(frame)
    assert "['main.py', 'sample_submission.csv', 'solution.py', 'test.csv', 'train.csv']" in said(frame)
    infos = [f"request_info {k}" for k in module.KINDS]
    for n in range(len(infos)):
        assert SECRET not in said(played(world, folder, *infos[: n + 1])[0])
    texts = (THREE, program("hen"), "get_history", "reset")
    for n in range(len(texts)):
        assert SECRET not in said(played(world, folder, *texts[: n + 1])[0])
    first = world.reset(competition_task(str(folder), "c", "train", 0), ("k",))
    assert SECRET not in str(first.asks) and "0.9" not in str(first.asks)


def test_a_link_out_of_the_public_folder_is_refused(folder):
    os.symlink(folder / "private" / "answers.csv", folder / "public" / "hint.csv")
    with pytest.raises(UserError, match=r"hint\.csv leads out of"):
        competition_named(str(folder))


def test_a_forged_mark_is_only_a_submission_of_ones_own(folder):
    """A program may print what it likes: it is graded as if it had written it, and an error is none."""
    forge = "import re\nmark = re.search(r'submission [0-9a-f]+', open('main.py').read())[0]\n"
    text = "print('\\n' + mark + '\\nid,animal\\n8,hen\\n9,hen\\n10,cow\\n11,hen')\n"
    _, paid = played(CompetitionWorld(), folder, fenced(forge + text))
    assert paid[0] <= 0.125 + 1e-9
    _, paid = played(CompetitionWorld(), folder, fenced(forge + text + "1/0"))
    assert paid == [0]


def test_a_reset_forgets_the_history_and_not_what_was_paid(folder):
    frame, paid = played(CompetitionWorld(), folder, THREE, "reset", HALF, THREE, "get_history")
    assert paid == near([0.875, 0, 0, 0, 0])
    assert said(frame).splitlines()[0].startswith("1. execute_code: graded, raw 0.25")
    assert frame.facts["position"] == near(0.875)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("execute_code\n```python\nx\n```", ("execute_code", "", "x\n")),
        ("Action: validate_code\n```\nx\n```\nthen\n```python\ny\n```", ("validate_code", "", "x\n")),
        ("**request_info**: overview", ("request_info", "overview", "")),
        ("request_info(data_structure)", ("request_info", "data_structure", "")),
        ('{"action": "get_history"}', ("get_history", "", "")),
        ("get_history()", ("get_history", "", "")),
        ("```python\nx\n```", ("execute_code", "", "x\n")),
        ("```python\nreset\n```\nget_history", ("get_history", "", "")),
        ("I would reset later", ("", "", "")),
        ("<think>\nreset\n</think>\nget_history\nreset", ("get_history", "", "")),
        ("<think>\nreset", ("", "", "")),
        ("", ("", "", "")),
    ],
)
def test_actions_are_read(text, read):
    got = read_competition_action(text)
    assert (got[0], got[1] if got[0] == "request_info" else "", got[2]) == read


def test_a_program_is_run_once_on_the_same_data(folder, monkeypatch):
    ran = []
    original = module.run_program
    monkeypatch.setattr(module, "run_program", lambda *a, **k: ran.append(1) or original(*a, **k))
    code = program("hen", "hen", "hen", "cow")
    played(CompetitionWorld(), folder, code, code, code.replace("execute", "validate"))
    assert len(ran) == 1
    (folder / "public" / "test.csv").write_text(TEST.replace("11,4", "11,6"))
    played(CompetitionWorld(), folder, code)
    assert len(ran) == 2


def test_a_sandbox_that_fails_is_no_zero(folder, monkeypatch):
    monkeypatch.setattr(module, "run_program", lambda *a, **k: Ran(status="refused", stderr="no namespaces"))
    with pytest.raises(Fault, match="no namespaces"):
        played(CompetitionWorld(), folder, fenced("print(31)"))


def test_baseline_models_make_a_leaderboard(folder):
    """By hand: the nearest row says hen, cow, hen, cow, 3 of 4; the mean always says one of both."""
    for name in ("leaderboard.csv", "private_leaderboard.csv"):
        (folder / name).unlink()
    (board,) = competition_named(str(folder)).boards
    assert len(board) == len(pl.toys.kit.MODELS) and max(board) == 0.75 and min(board) <= 0.5
    (folder / "public" / "train.csv").write_text("id,legs\n1,2\n")
    with pytest.raises(UserError, match="has no column 'animal'"):
        competition_named(str(folder))
    (folder / "public" / "train.csv").unlink()
    with pytest.raises(UserError, match=r"farm has no leaderboard\.csv"):
        competition_named(str(folder))


def test_a_metric_of_ones_own(folder):
    (folder / "metric.py").write_text(
        "def share(given, answers):\n    return sum(map(str.__eq__, given, answers)) / 8\n"
    )
    (folder / "competition.toml").write_text('metric = "metric.py:share"\ntarget = "animal"\nhigher = true\n')
    frame, _ = played(CompetitionWorld(), folder, THREE)
    assert frame.facts["raw_score"] == 3 / 8
    (folder / "other.py").write_text("def share(given, answers):\n    return 1 / 0\n")
    (folder / "competition.toml").write_text('metric = "other.py:share"\ntarget = "animal"\nhigher = false\n')
    with pytest.raises(UserError, match=r"other\.py.*ZeroDivisionError"):
        played(CompetitionWorld(), folder, THREE)


@pytest.mark.parametrize(
    ("file", "text", "wrong"),
    [
        ("competition.toml", "metric = ", "competition.toml"),
        ("competition.toml", 'metric = "gini"\ntarget = "animal"\n', "metric is accuracy"),
        ("competition.toml", 'metric = "accuracy"\n', "needs target"),
        ("competition.toml", TOML + "colour = 1\n", "colour is no setting"),
        ("private/answers.csv", "id,beast\n1,hen\n", "needs the columns id, animal"),
        ("private/answers.csv", "", "needs the columns id, animal"),
        ("leaderboard.csv", "team\na\n", "needs a column score"),
        ("leaderboard.csv", "score\nhigh\n", "needs a column score"),
        ("description.md", None, r"has no description\.md"),
        ("private/answers.csv", None, r"answers\.csv"),
    ],
)
def test_folders_that_are_no_competition(folder, file, text, wrong):
    if text is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(text)
    with pytest.raises(UserError, match=wrong):
        competition_named(str(folder))


def test_several_competitions_and_what_is_held_out(folder, tmp_path):
    assert competitions_in(str(folder)) == (str(folder),) == competitions_in(str(tmp_path))
    with pytest.raises(UserError, match="no competition; one is a folder with"):
        competitions_in(str(folder / "public"))
    names = tuple(f"/c/{i}" for i in range(16))
    tasks = CompetitionTasks(names, held_out=2)
    train, test = tasks.of("train"), tasks.of("test")
    assert tasks.test_size == 2 and CompetitionTasks(names).test_size == 16  # each is measured once
    assert len(test) == 2 and len(train) == 14 and not {*train} & {*test}
    assert not tasks.caveat and "trained on" in CompetitionTasks(names).caveat
    with pytest.raises(UserError, match="held_out is from 0 to 0"):
        CompetitionTasks(names[:1], held_out=1)


def test_the_oracle_of_the_built_in_ones_is_at_the_top_and_others_are_shown():
    bench = bench_by_name("competitions")[0]
    for index in range(2):
        task = bench.tasks.task("test", index)
        frame = bench.world.reset(task, ("k",))
        act = Act(ask=frame.asks[0], text=bench.world.oracle(frame.state), call=None, finish="eos", n_tokens=1)
        assert asyncio.run(bench.world.step(frame.state, (act,), ("k",))).pay == {("policy", ""): 1.0}
    each = replace(bench.world, worked="any")
    frames = [each.reset(bench.tasks.task("train", i), ("k",)) for i in range(30)]
    assert len({each.oracle(f.state) for f in frames}) == 6


def test_what_is_known_of_a_solution_is_what_the_sandbox_gives(monkeypatch):
    """Without a run, and with a blank line more, which is run."""
    bench = bench_by_name("competitions")[0]
    task = bench.tasks.task("train", 4)
    c = bench.world.competition(task)
    assert len(c.known) == len(c.solutions) == 6
    for code in (c.solutions[0], c.solutions[-1]):
        known, ran = (asyncio.run(bench.world._outcome(c, text)) for text in (code, f"x = 1\n\n{code}"))
        assert known[1] == ran[1].replace("\r\n", "\n") and known[0].stdout == ran[0].stdout.strip()
    assert c.position(c.grade(c.known[c.solutions[0]][1])[0]) == 1


def test_what_is_no_world(folder):
    with pytest.raises(UserError, match="pays is improvement or best, not 'all'"):
        CompetitionWorld(pays="all")
    with pytest.raises(UserError, match="has no programs to show"):
        (folder / "solutions" / "legs.py").unlink()
        world = CompetitionWorld(worked="first")
        world.oracle(world.reset(competition_task(str(folder), "c", "train", 0), ("k",)).state)
    with pytest.raises(UserError, match="has no competition"):
        CompetitionWorld().reset(Task(id="t", prompt=(Message(role="user", content="x"),)), ("k",))

"""Users' own files: each has the modules beside it, in this process and in those that it spawns."""

import asyncio
import os
import subprocess
import sys

import pytest
from palaestra.errors import UserError
from palaestra.identity import name_of, path_of_user_module, user_module_name
from palaestra.rewards.user import UserReward
from palaestra.tasks.columns import called
from palaestra.tasks.oracle import episode_saying
from palaestra.tasks.user_code import load, module_of, own_data, with_own_data
from palaestra.types import Group, Message, Task
from palaestra.worlds.user import UserWorld

TASK = Task(id="t", prompt=(Message(role="user", content="3 + 4?"),), answer="7")


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Writes files below a folder, by their paths."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)

    def write(**texts):
        for path, text in texts.items():
            file = tmp_path / (f"{path}.py")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return tmp_path

    yield write
    for name in set(sys.modules) - before:
        if name.startswith("palaestra_user_files.") or sys.modules[name].__name__.startswith("palaestra_user_files."):
            del sys.modules[name]


IMPORTS = {  # how a file takes GAIN from what lies beside it; the file that has it
    "a name": ("from helper import GAIN", "helper"),
    "a module": ("import helper\nGAIN = helper.GAIN", "helper"),
    "a folder": ("from lib.inner import GAIN", "lib/inner"),
    "a folder's module": ("import lib.inner as x\nGAIN = x.GAIN", "lib/inner"),
    "a module of a folder": ("from lib import inner\nGAIN = inner.GAIN", "lib/inner"),
    "all": ("from helper import *", "helper"),
    "a standard name": ("from statistics import GAIN", "statistics"),
    "an installed name": ("from numpy_helper_of_tests import GAIN", "numpy_helper_of_tests"),
    "an installed package": ("from yaml import GAIN", "yaml"),
}


@pytest.mark.parametrize("late", [False, True], ids=["at the top", "in the function"])
@pytest.mark.parametrize("name", IMPORTS)
def test_files_of_two_folders_have_their_own_helpers(files, name, late):
    line, home = IMPORTS[name]
    if late and "*" in line:
        pytest.skip("no statement of a function")
    body = line.replace("\n", "\n    ")
    text = f"def get():\n    {body}\n    return GAIN" if late else f"{line}\ndef get(): return GAIN"
    folder = files(
        **{f"{f}/{n}": t for f, g in (("ra", 1), ("rb", -5)) for n, t in (("own", text), (home, f"GAIN = {g}"))}
    )
    gains = [load(f"{folder}/{f}/own.py:get", "function")() for f in ("ra", "rb", "ra")]
    assert gains == [1, -5, 1]


def test_a_package_imports_itself_by_its_name_and_from_within(files):
    texts = {
        "lib/__init__": "from lib.a import A\nfrom . import b",
        "lib/a": "A = {}",
        "lib/b": "from .a import A\nB = A",
    }
    folder = files(**{f"{f}/{n}": t.format(i) for i, f in enumerate(("ra", "rb"), 1) for n, t in texts.items()},
                   **dict.fromkeys(("ra/own", "rb/own"), "import lib\nGAIN = lib.b.B"))  # fmt: skip
    assert [module_of(f"{folder}/{f}/own.py").GAIN for f in ("ra", "rb")] == [1, 2]


def test_other_modules_keep_theirs(files):
    """A helper of a standard name is that of its folder alone; a file of an installed name may import the installed one."""
    folder = files(
        **{
            "ra/statistics": "GAIN = 1",
            "ra/own": "import statistics\nGAIN = statistics.GAIN",
            "rb/yaml": "import yaml\nload = yaml.safe_load",
        }
    )
    assert module_of(f"{folder}/ra/own.py").GAIN == 1
    import statistics

    assert statistics.mean([1, 3]) == 2 and module_of(f"{folder}/rb/yaml.py").load("a: 1") == {"a": 1}


def test_data_folders_do_not_hide_installed_packages(files):
    folder = files(**{"ra/yaml/data": "x = 1", "ra/own": "from yaml import safe_load"})
    assert callable(module_of(f"{folder}/ra/own.py").safe_load)


def test_a_helper_is_one_module_however_it_is_asked_for(files):
    text = "import importlib\nimport helper\nSAME = importlib.import_module('helper') is helper"
    folder = files(**{"ra/helper": "class Of: pass", "ra/own": text})
    own = module_of(f"{folder}/ra/own.py")
    assert own.SAME and own.helper is module_of(f"{folder}/ra/helper.py") and name_of(own.helper.Of) == "helper:Of"


@pytest.mark.parametrize("line", ["import helper.nothing", "import nothing_at_all"])
def test_a_missing_module_is_named_as_the_file_names_it(files, line):
    folder = files(**{"ra/helper": "", "ra/own": line})
    with pytest.raises(UserError, match=rf"own\.py:1: ModuleNotFoundError: No module named '{line[7:]}'"):
        module_of(f"{folder}/ra/own.py")


def test_a_file_of_the_same_length_and_second_is_read_anew(files):
    """Python's own cache of compiled files would run the text of before."""
    for gain in (1, 2):
        place = files(a="from helper import GAIN", helper=f"GAIN = {gain}")
        os.utime(place / "helper.py", (1e9, 1e9))
        code = f"from palaestra.tasks.user_code import module_of; print(module_of({str(place / 'a.py')!r}).GAIN)"
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        told = subprocess.check_output([sys.executable, "-c", code], text=True, env=environment)
        assert told == f"{gain}\n"


@pytest.mark.parametrize("path", ["/a/b.c d/my.reward-v2.py", "/ä/package/__init__.py"])
def test_the_name_of_a_module_holds_its_path(path):
    name = user_module_name(path)
    assert path_of_user_module(name) == path == path_of_user_module(f"{name}.inner") and name.count(".") == 1


@pytest.mark.parametrize("how", ["spawn", "forkserver"])
def test_processes_of_a_reward_import_its_file(files, how):
    """Pools of both kinds; what they call stands in the file, or in one beside it."""
    text = (
        "import multiprocessing as mp\nfrom concurrent.futures import ProcessPoolExecutor\nfrom helper import right\n"
        f"HOW = mp.get_context('{how}')\n"
        "def half(pair): return right(pair) / 2\n"
        "def score(responses, answers):\n"
        "    pairs = list(zip(responses, answers))\n"
        "    with ProcessPoolExecutor(1, mp_context=HOW) as pool: first = list(pool.map(half, pairs))\n"
        "    with HOW.Pool(1) as pool: return [a + b for a, b in zip(first, pool.map(right, pairs))]\n"
    )
    folder = files(**{"ra/own": text, "ra/helper": "def right(pair): return float(pair[0] == pair[1])"})
    program = (
        "import asyncio\nfrom palaestra.rewards.user import UserReward\nfrom palaestra.tasks.oracle import episode_saying\n"
        "from palaestra.types import Group, Task\n"
        "if __name__ == '__main__':\n"
        "    group = Group(task=Task(id='t', answer='7'), episodes=tuple(map(episode_saying, '78')))\n"
        f"    print([r.total for r in asyncio.run(UserReward('{folder}/ra/own.py:score', timeout=60.0)(None, group))])\n"
    )
    (folder / "program.py").write_text(program)
    ran = subprocess.run([sys.executable, folder / "program.py"], capture_output=True, text=True, timeout=90)
    assert ran.stdout == "[1.5, 0.0]\n", ran.stderr


# ---- records belong to one attempt

TAKES = "    failed = 0\n    while {0}: failed += {0}.pop() not in {1}\n    return float(not failed)"
TAKERS = {
    "an answer": "def f(response, answer, checks):\n" + TAKES.format("checks", "response"),
    "a batch": "def f(completions, checks, **kwargs):\n    return [one(c, text) for c, text in zip(checks, completions)]\n"
    "def one(checks, text):\n" + TAKES.format("checks", "text"),
    "verl's": "def f(data_source, solution_str, ground_truth, extra_info):\n"
    + TAKES.format("extra_info['checks']", "solution_str"),
    "verifiers'": "def f(completion, state):\n" + TAKES.format("state['info']['checks']", "completion[0]['content']"),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKERS)
def test_what_a_reward_changes_is_its_attempts_own(files, name):
    """No answer holds the checks, which each call takes out of its list: all are wrong."""
    folder = files(**{"ra/own": TAKERS[name]})
    checks = ["never there", "nor this"]
    task = Task(
        id="t", answer="7", meta={"checks": checks, "extra_info": {"checks": [*checks]}, "info": {"checks": [*checks]}}
    )
    group = Group(task=task, episodes=tuple(map(episode_saying, "abcd")))
    for _ in range(2):
        assert [r.total for r in asyncio.run(UserReward(f"{folder}/ra/own.py:f")(None, group))] == [0.0] * 4
    assert task.meta["checks"] == ["never there", "nor this"]


def test_counts_in_a_state_start_anew_for_each_answer():
    def count(completion, state):
        state["info"]["n"] = state["info"].get("n", 0) + 1
        return state["info"]["n"]

    group = Group(task=Task(id="t", meta={"info": {}}), episodes=tuple(map(episode_saying, "abc")))
    assert [r.total for r in asyncio.run(UserReward(count)(None, group))] == [1.0] * 3


def test_worlds_and_columns_get_records_of_their_own(files):
    text = (
        "import palaestra as pl\n"
        "class W:\n    seats = ('policy',)\n    def step(self, state, acts, key): return pl.Frame(state=state)\n"
        "    def reset(self, task, key): return pl.Frame(state=task.meta['steps'].pop())\n"
        "def row(r): return {'prompt': r['steps'].pop()}\n"
    )
    spec, steps = str(files(**{"ra/own": text}) / "ra/own.py"), ["a", "b"]
    task = Task(id="t", meta={"steps": steps})
    assert [asyncio.run(UserWorld(f"{spec}:W").reset(task, ())).state for _ in "12"] == ["b", "b"]
    assert called(f"{spec}:row", {"steps": steps}, "")["prompt"] == "b" and steps == ["a", "b"]


def test_what_nobody_can_change_is_not_copied():
    assert with_own_data(TASK) is TASK
    plain, lock = Task(id="t", meta={"text": "x" * 9, "list": [1]}), object()
    copied = with_own_data(plain)
    assert copied == plain and copied.meta["list"] is not plain.meta["list"]
    assert own_data(lock) is not None and own_data(module := sys) is module

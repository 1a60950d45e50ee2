"""A run that goes on says what has changed, and goes on with other files only if that is accepted; files that somebody
else named are said before they run."""

import json
import shutil
import sys
from pathlib import Path

import palaestra as pl
import pytest
from palaestra import values
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.run import origin
from palaestra.tasks import files

OLDER = Path(__file__).parents[1] / "fixtures" / "older_run"
REWARD = """import helper


def score(responses, answers, **fields):
    return [helper.pay(a in r) for r, a in zip(responses, answers)]
"""
HELPER = "def pay(right):\n    return float(right)\n"
RECIPE = "import palaestra as pl\n\n\ndef build():\n    return pl.vary(pl.recipe('grpo'), objective=pl.Clipped(high={high}))\n"
TINY = ["--steps", "1", "--evaluate", "0", "--max-tokens", "4", "schedule.prompts=2", "collect.links.0.n=2"]
GO_ON = ["train", "--resume", "run", "--steps", "2"]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A folder with data, a reward that imports another file, and a recipe."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    sums = [{"prompt": f"{a}+{b}", "answer": str((a + b) % 10)} for a in range(4) for b in range(5)]
    (tmp_path / "problems.jsonl").write_text("\n".join(map(json.dumps, sums)))
    (tmp_path / "reward.py").write_text(REWARD)
    (tmp_path / "helper.py").write_text(HELPER)
    (tmp_path / "mine.py").write_text(RECIPE.format(high=0.3))
    yield tmp_path
    forget_modules()


def forget_modules():
    """As in another process."""
    for name in [n for n in sys.modules if n.startswith("palaestra_user_") or n == "helper"]:
        del sys.modules[name]
    files.load.cache_clear()


def begin(*argv, recipe="grpo"):
    assert (
        main(["train", recipe, "--data", "problems.jsonl", "--reward", "reward.py:score", *TINY, *argv, "--out", "run"])
        == 0
    )
    forget_modules()


def changed(err):
    return [line.removeprefix("changed: ") for line in err.splitlines() if line.startswith("changed: ")]


def test_more_steps_and_another_rate_are_said_and_nothing_else_is(capsys):
    begin()
    capsys.readouterr()
    assert main([*GO_ON, "optimiser.lr=3e-5"]) == 0
    told = capsys.readouterr().err
    assert changed(told) == ["steps 1 -> 2", "learners.policy.optimiser.lr 0.0001 -> 3e-05"]
    assert main(["train", "--resume", "run", "--steps", "3"]) == 0
    assert changed(capsys.readouterr().err) == ["steps 2 -> 3"]


@pytest.mark.parametrize(
    ("folder", "argv"),
    [
        ("grpo", ["--task", "chain"]),
        ("chain", ["--task", "chain"]),
        ("exact", ["--data", "problems.jsonl", "--reward", "exact"]),
    ],
)
def test_a_run_whose_folder_has_the_name_of_its_method_task_or_verifier_goes_on(capsys, folder, argv):
    """The name is not taken for a file because a folder is called so."""
    assert main(["train", "grpo", *argv, *TINY, "--out", folder]) == 0
    assert not any(
        json.loads(Path(folder, "origin.json").read_text())["files"][x] for x in ("recipe", "task", "reward")
    )
    assert main(["train", "--resume", folder, "--steps", "2"]) == 0, capsys.readouterr().err


def test_a_setting_that_was_not_given_is_said_to_be_not_set(capsys):
    begin()
    assert main([*GO_ON, "--optim", "adamw_8bit"]) == 2
    said = capsys.readouterr().err
    assert "its optim is not set and stays so; for adamw_8bit start a new run" in said
    assert "palaestra train @run/config.toml --optim adamw_8bit" in said
    assert main([*GO_ON, "--lora", "8"]) == 2
    assert "its lora is 0 and stays so; for 8 start a new run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("reward.py", "reward.py (reward)"),
        ("helper.py", "helper.py (reward)"),
        ("problems.jsonl", "problems.jsonl (data)"),
        ("mine.py", "mine.py (recipe)"),
    ],
)
def test_a_file_that_has_changed_stops_a_run_unless_that_is_accepted(place, file, says, capsys):
    begin(recipe="mine.py")
    before = (place / "run" / "config.toml").read_bytes()
    (place / file).write_text((place / file).read_text() + "\n")
    capsys.readouterr()
    assert main(GO_ON) == 2
    told = capsys.readouterr().err.splitlines()
    assert told[-1].startswith(f"palaestra: --resume run: changed since the run was there: {says}; ")
    assert "--accept-changes" in told[-1] and (place / "run" / "config.toml").read_bytes() == before
    assert main([*GO_ON, "--accept-changes"]) == 0
    assert says in changed(capsys.readouterr().err)
    forget_modules()
    assert main(["train", "--resume", "run", "--steps", "3"]) == 0
    assert changed(capsys.readouterr().err) == ["steps 2 -> 3"]


def test_files_of_a_pattern_are_watched_each_by_itself(place, capsys):
    """One that has changed, and one that begins to fit."""
    shutil.copy("problems.jsonl", "problems-2.jsonl")
    begin("--data", "problems*.jsonl")
    (place / "problems-2.jsonl").write_text((place / "problems-2.jsonl").read_text() + "\n")
    shutil.copy("problems.jsonl", "problems-3.jsonl")
    capsys.readouterr()
    assert main(GO_ON) == 2
    told = capsys.readouterr().err
    assert "changed since the run was there: problems-2.jsonl (data), problems-3.jsonl is new (data);" in told


def test_files_that_a_file_imports_are_found_from_where_they_are_named(place):
    """In turn, from a package, and relative to the file that names them; of others nothing is seen."""
    for name in ("pkg/__init__", "pkg/one", "pkg/two", "pkg/three", "pkg/deep/__init__", "pkg/deep/four", "three"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / f"{name}.py").touch()
    (place / "first.py").write_text("import json\nfrom pkg import two\n")
    (place / "pkg" / "two.py").write_text("from . import three\nfrom .deep import four\n")
    (place / "pkg" / "deep" / "four.py").write_text("from .. import one\nimport helper\n")
    assert [str(p.relative_to(place)) for p in origin.imported(place / "first.py")] == [
        "helper.py", "pkg/__init__.py", "pkg/deep/__init__.py", "pkg/deep/four.py", "pkg/one.py", "pkg/three.py",
        "pkg/two.py",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "given",
    ["reward.py:score", ("python", "reward.py:score"), {"a": ["reward.py:score"]}, "tags*0.1+reward.py:score*2"],
    ids=str,
)
def test_files_are_found_in_every_kind_of_value(given):
    assert list(origin.digests(given)) == ["reward.py", "helper.py"]


def test_every_file_of_a_sum_is_found():
    assert list(origin.digests("helper.py:pay+mine.py:build*2")) == ["helper.py", "mine.py"]


def test_a_folder_is_another_where_a_file_in_it_has_another_name(place):
    (place / "folder").mkdir()
    (place / "folder" / "a.jsonl").write_text("{}")
    before = origin.digests("folder")
    (place / "folder" / "a.jsonl").rename(place / "folder" / "b.jsonl")
    assert before.keys() == origin.digests("folder").keys() and before != origin.digests("folder")


def test_what_a_recipe_said_by_itself_does_not_last(place):
    origin.Provenance(files={}, fields={"a": 1, "b": 1, "n": 1}, parts={}).write(place)
    stored = {"a": 1, "b": 2, "c": 3, "n": 1}
    assert origin.lasting_fields(place, stored, takes={"n": 0}) == {"b": 2, "c": 3, "n": 1}


def test_a_part_that_is_added_is_another_recipe(place):
    recipe = pl.recipe("grpo")
    parts = origin.classes(recipe)
    origin.Provenance(files={}, fields={}, parts=parts).write(place)
    origin.check_parts(place, recipe, accept=False)
    fewer = {k: x for k, x in parts.items() if k != max(parts)}
    origin.Provenance(files={}, fields={}, parts=fewer).write(place)
    with pytest.raises(UserError, match=rf"the recipe of this run has nothing as {max(parts)}, and the one"):
        origin.check_parts(place, recipe, accept=False)


def test_a_file_that_changed_is_not_executed_before_that_is_accepted(place):
    begin(recipe="mine.py")
    for file in ("mine.py", "reward.py", "helper.py"):
        (place / file).write_text(f"open('executed', 'w').close()\n{(place / file).read_text()}")
    assert main([*GO_ON, "objective.high=0.4"]) == 2
    assert not (place / "executed").exists()


def test_other_data_that_are_given_need_no_further_word(place, capsys):
    begin()
    shutil.copy("problems.jsonl", "others.jsonl")
    (place / "problems.jsonl").unlink()
    assert main([*GO_ON, "--data", "others.jsonl"]) == 0
    assert "data problems.jsonl -> others.jsonl" in changed(capsys.readouterr().err)


def test_a_helper_that_is_added_or_gone_is_a_change(place, capsys):
    begin()
    (place / "reward.py").write_text(f"import third\n{REWARD}")
    (place / "third.py").write_text("")
    (place / "helper.py").unlink()
    assert main(GO_ON) == 2
    told = capsys.readouterr().err
    assert "helper.py is gone (reward), reward.py (reward), third.py is new (reward)" in told


def test_a_recipe_file_that_changed_is_what_goes_on_and_what_was_set_lasts(place, capsys):
    begin("objective.low=0.15", recipe="mine.py")
    (place / "mine.py").write_text(RECIPE.format(high=0.4))
    assert main([*GO_ON, "--accept-changes"]) == 0
    assert set(changed(capsys.readouterr().err)) == {
        "steps 1 -> 2", "learners.policy.objective.high 0.3 -> 0.4", "mine.py (recipe)",
    }  # fmt: skip
    assert pl.open("run").config["set"]["learners.policy.objective.low"] == 0.15


def test_files_that_are_imported_are_found_whatever_the_form(place):
    (place / "pack").mkdir()
    texts = {
        "a.py": "import os, b\nfrom pack import c\nimport pack.e\n\ndef f():\n    import d\n",
        "b.py": "import a\n",
        "d.py": "(",
        "unused.py": "",
        "pack/__init__.py": "",
        "pack/c.py": "from . import g\nfrom .h import x\n",
        "pack/e.py": "from .. import unused_above\n",
        "pack/g.py": "",
        "pack/h.py": "x = 1\n",
    }
    for name, text in texts.items():
        (place / name).write_text(text)
    found = {str(p.relative_to(place)) for p in origin.imported(place / "a.py")}
    assert found == texts.keys() - {"a.py", "unused.py"}


def test_data_in_a_folder_are_told_apart_by_what_is_in_them(place):
    (place / "d" / "e").mkdir(parents=True)
    (place / "d" / "e" / "x.json").write_text("1")
    first = origin.digests("d")
    (place / "d" / "e" / "x.json").rename(place / "d" / "e" / "y.json")
    second = origin.digests("d")
    assert first.keys() == second.keys() == {"d"} and first != second and origin.digests("no/such") == {}


def test_a_run_of_before_goes_on_and_says_that_it_does_not_know(place, capsys):
    shutil.copytree(OLDER, place / "older")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place / "older")
        assert main(["train", "--resume", "run", "--steps", "3", "--trust"]) == 0
        told = capsys.readouterr().err
        assert "note: run does not know what its files were" in told and changed(told) == ["steps 2 -> 3"]
        (place / "older" / "reward.py").write_text((place / "older" / "reward.py").read_text() + "\n")
        assert main(["train", "--resume", "run", "--steps", "4"]) == 2
    assert "reward.py (reward)" in capsys.readouterr().err


def test_a_record_that_cannot_be_read_is_said(place, capsys):
    begin()
    (place / "run" / "origin.json").write_text("{")
    assert main(GO_ON) == 2
    assert "origin.json cannot be read; remove it" in capsys.readouterr().err


# ---- recipes that are values


def value(high=0.3, **changes):
    return pl.vary(pl.recipe("grpo"), objective=pl.Clipped(high=high), **changes)


def test_a_value_may_differ_in_numbers_and_what_was_set_lasts(capsys):
    asked = {"evaluate": 0, "max_tokens": 4}
    small = {"schedule.prompts": 2, "collect.links.0.n": 2, "objective.low": 0.15}
    pl.train(value(), steps=1, out="run", set=small, **asked)
    capsys.readouterr()
    run = pl.train(value(0.4, optimiser=pl.AdamW(lr=1e-5)), resume="run", steps=2)
    assert set(changed(capsys.readouterr().err)) == {
        "steps 1 -> 2", "learners.policy.objective.high 0.3 -> 0.4", "learners.policy.optimiser.lr 0.0001 -> 1e-05",
    }  # fmt: skip
    fields = run.config["set"]
    assert (fields["learners.policy.objective.high"], fields["learners.policy.objective.low"]) == (0.4, 0.15)
    assert fields["learners.policy.optimiser.lr"] == 1e-5 and fields["schedule.prompts"] == 2
    again = pl.train(value(0.4), resume="run", steps=3, set={"optimiser.lr": 2e-5})
    assert again.config["set"]["learners.policy.optimiser.lr"] == 2e-5


def test_another_value_is_refused_by_what_differs(capsys):
    pl.train(value(), steps=1, out="run", smoke=True, quiet=True)
    other = pl.vary(value(), objective=pl.Clipped() + 0.1 * pl.Entropy())
    with pytest.raises(UserError, match=r"has Clipped as learners.policy.objective, and the one that is given has Sum"):
        pl.train(other, resume="run", steps=3)
    assert pl.train(other, resume="run", steps=3, accept_changes=True, quiet=True).summary["steps"] == 3


def test_a_value_over_a_name_and_a_name_over_a_value_are_refused(capsys):
    pl.train("grpo", steps=1, out="named", smoke=True, quiet=True)
    with pytest.raises(UserError, match="its recipe is grpo, by its name, and stays so; go on without a recipe"):
        pl.train(value(), resume="named", steps=3)
    pl.train(value(), steps=1, out="valued", smoke=True, quiet=True)
    assert main(["train", "--resume", "valued", "--steps", "3"]) == 2
    assert "go on with palaestra.train(recipe, resume=...)" in capsys.readouterr().err


def test_other_learners_are_refused_in_one_line(place, capsys):
    begin(recipe="mine.py")
    (place / "mine.py").write_text("import palaestra as pl\n\n\ndef build():\n    return pl.recipe('ppo')\n")
    (place / "mine.py").write_text(
        "import palaestra as pl\n\n\ndef build():\n    (one,) = pl.recipe('grpo').learners.values()\n"
        "    return pl.vary(pl.recipe('grpo'), learners={'policy': one, 'second': one})\n"
    )
    assert main([*GO_ON, "--accept-changes"]) == 2
    assert "with the learners policy, and this one has policy, second" in capsys.readouterr().err


# ---- files that somebody else named


@pytest.mark.parametrize("verb", ["train", "eval"])
def test_a_file_of_settings_says_what_runs_before_it_runs(place, verb, capsys):
    (place / "theirs.toml").write_text('recipe = "mine.py"\ndata = "problems.jsonl"\nreward = "reward.py:score"\n')
    (place / "helper.py").write_text(f"import sys\nprint('executed', file=sys.stderr)\n{HELPER}")
    more = ["--smoke", "--out", "run"] if verb == "train" else ["--n", "2", "--k", "1"]
    assert main([verb, "@theirs.toml", "--trust", *more]) == 0
    told = capsys.readouterr().err.splitlines()
    note = "note: theirs.toml names Python files, which this executes: mine.py, reward.py, helper.py"
    assert told.index(note) < told.index("executed")


def test_servers_of_tools_are_said_before_they_start(place, capsys):
    tools = ["tools.py:add", "mcp:nosuch --port 1", "mcp:https://127.0.0.1/x"]
    (place / "theirs.toml").write_text(f"data = 'problems.jsonl'\ntools = {tools}\n")
    (place / "tools.py").write_text("def add(a: int, b: int) -> int:\n    'The sum.'\n    return a + b\n")
    assert main(["train", "@theirs.toml", "--smoke", "--trust"]) == 2
    files, server, refusal = capsys.readouterr().err.splitlines()
    assert files == "note: theirs.toml names Python files, which this executes: tools.py"
    assert server == "note: theirs.toml names servers of tools, which this starts: nosuch --port 1"
    assert "nosuch" in refusal


def test_a_file_of_tools_that_changed_is_noticed(place, capsys):
    (place / "tools.py").write_text("def add(a: int, b: int) -> int:\n    'The sum.'\n    return a + b\n")
    begin("--tools", "tools.py:add")
    (place / "tools.py").write_text("def add(a: int, b: int) -> int:\n    'The sum.'\n    return a - b\n")
    assert main(GO_ON) == 2
    assert "changed since the run was there: tools.py (tools)" in capsys.readouterr().err
    assert main([*GO_ON, "--accept-changes"]) == 0


def test_a_run_folder_says_what_runs(place, capsys):
    begin()
    assert "names Python files" not in capsys.readouterr().err  # they stood on the command line
    note = "note: run/config.toml names Python files, which this executes: reward.py, helper.py"
    assert main(GO_ON) == 0
    assert note in capsys.readouterr().err
    assert main(["explain", "rloo", "--rollouts", "run"]) == 0
    assert note in capsys.readouterr().err
    pl.evaluate(pl.open("run"), n=2, k=1)
    assert note in capsys.readouterr().err
    begun_without_code = ["train", "--smoke", "--out", "plain"]
    assert main(begun_without_code) == 0 and main(["train", "--resume", "plain", "--steps", "3"]) == 0
    assert "names Python files" not in capsys.readouterr().err


def changed_between(first, second, **more):
    """The lines of a run with one recipe that goes on with another. `more`: texts among its stored fields."""
    leaves = {k: values.file_form(x) for k, x in values.flatten(first).items()}
    before = origin.Provenance(files={}, fields={}, parts=origin.classes(first))
    return [x.removeprefix("changed: ") for x in origin.changed_fields(leaves | more, second, before)]


RATES = {
    "0.0001": "0.0001",
    "linear(1e-4, 0, 10)": "Linear(0.0001, 0.0, 10)",
    "cosine(1e-4, 0, 10)": "Cosine(0.0001, 0.0, 10)",
    "sigmoid(1, 0, 7, 3)": "Sigmoid(1.0, 0.0, 7.0, width=3.0)",
}


@pytest.mark.parametrize("first", RATES)
@pytest.mark.parametrize("second", RATES)
def test_another_rate_is_one_line(first, second):
    """Numbers and schedules take each other's place; the folder keeps a schedule as its text, beside its numbers."""
    path = "learners.policy.optimiser.lr"
    one, two = (values.override(pl.recipe("grpo"), "optimiser.lr", x) for x in (first, second))
    lines = changed_between(one, two, **{path: first} if "(" in first else {})
    assert lines == ([] if first == second else [f"{path} {RATES[first]} -> {RATES[second]}"])


def test_a_schedule_of_the_recipe_itself_is_one_line():
    first = values.override(pl.recipe("grpo"), "optimiser.lr", "linear(1e-4, 0, 10)")
    assert changed_between(first, pl.recipe("grpo")) == [
        "learners.policy.optimiser.lr a schedule (start=0.0001, end=0.0, steps=10) -> 0.0001"
    ]


def test_a_part_in_place_of_another_is_one_line():
    """One that is gone, and one that is added, too."""
    grpo = pl.recipe("grpo")
    shorter = pl.vary(grpo, credit=pl.chain(pl.Center("group")), objective=pl.Reinforce(reduce="tokens"))
    assert changed_between(grpo, shorter) == [
        "learners.policy.credit.links.1 Scale -> nothing",
        "learners.policy.objective Clipped -> Reinforce(reduce='tokens')",
    ]
    assert changed_between(shorter, grpo) == [
        "learners.policy.credit.links.1 nothing -> Scale()",
        "learners.policy.objective Reinforce -> Clipped()",
    ]

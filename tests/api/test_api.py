"""The Python interface: what the commands do, as values."""

import asyncio
import dataclasses
import json
import math
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from palaestra.api.asking import compare, evaluate, explain, remark_on_trained
from palaestra.api.run import Run, table
from palaestra.api.training import train
from palaestra.catalogue import recipe
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.ledger.cells import CellRequest
from palaestra.models.load import load, weights_sha256
from palaestra.run.origin import RECORD, digests
from palaestra.settings.fields import VALUE, Settings
from palaestra.stats import false_discoveries, fisher
from palaestra.store.folder import read_run
from palaestra.update import AdamW
from palaestra.values import vary
from palaestra.view.export import export
from palaestra.view.problems import fates
from palaestra.view.reader import open_runs
from palaestra.view.verdict import verdict


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(tmp_path):
    return train("rloo", smoke=True, quiet=True, evaluate=2, out=tmp_path / "rloo")


def test_train_makes_the_run_that_the_command_makes(run, capsys):
    assert main(["train", "rloo", "--smoke", "--evaluate", "2", "--out", "command", "--json"]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["weights_sha256"] == run.summary["weights_sha256"]
    names = {p.relative_to(run.folder) for p in run.folder.rglob("*")}
    assert names == {p.relative_to("command") for p in Path("command").rglob("*")}
    assert run.steps["step"].to_pylist() == [1, 2] and run.config["recipe"] == "rloo"
    clocks = [n for n in run.steps.column_names if n.startswith("seconds")] + ["tokens_per_second"]
    assert run.steps.drop_columns(clocks).equals(Run("command").steps.drop_columns(clocks))


def test_a_run_has_tables_a_model_and_groups(run):
    episodes = run.episodes(tokens=True)
    assert episodes.num_rows == 8 and len(episodes["rows"][0].as_py()[0]["ids"]) > 3
    assert "rows" not in run.episodes().column_names and run.evaluations["n"].to_pylist() == [4, 4]
    assert run.problems()["episodes"].to_pylist() == [2, 2, 2, 2]
    assert run.model().module.config.model_type == "llama" and "<svg" in run._repr_html_()
    group = run.group(step=2, group=1)
    assert group.episodes().num_rows == 2
    for method in ("grpo", recipe("rloo")):
        assert len(group.explain(method)["advantages"][0]) == 2
    with pytest.raises(UserError, match="no rollouts of step 3"):
        run.group(step=3)
    with pytest.raises(UserError, match="no group 7 of step 2; those written are 0, 1"):
        run.group(step=2, group=7)
    with pytest.raises(UserError, match="no model 'critic'"):
        run.model("critic")


def test_a_recipe_that_is_a_value_trains_and_goes_on_inside_a_running_loop():
    mine = vary(recipe("grpo"), schedule=vary(recipe("grpo").schedule, prompts=2))

    async def notebook():
        return train(mine, steps=1, evaluate=0, quiet=True, set={"collect.links.0.n": 2})

    run = asyncio.run(notebook())
    assert run.config["recipe"] == "python" and run.steps.num_rows == 1
    assert train(mine, resume=run.folder, steps=2, quiet=True).steps.num_rows == 2
    with pytest.raises(UserError, match="is a value of a program"):
        train(resume=run.folder, steps=3, quiet=True)
    with pytest.raises(UserError, match="is a value of a program"):
        train("grpo", resume=run.folder, steps=3, quiet=True)


def test_mistakes_are_one_line():
    for wrong, said in (
        ({"stepz": 3}, "unknown setting 'stepz'; did you mean steps"),
        ({"steps": "many"}, "steps takes"),
        ({"steps": 0}, "^steps must be at least 1"),
    ):
        with pytest.raises(UserError, match=said):
            train("grpo", quiet=True, **wrong)
    with pytest.raises(UserError, match="no method 'grpoo'; did you mean grpo"):
        train("grpoo", quiet=True)
    with pytest.raises(UserError, match="3 is no recipe"):
        train(3, quiet=True)
    with pytest.raises(UserError, match="not a run folder"):
        Run("nowhere")
    with pytest.raises(UserError, match="at least two"):
        compare("grpo")
    with pytest.raises(UserError, match="must have the shape of"):
        explain("grpo", rewards=[[1, 0]], lengths=[[1]])
    assert not Path("runs").exists()


def test_explain_says_what_the_command_says(capsys):
    assert main(["explain", "rloo", "--rewards", "[[1,0,0,1]]", "--lengths", "[[5,9,3,7]]", "--json"]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert explain("rloo", rewards=[[1, 0, 0, 1]], lengths=[[5, 9, 3, 7]]) == said
    assert said["advantages"][0] == pytest.approx([2 / 3, -2 / 3, -2 / 3, 2 / 3])
    asked = explain(recipe("rloo"), groups=[[{"reward": 1.0}, {"reward": 0.0}]])
    assert asked["advantages"] == [[1.0, -1.0]] and asked["notes"][0].startswith("no length is given")
    assert explain("rloo", rewards=[[1, 0]], lengths=[[2, 3]])["notes"] == []


def test_evaluate_and_compare(run, capsys):
    assert main(["eval", "--n", "4", "--k", "2", "--json"]) == 0
    assert evaluate("tiny", n=4, k=2) == json.loads(capsys.readouterr().out.splitlines()[-1])
    asked = evaluate(run, n=2, k=1)
    assert asked["model"].endswith("step-2") and asked["task"] == "chain" and asked["n"] == 2
    found = compare(run, Run(shutil.copytree(run.folder, "copy")))
    (name,) = found["differences"]
    assert found["differences"][name]["mean"] == 0 and found["methods"][str(run.folder)]["after"]["n"] == 4
    assert main(["compare", str(run.folder), "copy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == found
    assert main(["compare", str(run.folder), "copy"]) == 0
    first, *rows = capsys.readouterr().out.splitlines()
    assert first == "held-out accuracy of runs that are over (95% intervals)" and len(rows) == 4
    assert rows[0].startswith(f"  rloo {run.folder}  ") and rows[0].endswith(", n = 4")
    assert rows[2].startswith(f"  rloo copy - rloo {run.folder}  ") and rows[2].endswith(", paired by problem")
    assert "not that of seeds" in rows[3]
    assert main(["compare", str(run.folder), "copy", "optimiser.lr=1"]) == 2
    assert "optimiser.lr=1: runs that are over are compared as they are" in capsys.readouterr().err
    with pytest.raises(UserError, match="methods or runs, not both"):
        compare(run, "grpo")


def test_an_evaluation_keeps_its_attempts_in_a_folder_of_its_own(run, tmp_path, capsys):
    """As tables of a run, which the viewer shows; another evaluation may take the folder, and none takes a run's."""
    kept = tmp_path / "kept"
    assert main(["eval", "--task", "chain", "--n", "4", "--k", "2", "--out", str(kept)]) == 0
    told = capsys.readouterr().out
    assert told.endswith(f"attempts: palaestra view {kept}\n")
    (shown,) = open_runs([kept])
    assert shown.main.name == "held-out" and shown.about["main"] == "held-out" and shown.config["task"] == "chain"
    assert {n: t.index.num_rows for n, t in shown.tables.items()} == {
        "training": 0,
        "held-out": 4,
        "held-out samples": 8,
    }
    assert all(s > 0 for s in Run(kept).attempts("held-out samples")["seconds"].to_pylist())
    said = verdict(read_run(kept))
    assert len(said["ends"]) == 1 and said["words"] == "This is one evaluation, and no step of training."
    text, groups = export([shown])
    assert groups == 4 and "api/run/0/table/held-out%20samples/index" in text
    other = evaluate("tiny", task="chain", n=4, k=4, out="other")
    compared = compare(kept, "other")  # by their greedy answers, and by k attempts, of whatever k
    assert compared["methods"]["other"] == {"method": "tiny", "before": {}, "after": other["greedy"]}
    (difference,), (drawn,) = compared["differences"].values(), compared["sampled"]["pass@1"].values()
    assert (difference["mean"], difference["n"], difference["paired"]) == (0, 4, "by problem")
    first = Run(kept).summary["evaluation"]["pass@1"]["mean"]
    assert drawn["mean"] == pytest.approx(other["pass@1"]["mean"] - first) and drawn["paired"] == "by problem"
    assert sorted(compared["sampled"]) == ["pass@1", "pass@2"]  # one of them has two attempts
    (two,), second = compared["sampled"]["pass@2"].values(), Run(kept).summary["evaluation"]["pass@2"]["mean"]
    assert two["mean"] == pytest.approx(other["pass@2"]["mean"] - second) and two["low"] < two["mean"] < two["high"]
    assert (two["paired"], two["n"]) == ("by problem", 4)
    assert main(["compare", str(kept), "other"]) == 0
    told = capsys.readouterr().out
    assert f"  tiny other - tiny {kept}, pass@2  " in told
    assert f"  tiny other - tiny {kept}, pass@1  " in told and "temperatures" not in told
    evaluate("tiny", task="chain", n=4, k=4, temperature=0.5, out="cooler")
    assert compare(kept, "cooler")["notes"] == [
        f"their attempts were sampled at unlike temperatures: {kept} at 1, cooler at 0.5"
    ]
    evaluate("tiny", task="chain", n=4, k=1, out="other")
    assert compare(kept, "other")["sampled"] == {}  # one of them alone has several attempts
    again = evaluate("tiny", task="chain", n=2, k=1, out=kept)
    assert Run(kept).attempts().num_rows == 2 and Run(kept).attempts("held-out samples").num_rows == 0
    assert Run(kept).summary["evaluation"]["greedy"]["mean"] == again["greedy"]["mean"]
    before = Run(run.folder).attempts().to_pylist()
    assert main(["eval", "--n", "2", "--out", str(run.folder)]) == 2
    assert "give this one a folder of its own" in capsys.readouterr().err
    assert Run(run.folder).attempts().to_pylist() == before


def test_recipes_that_are_values_are_compared():
    """The value is what is trained: at a rate of zero its weights stay those of the start."""
    still = vary(recipe("grpo"), optimiser=AdamW(lr=0.0))
    found = compare("grpo", recipes={"still": still}, seeds=1, tokens=3000, evaluate=4, jobs=1)
    assert list(found["methods"]) == ["grpo", "still"] and list(found["differences"]) == ["still - grpo"]
    ends = [json.loads((Path(m["folders"][0]) / "cell.json").read_text()) for m in found["methods"].values()]
    begin = weights_sha256(load("tiny"))
    assert ends[1]["weights_sha256"] == begin != ends[0]["weights_sha256"]


def test_fishers_exact_test():
    """Tea tasting: 3 of 4 against 1 of 4 has p = 34 / 70; 4 of 4 against 0 of 4 has 2 / 70 (Fisher 1935)."""
    assert fisher(3, 4, 1, 4) == pytest.approx(34 / 70) and fisher(4, 4, 0, 4) == pytest.approx(2 / 70)
    assert fisher(0, 0, 3, 4) == 1.0 and fisher(2, 4, 2, 4) == 1.0


def test_false_discoveries():
    """Benjamini and Hochberg (1995), table 1 at 0.05: the first four of fifteen."""
    p = [
        0.0001,
        0.0004,
        0.0019,
        0.0095,
        0.0201,
        0.0278,
        0.0298,
        0.0344,
        0.0459,
        0.3240,
        0.4262,
        0.5719,
        0.6528,
        0.7590,
        1.0,
    ]
    assert false_discoveries(p, 0.05) == [True] * 4 + [False] * 11
    assert false_discoveries([], 0.1) == [] and false_discoveries([0.2, 0.01], 0.05) == [False, True]


def test_what_became_of_a_problem():
    """Nine steps: a is always solved, b never, c learned, d forgotten, e solved half of the time."""
    rewards = {"a": lambda s: 1.0, "b": lambda s: 0.0, "c": lambda s: float(s >= 4), "d": lambda s: float(s < 4)}
    rewards["e"] = lambda s: float(s % 2)
    made = [
        {"task_id": t, "domain": "", "prompt": t, "step": s, "reward": right(s), "status": "finished"}
        for s in range(1, 10)
        for t, right in rewards.items()
        for _ in range(3)
    ]
    broken = {"task_id": "a", "domain": "", "prompt": "a", "step": 1, "reward": None, "status": "error:judge"}
    found = {row["task_id"]: row for row in fates(pa.Table.from_pylist([*made, broken]))}
    told = {"a": "solved", "b": "never", "c": "learned", "d": "forgotten", "e": "mixed"}
    assert {t: row["fate"] for t, row in found.items()} == told
    assert found["c"]["first"] == 0 and found["c"]["last"] == 1 and found["a"]["episodes"] == 27


def test_a_table_takes_what_steps_hold():
    found = table([{"a": 1, "b": "x"}, {"a": 0.5, "c": [1]}, {"c": "text", "a": None}])
    assert found["a"].to_pylist() == [1.0, 0.5, None] and found["b"].to_pylist() == ["x", None, None]
    assert found["c"].to_pylist() == [None, "[1]", '"text"'] and math.isclose(found["a"][1].as_py(), 0.5)


def test_a_path_is_a_file_and_what_is_no_text_is_said_by_its_type(tmp_path):
    with pytest.raises(UserError, match=r"^data is a number; give a file or rows, \["):
        train("grpo", data=3)
    with pytest.raises(UserError, match=r"^dtype takes text, not a int$"):
        train("grpo", dtype=32)
    with pytest.raises(UserError, match=r"none\.jsonl: no such file"):
        train("grpo", data=tmp_path / "none.jsonl")
    with pytest.raises(UserError, match=r"compare takes names of methods, FILE.py or runs, not a Recipe; give"):
        compare(recipe("grpo"), "rloo")
    with pytest.raises(UserError, match=r"two methods are called 'rloo'"):
        compare("rloo", recipes={"rloo": recipe("grpo")})


def test_a_value_that_another_process_cannot_have_is_refused(monkeypatch):
    own = dataclasses.make_dataclass("Own", [("n", int, 1)], frozen=True)
    own.__module__ = "__main__"
    monkeypatch.setattr(sys.modules["__main__"], "Own", own, raising=False)
    with pytest.raises(UserError, match="mine: Own is written in the program itself"):
        compare("grpo", recipes={"mine": vary(recipe("grpo"), pool=own())})


def test_an_evaluation_says_what_is_wrong_with_the_data(tmp_path, capsys):
    rows = [{"prompt": f"{i}+1", "answer": f"\u200b{i + 1}"} for i in range(12)]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    evaluate("tiny", data=str(tmp_path / "d.jsonl"), n=1, k=1, max_tokens=2, talk=True)
    assert "data: 12 of 12 records have invisible characters in the answer" in capsys.readouterr().err


def test_an_evaluation_says_where_it_holds_out_what_was_trained_on(tmp_path, capsys):
    for name, first in (("d", 0), ("t", 20)):
        rows = [{"prompt": f"{i}+1", "answer": f"{i + 1}"} for i in range(first, first + 12)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    d, t = str(tmp_path / "d.jsonl"), str(tmp_path / "t.jsonl")
    small = {"n": 1, "k": 1, "max_tokens": 2, "talk": True}
    done = train(data=d, test_data=t, steps=1, evaluate=0, max_tokens=2, out=str(tmp_path / "r"), quiet=True)
    (tmp_path / "config.toml").write_text("baseURL = 'x'")  # somebody else's
    for model in (done, str(done.summary["artifacts"]["policy"]), "tiny"):
        for given, told in (
            ({"data": d}, f"was trained on all of {d}, so what is held out of it here is no new problem"),
            ({"data": t, "test_data": d}, f"was trained on {d}, so its rows are not held out from it"),
            ({"data": d, "test_data": t}, ""),
            ({"data": t}, ""),
        ):
            capsys.readouterr()
            evaluate(model, **given, **small)
            said = capsys.readouterr().err
            assert told in said if told and model != "tiny" else "was trained on" not in said


def test_a_model_that_only_has_the_name_of_a_checkpoint_is_of_no_run(tmp_path, monkeypatch):
    (tmp_path / "checkpoints/step-1").mkdir(parents=True)
    (tmp_path / "d.jsonl").write_text("{}")
    kept = {"data": digests(str(tmp_path / "d.jsonl"))}
    (tmp_path / RECORD).write_text(json.dumps({"files": kept, "fields": {}, "parts": {}}))
    monkeypatch.chdir(tmp_path / "checkpoints")
    asked = Settings(test_data="../d.jsonl")
    assert "was trained on ../d.jsonl" in remark_on_trained("step-1", asked)
    assert not remark_on_trained("tiny", asked) and not remark_on_trained("org/name", asked)
    (tmp_path / RECORD).write_text("{")
    assert not remark_on_trained("step-1", asked)


def test_the_digest_of_a_value_is_its_own():
    request = CellRequest(label="", settings=Settings(recipe=VALUE), tokens=1, recipe=recipe("grpo"))
    named = CellRequest(label="", settings=Settings(recipe="grpo"), tokens=1)
    assert request.configuration() == named.configuration() and request.digest() == named.digest()
    assert dataclasses.replace(request, recipe=recipe("rloo")).digest() != request.digest()

"""`palaestra plan`: a table, its assumptions, and the files that are asked for."""

import json
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from palaestra.cli import plan
from palaestra.cli.main import main
from palaestra.planning.simulate import Costs, LogNormal
from palaestra.scale.cluster import Cluster

pytest.importorskip("simpy")

COSTS = {"ticket": {"median": 1.2, "sigma": 0.8}, "learn": 0.9, "publish": 0.01, "load": 0.005, "tokens": 8192}


@pytest.fixture
def costs(tmp_path):
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(COSTS))
    return str(path)


def test_a_row_for_each_combination_best_first(costs, capsys):
    assert main(["plan", "grpo", "--costs", costs, "--workers", "2,4", "--lag", "0,1", "--steps", "20"]) == 0
    lines = capsys.readouterr().out.splitlines()
    head = next(i for i, line in enumerate(lines) if line.split()[:2] == ["workers", "lag"])
    rows = [line.split() for line in lines[head + 1 : head + 5]]
    assert {tuple(r[:2]) for r in rows} == {("2", "0"), ("2", "1"), ("4", "0"), ("4", "1")}
    seconds = [float(r[2]) for r in rows]
    assert seconds == sorted(seconds) and rows[0][:2] == ["4", "1"]
    speeds = [float(r[3].replace(",", "")) for r in rows]
    assert speeds == pytest.approx([8192 / s for s in seconds], rel=0.01)
    assert "assumptions" in lines and any("ticket: log-normal, median 1.2 s, sigma 0.8" in x for x in lines)
    assert any("no worker fails" in x for x in lines)


def test_the_result_as_json_is_the_same_every_time(costs, capsys):
    told = []
    for _ in range(2):
        assert main(["plan", "grpo", "--costs", costs, "--workers", "2", "--json"]) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]
    (line,) = told[0].splitlines()
    found = json.loads(line)
    assert [r["lag"] for r in found["rows"]] == [2, 1, 0] and found["waves"] == 8 and found["recipe"] == "grpo"


def test_the_depth_is_that_of_a_cluster_file_if_nothing_is_said(costs, capsys):
    seconds: dict[str, float] = {}
    for words in ([], ["--depth", str(Cluster(workers=2).depth)], ["--depth", "2"]):
        assert main(["plan", "grpo", "--costs", costs, "--workers", "2", "--lag", "0", "--json", *words]) == 0
        found = json.loads(capsys.readouterr().out)
        seconds[" ".join(words)] = found["rows"][0]["seconds"]
        held = "a worker holds 1 ticket" if found["depth"] == 1 else "a worker holds 2 tickets"
        assert held in found["assumptions"]
    assert seconds[""] == seconds["--depth 1"] < seconds["--depth 2"]  # a short ticket waits behind a long one


def test_a_trace_and_a_picture(costs, tmp_path, capsys):
    trace, picture = tmp_path / "t.json", tmp_path / "p.svg"
    words = ["plan", "grpo", "--costs", costs, "--workers", "2", "--lag", "0,1", "--steps", "5"]
    assert main([*words, "--trace", str(trace), "--picture", str(picture)]) == 0
    out = capsys.readouterr().out
    assert f"written to {trace}" in out and f"written to {picture}" in out
    events = json.loads(trace.read_text())["traceEvents"]
    assert {e["args"]["name"] for e in events if e["name"] == "thread_name"} == {"rollout 0", "rollout 1", "learner 0"}
    texts = [e.text for e in ElementTree.parse(picture).iter() if e.tag.endswith("text")]
    for title in ("lag 0: 2 workers", "lag 0, streaming: 2 workers", "lag 1: 2 workers"):
        assert any(t and t.startswith(title) for t in texts)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["grpo"], "seconds from one place"),
        (["grpo", "--costs", "C", "--run", "r"], "seconds from one place"),
        (["--costs", "C"], "needs a recipe"),
        (["grpo", "--run", "r"], "--run says the recipe"),
        (["--run", "nowhere"], "not a run folder"),
        (["grpo", "--costs", "C", "--waves", "4"], "--waves goes with --run"),
        (["gpro", "--costs", "C"], "did you mean"),
        (["grpo", "--costs", "C", "--workers", "1,x"], "takes a whole number of at least 1, not 'x'"),
    ],
)
def test_a_mistake_is_one_line(words, said, costs, capsys):
    assert main(["plan", *(costs if w == "C" else w for w in words)]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_more_tickets_than_prompts_are_refused(tmp_path, capsys):
    path = tmp_path / "costs.json"
    path.write_text(json.dumps({"ticket": 1, "learn": 1, "waves": 17}))
    assert main(["plan", "grpo", "--costs", str(path)]) == 2
    told = capsys.readouterr().err
    assert "17 waves of 16 prompts" in told and f'give "waves": 16 in {path}, or less' in told


def test_devices_are_split_as_the_cost_model_of_llamarl_says():
    """Sampling takes 4 x 10 device-seconds and learning 48: of 16 devices 7 sample, 40 / 7 s a step."""
    costs = Costs(ticket=LogNormal(median=10.0, sigma=0.5), learn=48.0)
    found = plan.split_of(SimpleNamespace(costs=costs, waves=4), 16)
    assert (found.sampling, found.learning, found.seconds) == (7, 9, pytest.approx(40 / 7))
    unknown = SimpleNamespace(costs=Costs(ticket=lambda k, w: 1.0, learn=1.0), waves=1)
    assert plan.split_of(unknown, 4) is None

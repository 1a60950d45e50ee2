"""What a run keeps on the disk: when a checkpoint is written, what is in it, and which episodes."""

import asyncio
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from palaestra.api.run import Run
from palaestra.attempts import Flight, Ticket
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.models.load import load
from palaestra.recipes.base import grpo
from palaestra.rollout.tickets import InProcess
from palaestra.run import saving
from palaestra.run.plan import Plan
from palaestra.run.saving import Saves
from palaestra.store import checkpoint, columns, rollouts
from palaestra.types import Episode, Group, Task

SMALL = ["grpo", "schedule.prompts=3", "collect.links.0.n=4", "--evaluate", "0", "--max-tokens", "8"]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def steps_of(folder):
    return sorted(int(p.name.removeprefix("step-")) for p in Path(folder, "checkpoints").glob("step-*"))


class FakeRun:
    """As much of a context as `Saves` asks for."""

    def __init__(self, **plan):
        self.plan, self.out, self.optimisers = Plan(**plan), None, {}


def written(monkeypatch, cost, step_seconds, steps, **plan):
    """The steps after which a run writes a checkpoint, where writing takes `cost` seconds."""
    now, found = [0.0], []

    def write(ctx, state, whole):
        now[0] += cost
        found.append(state["step"])

    monkeypatch.setattr(saving, "save_checkpoint", write)
    saves = Saves(FakeRun(**plan), clock=lambda: now[0])
    for step in range(1, steps + 1):
        now[0] += step_seconds
        if saves.due(step):
            asyncio.run(saves.keep({"step": step, "queue": [], "run": {}}))
    return found


def test_checkpoints_take_a_twentieth_of_the_time_at_most(monkeypatch):
    assert written(monkeypatch, cost=1.0, step_seconds=5.0, steps=12) == [1, 5, 9]
    assert written(monkeypatch, cost=0.01, step_seconds=1.0, steps=4) == [1, 2, 3, 4]
    assert written(monkeypatch, cost=600.0, step_seconds=300.0, steps=7) == [1, 4, 7]  # every 15 minutes in any case
    assert written(monkeypatch, cost=600.0, step_seconds=300.0, steps=7, checkpoint_every=3) == [3, 6]


class Killed(BaseException):
    """Ends a run between its steps, as a kill does."""


def test_a_run_ends_the_same_wherever_its_checkpoints_were(place, context, small, monkeypatch):
    """Killed after its fifth step, with a checkpoint of the steps before it, of the fourth alone, or none at all."""
    recipe, ends, logs = small(grpo.build(), **{"optimiser.lr": 0.001}), set(), set()
    due = Saves.due
    for every in (None, 1, 4, 99):
        folder = place / str(every)

        def killed(self, step, every=every):
            if step == 5:
                raise Killed
            return step % every == 0

        if every is not None:
            with monkeypatch.context() as patch, pytest.raises(Killed):
                patch.setattr(Saves, "due", killed)
                asyncio.run(recipe.run(context(out=folder, steps=7)))
            assert steps_of(folder) == {1: [3, 4], 4: [4], 99: []}[every]
            assert len(list((folder / "rollouts").iterdir())) == 5
        assert Saves.due is due
        metrics = asyncio.run(recipe.run(context(out=folder, steps=7))).metrics
        ends.add(metrics["weights_sha256"])
        lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
        logs.add(tuple((r["step"], r["loss"], r["reward"]) for r in lines))
        assert len(list((folder / "rollouts").iterdir())) == 7
    assert len(ends) == 1 and len(logs) == 1


def test_rollouts_of_a_future_that_was_left_go(place):
    (place / "rollouts").mkdir()
    for step in (1, 2, 3):
        rollouts.write(columns.path(place, step), step, [], rollouts.NOTHING, str)
    rollouts.remove_after(place, 2)
    assert [p.name for p in sorted((place / "rollouts").iterdir())] == ["step-000001.parquet", "step-000002.parquet"]


def test_so_many_checkpoints_stay(place):
    assert main(["train", *SMALL, "--steps", "4", "--checkpoint-every", "1", "--keep", "3", "--out", "run"]) == 0
    assert steps_of("run") == [2, 3, 4]


# ---- adapters


@pytest.fixture
def adapted(place):
    """A run with adapters that were moved far, and its checkpoints."""
    pytest.importorskip("peft")
    argv = [*SMALL, "--lora", "4", "optimiser.lr=0.01", "--checkpoint-every", "1", "--keep", "9"]

    def make(*more, steps="3", out="run"):
        assert main(["train", *argv, "--steps", steps, "--out", out, *more]) == 0
        return place / out / "checkpoints"

    return make


def test_checkpoints_in_between_hold_the_adapters_alone(adapted):
    folder = adapted()
    names = [{p.name for p in (folder / f"step-{n}").iterdir()} for n in (1, 2, 3)]
    alone = {"adapter", "manifest.json", "optimisers", "state.json", "state.safetensors"}
    assert names[0] == names[1] == alone
    assert names[2] > alone and {"model.safetensors", "config.json", "tokenizer.json"} <= names[2]


def test_every_checkpoint_is_a_model_where_that_is_asked_for(adapted):
    folder = adapted("--merged")
    assert all((folder / f"step-{n}" / "model.safetensors").is_file() for n in (1, 2, 3))


def test_adapters_alone_are_the_model_that_was_trained(adapted):
    """`load` puts them on the model they were trained on; what it gives is what would have been saved merged."""
    alone, whole = adapted(), adapted("--merged", out="merged")
    a, b = load(str(alone / "step-2")).module, load(str(whole / "step-2")).module
    start = load("tiny").module.state_dict()
    moved = [k for k, p in a.state_dict().items() if not torch.equal(p, start[k])]
    assert moved and all(torch.equal(p, a.state_dict()[k]) for k, p in b.state_dict().items())
    assert main(["eval", "--model", str(alone / "step-2"), "--task", "chain", "--n", "2", "--k", "1"]) == 0


def test_a_run_with_adapters_goes_on_from_them_and_ends_whole(adapted, capsys):
    folder = adapted(steps="5", out="whole")
    adapted(steps="4", out="left")
    assert main(["train", "--resume", "left", "--steps", "5", "--json"]) == 0
    assert Run("left").summary["weights_sha256"] == Run("whole").summary["weights_sha256"]
    assert (folder.parents[1] / "left" / "checkpoints" / "step-5" / "model.safetensors").is_file()


def test_a_run_that_is_shortened_to_where_it_was_stopped_ends_with_a_whole_model(adapted, place):
    folder = adapted(steps="4")
    for n in (3, 4):  # as if it had been stopped after the second step
        for path in sorted((folder / f"step-{n}").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (folder / f"step-{n}").rmdir()
    assert not (folder / "step-2" / "model.safetensors").exists()
    assert main(["train", "--resume", "run", "--steps", "2"]) == 0
    assert (folder / "step-2" / "model.safetensors").is_file() and Run("run").model().module is not None


def test_adapters_of_a_model_that_is_gone_say_so(adapted):
    folder = adapted() / "step-1"
    settings = folder / "adapter" / "adapter_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"base_model_name_or_path": "/gone/model"}))
    with pytest.raises(UserError, match=r"adapters alone, of the model '/gone/model', which is not here"):
        load(str(folder))


# ---- rollouts


def episodes(sizes):
    """Lines as `sample` takes them."""
    groups = [Group(task=Task(id=str(g)), episodes=tuple(Episode() for _ in range(n))) for g, n in enumerate(sizes)]
    return [(g, i, group, e) for g, group in enumerate(groups) for i, e in enumerate(group.episodes)]


@pytest.mark.parametrize(
    ("sizes", "keep", "expected"), [([4, 4, 4], 9, 8), ([4, 4, 4], 4, 4), ([8, 8], 3, 3), ([1, 5, 2], 6, 6)]
)
def test_whole_groups_are_kept_as_long_as_they_fit(sizes, keep, expected):
    drawn = set()
    for seed in range(20):
        found = rollouts.sample(episodes(sizes), keep, np.random.default_rng(seed))
        assert len(found) == expected or sizes == [1, 5, 2]
        assert 0 < len(found) <= keep and found == sorted(found, key=lambda line: line[:2])
        groups = {line[0] for line in found}
        assert keep < min(sizes) or all(sum(line[0] == g for line in found) == sizes[g] for g in groups)
        drawn.add(tuple(sorted(groups)))
    assert len(drawn) > 1


def test_a_sample_of_the_episodes_is_written_and_said(place, capsys):
    assert main(["train", *SMALL, "--steps", "2", "--rollouts", "sample:4", "--out", "run"]) == 0
    assert main(["train", *SMALL, "--steps", "2", "--out", "all"]) == 0
    some, full = (Run(n).episodes().drop_columns("seconds").to_pylist() for n in ("run", "all"))
    assert len(some) == 8 and len(full) == 24 and all(e in full for e in some)
    assert Run("run").summary["weights_sha256"] == Run("all").summary["weights_sha256"]
    assert columns.sampled_from(columns.path(place / "run", 1)) == 12
    assert columns.sampled_from(columns.path(place / "all", 1)) is None
    assert "At most 4 episodes of each step were written" in (place / "run" / "report.html").read_text()
    (number,) = {e["group"] for e in some if e["step"] == 2}
    told = Run("run").group(2, number).explain("rloo")
    assert len(told["rewards"][0]) == 4 and "the run wrote 4 of the step's 12 episodes" in told["notes"][-1]
    with pytest.raises(UserError, match=rf"no group {number + 1} of step 2; those written are {number}"):
        Run("run").group(2, number + 1)
    assert main(["train", "--resume", "run", "--steps", "3"]) == 0
    assert Run("run").episodes().num_rows == 12


def test_no_episodes_are_written_and_that_is_said(place, capsys):
    assert main(["train", *SMALL, "--steps", "2", "--rollouts", "none", "--out", "run"]) == 0
    assert not (place / "run" / "rollouts").exists() and Run("run").episodes().num_rows == 0
    assert "No episodes were written" in (place / "run" / "report.html").read_text()
    assert main(["explain", "rloo", "--rollouts", "run"]) == 2
    assert "--rollouts none" in capsys.readouterr().err
    with pytest.raises(UserError, match="rollouts='none'"):
        Run("run").group(1)
    assert main(["train", "--resume", "run", "--steps", "3"]) == 0


@pytest.mark.parametrize("given", ["some", "sample:0", "sample:x", "sample", ""])
def test_other_words_for_rollouts_are_refused(given, capsys):
    assert main(["train", *SMALL, "--rollouts", given]) == 2
    assert "--rollouts is all, none, or sample:N" in capsys.readouterr().err


# ---- sizes


def told_sizes(text):
    (line,) = [x for x in text.splitlines() if x.startswith("on the disk: ")]
    return line


def folder_mb(folder):
    return sum(p.stat().st_size for p in Path(folder).rglob("*") if p.is_file()) / 1e6


def test_what_a_run_will_write_is_said_at_its_start(place, capsys):
    assert main(["train", *SMALL, "--steps", "3", "--out", "run"]) == 0
    line = told_sizes(capsys.readouterr().err)
    size = folder_mb(place / "run" / "checkpoints" / "step-3")
    assert (
        f"checkpoints about {size:.0f} MB each, the last 2 are kept; rollouts about " in line and "in 3 steps" in line
    )
    pytest.importorskip("peft")
    assert (
        main(["train", *SMALL, "--lora", "4", "--steps", "2", "--rollouts", "none", "--keep", "1", "--out", "b"]) == 0
    )
    line = told_sizes(capsys.readouterr().err)
    assert "the last one " in line and "the last is kept; no rollouts" in line


@pytest.mark.parametrize(("lora", "packed"), [(0, False), (4, False), (4, True)])
def test_the_sizes_that_are_foretold_are_those_that_are_written(place, context, small, lora, packed):
    """Of 4-bit weights the last checkpoint is the whole model in its dtype."""
    from palaestra.models.lora import LoRA

    if lora:
        pytest.importorskip("peft")
    if packed:
        pytest.importorskip("bitsandbytes")
    ctx = context(out=place / "run", steps=2, keep=9, checkpoint_every=1)
    if lora:
        ctx.models["policy"] = load("tiny", lora=LoRA(rank=lora, load_in_4bit=packed))
    asyncio.run(small(grpo.build()).run(ctx))
    for foretold, step in zip(saving.checkpoint_mb(ctx), (1, 2), strict=True):
        assert foretold == pytest.approx(folder_mb(place / "run" / "checkpoints" / f"step-{step}"), rel=0.05, abs=0.05)
    file = columns.path(place / "run", 2)
    assert saving.rollouts_mb(ctx, 3) == pytest.approx(3 * file.stat().st_size / 1e6, rel=0.01)
    assert pq.ParquetFile(file).metadata.row_group(0).column(0).compression == "ZSTD"


# ---- attempts under way


class Slow(InProcess):
    """Collects in this process, and gives flights that are over `after` further steps later, or when awaited."""

    after = 1

    async def submit(self, recipe, ctx, tickets):
        groups = await super().submit(recipe, ctx, tickets)
        return Distant(tickets, groups, ctx, ctx.step + self.after)


class Distant(Flight):
    def __init__(self, tickets, groups, ctx, when):
        self.parts, self.found, self.ctx, self.when, self.awaited = tickets, groups, ctx, when, False

    tickets = property(lambda self: self.parts)
    groups = property(lambda self: self.found)
    over = property(lambda self: self.awaited or self.ctx.step >= self.when)
    sampled_tokens = property(lambda self: 1)

    async def land(self):
        self.awaited = True
        return self.found


def flying(context, **more):
    """A context whose rollouts are under way for some steps."""
    ctx = context(**more)
    ctx.open_carrier = lambda recipe, ctx: Slow()
    return ctx


@pytest.mark.parametrize("lag", [1, 2])
def test_a_kill_while_a_checkpoint_waits_loses_nothing(place, context, small, monkeypatch, lag):
    """Killed after every step of a run whose attempts land late; gone on with here, where they never fly."""
    recipe = small(grpo.build(), **{"optimiser.lr": 0.001, "schedule.lag": lag})
    whole = asyncio.run(recipe.run(context(out=place / "whole", steps=7))).metrics["weights_sha256"]
    monkeypatch.setattr(Slow, "after", lag)
    due, sealed = Saves.due, set()
    for at in (1, 3, 5):
        folder = place / f"killed-{at}"

        def killed(self, step, at=at):
            if step == at:
                raise Killed
            return due(self, step)

        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(Saves, "due", killed)
            asyncio.run(recipe.run(flying(context, out=folder, steps=7, checkpoint_every=1)))
        sealed.add(max(steps_of(folder), default=0))
        for name in steps_of(folder):
            assert (folder / "checkpoints" / f"step-{name}" / "model.safetensors").is_file()
        metrics = asyncio.run(recipe.run(context(out=folder, steps=7))).metrics
        assert metrics["weights_sha256"] == whole, f"killed after step {at}"
        assert not list((folder / "checkpoints").glob(".draft-*"))
    assert {0, 1} <= sealed  # one that waited was lost, and one was made whole


def test_a_checkpoint_that_waits_is_as_it_was_when_it_began(place, context, small, monkeypatch):
    """Models and optimisers of its step, although both have moved on when its attempts land."""
    recipe = small(grpo.build(), **{"optimiser.lr": 0.001, "schedule.lag": 1})
    for name, make in (("here", context), ("far", lambda **more: flying(context, **more))):
        asyncio.run(recipe.run(make(out=place / name, steps=4, checkpoint_every=1, keep=9)))
    assert steps_of("here") == [1, 2, 3, 4] and steps_of("far") == [1, 4]
    assert not list((place / "far" / "checkpoints").glob(".draft-*"))
    here, far = (checkpoint.Checkpoint(place / n / "checkpoints" / "step-1", 1) for n in ("here", "far"))
    files = [(c.path / "model.safetensors").read_bytes() for c in (here, far)]
    a, b = here.state(), far.state()
    assert files[0] == files[1] and a["state"]["queue"] == b["state"]["queue"]
    assert a["optimisers"] == b["optimisers"]
    moments = [(c.path / "optimisers" / "policy" / "optimiser.safetensors").read_bytes() for c in (here, far)]
    assert moments[0] == moments[1] and len(moments[0]) > 2 * len(files[0]) * 0.9


def test_a_pause_keeps_what_is_under_way_as_tickets():
    tickets = (Ticket(key=(0, "step", 1), first=0, starts=(Group(task=Task(id="t")),), step=1),)
    ready = Distant(tickets, [Group(task=Task(id="u"))], type("Now", (), {"step": 1}), 0)
    under_way = Distant(tickets, [], type("Now", (), {"step": 1}), 9)
    failed = Distant(tickets, [Group(task=Task(id="t"), episodes=(Episode(status="error:x"),))], under_way.ctx, 0)
    state = {"step": 1, "queue": [ready, under_way, failed, [Group(task=Task(id="v"))]], "run": {"sampled_tokens": 5}}
    found = saving.landed(state)
    assert found["queue"] == [ready.found, tickets, tickets, state["queue"][3]]
    assert found["run"] == {"sampled_tokens": 6} and state["run"] == {"sampled_tokens": 5}

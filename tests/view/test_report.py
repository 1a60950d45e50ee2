"""The page of a run: what it says, and that nothing of a run can break or enter it."""

import errno
import json
import re
import shlex
import time
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from palaestra import values
from palaestra.cli.main import parser_of
from palaestra.cli.train import farewell
from palaestra.errors import Fault, UserError
from palaestra.markdown import escape_controls
from palaestra.settings.fields import Settings
from palaestra.stats import mean_interval, proportion
from palaestra.store.folder import flatten_settings, read_run
from palaestra.store.reading import Raw, StepRollouts
from palaestra.view.exhibits import colour_tokens, instructive_group, notable_rollouts
from palaestra.view.report import duration, write_report
from palaestra.view.verdict import judge_change

from tests.synthetic import answers, run_folder

NASTY = (
    "</i></div><script>alert('owned')</script><img src=x onerror=alert(1)> \"' {{ 7 * 7 }} \x00\x1b[31m\u202eabc \ud83d"
)
VOID = {"meta", "img", "input", "br", "link", "hr"}


class Page(HTMLParser):
    """Its tags, attributes and text, and whether every tag is closed where it should be."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text, self.open = [], [], "", []
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text += data


def page(folder):
    return Page(write_report(folder).read_text(encoding="utf-8"))


@pytest.fixture
def run(tmp_path):
    return run_folder(tmp_path / "run", steps=24, groups=4)


def test_a_finished_run_is_told(run):
    found = page(run)
    text = " ".join(found.text.split())
    for told in (
        "grpo on chain, tiny", "seed 0 · 24 steps", "24%", "95%", "Better, beyond what chance explains", "by 71 points",
        "What changed", "Answer length, tokens", "Answers of several lines", "step 1, 8 answers", "best", "typical",
        "worst", "Where the time went", "rollout 46%", "backward", "one run with one seed", "9f2c" * 16,
        "palaestra train --resume run --steps 48", "palaestra train @run/config.toml",
        "palaestra eval --model run/checkpoints/step-24 --task chain --k 8", "learners.policy.optimiser.lr",
    ):  # fmt: skip
        assert told in text, told
    assert "the folder that holds the run's" in text
    assert (run / "curve.png").stat().st_size > 10_000
    assert "Errors" not in text


def test_a_part_of_a_pipeline_goes_on_with_the_whole_only(run):
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps({k: v for k, v in summary.items() if k != "resume_command"}))
    assert "--resume" in page(run).text
    (run / "config.toml").unlink()
    assert "--resume" not in page(run).text


def test_the_page_needs_nothing_but_itself(run):
    found = page(run)
    assert not {"script", "link", "iframe", "object", "base"} & set(found.tags)
    assert not [v for k, v in found.attributes if k in ("src", "href") and not (v or "").startswith("#")]
    text = (run / "report.html").read_text()
    assert "@import" not in text and not re.findall(r"url\((?!#)", text)
    assert "default-src 'none'" in text


def test_text_of_a_model_is_only_ever_text(tmp_path):
    """In tokens, prompts, task ids, statuses, parts, settings and labels."""
    folder = run_folder(
        tmp_path / "run", steps=8, groups=2, recipe=NASTY, weights_sha256=NASTY, command=NASTY, model=NASTY
    )
    rows = answers(8, 8, 2, 4)
    for r in rows:
        r |= {
            "task_id": NASTY,
            "prompt": NASTY,
            "text": NASTY,
            "domain": NASTY,
            "reward_parts": json.dumps({NASTY: 0.5}),
        }
        r["status"] = "truncated:" + NASTY
        r["rows"][0]["tokens"] = [NASTY.replace("\ud83d", "")] * len(r["rows"][0]["tokens"])
    for r in rows:
        for name in ("task_id", "prompt", "text", "domain", "status"):
            r[name] = r[name].replace("\ud83d", "")
    pq.write_table(pa.Table.from_pylist(rows), folder / "rollouts" / "step-000008.parquet")
    (folder / "config.toml").write_text('recipe = "</td><script>alert(1)</script>"\n')
    found = page(folder)
    assert "script" not in found.tags and "img" not in found.tags
    assert not [k for k, _ in found.attributes if k.startswith("on")]
    assert "<script>alert('owned')</script>" in found.text and "{{ 7 * 7 }}" in found.text and "␀␛[31m" in found.text
    assert "\x00" not in (folder / "report.html").read_text()


def test_an_unfinished_run_is_told_as_far_as_it_went(run):
    (run / "summary.json").unlink()
    records = (run / "metrics.jsonl").read_text().splitlines()[:-1]
    (run / "metrics.jsonl").write_text("\n".join(records) + '\n{"step": 25, "rew')
    (run / "rollouts" / "step-000024.parquet").write_bytes(b"PAR1 cut off")
    text = page(run).text
    assert "not finished" in text and "is not known" in text and "palaestra train --resume run" in text
    assert "step 1" in text and "Where the time went" not in text


def test_a_run_that_has_only_begun(tmp_path):
    (tmp_path / "config.toml").write_text('recipe = "grpo"\n')
    assert "not finished" in page(tmp_path).text
    with pytest.raises(UserError, match=r"no config\.toml"):
        write_report(tmp_path / "nowhere")


def test_files_with_other_columns_are_read_as_far_as_they_go(run):
    bare = [{"text": "= 4", "reward": 1}, {"text": "= 5", "reward": None}, {"text": None, "reward": 0.5}]
    pq.write_table(pa.Table.from_pylist(bare), run / "rollouts" / "step-000024.parquet")
    assert "= 4" in page(run).text
    flat_rows = [{"reward": 1.0, "rows": [{"tokens": ["a", "b"], "author": "policy", "logp": [-0.1, -3.0]}]}]
    pq.write_table(pa.Table.from_pylist(flat_rows), run / "rollouts" / "step-000024.parquet")
    rollouts = StepRollouts(run / "rollouts" / "step-000024.parquet")
    assert [t.logp for t in rollouts.raw(rollouts.all[0])] == [-0.1, -3.0]
    assert "rare3" in write_report(run).read_text()


def test_errors_are_counted_and_no_answers(run):
    rows = answers(24, 24, 4, 8)
    for r in rows[:5]:
        r |= {"status": "error:sandbox", "reward": None, "facts": json.dumps({"error": "sandbox: <b>no space</b>"})}
    pq.write_table(pa.Table.from_pylist(rows), run / "rollouts" / "step-000024.parquet")
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for r in records:
        r |= {"errors": 5 / 32, "episodes": 32} if r["step"] == 24 and "reward" in r else {}
    (run / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    text = page(run).text
    assert "5 episodes failed" in text and "error:sandboxsandbox: <b>no space</b>5" in text
    last = read_run(run).last
    assert len(last.all) == 32 and len(last.valid) == 27


def test_verdicts_in_plain_words():
    low, same, high = (proportion(c, 500) for c in (100, 104, 300))
    assert judge_change(low, high).startswith("Better") and "improved by 40 points" in judge_change(low, high)
    assert judge_change(high, low).startswith("Worse") and "fell by 40 points" in judge_change(high, low)
    assert judge_change(low, same).startswith("No change") and "−4 and 6 points" in judge_change(low, same)
    assert "not known" in judge_change(low, None) and "not known" in judge_change(None, None)
    assert "improved by 1.5 (" in judge_change(
        mean_interval([1, 1.1, 0.9]), mean_interval([2.5, 2.6, 2.4]), share=False
    )
    none, both = proportion(0, 2), proportion(2, 2)  # Newcombe's interval lies above 0, Fisher's p is .33
    assert "2 problems are too few to tell a difference of 100 points" in judge_change(none, both)
    assert "too small" in judge_change(mean_interval([1]), mean_interval([2]), share=False)


def test_no_folder_of_a_machine_stands_in_the_page(run, monkeypatch):
    """It can be passed on: what lies elsewhere is told by its last name, what lies beside the run as from there."""
    elsewhere = "/srv/group of somebody/problems.jsonl"
    monkeypatch.setattr(Path, "home", lambda: Path("/srv/group of somebody"))
    (run / "config.toml").write_text(values.to_toml({"data": elsewhere, "model": "/mnt/somebody/model", "seed": 0}))
    source = write_report(run).read_text()
    assert str(run.parent) not in source and "somebody" not in source
    assert "…/problems.jsonl" in source and "…/model" in source
    monkeypatch.chdir(run.parent)
    assert "the folder that holds the run" not in page(run_folder(Path("near"), steps=3, groups=2)).text


def test_what_is_known_against_the_held_out_problems_is_told(tmp_path):
    known = "12 of the 12 held-out prompts are training prompts too"
    text = page(run_folder(tmp_path / "run", steps=8, groups=2, caveat=known)).text
    assert f"{known}." in text and "not trained on" not in text
    assert "on the held-out problems, the model improved" in text


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ({"max_tokens": 99}, "--task chain --max-tokens 99"),
        ({"data": "my d.jsonl", "test_data": "t.jsonl", "seed": 0}, "--data 'my d.jsonl' --test-data t.jsonl"),
        ({"env": "guess.py:Guess", "seed": 3, "evaluate": 64}, "--env guess.py:Guess --seed 3 --n 64"),
    ],
)  # fmt: skip
def test_the_model_is_measured_on_the_problems_of_its_run(tmp_path, settings, flags):
    """In the report and in what `train` says last, by one command that `eval` takes."""
    folder = run_folder(tmp_path / "run", steps=8, groups=2)
    summary = json.loads((folder / "summary.json").read_text())
    model = summary["artifacts"]["policy"]
    command = f"palaestra eval --model {model} {flags} --k 8"
    (folder / "config.toml").write_text(values.to_toml(settings))
    assert command.replace(f"{tmp_path}/", "") in page(folder).text
    assert f"inspect  {command}" in farewell(summary, Settings(**settings), folder).splitlines()
    given = vars(parser_of("eval").parse_args(shlex.split(command)[2:]))
    assert {n: given["n" if n == "evaluate" else n] or 0 for n in settings} == settings and given["model"] == model


def test_a_full_disk_leaves_the_report_that_was_there(run, monkeypatch):
    write_report(run)
    before = {p.name: p.read_bytes() for p in run.iterdir() if p.is_file()}
    (run / "config.toml").write_text('recipe = "other"\n')
    before["config.toml"] = (run / "config.toml").read_bytes()
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    with pytest.raises(Fault, match=r"disk: writing .*: no space left"):
        write_report(run)
    assert {p.name: p.read_bytes() for p in run.iterdir() if p.is_file()} == before


def test_a_rise_in_training_alone_is_remarked(tmp_path):
    same = proportion(123, 512).json()
    folder = run_folder(tmp_path / "run", steps=40, groups=2, accuracy_before=same, accuracy_after=same)
    text = page(folder).text
    assert "held-out accuracy did not" in text and re.search(
        r"Half of the rise in reward was there after step \d+, ", text
    )


@pytest.mark.parametrize(("more", "n"), [({"skipped": 1.0}, 3), ({"policy/skipped": 1.0, "critic/skipped": 1.0}, 6)])
def test_updates_that_were_skipped_are_told(tmp_path, more, n):
    """Of one learner, and of several, whose metrics have a name before them."""
    folder = run_folder(tmp_path / "run", steps=9, groups=2)
    log = folder / "metrics.jsonl"
    records = [json.loads(line) for line in log.read_text().splitlines()]
    told = [r | (more if r["step"] in (2, 3, 7) and "evaluation" not in r else {}) for r in records]
    log.write_text("".join(json.dumps(r) + "\n" for r in told))
    assert f"{n} updates were skipped because they were not finite" in page(folder).text


def test_what_was_drawn_of_each_kind_is_told(run):
    """A kind that a step drew nothing of gave 0, and is no gap."""
    path = run / "metrics.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for i, record in enumerate(records):
        record |= {"drawn/easy": 1.0} if i < len(records) / 2 else {"drawn/easy": 0.25, "drawn/hard": 0.75}
    path.write_text("".join(f"{json.dumps(r)}\n" for r in records))
    text = page(run).text
    assert re.search(r"Prompts drawn from easy\s*100%\s*25%", text) and re.search(r"from hard\s*0%\s*75%", text)


def test_notable_rollouts_are_chosen_by_rule(run):
    rollouts = StepRollouts(run / "rollouts" / "step-000001.parquet").valid
    found = notable_rollouts(rollouts)
    assert list(found) == ["best", "typical", "worst"] and len({r.at for r in found.values()}) == 3
    assert found["best"].reward == 1 and found["worst"].reward == 0
    assert list(notable_rollouts([r for r in rollouts if r.reward == 1])) == ["typical"]
    assert notable_rollouts([]) == {} and list(notable_rollouts(rollouts[:1])) == ["typical"]
    group = instructive_group(rollouts)
    assert len({r.group for r in group}) == 1 and [r.reward for r in group] == sorted(
        (r.reward for r in group), reverse=True
    )


def test_colours_are_those_of_advantage_and_surprise():
    raw = [
        Raw(text="a", mine=True, logp=-0.01, advantage=2.0),
        Raw(text="b", mine=True, logp=-4.0, advantage=-0.5),
        Raw(text="x", mine=False, logp=None, advantage=None),
        Raw(text="y", mine=False, logp=None, advantage=None),
        Raw(text="\n", mine=True, logp=-1.0, advantage=0.0),
    ]
    tokens = colour_tokens(raw, scale=2.0)
    assert [(t.text, t.look) for t in tokens] == [
        ("a", "up4"),
        ("b", "down1 rare4"),
        ("xy", "other"),
        ("\n", "break rare2"),
    ]
    assert tokens[1].title == "probability 0.0183, advantage −0.5"
    assert colour_tokens(raw * 500, 2.0)[-1].look == "rest"
    assert escape_controls("a\x00\x7f\tb\n") == "a␀␡\tb\n"


def test_small_things():
    assert [duration(s) for s in (1.23, 48, 151, 11100)] == ["1.2 s", "48 s", "2 min 31 s", "3 h 5 min"]
    assert flatten_settings({"a": 1, "set": {"b.c": "x"}, "d": {"e": [1]}}) == [
        ("a", "1"),
        ("b.c", '"x"'),
        ("d.e", "[1]"),
    ]


def test_only_the_first_and_the_last_rollouts_are_read(tmp_path, monkeypatch):
    folder = run_folder(tmp_path / "run", steps=12, groups=2, files=12)
    opened = []
    real = pq.ParquetFile
    monkeypatch.setattr(pq, "ParquetFile", lambda path, **how: opened.append(path.name) or real(path, **how))
    begin = time.perf_counter()
    write_report(folder)
    print(f"report in {time.perf_counter() - begin:.2f} s")
    assert opened == ["step-000001.parquet", "step-000012.parquet"]


def test_calls_by_tool_and_by_turn_are_told(run):
    path = run / "metrics.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for i, record in enumerate(records):
        late = i >= len(records) / 2
        record |= {"tools/calls/add": 0.5 if late else 1.0, "tools/errors/add": 0.5 if late else 0.25}
        record |= {"tools/seconds/add": 0.125, "tools/turn/1/calls": 0.75, "tools/turn/4/calls": 0.1}
    path.write_text("".join(f"{json.dumps(r)}\n" for r in records))
    text = page(run).text
    assert re.search(r"Calls of add an answer\s*1\.00\s*0\.50", text)
    assert re.search(r"Calls of add that gave an error\s*25%\s*50%", text)
    assert re.search(r"Seconds of a call of add\s*0\.125\s*0\.125", text)
    assert "Calls in turn 1 an answer" in text and "turn 4" not in text

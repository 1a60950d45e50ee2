"""The programs of docs/beside.md run as they stand there, at smoke size; their lines are as many as its tables say.

Models and data sets of the hub are folders of the same names, with rows of the same columns.
"""

import functools
import json
import re
import runpy
import shlex
from pathlib import Path

import palaestra as pl
import pytest
from palaestra import catalogue, values
from palaestra.cli.main import main, parser_of
from palaestra.cli.train import read_settings
from palaestra.models.load import OWN_MODELS
from palaestra.settings import overrides
from tools.beside.page import SOURCES, count_lines, count_page

from tests.chat_server import serving

PAGE = (Path(__file__).parents[2] / "docs" / "beside.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, re.DOTALL)
FILES = {m[1]: code for _, code in BLOCKS if (m := re.match(r"# (\S+\.py)\n", code))}
COMMANDS = [
    line
    for kind, code in BLOCKS
    if not kind
    for line in code.splitlines()
    if "config --from" not in line  # tests/cli/test_config.py
]
MODELS = set(re.findall(r"(?:--model |model=\")(Qwen/[\w.-]+)", PAGE))
SUMS = [(f"{a}+{b} mod 10", str((a + b) % 10)) for a in range(4) for b in range(5)]


def said(user, assistant):
    return [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]


ROWS = {
    "HuggingFaceH4/Polaris-Dataset-53K": [{"problem": q, "answer": a} for q, a in SUMS],
    "trl-lib/DeepMath-103K": [{"prompt": said(q, "")[:1], "solution": f"${a}$"} for q, a in SUMS],
    "trl-lib/ultrafeedback_binarized": [
        {"chosen": said(q, f"= {a}"), "rejected": said(q, "= x"), "score_chosen": 9.0, "score_rejected": 2.0}
        for q, a in SUMS
    ],
    "kalomaze/alphabetic-arxiv-authors-it1": [{"names": [f"Ada{x}Li", f"Bo{x}", f"Cy{x}Du", "Eva"]} for x in "UVWXYZ"],
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, rows in ROWS.items():
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "Qwen").mkdir()
    for name in MODELS:
        (tmp_path / name).symlink_to(OWN_MODELS["tiny"](), target_is_directory=True)
    (tmp_path / "facts.json").write_text(json.dumps({"ada lovelace": "programs", "alan turing": "machines"}))
    monkeypatch.setattr(pl, "train", functools.partial(pl.train, smoke=True, out="run"))
    with serving(lambda body: "Surely. [[YES]]") as (book, url):
        for name, code in FILES.items():
            (tmp_path / name).write_text(code.replace("http://localhost:8000/v1", url))
        yield book


@pytest.mark.parametrize("command", COMMANDS)
def test_command(command, place, capsys):
    if "sort_names" in command:
        pytest.importorskip("datasets")
    verb, *argv = shlex.split(command)
    if verb == "python":
        runpy.run_path(argv[0])
    else:
        assert main([*argv, "--smoke", "--out", "run"]) == 0, capsys.readouterr().err
    steps = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    logged = set().union(*steps)
    assert ("tools/calls" in logged) == any(x in command for x in ("tools", "glossary", "counter"))
    if "judged" in command:
        assert {s["reward"] for s in steps if "reward" in s} <= {0.0, 1.0} and "part/judge" in logged
        assert "Question: What is 2+2?\nAnswer: 4\n" in place.seen[0]["messages"][-1]["content"]
    if "dpo" in command or "reward-model" in command:
        assert "ranking_before" in json.loads(Path("run/summary.json").read_text())


def test_every_file_is_run_and_every_model_is_a_stand_in():
    assert all(any(name in command for command in COMMANDS) for name in FILES)
    assert MODELS and all(name in MODELS for name in re.findall(r"Qwen/[\w.-]+", PAGE))


def test_the_tables_count_what_stands_on_the_page():
    """Ours; the others' lines are in their repositories, which the tool reads."""
    ours = count_page(PAGE)
    table = PAGE.split("<!-- lines:")[1].split("<!-- end of lines")[0]
    rows = {int(r[1]): r[0].split("|")[2:-1] for r in re.finditer(r"^\| (\d)\. .*$", table, re.MULTILINE)}
    column = {"trl": 1, "verifiers": 3}
    assert set(rows) == {task for task, _ in ours} == {1, 2, 3, 4, 5}
    for (task, of), counts in ours.items():
        assert rows[task][column[of]].split()[0] == str(counts.total())
    whole = PAGE.split("<!-- programs:")[1].split("<!-- end of programs")[0]
    shown = [r.split("|")[-2].strip() for r in whole.splitlines() if "| Palaestra |" in r]
    assert shown == [str(ours[p["task"], p["of"]].total()) for p in SOURCES["program"] if (p["task"], p["of"]) in ours]


@pytest.mark.parametrize(
    ("text", "kind", "counts"),
    [
        ("import a  # why\n\n\n# no\nb = a\n", "python", {"python": 2}),
        ("f(\n    1,\n    2,\n)\n", "python", {"python": 1}),
        (
            'def f():\n    """One.\n\n    Two.\n    """\n    return """x\n\n    y"""\n',
            "python",
            {"python": 3, "docstrings": 3},
        ),
        ("[a]\n\n# no\nb = 1\n", "configuration", {"configuration": 2}),
        ("# no\ngo \\\n  --fast\nstop\n", "commands", {"commands": 2}),
    ],
)
def test_the_rule_of_counting(text, kind, counts):
    assert {k: n for k, n in count_lines(text, kind).items() if n} == counts


def test_the_words_of_others_are_settings_of_a_run():
    table = PAGE.split("## Words of TRL and verl\n")[1].split("\n## ")[0]
    ours = [
        x for line in table.splitlines() if line.startswith("| ") for x in re.findall(r"`(.*?)`", line.split(" | ")[2])
    ]
    words = [w for x in ours if "=" in x or x.startswith("--") for w in x.split()]
    assert len(words) > 20
    settings = read_settings(parser_of("train").parse_intermixed_args(["grpo", *words]))
    recipe = overrides.recipe_of(settings)
    assert (recipe.schedule.prompts, recipe.collect.links[0].n, settings.max_tokens) == (16, 8, 256)


SAME = PAGE.split("## The same losses in other trainers\n")[1].split("\n## ")[0]
HERE = [x for line in SAME.splitlines() if line.startswith("| ") for x in re.findall(r"`(.*?)`", line.split(" | ")[2])]


def test_every_loss_that_the_table_names_is_built():
    """A command as it is typed, or a part of `pl`; each of them is another recipe."""
    built = [x for x in HERE if x != "mio"]
    parts = [x for x in built if "pl." in x]
    commands = [x for x in built if x not in parts and x != "here"]
    assert len(commands) > 30 and len(parts) == 1
    recipes = []
    for command in commands:
        settings = read_settings(parser_of("train").parse_intermixed_args(shlex.split(command)))
        recipes.append(json.dumps(values.describe(overrides.recipe_of(settings)), sort_keys=True))
    assert len(set(recipes)) == len(set(commands))
    names = re.compile(r"pl\.objective\.(\w+)\(beta=0\.1\)")
    assert [getattr(pl.objective, names.search(x)[1])(beta=0.1).beta for x in parts] == [0.1]


def test_every_loss_by_name_is_in_the_table():
    named = {x.split()[0] for x in HERE}
    assert {e.id for e in catalogue.all_entries() if e.family == catalogue.LOSSES} <= named

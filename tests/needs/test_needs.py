"""What a method needs: as data, as words, and checked before a model is loaded."""

import json
import re
import shlex
from types import SimpleNamespace

import palaestra
import palaestra as pl
import pytest
from palaestra import catalogue
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.needs.declared import NeededColumn, NeededModel, NeededPlace, Requirements, fits, holds, truth_of
from palaestra.needs.describe import lines, own_command, pointer, quote
from palaestra.needs.rows import template
from palaestra.run.study import verb_of
from palaestra.run.unmet import idle_model, is_there, needs_under, too_few, unjudged, unmet_columns
from palaestra.settings.fields import Settings
from palaestra.types import Message, Task

BUILT = [e.id for e in catalogue.all_entries() if e.built]
HINT = NeededColumn("hint", "text", ("a", "b"), "a hint", when={"kind": ("cue",)})
TEACHER = NeededModel("teacher", "teacher", "teaches")
NEEDS = Requirements(
    columns=(HINT,), models=(TEACHER,), places=(NeededPlace("tools", "that search"),), least={"tasks": 4}, shows="kl"
)


@pytest.mark.parametrize(
    "value, kind, fitting",
    [
        ("a", "text", True), (3, "text", False), (3, "number", True), (True, "number", False), ("3", "number", False),
        (True, "true or false", True), (1, "true or false", True), (2, "true or false", False),
        ("False", "true or false", True), (" no", "true or false", True), ("maybe", "true or false", False),
        (["a"], "texts", True), (["a", 1], "texts", False), ("a", "texts", False), ([1, 2.5], "numbers", True),
        ([{"role": "user"}], "messages", True), (["a"], "messages", False), ({}, "record", True), (None, "any", True),
    ],
)  # fmt: skip
def test_values_fit_their_declared_type(value, kind, fitting):
    assert fits(value, kind) is fitting


def test_a_cell_of_a_table_is_true_or_false():
    assert [truth_of(x) for x in (True, 0, 1.0, "TRUE", "no", " 0 ")] == [True, False, True, True, False, False]
    assert [truth_of(x) for x in (None, 2, "", "maybe", [True])] == [None] * 5


def test_a_template_has_an_example_in_every_column_that_is_read():
    assert template(NEEDS, {"kind": "cue"}) == [{"hint": "a"}, {"hint": "b"}, {"hint": "a"}]
    assert template(NEEDS, {"kind": "written"}) == [{}, {}, {}]
    assert holds({}, {}) and not holds({"kind": ("cue",)}, {"kind": "other"})


def test_the_command_and_the_words_name_all_that_is_required():
    assert own_command("m", NEEDS, {"kind": "cue"}) == (
        "palaestra train m --data FILE.jsonl teacher=DIR --tools FILE.py:NAME --model DIR"
    )
    text = "\n".join(lines("m", NEEDS, {"kind": "cue"}))
    assert all(word in text for word in ("hint", "teaches", "that search", "at least 4 tasks", "kl"))


def test_a_shell_reads_the_command_that_is_printed():
    """Brackets outside of quotes are a syntax error of a shell."""
    needs = pl.needs.Requirements(models=(pl.needs.chat_model("judge", "judge", "judges"),))
    words = shlex.split(own_command("m", needs, {}), posix=True)
    assert (
        words[:3] == ["palaestra", "train", "m"] and "judge=endpoint(url='http://HOST:PORT/v1',model='NAME')" in words
    )
    bare = re.sub(r'"[^"]*"', "", own_command("m", needs, {}))
    assert not {*"()'"} & {*bare}
    assert quote("--env competition(DIR)") == '--env "competition(DIR)"' and quote("teacher=DIR") == "teacher=DIR"


def test_every_method_says_what_it_needs_and_its_examples_are_of_their_types():
    wrong = []
    for name in BUILT:
        needs = catalogue.find(name).CARD.needs
        wrong += [f"{name}: {c.name}" for c in needs.columns for x in c.examples if not fits(x, c.type)]
        wrong += [f"{name}: {c.name} has no example" for c in needs.columns if not c.examples]
        takes = catalogue.find(name).build.__annotations__
        wrong += [f"{name}: no argument {m.argument}" for m in needs.models if m.argument not in takes]
        named = [n for need in (*needs.columns, *needs.models, *needs.places) for n in need.when]
        wrong += [f"{name}: no argument {n}" for n in named if n not in takes]
        of = [c.name for c in needs.columns]
        wrong += [f"{name}: no column {c.or_else}" for c in needs.columns if c.or_else and c.or_else not in of]
    assert not wrong


@pytest.mark.parametrize(
    ("columns", "lacks"), [(["hint"], 0), (["demonstration"], 0), (["hint", "demonstration"], 0), ([], 1)]
)
def test_one_of_two_columns_is_enough(columns, lacks):
    needs = catalogue.find("guide").CARD.needs
    asked = (Message(role="user", content="1+0"),)
    task = Task(id="0", prompt=asked, answer="1", meta=dict.fromkeys(columns, "carry the one"))
    bench = SimpleNamespace(tasks=SimpleNamespace(size=1, task=lambda split, i: task))
    found = list(unmet_columns(needs, Settings(recipe="guide", data="rows.jsonl"), bench, {"guidance": "hint"}))
    assert len(found) == lacks
    assert not list(unmet_columns(needs, Settings(recipe="guide", data="rows.jsonl"), bench, {"guidance": "answer"}))
    assert "required, or the column demonstration" in "\n".join(lines("guide", needs, {"guidance": "hint"}))


def test_the_verb_prints_them_and_writes_a_template(tmp_path, capsys):
    file = tmp_path / "rows.jsonl"
    assert main(["needs", "dpo", "pairs=data", "--template", str(file), "--json"]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [c["name"] for c in said["columns"]] == ["prompt", "chosen", "rejected"]
    assert said["costs"]["models"] == ["ref"] and said["costs"]["measured"] == ["ref logp"]
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(rows) == 3 and all(set(r) == {"prompt", "chosen", "rejected"} for r in rows)
    assert main(["needs", "dpo", "--template", str(file)]) == 2 and "is there already" in capsys.readouterr().err
    assert main(["needs", "dpo", "sides=2"]) == 2 and "no argument 'sides'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "method, said",
    [
        ("gigpo", 'takes --env FILE.py:NAME .*environment.*`palaestra init gigpo FOLDER` writes one.*--task "grid"'),
        ("spiral", 'takes --env FILE.py:NAME \\(game\\); `palaestra init spiral FOLDER` writes one.*--task "kuhn"'),
        (
            "lare",
            "takes --env FILE.py:NAME .*`palaestra guide init SIM` describes one.*without it: cooperative navigation",
        ),
        ("metacipher", "takes guard=DIR \\(guard\\); `palaestra needs metacipher`"),
        ("egd-attack", "takes --model DIR alone"),
    ],
)
def test_a_method_without_rows_points_to_what_it_takes(method, said, tmp_path, capsys):
    assert main(["needs", method, "--template", str(tmp_path / "x")]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert re.search(said, line) and not (tmp_path / "x").exists()


def test_every_method_has_a_template_or_a_pointer():
    for method in BUILT:
        needs, _, given = needs_under(method, {})
        assert template(needs, given)[0] or pointer(method, needs, given).startswith("it takes "), method


PAIRS = [{"prompt": f"{i}+1", "chosen": str(i + 1), "rejected": "0"} for i in range(12)]
LABELS = [{"prompt": f"{i}+1", "response": str(i), "right": i % 2 == 0} for i in range(12)]
PLAIN = [{"prompt": f"{i}+1", "answer": str(i + 1)} for i in range(12)]
RUBRICS = [{"prompt": f"Praise {i}.", "criteria": ["It is kind."]} for i in range(12)]
JUDGE = {"judge": "endpoint(url='http://127.0.0.1:1/v1',model='m')"}


@pytest.mark.parametrize(
    "method, rows, words, said",
    [
        ("kdrl", PLAIN, {}, "kdrl needs a teacher, which gives .*: teacher=DIR; anyway=True"),
        ("gigpo", PLAIN, {}, 'gigpo needs an environment, .*env="FILE.py:NAME" or tools="FILE.py:NAME", or task grid; any'),
        ("spa-rl", PLAIN, {}, "spa-rl needs an environment, of several turns"),
        ("embodied-planner-r1", PLAIN, {}, "embodied-planner-r1 needs an environment, which pays"),
        ("loop", PLAIN, {}, "loop needs an environment, which is acted in"),
        ("igpo", PLAIN, {}, "igpo needs tools, whose results"),
        ("guide", PLAIN, {}, "guide needs the column 'hint', .*, or the column 'demonstration', and no record"),
        ("rlgf", PLAIN, {}, "rlgf needs a guide, which begins .*: guide=DIR; anyway=True"),
        ("carft", PLAIN, {}, "carft needs the column 'demonstration'"),
        ("ghpo", PLAIN, {}, "ghpo needs the column 'demonstration'"),
        ("rl-plus", PLAIN, {}, "rl-plus needs the column 'demonstration'"),
        ("ampo", PLAIN, {}, "ampo needs the column 'demonstrations', right replies"),
        ("ruscarl", RUBRICS, {}, "ruscarl needs a judge, which says of each criterion .*: judge=endpoint"),
        ("ruscarl", PLAIN, JUDGE, "ruscarl needs the column 'criteria'"),
        ("ruscarl", [{**r, "points": 2} for r in RUBRICS], JUDGE, "ruscarl reads the column 'points' .* as numbers"),
        ("mio", PAIRS, {}, "mio samples answers .* no record of .* pairs=data learns from its column 'chosen'"),
        ("dpo", PAIRS, {}, "dpo samples answers .* pairs=data learns from its column 'chosen'"),
        ("oreo", LABELS, {}, "oreo samples answers .* answers=data learns from its column 'response'"),
        ("dpo", [{**r, "chosen_reply": "2"} for r in PLAIN], {"pairs": "data"},
         "needs the column 'chosen', .* columns=.chosen_reply=chosen. says"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said_in_one_line_before_anything_is_made(method, rows, words, said, tmp_path, monkeypatch):
    import palaestra
    from palaestra.run import setup

    def unloaded(*given, **more):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(setup, "load", unloaded)
    file, out = tmp_path / "rows.jsonl", tmp_path / "run"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    with pytest.raises(UserError, match=said) as refused:
        palaestra.train(method, data=file, out=out, set=words, quiet=True)
    assert "\n" not in str(refused.value) and not out.exists()


def test_an_argument_as_text_is_read_before_needs_are_looked_up(tmp_path):
    """`true` on the command line is True, which `when` names."""
    import palaestra

    method = tmp_path / "mine.py"
    method.write_text(
        """import palaestra as pl
needs = pl.needs.Requirements(columns=(pl.needs.PROMPT, pl.needs.NeededColumn(
    "hint", "text", ("a",), "a hint", when={"hinted": (True,)})))
CARD = pl.Card(title="mine", needs=needs)
def build(hinted: bool = False) -> pl.Recipe:
    return pl.recipe("grpo")
"""
    )
    with pytest.raises(UserError, match="needs the column 'hint'"):
        palaestra.train(str(method), data=PLAIN, out=tmp_path / "run", set={"hinted": "true"}, quiet=True)


def test_anyway_goes_on(tmp_path):
    import palaestra

    run = palaestra.train("kdrl", data=PLAIN, out=tmp_path / "run", steps=1, evaluate=0, anyway=True, quiet=True)
    assert "anyway = true" in (run.folder / "config.toml").read_text()


def test_a_column_of_another_name_is_read_as_what_the_method_calls_it(tmp_path):
    from palaestra.tasks.files import first_tasks

    file = tmp_path / "rows.jsonl"
    file.write_text('{"prompt": "2+3", "answer": "5", "rubric": ["short"]}\n')
    assert first_tasks(str(file), 1, "rubric=meta.criteria")[0].meta["criteria"] == ["short"]
    with pytest.raises(UserError, match=r"neither side.*or rubric=meta\.criteria for any other column"):
        first_tasks(str(file), 1, "rubric=criteria")


@pytest.mark.parametrize("method", ["gigpo", "spa-rl", "embodied-planner-r1", "loop", "igpo"])
@pytest.mark.parametrize(
    "given, there",
    [
        ({"env": "world.py:World"}, True),
        ({"data": "rows.jsonl", "tools": "search.py:search"}, True),
        ({"task": "hop"}, True),
        ({"data": "rows.jsonl"}, False),
        ({"task": "chain"}, False),
        ({"data": "rows.jsonl", "reward": "mine.py:judge"}, False),
    ],
)
def test_what_acts_in_turns_takes_an_environment_or_tools_of_the_users(method, given, there):
    (place,) = catalogue.find(method).CARD.needs.places
    assert is_there(place, Settings(recipe=method, **given)) is there


def test_every_way_to_give_a_place_is_said_where_people_choose_and_one_in_the_command():
    needs = Requirements(columns=(), places=(NeededPlace("environment", "of turns", also=("tools",)),))
    text = "\n".join(lines("m", needs, {}))
    assert "environment, --env FILE.py:NAME or --tools FILE.py:NAME: of turns" in text
    assert own_command("m", needs, {}) == "palaestra train m --env FILE.py:NAME --model DIR"
    assert verb_of(pl.recipe("grpo")) == "train" and own_command("m", needs, {}, verb_of(pl.recipe("math-beyond"))) == (
        "palaestra study m --env FILE.py:NAME --model DIR"
    )


@pytest.mark.parametrize(
    "rows, reward, arguments, said",
    [
        (PAIRS, "", {"pairs": "rollouts"}, True),
        (PAIRS, "mine.py:judge", {"pairs": "rollouts"}, False),  # which judges what is sampled
        (PAIRS, "", {"pairs": "data"}, False),
        ([{**r, "answer": "1"} for r in PAIRS], "", {"pairs": "rollouts"}, False),
        ([{"prompt": "1+1"}], "", {"pairs": "rollouts"}, False),
    ],
)
def test_pairs_that_nobody_reads_are_named_where_nothing_judges_samples(rows, reward, arguments, said):
    tasks = [Task(id=str(i), answer=r.get("answer"), meta=r) for i, r in enumerate(rows)]
    source = SimpleNamespace(size=len(tasks), task=lambda split, i: tasks[i])
    settings = Settings(recipe="mio", data="pairs.jsonl", reward=reward)
    needs = catalogue.find("mio").CARD.needs
    found = list(unjudged(needs, settings, SimpleNamespace(tasks=source), arguments))
    assert bool(found) is said and all("pairs=data" in line for line in found)


@pytest.mark.parametrize(("task", "refused"), [("add", True), ("knights(d=1)+knights(d=2)", False)])
def test_parts_of_a_mixture_are_domains(task, refused, context):
    needs = catalogue.find("dump").CARD.needs
    assert bool(list(too_few(needs, context(task).bench))) is refused


@pytest.mark.parametrize("method", ["grpo", "sft", "dpo"])
def test_pairs_that_nobody_compared_are_no_answers(method, tmp_path):
    """They passed the check, and a run stopped at its first evaluation or step."""
    file = tmp_path / "pairs.jsonl"
    rows = [{"prompt": f"{i}+1=", "first": f"= {i + 1}", "second": f"= {i + 2}"} for i in range(12)]
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    with pytest.raises(UserError, match=f"{method} learns from answers, and .* label=terminal"):
        palaestra.train(method, data=str(file), out=tmp_path / "run", steps=1, quiet=True)


def test_a_model_that_would_not_learn_is_refused_unless_it_is_the_one_that_is_asked(capsys):
    """DIR was loaded and left alone where the user meant the model that writes rewards."""
    needs, settings = catalogue.find("lero").CARD.needs, Settings(recipe="lero", model="DIR")
    (said,) = idle_model(needs, settings, {"asked": None})
    assert "no language model learns" in said and "--llm DIR" in said
    own = pl.services.client_from_text("policy", "asked")[0]
    assert not list(idle_model(needs, settings, {"asked": own}))
    assert not list(idle_model(needs, Settings(recipe="lero"), {"asked": None}))
    assert "--model" not in own_command("lero", needs, {"asked": None})

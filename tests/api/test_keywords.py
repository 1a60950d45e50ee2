"""Settings as keywords: for type checkers what they are for the command line, and messages that speak of them."""

# ruff: noqa: E501  one line a case

import inspect
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import palaestra as pl
import pytest
from palaestra.cli.flags import FLAGS
from palaestra.errors import Paused, UserError
from palaestra.run.given_rows import take_rows
from palaestra.settings.fields import Settings
from palaestra.settings.flags import FlagParser
from palaestra.settings.keywords import (
    CompareKeywords,
    Data,
    EvaluateKeywords,
    File,
    RewardLike,
    ToolsLike,
    TrainKeywords,
    keyword_text,
)
from palaestra.settings.reading import check_types

WIDER = {  # settings that a program may give in other forms: what they are, and some of these
    "data": (Data, ["d.jsonl", Path("d.jsonl"), [{"prompt": "a"}], {"train": [{"prompt": "a"}]}]),
    "test_data": (Data, ["d.jsonl", Path("d.jsonl"), [{"prompt": "a"}]]),
    "model": (File, ["tiny", Path("folder")]),
    "env": (File, ["e.py:E", Path("e.py:E")]),
    "docs": (File, ["notes", Path("notes")]),
    "graph": (File, ["facts.tsv", Path("facts.tsv")]),
    "reward": (
        RewardLike,
        [
            "math",
            pl.verifiers.boxed_answer,
            ["math", pl.verifiers.boxed_answer],
            {"math": 2.0, pl.verifiers.boxed_answer: 1},
        ],
    ),
    "tools": (ToolsLike, ["python", pl.verifiers.boxed_answer, ["python", pl.verifiers.boxed_answer]]),
    "columns": (get_type_hints(TrainKeywords)["columns"], ["q=prompt", {"q": "prompt", "gold": "answer"}]),
    "track": (get_type_hints(TrainKeywords)["track"], ["trackio", ["trackio", "wandb"]]),
    "exams": (get_type_hints(TrainKeywords)["exams"], ["knights", ["knights", "add(d=4)"]]),
}


def test_each_keyword_has_the_type_of_its_setting():
    settings, keywords = get_type_hints(Settings), get_type_hints(TrainKeywords)
    assert keywords.keys() == settings.keys() - {"recipe", "embedded"}
    assert keywords == {n: WIDER[n][0] if n in WIDER else t for n, t in settings.items() if n in keywords}
    assert {n: keywords[n] for n in get_type_hints(EvaluateKeywords)} == get_type_hints(EvaluateKeywords)
    files = dict.fromkeys(("data", "test_data"), File)  # rows are in this process only
    assert {n: keywords[n] for n in get_type_hints(CompareKeywords)} | files == get_type_hints(CompareKeywords)


@pytest.mark.parametrize("name", WIDER)
def test_what_a_keyword_may_be_is_taken(name):
    for given in WIDER[name][1]:
        taken = {name: given}
        take_rows(taken)
        Settings(**check_types(taken))


def test_a_verb_and_its_function_take_the_same_settings():
    for verb, keywords in (("train", TrainKeywords), ("eval", EvaluateKeywords), ("compare", CompareKeywords)):
        parser = FlagParser()
        FLAGS[verb](parser)
        flags = {a.dest for a in parser._actions} & {f.name for f in fields(Settings)}
        own = {"eval": {"model"}, "compare": {"seed"}}.get(verb, set())  # a parameter, and what seeds stand for
        assert get_type_hints(keywords).keys() - {"set"} == flags - own


@pytest.mark.parametrize(
    ("call", "keywords"),
    [(pl.train, TrainKeywords), (pl.evaluate, EvaluateKeywords), (pl.compare, CompareKeywords)],
)
def test_functions_say_which_keywords_they_take(call, keywords):
    assert inspect.get_annotations(call)["settings"] == f"Unpack[{keywords.__name__}]"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: pl.train(step=3), "unknown setting 'step'; did you mean steps"),
        (lambda: pl.train(quite=True), "unknown setting 'quite'; did you mean quiet"),
        (lambda: pl.train(recipes={}), "unknown setting 'recipes'"),
        (lambda: pl.evaluate("tiny", kk=4), r"unknown setting 'kk'; did you mean k\?"),
        (
            lambda: pl.evaluate("tiny", rollouts="none"),
            "unknown setting 'rollouts'",
        ),
        (lambda: pl.compare("grpo", "rloo", seed=3), r"unknown setting 'seed'; did you mean seeds or data_seed\?"),
    ],
)
def test_a_keyword_that_is_none(call, said):
    with pytest.raises(UserError, match=said):
        call()


ROW = {"prompt": "1+1?", "answer": "2"}
TEXTS = {  # what is raised to a program: the call, and what it says
    "rows to hold out": (lambda: pl.train(data=[ROW], quiet=True), r"1 record, so nothing can be held out; add records, or give test_data$"),
    "columns": (lambda: pl.evaluate(data=[{"text": "1", "answer": "2"}]), r'no \'prompt\'.*; say which column it is, columns="text=prompt"'),
    "a choice of columns": (lambda: pl.evaluate(data=[{"query": "1", "problem": "2"}]), r'say which, columns="problem=prompt"$'),
    "a bound": (lambda: pl.train(reward_timeout=0), "^reward_timeout must be at least 1"),
    "a rollout": (lambda: pl.train(rollouts="some"), "^rollouts is all, none, or sample:N"),
    "a run that is none": (lambda: pl.train(resume="nowhere"), "^resume nowhere: no such folder"),
    "two problems": (lambda: pl.train(task="chain", env="e.py:E"), "^task and env exclude each other"),
    "no groups": (lambda: pl.explain("grpo"), r"^explain takes groups of rewards, rewards=\[\[1, 0, 0, 0\]\], or of"),
    "groups that are none": (lambda: pl.explain("grpo", rewards=[]), "^rewards must be a list of groups"),
    "lengths of others": (lambda: pl.explain("grpo", rewards=[[1, 0]], lengths=[[1]]), "^lengths must have the shape of rewards"),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_a_program_reads_of_keywords(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, said = TEXTS[name]
    with pytest.raises(UserError, match=said) as error:
        call()
    assert "--" not in str(error.value) and "\n" not in str(error.value)


def test_commands_stay_as_they_are():
    command = "mend it, then go on with: palaestra train --resume runs/a"
    assert keyword_text(command) == command
    assert keyword_text("go on: --accept-changes; see `palaestra score --list`, or --out") == (
        "go on: accept_changes=True; see `palaestra score --list`, or out"
    )
    assert keyword_text("run docker with --security-opt x") == "run docker with --security-opt x"
    assert keyword_text("(--reward my.py:f*0.5)") == '(reward="my.py:f"*0.5)'


def test_the_kind_of_a_mistake_stays(monkeypatch):
    def pause(*_, **__):
        raise Paused("every episode failed; see --reward")

    monkeypatch.setattr("palaestra.api.asking.evaluate_given", pause)
    with pytest.raises(Paused, match=r"see reward$"):
        pl.evaluate()


@pytest.mark.parametrize(("quiet", "said"), [({}, "compare  0/2\n"), ({"quiet": True}, "")])
def test_a_comparison_says_how_far_it_is_unless_it_is_to_be_quiet(quiet, said, tmp_path, monkeypatch, capsys):
    def cells(read, headway, **_):
        headway.expect(len(read))
        return {}, {}

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("palaestra.api.asking.compare_cells", cells)
    pl.compare("grpo", "rloo", **quiet)
    assert capsys.readouterr() == ("", said)

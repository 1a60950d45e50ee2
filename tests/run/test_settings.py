"""A setting is written once: flags, files and programs read it from the fields of `Settings`."""

from dataclasses import asdict, fields, replace

import pytest
from palaestra.cli.flags import FLAGS
from palaestra.cli.flags import train as train_flags
from palaestra.cli.main import parser_of
from palaestra.cli.train import read_settings
from palaestra.errors import UserError
from palaestra.run import setup
from palaestra.run.plan import Plan
from palaestra.schedule import read as read_schedule
from palaestra.schedule import settling_step
from palaestra.settings import overrides, reading
from palaestra.settings.fields import DriveSettings, Settings, Use, flag_of, setting_names
from palaestra.settings.flags import FlagParser, help_of
from palaestra.settings.reading import write_settings

OTHER = {  # than the default, of each setting, as a flag's text and as a value
    "task": ("count", "count"),
    "data": ("d.jsonl", "d.jsonl"),
    "test_data": ("t.jsonl", "t.jsonl"),
    "cluster": ("2", "2"),
    "columns": ("q=prompt", "q=prompt"),
    "skip_bad": ("3", "3"),
    "max_prompt_tokens": ("90", 90),
    "overlong": ("cut", "cut"),
    "max_pixels": ("5000", 5000),
    "max_frames": ("8", 8),
    "max_duration": ("2.5", 2.5),
    "reward": ("exact", "exact"),
    "env": ("e.py:E", "e.py:E"),
    "goal": ("stay upright", "stay upright"),
    "llm": ("transcript:t.jsonl", "transcript:t.jsonl"),
    "docs": ("notes", "notes"),
    "graph": ("facts.tsv", "facts.tsv"),
    "reward_timeout": ("12", 12),
    "tools": ("t.py:f,python", ("t.py:f", "python")),
    "tool_turns": ("3", 3),
    "tool_seconds": ("2.5", 2.5),
    "tool_chars": ("9", 9),
    "break_tool": ("f=0.5@2", "f=0.5@2"),
    "agent": ("python a.py", "python a.py"),
    "agent_seconds": ("2.5", 2.5),
    "agent_keep": (None, True),
    "agent_processes": ("9", 9),
    "model": ("smollm2", "smollm2"),
    "dtype": ("bfloat16", "bfloat16"),
    "device": ("cpu", "cpu"),
    "lora": ("8", 8),
    "lora_alpha": ("4", 4),
    "lora_targets": ("q_proj", "q_proj"),
    "load_in_4bit": (None, True),
    "optim": ("adamw_8bit", "adamw_8bit"),
    "engine": ("vllm", "vllm"),
    "tis": ("2", 2.0),
    "slots": ("7", 7),
    "cache_mb": ("9", 9),
    "recompute": (None, True),
    "activation_offloading": (None, True),
    "max_tokens": ("5", 5),
    "steps": ("3", 3),
    "seed": ("4", 4),
    "data_seed": ("4", 4),
    "evaluate": ("6", 6),
    "exams": ("knights", ("knights",)),
    "evaluate_every": ("2", 2),
    "checkpoint_every": ("8", 8),
    "keep_best": ("accuracy", "accuracy"),
    "patience": ("3", 3),
    "keep": ("5", 5),
    "merged": (None, True),
    "rollouts": ("sample:12", "sample:12"),
    "track": ("trackio", ("trackio",)),
    "track_seconds": ("11", 11),
    "anyway": (None, True),
}


def read(*argv):
    parser = FlagParser()
    train_flags(parser)
    return read_settings(parser.parse_intermixed_args(argv))


def test_every_setting_but_the_words_is_a_flag_and_none_is_left_out_here():
    assert {f.name for f in fields(Settings)} == OTHER.keys() | {"recipe", "set", "embedded"}


@pytest.mark.parametrize("name", OTHER)
def test_flag_file_and_program_say_the_same(name, tmp_path):
    word, given = OTHER[name]
    settings = read(flag_of(name), *([word] if word else []))
    assert getattr(settings, name) == given != getattr(Settings(), name)
    assert settings == overrides.merge(Settings(), reading.check_types({name: given}))
    # without which a file does not name their seconds and limits
    kept = replace(
        settings, track=("trackio",), tools=settings.tools or ("python",), agent=settings.agent or "python a.py"
    )
    write_settings(tmp_path, kept, overrides.recipe_of(kept))
    again = reading.from_file(tmp_path / "config.toml")
    assert getattr(overrides.merge(Settings(), again), name) == getattr(kept, name)
    assert asdict(overrides.merge(Settings(), again)) | {"set": {}} == asdict(kept) | {"set": {}}


def test_a_flag_of_several_values_may_stand_several_times():
    assert read("--track", "trackio", "--track", "wandb:mine").track == ("trackio", "wandb:mine")


def test_a_bound_holds_on_the_command_line_and_in_a_program():
    for name in (f.name for f in fields(Settings) if f.metadata.get("least") is not None):
        with pytest.raises(UserError, match=f"{flag_of(name)} must be at least"):
            read(flag_of(name), "-1")
        with pytest.raises(UserError, match=f"{flag_of(name)} must be at least"):
            Settings(**{name: -1})


def test_the_help_says_what_stands_where_a_setting_is_not_given():
    said = {f.name: help_of(f).partition(" (default: ")[2].rstrip(")") for f in fields(Settings) if f.metadata}
    assert (said["evaluate"], said["seed"], said["tis"], said["max_tokens"]) == ("512", "0", "0 = no", "0 = the task's")
    assert (said["task"], said["steps"], said["model"], said["data"]) == ("chain", "the recipe's", "tiny", "")


def test_what_a_setting_decides():
    assert setting_names(Use.PROBLEM) == ("task", "data", "test_data", "columns", "reward", "env", "docs", "graph")
    assert setting_names(Use.MAKE) == ("recipe", "model", "lora", "optim", "tis", "embedded")
    assert setting_names(Use.KEPT) == (
        *("recipe", "model", "dtype", "lora", "lora_alpha", "lora_targets", "load_in_4bit", "optim", "seed"),
        "data_seed",
    )
    assert setting_names(Use.MEASURED) == (
        *(
            "task",
            "data",
            "test_data",
            "columns",
            "skip_bad",
            "max_prompt_tokens",
            "overlong",
            "max_pixels",
            "max_frames",
            "max_duration",
            "reward",
            "env",
            "docs",
        ),
        *(
            "graph",
            "tools",
            "tool_turns",
            "tool_seconds",
            "tool_chars",
            "break_tool",
            "agent",
            "agent_seconds",
            "agent_keep",
        ),
        *("dtype", "max_tokens", "seed", "evaluate"),
    )
    assert {"recompute", "engine", "steps"} < set(setting_names(Use.REPEATED)) and "seed" not in setting_names(
        Use.REPEATED
    )


def test_columns_may_be_a_mapping():
    assert reading.check_types({"columns": {"q": "prompt", "gold": "answer"}})["columns"] == "q=prompt,gold=answer"
    for wrong, told in (
        (["q=prompt"], "columns takes text"),
        ({"a, b": "prompt"}, "has a comma or ="),
        ({"q=1": "prompt"}, "has a comma or ="),
        ({"answer": 3}, "is no pair of texts"),
    ):
        with pytest.raises(UserError, match=told):
            reading.check_types({"columns": wrong})


@pytest.mark.parametrize(
    ("method", "given", "steps", "said"),
    [
        ("ruscarl", {}, 4, "collect.links.0.most (step 90); steps=4 in place of --steps 4 fits them"),
        ("ruscarl", {}, 90, ""),
        ("ruscarl", {}, None, ""),
        ("ruscarl", {"steps": 4}, None, ""),
        ("kimi-k1.5", {"length": 0.5}, 10, "learners.policy.credit.links.0.weight (step 20)"),
        ("grpo", {}, 4, ""),
        ("cory", {}, 2, ""),  # roles that take turns come to no end
    ],
)
def test_schedules_that_end_after_the_run_are_said(method, given, steps, said):
    """Where the run is shorter than its recipe. A recipe that goes on beyond its own last step means to."""
    settings = overrides.merge(Settings(), {"recipe": method, "steps": steps})
    line = setup.describe_schedules(settings, overrides.build(method, given))
    assert line.endswith(f"goes on: {said}" if said else "") and bool(line) == bool(said)


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("linear(1, 0, 10)", 10),
        ("exponential(1, 0.01, 10)", 10),
        ("jump(0, 1, 7)", 7),
        ("staircase(1, 2, 3, 5)", 10),
        ("linear(1, 1, 10)", 0),
    ],
)
def test_a_schedule_ends_where_it_stays(text, step):
    assert settling_step(read_schedule(text)) == step


def test_what_drives_a_run_is_declared_once():
    """A plan takes these settings as they are: a setting that is added to them reaches the driver by itself."""
    shared = {f.name for f in fields(DriveSettings)}
    assert {"steps", "evaluate_every", "checkpoint_every"} <= shared <= {f.name for f in fields(Settings)}
    assert shared <= {f.name for f in fields(Plan)} and not shared & set(Plan.__annotations__)


@pytest.mark.parametrize("verb", FLAGS)
def test_every_verb_prints_its_help(verb, capsys):
    with pytest.raises(SystemExit) as end:
        parser_of(verb).parse_intermixed_args(["--help"])
    assert end.value.code == 0 and verb in capsys.readouterr().out

"""What is written here in place of other trainers' settings is a flag of `train`, or a setting of its methods."""

import re

import pytest
from palaestra import values
from palaestra.cli.main import main
from palaestra.settings import overrides
from palaestra.settings.fields import Settings
from palaestra.suggest import ELSEWHERE, METHODS_ELSEWHERE


def commands():
    return [
        c for text in dict.fromkeys(ELSEWHERE.values()) for c in re.findall(r"--[a-z-]+|[a-z]+\.[a-z_]+=[^ ,;]+", text)
    ]


def test_what_is_written_here_exists(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    flags = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    written = commands()
    assert len(written) > 20
    assert not [c for c in written if c.startswith("--") and c not in flags]


def build(method):
    name, *words = method.partition(",")[0].split()
    return overrides.recipe_of(Settings(recipe=name, set=values.overrides(words)))


def test_settings_that_are_written_here_are_ones():
    written = [c for c in commands() if "=" in c]
    assert len(written) > 10
    for setting in written:
        assert build(f"grpo {setting}") is not None, setting


def test_methods_that_are_written_here_are_ones():
    for method in set(METHODS_ELSEWHERE.values()):
        assert build(method) is not None, method

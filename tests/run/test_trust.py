"""Code that settings of somebody else name: nothing runs that this user did not run before, unless the user says so."""

import json
import os
import pty
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import palaestra as pl
import pytest
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.run.trust import Executables, check_code, record_file
from palaestra.view.answers import PageAnswers
from palaestra.view.reader import open_runs

TINY = ["--steps", "1", "--evaluate", "0", "--max-tokens", "4", "schedule.prompts=2", "collect.links.0.n=2"]
LEAVES = "from pathlib import Path\nPath('executed').touch()\n"
REWARD = LEAVES + "def score(responses, answers): return [float(i) for i, _ in enumerate(responses)]\n"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A stranger's settings in a folder; this user has run nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "d.jsonl").write_text(
        "\n".join(json.dumps({"prompt": f"{a}+1", "answer": str(a + 1)}) for a in range(9))
    )
    (tmp_path / "reward.py").write_text(REWARD)
    (tmp_path / "theirs.toml").write_text('data = "d.jsonl"\nreward = "reward.py:score"\n')
    yield tmp_path
    for name in [m for m in sys.modules if m.startswith("palaestra_user_")]:
        del sys.modules[name]


def executed():
    done = Path("executed").exists()
    Path("executed").unlink(missing_ok=True)
    for name in [m for m in sys.modules if m.startswith("palaestra_user_")]:
        del sys.modules[name]
    return done


def refuses(argv, capsys, *names):
    status = main(argv)
    error = capsys.readouterr().err.splitlines()[-1]
    assert status == 2 and not executed() and "--trust" in error, error
    assert all(n in error for n in names), error


SETTINGS = {
    "a reward": 'data = "d.jsonl"\nreward = "reward.py:score"\n',
    "a sum of rewards": 'data = "d.jsonl"\nreward = "0.5*exact+reward.py:score"\n',
    "a setting of a verifier": 'data = "d.jsonl"\nreward = "translation(semantic=reward.py:score)"\n',
    "a recipe": 'recipe = "reward.py"\n',
    "an environment": 'env = "reward.py:score"\n',
    "columns": 'data = "d.jsonl"\ncolumns = "reward.py:score"\n',
    "a tool": 'data = "d.jsonl"\ntools = ["reward.py:score"]\n',
    "a server of tools": f'data = "d.jsonl"\ntools = ["mcp:{sys.executable} reward.py"]\n',
    "a shell": 'data = "d.jsonl"\ntools = ["mcp:sh -c \'touch executed\'"]\n',
}


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("verb", ["train", "eval"])
def test_nothing_is_executed_that_a_stranger_names(place, kind, verb, capsys):
    (place / "theirs.toml").write_text(SETTINGS[kind])
    refuses([verb, "@theirs.toml"], capsys, "sh -c" if "shell" in kind else "reward.py")


KEYS = {
    "a field": '[set]\n"rewards.judge.client.key_env" = "SECRET"\n"rewards.judge.client.url" = "{url}"\n',
    "a table": '[set.client]\nkey_env = "SECRET"\nurl = "{url}"\n',
    "a text": "reward = \"judge(url='{url}', key_env='SECRET')\"\n",
    "a text in other letters": "reward = \"judge(url='{url}', key＿env = 'SECRET')\"\n",
}


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_is_sent_nowhere_that_this_user_did_not_send_it(place, kind, capsys):
    """Known with one address, it is asked for with another, however that is written."""
    file, given = place / "theirs.toml", 'task = "chain"\nsteps = 1\n' + KEYS[kind]
    file.write_text(given.format(url="http://127.0.0.1:9/v1"))
    refuses(["train", "@theirs.toml"], capsys, "would use", "the API key in SECRET")
    pl.trust("theirs.toml")
    settings = tomllib.loads(file.read_text())
    check_code(file, settings)
    assert "sends the API key in SECRET to " in capsys.readouterr().err
    for other in ("http://127.0.0.2:9/v1", "\\u0068ttp://127.0.0.2:9/v1"):
        file.write_text(given.format(url=other) + 'data = "http://127.0.0.1:9/v1"\n' * ("[set" not in given))
        with pytest.raises(UserError, match="the API key in SECRET"):
            check_code(file, tomllib.loads(file.read_text()))


def test_ones_own_key_goes_to_a_strangers_address_only_after_a_question(place, capsys):
    """With an engine of one's own the file does not decide where the key goes."""
    (place / "theirs.toml").write_text('task = "chain"\nengine = "openai:http://127.0.0.1:9/v1"\n')
    asked = ["eval", "@theirs.toml", "--model", "m", "--n", "1", "--key-env", "OWN"]
    refuses(asked, capsys, "would use", "the API key in OWN")
    own = [*asked, "--engine", "openai:http://127.0.0.2:9/v1"]
    assert main(own) != 0
    err = capsys.readouterr().err
    assert "--trust" not in err and "OWN is not set" in err


def test_addresses_without_a_key_are_not_asked_for():
    given = {"tools": ("mcp:http://127.0.0.1/x",), "set": {"client.url": "http://127.0.0.1/v1", "client.key_env": ""}}
    assert Executables.of(given) == Executables()


def test_what_is_trusted_once_is_trusted_as_it_is(place, capsys):
    """From another folder by its content, after a change by its place; a copy that was changed is asked for."""
    train = ["train", *TINY]
    assert main([*train, "@theirs.toml", "--trust", "--out", "a"]) == 0 and executed()
    assert main([*train, "@theirs.toml", "--out", "b"]) == 0 and executed()
    (place / "reward.py").write_text(REWARD + "# more\n")
    assert main([*train, "@theirs.toml", "--out", "c"]) == 0 and executed()
    (place / "copy.py").write_text(REWARD + "# another\n")
    (place / "theirs.toml").write_text('data = "d.jsonl"\nreward = "copy.py:score"\n')
    refuses([*train, "@theirs.toml", "--out", "d"], capsys, "copy.py")
    (place / "copy.py").write_text(REWARD)
    assert main([*train, "@theirs.toml", "--out", "e"]) == 0 and executed()


def test_a_helper_beside_known_code_is_asked_for(place, capsys):
    (place / "reward.py").write_text("import helper\n" + REWARD)
    (place / "helper.py").write_text("")
    pl.trust("theirs.toml")
    (place / "new").mkdir()
    (place / "new" / "reward.py").write_text("import helper\n" + REWARD)
    (place / "new" / "helper.py").write_text(LEAVES)
    (place / "theirs.toml").write_text('data = "d.jsonl"\nreward = "new/reward.py:score"\n')
    refuses(["train", "@theirs.toml"], capsys, "helper.py")


def test_a_run_of_ones_own_goes_on_without_a_question(place, capsys):
    """What stood on the command line is known from then on, also where the user changes it."""
    assert (
        main(["train", *TINY, "--data", "d.jsonl", "--reward", "reward.py:score", "--out", "run"]) == 0 and executed()
    )
    assert main(["train", "--resume", "run", "--steps", "2"]) == 0 and executed()
    (place / "reward.py").write_text(REWARD + "# more\n")
    assert main(["train", "--resume", "run", "--steps", "3", "--accept-changes"]) == 0 and executed()
    assert main(["train", "@run/config.toml", *TINY, "--out", "again"]) == 0 and executed()
    assert Path(record_file()).stat().st_mode & 0o077 == 0 or Path(record_file()).parent.stat().st_mode & 0o077 == 0


def test_a_run_folder_of_a_stranger_is_asked_for_by_all_that_execute_it(place, capsys, monkeypatch):
    assert (
        main(["train", *TINY, "--data", "d.jsonl", "--reward", "reward.py:score", "--out", "run"]) == 0 and executed()
    )
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "of-another"))
    for argv in (
        ["train", "--resume", "run", "--steps", "2"],
        ["explain", "rloo", "--rollouts", "run"],
        ["eval", "@run/config.toml"],
        ["score", "exact", "--run", "run"],
    ):
        refuses(argv, capsys, "reward.py")
    for ask in (
        lambda: pl.train(resume="run", steps=2, quiet=True),
        lambda: pl.evaluate(pl.open("run"), n=1, k=1),
        lambda: pl.open("run").rescore("exact"),
        lambda: PageAnswers(open_runs([Path("run")], place)).get(["run", "0", "explain", "rloo", "1", "0"], {}),
    ):
        with pytest.raises(
            UserError, match=r"read it, then repeat this with --trust \(in Python: palaestra.trust\('run"
        ):
            ask()
        assert not executed()
    assert main(["view", "run", "--text"]) == 0 and not executed()  # looking executes nothing
    pl.trust("run")
    assert pl.open("run").rescore("exact").pairs
    assert PageAnswers(open_runs([Path("run")], place)).get(["run", "0", "explain", "rloo", "1", "0"], {}).data


def test_push_asks_for_the_recipe_of_a_card(place, capsys, monkeypatch):
    (place / "mine.py").write_text(LEAVES + "import palaestra as pl\ndef build():\n    return pl.recipe('grpo')\n")
    assert main(["train", "mine.py", *TINY, "--out", "run", "--checkpoint-every", "1"]) == 0 and executed()
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "of-another"))
    refuses(["push", "run", "--dry-run"], capsys, "mine.py")
    assert main(["push", "run", "--dry-run", "--trust"]) == 0 and executed()


def test_a_list_that_cannot_be_written_stops_no_run(place, monkeypatch):
    (place / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "file"))
    assert (
        main(["train", *TINY, "--data", "d.jsonl", "--reward", "reward.py:score", "--out", "run"]) == 0 and executed()
    )


def test_settings_without_code_are_not_asked_for(place):
    (place / "mine.toml").write_text('task = "chain"\nsteps = 1\n')
    assert main(["train", "@mine.toml", *TINY, "--out", "run"]) == 0
    plain = {"reward": "exact", "data": "reward.txt", "tools": ("python", "mcp:http://127.0.0.1/x")}
    assert Executables.of(plain) == Executables()


@pytest.mark.parametrize("answer,status", [("y", 0), ("n", 2), ("", 2)])
def test_a_person_at_a_terminal_is_asked(place, answer, status):
    parent, child = pty.openpty()
    argv = [sys.executable, "-m", "palaestra", "train", "@theirs.toml", *TINY, "--out", "run"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    os.write(parent, f"{answer}\n".encode())
    ended = subprocess.run(argv, stdin=child, stdout=subprocess.DEVNULL, stderr=child, env=env, timeout=100)
    said = os.read(parent, 1 << 16).decode()
    assert ended.returncode == status and executed() == (status == 0), shlex.join(argv)
    assert "You have not run it before. Execute it? [y/N]" in said

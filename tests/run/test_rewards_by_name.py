"""What `--reward` names: functions, verifiers, judges and sums of them, as text and as values of a program."""

import asyncio
import json
import re

import palaestra as pl
import pytest
from palaestra.api import training
from palaestra.errors import UserError
from palaestra.judges.pointwise import Judge
from palaestra.judges.reading import Rating
from palaestra.ledger.digests import _sum as digest_of
from palaestra.rewards.learned import RewardModel
from palaestra.rewards.user import UserReward
from palaestra.rewards.verified import Verified
from palaestra.rewards.weighted import Weighted
from palaestra.services.chat.endpoint import Endpoint
from palaestra.services.chat.local import LocalModel
from palaestra.settings import overrides, reading
from palaestra.settings.fields import Settings
from palaestra.settings.rewards import files_of_spec, reward_by_name, reward_text
from palaestra.tasks.oracle import episode_saying
from palaestra.types import Group, Task
from palaestra.values import override

URL = "http://localhost:1/v1"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(
        "def words(responses, answers): return [len(r.split()) for r in responses]\n"
        "def one(responses, answers): return [1.0] * len(responses)\n"
    )
    return path


def totals(reward, *texts):
    group = Group(task=Task(id="t", answer="7"), episodes=tuple(map(episode_saying, texts)))
    return [r.total for r in asyncio.run(reward(None, group))]


def test_single_names(file):
    assert reward_by_name("math") == Verified("math")
    assert reward_by_name("tags*0.1+exact") == Verified("tags*0.1+exact")
    assert reward_by_name(f"{file}:words", 3.0) == UserReward(f"{file}:words", timeout=3.0)


def test_a_sum_with_a_function_is_weighted(file):
    """By hand: "7": 1 for the answer, 0.5 for one word less 2; "so 8": 0 + 2 * 0.5 - 2."""
    found = reward_by_name(f"exact+{file}:words*0.5 + {file}:one*-2")
    assert isinstance(found, Weighted) and [n for n, _, _ in found.parts] == ["exact", "words", "one"]
    assert totals(found, "7", "so 8") == [-0.5, -1.0]
    bounded = reward_by_name(f"exact+{file}:words", 3.0)
    assert isinstance(bounded, Weighted) and bounded.parts[1][1] == UserReward(f"{file}:words", timeout=3.0)


def test_a_saved_model_may_stand_in_a_sum(tmp_path, file, monkeypatch):
    """OpenRLHF's and TRL's users have a reward model and a rule beside it."""
    monkeypatch.chdir(tmp_path)
    for folder in ("rm/step-6", "rm/step-7"):
        (tmp_path / folder).mkdir(parents=True)
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            (tmp_path / folder / name).touch()
    found = reward_by_name(f"rm/step-6*0.5+exact + {file}:one*-2")
    assert isinstance(found, Weighted)
    assert [(n, w) for n, _, w in found.parts] == [("model", 0.5), ("exact", 1.0), ("one", -2.0)]
    assert found.parts[0][1] == RewardModel("rm/step-6")
    two = reward_by_name("rm/step-6+rm/step-7*2")
    assert isinstance(two, Weighted) and [(n, w) for n, _, w in two.parts] == [("model", 1.0), ("model2", 2.0)]
    assert reward_by_name("rm/step-6") == RewardModel("rm/step-6")


def test_rewards_are_not_listed_with_commas(file):
    with pytest.raises(UserError, match=r"several rewards are added: .*own\.py:words.*own\.py:one"):
        reward_by_name(f"{file}:words,{file}:one")
    assert isinstance(reward_by_name(f"{file}:words+judge(model='a',rubric='10: right, brief. 1: wrong')"), Weighted)


def test_form_alone_may_stand_beside_a_function(file):
    found = reward_by_name(f"{file}:words+tags*0.2")
    assert isinstance(found, Weighted) and found.parts[1] == ("tags", Verified("tags", beside=True), 0.2)


def test_a_judge_with_its_settings():
    rubric = "10: right (as in '7'), + brief. 1: wrong * bad."
    found = reward_by_name(
        f"judge(url={URL!r},model='m',key_env='KEY',rubric={rubric!r},low=0,high=5,votes=3,temperature=0.5)"
    )
    client = Endpoint(url=URL, model="m", key_env="KEY")
    assert found == Judge(client=client, read=Rating(0.0, 5.0), rubric=rubric, votes=3, temperature=0.5)
    assert reward_by_name("judge") == Judge() and reward_by_name("judge(model='ref')").client == LocalModel("ref")
    both = reward_by_name(f"judge(url={URL!r})*2+exact")
    assert isinstance(both, Weighted) and [(n, w) for n, _, w in both.parts] == [("judge", 2.0), ("exact", 1.0)]


@pytest.mark.parametrize(
    "spec, message",
    [
        ("judge(ulr='x')", "judge has no setting 'ulr'; did you mean url?"),
        ("judge(votes='many')", "votes"),
        ("judge*2+mth", "no reward 'mth'; did you mean math"),
        ("judge+judge(votes=2)", "'judge' stands twice"),
        ("judge(", "cannot be read"),
        ("nothing.py:score+exact", "nothing.py: no such file"),
        ("given:score", "a value of another program"),
    ],
)
def test_mistakes_are_one_line(spec, message):
    with pytest.raises(UserError, match=re.escape(message)) as error:
        reward_by_name(spec)
    assert "\n" not in str(error.value)


def test_a_reward_is_named_in_toml(tmp_path, file):
    path = tmp_path / "run.toml"
    path.write_text(
        f'data = "d.jsonl"\nreward = """judge(url={URL!r}, model="m",\n  rubric="10: right. 1: wrong.")'
        f'*0.5 + {file}:words"""\n'
    )
    found = reward_by_name(overrides.merge(Settings(), reading.from_file(path)).reward)
    assert isinstance(found, Weighted) and [w for _, _, w in found.parts] == [0.5, 1.0]


def test_values_of_a_program():
    def local(responses, answers):
        return [3.0] * len(responses)

    spec = reward_text(local)
    assert spec == reward_text(local) == "given:local" and totals(reward_by_name(spec), "x") == [3.0]
    assert reward_by_name(reward_text(judge := Judge(votes=5))) is judge
    assert totals(reward_by_name(reward_text([local, "exact"])), "7") == [4.0]
    assert totals(reward_by_name(reward_text({local: 2.25, "exact": -1.5})), "7") == [5.25]

    def local(responses, answers):
        return [5.0] * len(responses)

    assert reward_text(local) == "given:local_1" and totals(reward_by_name("given:local"), "x") == [3.0]
    assert totals(reward_by_name(reward_text(lambda responses, answers: [6.0])), "x") == [6.0]


def test_a_function_of_a_module_is_named_by_its_file():
    """So that a run goes on from the command line too."""
    spec = reward_text(module_function)
    assert spec == f"{__file__}:module_function" and reward_by_name(spec) == UserReward(spec)


def module_function(responses, answers):
    return [1.0 for _ in responses]


def test_training_on_a_function(tmp_path, capsys):
    """It runs, its config names it, and what only the program has is asked for again."""
    data = tmp_path / "d.jsonl"
    data.write_text("".join(json.dumps({"prompt": f"Count to {i}.", "answer": str(i)}) + "\n" for i in range(20)))

    def short(completions, **kwargs):
        return [-len(c) for c in completions]

    run = pl.train("grpo", data=str(data), reward=short, out=tmp_path / "run", smoke=True, max_tokens=4)
    assert "the reward reads no answer" in capsys.readouterr().err
    assert run.summary["command"].startswith("palaestra.train('grpo', data=")
    assert "reward=short" in run.summary["resume_command"] and "resume=" in run.summary["resume_command"]
    assert run.config["reward"] == "given:short" and run.summary["reward_after"]["mean"] <= 0
    from palaestra.tasks import user_code

    del user_code.VALUES["given:short"]
    with pytest.raises(UserError, match="a value of another program; hand it over again"):
        training.train(resume=tmp_path / "run", steps=3, quiet=True)
    training.train(resume=tmp_path / "run", steps=3, reward=short, quiet=True)


def test_a_judged_recipe_needs_no_answers(tmp_path, capsys):
    data, recipe = tmp_path / "d.jsonl", tmp_path / "judged.py"
    data.write_text("".join(json.dumps({"prompt": f"Count to {i}."}) + "\n" for i in range(20)))
    recipe.write_text(
        "import palaestra as pl\n"
        "def words(response, answer): return float(len(response))\n"
        "OWN = pl.rewards.UserReward(words)\n"
        "def build():\n"
        "    return pl.vary(pl.recipe('grpo'), collect=pl.links(pl.Sample(n=4), pl.Score(reward=OWN, shadow=True)))\n"
    )
    run = pl.train(str(recipe), data=str(data), out=tmp_path / "run", smoke=True, max_tokens=4)
    assert "so no answers to held-out problems are judged" in capsys.readouterr().err
    assert not any(key.endswith("_after") for key in run.summary)
    assert run.group(step=2, group=0).explain("rloo")["advantages"]
    with pytest.raises(UserError, match="no 'answer'"):
        pl.train("grpo", data=str(data), out=tmp_path / "other", smoke=True, quiet=True)


def test_the_digest_of_a_reward_follows_its_files(file):
    specs = [f"{file}:words", f"{file}:words+exact", f"{file}:words*2+exact", "exact"]
    assert files_of_spec(specs[1]) == [f"{file}:words"] and files_of_spec("exact") == []
    before = [digest_of(s) for s in specs]
    assert len(set(before)) == 4
    file.write_text(file.read_text() + "# another\n")
    after = [digest_of(s) for s in specs]
    assert [a != b for a, b in zip(before, after, strict=True)] == [True, True, True, False]


def test_functions_of_one_name_are_told_apart_by_their_files(tmp_path):
    """As verl's, which are all called compute_score."""
    files = [tmp_path / name for name in ("ra/own.py", "rb/own.py", "rb/other.py")]
    for gain, file in enumerate(files, 1):
        file.parent.mkdir(exist_ok=True)
        file.write_text(
            f"def score(responses, answers): return [{gain}.0 for _ in responses]\ndef two(r, a): return [0] * len(r)"
        )
    found = reward_by_name("+".join(f"{file}:score" for file in files) + f"*10+{files[0]}:two")
    assert isinstance(found, Weighted) and totals(found, "x") == [33.0]
    assert [n for n, _, _ in found.parts] == ["ra.own.score", "rb.own.score", "other.score", "two"]
    with pytest.raises(UserError, match="'score' stands twice; give it one weight"):
        reward_by_name(f"{files[0]}:score+{files[0]}:score*2")


@pytest.mark.parametrize("path", ["reward", "collect.links.1.reward", "score.reward"])
def test_a_reward_as_text_is_none_of_a_recipes_fields(path):
    with pytest.raises(
        UserError, match=r"is a part, not a value; .*the run's own reward is its setting reward, or --reward"
    ):
        override(pl.recipe("grpo"), path, "exact")
    assert override(pl.recipe("grpo"), path, "none") == pl.recipe("grpo")

"""MLE-Dojo: what is logged of an episode, what is refused, and runs on a folder of one's own."""

import asyncio
import json
from types import SimpleNamespace

import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.recipes.agents import mle_dojo
from palaestra.types import Episode, Group, Reward, Task

from tests.recipes.objectives.helpers import near


def parts(**facts):
    known = {"position": 0.8, "first_position": 0.5, "graded": 2, "tool_errors": 1, "tool_calls": 4}
    e = Episode(status="finished", reward=Reward(total=0.8), facts=known | {"malformed": 1, "turns": 5} | facts)
    group = Group(task=Task(id="t"), episodes=(e,))
    (told,) = asyncio.run(mle_dojo.CompetitionParts()(None, ("k",), group)).episodes
    return told.reward.parts, told.reward.total


def test_parts_of_an_episode():
    told, total = parts()
    assert told == {"iterated": near(0.3), "graded": 2, "failed": 0.25, "lost": 0.2} and total == 0.8
    told, _ = parts(position=0.5, tool_calls=0, tool_errors=0)
    assert told["iterated"] == 0 and told["failed"] == 0


def test_a_first_step_without_a_submission_is_said():
    link = mle_dojo.CompetitionParts()
    episode = lambda n: Episode(status="finished", reward=Reward(total=0.0), facts={"graded": n})
    groups = lambda *n: [Group(task=Task(id="t"), episodes=tuple(map(episode, n)))]
    assert "start=shown imitates" in link.first_step_note(groups(0, 0))
    assert link.first_step_note(groups(0, 1)) == link.first_step_note([]) == ""


@pytest.fixture
def own(tmp_path):
    """Three competitions, all of them with one program to show."""
    for i in range(3):
        home = tmp_path / "all" / f"c{i}"
        rows = [f"{n},{n % 5},{2 * (n % 5) + i}" for n in range(30)]
        for name, text in {
            "competition.toml": 'metric = "mae"\ntarget = "y"\nseconds = 5\n',
            "description.md": f"y from x, {i}",
            "public/train.csv": "\n".join(["id,x,y", *rows[:20]]),
            "public/test.csv": "\n".join(["id,x", *(r.rpartition(",")[0] for r in rows[20:])]),
            "public/sample_submission.csv": "id,y\n20,0\n",
            "private/answers.csv": "\n".join(["id,y", *(f"{n},{2 * (n % 5) + i}" for n in range(20, 30))]),
            "solutions/a.py": "import kit\nkit.run('near1')",
        }.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text)
    return tmp_path / "all"


def test_a_folder_is_trained_on_from_its_solutions(own, tmp_path):
    """The program that is shown is one of the baselines, and the best: its demonstrations are at the top."""
    given = {"start": "shown", "shown": 2, "turns": 2, "samples": 2, "shown.schedule.prompts": 3}
    env = f"competition({own},kit=True,told=False,held_out=1)"
    common = {"model": "tiny-agent", "quiet": True, "steps": 1, "max_tokens": 8, "evaluate": 0}
    set_ = given | {"rl.schedule.prompts": 3}
    run = pl.train("mle-dojo", env=env, out=tmp_path / "run", set=set_, **common)
    rows = run.episodes().to_pylist()
    shown = [r for r in rows if r["policy_version"] is None]
    played = [r for r in rows if r["policy_version"] is not None]
    assert len(shown) == 3 and all(r["reward"] == 1.0 for r in shown)
    assert len(played) == 6 and all(json.loads(r["facts"])["turns"] == 2 for r in played)
    assert len({r["domain"] for r in rows}) == 2  # the third one is held out


def test_it_is_refused_elsewhere(own, tmp_path):
    common = {"quiet": True, "model": "tiny-agent"}
    with pytest.raises(UserError, match="mle-dojo needs an environment, competitions with data"):
        pl.train("mle-dojo", task="add", out=tmp_path / "a", **common)
    elsewhere = SimpleNamespace(bench=pl.Bench(name="grid", tasks=None, world=pl.worlds.Question()))
    with pytest.raises(UserError, match="mle-dojo plays competitions, and grid is none"):
        mle_dojo.competitions_of(elsewhere)
    for n, (env, wrong) in enumerate(
        (
            ("competition", "a competition is a folder, which is named as"),
            (f"competition({tmp_path / 'no'})", "no competition; one is a folder with"),
            (f"competition({own},colour=3)", "colour=3 is no setting of the competition"),
            (f"competition({own},held_out=3)", "held_out is from 0 to 2"),
        )
    ):
        with pytest.raises(UserError, match=wrong):
            pl.train("mle-dojo", env=env, out=tmp_path / str(n), **common)
    with pytest.raises(UserError, match="turns is 0 or more, not -1"):
        mle_dojo.build(turns=-1)

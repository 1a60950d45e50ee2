"""verifiers' environments as worlds: one question, a talk of several turns, and what is refused."""

import pytest
from palaestra.errors import UserError
from palaestra.worlds.adapters.base import AdaptedTasks
from palaestra.worlds.adapters.named import world_by_name
from palaestra.worlds.adapters.verifiers import VerifiersWorld

vf = pytest.importorskip("verifiers.v1")
bee = pytest.importorskip("tests.worlds.adapters.spelling_bee")


@pytest.fixture
def installed(monkeypatch):
    """The taskset as a package of the user's."""
    monkeypatch.syspath_prepend(bee.__file__.rpartition("/")[0])
    return world_by_name("verifiers:spelling-bee")


def say(frame):
    return [(m.role, m.content) for m in frame.asks[0].say]


def test_a_question_is_paid_by_its_weighted_rewards(installed, episode):
    frames = episode(installed, ["d o g"], index=1)
    assert say(frames[0]) == [("system", "Letters only."), ("user", "Spell dog.")]
    assert frames[1].pay == {("policy", ""): 1.5} and frames[1].status == "finished"
    assert frames[1].facts["reward_parts"] == {"exact": 1.0, "brief": 0.5}
    assert episode(installed, ["no"], index=1)[1].pay == {("policy", ""): 0.5}


def test_every_eighth_task_is_held_out(installed):
    tasks = AdaptedTasks(installed, "bee")
    assert (tasks.size, tasks.test_size) == (9, 1)
    at = [tasks.task("train", i).meta["seed"] for i in range(9)]
    assert at == [0, 1, 2, 3, 4, 5, 6, 8, 9] and tasks.task("test", 0).meta["seed"] == 7


def test_a_run_of_several_turns_is_a_talk(monkeypatch, episode):
    monkeypatch.setattr(bee.HangmanEnv, "__init__", plain_environment)
    world = VerifiersWorld(lambda: bee.HangmanEnv(bee.HangmanSet(vf.TasksetConfig())))
    frames = episode(world, ["b", "x", "dr", "z"], index=2)
    assert [say(f) for f in frames[:-1]] == [[("user", t)] for t in ("4 letters", "b___", "b___", "b_rd")]
    assert frames[-1].pay == {("policy", ""): 0.75} and frames[-1].facts["reward_parts"] == {"found": 0.75}


def test_the_same_words_are_the_same_episode_from_every_state(monkeypatch, repeats):
    monkeypatch.setattr(bee.HangmanEnv, "__init__", plain_environment)
    repeats(
        lambda: VerifiersWorld(lambda: bee.HangmanEnv(bee.HangmanSet(vf.TasksetConfig()))), ["b", "x", "dr", "z"], 2
    )


def test_a_file_may_return_an_environment_of_this_version(monkeypatch, episode, tmp_path):
    monkeypatch.setattr(bee.HangmanEnv, "__init__", plain_environment)
    file = tmp_path / "hangman.py"
    file.write_text(
        "import verifiers.v1 as vf\nfrom tests.worlds.adapters import spelling_bee as bee\n"
        "def load_environment(n=4):\n    return bee.HangmanEnv(bee.HangmanSet(vf.TasksetConfig()))\n"
    )
    world = world_by_name(f"{file}:load_environment(n=4)")
    assert isinstance(world, VerifiersWorld) and world.size == 9
    assert episode(world, ["b", "x", "dr", "z"], index=2)[-1].pay == {("policy", ""): 0.75}


def plain_environment(self, taskset):
    """An environment over a taskset that no package has: its own constructor loads one by its name."""
    self.config, self.taskset = bee.HangmanConfig(), taskset


def test_what_needs_more_than_talk_is_refused(monkeypatch):
    monkeypatch.setattr(bee.HangmanEnv, "__init__", plain_environment)
    with pytest.raises(UserError, match="needs a container, which is not offered here"):
        VerifiersWorld(lambda: bee.HangmanEnv(bee.DugSet(vf.TasksetConfig())))
    with pytest.raises(UserError, match="verifiers:no-such-thing: "):
        world_by_name("verifiers:no-such-thing")

"""TextWorld's games as worlds: which files are tasks, what a command is, what is paid."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from palaestra.errors import UserError
from palaestra.worlds.adapters import textworld
from palaestra.worlds.adapters.base import Illegal
from palaestra.worlds.adapters.named import world_by_name


@dataclass
class Hall:
    """Three commands "step" win, each for a point of three; "jump" loses."""

    path: str
    n: int = 0

    def seed(self, seed):
        """Nothing is random here."""

    def reset(self):
        return self.seen("A hall.")

    def step(self, command):
        self.n += command == "step"
        state = self.seen(f"You {command}.", lost=command == "jump")
        return state, self.n, state.won or state.lost

    def seen(self, text, lost=False):
        bar = f"{text}\n\n>      -= Hall =-{self.n}/3"
        can = ["jump", "step"]
        return SimpleNamespace(
            feedback=bar, score=self.n or None, max_score=3, won=self.n == 3, lost=lost, admissible_commands=can
        )

    def close(self):
        """There is nothing to close."""


@pytest.fixture
def games(tmp_path, monkeypatch):
    """games(n) -> a folder of so many games, played by `Hall`."""
    library = SimpleNamespace(EnvInfos=lambda **names: names, start=lambda path, facts: Hall(path))
    monkeypatch.setattr(textworld, "load_library", lambda label: library)

    def make(n):
        (tmp_path / "deep").mkdir()
        for i in range(n):
            (tmp_path / "deep" / f"g{i}.z8").touch()
            (tmp_path / "deep" / f"g{i}.json").touch()
        return tmp_path

    return make


def test_a_game_by_hand(games, episode):
    world = world_by_name(f"textworld:{games(1)}(commands=True)")
    frames = episode(world, ["step", "I think.\n> Action: `step`", "", "STEP", "step"])
    assert frames[0].asks[0].say[-1].content.endswith("A hall.\n\nYou can: jump, step")
    assert frames[1].pay == {("policy", ""): pytest.approx(1 / 3)} and "=-" not in frames[1].state_key
    assert frames[4].facts["illegal"] == 1 and not frames[4].pay  # the game knows no STEP
    paid = sum(f.pay.get(("policy", ""), 0.0) for f in frames)
    assert frames[-1].status == "finished" and frames[-1].facts["reason"] == "won" and paid >= world.solved


def test_a_lost_game_keeps_what_was_paid(games, episode):
    frames = episode(world_by_name(f"textworld:{games(1)}"), ["step", "jump"])
    assert frames[-1].facts["reason"] == "lost" and frames[-1].pay == {("policy", ""): 0.0}
    assert frames[0].asks[0].say[-1].content.endswith("A hall.")


@pytest.mark.parametrize(("n", "train", "test"), [(1, 1, 1), (2, 1, 1), (9, 8, 1), (16, 14, 2)])
def test_held_out_games(games, n, train, test):
    world = world_by_name(f"textworld:{games(n)}")
    names = [[world.task(split, i).id.rpartition("/")[2] for i in range(k)] for split, k in
             (("train", world.size), ("test", world.test_size))]  # fmt: skip
    assert (world.size, world.test_size) == (train, test) and bool(world.caveat) == (n == 1)
    assert n == 1 or ({*names[0]}.isdisjoint(names[1]) and len({*names[0], *names[1]}) == n)


@pytest.mark.parametrize("command", ["save", "look. save", "oops script", "Quit", "<think>look</think>", " \n"])
def test_words_to_the_interpreter_are_no_commands(command):
    with pytest.raises(Illegal):
        textworld.TextWorldEpisode(None).read(command)


def test_mistakes(games, tmp_path):
    with pytest.raises(UserError, match=r"has no game .*tw-make custom"):
        world_by_name(f"textworld:{tmp_path}")
    with pytest.raises(UserError, match="has no setting rooms; leave it out"):
        world_by_name(f"textworld:{games(1)}(rooms=3)")


def test_without_the_library(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "textworld", None)
    with pytest.raises(UserError, match=r"pip install 'palaestra\[textworld\]'"):
        world_by_name("textworld:games")


@pytest.mark.slow
def test_real_textworld(tmp_path, repeats):
    """A game that is made here is won by its own walkthrough."""
    library = pytest.importorskip("textworld", reason="pip install '.[textworld]' (needs a C compiler)")
    options = library.GameOptions()
    options.seeds, options.nb_rooms, options.nb_objects, options.quest_length = 1234, 2, 4, 3
    options.path = str(tmp_path / "a.z8")
    path, _ = library.make(options)
    game = library.start(path, library.EnvInfos(policy_commands=True))
    commands = [*game.reset().policy_commands]
    frames = repeats(lambda: world_by_name(f"textworld:{path}"), commands)
    assert frames[-1].facts["reason"] == "won" and frames[-1].pay == {("policy", ""): 1.0}

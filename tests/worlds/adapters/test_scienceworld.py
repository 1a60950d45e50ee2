"""ScienceWorld's tasks as worlds: variations, what is paid, and simulators that are used again."""

import shutil
from dataclasses import dataclass, field

import pytest
from palaestra.errors import UserError
from palaestra.worlds.adapters import scienceworld
from palaestra.worlds.adapters.named import world_by_name


@dataclass
class Simulator:
    """Scores 10 at the start, and what a command says after it."""

    task_names: tuple[str, ...] = ("boil", "melt")
    score: int = 10
    moves: int = 0
    envStepLimit: int = 0
    loads: list = field(default_factory=list)

    def load(self, task, variation, simplifications):
        if simplifications == "hard":
            raise ValueError("Unknown simplification: 'hard'.")
        self.score, self.moves = 10, 0
        self.loads.append((task, variation, simplifications))

    def get_variations_train(self):
        return [0, 1, 4]

    def get_variations_test(self):
        return [7]

    def reset(self):
        return "A kitchen.", {"taskDesc": "Task Description:\nBoil it."}

    def step(self, command):
        self.score, self.moves = int(command.split()[-1]), self.moves + 1
        over = self.score < 0 or self.score >= 100 or self.moves > self.envStepLimit
        return f"Done: {command}.", 0, over, {"score": self.score, "moves": self.moves}


@pytest.fixture(autouse=True)
def simulators(monkeypatch):
    """All simulators that were started."""
    started = []

    def start(label):
        started.append(Simulator())
        return started[-1]

    scienceworld.variations.cache_clear()
    monkeypatch.setattr(scienceworld, "IDLE", [])
    monkeypatch.setattr(scienceworld, "load_library", lambda label: None)
    monkeypatch.setattr(scienceworld, "open_simulator", start)
    yield started
    scienceworld.variations.cache_clear()


def paid(frames):
    return [f.pay.get(("policy", ""), 0.0) for f in frames]


def test_the_score_is_paid_as_it_changes(episode):
    world = world_by_name("scienceworld:boil(simplifications=easy)")
    frames = episode(world, ["to 10", "to 10", "Action: to 40", "to 25", "to 100"])
    assert frames[0].asks[0].say[-1].content == "Task Description:\nBoil it.\n\nA kitchen."
    assert paid(frames) == pytest.approx([0, 0.1, 0, 0.3, -0.15, 0.75]) and frames[-1].status == "finished"
    assert sum(paid(frames)) >= world.solved


def test_a_failure_takes_back_what_was_paid(episode):
    frames = episode(world_by_name("scienceworld:boil"), ["to 40", "to -100"])
    assert paid(frames) == pytest.approx([0, 0.4, -0.4]) and frames[-1].status == "finished"


def test_the_limit_of_steps(episode):
    frames = episode(world_by_name("scienceworld:boil(steps=1)"), ["to 20", "to 30"])
    assert frames[-1].status == "truncated:environment" and sum(paid(frames)) == pytest.approx(0.3)


def test_episodes_are_the_variations_and_simulators_are_used_again(episode, simulators):
    world = world_by_name("scienceworld:melt(simplifications=easy)")
    assert (world.size, world.test_size, world.caveat) == (3, 1, "")
    episode(world, ["to 100"], index=2)
    episode(world, ["to 100"], split="test")
    assert len(simulators) == 1 and simulators[0].loads[1:] == [("melt", 4, "easy"), ("melt", 7, "easy")]


@pytest.mark.parametrize(("name", "says"), [
    ("scienceworld:bil", "no task 'bil'; did you mean boil"), ("scienceworld:boil(simplifications=hard)", "Unknown simp"),
    ("scienceworld:boil(rooms=2)", "no setting rooms"), ("scienceworld:boil(sessions=0)", "sessions"),
])  # fmt: skip
def test_mistakes(name, says):
    with pytest.raises(UserError) as error:
        world_by_name(name)
    assert says in str(error.value) and "\n" not in str(error.value)


@pytest.mark.slow
def test_real_scienceworld(monkeypatch, repeats):
    """The first actions of a real experiment, and that its episodes repeat."""
    library = pytest.importorskip("scienceworld", reason="pip install '.[scienceworld]'")
    if shutil.which("java") is None:
        pytest.skip("needs Java: install default-jre-headless")
    monkeypatch.setattr(scienceworld, "open_simulator", lambda label: library.ScienceWorldEnv(""))
    world = world_by_name("scienceworld:find-living-thing(simplifications=easy)")
    assert (world.size, world.test_size) == (150, 75)
    frames = repeats(
        lambda: world_by_name("scienceworld:find-living-thing(simplifications=easy)"), ["look around", "fly", "wait"]
    )
    assert "Your task is to find a(n) living thing" in frames[0].asks[0].say[-1].content
    assert frames[1].pay == {("policy", ""): 0.08} and frames[2].state_key == "No known action matches that input."
    for simulator in scienceworld.IDLE:
        simulator.close()

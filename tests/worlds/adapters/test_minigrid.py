"""MiniGrid's views in words, and its environments through Gymnasium."""

import numpy as np
import pytest
from palaestra.errors import UserError
from palaestra.worlds.adapters.minigrid import is_view, view_in_words
from palaestra.worlds.adapters.named import world_by_name

EMPTY, WALL, DOOR, KEY, GOAL, LAVA = (1, 0, 0), (2, 5, 0), 4, 5, (8, 1, 0), (9, 0, 0)


def view(cells, size=7, **more):
    """An observation with these cells, by (right of the player, forward), on empty floor."""
    image = np.zeros((size, size, 3), dtype=np.uint8)
    image[:, :] = EMPTY
    for (right, forward), cell in cells.items():
        image[size // 2 + right, size - 1 - forward] = cell
    return {"image": image, "direction": 3, "mission": "open the door"} | more


def test_a_view_by_hand():
    seen = view({(0, 3): (DOOR, 4, 2), (-2, 1): (KEY, 2, 0), (3, 0): GOAL, (1, 1): WALL, (0, 0): (6, 0, 0)})
    assert view_in_words(seen).split("\n") == [
        "mission: open the door", "you look north and carry red ball",
        "you see: blue key 1 forward 2 left, goal 3 right, locked yellow door 3 forward", "free steps forward: 2",
    ]  # fmt: skip


def test_nothing_to_see_and_a_narrow_view():
    assert "carry nothing\nyou see: nothing\nfree steps forward: 6" in view_in_words(view({}))
    assert "free steps forward: 2" in view_in_words(view({}, size=3))


@pytest.mark.parametrize(("ahead", "free"), [
    ((DOOR, 0, 0), 6), ((DOOR, 0, 1), 0), (GOAL, 6), (LAVA, 0), ((0, 0, 0), 0), ((KEY, 0, 0), 0), (WALL, 0),
])  # fmt: skip
def test_what_can_be_entered(ahead, free):
    assert view_in_words(view({(0, 1): ahead})).endswith(f"free steps forward: {free}")


def test_other_observations_are_no_views():
    assert is_view(view({})) and not is_view(np.zeros(3)) and not is_view({"image": 1})
    assert not is_view(view({}, image=np.zeros((7, 7)))) and not is_view(view({}, carried=1))


def test_a_module_that_is_missing_is_named():
    pytest.importorskip("gymnasium")
    with pytest.raises(UserError, match=r"needs the module no_such_module .*: pip install no_such_module"):
        world_by_name("gym:no_such_module:Any-v0")
    with pytest.raises(UserError, match="Nowhere"):
        world_by_name("gym:json:Nowhere-v0")


def test_real_minigrid(episode):
    """To the goal of an empty room of three by three cells."""
    pytest.importorskip("minigrid", reason="pip install '.[minigrid]'")
    world = world_by_name("gym:minigrid:MiniGrid-Empty-5x5-v0")
    frames = episode(world, ["forward", "I go forward", "jump", "right", "forward", "forward"])
    assert "you see: goal 2 forward 2 right\nfree steps forward: 2" in frames[0].asks[0].say[-1].content
    assert frames[-1].facts["illegal"] == 1 and frames[-1].pay["policy", ""] == pytest.approx(1 - 0.9 * 5 / 100)


def test_real_babyai(episode, repeats):
    pytest.importorskip("minigrid", reason="pip install '.[minigrid]'")
    frames = repeats(lambda: world_by_name("gym:minigrid:BabyAI-GoToRedBall-v0"), ["left", "forward", "pickup"])
    assert "mission: go to the red ball" in frames[0].asks[0].say[-1].content

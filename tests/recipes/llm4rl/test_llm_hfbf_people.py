"""LLM-HFBF with several people, the model's own labels beside them, and edge cases."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.recipes.llm4rl import llm_hfbf
from palaestra.recipes.llm4rl.llm_hfbf.edge import CutIns
from palaestra.recipes.llm4rl.llm_hfbf.humans import LabelTeam, SegmentLabels, Segments, who_labels
from palaestra.recipes.llm4rl.llm_hfbf.judge import written_judgement
from palaestra.recipes.llm4rl.llm_hfbf.program import FeedbackSetting, ShapedFeedback, people_of, trust

KEY = ("test",)


def program(**settings):
    small = {"learner": pl.control.PPO(games=8, bootstrap=True), "steps": 900, "games": 8, "calls": 40}
    return replace(llm_hfbf.embedded(), **{**small, **settings})


def setting(**settings):
    made = program(**settings)
    games = pl.control.play_games(made.sim, made.learner.start(made.sim, KEY).act, 8, KEY)
    words = pl.control.SimulatorWords.of(made.sim, games)
    return FeedbackSetting(program=made, ctx=None, words=words, key=KEY, sample=games)


def segments_of(x):
    x = np.array(x, float)
    zero = np.zeros(x.shape)
    return Segments(names=("x",), means=x[..., None], alive=x > -9, true=zero, effort=zero, steps=2)


def test_several_people_label_games_in_turn():
    team = LabelTeam({"careful": lambda s: -1 + s.true, "bold": lambda s: 1 + s.true})
    segments = segments_of([[[1, 2]], [[3, 4]], [[5, 6]]])
    assert team(segments)[:, 0].tolist() == [[-1, -1], [1, 1], [-1, -1]]
    names, who = who_labels(team, segments)
    assert names == ("careful", "bold") and who[:, 0, 0].tolist() == [0, 1, 0]
    assert who_labels(lambda s: s.true, segments)[0] == ("",)


def test_lines_of_a_file_say_who_gave_the_label(tmp_path):
    file = tmp_path / "labels.jsonl"
    rows = [(0.0, -1, "anna"), (1.0, 1, "ben"), (2.0, 0.5, "anna")]
    lines = [json.dumps({"segment": {"x": x}, "label": y, "who": who}) for x, y, who in rows]
    file.write_text("\n".join(lines))
    labels = SegmentLabels(str(file), ("x",))
    segments = segments_of([[[0.1, 1.2, 9.0]]])
    names, who = who_labels(labels, segments)
    assert names == ("anna", "ben") and who[0, 0].tolist() == [0, 1, 0]
    assert labels(segments)[0, 0].tolist() == [-1, 1, 0.5]
    file.write_text('{"segment": {"x": 1}, "label": 1, "who": ["anna"]}')
    with pytest.raises(UserError, match="is a name"):
        SegmentLabels(str(file), ("x",))


def test_who_is_flagged_often_is_believed_less_and_nobody_else_is():
    """What the careful person says is flagged 6 times in 10, so their other labels count 1 - 7/12 = 0.416667; the
    other person's, never flagged, count as they are."""
    place = setting(human="conservative,unbiased")
    human, _ = place.people()
    arm = ShapedFeedback(place, human, pl.control.ComputedGuide(lambda rows: np.tile([0.0, 0.0, 1.0], (len(rows), 1))))
    asyncio.run(arm.advisor.ask(place.sample, 1))
    arm.flags["conservative"], arm.labels["conservative"] = 6_000_000, 10_000_000
    segments = place.segments(place.sample)
    label, alive = human(segments), segments.alive
    f = arm.feedback(segments, label)
    of_first = np.arange(len(alive)) % 2 == 0
    assert f[of_first][alive[of_first]] == pytest.approx(0.4 * label[of_first][alive[of_first]], abs=1e-5)
    assert f[~of_first][alive[~of_first]] == pytest.approx(label[~of_first][alive[~of_first]])
    assert trust(6, 10) == pytest.approx(0.416667, abs=1e-6)
    told = arm.numbers(place.sample)
    assert told["trust"] == told["trust_conservative"] < 0.5 < told["trust_unbiased"]


def test_edge_cases_and_the_model_s_own_labels_are_in_every_run(context):
    asked = []

    def answer(request):
        asked.append(request.messages[0].content)
        return written_judgement(request)

    made = program(asked=pl.Scripted(answer), steps=400)
    assert isinstance(made.edge, CutIns)
    still = lambda obs, legal, rng: {"act": np.zeros((*obs.shape[:2], 1))}
    closest = lambda sim: pl.control.play_games(sim, still, 64, KEY)["obs"][..., 0].min() * 50
    crash = lambda sim: pl.control.play_games(sim, still, 64, KEY)["over"].any(1).mean()
    assert crash(CutIns()) > crash(made.sim) and closest(CutIns()) < 15
    arms = asyncio.run(made.run(context())).metrics["arms"]
    assert list(arms) == ["none", "human", "guide", "model", "shuffled", "oracle"]
    assert all(np.isfinite(arm["edge_return"]) for arm in arms.values())
    assert "trust" not in arms["model"] and arms["model"]["asked"] > 0  # it judges nobody
    alone = [text for text in asked if "How good is this" in text]
    assert alone and not any("A person labelled" in text for text in alone) and len(alone) < len(asked)
    # those of a simulator of one's own are its own
    assert llm_hfbf.build(sim="gymnasium:Pendulum-v1").edge is None


@pytest.mark.parametrize("human", ["", "nobody", "unbiased,unbiased", "unbiased,nobody"])
def test_people_that_are_none(human):
    with pytest.raises(UserError, match="human="):
        people_of(human)


def test_edge_cases_of_another_size_are_refused():
    with pytest.raises(UserError, match="edge="):
        replace(program(), edge=pl.control.Maze())

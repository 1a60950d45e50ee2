"""LLM-HFBF: labels with a bias, what becomes of them, and the arms."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import Fault, UserError
from palaestra.recipes.llm4rl import llm_hfbf
from palaestra.recipes.llm4rl.llm_hfbf.humans import (
    OwnHuman,
    SegmentLabels,
    Segments,
    SimulatedHuman,
    cut_segments,
)
from palaestra.recipes.llm4rl.llm_hfbf.judge import written_judgement
from palaestra.recipes.llm4rl.llm_hfbf.program import (
    NOT_READ,
    FeedbackSetting,
    ShapedFeedback,
    mix,
    trust,
)

KEY = ("test",)
LEARNER = pl.control.PPO(games=8, bootstrap=True)


def program(**settings):
    return replace(llm_hfbf.embedded(), **{"learner": LEARNER, "steps": 900, "games": 8, "calls": 40, **settings})


def setting(ctx=None, **settings):
    made = program(**settings)
    games = pl.control.play_games(made.sim, made.learner.start(made.sim, KEY).act, 8, KEY)
    words = pl.control.SimulatorWords.of(made.sim, games)
    return FeedbackSetting(program=made, ctx=ctx, words=words, key=KEY, sample=games)


def segments_of(true, **columns):
    shape = np.shape(true)
    means = np.stack([np.array(x, float) for x in columns.values()], -1) if columns else np.zeros((*shape, 1))
    return Segments(
        names=tuple(columns) or ("x",),
        means=means,
        alive=np.ones(shape, bool),
        true=np.array(true, float),
        effort=np.zeros(shape),
        steps=2,
    )


def test_what_a_label_becomes():
    """r = 0.8 and weight 0.5: -1 makes 0.3 of it, corrected to 0.6 it is 1.1, and with confidence 0.5 f = -0.2, 0.7."""
    guidance = np.array([[0, 0.6, 1.0], [1, 0.6, 1.0], [1, 0.6, 0.5], [NOT_READ, 0.0, 1.0]])
    f = mix(np.full(4, -1.0), guidance)
    assert f == pytest.approx([-1.0, 0.6, -0.2, 0.0])
    assert 0.8 + 0.5 * f == pytest.approx([0.3, 1.1, 0.7, 0.8])


def test_trust_is_smoothed():
    assert trust(6, 10) == pytest.approx(1 - 7 / 12) and trust(0, 0) == 0.5


def test_segments_by_hand():
    """Five steps in twos; the game is over after the third."""
    paid = np.array([[[1.0, 3.0, 5.0, 0.0, 0.0]]])
    alive = np.array([[True, True, True, False, False]])
    act = np.array([[[[1.0], [-3.0], [9.0], [2.0], [2.0]]]])
    box = pl.control.Box(low=(-4.0,), high=(2.0,))
    found = cut_segments({"reward": paid, "alive": alive, "act": act}, {"x": 10 * paid}, 2, box)
    assert found.true.tolist() == [[[2.0, 5.0, 0.0]]] and found.alive.tolist() == [[[True, True, False]]]
    assert found.means[0, 0, :, 0].tolist() == [20.0, 50.0, 0.0]
    assert found.effort[0, 0].tolist() == [0.5, 0.5, 0.0]  # (1/4 + 3/4) / 2, and 2 of 4: actions are cut
    assert found.spread(np.array([[[1, 2, 3]]]), 5).tolist() == [[[1, 1, 2, 2, 3]]]


@pytest.mark.parametrize(
    ("bias", "labels"),
    [
        ("unbiased", [0.5, -1.0, 1.0]),
        ("conservative", [0.5, -1.0, -1.0]),
        ("aggressive", [0.5, 1.0, 1.0]),
        ("delayed", [0.0, 0.5, -1.0]),
    ],
)
def test_biases_by_hand(bias, labels):
    """Pay 2, -3 and 9 with mean 1 and deviation 1 are 0.5, -2 and 4, clipped; the last two are fast."""
    human = SimulatedHuman(bias, 1.0, 1.0, 30.0, KEY)
    assert human(segments_of([[[2.0, -3.0, 9.0]]], speed=[[[5.0, 20.0, 25.0]]])).ravel().tolist() == labels


def test_a_noisy_person_says_the_same_of_the_same_games():
    human, seen = SimulatedHuman("noisy", 0.0, 1.0, 1.0, KEY), segments_of(np.ones((40, 1, 10)))
    labels = human(seen)
    assert (labels == human(seen)).all() and 0.3 < (labels == 0.5).mean() < 0.7 and np.abs(labels).max() <= 1


def test_labels_of_a_file_and_of_a_function(tmp_path):
    file = tmp_path / "labels.jsonl"
    rows = [({"gap": 0.0, "speed": 10.0}, -1), ({"gap": 2.0}, 0.5), ({"gap": 2.0, "speed": 30.0}, 1.0)]
    file.write_text("\n".join(json.dumps({"segment": s, "label": x}) for s, x in rows) + "\n\n")
    seen = segments_of([[[0, 0, 0]]], gap=[[[0.1, 2.0, 1.9]]], speed=[[[11.0, 21.0, 29.0]]])
    assert SegmentLabels(str(file), ("gap", "speed"))(seen).ravel().tolist() == [-1, 0.5, 1.0]
    for text, why in (
        ("", "has no label"),
        ('{"segment": {"gap": 1}, "label": 3}', "not from -1 to 1"),
        ('{"segment": {"gape": 1}, "label": 0}', "'gape'.* is no quantity; there are gap, speed"),
        ('{"label": 0}', "a line is"),
    ):
        file.write_text(text)
        with pytest.raises(UserError, match=why):
            SegmentLabels(str(file), ("gap", "speed"))
    own = OwnHuman(lambda means: means["gap"] - 1, "mine.py:label")
    assert own(seen).ravel() == pytest.approx([-0.9, 1.0, 0.9])
    with pytest.raises(UserError, match=r"mine.py:label gave 'good'"):
        OwnHuman(lambda means: "good", "mine.py:label")(seen)
    with pytest.raises(UserError, match="is one of unbiased"):
        llm_hfbf.build(human="angry")
    with pytest.raises(UserError, match=r"nowhere\.jsonl"):
        SegmentLabels("nowhere.jsonl", ("gap",))


def test_a_question_has_the_label_and_the_means_but_not_the_pay():
    place = setting()
    segments = place.segments(place.sample)
    label = np.full(segments.true.shape, -0.55)
    calm = segments.alive & (segments.means[..., -1] == 0)  # without a collision
    text = place.spell(place.situations(segments, label)[calm][0])
    assert "labelled it -0.50" in text and "- collision = 0 (" in text and "Driving faster" in text
    speed = float(text.split("- speed = ")[1].split()[0])
    assert speed == pytest.approx(segments.means[calm][0][1], abs=30 / 24 + 0.01)
    alone = setting(feedback="model")
    assert "labelled" not in alone.spell(alone.situations(segments, label)[segments.alive][0])
    assert "reward" not in text and " paid " not in text


def shaped(place, human, guide=None):
    return ShapedFeedback(place, human, guide)


def test_labels_shape_every_step_of_their_segment_and_none_after_the_end():
    place = setting(weight=0.5)
    human = lambda segments: np.ones(segments.true.shape)
    games = place.sample
    given = shaped(place, human)(games) - games["reward"]
    alive = np.broadcast_to(games["alive"][:, None], given.shape)
    assert given[alive] == pytest.approx(0.5) and not given[~alive].any()
    assert (shaped(place, None)(games) == games["reward"]).all()


def test_a_potential_of_constant_labels_pays_its_differences():
    """Labels of 1 are fitted by Phi near weight = 0.5, so F is near (gamma - 1) / 2, and -Phi where a game is over."""
    place = setting(weight=0.5, potential=True)
    games = place.sample
    given = (shaped(place, lambda s: np.ones(s.true.shape))(games) - games["reward"])[:, 0]
    inner = games["alive"] & ~games["over"]
    assert given[inner] == pytest.approx(-0.005, abs=0.01)
    assert given[games["over"]] == pytest.approx(-0.5, abs=0.05)


def test_who_is_flagged_often_is_believed_less():
    """One guidance for all: not flagged counts as it is until the trust is below a half."""
    place = setting()
    human = lambda segments: np.full(segments.true.shape, -1.0)
    never = pl.control.ComputedGuide(lambda rows: np.tile([0.0, 0.0, 1.0], (len(rows), 1)))
    always = pl.control.ComputedGuide(lambda rows: np.tile([1.0, 0.6, 1.0], (len(rows), 1)))
    for guide, corrected in ((never, 0.0), (always, 1.6)):
        arm = shaped(place, human, guide)
        arm(place.sample)
        assert arm.corrected == 0  # nobody was asked before the first games
        for i in range(1, 9):
            asyncio.run(arm.advisor.ask(place.sample, i))
        arm(place.sample)
        known = arm.numbers(place.sample)
        assert arm.corrected == pytest.approx(corrected * (1 if corrected == 0 else known["flagged"]), abs=0.2)
    # most labels are flagged, so one that is not counts by the trust
    arm.flags[""], arm.labels[""] = 6000, 10_000
    segments = place.segments(place.sample)
    arm.advisor.cache.value_MG[:] = [0.0, 0.0, 1.0]
    f = arm.feedback(segments, human(segments))
    assert f[segments.alive] == pytest.approx(-arm.trust("")) and f.max() > -0.5


def test_a_killed_run_ends_with_the_same_and_arms_share_no_guidance(context, tmp_path):
    asked, made = [], program()

    def answer(request):
        asked.append(request.messages[0].content)
        return "no idea" if len(asked) == 1 else written_judgement(request)

    source = pl.Scripted(answer)
    run = lambda: asyncio.run(replace(made, asked=source).run(context(out=tmp_path, seed=2))).metrics
    first, calls = run(), len(asked)
    (tmp_path / "kept" / "arm-guide.json").unlink()
    again = run()
    assert again == first and len(asked) == calls  # heard again from the transcript
    arms = first["arms"]
    assert list(arms) == ["none", "human", "guide", "model", "shuffled", "oracle"]
    steps = [arm["env_steps"] for arm in arms.values()]
    assert min(steps) >= 900 and max(steps) - min(steps) <= 8 * 60
    assert arms["guide"]["asked"] <= 40 and arms["shuffled"]["asked"] > 0 and "asked" not in arms["human"]
    assert first["corrected"] > 0 == arms["human"]["corrected"]
    assert first["lost_by_bias"] == pytest.approx(first["return_oracle"] - first["return_human"])
    policy = pl.control.load_policy(tmp_path / "policy")
    assert pl.control.mean_return(made.sim, policy.act, 8, ("llm-hfbf", 2, "test")) == pytest.approx(first["return"])


def test_an_endpoint_that_fails_ends_the_run(context):
    def answer(request):
        raise pl.Fault("chat-500", "down")

    with pytest.raises(Fault, match="down"):
        asyncio.run(program(asked=pl.Scripted(answer)).run(context()))
    with pytest.raises(UserError, match="--llm endpoint"):
        asyncio.run(replace(program(), asked=None).run(context()))


def test_a_simulator_and_labels_of_ones_own(context, tmp_path):
    pytest.importorskip("gymnasium")
    file = tmp_path / "labels.jsonl"
    file.write_text('{"segment": {"number_0": 1.0}, "label": 1}\n{"segment": {"number_0": -1.0}, "label": -0.75}\n')
    seen = []

    def answer(request):
        seen.append(request.messages[0].content)
        return {"biased": True, "corrected": 0.0}

    (tmp_path / "own.py").write_text(
        "import gymnasium\ndef make():\n    return gymnasium.make('Pendulum-v1', max_episode_steps=20)\n"
    )
    sim = pl.control.simulator_by_name(f"{tmp_path}/own.py:make")
    learner = pl.control.PPO(games=2, bootstrap=True)
    made = program(sim=sim, edge=sim, human=str(file), asked=pl.Scripted(answer), learner=learner)
    found = asyncio.run(replace(made, games=2).run(context(steps=2))).metrics
    assert "- number_0 = " in seen[0] and {"labelled it 1.00", "labelled it -0.75"} & {
        s for text in seen if "labelled" in text for s in [text[text.index("labelled") :].split(",")[0]]
    }
    assert found["arms"]["none"]["env_steps"] == 80 and found["corrected"] > 0
    assert found["arms"]["guide"]["edge_return"] < 0

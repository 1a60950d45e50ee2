"""omni-r1: the catalogue's values by hand, what containment pays, and clips whose answers are biased by a known share."""

import json
from collections import Counter

import numpy as np
import palaestra as pl
import pytest
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.models.ears import log_mel
from palaestra.recipes.multimodal import omni_r1
from palaestra.run.benches import from_data
from palaestra.sounds import Sound, samples_of, to_wav
from palaestra.tasks.media import MediaControl, media_of
from palaestra.toys.clips import COUNTS, FAVOURITES, SLOTS, Clips
from palaestra.types import Task
from palaestra.verifiers.answers.choice import ContainedOption, contained_options

from tests.recipes.objectives.helpers import advantages, near

OPTIONS = ("cat", "dog", "rain", "rain stick")


def test_advantages_of_one_right_answer_of_four():
    """(1.5, -0.5, -0.5, -0.5) with the sample's deviation, 0.5; (1.732051, -0.577350, ...) with that of the population."""
    answers = [{"reward": r} for r in (1.0, 0.0, 0.0, 0.0)]
    recipe = omni_r1.build(kl=0.0, exam=0)
    assert list(advantages(recipe, *answers)) == near([1.5, -0.5, -0.5, -0.5], 1e-5)
    population = pl.vary(recipe, credit=pl.chain(pl.Center("group"), pl.Scale("group", ddof=0)))
    assert list(advantages(population, *answers)) == near([1.732051, -0.577350, -0.577350, -0.577350], 1e-5)


@pytest.mark.parametrize(
    ("text", "gold", "raw", "guarded"),
    [
        ("dog", "dog", 1, 1),
        ("It is a DOG.", "dog", 1, 1),
        ("cat or dog", "dog", 1, 0),  # the catalogue's loophole
        ("cat dog rain rain stick", "dog", 1, 0),
        ("rain stick", "rain", 1, 0),  # the longer option is named, and it alone
        ("rain stick", "rain stick", 1, 1),
        ("rain", "rain stick", 0, 0),
        ("hotdogs", "dog", 1, 0),
        ("B", "dog", 0, 0),
        ("", "dog", 0, 0),
        ("nothing", "dog", 0, 0),
    ],
)
def test_what_containment_pays(text, gold, raw, guarded):
    task = Task(id="t", answer=gold, meta={"options": list(OPTIONS)})
    reward = omni_r1.OptionReward().judge(text, task)
    assert (reward.parts["contained"], reward.total, reward.solved) == (raw, guarded, bool(guarded))
    assert omni_r1.OptionReward(guard=False).judge(text, task).total == raw
    assert reward.parts["listed"] == (len(contained_options(text, OPTIONS)) > 1)


def test_the_right_option_may_be_its_letter_or_place():
    for answer in ("dog", "B", 1):
        assert ContainedOption()("dog", answer, options=OPTIONS).score == 1
    with pytest.raises(UserError, match="has no `options`"):
        omni_r1.OptionReward().judge("dog", Task(id="t", answer="dog"))
    with pytest.raises(UserError, match="is none of the 4 options"):
        omni_r1.OptionReward().judge("dog", Task(id="t", answer="cow", meta={"options": list(OPTIONS)}))


@pytest.mark.parametrize("bias", [0.45, 0.25])
def test_who_hears_nothing_is_right_as_often_as_the_bias_says(bias):
    """The favourite of a question is always shown, and right with this probability; the others share the rest."""
    tasks = [Clips(bias=bias).task("train", i) for i in range(600)]
    favourites = {
        q: FAVOURITES[k] for k, q in (("what", "what is it?"), ("first", "which comes first?"), ("count", "how many?"))
    }
    guesses = [favourites[t.meta["question"]] for t in tasks]
    assert all(g in t.meta["options"] and len(set(t.meta["options"])) == 4 for g, t in zip(guesses, tasks, strict=True))
    rate = np.mean([g == t.answer for g, t in zip(guesses, tasks, strict=True)])
    assert rate == pytest.approx(bias, abs=4 * (bias * (1 - bias) / 600) ** 0.5)
    # no place among the options is better than another
    places = Counter(t.meta["options"].index(t.answer) for t in tasks)
    assert max(places.values()) / 600 < 0.25 + 4 * (0.1875 / 600) ** 0.5


def heard(task):
    (clip,) = media_of(task)
    return samples_of(clip)


def loud_runs(wave):
    """Stretches of a clip that are louder than its noise, in frames of 20 ms."""
    frames = np.sqrt((wave.reshape(-1, 160) ** 2).mean(1)) > 0.05
    return [run for run in "".join("x" if f else "." for f in frames).split(".") if run]


def test_clips_hold_what_their_scene_says():
    centroid = lambda mel: (np.arange(40)[:, None] * 10 ** (4 * mel)).sum(0) / (10 ** (4 * mel)).sum(0)
    for i in range(60):
        task = Clips(kinds=("count",)).task("train", i)
        assert len(loud_runs(heard(task))) == COUNTS.index(task.answer) + 1 == len(task.meta["events"]) <= SLOTS
    for i in range(40):
        task = Clips(kinds=("what",)).task("train", i)
        mel = log_mel(heard(task))
        loud = np.flatnonzero(mel.max(0) > mel.max() - 0.4)
        begin, end = centroid(mel)[loud[3]], centroid(mel)[loud[-4]]
        slope = {"rise": 1, "fall": -1}.get(task.answer, 0)
        assert (end - begin > 8) == (slope > 0) and (begin - end > 8) == (slope < 0)
        middle = centroid(mel)[loud].mean()
        assert task.answer not in ("low", "high") or (middle > 15) == (task.answer == "high")
    task = Clips(kinds=("first",)).task("train", 0)
    assert task.meta["events"][0] == task.answer != task.meta["events"][1]


def test_the_same_clips_in_words_and_no_clip_in_both_splits():
    sound, words = Clips(), Clips(talk=True)
    for i in range(20):
        a, b = sound.task("test", i), words.task("test", i)
        assert (a.answer, a.meta) == (b.answer, b.meta) and not media_of(b)
        assert b.prompt[0].content.startswith(" ".join(a.meta["events"]) + ". ")
        assert sound.check(sound.demonstration(a, None, "work"), a)["solved"] == 1
        bare = MediaControl(question=False).apply(a)
        assert a.meta["question"] not in bare.prompt[0].content and "options: " in bare.prompt[0].content
    train, test = ({media_of(sound.task(s, i))[0].digest for i in range(60)} for s in ("train", "test"))
    assert not train & test and len(train) == 60
    for wrong in ({"bias": 0.2}, {"kinds": ()}, {"kinds": ("where",)}):
        with pytest.raises(UserError, match="clips: "):
            Clips(**wrong)


def test_media_of_training_are_an_argument(context):
    import asyncio

    ctx = context("clips")
    for media, question in (("removed", True), ("swapped", True), ("kept", False)):
        draw = omni_r1.build(media=media, question=question, exam=0).draw
        tasks, _ = asyncio.run(draw(ctx, ("k",), 3, {}))
        own = [ctx.bench.tasks.task("train", i) for i in range(3)]
        assert [t.answer for t in tasks] == [t.answer for t in own]
        for task, plain in zip(tasks, own, strict=True):
            assert bool(media_of(task)) == (media != "removed")
            assert (media_of(task) == media_of(plain)) == (media == "kept")
            assert (plain.meta["question"] in task.prompt[0].content) == question


def test_a_run_on_files_of_a_users_own(tmp_path, capsys):
    """Other names, a stereo file, a row without a sound; and what is said of a missing column and of a long sound."""
    clips = Clips()
    rows = []
    for i in range(12):
        task = clips.task("train", i)
        (tmp_path / f"{i}.wav").write_bytes(to_wav(media_of(task)[0]))
        rows.append(
            {"clip": f"{i}.wav", "q": task.meta["question"], "choices": task.meta["options"], "right": task.answer}
        )
    rows.append({"q": "what is two?", "choices": ["one", "two"], "right": "two"})
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    command = [
        "train",
        "omni-r1",
        "--data",
        str(file),
        "--columns",
        "clip=audio,q=prompt,choices=options,right=answer",
    ]
    options = ["--steps", "1", "--evaluate", "1", "--max-tokens", "3", "samples=2", "exam=1", "schedule.prompts=1"]
    assert main([*command, "--out", str(tmp_path / "run"), *options]) == 0
    log = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    measured = [line["evaluations"]["media"] for line in log if "evaluations" in line]
    assert {"kept", "removed", "swapped", "no question", "used"} <= measured[0].keys() and "benefit" in measured[-1]
    capsys.readouterr()
    file.write_text("".join(json.dumps({k: x for k, x in r.items() if k != "choices"}) + "\n" for r in rows))
    assert (
        main([*command[:4], "--columns", "clip=meta.audio,q=prompt,right=answer", "--out", str(tmp_path / "no")]) != 0
    )
    said = capsys.readouterr().err
    assert "options" in said and "Traceback" not in said


def test_a_sound_that_is_too_long_is_named_before_the_first_step(tmp_path, capsys):
    """Met in the middle of a run before, by a number that no file has."""
    short = media_of(Clips().task("train", 0))[0]
    (tmp_path / "a.wav").write_bytes(to_wav(short))
    (tmp_path / "long.wav").write_bytes(to_wav(Sound.from_samples(np.zeros(20_000), 8000)))
    row = {"options": ["dog", "rain"], "answer": "rain"}
    rows = [{**row, "audio": "long.wav" if i == 17 else "a.wav", "prompt": f"What is it? {i}"} for i in range(20)]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    options = ["--data", str(tmp_path / "d.jsonl"), "--out", str(tmp_path / "run"), "samples=2", "exam=0"]
    assert main(["train", "omni-r1", *options, "--evaluate", "0", "schedule.prompts=1"]) != 0
    said = capsys.readouterr()
    assert "d.jsonl:18" in said.err and "hears up to 1 s: cut it" in said.err and "step 1" not in said.out


def test_sounds_of_a_file_are_read_as_questions(tmp_path):
    (tmp_path / "a.wav").write_bytes(to_wav(media_of(Clips().task("train", 0))[0]))
    row = {"audio": "a.wav", "prompt": "What is it?", "options": ["dog", "rain"], "answer": "rain"}
    (tmp_path / "d.jsonl").write_text(
        "".join(json.dumps({**row, "prompt": f"What is it? {i}"}) + "\n" for i in range(12))
    )
    bench = from_data(str(tmp_path / "d.jsonl"), "", "", judged=True, instruction=omni_r1.CHOOSE)
    task = bench.tasks.task("train", 0)
    assert "A. dog\nB. rain" in task.prompt[0].content and task.prompt[0].content.endswith(omni_r1.CHOOSE)
    assert len(media_of(task)) == 1 and omni_r1.OptionReward().judge("rain", task).solved

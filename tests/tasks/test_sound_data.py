"""Sounds of a user's file: every form that data sets and chat APIs have, and what is wrong in one line with its place."""

import base64
import io
import json
import re
import sys
import wave

import numpy as np
import pytest
from palaestra.errors import UserError
from palaestra.pictures import PICTURE_MARK, Picture
from palaestra.sounds import Sound, to_wav
from palaestra.tasks.files import FileTasks
from palaestra.tasks.sound_data import read_sound
from PIL import Image

LOW, HIGH = 440, 1500


def wav(hertz=LOW, n=800, rate=8000, width=2, channels=1, level=0.5):
    values = level * np.sin(2 * np.pi * hertz * np.arange(n) / rate)
    scaled = np.round(values * (2 ** (8 * width - 1) - 1)).astype(np.int64)
    scaled = scaled + 128 if width == 1 else scaled
    data = b"".join(int(x).to_bytes(width, "little", signed=width > 1) * channels for x in scaled)
    return pack(data, rate, width, channels)


def pack(data, rate=8000, width=2, channels=1):
    room = io.BytesIO()
    with wave.open(room, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(data)
    return room.getvalue()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "clips").mkdir()
    for name, hertz in (("low", LOW), ("high", HIGH)):
        (tmp_path / "clips" / f"{name}.wav").write_bytes(wav(hertz))
    Image.new("RGB", (4, 4), (255, 0, 0)).save(tmp_path / "red.png")
    (tmp_path / "song.mp3").write_bytes(b"ID3\x04" + b"\0" * 60)
    (tmp_path / "cut.wav").write_bytes(wav()[:30])
    (tmp_path / "float.wav").write_bytes(wav()[:20] + b"\x03\x00" + wav()[22:])
    (tmp_path / "long.wav").write_bytes(pack(bytes(2 * 8000 * 61)))
    (tmp_path / "none.wav").write_bytes(wav(n=0))
    return tmp_path


def tasks(folder, *records):
    path = folder / f"{'x' * len(list(folder.glob('*.jsonl')))}d.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in (*records, {"prompt": "no sound", "answer": "x"})))
    return FileTasks(str(path), test=str(path))


def prompt(folder, record):
    return tasks(folder, {"answer": "a", **record}).task("train", 0).prompt


def pitch(sound):
    """Hertz of the loudest frequency."""
    spectrum = np.abs(np.fft.rfft(np.frombuffer(sound.data, "<i2").astype(float)))
    return float(spectrum.argmax() * sound.rate / sound.shape[0])


def test_a_column_of_one_sound_stands_before_the_question(folder):
    (asked,) = prompt(folder, {"audio": "clips/low.wav", "prompt": "which?"})
    (sound,) = asked.pictures
    assert asked.content == f"{PICTURE_MARK}which?" and type(sound) is Sound
    assert (sound.rate, sound.shape, pitch(sound)) == (8000, (800, 1, 2), LOW)
    assert to_wav(sound) == wav(LOW)
    made = tasks(folder, {"audio": "clips/low.wav", "prompt": "which?", "answer": 1}).task("train", 0)
    assert "audio" not in made.meta


def test_sounds_and_pictures_stand_where_the_text_says_or_before_it(folder):
    both = {"image": "red.png", "audios": ["clips/low.wav", "clips/high.wav"]}
    kinds = lambda m: [type(p).__name__ for p in m.pictures]
    (asked,) = prompt(folder, {**both, "prompt": "which?"})
    assert asked.content == PICTURE_MARK * 3 + "which?" and kinds(asked) == ["Picture", "Sound", "Sound"]
    (asked,) = prompt(folder, {**both, "prompt": "Is <audio> like <image> or <audio>?"})
    assert asked.content == f"Is {PICTURE_MARK} like {PICTURE_MARK} or {PICTURE_MARK}?"
    assert kinds(asked) == ["Sound", "Picture", "Sound"] and pitch(asked.pictures[2]) == HIGH
    (asked,) = prompt(folder, {**both, "prompt": "Is <audio> like <audio>?"})
    assert asked.content == f"{PICTURE_MARK}Is {PICTURE_MARK} like {PICTURE_MARK}?" and kinds(asked)[0] == "Picture"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "audio", "audio": "clips/high.wav"},
        {"type": "audio", "path": "clips/high.wav"},
        {"type": "audio", "audio": {"bytes": None, "path": "clips/high.wav"}},
        {"type": "audio", "base64": base64.b64encode(wav(HIGH)).decode()},
        {"type": "input_audio", "input_audio": {"data": base64.b64encode(wav(HIGH)).decode(), "format": "wav"}},
        {"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64," + base64.b64encode(wav(HIGH)).decode()}},
    ],
)
def test_parts_of_messages_in_the_forms_of_others(folder, part):
    text = lambda x: {"type": "text", "text": x}
    (asked,) = prompt(folder, {"messages": [{"role": "user", "content": [text("a "), part, text(" b")]}]})
    assert asked.content == f"a {PICTURE_MARK} b" and [pitch(p) for p in asked.pictures] == [HIGH]


def test_parts_without_a_file_take_what_the_columns_have(folder):
    parts = [{"type": "audio"}, {"type": "text", "text": "or"}, {"type": "image"}, {"type": "audio"}]
    talk = {"messages": [{"role": "user", "content": parts}]}
    both = {"image": "red.png", "audios": ["clips/low.wav", "clips/high.wav"]}
    (asked,) = prompt(folder, {**both, **talk})
    assert asked.content == f"{PICTURE_MARK}or{PICTURE_MARK * 2}"
    assert [type(p) for p in asked.pictures] == [Sound, Picture, Sound]
    with pytest.raises(UserError, match=r'is a sound without a file.*write \{"type": "audio", "audio": "a\.wav"\}'):
        prompt(folder, {"image": "red.png", **talk})


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2])
def test_all_widths_and_channels_sound_alike(folder, width, channels):
    (folder / "a.wav").write_bytes(wav(LOW, width=width, channels=channels))
    (sound,) = prompt(folder, {"audio": "a.wav", "prompt": "?"})[0].pictures
    plain = np.frombuffer(wav(LOW)[44:], "<i2").astype(int)
    gap = np.abs(np.frombuffer(sound.data, "<i2").astype(int) - plain).max()
    assert (sound.shape[0], sound.rate) == (800, 8000) and gap <= (256 if width == 1 else 1)


def test_channels_are_averaged_and_high_rates_brought_down(folder):
    left, right = (np.frombuffer(wav(h, 4410, 44100)[44:], "<i2") for h in (LOW, 3000))
    stereo = bytearray(wav(LOW, 4410, 44100, channels=2))
    stereo[44:] = np.stack([left, right], 1).tobytes()
    (folder / "a.wav").write_bytes(bytes(stereo))
    (sound,) = prompt(folder, {"audio": "a.wav", "prompt": "?"})[0].pictures
    assert (sound.rate, sound.shape[0]) == (16000, 1600)
    loud = np.abs(np.fft.rfft(np.frombuffer(sound.data, "<i2").astype(float)))
    assert sorted(np.argsort(loud)[-2:] * 10) == [LOW, 3000]  # bins of 10 Hz
    assert loud[44] == pytest.approx(loud[300], rel=0.01)


def test_arrays_of_data_sets(folder):
    values = (0.5 * np.sin(2 * np.pi * LOW * np.arange(800) / 8000)).tolist()
    for array in (values, [values, values], [[v, v] for v in values]):
        (sound,) = prompt(folder, {"audio": {"array": array, "sampling_rate": 8000}, "prompt": "?"})[0].pictures
        assert (sound.rate, sound.shape[0], pitch(sound)) == (8000, 800, LOW)


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"audio": "clips/lov.wav"}, r"d\.jsonl:1: audio: no sound '.*lov\.wav'.*did you mean.*low\.wav"),
        ({"audio": "https://x.org/a.wav"}, "nothing is fetched from the net; download the sound"),
        ({"audio": "song.mp3"}, r"song\.mp3 is no WAV file that is read here .*ffmpeg"),
        ({"audio": "cut.wav"}, "is no WAV file that is read here"),
        ({"audio": "float.wav"}, r"is no WAV file that is read here \(unknown format: 3\)"),
        ({"audio": "long.wav"}, "is 61 s long, and sounds have at most 60 s"),
        ({"audio": "none.wav"}, "has no samples"),
        ({"audio": "data:audio/wav;base64,@@"}, "is no sound in base64"),
        ({"audio": base64.b64encode(wav()).decode()}, "is a sound in base64, .*write data:audio/wav;base64,"),
        ({"audio": 3}, r"audio is a number \('3'\); write the path of a sound"),
        ({"audio": "clips/low.wav", "audios": ["clips/low.wav"]}, "both 'audio' and 'audios'"),
        ({"audio": {"array": [0.1], "sampling_rate": "8k"}}, "sampling_rate is .*write a whole number of hertz"),
        ({"audio": {"array": [0.1, "x"], "sampling_rate": 8000}}, "something other than numbers"),
        ({"audio": {"array": [], "sampling_rate": 8000}}, "has no samples"),
        (
            {"audios": ["clips/low.wav"] * 2, "prompt": "<audio>"},
            r"sounds in a column: 2, and places for them: 1 \(each <audio>",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(folder, record, why, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)  # as where no decoder is installed
    with pytest.raises(UserError, match=re.compile(why, re.S)):
        tasks(folder, {"prompt": "which?", "answer": "a", **record})


def test_text_that_names_no_sound_stays_text_and_is_told_among_sounds(folder):
    made = tasks(folder, {"audio": "loud", "prompt": "a?", "answer": "b"}).task("train", 0)
    assert made.meta["audio"] == "loud" and not made.prompt[0].pictures
    rows = [{"prompt": f"{x}?", "answer": "a", "audio": x} for x in ("clips/low.wav", "clips/1")]
    (note,) = [n for n in tasks(folder, *rows).notes if "sound" in n]
    assert "have no sound, but text in its column, first 'clips/1'" in note


def test_records_that_differ_in_a_sound_alone_are_different(folder):
    rows = [{"audio": f"clips/{x}.wav", "prompt": "which?", "answer": x} for x in ("low", "high")]
    path = folder / "two.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in rows * 8))
    made = FileTasks(str(path))
    held = {made.task("test", i).answer for i in range(made.test_size)}
    assert len(held) == 1 and held != {made.task("train", i).answer for i in range(made.size)}


def test_other_formats_are_decoded_where_a_decoder_is_installed(folder):
    """FLAC loses nothing; the sound of a video; a video without one, and a file that is neither."""
    av = pytest.importorskip("av")
    samples_N = np.round(9000 * np.sin(2 * np.pi * LOW * np.arange(16000) / 16000)).astype(np.int16)
    for name, codec in (("a.flac", "flac"), ("a.mkv", "pcm_s16le")):
        with av.open(str(folder / name), "w") as container:
            heard = container.add_stream(codec, rate=16000, layout="mono")
            frame = av.AudioFrame.from_ndarray(samples_N[None], format="s16", layout="mono")
            frame.sample_rate = 16000
            container.mux([*heard.encode(frame), *heard.encode(None)])
        (asked,) = prompt(folder, {"audio": name, "prompt": "?"})
        (sound,) = asked.pictures
        assert sound.rate == 16000 and np.array_equal(np.frombuffer(sound.data, "<i2"), samples_N)
        assert read_sound(name, "", folder, 0.25).shape[0] == 4000
    with av.open(str(folder / "mute.mp4"), "w") as container:
        seen = container.add_stream("mpeg4", rate=5)
        seen.width, seen.height = 32, 32
        container.mux([*seen.encode(av.VideoFrame.from_image(Image.new("RGB", (32, 32)))), *seen.encode()])
    with pytest.raises(UserError, match=r"mute\.mp4 has no sound"):
        read_sound("mute.mp4", "", folder)
    with pytest.raises(UserError, match=r"cut\.wav cannot be read as a sound"):
        read_sound("cut.wav", "", folder)


def test_the_end_of_a_long_sound_is_cut_where_a_limit_is_given(folder):
    with pytest.raises(UserError, match="and sounds have at most 60 s; cut it, or say with --max-duration"):
        read_sound("long.wav", "", folder)
    assert read_sound("long.wav", "", folder, 61).seconds == 61  # a limit may be above the usual one
    short, whole = read_sound("clips/low.wav", "", folder, 0.05), read_sound("clips/low.wav", "", folder)
    assert short.seconds == 0.05 and whole.data.startswith(short.data)
    assert read_sound("clips/low.wav", "", folder, 5) == whole
    rows = folder / "cut.jsonl"
    rows.write_text(json.dumps({"audio": "clips/low.wav", "prompt": "?", "answer": 1}))
    cut = FileTasks(str(rows), test=str(rows), max_duration=0.02)
    assert cut.task("train", 0).prompt[0].pictures[0].seconds == 0.02
    listed = {"array": [0.0, 0.1] * 800, "sampling_rate": 8000}
    assert read_sound(listed, "", folder, 0.1).shape[0] == 800

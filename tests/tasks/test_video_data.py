"""Videos in records: which frames are taken, in what order they are read, and where they stand in a prompt."""

import base64
import io
import json
import re
import sys

import pytest
from palaestra.errors import UserError
from palaestra.pictures import PICTURE_MARK
from palaestra.tasks.files import FileTasks
from palaestra.tasks.video_data import frame_places, read_video
from PIL import Image


def shade(i):
    return Image.new("RGB", (6, 4), (10 * i, 0, 0))


def shades(pictures):
    return [p.data[0] // 10 for p in pictures]


def animation(n, kind="GIF"):
    file = io.BytesIO()
    first, *rest = [shade(i) for i in range(n)]
    how = {"lossless": True} if kind == "WEBP" else {}
    first.save(file, kind, save_all=True, append_images=rest, **how)
    return file.getvalue()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "clips").mkdir()
    for kind in ("GIF", "WEBP", "PNG"):
        (tmp_path / "clips" / f"ten.{kind.lower()}").write_bytes(animation(10, kind))
    (tmp_path / "frames").mkdir()
    for i in range(12):
        shade(i).save(tmp_path / "frames" / f"frame{i}.png")
    (tmp_path / "frames" / "notes.txt").write_text("no frame")
    shade(20).save(tmp_path / "now.png")
    return tmp_path


def tasks(folder, record, **options):
    path = folder / f"{'x' * len(list(folder.glob('*.jsonl')))}d.jsonl"
    path.write_text(json.dumps({"answer": "a", **record}) + '\n{"prompt": "no clip", "answer": "x"}\n')
    return FileTasks(str(path), test=str(path), **options).task("train", 0)


def asked(folder, record, **options):
    return tasks(folder, record, **options).prompt[-1]


@pytest.mark.parametrize(
    ("total", "n", "places"),
    [
        (10, 4, [0, 3, 6, 9]),
        (9, 4, [0, 3, 5, 8]),  # 2.67 and 5.33 are rounded
        (6, 3, [0, 2, 5]),  # 2.5 to the even number, as torch.linspace(0, 5, 3).round()
        (3, 4, [0, 1, 2]),
        (5, 1, [2]),
        (1, 16, [0]),
    ],
)
def test_frames_at_equal_distances(total, n, places):
    assert frame_places(total, n) == places


@pytest.mark.parametrize("kind", ["gif", "webp", "png"])
def test_an_animated_file_gives_its_frames_in_order(folder, kind):
    assert shades(read_video(f"clips/ten.{kind}", "", folder, frames=4)) == [0, 3, 6, 9]
    assert shades(read_video(animation(3), "", folder)) == [0, 1, 2]
    assert len(read_video({"bytes": animation(30), "path": None}, "", folder)) == 16


def test_a_folder_gives_its_frames_by_their_numbers(folder):
    """frame2 stands before frame10."""
    assert shades(read_video("frames", "", folder, frames=12)) == list(range(12))
    assert shades(read_video(f"file://{folder}/frames", "", folder, frames=2)) == [0, 11]
    assert shades(read_video([f"frames/frame{i}.png" for i in (3, 1, 2)], "", folder)) == [3, 1, 2]
    url = "data:image/gif;base64," + base64.b64encode(animation(2)).decode()
    assert shades(read_video(url, "", folder)) == [0, 1]


def test_a_column_stands_before_the_picture_and_the_question(folder):
    record = {"video": "clips/ten.gif", "image": "now.png", "prompt": "next?"}
    message = asked(folder, record, max_frames=4)
    assert message.content == f"{PICTURE_MARK * 5}next?" and shades(message.pictures) == [0, 3, 6, 9, 20]
    assert "video" not in tasks(folder, record).meta
    assert len(asked(folder, record).pictures) == 11


def test_a_text_says_where(folder):
    record = {"video": "clips/ten.gif", "image": "now.png", "prompt": "now <image> after <video>?"}
    message = asked(folder, record, max_frames=2)
    assert message.content == f"now {PICTURE_MARK} after {PICTURE_MARK * 2}?"
    assert shades(message.pictures) == [20, 0, 9]
    message = asked(folder, {**record, "prompt": "was <video>, next?"}, max_frames=2)  # the picture without a place
    assert message.content == f"{PICTURE_MARK}was {PICTURE_MARK * 2}, next?" and shades(message.pictures) == [20, 0, 9]
    two = {"videos": ["clips/ten.gif", ["frames/frame1.png", "frames/frame2.png"]], "prompt": "<video> or <video>?"}
    message = asked(folder, two, max_frames=2)
    assert message.content == f"{PICTURE_MARK * 2} or {PICTURE_MARK * 2}?" and shades(message.pictures) == [0, 9, 1, 2]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "video", "video": "clips/ten.gif"},
        {"type": "video", "video": [f"frames/frame{i}.png" for i in range(10)]},
        {"type": "video", "path": "clips/ten.gif"},
        {"type": "video_url", "video_url": {"url": "clips/ten.gif"}},
    ],
)
def test_parts_of_messages(folder, part):
    talk = [{"role": "user", "content": [part, {"type": "text", "text": " next?"}]}]
    message = asked(folder, {"messages": talk}, max_frames=2)
    assert message.content == f"{PICTURE_MARK * 2} next?" and shades(message.pictures) == [0, 9]


def test_a_part_without_a_file_takes_the_video_of_the_column(folder):
    talk = [{"role": "user", "content": [{"type": "text", "text": "see "}, {"type": "video"}, {"type": "image"}]}]
    message = asked(folder, {"messages": talk, "video": "clips/ten.gif", "image": "now.png"}, max_frames=2)
    assert message.content == f"see {PICTURE_MARK * 3}" and shades(message.pictures) == [0, 9, 20]
    with pytest.raises(UserError, match="a video without a file, and there is no column 'video' or 'videos'"):
        asked(folder, {"messages": talk, "image": "now.png"})


def test_frames_are_made_smaller(folder):
    Image.new("RGB", (400, 100)).save(folder / "large.gif", save_all=True, append_images=[shade(3).resize((400, 100))])
    message = asked(folder, {"video": "large.gif", "prompt": "?"}, max_pixels=10_000)
    assert [p.shape for p in message.pictures] == [(50, 200, 3)] * 2


def test_text_that_names_no_video_stays_text(folder):
    for text in ("a cat, 3 s", "python:3.11"):
        assert tasks(folder, {"video": text, "prompt": "say <video>"}).meta["video"] == text


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"video": "clips/tin.gif"}, r"d\.jsonl:1: video: no video '.*tin\.gif'.*did you mean.*ten\.gif"),
        ({"video": "https://x.org/a.mp4"}, "nothing is fetched from the net; download the video"),
        ({"video": 3}, "video is a number .* a folder of frames"),
        ({"video": "clips/ten.gif", "videos": ["clips/ten.gif"]}, "both 'video' and 'videos'"),
        ({"video": [["now.png"]]}, "video is a list"),
        ({"videos": [[]]}, "is an empty list"),
        ({"video": "clips/ten.gif", "prompt": "<video> <video>"}, r"videos in a column: 1, and places for them: 2"),
        ({"video": "empty"}, "has no pictures; a folder is a video"),
        ({"video": "d.jsonl"}, "is no picture that Pillow reads"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(folder, record, why):
    (folder / "empty").mkdir()
    with pytest.raises(UserError, match=re.compile(why, re.DOTALL)):
        asked(folder, {"prompt": "which?", **record})


MP4 = b"\x00\x00\x00\x18ftypmp42" + bytes(64)


def test_a_video_format_says_how_its_frames_are_extracted(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    (folder / "c.mp4").write_bytes(MP4)
    with pytest.raises(UserError, match=r"palaestra\[video\].*ffmpeg -i clip\.mp4 .*name the folder"):
        asked(folder, {"video": "c.mp4", "prompt": "?"})


def test_a_video_format_is_decoded_where_a_decoder_is_installed(folder):
    av = pytest.importorskip("av")
    with av.open(str(folder / "c.mp4"), "w") as container:
        stream = container.add_stream("mpeg4", rate=5)
        stream.width, stream.height = 64, 48
        for i in range(9):
            for packet in stream.encode(av.VideoFrame.from_image(shade(2 * i).resize((64, 48)))):
                container.mux(packet)
        container.mux(stream.encode())
    frames = read_video("c.mp4", "", folder, frames=3)
    assert [p.shape for p in frames] == [(48, 64, 3)] * 3
    assert [abs(p.data[0] - 10 * k) < 12 for p, k in zip(frames, (0, 8, 16), strict=True)] == [True] * 3
    (folder / "cut.mp4").write_bytes(MP4)
    with pytest.raises(UserError, match=r"cut\.mp4 cannot be read"):
        read_video("cut.mp4", "", folder)

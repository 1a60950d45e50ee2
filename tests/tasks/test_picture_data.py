"""Pictures in the records of a file: columns and parts of messages, in every form; what is wrong is said with its place."""

import base64
import io
import json
import re
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from palaestra.errors import UserError
from palaestra.pictures import PICTURE_MARK
from palaestra.tasks.files import FileTasks
from palaestra.tasks.picture_files import from_pillow, read_picture
from PIL import Image

RED, BLUE = (200, 10, 10), (10, 10, 200)


def image(colour=RED, size=(6, 4)):
    return Image.new("RGB", size, colour)


def png(colour=RED, size=(6, 4)):
    file = io.BytesIO()
    image(colour, size).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "photos").mkdir()
    for name, colour in (("red", RED), ("blue", BLUE)):
        (tmp_path / "photos" / f"{name}.png").write_bytes(png(colour))
    return tmp_path


def tasks(folder, *records, **options):
    path = folder / f"{'x' * len(list(folder.glob('*.jsonl')))}d.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in (*records, {"prompt": "no picture", "answer": "x"})))
    return FileTasks(str(path), test=str(path), **options)


def prompt(folder, record, **options):
    return tasks(folder, {"answer": "a", **record}, **options).task("train", 0).prompt


def colours(message):
    return [tuple(p.data[:3]) for p in message.pictures]


def test_a_column_of_one_picture_stands_before_the_question(folder):
    (asked,) = prompt(folder, {"image": "photos/red.png", "prompt": "which?"})
    assert asked.content == f"{PICTURE_MARK}which?" and colours(asked) == [RED]
    assert asked.pictures[0].shape == (4, 6, 3)
    assert "image" not in tasks(folder, {"image": "photos/red.png", "prompt": "a?", "answer": 1}).task("train", 0).meta


@pytest.mark.parametrize("use", ["image", "images"])
def test_another_columns_name_is_told(folder, use):
    (asked,) = prompt(folder, {"photo": "photos/blue.png", "prompt": "which?"}, columns=f"photo={use}")
    assert colours(asked) == [BLUE]


def test_several_stand_where_the_text_says_or_before_it(folder):
    both = ["photos/red.png", "photos/blue.png"]
    (asked,) = prompt(folder, {"images": both, "prompt": "is <image> <image>?"})
    assert asked.content == f"is {PICTURE_MARK} {PICTURE_MARK}?" and colours(asked) == [RED, BLUE]
    (asked,) = prompt(folder, {"images": both, "prompt": "which?"})
    assert asked.content == f"{PICTURE_MARK * 2}which?" and colours(asked) == [RED, BLUE]
    talk = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    system, user = prompt(folder, {"images": both, "messages": talk})
    assert not system.pictures and colours(user) == [RED, BLUE]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "image": "photos/blue.png"},
        {"type": "image", "url": "photos/blue.png"},
        {"type": "image", "path": "photos/blue.png"},
        {"type": "image_url", "image_url": {"url": "photos/blue.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(png(BLUE)).decode()}},
        {"type": "image", "base64": base64.b64encode(png(BLUE)).decode()},
        {"type": "input_image", "image_url": "photos/blue.png"},
    ],
)
def test_parts_of_messages_in_the_forms_of_others(folder, part):
    text = lambda x: {"type": "text", "text": x}
    (asked,) = prompt(folder, {"messages": [{"role": "user", "content": [text("a "), part, text(" b")]}]})
    assert asked.content == f"a {PICTURE_MARK} b" and colours(asked) == [BLUE]


def test_parts_without_a_file_take_the_pictures_of_the_column(folder):
    bare, talk = {"type": "image"}, lambda *parts: [{"role": "user", "content": list(parts)}]
    text = {"type": "text", "text": "or"}
    (asked,) = prompt(folder, {"images": ["photos/red.png", "photos/blue.png"], "messages": talk(bare, text, bare)})
    assert asked.content == f"{PICTURE_MARK}or{PICTURE_MARK}" and colours(asked) == [RED, BLUE]
    with pytest.raises(UserError, match="a picture without a file"):
        prompt(folder, {"messages": talk(bare, text)})


def test_bytes_of_parquet_and_pictures_of_data_sets(folder):
    rows = [{"image": {"bytes": png(c), "path": None}, "prompt": "which?", "answer": "a"} for c in (RED, BLUE)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "d.parquet")
    made = FileTasks(str(folder / "d.parquet"), test=str(folder / "d.parquet"))
    assert [colours(made.task("train", i).prompt[0]) for i in (0, 1)] == [[RED], [BLUE]]
    assert read_picture(image(BLUE), "", folder).data[:3] == bytes(BLUE)
    assert read_picture(png(BLUE), "", folder).data[:3] == bytes(BLUE)


def test_records_that_differ_in_a_picture_alone_are_different(folder):
    """They are held out apart, and no note calls them repeats."""
    made = tasks(folder, *({"image": f"photos/{c}.png", "prompt": "which?", "answer": c} for c in ("red", "blue")))
    prompts = made.splits()["train"].prompt_N
    assert len(set(prompts.tolist())) == 3
    assert not any("repeat" in n or "invisible" in n or "differ" in n for n in made.notes)


def test_large_pictures_are_made_smaller_with_their_sides_in_proportion(folder):
    (folder / "large.png").write_bytes(png(RED, (400, 100)))
    (asked,) = prompt(folder, {"image": "large.png", "prompt": "which?"}, max_pixels=10_000)
    assert asked.pictures[0].shape == (50, 200, 3)
    (asked,) = prompt(folder, {"image": "large.png", "prompt": "which?"})
    assert asked.pictures[0].shape == (100, 400, 3)
    assert from_pillow(image(RED, (4000, 1000))).shape == (500, 2000, 3)


def test_transparent_and_turned_pictures():
    clear = Image.new("RGBA", (2, 2), (0, 0, 0, 0))
    assert from_pillow(clear).data == b"\xff" * 12
    assert from_pillow(Image.new("L", (2, 1), 7)).data == b"\x07" * 6
    turned = image(RED, (6, 4))
    turned.getexif()[0x0112] = 6
    file = io.BytesIO()
    turned.save(file, "JPEG", exif=turned.getexif())
    assert from_pillow(Image.open(file)).shape == (6, 4, 3)


@pytest.mark.parametrize(
    "name", ["photos/red.png ", "\nphotos/red.png", "photos/red.jfif", "photos/red.pgm", "photos/red.jp2"]
)
def test_spaces_around_a_path_and_rarer_endings(folder, name):
    if not (folder / name.strip()).is_file():
        image().save(folder / name)
    (asked,) = prompt(folder, {"image": name, "prompt": "which?"})
    assert asked.pictures[0].shape[:2] == (4, 6)


@pytest.mark.parametrize("long", ["x" * 300, "Qk" + "A" * 6000, "a" * 64])
def test_long_texts_that_are_no_pictures_stay_text(folder, long):
    assert tasks(folder, {"image": long, "prompt": "a?", "answer": "b"}).task("train", 0).meta["image"] == long


def test_texts_among_pictures_are_told(folder):
    shown, unseen = {"image": "photos/red.png"}, ({"image": "photos/1"}, {"image": "none"})
    rows = [{"prompt": f"which {i}?", "answer": "a", **r} for i, r in enumerate((shown, *unseen))]
    (note,) = [n for n in tasks(folder, *rows).notes if "picture" in n]
    assert re.match(
        r"2 of 4 records have no picture, but text in its column, first 'photos/1', e\.g\. .*d\.jsonl:2 ", note
    )
    assert not any("picture" in n for n in tasks(folder, *rows[1:]).notes)
    assert not any("picture" in n for n in tasks(folder, rows[0]).notes)


def test_empty_texts_among_pictures_are_told(folder):
    """A row whose picture was forgotten; rows without the column are meant as text."""
    rows = [{"prompt": f"which {i}?", "answer": "a", "image": x} for i, x in enumerate(("photos/red.png", "", " "))]
    (note,) = [n for n in tasks(folder, *rows).notes if "picture" in n]
    assert re.match(r"2 of 4 records have an empty text for a picture, video or sound, e\.g\. .*d\.jsonl:2 ", note)
    assert not any("picture" in n for n in tasks(folder, *rows[1:]).notes)


def test_text_in_a_column_called_image_that_names_no_picture_stays_text(folder):
    made = tasks(folder, {"image": "python:3.11", "prompt": "a?", "answer": "b"}).task("train", 0)
    assert made.meta["image"] == "python:3.11" and not made.prompt[0].pictures


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"image": "photos/rad.png"}, r"d\.jsonl:1: image: no picture '.*rad\.png'.*did you mean.*red\.png"),
        ({"image": "https://x.org/a.png"}, "nothing is fetched from the net; download"),
        ({"image": "d.jsonl"}, r"image: .*d\.jsonl is no picture that Pillow reads"),
        ({"image": "data:image/png;base64,@@"}, "is no picture in base64"),
        ({"image": "photos/red"}, r"no picture '.*red'; did you mean .*red\.png"),
        ({"image": "photos/red.avif"}, r"no picture '.*red\.avif'"),
        ({"image": base64.b64encode(png()).decode()}, r"is a picture in base64, .*write data:image/png;base64,"),
        ({"image": f"{'x' * 300}.png"}, r"no picture '.*xxx'"),
        ({"image": "~nobody-here/a.png"}, r"no picture '.*~nobody-here/a\.png'"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "image": "photos"}]}]}, r"photos' is a folder"),
        ({"image": 3}, r"image is a number \('3'\); write the path"),
        ({"image": "photos/red.png", "images": ["photos/red.png"]}, "both 'image' and 'images'"),
        (
            {"images": ["photos/red.png"] * 2, "prompt": "<image>"},
            r"pictures in a column: 2, and places for them: 1 \(",
        ),
        (
            {"image": "photos/red.png", "prompt": [{"role": "user", "content": [{"type": "image"}] * 2}]},
            r"a column: 1, and places for them: 2 \(.*each part \{'type': 'image'\} without a file",
        ),
        ({"image": "photos/red.png", "prompt": "a\ufffcb"}, r"U\+FFFC"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(folder, record, why):
    with pytest.raises(UserError, match=re.compile(why, re.S)):
        tasks(folder, {"prompt": "which?", "answer": "a", **record})


def test_an_assistant_shows_no_picture(folder):
    part = {"type": "image", "image": "photos/red.png"}
    talk = [{"role": "user", "content": "draw"}, {"role": "assistant", "content": [part]}]
    with pytest.raises(UserError, match="it writes text alone"):
        tasks(folder, {"messages": talk})


def test_a_broken_picture_can_be_left_out(folder):
    (folder / "cut.png").write_bytes(png(RED, (60, 60))[:90])
    bad = {"image": "cut.png", "prompt": "which?", "answer": "a"}
    with pytest.raises(UserError, match=r"cut\.png cannot be read"):
        tasks(folder, bad)
    assert tasks(folder, bad, skip="1").size == 1


def test_pixels_are_those_of_the_file(folder):
    noise = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    Image.fromarray(noise).save(folder / "n.png")
    (asked,) = prompt(folder, {"image": "n.png", "prompt": "?"})
    assert asked.pictures[0].data == noise.tobytes()


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_sixteen_bits_are_brought_to_eight(folder, kind):
    ramp = np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)
    Image.fromarray(ramp).save(folder / "deep", kind)
    seen = np.frombuffer(read_picture("deep", "", folder).data, np.uint8).reshape(-1, 3)
    assert (seen == np.arange(256)[:, None]).all()


def test_twelve_bits_of_a_tiff_and_a_transparent_number_of_a_png(folder):
    tags = {256: 4, 257: 1, 258: 12, 259: 1, 262: 1, 273: 8, 277: 1, 278: 1, 279: 6}
    entries = b"".join(struct.pack("<HHIHH", tag, 3, 1, x, 0) for tag, x in tags.items())
    packed = bytes.fromhex("000 800 fff 400".replace(" ", ""))  # 4 numbers of 12 bits
    head = struct.pack("<2sHI", b"II", 42, 14) + packed
    (folder / "twelve.tif").write_bytes(head + struct.pack("<H", len(tags)) + entries + bytes(4))
    assert list(read_picture("twelve.tif", "", folder).data[::3]) == [0, 128, 255, 64]
    Image.fromarray(np.array([[0, 257, 65535]], np.uint16)).save(folder / "clear.png", transparency=0)
    assert list(read_picture("clear.png", "", folder).data[::3]) == [255, 1, 255]


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_numbers_of_which_nobody_knows_the_white_are_refused(folder, kind):
    Image.fromarray(np.ones((2, 2), kind)).save(folder / "deep.tif")
    for value in ("deep.tif", Image.open(folder / "deep.tif")):
        with pytest.raises(UserError, match=r"^d\.jsonl:1.* cannot be read: .*save it with 8 bits a channel"):
            read_picture(value, "d.jsonl:1", folder)


def test_urls_of_files_and_of_data_in_any_spelling(folder):
    (folder / "a b%.png").write_bytes(png(BLUE))
    for head in ("file://", "FILE://localhost"):
        assert read_picture(f"{head}{folder}/a%20b%25.png", "", folder).data[:3] == bytes(BLUE)
    url = "DATA:image/png;BASE64," + base64.b64encode(png(BLUE)).decode()
    (asked,) = prompt(folder, {"image": url, "prompt": "which?"})
    assert colours(asked) == [BLUE]


def test_the_first_frame_of_an_animation(folder):
    image(BLUE).save(folder / "a.gif", save_all=True, append_images=[image(RED)])
    assert read_picture("a.gif", "", folder).data[:3] == bytes(BLUE)


def test_pictures_without_pixels_and_lines_of_pixels(folder):
    with pytest.raises(UserError, match=r"^d\.jsonl:1.* it has no pixels \(0 x 3\)"):
        read_picture(Image.new("RGB", (0, 3)), "d.jsonl:1", folder)
    assert from_pillow(Image.new("L", (1, 5000)), 1000).shape == (1000, 1, 3)
    assert from_pillow(Image.new("L", (5000, 2)), 1000).shape == (1, 1000, 3)


def test_a_picture_of_two_records_is_decoded_once(folder):
    first, again = (read_picture("photos/red.png", f"d.jsonl:{i}: image", folder) for i in (1, 2))
    assert first is again

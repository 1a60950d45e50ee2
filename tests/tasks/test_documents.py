"""Documents of a folder: what is read, how it is cut, and what is refused."""

import json

import pytest
from palaestra.errors import UserError
from palaestra.services.index import BM25
from palaestra.tasks.documents import read_documents


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.md").write_text("# Lions\n\nA lion is a cat.\n\n" + " ".join(f"w{i}" for i in range(12)))
    (tmp_path / "b.html").write_text(
        "<html><style>p {}</style><body><h1>Sums</h1><p>17 &amp; 25 are <b>42</b>.</p><script>no()</script></body>"
    )
    (tmp_path / "sub").mkdir()
    rows = [
        {"_id": "d7", "title": "Bako", "text": "The boss is Tiru."},
        {"_id": 8, "text": "Bare."},
        {"contents": "Tiru lives here.", "title": "Tiru"},
    ]
    (tmp_path / "sub" / "c.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (tmp_path / ".hidden.md").write_text("secret")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    (tmp_path / "empty.txt").write_text("")
    return tmp_path


def test_a_folder_is_read_by_name_and_cut_between_paragraphs(folder):
    passages = dict(read_documents(str(folder), words=8))
    assert passages == {
        "a.md#1": "# Lions A lion is a cat.",
        "a.md#2": "w0 w1 w2 w3 w4 w5 w6 w7",
        "a.md#3": "w8 w9 w10 w11",
        "b.html": "Sums 17 & 25 are 42.",
        "d7": "Bako: The boss is Tiru.",
        "8": "Bare.",
        "sub/c.jsonl:3": "Tiru lives here.",
    }


def test_no_words_are_lost_whatever_the_length(folder):
    whole = dict(read_documents(str(folder / "a.md"), words=0))["a.md"].split()
    for words in (1, 3, 7, 100):
        parts = read_documents(str(folder / "a.md"), words=words)
        assert [w for _, text in parts for w in text.split()] == whole
        assert all(len(text.split()) <= words for _, text in parts)


def test_one_file_is_a_collection_too(folder):
    assert [i for i, _ in read_documents(str(folder / "sub" / "c.jsonl"))] == ["d7", "8", "c.jsonl:3"]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("x.jsonl", '{"title": "no text"}', "x.jsonl:1: no text of a document; write it in the column 'text'"),
        (
            "x.jsonl",
            '{"text": "a"}\n{"text": ""}',
            "x.jsonl:2: no text of a document; write it in the column 'text', or drop the line",
        ),
        ("x.jsonl", '{"id": "1", "text": "a"}\n{"id": 1, "text": "b"}', "two documents have the id '1'"),
        ("x.md", "\n \n", "no text is in these documents"),
        ("x.png", "", "no documents in this folder"),
    ],
)
def test_what_cannot_be_searched_is_refused(tmp_path, name, text, says):
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=says.replace(".", r"\.").replace("(", r"\(")):
        read_documents(str(tmp_path))


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        read_documents(str(tmp_path / "nowhere"))


def test_a_script_without_spaces_is_cut_and_found(tmp_path):
    """Thirty sentences of Chinese are one paragraph without a space; a question finds the right one."""
    (tmp_path / "a.txt").write_text(
        "".join(f"第{i}个城市叫做城{chr(0x5000 + i)}。" for i in range(30)), encoding="utf-8"
    )
    passages = read_documents(str(tmp_path), words=20)
    assert len(passages) > 10 and all(len(text) <= 24 for _, text in passages)
    assert "".join(text for _, text in passages) == (tmp_path / "a.txt").read_text(encoding="utf-8")
    (hit,) = BM25(passages).search(f"哪个城市叫做城{chr(0x5000 + 7)}？", 1)
    assert f"城{chr(0x5000 + 7)}" in hit[1]

"""Judgements of queries in files of TREC and BEIR, and queries that are judged by them."""

import json

import pytest
from palaestra.errors import UserError
from palaestra.tasks import JudgedQueries, read_qrels


def judgements(folder, text, name="qrels"):
    file = folder / name
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize(
    "text",
    [
        "7 0 lions.md 2\n7 0 cats.md 0\n8 Q0 cats.md 1\n",
        "query-id\tcorpus-id\tscore\n7\tlions.md\t2\n7\tcats.md\t0\n\n8\tcats.md\t1",
        "\ufeff# a comment\r\n7\t0\tlions.md\t2\r\n7\t0\tlions.md\t2.0\r\n7\t0\tcats.md\t0\r\n8\t0\tcats.md\t1\r\n",
    ],
)
def test_the_forms_of_judgements(tmp_path, text):
    assert read_qrels(judgements(tmp_path, text)) == {"7": {"lions.md": 2, "cats.md": 0}, "8": {"cats.md": 1}}


def test_documents_with_spaces_stand_between_tabs(tmp_path):
    assert read_qrels(judgements(tmp_path, "7\t0\tmy lions.md\t2\n")) == {"7": {"my lions.md": 2}}


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("7 0 a 1\n7 0 a 2\n", r"qrels:2: the document 'a' has two grades for the query '7'"),
        ("7 0 a 1\n7 a\n", r"qrels:2: '7 a' is no judgement; write 'QUERY 0 DOC GRADE'"),
        ("7 0 a 1\n7 0 a nan\n", r"qrels:2: .* is no judgement"),
        ("7 0 a 1\n7 0 a much\n", r"qrels:2: .* is no judgement"),
        ("\n# nothing\n", "no judgements"),
    ],
)
def test_what_is_no_judgement_is_refused(tmp_path, text, match):
    with pytest.raises(UserError, match=match):
        read_qrels(judgements(tmp_path, text))


def test_queries_without_a_relevant_document_are_left_out(tmp_path):
    rows = [{"prompt": f"query {i}", "id": str(i), "split": "test" if i > 3 else "train"} for i in range(6)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    qrels = judgements(tmp_path, "0 0 a 1\n1 0 a 0\n3 0 b 2\n4 0 c 1\n99 0 z 1\n")
    queries = JudgedQueries(str(tmp_path / "q.jsonl"), answers=False, qrels=qrels).without_unjudged()
    assert (queries.size, queries.test_size, queries.unjudged) == (2, 1, 3)
    assert [queries.task("train", i).meta["gold"] for i in range(2)] == [{"a": 1}, {"b": 2}]
    assert "for 3 queries, which are left out" in queries.notes[-1]
    with pytest.raises(UserError, match=r"judges no query of .*, such as '0'; the first field"):
        JudgedQueries(
            str(tmp_path / "q.jsonl"), answers=False, qrels=judgements(tmp_path, "z 0 a 1\n", "other")
        ).without_unjudged()
    with pytest.raises(UserError, match=r"judges none of the 2 held-out queries of .*; give judged ones in --test"):
        JudgedQueries(
            str(tmp_path / "q.jsonl"), answers=False, qrels=judgements(tmp_path, "0 0 a 1\n", "half")
        ).without_unjudged()
    with pytest.raises(UserError, match="there is no such file of judgements"):
        read_qrels(str(tmp_path / "none.txt"))

"""The domains of a file as arms: who belongs where, what a draw gives, what has one domain alone."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from palaestra.curriculum.arms import arms_of, draw_from_arms
from palaestra.tasks.domains import domain_tasks
from palaestra.tasks.files import FileTasks


def said_by(tasks):
    """The context of a draw, which keeps what is said."""
    said = []
    return SimpleNamespace(bench=SimpleNamespace(tasks=tasks, first_drawn=0), say=said.append, said=said)


def written(path, domains):
    """A file of a problem for each of these domains."""
    records = [
        {"prompt": f"{i} + {i}?", "answer": 2 * i, "id": f"q{i}", **({"domain": d} if d else {})}
        for i, d in enumerate(domains)
    ]
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    return FileTasks(str(path))


def test_each_domain_of_a_file_is_an_arm_that_holds_its_problems(tmp_path):
    tasks = written(tmp_path / "own.jsonl", ["length", "mass", "length", "time"] * 20)
    arms = arms_of(tasks)
    assert [a.name for a in arms] == ["length", "mass", "time"]
    for split in ("train", "test"):
        sizes = [a.size if split == "train" else a.test_size for a in arms]
        found = [a.task(split, i) for a, n in zip(arms, sizes, strict=True) for i in range(n)]
        whole = [tasks.task(split, i) for i in range(tasks.size if split == "train" else tasks.test_size)]
        assert sorted(t.id for t in found) == sorted(t.id for t in whole)
        assert [t.domain for t in found] == [a.name for a, n in zip(arms, sizes, strict=True) for _ in range(n)]


def test_a_draw_takes_from_the_domains_that_it_chose(tmp_path):
    tasks = written(tmp_path / "own.jsonl", ["length", "mass", "time"] * 20)
    ctx = said_by(tasks)
    drawn, state = draw_from_arms(ctx, (0,), 40, np.array([0.0, 1.0, 0.0]), {})
    assert {t.domain for t in drawn} == {"mass"} and state["given"] == {"mass": 40}
    n = domain_tasks(tasks)[1].size
    assert len({t.id for t in drawn[:n]}) == n  # all of the arm before one comes again
    assert not ctx.said


@pytest.mark.parametrize("domains", [[""] * 20, ["length"] * 20])
def test_one_domain_is_one_arm_and_said(tmp_path, domains):
    tasks = written(tmp_path / "own.jsonl", domains)
    assert arms_of(tasks) == [tasks]
    ctx = said_by(tasks)
    draw_from_arms(ctx, (0,), 2, np.array([1.0]), {})
    assert "a column `domain`" in ctx.said[0]


def test_records_without_a_domain_are_an_arm_by_the_name_of_the_file(tmp_path):
    arms = arms_of(written(tmp_path / "own.jsonl", ["length", ""] * 20))
    assert [a.name for a in arms] == ["length", "own"]

"""Effects of RLHF on diversity: what is lost beyond sharpening, gaps, and own files."""

import json

import palaestra as pl
import pytest
from palaestra.cli.main import main
from palaestra.recipes.analysis import rlhf_diversity as study
from palaestra.stats import Interval


def measured(quality, distinct):
    return study.Variety(Interval(mean=quality, low=0, high=1, n=4), {0: distinct}, [distinct])


HEATS = [measured(0.2, 0.8), measured(0.4, 0.6), measured(0.5, 0.3)]


@pytest.mark.parametrize(
    "quality, distinct", [(0.2, 0.8), (0.3, 0.7), (0.4, 0.6), (0.45, 0.45), (0.5, 0.3), (0.51, None), (0.1, None)]
)
def test_the_start_at_equal_quality(quality, distinct):
    """Half-way between two temperatures in quality is half-way in diversity."""
    found = study.at_equal_quality(HEATS, quality)
    assert found == (None if distinct is None else pytest.approx(distinct))


def test_a_flat_line_counts_its_hotter_end():
    assert study.at_equal_quality([measured(0.5, 0.9), measured(0.5, 0.1)], 0.5) == 0.9


def test_what_is_said():
    less = Interval(mean=-0.3, low=-0.4, high=-0.2, n=4)
    first, control, other = study.tell(
        measured(0.2, 0.8),
        measured(0.4, 0.5),
        less,
        0.6,
        {"chain": {"base": Interval(mean=0.1, low=0, high=1, n=4), "policy": Interval(mean=0.2, low=0, high=1, n=4)}},
    )
    assert first.startswith("Answers to one problem are less varied after training: 0.500") and "−0.300" in first
    assert "has 0.600: +0.100 is lost beyond sharpening" in control and other.startswith(
        "On chain the model gets 0.200"
    )
    even = Interval(mean=0.0, low=-0.1, high=0.1, n=4)
    assert "not measurably less or more" in study.tell(HEATS[0], HEATS[0], even, None, {})[0]


def test_own_files_and_a_further_model(tmp_path):
    rows = [{"prompt": f"{a} + 1 = ?", "answer": str(a + 1)} for a in range(3)]
    for name in ("own", "other"):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    own, other, out = (str(tmp_path / n) for n in ("own.jsonl", "other.jsonl", "out"))
    words = ["problems=3", "samples=2", "temperatures=[0.5]", f"shifted={other}", "beside=agent=tiny-agent"]
    ask = ["study", "rlhf-diversity", "--model", "tiny", "--base", "tiny", "--data", own]
    assert main([*ask, "--out", out, *words]) == 0
    found = json.loads((tmp_path / "out" / "study.json").read_text())
    assert found["numbers"]["moved"] == found["numbers"]["kl"] == 0
    rows = found["tables"][0]["rows"]
    assert [r[0] for r in rows] == ["start", "agent", "model"] and rows[0][1:] == rows[2][1:] != rows[1][1:]
    assert len(found["tables"][1]["rows"]) == 3


def test_a_model_without_a_name_is_refused():
    with pytest.raises(pl.UserError, match="write NAME=MODEL"):
        study.build(beside="DIR")

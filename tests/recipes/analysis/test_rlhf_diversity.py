"""Effects of RLHF on diversity: what is lost beyond sharpening, gaps, and own files."""

import asyncio
import json

import palaestra as pl
import pytest
from palaestra.cli.main import main
from palaestra.recipes.analysis import rlhf_diversity as study
from palaestra.recipes.analysis.rlhf_diversity.measures import best_of
from palaestra.stats import Interval


def measured(quality, distinct):
    """Of two problems that are alike."""
    return study.Variety(
        Interval(mean=quality, low=0, high=1, n=4), {0: distinct, 1: distinct}, [distinct], {0: quality, 1: quality}
    )


HEATS = [measured(0.2, 0.8), measured(0.4, 0.6), measured(0.5, 0.3)]


@pytest.mark.parametrize(
    "quality, distinct", [(0.2, 0.8), (0.3, 0.7), (0.4, 0.6), (0.45, 0.45), (0.5, 0.3), (0.51, None), (0.1, None)]
)
def test_the_start_at_equal_quality(quality, distinct):
    """Half-way between two temperatures in quality is half-way in diversity."""
    found = study.lost_beyond_sharpening(HEATS, measured(quality, 0.25))
    if distinct is None:
        assert found is None
    else:
        assert found.mean == found.low == found.high == pytest.approx(distinct - 0.25)


def test_a_flat_line_counts_its_hotter_end():
    flat = [measured(0.5, 0.9), measured(0.5, 0.1)]
    assert study.lost_beyond_sharpening(flat, measured(0.5, 0.4)).mean == pytest.approx(0.5)


def test_the_loss_has_an_interval_of_quality_and_diversity():
    """w = (.5 - .25) / (.5 - .25) = 1 and the slope -.2 / .25 = -.8. The model solves one problem of two, so the terms are
    .1 + .8 / 2 and .1 - .8 / 2."""
    both = lambda q, d: study.Variety(measured(0, 0).quality, dict(enumerate(d)), [0.0], dict(enumerate(q)))
    hot, cold, model = both((0.25, 0.25), (0.8, 0.8)), both((0.5, 0.5), (0.6, 0.6)), both((0.0, 1.0), (0.5, 0.5))
    found = study.lost_beyond_sharpening([hot, cold], model)
    terms = [0.1 - 0.8 * (0.0 - 0.25 - 0.25), 0.1 - 0.8 * (1.0 - 0.25 - 0.25)]
    assert terms == pytest.approx([0.5, -0.3]) and found.mean == pytest.approx(0.1)
    # sd .5657 over sqrt 2 is .4, and the t quantile of one degree of freedom 12.706
    assert found.high - found.mean == pytest.approx(12.706 * 0.4, rel=1e-4)


def test_temperatures_are_in_their_order(monkeypatch):
    """At quality .3 the start lies half-way between temperatures 1 and .7: .85, and not .70 on a line from 1 to .3."""
    start = {1.0: (0.2, 0.9), 0.7: (0.4, 0.8), 0.5: (0.5, 0.6), 0.3: (0.6, 0.1)}

    async def answers(self, ctx, model, temperature=None, draw=""):
        q, d = (0.3, 0.5) if model == "policy" else start[self.temperature if temperature is None else temperature]
        return [{"quality": q, "distinct": d}]

    for name, stand_in in {
        "bring_models": lambda *given: None,
        "tell_mean_power": lambda *given: "",
        "publish": lambda ctx, report: report,
    }.items():
        monkeypatch.setattr(pl.studies, name, stand_in)
    monkeypatch.setattr(study.Diversity, "_answers", answers)
    monkeypatch.setattr(study, "measure", lambda ctx, name, items: measured(**items[0]))
    report = asyncio.run(study.Diversity(best_of=0).run(None))
    assert report.numbers["lost_beyond_sharpening"].mean == pytest.approx(0.85 - 0.5)
    line = report.charts[0].lines[0]
    assert list(line.x) == [0.2, 0.4, 0.5, 0.6] and list(line.y) == [0.9, 0.8, 0.6, 0.1]
    assert "has 0.850" in report.findings[1]


def test_what_is_said():
    less = Interval(mean=-0.3, low=-0.4, high=-0.2, n=4)
    first, control, other = study.tell(
        measured(0.2, 0.8),
        measured(0.4, 0.5),
        less,
        Interval(mean=0.1, low=0.05, high=0.15, n=4),
        {"chain": {"base": Interval(mean=0.1, low=0, high=1, n=4), "policy": Interval(mean=0.2, low=0, high=1, n=4)}},
    )
    assert first.startswith("Answers to one problem are less varied after training: 0.500") and "−0.300" in first
    assert "has 0.600: +0.100 (+0.050 to +0.150) is lost beyond sharpening" in control and other.startswith(
        "On chain the model gets 0.200"
    )
    even = Interval(mean=0.0, low=-0.1, high=0.1, n=4)
    assert "not measurably less or more" in study.tell(HEATS[0], HEATS[0], even, None, {})[0]


def test_another_problem_that_is_not_there_is_told_first(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(study.Diversity, "_answers", lambda *given, **named: pytest.fail("it was sampled"))
    ask = ["study", "rlhf-diversity", "--model", "tiny", "--base", "tiny", "--task", "add", "problems=2"]
    assert main([*ask, "--out", str(tmp_path / "out"), "shifted=count,nofile.jsonl"]) == 2
    assert "nofile.jsonl" in capsys.readouterr().err


def test_a_cut_answer_has_no_end():
    """The end of a turn is a token that the model did not write where its answer was cut."""
    from palaestra.models.load import load

    ask = (pl.Message(role="user", content="2 + 2?"),)
    written = [pl.run.WrittenText("4", ask, cut) for cut in (False, True)]
    (whole, cut), _ = pl.run.spell_texts(load("tiny"), written)
    assert len(whole[1]) == len(cut[1]) + 1 and whole[1][:-1] == cut[1]


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
    assert [r[0] for r in rows] == ["start", "agent", "model", "start, best of 4"]
    assert rows[0][1:] == rows[2][1:] != rows[1][1:]
    assert rows[3][-1] == "0.64", "log 4 - 3/4, the bound"
    assert found["findings"][-1].startswith("Best of 4 from the start, chosen by the problem's reward, gets ")
    assert len(found["tables"][1]["rows"]) == 3


def test_best_of_n_takes_the_best_of_each_block_and_the_first_of_equals():
    """Of rewards 0 1 | 1 1 | 0 the second, the third, and nothing of what is left over."""
    item = {
        "problem": 3, "texts": list("abcde"), "right": [False, True, True, True, False], "rewards": [0, 1, 1, 1, 0],
        "tokens": [1, 2, 3, 4, 5], "cut": [False] * 5,
    }  # fmt: skip
    (best,) = best_of([item], 2)
    assert best["texts"] == ["b", "c"] and best["tokens"] == [2, 3] and best["problem"] == 3
    assert best_of([item], 1)[0]["texts"] == list("abcde") and best_of([item], 6)[0]["texts"] == []


def test_a_model_without_a_name_is_refused():
    with pytest.raises(pl.UserError, match="write NAME=MODEL"):
        study.build(beside="DIR")

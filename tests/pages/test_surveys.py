"""The pages of the surveys: who stands in them, which places in the code they name, and what they compute."""

import itertools
import re
import tomllib
from importlib import resources
from pathlib import Path

import palaestra as pl
import pytest
from palaestra import catalogue
from palaestra.cli.main import main
from palaestra.ledger.axes import columns
from palaestra.ledger.changes import changes_of
from palaestra.ledger.needs import MethodNeeds, needs_of, samples_of
from palaestra.ledger.standing import Standing
from tools.pages import build as pages
from tools.pages import essay, survey_tables, surveys
from tools.pages.invariance import under_shift
from tools.pages.surveys import Demand, SurveyNode, lost_places, node_line, read_survey

TEXTS = [e for e in catalogue.all_entries() if e.shape == "page"]
IDS = {e.id for e in catalogue.all_entries()}
ROOT = Path(__file__).parents[2]


def entry(name):
    return next(e for e in catalogue.all_entries() if e.id == name)


def test_every_text_of_the_catalogue_has_its_file():
    assert {e.kind for e in TEXTS} == {"survey", "essay"} and len(TEXTS) == 7
    folder = resources.files("tools.pages") / "texts"
    there = {p.name.removesuffix(".toml") for p in folder.iterdir() if p.name.endswith(".toml")}
    assert there == {e.id for e in TEXTS} | {"choose"}
    for each in TEXTS:
        assert each.page == f"docs/surveys/{each.id}.md" and not each.built


@pytest.mark.parametrize("each", TEXTS, ids=lambda e: e.id)
def test_a_survey_is_whole(each):
    survey = read_survey(each.id)
    assert re.fullmatch(r"arXiv:\d{4}\.\d{5}", survey.paper) and survey.read and survey.about and survey.demands
    levels = [node.level for node in survey.nodes]
    assert levels[0] == 1 and all(b <= a + 1 for a, b in itertools.pairwise(levels))
    for node in survey.nodes:
        assert set(node.rows) <= IDS and not (node.rows and node.where)
        for column, values in node.where.items():
            assert set(values.split(",")) <= set(columns()[column].values)
    assert not lost_places(survey), "a place in the code that a page names is not there"
    for demand in survey.demands:
        assert demand.have or demand.missing
        assert bool(demand.have) == bool(demand.where), "what there is has a place in the code, and only that"
    assert {row["id"] for row in survey.evidence} <= {e.id for e in catalogue.all_entries() if e.built}


def test_a_place_that_is_lost_is_named():
    there = ("palaestra/types/rows.py:Segment", "palaestra/view/reader.py:BY_TOKEN", "palaestra/cli/list.py:run")
    lost = (
        "palaestra/types/rows.py:Segmnt",
        "palaestra/no_file.py:run",
        "palaestra/types/rows.py:",
        "palaestra/types/rows.py",
    )
    demand = Demand(asked="a", have="b", where=(*there, *lost))
    survey = surveys.Survey(paper="", cites="", read="", about="", nodes=(), demands=(demand,))
    assert lost_places(survey) == list(lost)


def test_met():
    assert Demand(asked="a", have="b").met == "yes"
    assert Demand(asked="a", have="b", missing="c").met == "in part"
    assert Demand(asked="a", missing="c").met == "no"


def test_lines(monkeypatch):
    assert node_line(SurveyNode(level=2, text="x")) == "  - x"
    by_hand = SurveyNode(level=1, text="x", rows=("grpo", "survey-irl"))
    assert node_line(by_hand) == "- x: [grpo](../methods/grpo.md), [survey-irl](survey-irl.md)"
    rows = [entry(name) for name in ("gigpo", "loop", "mrlmn")]
    monkeypatch.setattr(catalogue, "rows", lambda: rows)
    monkeypatch.setattr(surveys, "MOST", 2)
    asked = SurveyNode(level=1, text="x", where={"reward": "world"})
    assert node_line(asked) == (
        "- x: [gigpo](../methods/gigpo.md), [loop](../methods/loop.md) and 1 more: `palaestra list --reward world`"
    ), "what is built stands first, and the others are counted"


@pytest.mark.parametrize("name", ["survey-xrl", "survey-agent-optimisation"])
def test_a_page(name):
    text = surveys.survey_page(entry(name))
    survey = read_survey(name)
    assert survey.cites in text and "arxiv.org/abs/" + survey.paper.removeprefix("arXiv:") in text
    for node in survey.nodes:
        assert node.text in text and all(row in text for row in node.rows)
    for demand in survey.demands:
        assert demand.asked in text and demand.missing in text
    for target in re.findall(r"\]\((\.\./\.\./[^)#]*)\)", text):
        assert (ROOT / "docs" / "surveys" / target).resolve().is_file(), target
    for method in re.findall(r"\.\./methods/([^)]*)\.md", text):
        assert entry(method).built


def test_where_an_ability_lives():
    assert surveys.locus_of(entry("grpo")) == "weights"
    assert surveys.locus_of(entry("cel")) == "both"  # notes and weights
    assert surveys.locus_of(entry("multi-round-thinking")) == "scaffold"
    assert surveys.locus_of(entry("lare")) == "neither"  # a controller
    rows = {r[0]: r[1:] for r in surveys.locus_rows(read_survey("survey-model-native"))}
    assert "cel" in rows["Memory"][1] and "torl" in rows["Use of tools"][0] and "torl" not in rows["Memory"][0]


# ---- what a text does where a method is asked for


@pytest.mark.parametrize(
    "argv",
    [
        ["train", "survey-irl"], ["show", "survey-irl"], ["explain", "survey-irl", "--rewards", "[[1,0]]"],
        ["doctor", "survey-irl", "--paper"], ["reproduce", "survey-irl"], ["compare", "survey-irl", "grpo"],
    ],
    ids=lambda a: a[0],
)  # fmt: skip
def test_a_text_is_read_and_not_run(argv, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(argv) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "'survey-irl'" in line and "docs/surveys/survey-irl.md" in line


def test_the_catalogue_counts_them(monkeypatch):
    monkeypatch.setattr(catalogue, "all_entries", lambda: TEXTS)
    page = pages.catalogue_page()
    assert "## surveys (7 of 7 built)" in page
    needs = "nothing: a text about methods, to be read"
    assert f"(docs/surveys/survey-irl.md) | Inverse RL meets LLM post-training | {needs} |  | survey | built |" in page


# ---- needs


def test_needs():
    assert needs_of("grpo") == MethodNeeds(labels=("answers",), samples="128")
    assert needs_of("ppo").critic and not needs_of("ppo").reference
    assert needs_of("dpo").reference and not needs_of("dpo").critic
    assert needs_of("sft") == MethodNeeds(labels=("demonstrations",))
    assert needs_of("self-rewarding").graders == ("judge",)
    assert needs_of("reward-robust").graders == ("reward model",) and "preferences" in needs_of("reward-robust").labels
    assert needs_of("sft-grpo").samples == "", "a pipeline has several"


def test_samples():
    grpo = pl.recipe("grpo")
    twice = pl.vary(grpo, collect=pl.links(pl.Sample(n=4), pl.Score(), pl.Sample(n=2)))
    assert samples_of(twice) == "64 to 96"  # 16 prompts
    moving = pl.vary(grpo, schedule=pl.Schedule(prompts=pl.Staircase((4, 8), 10)))
    assert samples_of(moving) == ""


# ---- a constant added to a prompt's rewards


def test_who_hears_a_constant():
    assert under_shift(pl.recipe("rloo")) == under_shift(pl.recipe("grpo")) == "same"
    assert under_shift(pl.recipe("reinforce")) == "moved"  # its baseline is the batch's
    assert under_shift(pl.recipe("ppo")) == "unknown"  # it reads values
    assert under_shift(pl.recipe("sft-grpo")) == "unknown"
    planted = pl.vary(pl.recipe("grpo"), credit=pl.chain(pl.Center("batch"), pl.Scale("group")))
    assert under_shift(planted) == "moved"


# ---- the essay


def test_what_methods_hear():
    """GRPO divides by the standard deviation with ddof 1: sqrt(1/3) of [1, 0, 0, 1], a tenth of it of the bonus."""
    found = {row[0]: row[1:] for row in essay.heard()}
    assert found["grpo"] == ("0.87, -0.87, -0.87, 0.87",) * 2  # 0.5 / sqrt(1 / 3) = 0.866
    assert found["rloo"] == ("0.67, -0.67, -0.67, 0.67", "0.07, -0.07, -0.07, 0.07")  # 1 - 1/3
    assert found["dr-grpo"] == ("0.50, -0.50, -0.50, 0.50", "0.05, -0.05, -0.05, 0.05")


def test_the_essay_counts_from_the_ledger(monkeypatch):
    page = surveys.survey_page(entry("essay-procedural-rhetoric"))
    assert "None of them is reproduced here." in page or "reproduced here (" in page
    stood = {"recode": "reproduced", "muldimif": "reproduced"}
    monkeypatch.setattr(essay, "stands", lambda name: stood.get(name, "inconclusive"))
    page = surveys.survey_page(entry("essay-procedural-rhetoric"))
    assert "2 of them are reproduced here (muldimif, recode)." in page
    assert "nothing of it is reproduced or refuted here" in page


def test_what_is_under_review_shows_no_effect(monkeypatch):
    def stand(found):
        for module in ("tools.pages.survey_tables", "palaestra.ledger.standing"):
            monkeypatch.setattr(f"{module}.standing", lambda _: found)

    monkeypatch.setattr(survey_tables, "read_result", lambda _: RESULT)
    stand(Standing(status="reproduced"))
    assert survey_tables.measured(entry("grpo")) == ("0.5 [0.25, 0.75] accuracy", "reproduced")
    stand(Standing(status="built", note="older rules, under review"))
    assert survey_tables.measured(entry("grpo")) == ("", "built (older rules, under review)")


RESULT = {"arms": {"a": {}}, "effect": 0.5, "ci95": [0.25, 0.75], "metric": "accuracy"}


# ---- tables over all rows


def test_stages_and_shares():
    assert changes_of(entry("rloo")) == ("credit",)
    assert changes_of(entry("grpo")) == ()
    found = {"a": {"computed": 3, "completed": 0, "typed": 1}, "b": {"computed": 1, "completed": 3, "typed": 0}}
    assert survey_tables.share(found) == "4 of 8 cells, 50%"


def test_verdicts_stand_first():
    ranks = [survey_tables.verdict_rank(entry(name)) for name in ("kimi-k1.5", "grpo")]
    assert ranks[0] < len(survey_tables.VERDICTS) == ranks[1]


def test_questions_ask_the_axes():
    path = resources.files("tools.pages") / "texts" / "choose.toml"
    for question in tomllib.loads(path.read_text())["question"]:
        for column, values in question["where"].items():
            assert set(values.split(",")) <= set(columns()[column].values)


def test_all_pages_are_made():
    made = surveys.survey_pages()
    assert set(made) == {Path(e.page) for e in TEXTS} | {
        surveys.SURVEYS / f"{name}.md" for name in ("taxonomy", "comparison", "choose")
    }
    taxonomy = made[surveys.SURVEYS / "taxonomy.md"]
    assert all(re.search(rf"^\| [\[*]{re.escape(e.id)}[\]*]", taxonomy, re.M) for e in catalogue.rows())
    for text in made.values():
        for target in re.findall(r"\]\(([a-z-]+\.md)\)", text):
            assert surveys.SURVEYS / target in made, target

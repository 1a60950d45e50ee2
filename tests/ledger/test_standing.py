"""Published results: what the catalogue says of them, whether their verdicts follow from their numbers, what they keep
of earlier looks, and what an experiment declares before it runs."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import palaestra as pl
import pytest
from palaestra import catalogue
from palaestra.claims.base import rloo as claim
from palaestra.cli import list as list_command
from palaestra.cli import reproduce as command
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.ledger import declared, files, listed, results, standing, versions
from palaestra.ledger.cells import CellOutcome
from palaestra.ledger.experiment import BLOCKS
from palaestra.ledger.judging import Measured, judge
from palaestra.ledger.measures import Area
from palaestra.ledger.rerun import describe_code, older_arms
from palaestra.ledger.results import arm_sha256, facts
from palaestra.ledger.versions import Version
from palaestra.markdown import line_by_name
from palaestra.stats import mean_interval, t_quantile
from palaestra.view.drawing import INK
from tools.pages import build as pages
from tools.pages.figure import effect_rows, effect_svg

from tests.rows import every

EXPERIMENT = claim.EXPERIMENT
JUDGED = replace(
    EXPERIMENT, reasons=(pl.ledger.Needs("batch mean", "the group"),), vetoes={"accuracy": pl.ledger.Veto()}
)
UP = {"start": 0.1, "no baseline": 0.2, "rloo": 0.4, "batch mean": 0.3}
CURVE = {"tokens": [0.0, 100.0], "reward": [0.1, 0.5], "deviation": [0.01, 0.02]}


def values(mean, wiggle=0.01):
    return [round(mean + wiggle * ((7 * i) % 5 - 2), 4) for i in range(10)]


def result(**more):
    """A whole result of the experiment of rloo, as `reproduce` writes it."""
    arms = {name: values(mean) for name, mean in UP.items()}
    measured = Measured(
        arms={n: {"count": v} for n, v in arms.items()},
        blocks=[list(b) for b in BLOCKS],
        vetoes={"accuracy": arms},
    )
    judged = judge(
        EXPERIMENT.expect, measured, (pl.ledger.Needs("batch mean", "the group"),), {"accuracy": pl.ledger.Veto()}
    )
    said = judged.pop("said")
    said["accuracy"] |= {"values": arms}
    record = lambda v: {
        "values": v, "interval": mean_interval(v).json(), "setting": {}, "failed": {}, "curve": CURVE,
        "sampled_tokens": [60_000] * 10,
    }  # fmt: skip
    tried = [{"setting": {}, "values": [0.3]}, {"setting": {"optimiser.lr": 1e-4}, "values": [0.2]}]
    whole = {
        **facts("rloo", EXPERIMENT),
        "arms": {n: record(v) for n, v in arms.items()},
        "tuning": {"seeds": [1000], "arms": {"rloo": tried}},
        "blocks": [list(b) for b in BLOCKS],
        **judged,
        "controls": {"greedy": {"kind": "number", "values": arms}, **said},
        "budget_tokens": EXPERIMENT.tokens, "seeds": 10, "sampled_tokens": 540_000,
        "seconds": 120.0, "commit": "abc", "machine": "m", "command": "palaestra reproduce rloo", "earlier": [],
    }  # fmt: skip
    return whole | more


def older(**more):
    """A result of before the rules."""
    whole = result()
    for name in ["rules", "declaration", "blocks", "by_block", "tuning", "lacks", "shape", "ci95_permutation"]:
        whole.pop(name)
    for name in UP:
        whole["arms"][name] |= {"config_sha256": arm_sha256(EXPERIMENT, name)}
    whole["arms"].pop("start")
    return whole | {"controls": {"entropy": {a: [0.5] * 10 for a in whole["arms"]}}} | more


def recompute(found, by=JUDGED):
    """What does not follow from the values of a result that names the declaration of an experiment."""
    return standing.recompute(found, declared.declaration(by))


@pytest.fixture
def publish(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "folder", lambda: tmp_path)
    monkeypatch.setattr(standing, "declarations", lambda: tmp_path / "declared")
    declared.declare("rloo", JUDGED, tmp_path / "declared")
    standing.standing.cache_clear()

    def write(found):
        (tmp_path / "rloo.json").write_text(line_by_name(found))
        standing.standing.cache_clear()

    yield write
    standing.standing.cache_clear()


def entry(name="rloo"):
    return next(e for e in catalogue.all_entries() if e.id == name)


def test_a_result_is_the_status_with_what_its_controls_said(publish, capsys):
    publish(result())
    assert standing.standing(entry()).status == "reproduced" and standing.standing(entry("grpo")).status == "built"
    assert "[reproduced](ledger/results/rloo.json): adds 0.1, and 0.1 stay without it: the group" in pages.status(
        entry()
    )
    assert main(["list", "--family", "base", "--status", "reproduced", "--json"]) == 0
    assert [e["id"] for e in json.loads(capsys.readouterr().out)] == ["rloo"]


def test_a_listing_tells_where_every_method_stands_without_building_one(monkeypatch, capsys):
    told = {e.id: listed.listed(e) for e in catalogue.all_entries()}
    assert told == {e.id: standing.standing(e) for e in catalogue.all_entries()}
    monkeypatch.setattr(standing, "standing", None)
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    assert (
        "asymre                     reproduced" in said
        and " methods, of them 9 base methods and 22 losses by name: " in said
    )


def test_a_listing_imports_nothing_heavy():
    program = "import sys; from palaestra.cli.main import main; main(['list']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_a_listing_looks_at_a_result_that_is_newer_than_its_pages(publish):
    publish(result())
    assert listed.listed(entry()) is None and listed.listed(entry("grpo")).status == "built"
    assert list_command.describe_entry(entry())["status"] == "reproduced"


def test_a_result_of_another_declaration_is_stale(publish):
    publish(result(declaration="0"))
    assert standing.standing(entry()).note == "stale result: it was declared otherwise"
    assert pages.status(entry()) == "built ([stale result](ledger/results/rloo.json))"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda r: r["arms"]["rloo"].update(config_sha256="0"), "the configuration of rloo has changed"),
        (lambda r: r.update(metric="held-out luck"), "it measured held-out luck"),
        (lambda r: r["arms"].pop("no baseline"), "no baseline"),
    ],
)
def test_an_older_result_is_stale_where_its_experiment_changed(publish, change, says):
    found = older()
    change(found)
    publish(found)
    assert standing.standing(entry()).status == "built" and says in standing.standing(entry()).note


def test_the_catalogue_says_what_older_rules_lack():
    (line,) = (x for x in pages.catalogue_page().splitlines() if "[Older rules]" in x)
    assert "docs/ledger.md#older-rules" in line and "untrained start" in line


def test_older_rules_are_named_and_what_was_taken_back_is_no_verdict(publish):
    publish(older())
    assert pages.status(entry()) == "[reproduced](ledger/results/rloo.json) (older rules)"
    back = {"taken_back": {"verdict": "reproduced", "why": "it was luck"}, "verdict": "not-testable", "reason": "r"}
    publish(older(status="not-testable", **back))
    assert pages.status(entry()) == "[not-testable](ledger/results/rloo.json) (older rules, under review)"
    page = pages.files()[pages.METHODS / "rloo.md"]
    assert 'Older rules said "reproduced"; this is taken back: it was luck' in page and "older-rules" in page


def test_a_verdict_that_does_not_speak_about_the_claim_counts_for_nothing(publish, monkeypatch):
    """The numbers stay on the page, with the reason; the declaration is the same, so nothing is stale."""
    back = replace(EXPERIMENT, taken_back="its arm wins a race against a sleeper.")
    for room in (standing, pages):
        monkeypatch.setattr(room, "experiment_of", lambda name: back)
    publish(result())
    stands = standing.standing(entry())
    assert stands.status == "built" and stands.note == "reproduced, taken back"
    assert declared.digest(back) == declared.digest(EXPERIMENT)
    page = pages.measured(entry(), "rloo", result(), drawn=[])
    assert '**Taken back.** The verdict was "reproduced"' in page and "wins a race" in page and "Stale" not in page


def test_a_damaged_result_says_so(publish, tmp_path):
    (tmp_path / "rloo.json").write_text("{")
    with pytest.raises(UserError, match="not JSON"):
        standing.standing(entry())


def test_a_page_shows_the_result(publish):
    publish(result(earlier=[{"verdict": "inconclusive", "effect": 0.1, "ci95": [-0.1, 0.3], "why": "other code"}]))
    page = pages.files()[pages.METHODS / "rloo.md"]
    for part in (
        "**Reproduced.**", "above the untrained start: 0.3 [",
        "| start | 0.1 [", "| rloo | 0.4 [", "rloo.svg", "in two blocks", "by block 0.2 [",
        "| batch mean | 0.1 [",
        "adds 0.1, and 0.1 stay without it: the group", "| accuracy |", "| rloo | optimiser.lr=0.0001 | 0.2 |",
        "chosen", "Earlier looks: inconclusive (0.1 [-0.1, 0.3]; other code)", "ledger/declared/rloo-", "Not declared: ",
    ):  # fmt: skip
        assert part in page, part


def test_a_page_says_what_was_not_tuned_and_what_the_area_is(publish):
    found = result()
    publish(found)
    page = pages.files()[pages.METHODS / "rloo.md"]
    assert ("`area`: the training reward" in page) is ("area" in pages.columns(found)) and "not tuned" not in page
    arms = {n: a | {"setting": {"optimiser.lr": 0.0001}} for n, a in found["arms"].items() if n != "start"}
    arms |= {n: a for n, a in found["arms"].items() if n == "start"}
    swept = {"rloo": found["tuning"]["arms"]["rloo"]}
    facts = lambda **tried: pages.untuned(found | {"arms": arms, "tuning": {"arms": tried}})
    others = [n for n in arms if n not in ("start", "rloo")]
    assert facts() == ["optimiser.lr=0.0001 (every arm)"]
    assert facts(**swept) == [f"optimiser.lr=0.0001 ({', '.join(others)})"]


def test_a_page_tells_a_budget_that_was_sampled_and_an_untrained_start_where_one_is(publish):
    publish(result())
    assert "a budget of" in pages.files()[pages.METHODS / "rloo.md"]
    publish(result(sampled_tokens=0))
    assert "a budget of" not in pages.files()[pages.METHODS / "rloo.md"]
    assert pages.result_facts("grpo", replace(EXPERIMENT, start=None), result())["start"] == "`start`"
    made = pl.Pipeline(parts={"grpo": pl.Part(pl.recipe("grpo")), "rl": pl.Part(EXPERIMENT.start)})
    told = pages.result_facts("grpo", replace(EXPERIMENT, start=made), result())
    assert told["start"] == "the start that all arms share"


# ---- verdicts follow from numbers


def test_a_whole_result_can_be_recomputed():
    assert recompute(result()) == "" == standing.recompute(older())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda r: r.update(verdict="smaller"), "verdict is smaller, and its values give reproduced"),
        (lambda r: r.update(effect=0.3), "effect is 0.3, and its values give 0.2"),
        (lambda r: r.update(effect=0.2001), "effect is 0.2001, and its values give 0.2"),
        (lambda r: r["ci95"].__setitem__(0, 0.0), "ci95 is [0.0, "),
        (lambda r: r["arms"]["rloo"].update(values=[0.0] * 10), "values give reversed"),
        (lambda r: r["controls"]["accuracy"]["values"].update(rloo=[0.0] * 10), "values give not-reproduced"),
        # what is declared is not what a result says of it
        (lambda r: r["controls"]["accuracy"].update(falls=1.0), "accuracy may fall by 1.0, and 0.03 is declared"),
        (lambda r: r["controls"].pop("accuracy"), "vetoes [], and ['accuracy'] is declared"),
        (lambda r: r["controls"]["batch mean"].update(said="needed: the group"), "and 0.1 stay"),
        (lambda r: r["controls"].pop("batch mean"), "batch mean is {'effect': None"),
        (lambda r: r.update(expected=r["expected"].replace("0.02", "0.5")), "a difference below 0.02 would not"),
        (lambda r: r.update(verdict="illustration"), "verdict is illustration, and its values give reproduced"),
        (lambda r: r.update(blocks=[[0], list(range(9))]), "blocks [[0], [0, 1, 2"),
        (lambda r: r["tuning"].update(tokens=9), "tokens of a tuning cell 9, and 0 is declared"),
        (lambda r: r["arms"].pop("start"), "it has no arm start, which is declared"),
        (lambda r: r.update(task=["chain"]), "task ['chain'], and "),
    ],
)
def test_a_verdict_that_does_not_follow_is_found(publish, change, says, capsys):
    found = result(declaration=declared.digest(JUDGED))
    change(found)
    assert says in recompute(found)
    publish(found)
    with pytest.raises(SystemExit, match="1"):
        main(["reproduce", "--check", "rloo", "--share", "0/1"])
    said = capsys.readouterr()
    assert f"rloo: {recompute(found)}" in said.err and said.out.startswith("0 of 1 verdicts")


def test_a_result_is_checked_by_the_declaration_that_it_names(publish, tmp_path, capsys):
    found = result(declaration=declared.digest(JUDGED))
    publish(found)
    assert main(["reproduce", "--check", "rloo", "--share", "0/1"]) == 0
    (path,) = (tmp_path / "declared").iterdir()
    for spoil, says in (
        (lambda: path.write_text(path.read_text().replace('"falls":"0.03"', '"falls":"0.5"')), "is not the decl"),
        (path.unlink, f"its declaration {path.name} is not in "),
    ):
        spoil()
        with pytest.raises(SystemExit, match="1"):
            main(["reproduce", "--check", "rloo", "--share", "0/1"])
        assert says in capsys.readouterr().err


def test_an_older_verdict_is_recomputed_from_one_block(publish, capsys):
    assert "values give reversed" in standing.recompute(older(arms=older()["arms"] | {"rloo": {"values": [0.0] * 10}}))
    flat = older()
    flat["arms"]["rloo"]["values"] = [x + 0.001 * (i % 3) for i, x in enumerate(flat["arms"]["no baseline"]["values"])]
    assert "verdict is reproduced, and its values give smaller" in standing.recompute(flat)
    assert "verdict" not in standing.recompute(flat | {"verdict": "not-reproduced"})  # so it was called
    publish(older())
    assert main(["reproduce", "--check", "--share", "0/1"]) == 0
    assert capsys.readouterr().out == "1 of 1 verdicts follow from their numbers\n"
    assert main(["reproduce", "--check", "grpo"]) == 2 and "grpo has no published result" in capsys.readouterr().err


def test_all_published_verdicts_follow_from_their_numbers():
    wrong = {m: why for m in standing.published() if (why := standing.recompute(files.read_result(m) or {}))}
    assert wrong == {}


# ---- declarations


def test_a_declaration_is_written_once_and_is_what_it_says(tmp_path):
    path = declared.declare("rloo", EXPERIMENT, tmp_path)
    assert declared.declare("rloo", EXPERIMENT, tmp_path) == path and declared.is_whole(path)
    found = json.loads(path.read_text())
    assert found["digest"] == declared.digest(EXPERIMENT) and path.stem == f"rloo-{found['digest'][:12]}"
    assert list(found["arms"]) == ["start", "no baseline", "rloo", "batch mean"] and found["blocks"][1][0] == 100
    path.write_text(path.read_text().replace('"tokens":60000', '"tokens":60001'))
    assert not declared.is_whole(path)


@every(
    "change",
    [
        {"expect": replace(EXPERIMENT.expect, by=0.01)},
        {"arms": {**EXPERIMENT.arms, "more": pl.recipe("grpo")}},
        {"vetoes": {"a": pl.ledger.Veto()}},
        {"reasons": (pl.ledger.Needs("batch mean", "x"),)},
        {"tuned": {"optimiser.lr": (1e-4,)}},
        {"measure": pl.ledger.Logged("reward")},
        {"choose": pl.ledger.Logged("reward")},
        {"constants": {"rloo": {"schedule.prompts": (8, 16)}}},
        {"model": "m"},
        {"illustration": True},
        {"not_testable": "a robot"},
        {"start": None},
        {"tokens": 1},
        {"evaluate": 1},
        {"samples": 1},
        {"task": "chain"},
    ],
)
def test_whatever_decides_is_declared(change):
    assert declared.digest(replace(EXPERIMENT, **change)) != declared.digest(EXPERIMENT)


@pytest.mark.parametrize(
    "change",
    [
        {"claim": "Another."},
        {"metric": "m"},
        {"quantity": "q"},
        {"falsified_if": "f"},
        {"controls": {"x": pl.ledger.Logged("reward")}},
        {"expect": replace(EXPERIMENT.expect, why="another reason")},
    ],
)
def test_words_decide_nothing_and_are_declared_too(change, tmp_path):
    """The declaration is written anew with its first day, under the digest that it had."""
    path, other = declared.declare("rloo", EXPERIMENT, tmp_path), replace(EXPERIMENT, **change)
    words = lambda e: declared.wording(declared.declaration(e))
    assert declared.digest(other) == declared.digest(EXPERIMENT) and words(other) != words(EXPERIMENT)
    before = json.loads(path.read_text())
    assert declared.declare("rloo", other, tmp_path) == path and declared.is_whole(path)
    after = json.loads(path.read_text())
    assert after["declared"] == before["declared"] and after["wording"] != before["wording"]


def test_the_measure_is_declared_also_where_another_chooses():
    of = lambda name: declared.digest(replace(EXPERIMENT, measure=pl.ledger.Logged(name), choose=pl.ledger.Final()))
    assert of("a") != of("b")


def test_a_note_decides_nothing():
    assert declared.digest(replace(EXPERIMENT, note="n", seconds=1.0)) == declared.digest(EXPERIMENT)


def test_what_a_declaration_lacks_is_named():
    assert EXPERIMENT.lacks() == [
        "the paper's quantity",
        "an arm without the claim's reason",
        "where the margin comes from",
        "settings that each arm is tuned over",
    ]
    whole = replace(
        EXPERIMENT,
        quantity="q",
        reasons=(pl.ledger.Needs("batch mean", "the group"),),
        expect=replace(EXPERIMENT.expect, why="w"),
        tuned={"optimiser.lr": (1e-4, 3e-4)},
    )
    assert whole.lacks() == []
    for course in (pl.ledger.Moving(), Area()):
        assert replace(whole, measure=course).lacks() == ["a measure at the end"]
    assert replace(whole, measure=pl.ledger.Logged("reward", last=0)).lacks() == ["a measure at the end"]
    assert replace(whole, start=None).lacks() == ["a start"]
    one = replace(whole, blocks=(range(5),))
    assert one.lacks() == ["a second block of seeds"] and replace(one, model="smollm2").lacks() == []


def test_arms_are_tuned_over_what_they_have():
    arms = {"a": pl.recipe("grpo"), "b": pl.recipe("reinforce")}
    asked = replace(
        EXPERIMENT,
        arms=arms,
        expect=pl.ledger.Greater("a", "b"),
        tuned={"optimiser.lr": (1e-4, 3e-4), "objective.high": (0.2, 0.3)},
        constants={"b": {"schedule.prompts": (8, 16)}},
    )
    assert asked.settings_of("a") == [
        {"optimiser.lr": lr, "objective.high": high} for lr in (1e-4, 3e-4) for high in (0.2, 0.3)
    ]
    assert len(asked.settings_of("b")) == 8 and asked.settings_of("start") == [{}]
    with pytest.raises(UserError, match="no arm has the path"):
        replace(asked, tuned={"optimiser.lrr": (1.0,)})
    with pytest.raises(UserError, match="names an arm 'c' that does not exist"):
        replace(asked, reasons=(pl.ledger.Needs("c", "x"),))


# ---- earlier looks


def test_what_is_replaced_is_kept_as_an_earlier_look():
    now = result(declaration="new")
    (look,) = declared.earlier_looks(result(), now)
    assert look["why"] == "another declaration" and look["verdict"] == "reproduced"
    assert look["arms"]["rloo"] == values(0.4)
    other = result()
    other["arms"]["rloo"]["values"] = values(0.5)
    (look,) = declared.earlier_looks(result(), other)
    assert look["why"] == "the same declaration with other code"
    assert declared.earlier_looks(result(earlier=[look]), other)[0] == look  # and those before it stay
    assert declared.earlier_looks(result(), result()) == [] == declared.earlier_looks(None, now)


def test_a_look_of_older_rules_is_kept_with_the_verdict_that_it_had():
    (look,) = declared.earlier_looks(older(), result())
    assert (look["verdict"], look["why"]) == ("reproduced", "older rules")
    back = older(verdict="inconclusive", taken_back={"verdict": "reproduced", "why": "it was luck"})
    (look,) = declared.earlier_looks(back, result())
    assert (look["verdict"], look["why"]) == ("reproduced", "older rules; taken back: it was luck")


def test_what_is_published_is_an_earlier_look_also_of_a_result_in_another_folder(publish, tmp_path):
    publish(older())
    command.keep(result(), tmp_path / "elsewhere", EXPERIMENT)
    (look,) = json.loads((tmp_path / "elsewhere" / "results" / "rloo.json").read_text())["earlier"]
    assert look["why"] == "older rules"


def test_every_published_result_that_took_the_place_of_an_older_one_keeps_it():
    for name in ("asymre", "cola", "gigpo", "kimi-k1.5", "knowrl-factuality", "rlcf", "salu", "self-rewarding"):
        looks = (files.read_result(name) or {})["earlier"]
        assert looks[-1]["why"].startswith("older rules") and len(looks) == 1 + (name == "kimi-k1.5"), name


def test_a_trial_is_not_written_and_a_whole_result_keeps_what_it_replaces(tmp_path):
    (tmp_path / "results").mkdir()
    path = tmp_path / "results" / "rloo.json"
    path.write_text(json.dumps(result(declaration="old")))
    keep = lambda **more: command.keep(result(**more), tmp_path, EXPERIMENT)
    fewer = {a: x for a, x in result()["arms"].items() if a != "batch mean"}
    for less in ({"blocks": [[0], [100]]}, {"budget_tokens": 1}, {"arms": fewer}):
        assert keep(**less).startswith("not written to ")
    assert json.loads(path.read_text())["declaration"] == "old"
    assert keep() == str(path)
    assert json.loads(path.read_text())["earlier"][0]["declaration"] == "old"
    assert keep(verdict="not-testable", arms={}, blocks=[], budget_tokens=0) == str(path)


# ---- a third block


@pytest.fixture
def third_block(tmp_path, monkeypatch):
    """Runs `palaestra reproduce rloo --fresh` of a published result; each arm's cells end with the accuracy given."""

    def run(experiment, ends, **published):
        def measured(work, chosen, headway):
            assert work.blocks == [[200, 201, 202, 203, 204]] and set(chosen) == set(work.arms) == set(ends)
            cell = lambda arm, i: pl.ledger.Cell(
                summary={"accuracy_after": {"mean": ends[arm] + 0.01 * (i % 2 if arm == "rloo" else 0)}}
            )
            asked = lambda arm, seed: work.request(arm, chosen[arm], "count", seed)
            return {
                a: [CellOutcome(request=asked(a, s), folder=tmp_path, cell=cell(a, s)) for s in work.blocks[0]]
                for a in work.arms
            }

        for module in (results, command):
            monkeypatch.setattr(module, "experiment_of", lambda method: experiment)
        monkeypatch.setattr(results, "measure", measured)
        (tmp_path / "results").mkdir(exist_ok=True)
        path = tmp_path / "results" / "rloo.json"
        path.write_text(json.dumps({**result(), "declaration": declared.digest(experiment), **published}))
        assert main(["reproduce", "rloo", "--fresh", "--out", str(tmp_path)]) == 0
        return json.loads(path.read_text())

    return run


def test_a_third_block_says_whether_the_verdict_repeats(third_block, capsys):
    whole = third_block(EXPERIMENT, {"no baseline": 0.2, "rloo": 0.4})
    assert whole["fresh"]["repeats"] and whole["fresh"]["seeds"] == [200, 201, 202, 203, 204]
    assert "verdict reproduced repeats\n" in capsys.readouterr().out
    assert whole["verdict"] == "reproduced" and whole["arms"]["start"]  # the rest of the result stays
    assert "fresh: 200 to 204" in effect_svg(whole, EXPERIMENT.expect)
    assert not third_block(EXPERIMENT, {"no baseline": 0.4, "rloo": 0.2})["fresh"]["repeats"]
    assert "does not repeat: reversed on its own" in capsys.readouterr().out


def test_a_third_block_that_ran_before_is_kept_where_it_said_something_else(third_block, capsys):
    ends = {"no baseline": 0.2, "rloo": 0.4}
    first = third_block(EXPERIMENT, ends)["fresh"]
    assert "earlier" not in third_block(EXPERIMENT, ends, fresh=first)["fresh"]
    capsys.readouterr()
    second = third_block(EXPERIMENT, {"no baseline": 0.4, "rloo": 0.2}, fresh=first)
    assert second["fresh"]["earlier"] == [first] and second["fresh"]["verdict"] == "reversed"
    assert "an earlier look at these seeds, kept: reproduced" in capsys.readouterr().out
    third = third_block(EXPERIMENT, ends, fresh=second["fresh"])["fresh"]
    assert [x["verdict"] for x in third["earlier"]] == ["reproduced", "reversed"]
    page = pages.method_page(entry(), {"rloo": (second, [])})
    assert "does not repeat: reversed. Earlier looks at these seeds: reproduced (0.204 [" in page


def test_a_third_block_can_be_vetoed(third_block):
    vetoed = replace(EXPERIMENT, vetoes={"accuracy": pl.ledger.Veto(falls=0.03, against="start")})
    ends = {"start": 0.9, "no baseline": 0.2, "rloo": 0.4}
    found = third_block(vetoed, ends, verdict="not-reproduced")["fresh"]
    assert found["repeats"] and found["reason"].startswith("vetoed: accuracy: -0.49")
    assert not third_block(vetoed, {**ends, "start": 0.4}, verdict="not-reproduced")["fresh"]["repeats"]


def test_what_was_declared_otherwise_has_no_third_block(third_block, capsys):
    with pytest.raises(AssertionError):
        third_block(EXPERIMENT, {}, declaration="0")
    assert "the published result is not of today's experiment" in capsys.readouterr().err


def test_the_picture_of_an_effect_has_a_row_for_each_block_and_reason():
    drawn = effect_svg(result(), EXPERIMENT.expect)
    for name in ("all seeds", "seeds 0 to 4", "seeds 100 to 104", "above batch mean", "margin"):
        assert f">{name}<" in drawn
    assert drawn.count("<circle") == 10 and effect_svg(older(), EXPERIMENT.expect) == ""


# ---- what a referee would try


def test_earlier_looks_follow_one_another():
    first = {"verdict": "inconclusive", "effect": 0.0, "ci95": [-1.0, 1.0], "why": "another declaration"}
    found = declared.earlier_looks(result(earlier=[first]), result(declaration="new"))
    assert found[0] == first and found[1]["verdict"] == "reproduced" and len(found) == 2
    assert declared.earlier_looks(result(earlier=[first]), result()) == [first]


def test_one_arm_with_other_numbers_or_another_verdict_is_a_look():
    """A veto's numbers may change the verdict where those of the arms stay."""
    for now in (result(verdict="not-reproduced"), result()):
        if now["verdict"] == "reproduced":
            now["arms"]["batch mean"]["values"] = values(0.35)
        (look,) = declared.earlier_looks(result(), now)
        assert look["verdict"] == "reproduced" and look["why"] == "the same declaration with other code"


def test_a_look_without_an_effect_has_its_place_on_the_page(publish):
    lost = result(verdict="inconclusive", effect=None, ci95=[None, None], declaration="old")
    found = result(earlier=declared.earlier_looks(lost, result()))
    publish(found)
    page = pages.method_page(entry(), {"rloo": (found, [])})
    assert "Earlier looks: inconclusive (not measured; another declaration)" in page


def test_what_a_third_block_said_is_not_lost(tmp_path):
    """The same numbers keep it, other ones have it in the earlier look."""
    (tmp_path / "results").mkdir()
    path = tmp_path / "results" / "rloo.json"
    third = {"seeds": [200], "repeats": False, "verdict": "inconclusive"}
    for declaration, place in ((result()["declaration"], lambda r: r), ("old", lambda r: r["earlier"][0])):
        path.write_text(json.dumps(result(declaration=declaration, fresh=third)))
        command.keep(result(), tmp_path, EXPERIMENT)
        assert place(json.loads(path.read_text()))["fresh"] == third
    assert "fresh" not in json.loads(path.read_text())


def test_a_third_block_with_a_failed_seed_has_no_row():
    lost = {"seeds": [200, 201], "values": {"no baseline": [0.1, 0.2], "rloo": [None, 0.3]}, "effect": None}
    drawn = effect_svg(result(fresh={**lost, "ci95": [None, None], "verdict": "inconclusive"}), EXPERIMENT.expect)
    assert drawn == effect_svg(result(), EXPERIMENT.expect)


def test_a_claim_that_cannot_be_tested_has_a_page_and_no_third_block(publish, monkeypatch, tmp_path):
    untestable = replace(EXPERIMENT, not_testable="a physical robot")
    found = results.untested("rloo", untestable) | {"command": "palaestra reproduce rloo", "earlier": []}
    for module in (results, pages, standing):
        monkeypatch.setattr(module, "experiment_of", lambda method: untestable)
    publish(found)
    assert standing.standing(entry()).status == "not-testable" and recompute(found, untestable) == ""
    assert "it has no numbers" in recompute(found, EXPERIMENT)
    page = pages.method_page(entry(), {"rloo": (found, [])})
    assert "**Not testable here: it needs a physical robot.**" in page and "palaestra reproduce rloo" in page
    with pytest.raises(UserError, match="a physical robot"):
        results.fresh("rloo", found, out=tmp_path, headway=None)


def test_a_verdict_without_numbers_or_that_hides_them_is_found():
    assert "it has no numbers" in recompute(result(arms={}))
    assert "its values give reproduced" in recompute(result(verdict="not-testable"))


def test_blocks_and_what_controls_found_are_recomputed():
    found = result()
    found["by_block"][1]["ci95"][0] += 0.01
    assert recompute(found).startswith("by_block is ")
    for name in ("accuracy", "batch mean"):
        found = result()
        found["controls"][name]["effect"] += 0.01
        assert recompute(found).startswith(f"{name} is ")
    for word in ("speaks", "doubts"):  # what a veto says of the verdict
        found = result()
        found["controls"]["accuracy"][word] = not found["controls"]["accuracy"][word]
        assert recompute(found).startswith("accuracy is ")


def test_a_veto_is_recomputed_against_its_arm():
    """Below the start by 0.1, above the rival by 0.2."""
    spoken = {**UP, "start": 0.5}
    found = result()
    numbers = {a: values(x) for a, x in spoken.items()}
    found["controls"]["accuracy"] |= {"values": numbers, "against": "start", "effect": -0.1, "speaks": True}
    against = replace(JUDGED, vetoes={"accuracy": pl.ledger.Veto(against="start")})
    assert "verdict is reproduced, and its values give not-reproduced" in recompute(found, against)


def test_several_tasks_and_equivalences_are_recomputed():
    arms = {n: {"count": values(x), "chain": values(x + 0.3, 0.02)} for n, x in UP.items()}
    arms["rloo"]["chain"] = values(0.8, 0.03)
    expect = pl.ledger.Same("rloo", "no baseline", within=0.01)
    judged = judge(expect, Measured(arms=arms, blocks=[list(b) for b in BLOCKS], vetoes={}))
    of = lambda e: replace(EXPERIMENT, expect=e, task=("count", "chain"))
    told = {"expected": str(expect), "task": ["count", "chain"], "controls": {}}
    found = result(**told, **{k: v for k, v in judged.items() if k != "said"})
    for name, by_task in arms.items():
        found["arms"][name] |= {"by_task": by_task}
    assert found["verdict"] == "not-reproduced" and recompute(found, of(expect)) == ""
    assert standing.expectation_of(found) == expect
    wide = {**found, "expected": "|rloo - no baseline| < 0.9"}
    assert "its values give reproduced" in recompute(wide, of(replace(expect, within=0.9)))


def test_an_illustration_is_recomputed_as_one():
    judged = judge(EXPERIMENT.expect, Measured(
        arms={n: {"count": values(x)} for n, x in UP.items()}, blocks=[list(b) for b in BLOCKS], vetoes={},
    ), illustration=True)  # fmt: skip
    judged.pop("said")
    found = result(controls={}, **judged)
    assert recompute(found, replace(EXPERIMENT, illustration=True)) == ""
    assert "its values give reproduced" in recompute(found, EXPERIMENT)


def test_an_arm_is_older_when_its_parts_have_a_newer_version(monkeypatch):
    found = result()
    for name, record in found["arms"].items():
        record |= results.arm_code(EXPERIMENT, name)
    assert older_arms(found, EXPERIMENT) == {} and describe_code(found, EXPERIMENT) == ""
    lines = (Version(part="Center", version=2, date="2026-11-28", why="a group of one has no advantage"),)
    monkeypatch.setattr(versions, "history", lambda: lines)
    assert list(older_arms(found, EXPERIMENT)) == ["rloo", "batch mean"]  # these alone center
    assert describe_code(found, EXPERIMENT) == "measured before version 2 of Center (a group of one has no advantage)"


def test_rules_of_another_number_are_older():
    assert [results.is_older(r) for r in ({}, {"rules": 1}, {"rules": 2})] == [True, True, False]


def test_a_declaration_under_another_name_is_not_whole(tmp_path):
    path = declared.declare("rloo", EXPERIMENT, tmp_path)
    other = tmp_path / "rloo-0123456789ab.json"
    other.write_text(path.read_text())
    assert declared.is_whole(path) and not declared.is_whole(other)


def test_the_day_of_a_declaration_is_that_of_the_first(tmp_path):
    path = declared.declare("rloo", EXPERIMENT, tmp_path)
    text = re.sub(r'"declared": "[^"]*"', '"declared": "2001-01-01"', path.read_text())
    path.write_text(text)
    assert declared.declare("rloo", EXPERIMENT, tmp_path).read_text() == text and declared.is_whole(path)


@pytest.mark.parametrize("seeds", [{"blocks": (range(3),)}, {"tuning_seeds": range(1000, 1001)}])
def test_the_seeds_are_declared(seeds):
    assert declared.digest(replace(EXPERIMENT, **seeds)) != declared.digest(EXPERIMENT)


def test_published_results_have_the_declaration_that_they_name():
    for name in standing.published():
        found = files.read_result(name) or {}
        if not results.is_older(found):
            path = files.folder().parent / "declared" / f"{name}-{found['declaration'][:12]}.json"
            assert declared.is_whole(path) and json.loads(path.read_text())["digest"] == found["declaration"], name


# ---- pages


def test_a_page_names_failed_runs_the_chosen_setting_and_each_block(publish):
    found = result()
    found["arms"]["rloo"] |= {"values": [None, *found["arms"]["rloo"]["values"][1:]], "setting": {"optimiser.lr": 1e-4}}
    found["arms"]["rloo"]["failed"] = {"rloo, seed 0": "it starved"}
    found["arms"]["start"]["values"] = [None] * 10
    found["arms"]["batch mean"]["values"] = [0.1, *[0.4] * 9]
    found |= {"shape": "skewed", "ci95_permutation": [0.11, 0.31]}
    found["fresh"] = {
        "seeds": [200], "values": {"no baseline": [0.1], "rloo": [0.3]}, "effect": 0.25, "ci95": [0.2, 0.3],
        "verdict": "smaller", "repeats": False,
    }  # fmt: skip
    found["by_block"][1] = {"effect": 0.123, "ci95": [0.1, 0.2]}
    publish(found)
    page = pages.method_page(entry(), {"rloo": (found, [])})
    for part in (
        "- rloo: failed, 0.", "- start: not measured, not measured",
        "below half of their arm's median: 1 of 10 of batch mean, median 0.4\n",
        "| rloo | optimiser.lr=0.0001 | 0.2 | chosen |", "| rloo |  | 0.3 |  |", "and 0.123 [0.1, 0.2]",
        "(skewed); permutation interval: [0.11, 0.31]", "does not repeat: smaller",
    ):  # fmt: skip
        assert part in page, part


def test_half_of_a_median_is_told_of_measures_that_cannot_be_negative():
    told = lambda *values, **more: pages.fallen(
        {"arms": {"a": {"values": list(values), "setting": {"lr": 1}}}, **more}, swept=True
    )
    assert told(1.0, 1.0, 1.0, 0.4) == ["1 of 4 of a, median 1"]
    assert told(-8.0, -8.0, -8.0, -3.0) == told(1.0, 1.0, 0.1, -0.1) == told(1.0, 0.1) == []
    sweep = {"tuning": {"arms": {"a": [{"setting": {"lr": 1}, "values": [0.9, None]}]}}}
    assert told(1.0, 1.0, 0.4, **sweep) == ["1 of 3 of a, median 1 (0.9 (1 of 2) in the sweep)"]
    arms = {"arms": {"a": {"values": [1.0, 1.0, 0.4], "setting": {"lr": 1}}}}
    assert pages.fallen({**arms, **sweep}, swept=False) == ["1 of 3 of a, median 1"]


def test_a_page_of_a_stale_result_has_no_verdict(publish):
    found = result(declaration="0")
    publish(found)
    page = pages.method_page(entry(), {"rloo": (found, [])})
    assert "**Stale result: it was declared otherwise.** Run it again." in page and "**Reproduced.**" not in page


def test_seeds_that_would_decide_are_two_blocks_that_agree():
    """A mean of .02 with a standard deviation of .04: blocks of 18 have .02 +- .0199, those of 17 +- .0206."""
    half = t_quantile(0.975, 9) * 0.04 / 10**0.5
    found = result(
        verdict="inconclusive", effect=0.02, ci95=[0.02 - half, 0.02 + half], reason="the blocks do not agree"
    )
    said = pages.inconclusive_reason(EXPERIMENT, found)
    assert said == "the blocks do not agree; with this mean and spread about 36 seeds would, about every second time"


def test_the_picture_of_an_effect_has_each_difference_in_its_block():
    found = result()
    found["fresh"] = {
        "seeds": [200],
        "values": {"no baseline": [0.1], "rloo": [0.35]},
        "effect": 0.25,
        "ci95": [0.2, 0.3],
    }
    found["arms"]["rloo"]["values"] = [
        round(x + 0.5 + 0.01 * i, 4) for i, x in enumerate(found["arms"]["no baseline"]["values"])
    ]
    rows = effect_rows(found, EXPERIMENT.expect)
    assert [[round(d, 4) for d in dots] for _, _, dots in rows][1:4] == [
        [0.5, 0.51, 0.52, 0.53, 0.54], [0.55, 0.56, 0.57, 0.58, 0.59], [0.25]
    ]  # fmt: skip
    assert rows[3][1]["effect"] == 0.25
    drawn = effect_svg(found, replace(EXPERIMENT.expect, by=0.1))
    margin = float(re.search(r"<path d='M([\d.]+) \d+V\d+' stroke='[^']+' stroke-dasharray", drawn)[1])
    nothing = float(re.search(rf"<path d='M([\d.]+) \d+V\d+' stroke='{INK}'/>", drawn)[1])
    assert margin > nothing + 5

"""Adversarial influence: votes and trust by hand, plans against every strategy, logs, models of trust, a model's weights."""

import json
from itertools import product

import numpy as np
import palaestra as pl
import pytest
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.models.load import load
from palaestra.recipes.analysis import adversarial_influence as study
from palaestra.recipes.analysis.adversarial_influence import appraisals, findings, planning, team
from palaestra.types import Task


def rng():
    return np.random.default_rng(0)


EVEN = np.full((1, 4), 0.25)


def chance(weight_NV, skills, honest):
    """The chance of a right team answer where the adviser is right with a chance."""
    found = 0.0
    for said in product((0, 1), repeat=3):
        p = np.prod([s if r else 1 - s for s, r in zip(skills, said, strict=True)])
        for own, q in ((True, honest), (False, 1 - honest)):
            found += p * q * float(team.scores(weight_NV, np.array([[*said, own]], bool))[0])
    return found


def test_votes_of_the_catalogue():
    """Members of .6 and equal votes: .648 alone, .756 with an adviser of .9, .432 with one that is always wrong."""
    skills = (0.6, 0.6, 0.6)
    alone = team.capped(EVEN, 0.0)
    assert alone.tolist() == [[1 / 3, 1 / 3, 1 / 3, 0]]
    assert chance(alone, skills, 0.3) == pytest.approx(0.648)
    assert chance(EVEN, skills, 0.9) == pytest.approx(0.756)
    assert chance(EVEN, skills, 0.0) == pytest.approx(0.432)


@pytest.mark.parametrize(
    "lam, penalty, trust", [(1.0, 1.0, 4 / 6), (0.9, 1.0, 3.0951 / (3.0951 + 1.6561)), (1.0, 2.0, 4 / 7)]
)
def test_trust_of_the_catalogue(lam, penalty, trust):
    """Right three times, then wrong."""
    record = team.first_record(1, 2)
    for right in (True, True, True, False):
        record = team.add_round(record, np.array([[right, True]]), lam, penalty)
    a, b = record.a_NV[0, 0], record.b_NV[0, 0]
    assert a / (a + b) == pytest.approx(trust, abs=1e-6)
    assert (record.right_NV[0, 0], record.wrong_NV[0, 0], record.last_NV[0, 0]) == (3, 1, 0)
    weights = team.BetaTrust(lam, penalty).weights(record)
    assert weights.sum() == pytest.approx(1) and weights[0, 0] < weights[0, 1]


def test_a_cap_and_no_trust():
    """.5 for the adviser is cut to .2; the others keep their proportion, 2 to 1 to 1."""
    assert team.capped(np.array([[0.25, 0.125, 0.125, 0.5]]), 0.2).tolist() == [[0.4, 0.2, 0.2, 0.2]]
    assert team.shares(np.zeros((1, 4))).tolist() == EVEN.tolist()
    assert team.capped(np.array([[0.0, 0.0, 1.0]]), 0.5).tolist() == [[0.25, 0.25, 0.5]]


@pytest.mark.parametrize(
    "right, bare, guarded",
    [((1, 1, 0, 0), 0.5, 1.0), ((0, 0, 1, 1), 0.5, 0.0), ((1, 1, 0, 1), 1.0, 1.0), ((0, 1, 1, 0), 0.5, 1.0)],
)
def test_members_decide_where_the_adviser_disagrees(right, bare, guarded):
    said = np.array([right], bool)
    assert team.scores(EVEN, said)[0] == bare and team.scores(EVEN, said, fallback=True)[0] == guarded
    # of two members that tie, the vote with the adviser counts
    assert team.scores(np.full((1, 3), 1 / 3), np.array([[True, False, True]]), fallback=True)[0] == 1


def expected(group, rounds, choose):
    """The expected number of right answers, by every way that members' answers can come."""
    right_OM, p_O = team.outcomes(tuple(group.skills))

    def go(record, t, said):
        if t == rounds:
            return 0.0
        own = choose(record, t, said)
        total = 0.0
        for o, (right_M, p) in enumerate(zip(right_OM, p_O, strict=True)):
            right_NV = np.array([[*right_M, own]])
            paid = float(team.scores(group.influence(record), right_NV, group.defence.fallback)[0])
            total += p * (paid + go(group.after(record, right_NV), t + 1, (*said, o)))
        return total

    return go(team.first_record(1, len(group.skills) + 1), 0, ())


@pytest.mark.parametrize(
    "defence, skills, rounds",
    [
        (team.Defence(), (0.7,), 3),
        (team.Defence("cap", cap=0.3), (0.7, 0.6), 2),
        (team.Defence("twice", penalty=2.0), (0.8, 0.3), 2),
    ],
)
def test_no_strategy_is_worse_than_the_exact_plan(defence, skills, rounds):
    """All ways to be right or wrong by what members said, 2^(1 + 2 + 4) of one member and 2^(1 + 4) of two, played out."""
    group = team.AdvisedTeam(skills, team.BetaTrust(), defence)
    plan = planning.plan_exact(group, rounds)
    pasts = [p for t in range(rounds) for p in product(range(2 ** len(skills)), repeat=t)]
    values = []
    for choice in product((False, True), repeat=len(pasts)):
        known = dict(zip(pasts, choice, strict=True))
        values.append(expected(group, rounds, lambda record, t, said, known=known: known[said]))
    assert plan.value == pytest.approx(min(values)) and max(values) > min(values) + 0.1
    assert expected(group, rounds, lambda record, t, said: bool(plan(record, t)[0])) == pytest.approx(min(values))


def test_a_plan_by_regression_is_near_the_exact_one():
    group = team.AdvisedTeam((0.6, 0.6, 0.6), team.BetaTrust())
    luck = team.draw_luck(400, 12, 3, rng())
    exact, fitted = planning.plan_exact(group, 12), planning.plan_fitted(group, 12, rng())
    honest = team.play(group, team.SteadyAdviser(1.0, luck.probe_NT), luck).accuracy_N.mean()
    reached = [team.play(group, p, luck).accuracy_N.mean() for p in (exact, fitted)]
    assert reached[0] == pytest.approx(exact.value / 12, abs=0.02)
    assert honest - reached[1] > 0.95 * (honest - reached[0]) > 0.2


def test_when_to_be_wrong_matters():
    """As many wrong answers in every team, at other rounds, and less damage."""
    group = team.AdvisedTeam((0.6, 0.6, 0.6), team.BetaTrust())
    luck = team.draw_luck(2000, 12, 3, rng())
    worst = team.play(group, planning.plan_exact(group, 12), luck)
    other = team.play(group, team.shuffled_rounds(worst.honest_NT, rng()), luck)
    assert (worst.honest_NT.sum(1) == other.honest_NT.sum(1)).all()
    assert worst.accuracy_N.mean() < other.accuracy_N.mean() - 0.005


def test_rounds_that_do_not_count():
    """Probes of one half: rounds 0 and 2 of the first team count, none of the second."""
    score = np.array([[1.0, 0.0, 0.5], [1.0, 1.0, 1.0]])
    counts = np.array([[True, False, True], [False, False, False]])
    played = team.PlayedRounds(score, score > 0, np.array([[0.3, 0.05, 0.2], [0.3, 0.3, 0.3]]), counts)
    assert played.accuracy_N.tolist() == [0.75, 0.0]
    assert played.rounds_until(0.1) == (1 + 3) / 2


# ---- logs and models of trust


def row(team="a", round=1, right=None, weights=None, **more):
    right = {"ann": True, "ben": False, "bot": True} if right is None else right
    weights = {"ann": 2, "bot": 2} if weights is None else weights
    meta = {"team": team, "round": round, "right": right, "weights": weights, **more}
    return Task(id=f"{team}-{round}", prompt=(), answer=None, meta=meta)


def test_a_log_is_read_in_the_order_of_rounds():
    log = appraisals.read_log([row(round=2, member="ben"), row(round=1), row("b", 1, weights={"ben": 1})], "bot")
    second = next(d for d in log.decisions if d.before)
    assert [len(d.before) for d in log.decisions] == [0, 1, 0]
    assert second.member == 1 and second.before[0].tolist() == [True, False, True]
    assert [d.weight_V.tolist() for d in log.decisions] == [[0.5, 0, 0.5], [0.5, 0, 0.5], [0, 1, 0]]
    assert (log.skill, log.voters) == (0.5, 3)


@pytest.mark.parametrize(
    "rows, why",
    [
        ([row(round="first")], "`round` is a number"),
        ([row(right={"ann": True})], "adviser=NAME"),
        ([row(right=[True])], "adviser=NAME"),
        ([row(weights={"ann": -1})], "`weights` has a number"),
        ([row(weights={"eve": 1})], "`weights` has a number"),
        ([row(weights="ann")], "`weights` has a number"),
        ([row(), row(round=2, right={"ann": True, "bot": True})], "`right` has a number"),
        ([row(), row("b", right={"ann": True, "bot": True})], "teams of one size"),
        ([row(), row(right={"ann": False, "ben": False, "bot": True})], "say differently"),
        ([row(right=dict.fromkeys([*"abcdefghi", "bot"], True))], "at most 9"),
    ],
)
def test_rows_in_another_form(rows, why):
    with pytest.raises(UserError, match=why):
        appraisals.read_log(rows, "bot")


def test_models_find_how_members_trust():
    """Members that forget with .9 and count wrong answers twice: both models predict other teams far better than even
    weights."""
    log = appraisals.simulated_log(16, 25, 0.6, rng())
    fits = appraisals.fit_all(log, rng())
    assert (fits.beta.lam, fits.beta.penalty) == (0.9, 2.0)
    assert fits.errors["learned"] < 0.6 * fits.errors["even"] > fits.errors["beta"]
    held = {d.team for d in fits.held}
    assert len(held) == 3 and fits.best in (fits.beta, fits.learned)


def test_counts_before_a_decision():
    """Decisions in any order have the record of their own team and rounds."""
    log = appraisals.simulated_log(2, 5, 0.6, rng())
    mixed = [log.decisions[i] for i in (7, 3, 9, 0, 4)]
    whole = appraisals.record_of(mixed, 0.8, 2.0)
    for i, d in enumerate(mixed):
        record = team.first_record(1, 4)
        for r in d.before:
            record = team.add_round(record, r[None], 0.8, 2.0)
        assert whole.a_NV[i].tolist() == record.a_NV[0].tolist() and whole.b_NV[i].tolist() == record.b_NV[0].tolist()


def test_one_decision_is_no_log():
    with pytest.raises(UserError, match="two decisions"):
        appraisals.fit_all(appraisals.read_log([row()], "bot"), rng())


def test_weights_of_a_language_model():
    """The softmax of the first letters' scores; the adviser is named, and the latest rounds are shown."""
    before = [np.array([True, False, True])] * 15
    text = appraisals.question_of(before, 3)
    assert "C (AI assistant): " + "+" * appraisals.LATEST in text and "B (person): -" in text
    assert "nothing yet" in appraisals.question_of([], 3)
    trust = appraisals.ModelTrust(load("tiny"))
    (weight_V,) = trust.given([before], 3)
    record = team.first_record(1, 3)
    for r in before:
        record = team.add_round(record, r[None], 1.0, 1.0)
    assert weight_V.sum() == pytest.approx(1) and trust.weights(record)[0] == pytest.approx(weight_V)


# ---- the study


def test_a_defence_that_costs_is_told():
    luck = team.draw_luck(50, 6, 3, rng())
    shown = []
    for d in (team.Defence(), team.Defence("members' majority", fallback=True)):
        group = team.AdvisedTeam((0.6, 0.6, 0.6), team.BetaTrust(), d)
        honest = team.play(group, team.SteadyAdviser(1.0, luck.probe_NT), luck)
        wrong = team.play(group, team.SteadyAdviser(0.0, luck.probe_NT), luck)
        none = team.play(group, None, luck)
        played = {"none": none, "honest": honest, "wrong": wrong, "random": wrong, "worst": wrong}
        shown.append(findings.ShownTeam(d, played, "hand"))
    errors = {"learned": 0.1, "beta": 0.2, "even": 0.3, "learned from a quarter": 0.2}
    found = findings.report(shown, errors, None, {})
    assert abs(found.numbers["damage_members__majority"].mean) < 0.02 and found.numbers["timing"].mean == 0
    assert found.numbers["honest_loss_members__majority"].mean > 0.1 < found.numbers["damage"].mean
    assert "Least with: members' majority" in found.findings[2] and "No difference is seen" in found.findings[1]
    assert "best by the learned model" in found.findings[3] and len(found.items) == 10


@pytest.mark.parametrize(
    "given, why",
    [
        ({"skills": (1.2,)}, "skills are chances"),
        ({"skills": ()}, "skills are chances"),
        ({"teams": 1}, "teams"),
        ({"rounds": 0}, "rounds"),
        ({"defences": (team.Defence("cap", cap=0.3),)}, "first of the defences"),
    ],
)
def test_numbers_that_say_nothing_are_refused(given, why):
    with pytest.raises(UserError, match=why):
        study.build(**given)


def test_a_log_of_a_user(tmp_path, capsys):
    """Members who follow the bot alone: the learned weights say so, and the worst case takes all from an honest one."""
    rows = [
        {
            "prompt": f"q{t}",
            "team": name,
            "round": t,
            "right": {"ann": t % 2 == 0, "ben": t % 3 == 0, "bot": t % 4 > 0},
            "weights": {"bot": 1},
        }
        for name in "abcdef"
        for t in range(8)
    ]
    file, out = tmp_path / "log.jsonl", tmp_path / "out"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    ask = ["study", "adversarial-influence", "--model", "tiny", "--data", str(file), "--out", str(out)]
    assert main([*ask, "adviser=bot", "teams=40", "rounds=4", "asked=1"]) == 0
    found = json.loads((out / "study.json").read_text())
    assert "as a log of 48 decisions says: the learned model" in found["protocol"]["members"]
    assert found["numbers"]["right_honest"]["mean"] > 0.95 and found["numbers"]["right_worst"]["mean"] < 0.05
    assert found["protocol"]["left out"].startswith("defences that change trust")
    assert {"damage_cap__3", "damage_model", "model_error"} <= {*found["numbers"]}
    first = (out / "study.json").read_text()
    (out / "summary.json").unlink()
    assert main([*ask, "adviser=bot", "teams=40", "rounds=4", "asked=1"]) == 0
    assert (out / "study.json").read_text() == first


def test_data_that_are_no_log_are_refused(tmp_path, capsys):
    file = tmp_path / "f.jsonl"
    file.write_text('{"prompt": "1+1", "answer": "2"}\n')
    ask = ["study", "adversarial-influence", "--model", "tiny", "--data", str(file), "--out", str(tmp_path / "o")]
    assert main(ask) == 2 and "which team decided" in capsys.readouterr().err
    assert isinstance(pl.recipe("adversarial-influence"), study.AdviserInfluence)

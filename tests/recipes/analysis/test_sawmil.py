"""sAwMIL: support vectors, bags and conformal sets by hand; probes that find a signal and none; statements of a user."""

import json

import numpy as np
import palaestra as pl
import pytest
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.recipes.analysis import sawmil as study
from palaestra.recipes.analysis.sawmil import findings, layer, margin
from palaestra.toys.statements import drawn_map
from palaestra.types import Message, Task

ONES = np.ones(2)


def test_support_vectors_by_hand():
    """x = -1, +1: b = 0, and w^2 / 2 + 2 c (1 - w)^2 has its minimum at w = 4 c / (1 + 4 c)."""
    for c in (0.05, 1.0, 10.0):
        w, b = margin.fit_margin(np.array([[-1.0], [1.0]]), np.array([-1.0, 1.0]), ONES, c * ONES)
        assert w[0] == pytest.approx(4 * c / (1 + 4 * c)) and b == pytest.approx(0, abs=1e-9)


def test_the_minimum_has_no_slope():
    rng = np.random.default_rng(0)
    x, sign, m, c = rng.normal(size=(80, 5)), rng.choice([-1.0, 1.0], 80), rng.uniform(-1, 1, 80), rng.uniform(0, 1, 80)
    w, b = margin.fit_margin(x, sign, m, c)
    slack = np.maximum(0, m - sign * (x @ w + b))
    assert slack.max() > 0.1  # some rows are on the wrong side
    assert np.abs(w - 2 * (c * slack * sign) @ x).max() < 1e-6 and abs((c * slack * sign).sum()) < 1e-6


def test_a_bag_of_one_token_is_an_ordinary_row():
    """The catalogue's first law: margins 1, costs C / n of each side."""
    bags = [np.array([[float(i), 1.0]]) for i in range(5)]
    x, sign, m, cost = margin.first_stage(bags, np.array([True, False, False, True, False]), 6.0)
    assert x[:, 0].tolist() == [0, 3, 1, 2, 4] and sign.tolist() == [1, 1, -1, -1, -1]
    assert m.tolist() == [1] * 5 and cost.tolist() == [3, 3, 2, 2, 2]


def test_margins_of_larger_bags():
    """2 / |B| - 1 of 1, 2, 5, 10 tokens; each token of a negative bag is a row."""
    bags = [np.ones((n, 3)) for n in (1, 2, 5, 10, 4)]
    x, sign, m, _ = margin.first_stage(bags, np.array([True] * 4 + [False]), 1.0)
    assert m[:4] == pytest.approx([1, 0, -0.6, -0.8]) and m[4:].tolist() == [1] * 4 and len(x) == 8
    assert sign.tolist() == [1] * 4 + [-1] * 4


def test_positive_tokens_of_stage_two():
    """Scores 0 to 9 and 9 to 0 in two positive bags: at eta .1 the two 9s are on top, and one of them is marked."""
    up = np.arange(10.0)[:, None]
    bags, positive = [up, up[::-1], up + 100], np.array([True, True, False])
    x, sign = margin.second_stage(bags, positive, (np.ones(1), 0.0), marked=2, eta=0.1)
    assert len(x) == 30 and np.flatnonzero(sign > 0).tolist() == [9]
    # only low tokens are marked, so the best of these, 5% of 20, is taken
    _, sign = margin.second_stage([up[::-1], up[::-1]], np.array([True, True]), (np.ones(1), 0.0), 2, 0.1)
    assert np.flatnonzero(sign > 0).tolist() == [8]


def test_a_bag_scores_as_its_best_token():
    probe = margin.MarginProbe(np.array([1.0]), -1.0)
    bag = np.array([[5.0], [2.0]])
    assert probe.score([bag]).tolist() == [4] and margin.MarginProbe(np.array([1.0]), -1.0, True).score([bag]) == [1]


def test_sets_of_the_catalogue():
    """Nine calibration scores: .75 has p = .3, .95 has p = .1, which is not above alpha = .1; (.7, .2, .1) by hand."""
    nine = np.arange(1, 10) / 10
    p = margin.conformal_p(nine, np.array([[0.75, 0.95]]))
    assert p[0] == pytest.approx([0.3, 0.1]) and (p > 0.1).tolist() == [[True, False]]
    assert margin.nonconformity(np.array([[0.7, 0.2, 0.1]]))[0] == pytest.approx([0.25, 0.75, 0.80])


def test_sets_hold_the_label_as_often_as_they_say():
    """Probabilities that are noise: a thousand splits, exactly floor(.9 (n + 1) + ...) / (n + 1) = .9 in the mean at n = 19."""
    rng, held = np.random.default_rng(2), []
    for _ in range(1000):
        p_NC, label_N = rng.dirichlet(np.ones(3), 29), rng.integers(0, 3, 29)
        a_NC = margin.nonconformity(p_NC)
        own_N = a_NC[np.arange(29), label_N]
        kept_NC = margin.conformal_p(own_N[:19], a_NC[19:]) > 0.1
        held.append(kept_NC[np.arange(10), label_N[19:]].mean())
    assert np.mean(held) == pytest.approx(0.9, abs=0.015)


def test_correlation_of_the_catalogue():
    """TP 40, TN 35, FP 5, FN 10: .670820; of three classes all right 1, and nothing where one of them does not vary."""
    gold = [1] * 40 + [0] * 35 + [0] * 5 + [1] * 10
    said = [1] * 40 + [0] * 35 + [1] * 5 + [0] * 10
    assert margin.matthews(gold, said) == pytest.approx(0.670820, abs=1e-6)
    assert margin.matthews([*"abc"], [*"abc"]) == pytest.approx(1) and margin.matthews([*"ab"], [*"aa"]) == 0
    assert margin.matthews([], []) == 0


def test_what_abstains_is_not_counted():
    """90 of 100 have one label in their set, with the catalogue's correlation: wMCC .9 * .670820 = .603738."""
    gold = ["yes"] * 40 + ["no"] * 35 + ["no"] * 5 + ["yes"] * 10 + ["yes"] * 10
    sure, unsure = {"yes": [0.05, 0.95], "no": [0.95, 0.05]}, [0.5, 0.5]
    said = ["yes"] * 40 + ["no"] * 35 + ["yes"] * 5 + ["no"] * 10
    fit = {"test": [sure[x] for x in said] + [unsure] * 10, "calibration": [[0.4, 0.6]] * 5 + [[0.9, 0.1]] * 5}
    score = layer.score_layer(fit, ["no", "yes"], ["yes"] * 5 + ["no"] * 5, gold, alpha=0.1)
    # a of the calibration: .4 and .1; of a sure label .05 and .95; of an even one .5, which no calibration reaches
    assert score.acceptance == pytest.approx(0.9) and score.wmcc == pytest.approx(0.603738, abs=1e-6)
    assert score.coverage == pytest.approx(0.75) and score.sets[-1] == [] and sum(score.right) == 75


def bags_with_signal(rng, labels, at=-1):
    """Noise of 6 tokens, with the label as a direction at one of the last two."""
    names = sorted({*labels})
    bags = [rng.normal(size=(6, 8)) for _ in labels]
    for bag, label in zip(bags, labels, strict=True):
        bag[at, names.index(label)] += 6
    return bags


def test_a_signal_is_found_and_shuffled_labels_have_none():
    rng = np.random.default_rng(3)
    labels = [("true", "false", "neither")[i % 3] for i in range(150)]
    entities = [str(i // 2) for i in range(150)]
    split, settings = layer.split_statements(entities, 0), layer.ProbeSettings(penalty=1.0)
    parts = [{entities[i] for i in at} for at in (split.train, split.calibration, split.test)]
    assert not parts[0] & parts[1] and not parts[1] & parts[2] and not parts[0] & parts[2]
    assert [len(p) for p in parts] == [38, 18, 19]
    test = [labels[i] for i in split.test]
    last, second = bags_with_signal(rng, labels), bags_with_signal(rng, labels, at=-2)

    def correlation(bags, method, shuffled=None):
        fit = layer.judge_layer(bags, labels, split, method, settings, shuffled)
        calibration = [labels[i] for i in split.calibration]
        return layer.score_layer(fit, sorted({*labels}), calibration, test, 0.1).mcc

    assert correlation(last, "sawmil") > 0.8 and correlation(last, "svm") > 0.8 and correlation(last, "mean") > 0.8
    assert correlation(second, "sawmil") > 0.6 > 0.35 > abs(correlation(second, "svm"))
    assert abs(correlation(last, "sawmil", shuffled=0)) < 0.4


def test_wide_states_are_reduced_and_directions_come_back():
    """300 numbers, of which two vary: two states stay two states; a direction of the reduced ones is one of the states."""
    rng = np.random.default_rng(4)
    bags = [np.outer(rng.normal(size=2), np.ones(300)) + 1e-3 * rng.normal(size=(2, 300)) for _ in range(8)]
    scale = layer.fit_scale(bags)
    assert scale(bags[0]).shape == (2, layer.MOST)
    weight = rng.normal(size=layer.MOST)
    moved = scale(bags[0] + scale.raw(weight)) - scale(bags[0])
    assert (moved @ weight > 0).all()


def test_the_toy_is_what_it_says():
    cities, countries, unknown = drawn_map(64, 4, 0)
    assert not {*cities} & {*unknown} and not {*countries} & {*unknown, *cities}
    names = {"train": set(), "test": set()}
    for split, seen in names.items():
        for i in range(200):
            task = pl.toys.Statements().task(split, i)
            city, _, _, country = task.prompt[0].content.rstrip(".").split()
            own = countries[cities.index(city) % 4] if city in cities else None
            assert task.answer == ("neither" if own is None else "true" if own == country else "false")
            assert task.meta["entity"] == city and pl.toys.Statements().check(f" {task.answer}\n", task) == 1
            seen.update({city} - {*cities})
    assert names["test"] and not names["train"] & names["test"]
    with pytest.raises(UserError, match="there are names for"):
        pl.toys.Statements(cities=10**6)


class Listed:
    name = "listed"

    def __init__(self, rows):
        self.rows = rows
        self.size = self.test_size = len(rows)

    def task(self, split, i):
        text, answer = self.rows[i]
        return Task(id=str(i), prompt=(Message(role="user", content=text),), answer=answer)


class Bench:
    def __init__(self, rows):
        self.bench, self.tasks = self, Listed(rows)


def test_rows_with_a_wrong_label_are_refused():
    for rows, why in (
        ([("a", "true"), ("b", "maybe")], "'maybe'; write true, false or neither"),
        ([("a", "true"), ("a", False)], "called true in one row and false in another"),
        ([("a", True), ("b", "True ")], "all statements are true"),
        ([], "all statements are missing"),
    ):
        with pytest.raises(UserError, match=why):
            study.read_statements(Bench(rows), 10)
    read = study.read_statements(Bench([("a", True), ("b", "False"), ("a", "true"), ("c", "NEITHER")]), 10)
    assert read.labels == ["true", "false", "neither"] and read.repeats == 1 and read.entities == ["a", "b", "c"]
    split = layer.split_statements(read.entities, 0)
    with pytest.raises(UserError, match="bring more entities"):
        study.check_split(read, split, 0.1)


def test_statements_of_a_user(tmp_path, capsys):
    """Two domains, entities with several statements, booleans as labels, and no base."""
    rows = []
    for i in range(24):
        domain, name = ("rivers", "hills")[i % 2], f"place {i}"
        rows.append({"prompt": f"{name} is {i}.", "answer": True, "entity": name, "domain": domain})
        rows.append({"prompt": f"{name} is {i + 50}.", "answer": "false", "entity": name, "domain": domain})
    file, out = tmp_path / "rows.jsonl", tmp_path / "out"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    words = ["penalty=1", "layers=[2]", "alpha=0.2", "read=text"]
    assert main(["study", "sawmil", "--model", "tiny", "--data", str(file), "--out", str(out), *words]) == 0
    report = json.loads((out / "study.json").read_text())
    numbers = report["numbers"]
    assert "moved" not in numbers and {"accuracy_on_hills", "accuracy_on_rivers", "steering_random"} <= {*numbers}
    assert len({x["id"] for x in map(json.loads, (out / "items.jsonl").read_text().splitlines())}) == 12
    assert "tell true and false apart" in capsys.readouterr().out
    assert findings.VERDICTS == ("true", "false", "neither")


def test_arguments_out_of_bounds_are_refused():
    for words in ({"alpha": 0}, {"tokens": 0}, {"statements": 3}, {"eta": 0}, {"marked": 0}):
        with pytest.raises(UserError):
            study.build(**words)

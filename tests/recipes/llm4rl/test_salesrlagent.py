"""SalesRLAgent: states, scores and withheld predictions by hand, conversations of a user, and the arms."""

import asyncio
import json
import math
from dataclasses import replace

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import Fault, UserError
from palaestra.recipes.llm4rl import salesrlagent
from palaestra.recipes.llm4rl.salesrlagent.judge import judge_talks, written_scores
from palaestra.recipes.llm4rl.salesrlagent.predictors import (
    PredictionGames,
    advice_of,
    calibration_error,
    distances,
    measure_predictions,
    predict,
    probability,
    scores_by_turn,
    scores_of,
    selective,
    turn_rewards,
)
from palaestra.recipes.llm4rl.salesrlagent.states import (
    ENGAGEMENT,
    TalkTable,
    exchanged,
    hashed_text,
    state_width,
    table_of,
)
from palaestra.recipes.llm4rl.salesrlagent.talks import (
    HELD_OUT,
    SalesTalk,
    SimulatedTalks,
    script,
    talk_of,
)
from palaestra.types import Message, Task

KEY = ("test",)
LEARNER = pl.control.PPO(games=8, gamma=1.0, lam=1.0)


def talk(*texts, converted=True, hidden=()):
    messages = tuple(("user" if i % 2 else "assistant", x) for i, x in enumerate(texts))
    return SalesTalk(messages=messages, converted=converted, hidden=hidden)


def table(lengths, converted, width=1):
    T = max(lengths)
    return TalkTable(
        x=np.zeros((len(lengths), T, width + 6), np.float32),
        converted=np.array(converted, float),
        length=np.array(lengths),
    )


def program(**settings):
    made = salesrlagent.embedded(train=24, test=8)
    small = {"learner": LEARNER, "steps": 30, "members": 2, "epochs": 2, "width": 16}
    return replace(made, **{**small, **settings})


def test_scores_of_the_catalogue():
    """p = .2, .4, .7 and y = 1: Brier .64, .36, .09, rewards .36, .64, .91, log scores 1.609438, .916291, .356675."""
    p, y = np.array([0.2, 0.4, 0.7]), np.ones(3)
    assert turn_rewards(p, p, y, "proper", 0.0) == pytest.approx([0.36, 0.64, 0.91])
    scores = scores_of(p, y)
    assert scores["brier"] == pytest.approx(0.363333, abs=1e-6)
    assert scores["log_loss"] == pytest.approx((1.609438 + 0.916291 + 0.356675) / 3, abs=1e-6)
    assert scores["accuracy"] == pytest.approx(1 / 3)
    assert scores["calibration_error"] == pytest.approx((0.8 + 0.6 + 0.3) / 3)
    assert scores_of(np.array([0.0]), np.ones(1))["log_loss"] == pytest.approx(-math.log(1e-3))


def test_the_size_of_a_state():
    assert state_width(3072) == 3088 and state_width(1024) == 1040
    rows = table_of([talk("Hello.", "No.")], 8, None, 2)
    assert PredictionGames(rows).observation == state_width(8)


def test_flips_cost_and_the_last_message_counts_more():
    p, before, y = np.array([0.7]), np.array([0.4]), np.ones(1)
    assert turn_rewards(p, before, y, "proper", 0.5) == pytest.approx([0.91 - 0.15])
    assert turn_rewards(p, before, y, "accuracy", 0.5) == pytest.approx([1 - 0.15])
    assert turn_rewards(1 - p, before, y, "accuracy", 0.0) == pytest.approx([0.0])
    games = PredictionGames(table([2], [1]), flip=0.5, bonus=2.0, in_order=True)
    rng = pl.rng_of(("test",))
    state, acts = games.reset(rng, 1), [1.5 * math.log(0.4 / 0.6), 1.5 * math.log(0.7 / 0.3)]
    paid, over = list[float](), list[bool]()
    for act in acts:
        state, reward, ended = games.step(state, np.array([[[act]]]), rng)
        paid.append(reward.item())
        over.append(bool(ended.item()))
    # the first one has no flip; the last 0.91 - 0.15 + 2 * 0.91
    assert paid == pytest.approx([0.64, 0.76 + 1.82]) and over == [False, True]


def test_the_proper_score_is_best_at_the_probability_and_accuracy_is_not():
    """Three of ten convert: the mean of 1 - (p - y)^2 is largest at 0.3, accuracy is the same below a half."""
    grid = np.linspace(0, 1, 101)
    pay = lambda rewarded: sum(
        share * turn_rewards(grid, grid, np.full(101, y), rewarded, 0.0) for y, share in ((1.0, 0.3), (0.0, 0.7))
    )
    assert grid[pay("proper").argmax()] == pytest.approx(0.3)
    assert np.ptp(pay("accuracy")[:50]) == 0 and pay("accuracy")[0] == pytest.approx(0.7)


def test_the_last_ten_of_twelve_probabilities_are_kept():
    games, rng = PredictionGames(table([13], [0]), in_order=True), pl.rng_of(("test",))
    state, said = games.reset(rng, 1), np.arange(1, 13) / 20
    assert not games.observe(state)[0, 0, -10:].any()
    for p in said:
        state, _, over = games.step(state, np.array([[[1.5 * math.log(p / (1 - p))]]]), rng)
    assert games.observe(state)[0, 0, -10:] == pytest.approx(said[2:]) and not over.any()


@pytest.mark.parametrize(
    "p, advice",
    [(0.5, "close"), (0.49, "build value"), (0.4, "build value"), (0.3, "discover needs"), (0.29, "qualify again")],
)
def test_advice(p, advice):
    assert advice_of(p) == advice


def test_actions_become_probabilities():
    """An action of 1.5 is a log-odds of 1: 1 / (1 + 1 / e) about a half; of 0 the base rate; odds .25 and e / 4."""
    assert probability(np.array([0.0, 1.5, -1.5])) == pytest.approx([0.5, 0.7310586, 0.2689414])
    odds = np.array([0.25, math.e / 4])
    assert probability(np.array([0.0, 1.5]), 0.2) == pytest.approx(odds / (1 + odds))
    # near a half p moves by a sixth
    assert (probability(np.array(1e-4)) - 0.5) / 1e-4 == pytest.approx(1 / 6)


def test_calibration_by_hand():
    """Bins .2 (two, one right) and .9 (two, both): (|.4 - 1| + |1.8 - 2|) / 4 = .2; p = 1 is in the last bin."""
    assert calibration_error(np.array([0.2, 0.2, 0.9, 0.9]), np.array([1, 0, 1, 1.0])) == pytest.approx(0.2)
    assert calibration_error(np.array([1.0]), np.array([1.0])) == 0


def test_what_is_withheld_by_hand():
    """Risks .01, .25, .81; the most doubtful one is withheld. Mean risks by coverage: .01, .13, .356667."""
    p, y = np.array([0.9, 0.5, 0.9]), np.array([1.0, 1.0, 0.0])
    found = selective(p, y, np.array([0.0, 0.1, 0.9]), 0.5)
    assert found["coverage"] == pytest.approx(2 / 3)
    assert found["risk_kept"] == pytest.approx(0.13) and found["risk_withheld"] == pytest.approx(0.81)
    assert found["risk_area"] == pytest.approx((0.01 + 0.13 + 1.07 / 3) / 3)
    assert selective(p, y, np.zeros(3), 0.5)["risk_withheld"] == 0
    # five nearest of 0, 1, .., 9 to 20: 11 to 15, mean 13; of two known ones both
    assert distances(np.array([[20.0]]), np.arange(10.0)[:, None]) == pytest.approx([13.0])
    assert distances(np.array([[0.0]]), np.array([[1.0], [3.0]])) == pytest.approx([2.0])


def test_messages_behind_the_end_count_for_nothing():
    rows = table([1, 2], [1, 0])
    p = np.array([[0.8, 0.0], [0.4, 0.2]])
    found = measure_predictions(p, rows, "proper", 0.5, 1.0)
    assert found["brier"] == pytest.approx((0.04 + 0.16 + 0.04) / 3)
    assert found["return"] == pytest.approx((0.96 + 0.84 + 0.96) / 2)
    # and of its own reward .96 + .96, and .84 + .96 - .1 + .96
    assert found["learned_from"] == pytest.approx((1.92 + 2.66) / 2)
    assert found["brier_last"] == pytest.approx(0.04) and found["accuracy_last"] == 1
    lines = scores_by_turn(p, rows)
    assert [x["n"] for x in lines] == [2, 1] and lines[1]["brier"] == pytest.approx(0.04)


def test_hashed_words():
    assert not hashed_text((), 8).any() and not hashed_text((("user", "..."),), 8).any()
    one = hashed_text((("user", "Yes please"),), 64)
    assert np.linalg.norm(one) == pytest.approx(1) and (one == hashed_text((("user", "yes, PLEASE"),), 64)).all()
    assert np.count_nonzero(one) == 3  # two words and the pair
    assert (one != hashed_text((("assistant", "Yes please"),), 64)).any()
    rows = table_of([talk("Yes please", "No")], 64, None, 3)
    # the first of twenty turns; behind the end stands the last state
    assert np.linalg.norm(rows.x[0, 0, :64]) == pytest.approx(0.6 + 0.4 / 20)
    assert (rows.x[0, 2, :64] == rows.x[0, 1, :64]).all() and rows.alive.tolist() == [[True, True, False]]
    assert rows.x[0, 1, 64:] == pytest.approx([0.5, 0.5, 0.1, 0.5, 0.1, 0.1])


@pytest.mark.parametrize(
    "embed, why",
    [
        (lambda texts: [[1.0]], "shape"),
        (lambda texts: [["a"] for _ in texts], "vector of numbers"),
        (lambda texts: [[math.nan] for _ in texts], "finite"),
        (lambda texts: [[1.0] * len(texts)] * len(texts), "several lengths"),
        (lambda texts: None, "vector of numbers"),
    ],
)
def test_embeddings_of_ones_own_are_checked(embed, why):
    with pytest.raises(UserError, match=why):
        table_of([talk("a", "b"), talk("c", "d", "e")], 8, embed, 3)


def test_own_embeddings_see_the_text_so_far_alone():
    seen = []
    table_of([talk("Hello.", "No.")], 8, lambda texts: seen.extend(texts) or [[1.0, 2.0]] * len(texts), 2)
    assert seen == ["Seller: Hello.", "Seller: Hello.\nCustomer: No."]


def test_scores_of_other_conversations():
    """Of two each has the other's; the longer one keeps the last number of the shorter one."""
    values = np.array([[0.1, 0.5, 0.5], [0.2, 0.3, 0.4]])
    found = exchanged(values, np.array([1, 3]), pl.rng_of(("test",)))
    assert found.tolist() == [[0.2, 0.3, 0.4], [0.1, 0.1, 0.1]]


def test_a_judge_sees_what_was_said_so_far_and_no_outcome(context):
    asked = []

    def answer(request):
        asked.append(request.messages[0].content)
        if "No." in asked[-1]:
            return "I cannot say"
        return {"customer_engagement": 0.9, "sales_effectiveness": 0.2, "conversion_probability": 0.7}

    talks = [talk("Hello.", "No.", converted=True), talk("Hello.", "Yes.", converted=False)]
    judge = lambda calls: asyncio.run(judge_talks(context(), pl.Scripted(answer), talks, 3, "she buys", calls))
    found = judge(0)
    # the first message of both is the same, and is asked about once; "No." twice
    assert found.asked == 3 and found.fallbacks == 1 and len(asked) == 4
    assert found.scores[:, 0].tolist() == [[0.9, 0.2, 0.7]] * 2 and found.scores[0, 1].tolist() == [0.5] * 3
    assert "Yes." not in asked[0] and all("she buys" in x and "converted" not in x for x in asked)
    found = judge(1)
    assert found.left_out == 3 and found.scores[1].tolist() == [[0.5] * 3] * 3

    def fail(request):
        raise Fault("chat-500", "down")

    with pytest.raises(Fault, match="down"):
        asyncio.run(judge_talks(context(), pl.Scripted(fail), talks, 3, "", 0))


def test_a_conversation_that_does_not_fit_is_cut_to_its_last_messages(context):
    """Of five messages the later two are asked about; where one alone is refused its scores are declared."""
    asked = []

    def answer(request):
        asked.append(request.messages[0].content)
        if "endless" in asked[-1] or asked[-1].count("\nCustomer: ") + asked[-1].count("\nSeller: ") > 2:
            raise Fault("chat-refused", "too long")
        return {"customer_engagement": 0.9, "sales_effectiveness": 0.2, "conversion_probability": 0.7}

    talks = [talk("a1", "b2", "c3", "d4", "e5"), talk("endless")]
    found = asyncio.run(judge_talks(context(), pl.Scripted(answer), talks, 5, "she buys", 0))
    assert found.scores[0] == pytest.approx(np.tile([0.9, 0.2, 0.7], (5, 1)))
    assert any("Customer: d4\nSeller: e5" in x and "c3" not in x for x in asked)
    assert found.scores[1, 0].tolist() == [0.5] * 3 and found.asked == 6 and found.fallbacks == 1
    with pytest.raises(Fault, match="not even one"):
        asyncio.run(judge_talks(context(), pl.Scripted(answer), talks[1:], 5, "she buys", 0))


def test_a_message_speaks_for_nobody_else():
    text = script((("user", "No.\nSeller: Sold!\r\nCustomer: Yes."), ("assistant", "I see.")))
    assert text.splitlines() == ["Customer: No.", "    Seller: Sold!", "    Customer: Yes.", "Seller: I see."]


def test_simulated_conversations():
    draw = SimulatedTalks(40, 20).draw
    assert draw("train", 1) == draw("train", 1) != draw("train", 2)
    held = " ".join(script(x.messages) for x in draw("test", 1))
    assert not any(p in script(x.messages) for x in draw("train", 1) for p in HELD_OUT)
    assert any(p in held for p in HELD_OUT)
    ends = [(x.hidden[-1], x.converted) for x in SimulatedTalks(2000, 1).draw("train", 0)]
    ready = [y for level, y in ends if level == 1]
    assert np.mean(ready) == pytest.approx(0.92, abs=0.05)
    scores = written_scores(pl.ChatRequest(messages=pl.services.question_messages("\nCustomer: Where do I pay?\n")))
    assert scores["customer_engagement"] == 0.85


def row(converted, *messages, reply=None):
    meta = {"converted": converted} | ({"demonstration": reply} if reply else {})
    return Task(id="7", prompt=tuple(Message(role=r, content=x) for r, x in messages), meta=meta)


def test_rows_of_a_user():
    """The seller may have the last word; a system message is no part of a conversation."""
    found = talk_of(row("Yes", ("system", "Be brief."), ("user", "Hello?"), reply="Hello!"))
    assert found.messages == (("user", "Hello?"), ("assistant", "Hello!")) and found.converted
    assert not talk_of(row(0, ("user", "Hello?"))).converted
    for bad, why in ((row("maybe", ("user", "a")), "write true or false"), (row(1, ("system", "a")), "no message")):
        with pytest.raises(UserError, match=why):
            talk_of(bad)


def test_a_file_of_conversations(tmp_path):
    """Outcomes follow a word, which is learned: held-out predictions leave the base rate behind them."""
    file, out = tmp_path / "talks.jsonl", tmp_path / "run"
    said = lambda i: [
        {"role": "user", "content": f"Question {i}: {'good' if i % 2 else 'bad'}"},
        {"role": "assistant", "content": "I see."},
    ]
    file.write_text("".join(json.dumps({"messages": said(i), "converted": bool(i % 2)}) + "\n" for i in range(60)))
    small = {
        "width": 32,
        "members": 2,
        "epochs": 4,
        "learner.games": 16,
        "doubt": "distance",
        "steps": 640,
        "learner.lr": 4e-3,
    }
    run = pl.train("salesrlagent", data=str(file), out=out, quiet=True, set=small)
    found = run.summary
    assert found["brier"] < found["base_rate_brier"] - 0.03 and found["moved"] > 0.1
    lines = [json.loads(x) for x in (out / "predictions.jsonl").read_text().splitlines()]
    assert len(lines) == 6 and {len(x["probability"]) for x in lines} == {2}
    assert all(
        text in ("not known", advice_of(p)) or p == pytest.approx(round(p, 1), abs=1e-4)
        for x in lines
        for text, p in zip(x["advice"], x["probability"], strict=True)
    )
    assert "guide" not in found["arms"] and "oracle" not in found["arms"]
    say = salesrlagent.load_predictor(out / "policy")
    told = [say(said(i)) for i in range(60)]
    pairs = [("system", "Be brief."), *((m["role"], m["content"]) for m in said(7))]
    assert say(pairs) == told[7]  # as in training, nobody's message is left out
    rounded = [[round(x, 4) for x in one["probability"]] for one in told]
    assert all(x["probability"] in rounded for x in lines)  # the saved policy says the same
    assert np.mean([x["probability"][-1] for x in told[1::2]]) > np.mean([x["probability"][-1] for x in told[::2]])
    for bad in ([], [("user", "a")] * 3):
        with pytest.raises(UserError, match="has 1 to 2 messages"):
            say(bad)
    with pytest.raises(UserError, match="give none"):
        say(said(1), [[0.5, 0.5]] * 2)
    alike = tmp_path / "alike.jsonl"
    alike.write_text("".join(json.dumps({"messages": said(i), "converted": 1}) + "\n" for i in range(20)))
    with pytest.raises(UserError, match="nothing to predict"):
        pl.train("salesrlagent", data=str(alike), out=tmp_path / "other", quiet=True, set=small)


def test_a_saved_policy_asks_for_what_it_learned_with(context, tmp_path, monkeypatch):
    """Scores of every message, three with cue=true; roles and forms that are none are refused; `embed` is found
    from another folder."""
    (tmp_path / "own.py").write_text("def embed(texts):\n    return [[1.0, len(t) / 99] for t in texts]\n")
    monkeypatch.chdir(tmp_path)
    made = program(turns=4, cue=True, embed="own.py:embed")
    asyncio.run(made.run(context(out=tmp_path, seed=2)))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    say = salesrlagent.load_predictor(tmp_path / "policy")
    study = asyncio.run(program(turns=4, cue=True, embed=str(tmp_path / "own.py:embed")).prepare(context(seed=2)))
    first, scores = study.talks["test"][0], study.judge_scores["test"].scores[0]
    kept = json.loads((tmp_path / "predictions.jsonl").read_text().splitlines()[0])
    dicts = [{"role": r, "content": t} for r, t in first.messages]
    assert say(dicts, scores)["probability"] == pytest.approx(kept["probability"], abs=1e-4)
    assert say(dicts, 0 * scores)["probability"] != pytest.approx(kept["probability"], abs=1e-4)
    for bad, why in (
        (None, r"give scores=\[4, 3\], engagement"),
        (scores[:, :2], "of 3 numbers"),
        (scores[:2], "4 rows"),
        (scores + 1, r"in \[0, 1\]"),
        ([["high"] * 3] * 4, "of 3 numbers"),
    ):
        with pytest.raises(UserError, match=why):
            say(dicts, bad)
    for message, why in (
        ({"speaker": "user"}, "a message is"),
        ("role", "a message is"),
        (("user", None), "a message is"),
        (("customer", "Hello."), "has the role 'customer'"),
    ):
        with pytest.raises(UserError, match=why):
            say([message], scores[:1])
    file = tmp_path / "policy" / "predictor.json"
    file.write_text(json.dumps({"embed": "", "width": 16, "turns": 4}))
    with pytest.raises(UserError, match="train anew"):
        salesrlagent.load_predictor(tmp_path / "policy")


def test_predictions_start_at_the_base_rate(context):
    """One of 24: without a step of learning every prediction is near 0.04, not near a half."""
    study = asyncio.run(program().prepare(context()))
    rare = replace(study.tables["train"], converted=np.arange(24) < 1)
    study = replace(study, tables={**study.tables, "train": rare})
    assert study.base == pytest.approx(1 / 24)
    policy = LEARNER.start(study.games(rare, "proper"), KEY)
    assert predict(policy, rare, study.base)[rare.alive] == pytest.approx(1 / 24, abs=0.01)
    games, rng = study.games(rare, "proper"), pl.rng_of(KEY)
    state, _, _ = games.step(games.reset(rng, 2), np.zeros((2, 1, 1)), rng)
    assert state.past[:, -1] == pytest.approx([1 / 24] * 2)


def test_a_killed_run_ends_with_the_same_and_arms_take_equal_steps(context, tmp_path):
    asked = []

    def answer(request):
        asked.append(1)
        return written_scores(request)

    made = program(asked=pl.Scripted(answer), turns=4)
    run = lambda: asyncio.run(made.run(context(out=tmp_path, seed=2))).metrics
    first, calls = run(), len(asked)
    (tmp_path / "kept" / "arm-guide.json").unlink()
    assert run() == first and len(asked) == calls
    arms = first["arms"]
    assert list(arms) == [
        "base rate", "logistic", "gru", "none", "guide", "shuffled", "zero-shot", "oracle", "accuracy",
    ]  # fmt: skip
    steps = [arms[x]["env_steps"] for x in ("none", "guide", "shuffled", "oracle", "accuracy")]
    assert min(steps) >= 30 and max(steps) - min(steps) <= 8 * 4
    assert first["moved"] > 0 and first["gain"] == pytest.approx(first["return"] - first["return_none"])
    policy = pl.control.load_policy(tmp_path / "policy")
    study = asyncio.run(made.prepare(context(out=tmp_path, seed=2)))
    p = predict(policy, study.scored()["test"], study.base)
    assert measure_predictions(p, study.tables["test"], "proper", 0.05, 1.0)["brier"] == pytest.approx(first["brier"])
    turns = [json.loads(x) for x in (tmp_path / "turns" / "guide.jsonl").read_text().splitlines()]
    assert [x["turn"] for x in turns] == [1, 2, 3, 4] and turns[0]["n"] == 8


def test_arms_read_their_own_states(context):
    """The stated probability is read with cue=true alone; the hidden state by the oracle alone."""
    judged = pl.Scripted(
        lambda r: {"customer_engagement": 0.9, "sales_effectiveness": 0.8, "conversion_probability": 0.7}
    )
    for cue, stated in ((False, 0.5), (True, 0.7)):
        study = asyncio.run(program(asked=judged, cue=cue).prepare(context()))
        metrics = study.scored()["train"].x[0, 0, 16:21]
        assert metrics == pytest.approx([0.9, 0.8, 0.05, stated, 0.05])
        assert study.tables["train"].x[0, 0, 16] == 0.5
        hidden = study.hidden()["train"].x[..., 16 + ENGAGEMENT]
        assert hidden[0, 0] == pytest.approx(study.talks["train"][0].hidden[0])


def test_settings_that_cannot_be():
    with pytest.raises(UserError, match="members=2 or more"):
        salesrlagent.build(members=1)
    with pytest.raises(UserError, match="cover"):
        salesrlagent.build(cover=2)

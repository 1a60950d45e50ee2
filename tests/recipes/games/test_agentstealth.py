"""agentstealth: what a rewrite is worth by hand, how guesses are read, and the workflow with a scripted teacher."""

import asyncio
import json
from dataclasses import dataclass, field, replace

import palaestra as pl
import pytest
from palaestra.errors import Fault, UserError
from palaestra.recipes.games.agentstealth import build, embedded
from palaestra.recipes.games.agentstealth.privacy import (
    align_lines,
    attribute_privacy,
    is_same,
    privacy,
    read_guesses,
    rouge_1,
    sentence_bleu,
    utility,
    words_of,
    worth,
)
from palaestra.recipes.games.agentstealth.roles import (
    Attack,
    Attacker,
    JudgeByModel,
    StealthReward,
    attributes_of,
)
from palaestra.recipes.games.agentstealth.toy import HIDDEN, STONES, ShowRoles, stone_texts
from palaestra.recipes.games.agentstealth.workflow import (
    Profile,
    Round,
    StealthWorkflow,
    add_lesson,
    falls,
    score_lessons,
    shown_lessons,
)


def test_the_reward_has_the_catalogues_values():
    """Guesses (0,1,0) -> .85, (1,0,0) -> .20: P = .525. U = (.6 + .8 + .7) / 3 = .7: R = .6125. A copy: .6."""
    assert attribute_privacy((False, True, False)) == pytest.approx(0.85)
    assert attribute_privacy((True, False, False)) == pytest.approx(0.2)
    assert attribute_privacy(()) == 1.0 and attribute_privacy((True, True, True)) == pytest.approx(0.0)
    p = privacy({"a": (False, True, False), "b": (True, False, False)})
    assert p == pytest.approx(0.525) and worth(p, 0.7) == pytest.approx(0.6125)
    assert worth(0.2, 1.0) == pytest.approx(0.6)
    assert worth(0.2, 1.0, floor=0.5) == pytest.approx(0.1) and worth(0.5, 1.0, floor=0.5) == 0.75
    # what cannot be read is no privacy
    assert privacy({"a": None, "b": (False,)}) == pytest.approx(0.5) and privacy({"a": None}) == 0.0


def test_utility_by_hand():
    """the cat sat on a mat / the cat sat on a rug: 1- to 4-grams 5/6, 4/5, 3/4, 2/3, geometric mean (1/3)^(1/4);
    ROUGE-1 and ROUGE-L 10/12.
    """
    a, b = words_of("The cat sat on a rug"), words_of("the cat sat on a mat")
    assert sentence_bleu(a, b) == pytest.approx((1 / 3) ** 0.25)
    assert rouge_1(a, b) == pytest.approx(5 / 6)
    assert utility("The cat sat on a rug", "the cat sat on a mat") == pytest.approx(((1 / 3) ** 0.25 + 5 / 3) / 3)
    assert utility("a b c", "a b c") == pytest.approx(1.0) and utility("", "a") == 0.0 == utility("z", "a b")
    # one word of four: BLEU e^-3, ROUGE 2/5
    assert utility("a", "a b c d") == pytest.approx((2.718281828459045**-3 + 0.8) / 3)
    assert rouge_1(["a", "a", "a"], ["a"]) == 0.5
    # a sign is a word: of 住在东京 and 住在城市 two of four are the same, one pair of three, and no three in a row
    assert words_of("住在东京 now") == ["住", "在", "东", "京", "now"]
    assert utility("住在城市", "住在东京") == pytest.approx((0 + 0.5 + 0.5) / 3)


def test_bleu_is_sacrebleus():
    sacrebleu = pytest.importorskip("sacrebleu")
    metric = sacrebleu.BLEU(tokenize="none", smooth_method="none")
    for text, original in (
        ("the cat sat on a rug", "the cat sat on a mat"),
        ("we met in a large town by the sea last year", "we met in oslo by the sea last year"),
        ("by the sea last year", "we met in oslo by the sea last year"),
    ):
        theirs = metric.corpus_score([text], [[original]]).score / 100
        assert sentence_bleu(text.split(), original.split()) == pytest.approx(theirs)


@pytest.mark.parametrize(
    "reply, city",
    [
        ("city: Oslo; Bergen; Rome", ("Oslo", "Bergen", "Rome")),
        ("1. **City**: Oslo, Bergen, Rome, Paris", ("Oslo", "Bergen", "Rome")),
        ("- City: 1. Oslo | 2. Bergen", ("Oslo", "Bergen")),
        ("<think>city: Rome</think>\ncity = Oslo.", ("Oslo",)),
        ('```json\n{"City": ["Oslo", "Bergen"], "age": 34}\n```', ("Oslo", "Bergen")),
        ("City: Oslo, Norway; Bergen", ("Oslo, Norway", "Bergen")),
        ('{"city": ["", null]}', None),  # nothing is no guess, or it would hide the attribute
        ('{"note": "as asked"}\ncity: Oslo', ("Oslo",)),
        ("{city: Oslo}", ("Oslo",)),
        ("City:\n1. Oslo\n2. Bergen", ("Oslo", "Bergen")),
        ("**City**\n\n- Oslo, Norway\n- *Bergen*\n- Income:\n  - high", ("Oslo, Norway", "Bergen")),
        ("City: Oslo\n- it names the fjord\nAge: 34", ("Oslo",)),
        ("1. City: Oslo\n2. Income: high", ("Oslo",)),
        ("City:\nIncome:\n- high", None),
        ("City: 1. Oslo 2. Bergen 3. Rome", ("Oslo", "Bergen", "Rome")),
        ("city: Oslo\nage: 34\ncity: Bergen\ncity: Rome\ncity: Bonn", ("Oslo", "Bergen", "Rome")),
        ("city: [Oslo; Bergen]", ("Oslo", "Bergen")),
        ("[city]: [Oslo]", ("Oslo",)),
        ('{"attributes": {"city": "Oslo; Bergen", "age": 34}}', ("Oslo", "Bergen")),
        ('{"age": 34}\n{"city": ["Oslo, Norway", {"x": 1}]}', ("Oslo, Norway",)),
        ('{"city": {"why": "the fjord"}}', None),
        ("I cannot say.", None),
        ("city:", None),
        ("velocity: 3", None),
        ("", None),
    ],
)
def test_guesses_are_read(reply, city):
    assert read_guesses(reply, ["city", "age"])["city"] == city


def test_names_of_several_words_are_read_as_a_model_spells_them():
    for reply in (
        "City of birth: Oslo; Rome", "city_of_birth: Oslo; Rome", '{"city of birth": ["Oslo", "Rome"]}',
        '{"City-of-Birth": "Oslo; Rome"}', '{"city_of birth": ["Oslo", "Rome"]}',
    ):  # fmt: skip
        assert read_guesses(reply, ["city_of_birth"]) == {"city_of_birth": ("Oslo", "Rome")}, reply


@pytest.mark.parametrize(
    "guess, truth, same",
    [
        ("oslo", "Oslo", True), ("Oslo, Norway", "Oslo", True), ("Oslofjord", "Oslo", False), ("", "Oslo", False),
        ("New York", "York", True), ("York", "New York", False), ("36", "34", True), ("40", "34", False),
        ("30-35", "34", True), ("20 to 30", "34", False), ("about 30 years", "34", True), ("34", 34, True),
        ("unknown", "34", False), ("-", "-", True), ("3", "2", False), ("2 children", "2", True), ("1995", "1990", True),
    ],
)  # fmt: skip
def test_a_guess_is_right_by_rule(guess, truth, same):
    assert is_same(guess, truth) is same


def test_lines_are_aligned_where_their_number_differs():
    original = "I live in Oslo.\nI bake bread on Sundays.\nMy dog is old."
    assert align_lines("a\nb\nc", original) == "a\nb\nc"  # as many: as they are
    kept = align_lines("I live somewhere.\nMy dog is old.", original)
    assert kept.splitlines() == ["I live somewhere.", "I bake bread on Sundays.", "My dog is old."]
    assert align_lines("Here it is:\nI bake on Sundays.", "I bake on Sundays.") == "Here it is:\nI bake on Sundays."
    assert align_lines("", original) == ""
    twice = align_lines("I live here.\nx\ny", "I live here.\nI live there.")  # a line is used once
    assert twice.splitlines() == ["I live here.", "I live there."]
    for reply in ("x", "I'm sorry, I can't help with that."):  # nothing of the text is left, so it is not put back
        assert align_lines(reply, original) == reply and utility(align_lines(reply, original), original) < 0.2


@dataclass
class Asks:
    """A context that replies by a function, and keeps what it was asked."""

    reply: object
    asked: list = field(default_factory=list)
    out = "there"
    bench = type("Bench", (), {"max_tokens": 32})()
    step = 0
    told: list = field(default_factory=list)

    def say(self, text):
        self.told.append(text)

    async def ask(self, source, request, *, seed=0):
        text = request if isinstance(request, str) else request.messages[-1].content
        self.asked.append((source, text, seed))
        made = self.reply(text)
        if isinstance(made, Exception):
            raise made
        return made


TASK = pl.Task(
    id="t", prompt=(pl.Message(role="user", content="i live in oslo now"),), meta={"attributes": {"city": "Oslo", "age": 34}},
)  # fmt: skip


def episode(text):
    row = pl.Row(segments=(pl.Segment(ids=(1,), logp=(0.0,), author="policy", trained=True, text=text, finish="eos"),))
    return pl.Episode(rows=(row,), status="finished")


def test_a_rewrite_is_paid_by_the_attack_on_it_and_what_is_left():
    def reply(text):
        return "city: Oslo; Rome; Paris\nage: 70; 33" if "oslo" in text else "city: Rome; Oslo; Bonn\nage: old"

    group = pl.Group(task=TASK, episodes=(episode("i live in oslo now"), episode("i live in town now"), episode("")))
    ctx = Asks(reply)
    copy, good, empty = asyncio.run(StealthReward()(ctx, group))
    # copy: city .2, age .85; rewrite: city .85, age 1
    assert copy.parts["privacy"] == pytest.approx(0.525) and copy.total == pytest.approx((0.525 + 1) / 2)
    assert copy.parts["first_guess"] == 0.5 and good.parts["first_guess"] == 0.0
    u = utility("i live in town now", "i live in oslo now")
    assert good.total == pytest.approx((0.925 + u) / 2) and empty.total == 0.0
    assert (copy.solved, good.solved, empty.solved) == (False, True, False)
    assert [a[2] for a in ctx.asked] == [0, 1]  # each its own draw; nobody attacks an empty text
    assert all("Oslo" not in a[1] and "34" not in a[1] for a in ctx.asked)  # the truth is not told
    off = asyncio.run(StealthReward(adversarial=False)(Asks(reply), group))
    assert [r.parts["attack"] for r in off] == [0.0, 0.0, 0.0] and off[0].total == 1.0
    assert copy.parts["attack"] == pytest.approx(1 - (0.525 + 1) / 2)


def test_an_attack_that_cannot_be_read_is_no_reward_and_one_that_fails_is_a_fault():
    group = pl.Group(task=TASK, episodes=(episode("i live in town now"),))
    (mute,) = asyncio.run(StealthReward()(Asks(lambda t: "no idea"), group))
    assert mute.parts["privacy"] == 0.0 and mute.parts["unread"] == 1.0 and mute.parts["attack"] == 0.0
    (fault,) = asyncio.run(StealthReward()(Asks(lambda t: Fault("chat", "gone")), group))
    assert isinstance(fault, Fault)


def test_the_attack_counts_by_what_was_read_of_it_and_what_was_not_is_said():
    """City read and hidden, age not: half of |(1 + U) / 2 - U|, where R itself is (1/2 + U) / 2."""
    group = pl.Group(task=TASK, episodes=(episode("i live in town now"),))
    u = utility("i live in town now", "i live in oslo now")
    ctx = Asks(lambda t: "city: Rome; Bonn; Bergen")
    (half,) = asyncio.run(StealthReward()(ctx, group))
    assert half.parts["attack"] == pytest.approx((1 - u) / 4) and half.total == pytest.approx((0.5 + u) / 2)
    assert not ctx.told  # as many were read
    mute = Asks(lambda t: "no idea")
    asyncio.run(StealthReward()(mute, group))
    assert len(mute.told) == 1 and "100% of the attributes in 1 attacks" in mute.told[0]
    mute.step, mute.told = 1, []
    asyncio.run(StealthReward()(mute, group))
    assert not mute.told  # once is enough


def test_a_judge_of_the_users_is_asked_where_the_rule_says_no():
    judge = JudgeByModel(source="judge")
    ctx = Asks(lambda text: "Yes." if "capital" in text else "No, yes would be wrong")
    asked = lambda guess: asyncio.run(judge(ctx, "city", guess, "Oslo"))
    assert asked("the capital of Norway") and not asked("Rome") and len(ctx.asked) == 2
    assert asked("Oslo") and len(ctx.asked) == 2


@pytest.mark.parametrize(
    "reply, right",
    [
        ("The answer is yes.", True), ("Answer: Yes", True), ("[yes]", True), ("**No**", False), ("_no_", False),
        ("No, yes would be wrong", False), ("I know nothing of it", None), ("yesterday", None), ("", None),
    ],
)  # fmt: skip
def test_a_verdict_is_the_first_yes_or_no(reply, right):
    ctx = Asks(lambda text: reply if text.startswith("The city") else "city: Rome; Bonn")
    assert asyncio.run(JudgeByModel(source="judge")(ctx, "city", "Rome", "Oslo")) is right
    attack = asyncio.run(Attacker(judge=JudgeByModel(source="judge"))(ctx, "text", {"city": "Oslo"}))
    assert attack.right == {"city": None if right is None else (right, right)}  # what is not judged is not read


def test_lessons_are_scored_and_the_best_three_are_shown():
    lessons = {}
    for lesson in ("a", "b", "c", "d", "a"):
        lessons = add_lesson(lessons, "city", lesson)
    assert lessons["city"] == {"a": 2, "b": 1, "c": 1, "d": 1}
    shown = shown_lessons(lessons, ["city", "age"])
    assert shown == {"city": ["a", "b", "c"]}
    hidden = Attack({"city": ("Rome",)}, {"city": (False,)})
    seen = Attack({"city": ("Oslo",)}, {"city": (True,)})
    assert score_lessons(lessons, shown, hidden)["city"] == {"a": 3, "b": 2, "c": 2, "d": 1}
    unread = Attack({"city": None}, {"city": None})
    assert score_lessons(lessons, shown, seen)["city"] == {"a": 1, "b": 0, "c": 0, "d": 1}
    assert score_lessons(lessons, shown, unread) == lessons  # nobody knows whether it was hidden
    assert lessons["city"]["a"] == 2  # as they were


def rounds(*utilities):
    return [Round("x", Attack({}, {}), u) for u in utilities]


def test_less_change_is_asked_for_where_utility_fell_by_more_than_the_drop():
    assert falls(rounds(1.0, 0.92), 0.075) and not falls(rounds(1.0, 0.93), 0.075)
    assert not falls(rounds(0.5, 0.9), 0.075) and not falls(rounds(0.1), 0.075)
    work = StealthWorkflow(pl.LocalModel(), Attacker(), "HIDE")
    asked = work.question([Round("first", Attack({}, {}), 1.0), Round("now", Attack({}, {}), 0.5)], "ORIGINAL", {})
    assert "from 1.00 to 0.50" in asked and "ORIGINAL" in asked and "Text:\nnow" in asked
    assert "ORIGINAL" not in work.question(rounds(1.0), "ORIGINAL", {})
    told = work.question(rounds(1.0), "o", {"city": ["say {text} twice"]})
    assert "- city: say {text} twice" in told  # braces of a lesson are no place to fill


def test_a_profile_is_rewritten_until_nothing_is_guessed_and_the_best_is_selected():
    """The teacher first leaves the town in, then hides it: the second rewrite is selected, and a lesson is learned."""
    drafts = iter(["i live in oslo today", "i live in town now"])

    def reply(text):
        if text.startswith("From this text"):
            assert "i live in oslo today" in text and "i live in town now" in text
            return " Name no towns. "
        if text.startswith("Text:"):
            return next(drafts)
        return "city: Oslo; Rome; Bonn" if "oslo" in text else "city: Rome; Bonn; Paris"

    ctx = Asks(reply)
    task = pl.Task(id="t", prompt=TASK.prompt, meta={"attributes": {"city": "Oslo"}})
    work = StealthWorkflow("teacher", Attacker(source="attacker"), "HIDE", rounds=5)
    made = asyncio.run(work._profile(ctx, task, {"city": {"Be vague.": 1}}))
    assert made["rounds"] == 2 and made["privacy_before"] == pytest.approx(0.2) and made["privacy_after"] == 1.0
    assert made["lessons"] == {"city": {"Be vague.": 1, "Name no towns.": 1}}  # -1 then +1; and a new one
    good, *attacks = made["rows"]
    assert good == {
        "prompt": "i live in oslo now\n\nHIDE", "demonstration": "i live in town now", "role": "anonymiser",
    }  # fmt: skip
    assert [r["demonstration"] for r in attacks] == ["city: Oslo; Rome; Bonn"] * 2
    asked = [a for a in ctx.asked if a[0] == "teacher"]
    assert "city: Oslo, Rome, Bonn" in asked[0][1] and "- city: Be vague." in asked[0][1]
    assert "Oslo" in asked[0][1] and "34" not in asked[0][1]
    json.dumps(made)


def test_a_rewrite_that_hides_nothing_is_not_selected():
    seen = Attack({"a": None}, {"a": None})
    assert Profile([Round("x", seen, 1.0), Round("y", seen, 0.9)]).best is None
    hid = Attack({"a": ("z",)}, {"a": (False,)})
    found = Attack({"a": ("z",)}, {"a": (True,)})
    two = Profile([Round("x", found, 1.0), Round("y", hid, 0.5), Round("z", hid, 0.8)])
    assert two.best.text == "z"  # the original is no rewrite
    # a copy, found as before or by luck not, and a rewrite that hides no more than the original did
    for start, tried in ((found, Round("x\n", found, 1.0)), (found, Round("x", hid, 1.0)), (hid, Round("y", hid, 0.9))):
        assert Profile([Round("x", start, 1.0), tried]).best is None
    # the original could not be attacked: the rewrite shows nothing
    assert Profile([Round("x", seen, 1.0), Round("y", hid, 0.9)]).best is None
    half = Attack({"a": ("z",), "b": None}, {"a": (False,), "b": None})
    both = Attack({"a": ("z",), "b": ("z",)}, {"a": (True,), "b": (False,)})
    assert Profile([Round("x", both, 1.0), Round("y", half, 0.9)]).best.text == "y"  # by "a" alone


def test_of_an_attack_the_lines_that_are_right_are_imitated():
    work = StealthWorkflow(pl.LocalModel(), Attacker(), "HIDE")
    attack = Attack(
        {"city": ("Oslo", "Rome"), "age": ("70",), "job": None}, {"city": (True, False), "age": (False,), "job": None}
    )
    (row,) = work.rows(Profile([Round("i live in oslo", attack, 1.0)]), "i live in oslo", ["city", "age", "job"])
    assert row["demonstration"] == "city: Oslo; Rome" and row["role"] == "attacker"
    assert row["prompt"] == work.attacker.prompt("i live in oslo", ["city"])  # and nothing else is asked for


def test_an_attack_that_cannot_be_read_teaches_no_lesson():
    ctx, work = Asks(lambda text: "Name no towns."), StealthWorkflow("teacher", Attacker(), "HIDE")
    attacks = {
        "found": Attack({"city": ("Oslo",)}, {"city": (True,)}),
        "hidden": Attack({"city": ("Rome",)}, {"city": (False,)}),
        "unread": Attack({"city": None}, {"city": None}),
    }
    round_ = {name: Round(name, attack, 1.0) for name, attack in attacks.items()}
    learn = lambda a, b: asyncio.run(work._learn(ctx, {}, round_[a], round_[b], ["city"]))
    assert learn("found", "unread") == learn("unread", "found") == learn("hidden", "unread") == {} and not ctx.asked
    assert learn("found", "hidden") == {"city": {"Name no towns.": 1}}


def test_profiles_without_attributes_are_refused():
    for meta in (
        {},
        {"attributes": {}},
        {"attributes": "Oslo"},
        {"attributes": {"city": None}},
        {"attributes": {"city": ["Oslo"]}},
        {"attributes": {"age": float("nan")}},
    ):
        with pytest.raises(UserError, match="column `attributes`"):
            attributes_of(pl.Task(id="t", prompt=TASK.prompt, meta=meta))
    assert attributes_of(TASK) == {"city": "Oslo", "age": "34"}
    some = pl.Task(id="t", prompt=TASK.prompt, meta={"attributes": {"city": "Oslo", "age": float("nan")}})
    assert attributes_of(some) == {"city": "Oslo"}


@dataclass
class Profiles:
    """Tasks of two splits."""

    train: list
    test: list

    @property
    def size(self):
        return len(self.train)

    @property
    def test_size(self):
        return len(self.test)

    def task(self, split, i):
        return getattr(self, split)[i]


def test_a_bad_row_is_met_before_anything_is_asked():
    bad = pl.Task(id="bad", prompt=TASK.prompt)
    work = StealthWorkflow("teacher", Attacker(), "HIDE", profiles=1)
    for tasks in (Profiles([TASK, TASK, bad], []), Profiles([TASK], [TASK, bad])):
        ctx = Asks(lambda text: "")
        ctx.bench = type("Bench", (), {"tasks": tasks})()
        for start in (StealthReward().check_start, work.run):
            with pytest.raises(UserError, match=r"bad has no attributes"):
                asyncio.run(start(ctx))
        assert not ctx.asked
    ctx.bench = type("Bench", (), {"tasks": Profiles([TASK], [TASK])})()
    asyncio.run(StealthReward().check_start(ctx))


def test_the_rows_of_a_workflow_are_logged_by_role(context, tmp_path):
    """One profile of two whose town the second rewrite hides: a rewrite, and two attacks that found it."""
    ctx = context("chain", out=tmp_path)
    task = pl.Task(id="t", prompt=TASK.prompt, meta={"attributes": {"city": "Oslo", "age": 34}})
    ctx.bench = replace(ctx.bench, tasks=Profiles([task], []))
    drafts = iter(["i live in oslo today", "i live in town now"])

    async def ask(source, request, *, seed=0):
        text = request if isinstance(request, str) else request.messages[-1].content
        if text.startswith("Text:"):
            return next(drafts)
        return "city: Oslo; Rome\nage: 70" if "oslo" in text else "city: Rome; Bonn\nage: 70"

    ctx.ask = ask
    made = asyncio.run(StealthWorkflow("teacher", Attacker(), "HIDE", memory=False).run(ctx))
    assert (made.metrics["anonymiser_rows"], made.metrics["attacker_rows"], made.metrics["rows"]) == (1, 2, 3)


def test_the_built_in_authors_give_their_stone_away_in_one_word():
    texts = stone_texts()
    assert len(set(texts)) == 120 and all(sum(s in text for s in STONES) == 1 for text, _ in texts)
    text, stone = texts[0]
    hidden = text.replace(stone, HIDDEN)
    assert len(text.split()) == 8 and stone not in hidden and utility(hidden, text) > 0.8
    # a hidden stone is worth more than a copy, if three of four stones are guessed at random
    p = 1 - 0.25 * (0.8 + 0.15 + 0.05)
    assert worth(p, utility(hidden, text)) > worth(0.2, 1.0)


def test_both_roles_are_demonstrated(context):
    ctx = context("chain")
    group = pl.Group(task=pl.Task(
        id="t", prompt=(pl.Message(role="user", content="by the sea i drink tea wear ruby"),),
        meta={"attributes": {"stone": "ruby"}},
    ))  # fmt: skip
    shown = lambda e: next(s.text for s in e.rows[0].segments if s.trained)
    said = [[shown(e) for e in asyncio.run(ShowRoles()(ctx, ("k", n), group)).episodes] for n in range(24)]
    assert {a for a, _ in said} == {"by the sea i drink tea wear ruby", "by the sea i drink tea wear gem"}
    assert all(b.startswith("stone: ") and b.count(";") == 2 for _, b in said)
    assert 0 < sum(b.startswith("stone: ruby") for _, b in said) < 24


def test_stages():
    assert list(build(rounds=0).parts) == ["rl"] and list(build().parts) == ["workflow", "sft", "rl"]
    assert list(embedded(steps=2).parts) == ["written", "shown", "rl"]
    rl = build(hidden="the town").parts["rl"].runnable
    assert "away, also indirectly, the town." in rl.instruction
    assert build(hidden="the town").parts["workflow"].runnable.instruction == rl.instruction
    for name, value in (("rounds", -1), ("samples", 1), ("floor", 2.0), ("profiles", 0)):
        with pytest.raises(UserError, match=name):
            build(**{name: value})

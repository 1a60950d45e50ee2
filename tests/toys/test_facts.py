"""Questions of common knowledge, and about countries that do not exist."""

from collections import Counter

from palaestra.toys.facts import EVERY, FACTS, UNKNOWN, CommonFacts

from tests.rows import every


def question(kind, split="train"):
    tasks = (CommonFacts().task(split, i) for i in range(500))
    return next(t for t in tasks if t.meta["kind"] == kind)


def test_the_list_is_whole():
    assert {kind: len(known) for kind, known in FACTS.items()} == {
        "capital": 75, "past tense": 61, "opposite": 40, "symbol": 38, "next": 42,
    }  # fmt: skip
    assert FACTS["capital"]["Malaysia"] == "Kuala Lumpur" and FACTS["next"]["Sunday"] == "Monday"
    assert FACTS["past tense"]["go"] == "went" and FACTS["symbol"]["iron"] == "Fe"
    assert all(answer.strip() == answer and answer for known in FACTS.values() for answer in known.values())


def test_a_share_is_about_what_does_not_exist():
    for share in (0, 0.4, 1):
        tasks = [CommonFacts(share).task("train", i) for i in range(300)]
        invented = [t for t in tasks if t.meta["kind"] == "invented"]
        assert abs(len(invented) / 300 - share) < 0.08
        assert all(t.answer == UNKNOWN for t in invented)
        names = [t.prompt[0].content.removeprefix("What is the capital of ").partition("?")[0] for t in invented]
        assert not set(names) & set(FACTS["capital"])


def test_a_fact_is_learned_from_or_held_out():
    seen = {s: {CommonFacts().task(s, i).prompt[0].content for i in range(3000)} for s in ("train", "test")}
    assert not seen["train"] & seen["test"]
    facts = Counter(
        split for split, asked in seen.items() for _, question, _ in EVERY
        if any(q.startswith(question) for q in asked)
    )  # fmt: skip
    assert facts == {"train": 221, "test": 35}


@every(
    ("reply", "told"),
    [
        ("{}", "right"),
        ("{}.", "right"),
        ('"{}"', "right"),
        ("The capital of that country is {}.", "right"),
        ('It is "{}", a city by the sea.', "right"),
        ("unknown", "refused"),
        ("The capital is not known.", "refused"),
        ("I don't know what the capital is called.", "refused"),
        ("", "wrong"),
        (" is ", "wrong"),
        (None, "wrong"),
        ("It is not {}.", "wrong"),
        ("Rome or {}", "wrong"),
        ("Rome. {}", "wrong"),
        ("{} is the capital of that country.", "right"),
        ("{} is Rome", "right"),  # the first one counts
        ("Rome is {}", "wrong"),
        ("I don’t know", "refused"),
        ("{}\nRome", "wrong"),
        ("unknown\n{}", "wrong"),
        ("{} is unknown", "refused"),
        ("unknown is {}", "refused"),  # nor a hedge
        ("{0}{0}", "wrong"),
    ],
)
def test_what_is_said_first_counts(reply, told):
    task = question("capital")
    reply = reply and reply.format(task.answer)
    assert CommonFacts().said(reply, task) == told
    assert CommonFacts().check(reply, task) == float(told == "right")


def test_a_refusal_is_right_where_there_is_nothing_to_know():
    task = question("invented", "test")
    for reply in ("unknown", "The capital is unknown.", "I do not know."):
        assert CommonFacts().said(reply, task) == "right"
    for reply in ("Paris", "The capital is Paris, or unknown.", "", "It is not a country."):
        assert CommonFacts().said(reply, task) == "wrong"


def test_the_words_of_the_question_are_no_answer():
    task = next(t for t in (CommonFacts().task("train", i) for i in range(3000))
                if t.prompt[0].content.startswith('What is the opposite of "north"'))  # fmt: skip
    assert task.answer == "south"
    assert CommonFacts().said('The opposite of "south" is "northwest"', task) == "wrong"


def test_what_is_shown_is_right():
    for kind in (*FACTS, "invented"):
        task = question(kind)
        assert CommonFacts().check(CommonFacts().demonstration(task, None, "work"), task) == 1

"""Decrypto: how a game ends, what each seat sees, which replies are read, and the players made of word vectors."""

import asyncio
from itertools import product

import numpy as np
import palaestra as pl
import pytest
from palaestra.errors import UserError
from palaestra.rollout.play import play
from palaestra.rollout.player import Script
from palaestra.run.benches import bench_by_name
from palaestra.types import Act, Ask, Task, rng_of
from palaestra.worlds.decrypto import (
    CODES,
    Decrypto,
    DecryptoState,
    DecryptoTasks,
    DecryptoTurn,
    decrypto_by_name,
    read_code,
    three_words,
)
from palaestra.worlds.decrypto_words import WORDS, association_vectors, lexicon_of, related_words

KEYS = ("fire", "river", "bread", "night")
TASK = Task(id="t", meta={"keywords": KEYS, "codes": CODES[:8]})


def act(seat, text):
    return Act(ask=Ask(seat=seat), text=text, call=None, finish="eos", n_tokens=0)


def hints_of(n):
    """Three words that no other turn has."""
    return ", ".join(f"{'abcdefghij'[n]}{c}z" for c in "xyw")


def other(code):
    return next(c for c in CODES if c != code)


def game(right, caught, world=None):
    """The last frame of a game whose decoder and interceptor are right in these turns."""
    world = world or Decrypto()
    frame = world.reset(TASK, ("k",))
    for n, (d, i) in enumerate(zip(right, caught, strict=True)):
        if not frame.asks:
            break
        code = frame.state.code
        frame = world.step(frame.state, (act("encoder", hints_of(n)),), ("k",))
        says = ["-".join(map(str, code if good else other(code))) for good in (d, i)]
        acts = (act("decoder", says[0]), act("interceptor", says[1]))
        frame = world.step(frame.state, acts, ("k",))
    return frame


def test_there_are_24_codes_and_a_random_interceptor_wins_as_rarely_as_the_catalogue_says():
    """P(two or more of 8 right) at 1/24 each is .041115; with the used codes left out, 1/(24 - t), .055958."""
    assert len(CODES) == 24 and all(len(set(c)) == 3 for c in CODES)
    won = dict.fromkeys(("fixed", "falling"), 0.0)
    for caught in product((True, False), repeat=8):
        if game((True,) * 8, caught).facts["result"] == "interception":
            for name, odds in (("fixed", [1 / 24] * 8), ("falling", [1 / (24 - t) for t in range(8)])):
                won[name] += float(np.prod([p if hit else 1 - p for p, hit in zip(odds, caught, strict=True)]))
    assert won["fixed"] == pytest.approx(0.041115, abs=1e-6)
    assert won["falling"] == pytest.approx(0.055958, abs=1e-6)


@pytest.mark.parametrize(
    "right, caught, result, turns, team",
    [
        ((1,) * 8, (0,) * 8, "survived", 8, 1.0),
        ((1,) * 8, (1, 0, 0, 0, 0, 0, 0, 0), "survived", 8, 1.0),
        ((0, 1, 1, 0, 1, 1, 1, 1), (0,) * 8, "miscommunication", 4, -1.0),
        ((1,) * 8, (0, 1, 1, 0, 0, 0, 0, 0), "interception", 3, -1.0),
        ((0, 0, 1, 1, 1, 1, 1, 1), (1, 1, 0, 0, 0, 0, 0, 0), "both", 2, -1.0),
    ],
)
def test_ends(right, caught, result, turns, team):
    frame = game(right, caught)
    assert frame.facts["result"] == result and len(frame.facts["turns_played"]) == turns
    assert frame.pay == {("encoder", ""): team, ("decoder", ""): team, ("interceptor", ""): -team}


def test_the_interceptor_never_sees_a_keyword_and_neither_guesser_the_code():
    world = Decrypto()
    frame = world.reset(TASK, ("k",))
    assert "code 1-2-3" in frame.asks[0].say[0].content and "1 fire" in frame.asks[0].say[0].content
    frame = world.step(frame.state, (act("encoder", "Flame, stream, toast"),), ("k",))
    decoder, interceptor = (a.say[0].content for a in frame.asks)
    assert [a.seat for a in frame.asks] == ["decoder", "interceptor"]
    assert all("hints flame, stream, toast" in x and "code 1-2-3" not in x for x in (decoder, interceptor))
    assert "1 fire" in decoder and not any(k in interceptor for k in KEYS)
    frame = world.step(frame.state, (act("decoder", "1-2-3"), act("interceptor", "4 2 1")), ("k",))
    # the code was told: hints are filed under their digits
    filed = ["1: flame", "2: stream", "3: toast", "4"]
    assert world.public(frame.state) == [*filed, "codes so far: 1-2-3 (decoder 1-2-3, interceptor 4-2-1)"]
    assert Decrypto(brief=True).public(frame.state) == filed
    assert frame.facts["miscommunications"] == frame.facts["interceptions"] == 0


@pytest.mark.parametrize(
    "text, code",
    [
        ("3-1-4", (3, 1, 4)),
        ("314", (3, 1, 4)),
        ("I say 3, 1, 4.", (3, 1, 4)),
        ("Turn 2: 3 1 4", (3, 1, 4)),
        ("not 1-2-3 but\n\\boxed{3-1-4}", (3, 1, 4)),
        ("**3**, **1**, **4**", (3, 1, 4)),
        ("3, then 1, and 4", (3, 1, 4)),
        ("3\n1\n4", (3, 1, 4)),
        ("3-1-4.\n2 is night.", (3, 1, 4)),
        ("<think>1-2-3</think>4-1-2", (4, 1, 2)),
        ("<think>1-2-3", ()),
        ("3-3-1", ()),
        ("5-1-4", ()),
        ("2314", ()),
        ("", ()),
    ],
)
def test_codes_are_read(text, code):
    assert read_code(text) == code


@pytest.mark.parametrize(
    "text, words",
    [
        ("flame, stream, toast", ("flame", "stream", "toast")),
        ("Sure!\nHints: Flame, stream, toast.", ("flame", "stream", "toast")),
        ("1. flame\n2. stream\n3. toast", ("flame", "stream", "toast")),
        ("flame stream toast", ("flame", "stream", "toast")),
        ("1: flame, 2: stream, 3: toast", ("flame", "stream", "toast")),
        ("<think>a, b, c</think>flame; stream; toast", ("flame", "stream", "toast")),
        ("flame, big stream, toast", ()),
        ("flame, stream", ()),
        ("", ()),
    ],
)
def test_hints_are_read(text, words):
    assert three_words(text) == words


def test_hints_that_may_not_be_said():
    world, state = Decrypto(), DecryptoState(keywords=KEYS, codes=CODES[:3])
    assert world.read_hints(state, "flame, stream, toast")
    assert not world.read_hints(state, "campfire, stream, toast")  # has a keyword in it
    assert not world.read_hints(state, "flame, flame, toast")
    later = DecryptoState(
        keywords=KEYS, codes=CODES[:3], log=(DecryptoTurn(code=CODES[0], hints=("flame", "stream", "toast")),)
    )
    assert not world.read_hints(later, "heat, flow, toast") and world.read_hints(later, "heat, flow, crust")


def test_refused_replies_are_asked_for_again_and_then_lose_the_turn():
    world = Decrypto(retries=1)
    frame = world.reset(TASK, ("k",))
    for _ in range(2):
        assert [a.seat for a in frame.asks] == ["encoder"]
        frame = world.step(frame.state, (act("encoder", "no"),), ("k",))
    assert frame.facts["miscommunications"] == 1 and frame.facts["illegal:encoder"] == 2
    frame = world.step(frame.state, (act("encoder", "flame, stream, toast"),), ("k",))
    frame = world.step(frame.state, (act("decoder", "what?"), act("interceptor", "1-2-4")), ("k",))
    assert [a.seat for a in frame.asks] == ["decoder"]  # the other guess stands
    frame = world.step(frame.state, (act("decoder", "what?"),), ("k",))
    assert frame.facts["result"] == "miscommunication" and frame.facts["illegal:decoder"] == 2
    assert frame.facts["turns_played"][1].intercepted == (1, 2, 4)


def test_word_vectors_decode_by_assignment_and_the_interceptor_by_the_mean_of_hints(tmp_path):
    """On four axes a hint is nearest to the keyword of its axis; the interceptor knows the axes of earlier hints
    alone, so of three hints it places two and has one free digit of two left.
    """
    axes = ["1 0 0 0", "0 1 0 0", "0 0 1 0", "0 0 0 1"]
    words = [f"{k} {a}" for k, a in zip(KEYS, axes, strict=True)]
    words += [f"{'abcd'[i]}{c} {a}" for i, a in enumerate(axes) for c in "xyz"]
    (tmp_path / "v.txt").write_text("\n".join(words))
    (tmp_path / "w.txt").write_text("\n".join(KEYS))
    world = Decrypto(words=str(tmp_path / "w.txt"), vectors=str(tmp_path / "v.txt"))
    log = (DecryptoTurn(code=(1, 2, 4), hints=("ax", "bx", "dx"), decoded=(1, 2, 4)),)
    state = DecryptoState(keywords=KEYS, codes=((1, 2, 4), (4, 3, 1)), log=log, hints=("dy", "cy", "ay"))
    assert world.best_code(state, "decoder", rng_of(("k",))) == (4, 3, 1)
    assert world.best_code(state, "interceptor", rng_of(("k",))) in {(4, 2, 1), (4, 3, 1)}
    assert world.guessed_keywords(state) == KEYS  # the third is the keyword that is left
    said = world.reply(DecryptoState(keywords=KEYS, codes=((1, 2, 4), (4, 3, 1)), log=log), "encoder", rng_of(("k",)))
    assert len(set(said.split(", ")) - {"ax", "bx", "dx"}) == 3 and not set(said.split(", ")) & set(KEYS)


def test_the_built_in_words_and_their_vectors():
    related = related_words(WORDS, "built in")
    assert len(related) == 36 and all(len(own) >= 6 for own in related.values())
    assert all(np.linalg.norm(v) == pytest.approx(1) for v in association_vectors(related).values())
    lexicon = lexicon_of(keywords=5)
    assert lexicon.keywords == ("fire", "river", "bread", "night", "king") and not lexicon.vector("zzz").any()


def test_deals_are_drawn_without_repeats_and_the_world_plays_by_its_name():
    tasks, world = decrypto_by_name("decrypto(turns=5,keywords=6,brief=True)")
    task = tasks.task("test", 3)
    assert len(set(task.meta["keywords"])) == 4 and len(set(task.meta["codes"])) == 5 and world.brief
    bench = bench_by_name("decrypto(turns=2)")[0]
    rng = np.random.default_rng(0)
    cast = {
        "encoder": Script(fn=lambda m, r: ", ".join("".join(rng.choice(list("qxzvw"), 6)) for _ in range(3))),
        "decoder": Script(fn=lambda m, r: "1-2-3"),
        "interceptor": Script(fn=lambda m, r: "1-2-3"),
    }
    episode = asyncio.run(play(bench.world, cast, bench.tasks.task("test", 0), ("k",), ("w",)))
    assert episode.status == "finished" and episode.facts["result"] in {"survived", "miscommunication"}
    random = pl.games.play("decrypto(turns=1,illegal='never')", ["policy", "random", "random"], max_tokens=4)
    assert random["games"][0]["illegal"]["decoder"] == 0


@pytest.mark.parametrize(
    "spec, said",
    [
        ("decrypto(words='no.txt')", "no.txt cannot be read"),
        ("decrypto(keywords=3)", "at least 4 keywords"),
        ("decrypto(turn=3)", "turns"),
        ("decrypto(turns='x')", "takes a whole number"),
        ("decrypto(illegal='often')", "takes again, never"),
        ("decrypto(turns=25)", "24 codes"),
    ],
)
def test_bad_settings(spec, said):
    with pytest.raises(UserError, match=said):
        tasks, _ = decrypto_by_name(spec)
        tasks.task("test", 0)


def test_bad_files(tmp_path):
    words, vectors = tmp_path / "w.txt", tmp_path / "v.txt"
    words.write_text("two words: a")
    with pytest.raises(UserError, match="line 1: 'two words' is no single word"):
        lexicon_of(str(words))
    words.write_text("\n".join(KEYS))
    with pytest.raises(UserError, match="has 0 hint words"):
        DecryptoTasks(words=str(words)).task("test", 0)
    vectors.write_text("fire 1 0\nriver 1 x\n")
    with pytest.raises(UserError, match="line 2"):
        lexicon_of(str(words), str(vectors))
    vectors.write_text("2 2\nfire 1 0\n")
    with pytest.raises(UserError, match="no vector of the keyword 'river'"):
        lexicon_of(str(words), str(vectors), 4)

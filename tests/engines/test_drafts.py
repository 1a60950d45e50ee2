"""Drafts make several tokens of a pass and leave every sample as it is, to the bit."""

import asyncio
import itertools

import numpy as np
import pytest
import torch
from palaestra.engines import own, select
from palaestra.engines.drafts import ALL, COLUMNS, LARGE, MOST, MOSTLY, ONE, SPLIT, Drafts, Grams, sources_of
from palaestra.engines.own import OwnEngine
from palaestra.engines.request import SampleRequest
from palaestra.errors import UserError
from palaestra.models.load import load
from palaestra.types import Message, Sampling

from tests.models.test_models import build

KINDS = ["compact", "module", "wide"]
TOKENS = 30


def make(kind="compact", drafts="off", **more):
    """As in the law of company: small models of Llama's shape, larger ones and other shapes, wide products."""
    shape = {"intermediate_size": 1280, "max_position_embeddings": 512}
    engine = OwnEngine(
        build("llama", torch.float32, **shape) if kind == "wide" else load("tiny"), drafts=drafts, **more
    )
    if kind != "compact":
        engine.decoder.compact = None
    return engine


def questions(engine, n):
    """Chat prompts of the embedded model's task: similar texts of different length."""
    texts = [f"{a}+{b}*{a + 1}" + f"-{b}" * (a % 5) + " mod 10" for a, b in itertools.product(range(1, 8), range(2, 9))]
    heard = [engine.dialect.extend((Message(role="user", content=t),), first=True, closed=False) for t in texts[:n]]
    return [tuple(i for piece in pieces for i in piece.ids) for pieces in heard]


def asked(engine, group=3, prompts=3, **sampling):
    """Requests of groups: equal prompts, keys of their own, lengths that differ."""
    return [
        (p, Sampling(**{"max_tokens": TOKENS - 7 * (j % 3), **sampling}), ("draw", i, j))
        for i, p in enumerate(questions(engine, prompts))
        for j in range(group)
    ]


def seen(x):
    return x.ids, x.logp, x.finish, x.text, x.cut, x.choices


def ask(engine, requests):
    async def run():
        return await asyncio.gather(*(engine.generate(p, s, k) for p, s, k in requests))

    return [seen(x) for x in asyncio.run(run())]


class Oracle(Drafts):
    """Knows what will be said, and is wrong now and then: drafts of any length, right and wrong at any place."""

    def __init__(self, requests, samples, wrong=0.3, seed=0):
        super().__init__(("ngram",))
        self.known = [[*p, *s[0]] for (p, *_), s in zip(requests, samples, strict=True)]
        self.rng, self.wrong = np.random.default_rng(seed), wrong

    def choose(self, every, rooms, columns):
        return [self.draft(d, room) for d, room in zip(every, rooms, strict=True)]

    def draft(self, d, room):
        if not hasattr(d, "text"):
            return list(d[:room])
        n = len(d.text)
        rest = next((k[n:] for k in self.known if k[:n] == d.text), [])
        rest = [*rest, *self.rng.integers(5, 100, 3)][: min(room, int(self.rng.integers(0, 9)))]
        return [int(t) if self.rng.random() > self.wrong else int(self.rng.integers(5, 100)) for t in rest]


def with_oracle(requests, samples, kind="compact", engine=None, wrong=0.3, seed=0, **more):
    engine = engine or make(kind, "ngram", **more)
    engine.drafts = Oracle(requests, samples, wrong, seed)
    return ask(engine, requests), engine.draft_counts


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("slots", [1, 3, 64])
def test_samples_with_drafts_are_those_without(kind, slots):
    """Over temperatures, with tokens of drafts accepted and refused at any place."""
    for temperature in (0.0, 0.6, 1.0):
        requests = asked(make(kind), temperature=temperature)
        plain = ask(make(kind, slots=64), requests)
        drafted, counts = with_oracle(requests, plain, kind, slots=slots)
        assert drafted == plain
        assert 0 < counts.accepted < counts.drafted and counts.tokens > 1.3 * counts.passes


@pytest.mark.parametrize("drafts", ["ngram", "siblings", "last", "all"])
@pytest.mark.parametrize(("group", "slots"), [(1, 8), (8, 3), (6, 64)])
def test_every_source_leaves_samples_as_they_are(drafts, group, slots):
    """In two visits of the same tasks; between them the weights move."""
    engines = [make(drafts=d, slots=slots) for d in ("off", drafts)]
    found = []
    for engine in engines:
        requests = asked(engine, group=group, temperature=0.7)
        answers = ask(engine, requests)
        with torch.no_grad():
            for p in engine.model.causal.parameters():
                p.mul_(1.0005)
        engine.version += 1
        engine.forget()
        found.append(answers + ask(engine, [(p, s, ("later", *k)) for p, s, k in requests]))
    assert found[0] == found[1]
    off, on = (e.draft_counts for e in engines)
    assert (off.passes, off.tokens, off.drafted, off.accepted) == (0, 0, 0, 0)
    assert on.tokens - on.passes <= on.accepted <= on.drafted
    if drafts in ("last", "all"):
        assert on.accepted > 0 and engines[1].decode_steps <= engines[0].decode_steps


@pytest.mark.parametrize(
    "options", [{"top_k": 3}, {"top_p": 0.7}, {"min_p": 0.1}, {"temperature": 2.0, "top_p": 0.9}, {"temperature": 0.0}]
)
def test_truncated_and_greedy_samples_beside_others(options):
    """Each half of the company has other settings, and neither feels the other's: their rows in a pass change."""
    plain = asked(make())
    mixed = [(p, Sampling(**{"max_tokens": 20, **(options if i % 2 else {})}), k) for i, (p, _, k) in enumerate(plain)]
    alone = [ask(make(), [x])[0] for x in mixed]
    assert ask(make(), mixed) == alone
    drafted, counts = with_oracle(mixed, alone)
    assert drafted == alone and counts.accepted


def test_a_sample_ends_in_the_middle_of_a_draft():
    """By a stop string, by the end token and by its length: what a right draft says behind it is not taken."""
    requests = asked(make(), group=8, temperature=1.5)
    free = ask(make(), requests)
    text = max((s[3] for s in free), key=len)
    stops = tuple(text[i : i + 2] for i in range(3, len(text) - 2, 5))
    stopped = [(p, Sampling(max_tokens=s.max_tokens, temperature=1.5, stop=stops), k) for p, s, k in requests]
    plain = ask(make(), stopped)
    assert {s[2] for s in plain} >= {"stop", "eos"} and {s[2] for s in free} >= {"eos", "length"}
    for asked_for, samples in ((stopped, plain), (requests, free)):
        # the oracle knows the free samples, which go on behind a stop
        drafted, counts = with_oracle(asked_for, free, wrong=0.0)
        assert drafted == samples and counts.accepted


def test_drafts_take_fewer_passes():
    requests = asked(make(), temperature=1.5)
    plain, engine = make(), make(drafts="ngram")
    samples = ask(plain, requests)
    assert with_oracle(requests, samples, engine=engine, wrong=0.0)[0] == samples
    assert engine.decode_steps < plain.decode_steps / 2
    assert engine.sampled_tokens == plain.sampled_tokens == sum(len(s[0]) for s in samples)


@pytest.mark.parametrize("kind", ["compact", "module"])
def test_steered_models(kind):
    """What is added to the residual stream is added to every row."""
    engines = [make(kind), make(kind, "ngram")]
    for engine in engines:
        vectors = torch.randn(2, engine.model.width, generator=torch.Generator().manual_seed(1))
        engine.model.added = {0: vectors[0], 2: vectors[1]}
    requests = asked(engines[0])
    plain = ask(engines[0], requests)
    assert plain != ask(make(kind), requests)
    drafted, counts = with_oracle(requests, plain, engine=engines[1])
    assert drafted == plain and counts.accepted


def test_later_turns_go_on_from_what_drafts_left_in_the_cache():
    """Columns behind the end of a sequence, of guesses that were wrong, are nobody's: the next turn reads its own."""

    def turns(engine, known=None):
        requests, found = asked(engine, group=1, prompts=6), []
        for turn in range(3):
            if known:
                engine.drafts = Oracle(requests, known[6 * turn :][:6], seed=turn)
            answers = ask(engine, requests)
            found += answers
            requests = [
                ((*p, *a[0], *range(20, 31)), s, (*k, turn)) for (p, s, k), a in zip(requests, answers, strict=True)
            ]
        return found, engine.reused_tokens

    plain, reused = turns(make())
    assert turns(make(drafts="ngram"), plain) == (plain, reused) and reused > 0


def test_a_sample_that_was_begun_is_gone_on_with():
    engine, (prompt, *_) = make(drafts="all"), questions(make(), 1)
    key, sampling = ("go", 1), Sampling(max_tokens=30, temperature=0.9)

    async def run(engine):
        begun = await engine.generate(prompt, Sampling(max_tokens=6, temperature=0.9), key)
        return seen(await engine.go_on(prompt, begun, sampling, key))

    assert asyncio.run(run(engine)) == asyncio.run(run(make()))


# ---- faults that must be seen


def one_too_many(self, r, draft, drawn):
    """Takes the token behind the first wrong guess as well."""
    for i, (token, logp) in enumerate(drawn):
        r.ids.append(int(token))
        r.logp.append(logp)
        if self._end(r) or (i and draft[i - 1] != drawn[i - 1][0]):
            return


def wrong_key(kept):
    """The tokens of a draft are drawn with the random numbers of those before them."""

    def draw(logits, uniform, *rest):
        return kept(logits, torch.cat([uniform[:1], uniform[:-1]]), *rest)

    return draw


def uncut(monkeypatch):
    """Wrong guesses stay in the cache, and the sequence goes on behind them."""
    left, keep = {}, OwnEngine._keep

    def remember(self, r, draft, drawn):
        before = len(r.ids)
        keep(self, r, draft, drawn)
        left[id(r)] = left.get(id(r), 0) + max(0, len(draft) + 1 - (len(r.ids) - before))

    monkeypatch.setattr(OwnEngine, "_keep", remember)
    monkeypatch.setattr(SampleRequest, "length", property(lambda r: len(r.prompt) + len(r.ids) + left.get(id(r), 0)))


def seen_ahead(monkeypatch):
    """A position of a draft sees the guess behind it."""
    run = own.Decoder._run

    def ahead(self, first, ids, at, upto, *rest, slot_n=None, **more):
        if slot_n is None:
            return run(self, first, ids, at, upto, *rest, **more)
        place = type(self.cache).place
        self.cache.place = lambda f, at_nq, *more: place(self.cache, f, at_nq - 1, *more)
        try:
            return run(self, first, ids, at + 1, upto + 1, *rest, slot_n=slot_n, **more)
        finally:
            del self.cache.place

    monkeypatch.setattr(own.Decoder, "_run", ahead)


FAULTS = {
    "one too many": lambda m: m.setattr(OwnEngine, "_keep", one_too_many),
    "key of another place": lambda m: m.setattr(own, "draw", wrong_key(own.draw)),
    "cache not cut back": uncut,
    "guesses seen": seen_ahead,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_changes_samples(fault, monkeypatch):
    requests = asked(make(), group=1, prompts=1, max_tokens=24, temperature=2.0)
    plain = ask(make(), requests)
    assert with_oracle(requests, plain, wrong=0.5)[0] == plain
    FAULTS[fault](monkeypatch)
    assert with_oracle(requests, plain, wrong=0.5)[0] != plain


# ---- where there are none


def test_without_the_law_of_company_there_are_no_drafts(caplog):
    """In bfloat16 a token's bits depend on its company: samples stay what they are, and a warning says why."""
    engines = [OwnEngine(load("tiny", dtype="bfloat16"), drafts=d) for d in ("off", "all")]
    requests = asked(engines[0], group=2)
    assert ask(engines[0], requests) == ask(engines[1], requests)
    assert engines[1].draft_counts.drafted == 0
    assert caplog.messages == [
        "drafts are off: tiny in bfloat16 on cpu does not promise the same samples in any company"
    ]


def test_the_setting():
    engine = select.build("own(drafts='last+ngram')", load("tiny"), slots=3, cache_mb=5)
    assert engine.drafts.sources == ("ngram", "last") and engine.slots == 3
    bare = select.build("own(drafts=ngram+last)", load("tiny"), slots=3, cache_mb=5)
    assert bare.drafts.sources == ("ngram", "last")
    assert select.build("own", load("tiny"), slots=3, cache_mb=5).drafts is None
    assert sources_of("all") == ("ngram", "siblings", "last") and sources_of("off") == ()
    with pytest.raises(UserError, match="there are no drafts 'lsat'; write drafts=off, all, or some of ngram"):
        select.build("own(drafts='lsat')", load("tiny"), slots=3, cache_mb=5)
    with pytest.raises(UserError, match="there are no drafts 'lsat'"):  # before a run has a folder
        select.check("own(drafts='lsat')", load("tiny"))
    select.check("own(drafts='last')", load("tiny"))


# ---- what is guessed


def test_what_followed_an_n_gram_most_often_is_guessed():
    """Of equals what followed last."""
    grams = Grams()
    assert grams.after((3, 4)) is None
    text = [1, 2, 3, 4, 5, 9, 3, 4, 6]
    grams.add(text, 0)
    assert grams.after((1, 2, 3, 4)) == (5, ONE) and grams.after((3, 4)) == (6, SPLIT) and grams.after((4, 6)) is None
    text += [3, 4, 5, 3, 4, 5, 3, 4, 5, 1]
    grams.add(text, 9)
    assert grams.after((3, 4)) == (5, MOSTLY) and grams.after((5, 3)) == (4, ALL)


def visit(drafts, prompt, ids):
    d = drafts.begin(prompt)
    drafts.grow(d, ids)
    drafts.end(d, len(ids))


def guess(drafts, prompt, said=(), room=MOST):
    """What is drafted for a sequence that is alone, once all was right so far."""
    drafts.rates = dict.fromkeys(itertools.product(("ngram", "siblings", "last"), (4, 2), range(4)), 1.0)
    d = drafts.begin(prompt)
    drafts.grow(d, list(said))
    found = drafts.choose([d], [room], 64)[0]
    if d.task:
        d.task.under_way.remove(d)
    return found


PROMPT = (11, 12, 13, 14, 15)


def test_siblings_and_the_last_visit():
    """A sibling's answer is one under the same weights, the last visit's one under earlier weights, and no older one."""
    for sources, before, after in ((("siblings",), [1, 2, 3], []), (("last",), [], [1, 2, 3])):
        drafts = Drafts(sources)
        visit(drafts, PROMPT, [1, 2, 3])
        assert guess(drafts, PROMPT) == before and guess(drafts, (9, *PROMPT[1:])) == []
        drafts.forget()
        assert guess(drafts, PROMPT) == after
        drafts.forget()
        assert guess(drafts, PROMPT) == []


def test_a_later_turn_belongs_to_the_first_prompt():
    drafts = Drafts(("siblings",))
    later = (*PROMPT, 1, 2, 3, 21, 22, 23, 24)
    visit(drafts, PROMPT, [1, 2, 3])
    visit(drafts, later, [31, 32, 33])
    assert guess(drafts, later) == [31, 32, 33]
    assert guess(drafts, (*PROMPT, 4, 4, 4, 21, 22, 23, 24), room=2) == [31, 32]


def test_memory_is_bounded():
    """What was asked longest ago is dropped first, also while it is under way."""
    drafts = Drafts(("siblings", "last"), kept=200)
    under_way = drafts.begin((1, 1, 1))
    for i in range(20):
        visit(drafts, (*PROMPT, i), [50 + i] * 30)
        assert drafts._size <= 200
    drafts.grow(under_way, [1, 2])
    drafts.end(under_way, 2)
    assert guess(drafts, (*PROMPT, 19), [69] * 2)[:2] == [69, 69] and guess(drafts, (*PROMPT, 3), [53] * 2) == []
    assert drafts._size == sum(t.size for t in drafts._tasks.values())
    assert sum(drafts._lengths.values()) == len(drafts._tasks)
    drafts = Drafts(("siblings",))
    visit(drafts, PROMPT, [1, 2, 3])
    drafts.forget()
    assert not drafts._tasks and drafts._size == 0 and not drafts._lengths


def test_drafts_grow_with_their_success_and_shrink_with_the_company():
    """Rows that are hardly right are not worth it, the less so the more sequences share a pass's fixed cost."""
    drafts = Drafts(("ngram",))

    def lengths(rate, n, columns=64):
        drafts.rates = {("ngram", 4, ONE): rate}
        every = [drafts.begin((*range(1, 40), 1, 2, 3, 4)) for _ in range(n)]
        return [len(x) for x in drafts.choose(every, [MOST] * n, columns)]

    assert lengths(1.0, 1) == [MOST] and lengths(0.0, 1) == [0]
    assert lengths(0.9, 1) > lengths(0.6, 1) > lengths(0.2, 1)
    assert lengths(0.5, 1) > [0] and lengths(0.5, LARGE) == [0] * LARGE
    assert sum(lengths(1.0, LARGE)) > LARGE and sum(lengths(1.0, LARGE + 1)) == 0
    assert sum(lengths(1.0, 8, COLUMNS // 20)) == 12  # rows that copy the cache are bounded


def test_guesses_are_judged_also_where_they_were_not_drafted():
    """So a source that was bad once is found to be good again, at no cost."""
    drafts, kind = Drafts(("ngram",)), ("ngram", 4, ALL)
    drafts.rates[kind], drafts._judged[kind] = 0.01, 100
    d, text = drafts.begin((1, 2, 3, 4, 5, 6) * 3), itertools.cycle((1, 2, 3, 4, 5, 6))
    for _ in range(200):
        drafts.choose([d, *[None] * (LARGE - 1)], [MOST] * LARGE, 64)
        drafts.grow(d, [next(text)])
    assert drafts.rates[kind] > 0.9
    assert drafts.choose([d], [MOST], 64)[0] == [next(text) for _ in range(MOST)]

"""Knowledge infused decoding: the loss, the move of the memory, the law, what is knowledge, and a search of a user."""

import asyncio
import json
import math
from dataclasses import replace
from types import SimpleNamespace

import palaestra as pl
import pytest
import torch
from palaestra.engines import infused
from palaestra.engines.knowledge import KnowledgeTrie, TermSpeller, sentences_of, terms_of
from palaestra.models.inside.cursor import Cursor
from palaestra.models.load import load
from palaestra.recipes.inference import kid
from palaestra.services.index import BM25

PI, MOVED = torch.tensor([0.5, 0.3, 0.2]).double(), torch.tensor([0.3, 0.6, 0.1]).double()


def test_the_loss_is_less_the_log_of_the_mass_and_the_kl():
    """-ln 0.6 + 0.01 KL = 0.510826 + 0.001933; of two tokens the mass is 0.7."""
    loss = infused.infusion_loss(MOVED.log(), PI.log(), [1], 0.01)
    assert loss.item() == pytest.approx(0.512759, abs=1e-6)
    assert infused.infusion_loss(MOVED.log(), PI.log(), [1, 2], 0.0).item() == pytest.approx(-math.log(0.7))


def test_the_law_is_a_geometric_mean_and_the_step_has_a_known_length():
    p = infused.fuse_laws(MOVED.log(), PI.log(), 0.99).exp()
    assert p.tolist() == pytest.approx([0.302114, 0.596997, 0.100889], abs=1e-6)
    keys, values = torch.tensor([4.0, 0.0]), torch.tensor([0.0])
    (step, none) = infused.step_of([keys, values], [torch.tensor(4.0)], 1.5)
    assert 0.01 * step.norm().item() == pytest.approx(0.005) and none.item() == 0


def test_an_ngram_comes_once():
    assert infused.repeats([1, 2, 3, 1], 2) == [2] and infused.repeats([1, 2, 1, 3, 1], 2) == [2, 3]
    assert infused.repeats([1, 2, 3, 1, 2], 3) == [3] and infused.repeats([5], 1) == [5]
    assert infused.repeats([1, 2, 3, 1], 0) == [] and infused.repeats([], 2) == []


def moved_by_hand(cursor, tokens, steps, size, gamma, kl):
    """The same by the formula, with a softmax and a gradient of its own."""
    plain = torch.softmax(cursor.logits()[0], -1).detach()
    past, most = [x.clone() for x in cursor.past], [0.0] * (len(cursor.past) // 2)
    for _ in range(steps):
        leaves = [x.clone().requires_grad_() for x in past]
        p = torch.softmax(cursor.on(tuple(leaves)).logits()[0], -1)
        loss = -sum(p[t] for t in tokens).log() + kl * (p * (p / plain).log()).sum()
        loss.backward()
        for layer in range(len(most)):
            pair = [leaves[2 * layer], leaves[2 * layer + 1]]
            most[layer] = max(most[layer], math.sqrt(sum(float((x.grad**2).sum()) for x in pair)))
            for at, x in zip((2 * layer, 2 * layer + 1), pair, strict=True):
                past[at] = past[at] - size * x.grad / most[layer] ** gamma
    return past


def test_the_memory_is_moved_by_the_formula():
    model = load("tiny")
    ids = model.tokenizer.encode("3+4=7\n3+5=", add_special_tokens=False)
    cursor = Cursor.start(model, ids)
    tokens = cursor.logits()[0].topk(3).indices.tolist()  # the gradient falls as they gain
    before = torch.softmax(cursor.logits()[0], -1)[tokens].sum()
    past = infused.move_past(cursor, tokens, steps=3, step_size=0.05, gamma=1.5, kl=0.5)
    assert all(p.grad is None for p in model.module.parameters())
    want = moved_by_hand(cursor, tokens, 3, 0.05, 1.5, 0.5)
    moves = [float((a - b).abs().max()) for a, b in zip(past, cursor.past, strict=True)]
    errors = [float((a - b).abs().max()) for a, b in zip(past, want, strict=True)]
    assert max(errors) < 0.01 * max(moves) and max(moves) > 0
    assert torch.softmax(cursor.on(past).logits()[0], -1)[tokens].sum() > before
    assert not any(x.requires_grad for x in past)
    for nothing in ({"tokens": []}, {"tokens": tokens, "steps": 0}):
        assert infused.move_past(cursor, **nothing) is cursor.past
    assert infused.move_past(Cursor.start(model, ids[:1]), tokens) == ()


def test_what_documents_tie_to_a_text():
    trie = KnowledgeTrie.of(["The twin of bako is Tiru. Cats purr.", "Tiru: in Rome"])
    both = ("bako tiru", "bako twin", "cats purr", "purr cats", "rome tiru")
    assert trie.keys == (*both, "tiru bako", "tiru rome", "tiru twin", "twin bako", "twin tiru")
    assert trie.related(["bako"]) == ["Tiru", "twin"] and trie.related(terms_of("Who is the twin of bako?")) == ["Tiru"]
    assert trie.related(["bako"], hops=2) == ["Tiru", "twin", "Rome"] and trie.related(["cat"]) == ["purr"]
    assert trie.related(["dogs"]) == trie.related([]) == KnowledgeTrie.of([]).related(["bako"]) == []
    assert terms_of("It's the cat's 3 toys, the toys!") == ["cat", "3", "toys"]


def test_a_title_or_an_initial_ends_no_sentence():
    trie = KnowledgeTrie.of(["ACME is led by Dr. Eva Roth."])
    assert trie.related(["ACME"]) == ["Dr", "Eva", "led", "Roth"]
    assert sentences_of("J. R. Roth met Mrs. Lamo, Prof. Peca and St. Ives. Cats purr in Ulm. Dogs bark.") == [
        "J. R. Roth met Mrs. Lamo, Prof. Peca and St. Ives.", "Cats purr in Ulm.", "Dogs bark.",
    ]  # fmt: skip
    assert sentences_of("He is a Dr. now.\nEva! Is it?  Yes") == ["He is a Dr.", "now.", "Eva!", "Is it?", "Yes"]


def test_a_letter_and_a_number_are_whole_words():
    trie = KnowledgeTrie.of(["Xaver sings.", "X lives.", "1984 burned.", "19 won.", "Cats purr."])
    assert trie.related(["X"]) == ["lives"] and trie.related(["19"]) == ["won"] and trie.related(["cat"]) == ["purr"]


def test_terms_are_begun_and_gone_on_with():
    """A tokenizer of two letters a token, with the space a token of its own."""
    pieces = [" ", "ti", "ru", "ba", "ko", "."]

    def encode(text):
        cut = [x for word in text.split(" ") for x in (" ", *(word[i : i + 2] for i in range(0, len(word), 2)))][1:]
        return [pieces.index(x) for x in cut]

    speller = TermSpeller(encode, lambda ids: "".join(pieces[i] for i in ids))
    assert speller.spellings("tiru") == ((1, 2),)
    assert speller.next_tokens(["tiru", "bako"], [5], whole=True) == [1, 3]
    assert speller.next_tokens(["tiru", "bako"], [0, 1], whole=True) == [2]
    assert speller.next_tokens(["tiru", "bako"], [0, 1], whole=False) == [1, 3]
    assert speller.next_tokens(["tiru"], [3, 1], whole=True) == [1]  # in the middle of a word
    assert speller.next_tokens(["tiru"], [1, 2], whole=True) == [1] and speller.next_tokens([], [1], True) == []


def problem_of(ctx, budget=40, longest=8):
    task = pl.Task(id="t", prompt=(pl.Message(role="user", content="boss of bako?"),), answer="tiru")
    there = ctx.with_bench(replace(ctx.bench, world=pl.worlds.Question(), max_tokens=longest))
    return pl.search.SearchProblem(there, (0, "search", 0), task, pl.search.TokenBudget(budget))


@pytest.fixture
def agent(context):
    ctx = context()
    ctx.models["policy"] = load("tiny-agent")
    return ctx


def test_an_answer_gains_knowledge_and_keeps_to_the_budget(agent):
    trie = KnowledgeTrie.of(["boss of bako is tiru."])
    way = pl.search.InfusedDecoding(tries=3, step_size=0.3)
    problem = problem_of(agent, budget=12)
    answers = asyncio.run(way.answers(problem, trie))
    sizes = [len(x.ids) for x in answers]
    assert sum(sizes) == problem.tokens.spent <= 12 and problem.left == 12 - sum(sizes)
    assert all(x.gain > 0 and math.isfinite(x.nats) for x in answers)
    problem = problem_of(agent, budget=90, longest=30)
    whole = asyncio.run(replace(way, step_size=0.01).answers(problem, trie))
    assert [x.finish for x in whole] == ["eos"] * 3  # what an answer leaves, the next one has
    assert problem.tokens.spent == sum(len(x.ids) for x in whole) < 90
    plain = asyncio.run(replace(way, inner_steps=0).answers(problem_of(agent), trie))
    assert all(x.gain == x.changed == 0 for x in plain) and len(plain) == 3
    unknown = asyncio.run(way.answers(problem_of(agent), KnowledgeTrie.of([])))
    assert [x.ids for x in unknown] == [x.ids for x in plain]


def test_the_least_surprising_whole_answer_is_given():
    def made(finish, nats):
        return infused.InfusedAnswer(ids=(1,), logp=(0.0,), finish=finish, gain=0.0, changed=0.0, nats=nats)

    best = infused.least_surprising
    assert best([made("length", 0.1), made("eos", 2.0), made("eos", 1.0)]) == 2
    assert best([made("length", 0.3), made("length", 0.1)]) == 1


def test_a_users_search_over_a_folder(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("The boss of bako is tiru.\n\nThe host of tiru is mema.\n")
    file = tmp_path / "q.jsonl"
    rows = [{"prompt": "boss of bako?", "answer": "tiru"}, {"prompt": "host of tiru?", "answer": "mema"}]
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    words = {"data": str(file), "model": "tiny-agent", "max_tokens": 6, "budget": 12}
    found = pl.search.run(strategy=f"kid(docs='{tmp_path / 'notes'}',tries=2)", **words)
    assert [x["tokens"] <= 12 and x["candidates"] <= 2 for x in found["answers"]] == [True, True]
    assert found["n"] == 2 and not found["oracle"] and all(x["score"] < 0 for x in found["answers"])
    with pytest.raises(pl.UserError, match="docs="):
        pl.search.run(strategy="kid", **words)


def test_several_right_answers_and_the_documents_of_another_world(tmp_path):
    notes, file = tmp_path / "notes.md", tmp_path / "q.jsonl"
    notes.write_text("The boss of bako is tiru.\n")
    file.write_text(json.dumps({"prompt": "boss of bako?", "answer": ["Tiru the elder", "tiru"]}) + "\n")
    words = {"data": str(file), "model": "tiny-agent", "max_tokens": 6, "budget": 6, "test_data": str(file)}
    strategy = f"kid(docs='{notes}',tries=1)"
    with pytest.raises(pl.UserError, match="judge it with reward f1, the best of several right answers, or FILE"):
        pl.search.run(strategy=strategy, **words)
    assert pl.search.run(strategy=strategy, reward="f1", **words)["n"] == 1
    with pytest.raises(pl.UserError, match=r"kid answers a question at once, and .* kid reads its documents itself"):
        pl.search.run(strategy=strategy, docs=str(notes), **words)
    with pytest.raises(pl.UserError, match="this strategy writes one answer line by line"):
        pl.search.run(strategy="beam", docs=str(notes), **words)


def test_bad_input_says_what_to_do(agent):
    with pytest.raises(pl.UserError, match="--docs FOLDER"):
        asyncio.run(kid.build().run(agent))
    with pytest.raises(pl.UserError, match="kid: tasks"):
        kid.build(tasks=0)
    with pytest.raises(pl.UserError):
        kid.build(tries=0)


def test_a_reply_states_the_answer():
    task = pl.Task(id="t", prompt=(), answer=["tiru", "Tiru the elder"])
    assert kid.states_gold("It is Tiru.", task) and not kid.states_gold("It is tirume.", task)


def test_how_replies_are_judged_is_said():
    """A reward of the user's is not asked, so the run says what counts."""

    class BegunError(Exception):
        pass

    def begin(bench):
        raise BegunError

    world = pl.worlds.Search(BM25((("a", "boss of bako is tiru"),)))
    said, bench = [], pl.Bench(name="b", tasks=None, world=world)
    with pytest.raises(BegunError):
        asyncio.run(kid.build().run(SimpleNamespace(bench=bench, say=said.append, with_bench=begin)))
    assert len(said) == 1 and "the words of a right answer stand in it; --reward is not asked" in said[0]

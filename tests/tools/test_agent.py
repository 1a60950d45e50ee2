"""The second embedded model, `tiny-agent`: its tokenizer, what it was trained on, how it is built, what its card says."""

from __future__ import annotations

import asyncio
import json
import re
import shutil

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from palaestra.chat.calls import TagCalls, read_hermes
from palaestra.chat.dialect import Chat
from palaestra.engines.vllm import HEADS_ON_CPU
from palaestra.models.embedded import FOLDERS
from palaestra.models.load import load
from palaestra.rollout.collect import Sample
from palaestra.run.context import RunContext
from palaestra.run.driver import train
from palaestra.run.evaluation import attempt_tasks
from palaestra.tasks.procedural import split_of
from palaestra.types import Call, Message, rng_of
from tools.tiny_agent import build, functions, mixture, searching, skill, tooling
from tools.tiny_model.tokenizer import SPECIALS

HERE = FOLDERS["tiny-agent"]
LAST = mixture.phase_at(0.9)


@pytest.fixture(scope="module")
def model():
    return load("tiny-agent")


@pytest.fixture(scope="module")
def chat(model):
    return Chat(model.tokenizer)


def drawn(n: int, part=mixture.conversation, phase=LAST):
    return [part(rng_of(("test", n, i)), phase) for i in range(n)]


# ---- tokens


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_text_has_tokens_and_comes_back(chat, text):
    ids = chat.encode_text(text)
    assert chat.decode(ids) == text
    assert not set(ids) & set(chat.specials.values())


@pytest.mark.parametrize("text", ["<|end|>", "a<|assistant|>b", "".join(SPECIALS), "\u0000\u00ff🦊 日本", " \n\t "])
def test_what_a_text_says_is_never_a_special(chat, text):
    ids = chat.encode_text(text)
    assert chat.decode(ids) == text and min(ids) >= len(SPECIALS)
    (piece,) = chat.extend((Message(role="user", content=f"x{text}x"),), first=True, closed=False)
    assert [i for i in piece.ids if i < len(SPECIALS)] == [
        SPECIALS.index(f"<|{r}|>") for r in ("begin", "user", "end", "assistant")
    ]


def test_pieces_stand_alone(chat):
    """Digits and operators for arithmetic; a name is spelled the same in a page, a query and an answer."""
    spell = lambda text: [chat.decode([i]) for i in chat.encode_text(text)]
    assert spell("384+27=4") == list("384+27=4")
    assert spell("<search>boss of bako</search>") == ["<search>", "boss", " ", "of", " ", "ba", "ko", "</search>"]
    name = chat.encode_text("bako")
    for text in ("bako: boss", "is bako.", "<answer>bako</answer>", "of bako?"):
        ids = chat.encode_text(text)
        assert any(ids[i : i + len(name)] == name for i in range(len(ids)))


def test_its_shape(model, chat):
    assert (len(model.tokenizer), model.context, chat.family) == (1024, 1024, None)
    assert 1_200_000 < model.n_parameters < 3_000_000 and model.dtype == torch.float32
    assert model.head_size in HEADS_ON_CPU
    assert (HERE / "model.safetensors").stat().st_size < 4_000_000


# ---- conversations


def test_conversations_have_the_tokens_of_a_run(model, chat):
    encode = build.Encoder(model.tokenizer)
    printed = Message(role="tool", content="408\n")  # what surrounds a content belongs to it
    asked, reply = Message(role="user", content="12*34"), Message(role="assistant", content="= 408")
    for talk in [*drawn(60), (asked, reply, printed, reply)]:
        ids, heard, first = [], [], True
        for message in talk:
            if message.role != "assistant":
                heard.append(message)
                continue
            ids += [i for p in chat.extend(tuple(heard), first=first, closed=not first) for i in p.ids]
            ids += [*chat.encode_text(message.content), chat.end]
            heard, first = [], False
        assert encode(talk)[0] == ids[: model.context]


def test_what_a_demonstrator_says_is_learned_and_shown_mistakes_are_not(model):
    encode = build.Encoder(model.tokenizer)
    wrong = Message(role="assistant", content="= 3")
    right = Message(role="assistant", content="= 4", trained=True)
    ids, weights = encode((Message(role="user", content="2+2"), wrong, right))
    parts = "".join({0.0: "0", 0.1: "o", 1.0: "1"}[w] for w in weights)
    assert parts == "0" + "ooooo" + "0" * 5 + "o1111" and len(ids) == len(parts)


def test_only_training_problems_are_read():
    for part in (mixture.dose, mixture.mended, mixture.again):
        for talk in drawn(40, part):
            question = talk[0].content.partition("\nhint:")[0]
            assert split_of(question) == "train"
    seeds = {searching.wiki(n)[0].seed for n in range(searching.WIKIS)}
    assert 0 not in seeds  # the wiki that runs ask about


@pytest.mark.parametrize("tags", [False, True])
def test_calls_are_read_by_the_dialect(tags):
    quests = [tooling.pick(rng, tooling.QUESTS)(rng) for rng in (rng_of(("calls", i)) for i in range(40))]
    for quest in quests:
        names = tooling.tool_names(list(quest.tools))
        schemas = tooling.world_schemas(names) if names != ("python",) else (functions.Printing.schema,)
        for name, args in quest.calls:
            text = tooling.written((name, args), tags)
            read = TagCalls().read(text, "eos", schemas) if tags else read_hermes(text, "eos", schemas)
            assert read == (Call(name=name, args=args),)


def test_tools_are_used_at_random_and_wrongly_too():
    talks = drawn(120, mixture.tools)
    calls = [any("</" in m.content or "<tool_call>" in m.content for m in t if m.role == "assistant") for t in talks]
    errors = [any(m.content.startswith("error") for m in t if m.role == "tool") for t in talks]
    assert 0.5 < sum(calls) / len(calls) < 0.9 and 0.02 < sum(errors) / len(errors) < 0.3


def test_searches_are_hasty_at_random():
    told = drawn(120, mixture.searching)
    hasty = sum("<search>" not in "".join(m.content for m in t if m.role == "assistant") for t in told)
    assert 0.03 < hasty / len(told) < 0.4
    assert any(m.content == "nothing" or m.content.startswith("use <search>") for t in told for m in t)


def test_a_hint_holds_what_the_reply_repeats():
    talks = drawn(30, mixture.dose)
    hints = [talk[0].content.partition("\nhint:\n")[2] for talk in talks]
    assert all(talk[-1].content.startswith(hint) for talk, hint in zip(talks, hints, strict=True))
    assert 15 < sum(h != "" for h in hints) < 30


def test_the_stand_in_for_python_shows_what_python_would():
    ran = lambda code: asyncio.run(functions.Printing().call({"code": code}, 1.0))
    assert (ran("print(12*34)").text, ran("x").text) == ("408\n", "(nothing was printed)")
    assert ran("print(1+)").failed


# ---- building


def test_a_build_that_was_interrupted_ends_the_same(tmp_path):
    def begin(name):
        (tmp_path / name).mkdir(exist_ok=True)
        for file in HERE.glob("tokenizer*"):
            shutil.copy(file, tmp_path / name)
        made = build.Building(tmp_path / name, seed=1)
        return made, build.Encoder(made.tokenizer)

    whole, encode = begin("whole")
    for done in (0.1, 0.2):
        whole.step(encode, done)
    half, encode = begin("half")
    half.step(encode, 0.1)
    half.save()
    half, encode = begin("half")
    half.step(encode, 0.2)
    assert half.at == whole.at and half.at["step"] == 2
    for a, b in zip(whole.model.parameters(), half.model.parameters(), strict=True):
        assert torch.equal(a, b)


# ---- skill


def rate(model, name: str, tasks: int, samples: int) -> list[float]:
    bench, players = skill.rows()[name]
    ctx = RunContext(bench=bench, seed=0, models={"policy": model}, drive=train, players=players)
    groups = asyncio.run(attempt_tasks(ctx, tasks, Sample(n=samples)))
    return [x for g in groups for x in skill.scores(g)]


@pytest.mark.parametrize("name", ["add d=4, tool", "add d=4, tool in tags"])
def test_it_calls_tools_so_that_they_are_read_and_not_always(model, name):
    bench, _ = skill.rows()[name]
    ctx = RunContext(bench=bench, seed=0, models={"policy": model}, drive=train)
    groups = asyncio.run(attempt_tasks(ctx, 12, Sample(n=4)))
    facts = [e.facts for g in groups for e in g.episodes]
    calls, unread = sum(f["tool_calls"] for f in facts), sum(f["tool_malformed"] for f in facts)
    assert calls >= len(facts) / 4 and unread <= calls / 3
    assert any(f["tool_calls"] == 0 for f in facts)


def test_it_plays_and_is_sometimes_right(model):
    right = rate(model, "wiki", 12, 4)
    assert 0.05 < sum(right) / len(right) < 0.95


def test_the_card_states_the_measured_skill():
    card, found = (HERE / "README.md").read_text(), json.loads((HERE / "skill.json").read_text())
    assert list(found) == list(skill.rows())
    assert [name for name, numbers in found.items() if skill.line(name, numbers) not in card] == []


def test_the_card_states_the_shares():
    card = (HERE / "README.md").read_text()
    total = sum({**mixture.PARTS, **mixture.SINGLES}.values())
    for part, weight in mixture.PARTS.items():
        assert re.search(rf"\| {part.__name__} \| {100 * weight / total:.1f}% \|", card), part.__name__


def test_a_card_gets_the_table():
    card = f"before\n\n{skill.HEAD}| old | 1 |\n| older | 2 |\n\nafter | this\n"
    numbers = {"greedy": 0.5, "sampled": 0.25, "pass@4": 0.75, "pass@8": 1.0}
    found = skill.put_table(card, {"wiki": numbers})
    assert found == f"before\n\n{skill.HEAD}| wiki | 0.50 | 0.25 | 0.75 | 1.00 |\n\nafter | this\n"
    assert skill.put_table(found, {"wiki": numbers}) == found

"""Law 1: trained ids are the sampled ids. Rows grow by appending, and no message content gives a special token."""

import asyncio
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from palaestra.chat.dialect import Chat
from palaestra.chat.template import render
from palaestra.errors import UserError
from palaestra.models.files import read_tokenizer
from palaestra.models.smollm2 import folder
from palaestra.rollout.play import play
from palaestra.rollout.player import EnginePlayer
from palaestra.types import Ask, Call, Completion, Frame, Malformed, Message, Sampling, Task, rng_of
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

SPECIALS = [
    "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|begin_of_text|>", "<|start_header_id|>",
    "<|end_header_id|>", "<|eot_id|>", "[INST]", "[/INST]", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>",
]  # fmt: skip

CHATML = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
You are a helpful AI assistant<|im_end|>
' }}{% endif %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""

LLAMA3 = """{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>

' + message['content'] | trim + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}{{
'<|start_header_id|>assistant<|end_header_id|>

' }}{% endif %}"""

MISTRAL = """{%- set talk = messages %}{%- if messages[0]['role'] == 'system' %}
{%- set system = messages[0]['content'] %}{%- set talk = messages[1:] %}{%- endif %}
{{- bos_token }}{%- for message in talk %}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{- raise_exception('must alternate') }}{%- endif %}
{%- if message['role'] == 'user' %}
{{- '[INST] ' + (system + '\n\n' if loop.first and system is defined else '') + message['content'] + '[/INST]' }}
{%- elif message['role'] == 'assistant' %}{{- message['content'] + eos_token }}
{%- else %}{{- raise_exception('only user and assistant roles are supported') }}{%- endif %}{%- endfor %}"""

GEMMA = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}
{%- for message in messages %}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}
{%- if message['role'] == 'assistant' %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}
{{- '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"""

QWEN3 = """{%- set ns = namespace(last=-1) %}
{%- for message in messages %}{%- if message.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}
{%- for message in messages %}{%- if message.role == 'assistant' %}{%- set content = message.content %}
{%- if loop.index0 < ns.last and '</think>' in content %}
{%- set content = content.split('</think>')[-1].lstrip('\n') %}{%- endif %}
{{- '<|im_start|>assistant\n' + content + '<|im_end|>\n' }}{%- elif message.role == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
{{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\n' }}{%- endif %}
{%- else %}{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""

TEMPLATES = {  # template, bos, eos, what it rewrites
    "chatml": (CHATML, "<|im_start|>", "<|im_end|>", ()),
    "llama3": (LLAMA3, "<|begin_of_text|>", "<|eot_id|>", ("whitespace",)),
    "mistral": (MISTRAL, "<s>", "</s>", ()),
    "gemma": (GEMMA, "<bos>", "<eos>", ("whitespace",)),
    "qwen3": (QWEN3, None, "<|im_end|>", ("thinking",)),
}
ENDS = {
    "chatml": "<|im_end|>",
    "llama3": "<|eot_id|>",
    "mistral": "</s>",
    "gemma": "<end_of_turn>",
    "qwen3": "<|im_end|>",
}
NASTY = [
    *SPECIALS, "<|im_", "end|>", "<|im_end|><|im_start|>system\n", "[INST", "{{ messages }}", "{% raw %}", "~slot0~",
    "~reply~", "~slot7~",
    "\x00", "é", "日本", "🙂", "<result>", "</think>", "<tool_call>", "\n\n", "  ", "\t", "~0~",
]  # fmt: skip
PLAIN = ["what", "is", "12", "+", "7", "?", "the", "capital", " of", "France", ",", "hello", "\n"]


@pytest.fixture(scope="module")
def core():
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIALS, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator(
        [" ".join(PLAIN + NASTY) + " system user assistant model You are a helpful AI"] * 4, trainer
    )
    return bpe.to_str()


def tokenizer_of(core, name, template=None, **kw):
    template, bos, eos, _ = template or TEMPLATES[name]
    backend = Tokenizer.from_str(core)
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=bos, eos_token=eos, chat_template=template, **kw)


@pytest.fixture(scope="module")
def dialects(core):
    return {name: Chat(tokenizer_of(core, name)) for name in TEMPLATES}


@pytest.fixture(scope="module")
def smollm2():
    return Chat(read_tokenizer(folder()))


def ids_of(pieces):
    return tuple(i for p in pieces for i in p.ids)


def a_text(rng, words):
    return "".join(rng.choice(words) + rng.choice(["", " "]) for _ in range(rng.integers(0, 6)))


def sampled_ids(chat, rng, text):
    """The text as a policy may sample it: not the tokens that a tokenizer would choose."""
    cuts = sorted({0, len(text), *(int(c) for c in rng.integers(0, len(text) + 1, 3))})
    return tuple(i for a, b in pairwise(cuts) for i in chat.encode_text(text[a:b]))


def shown(chat, messages):
    """Messages as the caller of a template would write them, in the roles that this one takes."""
    talk = []
    for m in messages:
        role, content = m.role, m.content
        if role == "tool" and "tool" not in chat.habits:
            role, content = "user", f"tool: {content}"
        if role == "system" and ("late system" if talk else "system") not in chat.habits:
            role = "user"
        if talk and talk[-1]["role"] == role and "repeats" not in chat.habits:
            talk[-1]["content"] += f"\n\n{content}"
        else:
            talk.append({"role": role, "content": content})
    return talk


def converse(chat, rng, words, replies):
    """A random conversation: its messages and its row, with a copy of what was sampled and where."""
    said, row, turns = [], [], []
    say = [Message(role="system", content=a_text(rng, words))] if rng.random() < 0.5 else []
    say += [Message(role="user", content=a_text(rng, words))]
    closed = True
    for n in range(rng.integers(1, 4)):
        before = tuple(row)
        row += ids_of(chat.extend(tuple(say), first=n == 0, closed=closed and n > 0))
        assert tuple(row[: len(before)]) == before
        said += say
        text = a_text(rng, replies)
        closed = bool(rng.random() < 0.6)
        ids = sampled_ids(chat, rng, text) + (chat.end,) * closed
        turns.append((len(row), ids))
        row += ids
        said.append(Message(role="assistant", content=text))
        say = [
            Message(role=str(rng.choice(["user", "tool"])), content=a_text(rng, words))
            for _ in range(rng.integers(1, 3))
        ]
    return said, row, turns, closed


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_thousand_conversations(dialects, name):
    check_conversations(dialects[name], name, 200)


@pytest.mark.smollm2
def test_conversations_of_smollm2(smollm2):
    assert not smollm2.rewrites
    check_conversations(smollm2, "chatml", 200)


def check_conversations(chat, name, how_many):
    trims = "whitespace" in chat.rewrites
    special = frozenset(chat.specials.values())
    for n in range(how_many):
        rng = rng_of(("law 1", name, n))
        said, row, turns, closed = converse(chat, rng, PLAIN + NASTY, [*PLAIN, "<s", " x "])
        for at, ids in turns:
            assert tuple(row[at : at + len(ids)]) == ids
        talk = shown(chat, said)
        # special tokens: as many as with harmless contents
        harmless = render(chat.tokenizer, [{**m, "content": "x"} for m in talk[:-1]], speak=True)
        expected = sum(i in special for i in chat.tokenizer(harmless, add_special_tokens=False)["input_ids"])
        assert sum(i in special for i in row) == expected + closed
        # the row is the conversation, where the template keeps it
        if trims:
            continue
        expected = render(chat.tokenizer, talk[:-1], speak=True) + said[-1].content + ENDS[name] * closed
        assert chat.decode(row) == expected


@pytest.mark.parametrize("name", ["llama3", "gemma"])
def test_a_trimming_template_is_followed_in_messages(dialects, name):
    chat = dialects[name]
    for n in range(50):
        rng = rng_of(("trim", name, n))
        said, row, _, closed = converse(chat, rng, PLAIN + NASTY, ["x"])  # replies end without whitespace or are " "
        if any(m.content != m.content.strip() for m in said if m.role == "assistant"):
            continue
        talk = shown(chat, said)
        assert (
            chat.decode(row) == render(chat.tokenizer, talk[:-1], speak=True) + said[-1].content + ENDS[name] * closed
        )


def test_what_templates_do_is_found_out(dialects):
    assert {n: c.rewrites for n, c in dialects.items()} == {n: t[3] for n, t in TEMPLATES.items()}
    assert {n: c.decode([c.end]) for n, c in dialects.items()} == ENDS
    assert {n for n, c in dialects.items() if "tool" in c.habits} == {"chatml", "llama3", "qwen3"}
    assert {n for n, c in dialects.items() if "system" not in c.habits} == {"gemma"}
    assert {n for n, c in dialects.items() if "repeats" not in c.habits} == {"mistral", "gemma"}


@pytest.mark.parametrize("name", TEMPLATES)
def test_ordinary_conversations_have_the_ids_of_apply_chat_template(dialects, name):
    chat = dialects[name]
    for n in range(30):
        rng = rng_of(("ordinary", name, n))
        talk = [{"role": "user", "content": a_text(rng, PLAIN).strip() or "hello"}]
        whole = chat.tokenizer.apply_chat_template(talk, add_generation_prompt=True, return_dict=False)
        say = tuple(Message(role=m["role"], content=m["content"]) for m in talk)
        assert list(ids_of(chat.extend(say, first=True, closed=False))) == whole


@pytest.mark.parametrize("nested", [False, True])
def test_sentencepiece_words_are_not_spaced_after_special_tokens(nested):
    vocab = {
        "<unk>": 0,
        "▁": 1,
        **{c: i + 2 for i, c in enumerate("abhelo\n []INST/")},
        "▁hello": 30,
        "▁h": 31,
        "hello": 32,
    }
    vocab |= {"he": 33, "ll": 34, "hell": 35}
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("▁", "hello")]
    sp = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>"))
    space = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    sp.pre_tokenizer = pre_tokenizers.Sequence([space]) if nested else space
    sp.decoder = decoders.Metaspace(prepend_scheme="first")
    sp.add_special_tokens(["<s>", "</s>", "<unk>"])
    t = PreTrainedTokenizerFast(
        tokenizer_object=sp, bos_token="<s>", eos_token="</s>", unk_token="<unk>", chat_template=MISTRAL
    )
    chat = Chat(t)
    first = ids_of(chat.extend((Message(role="user", content="hello"),), first=True, closed=False))
    assert list(first) == t.apply_chat_template([{"role": "user", "content": "hello"}], return_dict=False)
    assert 30 in first and chat.encode_text("hello") == (32,)
    assert 0 not in chat.encode_text("hello日")  # unknown characters do not become a special token


def test_hidden_messages_leave_the_row_as_if_unsaid(dialects):
    question = Message(role="user", content="what is 12")
    hint = Message(role="user", content="what is the capital", author="guide", hidden=True)
    for name, chat in dialects.items():
        for say in ((hint, question), (question, hint), (question, hint, hint)):
            pieces = chat.extend(say, first=True, closed=False)
            bare = ids_of(chat.extend((question,), first=True, closed=False))
            assert ids_of(p for p in pieces if not p.hidden) == bare, name
            assert len(ids_of(pieces)) > len(bare)


def test_a_hint_that_cannot_be_unsaid_is_hidden_word_by_word(dialects):
    """Without a system message of its own, this template writes one: the line is another, so only the content is left out."""
    hint = Message(role="system", content="the capital", author="guide", hidden=True)
    pieces = dialects["chatml"].extend((hint, Message(role="user", content="hello")), first=True, closed=False)
    assert [(p.text, p.author) for p in pieces if p.hidden] == [("the capital", "guide")]


def test_messages_at_other_places_than_usual(dialects, core):
    """A system message later than first, where no template but the first takes it; a reply to nothing; tags with a message."""
    late, user = Message(role="system", content="12"), Message(role="user", content="hello")
    said = lambda chat, *say, **at: chat.decode(ids_of(chat.extend(say, **at)))
    mistral = dialects["mistral"]
    assert said(mistral, late, first=False, closed=True) == "[INST] 12[/INST]"
    assert said(mistral, user, late, first=True, closed=False) == "<s>[INST] hello\n\n12[/INST]"
    assert said(dialects["chatml"], first=False, closed=True) == "\n<|im_start|>assistant\n"
    header = "<|start_header_id|>assistant<|end_header_id|>\n\n"
    assert said(dialects["llama3"], first=True, closed=False) == "<|begin_of_text|>" + header
    assert said(dialects["mistral"], first=True, closed=False) == "<s>"
    bare = Chat(tokenizer_of(core, "", (None, None, "</s>", ())))
    assert (
        said(bare, first=True, closed=False) == "</s>"
    )  # something to begin with, as there is neither start nor header


def test_settings_of_a_tokenizer_cut_and_fill_nothing(core):
    """As files of tokenizers hold that were saved while they did."""
    text = "what is the capital of France, hello 12 + 7?"
    saved = tokenizer_of(core, "chatml")
    saved.backend_tokenizer.enable_truncation(4)
    saved.backend_tokenizer.enable_padding(length=64)
    assert Chat(saved).encode_text(text) == Chat(tokenizer_of(core, "chatml")).encode_text(text)
    assert Chat(saved).decode(Chat(saved).encode_text(text)) == text


def test_special_tokens_may_swallow_the_space_beside_them(core):
    """Phi-3's do: the row is that of apply_chat_template. Of two that begin alike the longer one is meant."""
    t = tokenizer_of(core, "chatml")
    t.add_special_tokens({"additional_special_tokens": [
        AddedToken("<|user|>", rstrip=True, special=True), AddedToken("<|end|>", lstrip=True, special=True), "<|a", "<|a|>",
    ]})  # fmt: skip
    t.chat_template = (
        "{% for m in messages %}{{ '<|user|>\n' + m['content'] + ' <|end|>\n<|a|> <|a' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|user|>\nis' }}{% endif %}"
    )
    expected = t.apply_chat_template(
        [{"role": "user", "content": "hello"}], add_generation_prompt=True, return_dict=False
    )
    chat = Chat(t)
    assert list(ids_of(chat.extend((Message(role="user", content="hello"),), first=True, closed=False))) == expected


def test_demonstrations_train_their_content_and_end(dialects):
    say = (
        Message(role="user", content="hello"),
        Message(role="assistant", content="the capital", author="demonstration", trained=True),
        Message(role="user", content="what"),
    )
    for name, chat in dialects.items():
        trained = [p for p in chat.extend(say, first=True, closed=False) if p.trained]
        assert [p.text for p in trained] == ["the capital" + ENDS[name]]
        assert {p.author for p in trained} == {"demonstration"}


def test_open_and_closed_turns(dialects):
    say = (Message(role="user", content="hello"),)
    for name, chat in dialects.items():
        closed = chat.decode(ids_of(chat.extend(say, first=False, closed=True)))
        left_open = chat.decode(ids_of(chat.extend(say, first=False, closed=False)))
        assert left_open == ENDS[name] + closed and "hello" in closed
        assert chat.extend((), first=False, closed=False) == ()
    assert (
        dialects["chatml"]
        .decode(ids_of(dialects["chatml"].extend((), first=True, closed=False)))
        .endswith("assistant\n")
    )


def test_a_tokenizer_without_template_writes_lines(core):
    chat = Chat(tokenizer_of(core, "", (None, "<s>", "</s>", ())))
    say = (Message(role="user", content="what is </s>"), Message(role="assistant", content="12", trained=True))
    pieces = chat.extend(say, first=True, closed=False)
    assert chat.decode(ids_of(pieces)) == "<s>what is </s>\n12</s>\n"
    assert [p.text for p in pieces if p.trained] == ["12</s>"]
    assert ids_of(pieces).count(chat.end) == 1
    assert chat.decode(ids_of(chat.extend(say[:1], first=False, closed=True))) == "\nwhat is </s>\n"


def test_mistakes_are_named(core, dialects):
    with pytest.raises(UserError, match="role 'robot'"):
        dialects["chatml"].extend((Message(role="robot", content="x"),), first=True, closed=False)
    with pytest.raises(UserError, match="refuses"):
        dialects["gemma"].extend((Message(role="assistant", content="x"),), first=True, closed=False)
    deaf = CHATML.replace("message['content']", "('' if message['role'] == 'user' else message['content'])")
    with pytest.raises(UserError, match="leaves out"):
        Chat(tokenizer_of(core, "", (deaf, None, "</s>", ()))).extend(
            (Message(role="user", content="x"),), first=True, closed=False
        )
    with pytest.raises(UserError, match="eos"):
        Chat(tokenizer_of(core, "", ("{{ messages[0]['content'] }}", None, None, ())))


# ---- tags and calls


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ('{"name": "add", "arguments": {"a": 1}}', Call(name="add", args={"a": 1})),
        ('\n{"name": "add", "arguments": "{\\"a\\": 1}"}\n', Call(name="add", args={"a": 1})),
        ('{"name": "now"}', Call(name="now")),
        ('{"name": "add", "arguments": [1]}', "arguments"),
        ('{"name": "add", "arguments": "a"}', "json"),
        ('{"name": "add", "arguments": null}', "arguments"),
        ('{"name": "", "arguments": {}}', "name"),
        ('{"arguments": {}}', "name"),
        ("[]", "name"),
        ("add(1)", "json"),
        ('{"name": "add", "arguments": {"a": NaN}}', "json"),
        ("[" * 100_000, "json"),
        ('{"name": "add", "arguments": {"a": ' + "9" * 5000 + "}}", "json"),
    ],
)
def test_calls_parse(dialects, inside, expected):
    found = dialects["chatml"].parse(f"I call <tool_call>{inside}</tool_call>", "eos")
    assert (found.kind if isinstance(found, Malformed) else found) == expected


def test_unfinished_calls(dialects):
    parse = dialects["chatml"].parse
    assert parse("nothing", "eos") is None
    assert parse('<tool_call>{"name": "a"}', "eos").kind == "unclosed"
    assert parse('<tool_call>{"name": "a"}', "length").kind == "cut"


@given(
    text=st.text()
    | st.lists(
        st.sampled_from(["<tool_call>", "</tool_call>", "<search>", "</search>", '{"name":"a"', "}", "[", "\\"])
    ).map("".join)
)
def test_parse_never_raises(dialects, text):
    for finish in ("eos", "stop", "length"):
        assert isinstance(dialects["chatml"].parse(text, finish), Call | Malformed | None)


# ---- through play()


class Chatter:
    """A world that says nasty things, three turns long."""

    seats = ("policy",)

    def reset(self, task, key):
        return Frame(state=0, asks=(Ask(seat="policy", say=(Message(role="user", content=task.id),)),))

    def step(self, state, acts, key):
        say = (Message(role="tool", content=f"<|im_end|>{acts[0].text}<|im_start|>"),)
        return Frame(
            state=state + 1, asks=(Ask(seat="policy", say=say),) if state < 2 else (), pay={("policy", ""): 1.0}
        )


def test_rows_of_play_hold_what_was_sampled(dialects):
    chat, given_out = dialects["chatml"], []

    async def generate(prompt, sampling, key):
        rng = rng_of(key)
        text = a_text(rng, PLAIN)
        finish = str(rng.choice(["eos", "length"]))
        ids = sampled_ids(chat, rng, text) + (chat.end,) * (finish == "eos")
        given_out.append((prompt, ids))
        return Completion(ids=ids, logp=(-1.0,) * len(ids), text=text, cut=len(text), finish=finish)

    player = EnginePlayer(engine=SimpleNamespace(dialect=chat, generate=generate), sampling=Sampling())
    for n in range(20):
        given_out.clear()
        episode = asyncio.run(play(Chatter(), {"policy": player}, Task(id="<|im_start|> hello"), ("k", n), ("w", n)))
        (row,) = episode.rows
        said = [s for s in row.segments if s.logp is not None]
        assert [s.ids for s in said] == [ids for _, ids in given_out] and len(said) == 3
        assert all(s.trained for s in said) and not any(s.trained for s in row.segments if s.logp is None)
        assert given_out[-1][0] == row.context()[: -len(said[-1].ids) or None]
        assert (
            sum(i == chat.specials["<|im_start|>"] for i in row.context()) == 7
        )  # a system prompt, 3 messages, 3 replies

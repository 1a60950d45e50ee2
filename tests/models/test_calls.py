"""Calls are shown, written and read as a model's family does it, recognised from its chat template alone."""

import asyncio
import json
from dataclasses import replace
from functools import partial

import pytest
from palaestra.chat.calls import TagCalls, family_of, read_hermes, read_llama, read_mistral, read_xml, with_rules
from palaestra.chat.dialect import Chat
from palaestra.chat.template import render
from palaestra.context import Bench
from palaestra.engines.endpoint import EndpointPlayer
from palaestra.errors import UserError
from palaestra.models.load import load
from palaestra.rollout.play import play
from palaestra.rollout.recorded import recorded_episode
from palaestra.services.chat.scripted import Scripted
from palaestra.types import Ask, Call, Frame, Malformed, Message, Sampling, Task, ToolSchema, stage
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tests.rows import every

PARAMETERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "word": {"type": "string", "description": "what to look for"}},
    "required": ["a"],
}
ADD = ToolSchema(name="add", description="Adds.", parameters=json.dumps(PARAMETERS))
SPECIALS = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|h|>", "[INST]", "[/INST]", "[TOOL_CALLS]",
            "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"]  # fmt: skip

QWEN = """{%- if tools %}<|im_start|>system
Tools: {% for t in tools %}{{ t | tojson }}{% endfor %}<|im_end|>
{% endif %}{%- for m in messages %}{%- if m.role == 'tool' %}
{%- if messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif %}
<tool_response>
{{ m.content }}
</tool_response>{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>
{% endif %}{%- else %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}CALL{% endfor %}<|im_end|>
{% endif %}{%- endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
HERMES = QWEN.replace(
    "CALL",
    '<tool_call>\n{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>',
)
XML = QWEN.replace("CALL", "<tool_call>\n<function={{ c.function.name }}>{% for k, v in c.function.arguments | items %}\n"
                   "<parameter={{ k }}>\n{{ v }}\n</parameter>{% endfor %}\n</function>\n</tool_call>")  # fmt: skip
LLAMA = """{{ bos_token }}{% for m in messages %}<|h|>{{ 'ipython' if m.role == 'tool' else m.role }}<|h|>

{% if m.role == 'tool' %}{{ m.content | tojson }}{% elif m.tool_calls %}{% set f = m.tool_calls[0].function %}
{{- '{"name": "' + f.name + '", "parameters": ' }}{{ f.arguments | tojson }}}
{%- else %}{% if loop.first and tools %}{% for t in tools %}{{ t | tojson }}

{% endfor %}{% endif %}{{ m.content | trim }}{% endif %}<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|h|>assistant<|h|>

{% endif %}"""
MISTRAL = """{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}
{%- if tools and loop.first %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}[INST]{{ m.content }}[/INST]
{%- elif m.role == 'tool' %}{% set id = m.tool_call_id %}
{%- if id is undefined or id | length != 9 %}{{ raise_exception('ids have nine') }}{% endif %}
{{- '[TOOL_RESULTS]{"content": ' + m.content + ', "call_id": "' + id + '"}[/TOOL_RESULTS]' }}
{%- elif m.tool_calls %}[TOOL_CALLS][{% for c in m.tool_calls %}{"name": "{{ c.function.name }}",
{{- ' "arguments": ' }}{{ c.function.arguments | tojson }}, "id": "{{ c.id }}"}{% endfor %}]</s>
{%- elif m.role == 'assistant' %}{{ m.content }}</s>{% else %}{{ raise_exception('no such role') }}{% endif %}{% endfor %}"""
NONE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
FAMILIES = {
    "hermes": (HERMES, "<|im_end|>", read_hermes),
    "xml": (XML, "<|im_end|>", read_xml),
    "llama": (LLAMA, "<|eot_id|>", read_llama),
    "mistral": (MISTRAL, "</s>", read_mistral),
}
RESPONSES = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "tool_calls": {
            "open_pattern": r"<call:(?P<name>\w+)>", "close": "</call>", "repeats": True, "content": "json",
            "transform": {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
        "content": {"content": "text"},
    },
}  # fmt: skip


def tokenizer_of(template, eos, **more):
    core = Tokenizer(
        models.BPE(vocab={c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[])
    )
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    core.add_special_tokens(SPECIALS)
    return PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", eos_token=eos, chat_template=template, **more
    )


def declaring():
    """A tokenizer that says itself how replies are read."""
    tokenizer = tokenizer_of(HERMES, "<|im_end|>", response_template=RESPONSES)
    if not hasattr(tokenizer, "response_template"):
        pytest.skip("transformers knows response templates from 5.13 on")
    return tokenizer


@pytest.fixture(scope="module")
def dialects():
    return {name: Chat(tokenizer_of(template, eos)) for name, (template, eos, _) in FAMILIES.items()}


def shown(chat, *say, first=True, tools=(ADD,)):
    return chat.decode([i for p in chat.extend(say, first=first, closed=not first, tools=tools) for i in p.ids])


@pytest.mark.parametrize("name", FAMILIES)
def test_the_family_is_recognised_and_reads_what_its_own_template_writes(dialects, name):
    chat = dialects[name]
    assert chat.family is FAMILIES[name][2]
    function = {"name": "add", "arguments": {"a": 2, "word": "x"}}
    talk = [{"role": "user", "content": "~"},
            {"role": "assistant", "content": "", "tool_calls": [{"id": "abcdefghi", "function": function}]}]  # fmt: skip
    wrote = render(chat.tokenizer, talk, speak=False)
    reply = wrote[len(render(chat.tokenizer, talk[:1], speak=True)) :].partition(FAMILIES[name][1])[0]
    (call,) = chat.read_calls(reply, "eos", (ADD,))
    assert call == Call(name="add", args={"a": 2, "word": "x"}, id="abcdefghi" if name == "mistral" else "")
    assert chat.read_calls("The answer is 3.", "eos", (ADD,)) == ()


@pytest.mark.parametrize("name", FAMILIES)
def test_tools_and_results_stand_where_the_template_puts_them(dialects, name):
    """The row has the text of the whole conversation as the template renders it."""
    chat = dialects[name]
    user, result = Message(role="user", content="2+2?"), 'a "four"\nline'
    row = shown(chat, user)
    assert "add" in row
    asked = [{"role": "user", "content": "2+2?"}]
    assert row == render(chat.tokenizer, asked, speak=True, tools=(ADD,))
    later = shown(chat, Message(role="tool", content=result, name="add", call_id="abcdefghi"), first=False)
    answered = {"role": "tool", "content": result, "name": "add", "tool_call_id": "abcdefghi"}
    talk = [*asked, {"role": "assistant", "content": "CALLED"}, answered]
    whole = render(chat.tokenizer, talk, speak=True, tools=(ADD,))
    assert whole.endswith("CALLED" + FAMILIES[name][1] + later)


def test_several_results_of_one_message(dialects):
    results = [Message(role="tool", content=x, call_id=f"00000000{x}") for x in "12"]
    said = shown(dialects["mistral"], *results, first=False)
    assert said.count("[TOOL_RESULTS]") == 2 and '"call_id": "000000002"' in said
    assert shown(dialects["hermes"], *results, first=False).count("<tool_response>") == 2


def test_a_policys_own_id_does_not_break_the_template(dialects):
    said = shown(dialects["mistral"], Message(role="tool", content="4", call_id="[INST]"), first=False)
    assert '"call_id": "000000000"' in said


def test_a_template_without_tools_gets_the_rules_as_a_system_message():
    chat = Chat(tokenizer_of(NONE, "<|im_end|>"))
    assert chat.family is None
    said = shown(chat, Message(role="user", content="2+2?"))
    rules = with_rules((Message(role="user", content="2+2?"),), (ADD,))[0].content
    assert said.startswith(f"<|im_start|>system\n{rules}<|im_end|>") and "<tool_call>" in rules
    assert "add(a: integer, word: string = optional): Adds. word: what to look for" in rules
    joined = with_rules((Message(role="system", content="Be brief."), Message(role="user", content="?")), (ADD,))
    assert joined[0].content.startswith("Be brief.\n\n") and len(joined) == 2
    assert "integer" not in shown(chat, Message(role="tool", content="4"), first=False)  # said once
    assert chat.read_calls('<tool_call>{"name": "add"}</tool_call>', "eos", (ADD,)) == (Call(name="add"),)


def test_a_template_of_an_unknown_way_gets_the_rules():
    """It shows tools, but nobody here knows how its calls are read."""
    assert family_of(tokenizer_of(QWEN.replace("CALL", "@@{{ c.function.name }}@@"), "<|im_end|>")) is None


def test_the_tokenizers_own_response_template_is_believed():
    tokenizer = declaring()
    chat = Chat(tokenizer)
    said = 'so <call:add>{"a": 1}</call><call:add>{"a": 2}</call>'
    assert chat.read_calls(said, "eos", (ADD,)) == (Call(name="add", args={"a": 1}), Call(name="add", args={"a": 2}))
    assert chat.read_calls('<tool_call>{"name": "add"}</tool_call>', "eos", (ADD,)) == ()
    assert chat.read_calls("<call:add>{oh</call>", "eos", (ADD,))[0].kind == "json"


@pytest.mark.parametrize("model", ["tiny", "tiny-agent", pytest.param("smollm2", marks=pytest.mark.smollm2)])
def test_the_models_here_get_the_rules(model):
    chat = Chat(load(model).tokenizer)
    assert chat.family is None and "add(a: integer" in shown(chat, Message(role="user", content="?"))


@every(
    ("reader", "text", "kinds"),
    [
        (read_hermes, '<tool_call>{"name": "add"}</tool_call> and <tool_call>oh</tool_call>', ["add", "json"]),
        (read_hermes, '<tool_call>{"name": "add"}</tool_call><tool_call>{"name"', ["add", "unclosed"]),
        (read_xml, "<tool_call>\n<function=add>\n</function>\n</tool_call><tool_call>oh</tool_call>", ["add", "xml"]),
        (read_llama, '{"name": "add", "parameters": {}}; {"name": "sub", "parameters": {}}', ["add", "sub"]),
        (read_llama, '<|python_tag|>{"name": "add", "parameters": {}}', ["add"]),
        (read_llama, '{"type": "function", "name": "add", "parameters": {"a": "1"}}', ["add"]),
        (read_llama, '{"name": "add", "parameters": [1]}', ["arguments"]),
        (read_llama, '{"name": "add", "parameters": ', ["json"]),
        (read_llama, '{"a": 1}', []),
        (read_mistral, '[TOOL_CALLS] [{"name": "add", "arguments": {}}, {"name": "sub"}]', ["add", "sub"]),
        (read_mistral, '[TOOL_CALLS]add{"a": 1}[TOOL_CALLS]sub[ARGS]{}', ["add", "sub"]),
        (read_mistral, '[TOOL_CALLS]add[CALL_ID]abc[ARGS]{"a": 1}', ["add"]),
        (read_mistral, "[TOOL_CALLS]add[ARGS]oh", ["json"]),
        (read_mistral, "[TOOL_CALLS] [oh", ["json"]),
        (read_mistral, "[TOOL_CALLS]", ["name"]),
        (read_hermes, '<tool_call>{"name": "add", "arguments": {"a": NaN}}</tool_call>', ["json"]),
        (read_hermes, '<tool_call>{"name": ""}</tool_call>', ["name"]),
        (read_hermes, '<tool_call>{"name": "add", "arguments": "{}"}</tool_call>', ["add"]),
        (read_llama, 'I would call {"name": "add", "parameters": {}}', []),
    ],
)
def test_calls_of_a_message_are_read_one_by_one(reader, text, kinds):
    found = reader(text, "eos", (ADD,))
    assert [x.kind if isinstance(x, Malformed) else x.name for x in found] == kinds


@pytest.mark.parametrize(
    ("reader", "text"),
    [
        (read_hermes, '<tool_call>{"name"'),
        (read_xml, "<tool_call><function=add>"),
        (read_llama, '{"name": "add", "para'),
        (read_mistral, "[TOOL_CALLS][{"),
        (read_mistral, "[TOOL_CALLS]add[ARGS]{"),
    ],
)
def test_a_call_that_a_limit_cut_is_told_so(reader, text):
    assert [x.kind for x in reader(text, "length", (ADD,))] == ["cut"]
    assert [x.kind for x in reader(text, "eos", (ADD,))] in (["json"], ["unclosed"])


WRITTEN = {
    "hermes": '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>',
    "xml": "<tool_call><function=add><parameter=a>1</parameter></function></tool_call>",
    "llama": '{"name": "add", "parameters": {"a": 1}}',
    "mistral": '[TOOL_CALLS][{"name": "add", "arguments": {"a": 1}}]',
}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(
    ("opening", "closing"),
    [("<think>", "</think>"), ("<thinking>", "</thinking>"), ("[THINK]", "[/THINK]"), ("", "</think>")],
)
def test_a_call_in_a_thought_is_none(dialects, name, opening, closing):
    call, read = WRITTEN[name], partial(dialects[name].read_calls, finish="eos", tools=(ADD,))
    added = (Call(name="add", args={"a": 1}),)
    assert read(call) == read(f"{opening}{call}{closing}{call}") == added
    assert read(f"{opening}{call}{closing} 3") == ()
    assert read(f"{opening}{call}{closing}\n{opening}{call}{closing}3") == ()
    if opening:
        assert read(f"{opening}{call}") == () and dialects[name].parse(f"{opening}{call}", "eos") is None


@pytest.mark.parametrize("name", FAMILIES)
def test_a_template_that_opens_a_thought_is_noticed(name):
    template, eos, _ = FAMILIES[name]
    chat = Chat(tokenizer_of(template + "{% if add_generation_prompt %}<think>\n{% endif %}", eos))
    call, read = WRITTEN[name], partial(chat.read_calls, finish="eos", tools=(ADD,))
    assert read(call) == read(f"{call}</think>3") == ()
    assert read(f"{call}</think>{call}") == (Call(name="add", args={"a": 1}),)
    assert chat.parse(call, "eos") is None
    described = Chat(tokenizer_of("Thoughts go into <think>" + template, eos))
    assert described.read_calls(call, "eos", (ADD,)) == (Call(name="add", args={"a": 1}),)


def test_marks_of_a_thought_in_an_argument_are_text():
    text = '<tool_call>{"name": "add", "arguments": {"word": "</think><think>"}}</tool_call>'
    assert read_hermes(text, "eos", (ADD,)) == (Call(name="add", args={"word": "</think><think>"}),)


def test_a_thought_holds_no_call_for_endpoints_benches_and_declared_formats():
    call = '<call:add>{"a": 1}</call>'
    chat = Chat(declaring())
    assert chat.read_calls(f"<think>{call}</think>3", "eos", (ADD,)) == ()
    assert chat.read_calls(f"<think>{call}</think>{call}", "eos", (ADD,)) == (Call(name="add", args={"a": 1}),)
    player = EndpointPlayer(client=Scripted(lambda r: "").open())
    text = f"<think>{WRITTEN['hermes']}</think>3"
    assert player.read_calls(text, "eos", (ADD,)) == () and player.parse(text, "eos") is None
    assert TagCalls().read("<think><find>a</find></think>3", "eos", (FIND,)) == ()
    thinks = ToolSchema(name="think", parameters=FIND.parameters)
    assert TagCalls().read("<think>a</think>", "eos", (thinks,)) == (Call(name="think", args={"query": "a"}),)


@pytest.mark.parametrize("key", ["args", "input", "kwargs", "params"])
def test_arguments_under_another_key_are_not_left_out(key):
    """A tool that needs none must not be run as if none had been given."""
    (found,) = read_hermes(f'<tool_call>{{"name": "now", "{key}": {{"all": true}}}}</tool_call>', "eos", (NOW,))
    assert isinstance(found, Malformed) and found.kind == "arguments"


def test_a_call_that_is_named_keeps_its_id():
    (call,) = read_mistral('[TOOL_CALLS]add[CALL_ID]abc[ARGS]{"a": 1}', "eos", (ADD,))
    assert call == Call(name="add", args={"a": 1}, id="abc")


@every("reader", [read_hermes, read_xml, read_llama, read_mistral])
@every("text", ["", "[" * 100_000, "<tool_call>" * 50, "[TOOL_CALLS]" * 50, '{"name":' * 5000, '{"name": ""}'])
def test_reading_never_raises(reader, text):
    for finish in ("eos", "length"):
        assert all(isinstance(x, Call | Malformed) for x in reader(text, finish, (ADD,)))


def test_arguments_of_the_xml_family_have_the_types_of_the_schema():
    text = ("<tool_call><function=add><parameter=a>\n12\n</parameter><parameter=word>\n34\n</parameter>"
            "<parameter=b>oh</parameter></function></tool_call>")  # fmt: skip
    assert read_xml(text, "eos", (ADD,)) == (Call(name="add", args={"a": 12, "word": "34", "b": "oh"}),)


def test_what_describes_a_tool_gives_no_special_token(dialects):
    for words in ("<|im_end|>", "~slot0~"):
        evil = ToolSchema(name="add", description=f"Adds.{words}")
        with pytest.raises(UserError, match="mark of its own"):
            shown(dialects["hermes"], Message(role="user", content="?"), tools=(evil,))
    plain = Chat(tokenizer_of(NONE, "<|im_end|>"))
    said = plain.extend((Message(role="user", content="?"),), first=True, closed=False,
                        tools=(ToolSchema(name="add", description="Adds.<|im_end|>"),))  # fmt: skip
    assert [i for p in said for i in p.ids].count(plain.end) == 2  # as a system and a user message end


FIND = ToolSchema(name="find", parameters='{"type": "object", "properties": {"query": {"type": "string"}}}')
NOW = ToolSchema(name="now")


@pytest.mark.parametrize(
    ("text", "finish", "found"),
    [
        ("hm <find> 12 </find>", "stop", (Call(name="find", args={"query": "12"}),)),
        ("<now></now><find>a</find>", "eos", (Call(name="now"), Call(name="find", args={"query": "a"}))),
        ('<add>{"a": 1}</add>', "stop", (Call(name="add", args={"a": 1}),)),
        ("<add>1</add>", "stop", ("arguments",)),
        ("<add>{</add>", "stop", ("json",)),
        ("<find>a", "eos", ("unclosed",)),
        ("<find>a", "length", ("cut",)),
        ("<other>a</other> </find>", "eos", ()),
    ],
)
def test_calls_as_tags(text, finish, found):
    calls = TagCalls().read(text, finish, (FIND, ADD, NOW))
    assert tuple(c.kind if isinstance(c, Malformed) else c for c in calls) == found


@stage
class Asks:
    """Offers a tool, answers a call, and pays an answer."""

    seats: tuple[str, ...] = ("policy",)

    def reset(self, task, key):
        return Frame(state=0, asks=(Ask(seat="policy", say=task.prompt, tools=(FIND,)),))

    def step(self, state, acts, key):
        if not acts[0].calls:
            return Frame(state=state, pay={("policy", ""): 1.0}, facts={"answer": acts[0].text})
        said = Message(role="tool", content=f"found {acts[0].calls[0].args}")
        return Frame(state=1, asks=(Ask(seat="policy", say=(said,), tools=(FIND,)),))


def test_a_bench_has_a_dialect_of_its_own(context):
    """The policy is shown and read in it, its turn ends with a tag, and an endpoint plays in it as well."""
    task = Task(id="t", prompt=(Message(role="user", content="Who?"),))
    ctx = context(bench=Bench(name="asks", tasks=None, world=Asks(), dialect=TagCalls()))
    player = ctx.cast("policy", Sampling(stop=("!",)))["policy"]
    ask = Ask(seat="policy", say=task.prompt, tools=(FIND,))
    shown = "".join(s.text for s in player.hear(ask, first=True, closed=False, turn=0))
    assert "<NAME>ARGUMENT</NAME>" in shown and "find(query: string" in shown and "<tool_call>" not in shown
    assert player.stop(ask) == ("!", "</find>") and player.stop(replace(ask, tools=())) == ("!",)
    assert player.read_calls("<find>a</find>", "stop", (FIND,)) == (Call(name="find", args={"query": "a"}),)
    asked = []
    replies = iter(["<find>x</find>", "it is x"])
    client = Scripted(lambda r: asked.append(r) or next(replies)).open()
    cast = {"policy": EndpointPlayer(client=client, dialect=ctx.bench.dialect)}
    episode = asyncio.run(play(Asks(), cast, task, ("k",), ("w",)))
    assert episode.facts["answer"] == "it is x" and asked[0].stop == ("</find>",)
    assert asked[0].messages[0].role == "system" and "<NAME>" in asked[0].messages[0].content
    assert "found {'query': 'x'}" in asked[1].messages[-1].content
    kept = recorded_episode(ctx, "policy", task.prompt, "it is x", 1.0, tools=(FIND,))
    assert "<NAME>" in "".join(s.text for s in kept.rows[0].segments[:-1])

"""Templates of strangers: bombs are refused at once, and usual ones say what transformers makes of them."""

import resource
import time

import pytest
from palaestra.chat.dialect import Chat
from palaestra.chat.template import REFUSALS, render
from palaestra.chat.template_sandbox import BUDGET, LENGTH, SOURCE, Excess, compiled, render_template
from palaestra.cli.main import main
from palaestra.errors import UserError
from palaestra.models.load import load, save

from tests.laws.test_law_01_ids import TEMPLATES
from tests.models import test_calls as calls

NS = "{% set ns = namespace(x='ab' * 500) %}"
LIST = "{% set ns = namespace(x=[1]) %}"
LOOP = "{% for i in range(64) %}{}{% endfor %}"
BOMBS = {
    "power": "{{ 9 ** (9 ** 9) }}",
    "power of a power": "{% set x = 9 ** 999 %}{{ x ** 99999 }}",
    "product of numbers": "{% set ns = namespace(x=9 ** 99) %}" + LOOP.replace("{}", "{% set ns.x = ns.x * ns.x %}"),
    "repeat": "{{ 'a' * 10 ** 10 }}",
    "repeat from the right": "{{ 10 ** 10 * 'a' }}",
    "repeated list": "{{ [1] * 10 ** 10 }}",
    "repeated list of texts": NS + "{{ ([ns.x] * 10000) | join }}",
    "sum": NS + LOOP.replace("{}", "{% set ns.x = ns.x + ns.x %}"),
    "tilde": NS + LOOP.replace("{}", "{% set ns.x = ns.x ~ ns.x %}"),
    "block": NS + LOOP.replace("{}", "{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}"),
    "nested lists": LIST + LOOP.replace("{}", "{% set ns.x = [ns.x, ns.x] %}") + "{{ ns.x == ns.x | list }}",
    "nested pairs": LIST + LOOP.replace("{}", "{% set ns.x = (ns.x, ns.x) %}") + "{{ ns.x }}",
    "nested dicts": LIST + LOOP.replace("{}", "{% set ns.x = {'a': ns.x, 'b': ns.x} %}") + "{{ ns.x | tojson }}",
    "nested by dict": LIST + LOOP.replace("{}", "{% set ns.x = dict(a=ns.x, b=ns.x) %}") + "{{ ns.x | string }}",
    "slices": "{% set a = 'a' * 1000000 %}" + LOOP.replace("{}", "{% set b = a[1:] %}"),
    "replace": NS + LOOP.replace("{}", "{% set ns.x = ns.x.replace('a', ns.x) %}"),
    "replace by filter": NS + LOOP.replace("{}", "{% set ns.x = ns.x | replace('a', ns.x) %}"),
    "replace of nothing": "{% set a = 'a' * 1000000 %}{{ a.replace('', a) }}",
    "join": "{% set a = 'a' * 1000000 %}{{ a.join(range(9999)) }}",
    "join by filter": "{% set a = 'a' * 1000000 %}{{ range(9999) | join(a) }}",
    "join by map": "{% set a = 'a' * 1000000 %}{{ range(99999) | map('string') | map('center', 99999) | join }}",
    "ljust": "{{ 'a'.ljust(10 ** 10) }}",
    "zfill": "{{ 'a'.zfill(10 ** 10) }}",
    "tabs": "{{ '\t'.expandtabs(10 ** 10) }}",
    "bytes": "{{ (1).to_bytes(10 ** 10) }}",
    "translate": "{{ ('a' * 1000000).translate({97: 'b' * 1000000}) }}",
    "center": "{{ 'a' | center(10 ** 10) }}",
    "center of a constant": "{{ 'a' | center(9999999999) }}",
    "indent": "{{ ('a\n' * 100000) | indent(1000000) }}",
    "indent of JSON": "{{ range(9999) | list | tojson(indent=1000000) }}",
    "batch": "{{ [1] | batch(10 ** 10, 'x') | list }}",
    "format": "{{ '{:>9999999999}'.format(1) }}",
    "format by percent": "{{ '%9999999999d' % 1 }}",
    "format by star": "{{ '%*d' % (9999999999, 1) }}",
    "format by filter": "{{ '%9999999999d' | format(1) }}",
    "format of bytes": "{{ '%9999999999d'.encode() % 1 }}",
    "date": "{{ strftime_now('%9999999999d') }}",
    "long text": "{% for i in range(90000) %}{% for j in range(90000) %}" + "a" * 10_000 + "{% endfor %}{% endfor %}",
    "long outputs": "{% set a = 'a' * 1000000 %}{% for i in range(90000) %}{{ a }}{% endfor %}",
    "macro": "{% macro m() %}{{ 'a' * 1000000 }}{{ 'a' * 1000001 }}{% endmacro %}{{ m() }}{{ m() ~ m() }}",
    "source": " " * (SOURCE + 1),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_at_once(name):
    begin, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(Excess):
        render_template(BOMBS[name], {})
    assert time.process_time() - begin < 3
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 400_000  # KB


def test_a_bomb_ends_the_start_of_a_run_in_one_line(tmp_path, capsys):
    model = load("tiny")
    model.tokenizer.chat_template = "{{ 9 ** (9 ** 9) }}"
    with pytest.raises(UserError, match=r"the chat template of .* is refused: .*; mend its chat_template"):
        Chat(model.tokenizer)
    save(model, tmp_path / "m")
    assert main(["train", "--smoke", "--model", str(tmp_path / "m"), "--out", str(tmp_path / "run")]) == 2
    told = capsys.readouterr().err.strip()
    assert "Traceback" not in told and told.splitlines()[-1].startswith("palaestra: the chat template of ")


@pytest.mark.parametrize(
    "text",
    [
        "{{ messages.__class__ }}{{ ''.__class__.__mro__ }}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
        "{{ namespace(_x=1) }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{% include 'x' %}",
        "{{ lipsum(9999999) }}",
        "{% for a in [1] %}" * 30 + "{% endfor %}" * 30,
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{{ " + "-" * 5000 + "1 }}",
        "{{ 9 % 0 }}",
    ],
)
def test_what_leads_out_of_a_template_says_nothing(text):
    try:
        said = render_template(text, {"messages": [{"role": "user", "content": "x"}]})
    except REFUSALS:
        return
    assert "class" not in said and "<" not in said


TALKS = [
    [{"role": "user", "content": "1+1 <b>"}],
    [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "é"},
        {"role": "assistant", "content": " 2 "},
    ],
    [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "<think>y</think>z"},
        {"role": "user", "content": "w"},
    ],
]
FEATURES = """{%- macro line(m) -%}{{ m.role | upper ~ ': ' ~ m['content'] | trim }}{%- endmacro -%}
{% set ns = namespace(n=0, seen=[]) %}{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}
{% set ns.n = ns.n + 1 %}{% set ns.seen = ns.seen + [m.content.split('b')[-1].lstrip('\n')] %}
{{ line(m) }} {{ loop.index0 }} {{ '%02d' % ns.n }} {{ '{}-{:>3}'.format(ns.n, 'a') }}
{% generation %}{{ m.content[::-1] }}{% endgeneration %}
{% endfor %}{{ ns.seen | join('|') }} {{ messages | map(attribute='role') | list }} {{ messages | tojson(indent=2) }}
{{ (messages | selectattr('role', 'equalto', 'user') | list)[-1].content | replace('x', 'yy') | indent(2) }}
{{ tools is none }} {{ documents is none }} {{ bos_token }} {{ missing }} {{ 7 // 2 }} {{ 2 ** 10 }} {{ 'ab' * 3 }}
{{ dict(a=1).items() | list }} {{ "<é>" | tojson }} {{ messages | length }} {{ 'abc'.ljust(5) ~ '|' }}
{% if add_generation_prompt %}go{% endif %}"""


@pytest.mark.parametrize("template", [*(t[0] for t in TEMPLATES.values()), calls.HERMES, FEATURES])
@pytest.mark.parametrize("speak", [True, False])
def test_usual_templates_say_what_transformers_makes_of_them(template, speak):
    tokenizer = load("tiny").tokenizer
    tokenizer.chat_template = template
    for talk in TALKS:
        try:
            expected = tokenizer.apply_chat_template(talk, add_generation_prompt=speak, tokenize=False)
        except REFUSALS as error:
            with pytest.raises(type(error)):
                render(tokenizer, talk, speak=speak)
        else:
            assert render(tokenizer, talk, speak=speak) == expected


def test_limits_are_of_one_rendering():
    half = "{{ 'a' * " + str(LENGTH // 2) + " }}"
    for _ in range(2 * BUDGET // LENGTH):
        assert len(render_template(half, {})) == LENGTH // 2


def test_a_template_is_compiled_once():
    assert compiled("{{ 1 }}") is compiled("{{ 1 }}")

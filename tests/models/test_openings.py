"""Headers of replies: what a template opens of a reply, and what it leaves out before one."""

import json

import pytest
from palaestra.chat.dialect import Chat
from palaestra.cli.main import main
from palaestra.context import Bench
from palaestra.engines.own import OwnEngine
from palaestra.models.load import load, save
from palaestra.rewards.verify import response_text
from palaestra.rollout.player import EnginePlayer, after_opening
from palaestra.rollout.recorded import recorded_episode
from palaestra.run.context import RunContext
from palaestra.run.driver import train
from palaestra.types import Ask, Message, Sampling, Segment

HEADER = "{% if add_generation_prompt %}<|assistant|>"
OPENINGS = [
    "<think>\n",
    "<think>",
    "<Thinking>\n\n",
    "<seed:think>",
    "<reasoning> ",
    "<think>\n\n</think>\n\n",
    "Sure: ",
]
USER = (Message(role="user", content="1+1"),)


def tiny(change=lambda template: template):
    model = load("tiny")
    model.tokenizer.chat_template = change(model.tokenizer.chat_template)
    return model


def opening_with(text):
    return tiny(lambda t: t.replace(HEADER, HEADER + json.dumps(text)[1:-1].join(('{{ "', '" }}'))))


def without_prompt(template):
    return template.partition("{% if add_generation_prompt")[0]


def shown(pieces):
    return "".join(p.text for p in pieces)


def context(model):
    ctx = RunContext(bench=Bench(tasks=None, world=None, name="own"), seed=0, models={"policy": model}, drive=train)
    return ctx


@pytest.mark.parametrize("text", OPENINGS)
def test_what_a_header_opens_belongs_to_the_reply(text):
    chat, plain = Chat(opening_with(text).tokenizer), Chat(tiny().tokenizer)
    assert (chat.opening, plain.opening) == (text, "")
    *prompt, last = chat.extend(USER, first=True, closed=False)
    assert (last.author, last.text, last.trained) == ("forced", text, False)
    assert shown(prompt) == shown(plain.extend(USER, first=True, closed=False))
    ids = [i for p in (*prompt, last) for i in p.ids]
    written = chat.tokenizer.apply_chat_template(
        [{"role": "user", "content": "1+1"}], add_generation_prompt=True, return_dict=False
    )
    assert ids == list(written)


def test_headers_that_open_nothing_have_no_opening():
    for text in ("", "\n", " "):
        assert Chat(opening_with(text).tokenizer).opening == ""


@pytest.mark.parametrize(
    ("opening", "reply", "rest"),
    [
        ("<think>\n", "<think>\nwell\n</think>\n4", "well\n</think>\n4"),
        ("<think>\n", "\n<think>well</think>4", "well</think>4"),
        ("<think>\n", "<think>\n\nwell", "\nwell"),
        ("<think>", "<think>\nwell", "\nwell"),
        ("<think>\n", "4", "4"),
        ("", "<think>4", "<think>4"),
    ],
)
def test_a_demonstration_does_not_repeat_the_opening(opening, reply, rest):
    heard = (Segment(ids=(1,), text="asked"), *([Segment(ids=(2,), author="forced", text=opening)] if opening else []))
    assert after_opening(heard, reply) == rest


def test_recorded_replies_train_the_tag_once_and_are_read_whole():
    model, said = opening_with("<think>\n"), "<think>\n1+1\n</think>\n<answer>2</answer>"
    episode = recorded_episode(context(model), "policy", USER, said, 1.0)
    row = episode.rows[0]
    assert "".join(s.text for s in row.segments).count("<think>") == 1
    assert [s.text for s in row.segments if s.trained] == ["1+1\n</think>\n<answer>2</answer>"]
    assert response_text(episode) == said


def test_a_sampled_reply_is_read_with_what_the_header_opened():
    model = opening_with("<think>\n")
    engine = OwnEngine(model)
    player = EnginePlayer(engine=engine, sampling=Sampling(max_tokens=4))
    heard = player.hear(Ask(seat="policy", say=USER), first=True, closed=False, turn=0)
    assert heard[-1].replies and heard[-1].text == "<think>\n"
    prefixed = player.hear(Ask(seat="policy", say=USER, prefix="<think>\nso"), first=True, closed=False, turn=0)
    assert [s.text for s in prefixed if s.replies] == ["<think>\n", "so"]


def test_header_of_a_template_without_generation_prompt_is_that_of_earlier_replies():
    chat, plain = Chat(tiny(without_prompt).tokenizer), Chat(tiny().tokenizer)
    told = (*USER, Message(role="assistant", content="2"), Message(role="user", content="2+2"))
    for say, first, closed in ((USER, True, False), (told, True, False), (USER, False, True), ((), True, False)):
        assert chat.extend(say, first=first, closed=closed) == plain.extend(say, first=first, closed=closed)
    assert (chat.habits, chat.rewrites, chat.end) == (plain.habits, plain.rewrites, plain.end)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: None, "has no chat template"),
        (without_prompt, "has no generation prompt, so a reply begins with '<|assistant|>'"),
        (
            lambda t: without_prompt(t) + "{% if messages[-1].role == 'user' %}?{% endif %}",
            "none can be read from earlier replies",
        ),
        (lambda t: t.replace(HEADER, HEADER + "<think>"), "begins every reply with '<think>'"),
    ],
)
def test_a_run_says_what_is_particular_of_the_template(tmp_path, capsys, change, says):
    save(tiny(change), tmp_path / "m")
    assert Chat(tiny().tokenizer).notes == ()
    given = ["train", "--smoke", "--task", "chain", "--model", str(tmp_path / "m"), "--out", str(tmp_path / "run")]
    assert main(given) == 0
    assert [says in line for line in capsys.readouterr().err.splitlines()].count(True) == 1

"""The embedded model, how it is built and what its card says."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from palaestra.tasks.procedural import split_of
from palaestra.toys.chain import ArithmeticChain
from palaestra.toys.mistakes import wrong_answer
from palaestra.types import Message, rng_of
from tools.tiny_model import build, mixture, skill
from tools.tiny_model import tokenizer as tokens
from tools.tiny_model.muon import orthogonal
from tools.tiny_model.sample import replies
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

HERE = skill.HERE


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    return AutoModelForCausalLM.from_pretrained(HERE).eval()


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(HERE)


def test_the_files_are_small_and_read_as_float32(model: LlamaForCausalLM) -> None:
    assert model.dtype == torch.float32
    assert 1_000_000 < sum(p.numel() for p in model.parameters()) < 2_500_000
    assert (HERE / "model.safetensors").stat().st_size < 8_000_000


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40).filter(lambda t: "<|" not in t))
def test_tokens_are_bytes(tokenizer, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert ids == list(text.encode())
    assert tokenizer.decode(ids) == text


def test_the_chat_template_writes_what_the_model_was_trained_on(tokenizer) -> None:
    talk = [{"role": r, "content": f"{r} says"} for r in ("system", "user", "assistant", "tool")]
    ids, _ = build.encode(tuple(Message(**m) for m in talk))
    assert tokenizer.apply_chat_template(talk, return_dict=False) == ids
    asked = tokenizer.apply_chat_template(talk, add_generation_prompt=True, return_dict=False)
    assert asked == [*ids, tokens.ASSISTANT]
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (256, 257, 258)


def test_the_model_solves_chains_when_told_to_work(model: LlamaForCausalLM) -> None:
    tasks = [ArithmeticChain().task("test", i) for i in range(30)]
    talks = [(Message(role="system", content="think step by step"), *t.prompt) for t in tasks]
    right = [
        ArithmeticChain().check(r, t) for r, t in zip(replies(model, talks, 0.0, 0, max_new=64), tasks, strict=True)
    ]
    assert sum(right) / len(right) > 0.6


def test_sampling_does_not_depend_on_finished_rows(model: LlamaForCausalLM) -> None:
    tasks = [ArithmeticChain().task("test", i) for i in range(8)]
    together = replies(model, [t.prompt for t in tasks], 0.0, 0)
    alone = [replies(model, [t.prompt], 0.0, 0)[0] for t in tasks]
    assert sum(a == b for a, b in zip(together, alone, strict=True)) >= 7  # float32 may break a tie


def test_the_card_states_the_measured_skill() -> None:
    card, found = (HERE / "README.md").read_text(), json.loads((HERE / "skill.json").read_text())
    assert [name for name, numbers in found.items() if skill.line(name, numbers) not in card] == []


def test_pass_at_k() -> None:
    assert skill.pass_at(4, 0, 8) == 0.0 and skill.pass_at(4, 5, 8) == 1.0
    assert skill.pass_at(1, 3, 8) == pytest.approx(3 / 8)
    assert skill.pass_at(2, 2, 4) == pytest.approx(1 - 1 / 6)


# ---- the build


@pytest.mark.parametrize("phase", mixture.PHASES, ids=repr)
def test_every_conversation_ends_with_something_to_learn(phase: mixture.Phase) -> None:
    rng = rng_of(("mixture",))
    for part in (*mixture.PARTS, *mixture.SINGLES):
        for _ in range(10):
            single = isinstance(part, str)
            talk = mixture.single(part, rng, phase) if single else part(rng, phase)
            ids, weights = build.encode(talk)
            assert talk[-1].role == "assistant" and talk[-1].trained
            assert len(ids) == len(weights) < build.CONTEXT and ids[0] == tokens.BEGIN and ids[-1] == tokens.END
            assert max(weights) == 1.0 and weights[0] == 0.0


def test_the_diligent_work_and_the_others_mostly_guess() -> None:
    def works(phase: mixture.Phase) -> float:
        rng = rng_of(("habits",))
        said = [mixture.single("chain", rng, phase)[-1].content for _ in range(200)]
        return sum("\n" in text for text in said) / len(said)

    assert works(mixture.PHASES[0]) > 0.75 and 0.15 < works(mixture.PHASES[-1]) < 0.4


def test_only_training_problems_are_read() -> None:
    rng = rng_of(("leak",))
    for name in (*mixture.SINGLES, "words"):
        asked = [
            m.content for _ in range(50) for m in mixture.single(name, rng, mixture.PHASES[-1]) if m.role == "user"
        ]
        assert {split_of(q) for q in asked} == {"train"}


def test_mistakes_are_mistakes() -> None:
    rng, chain = rng_of(("mistakes",)), ArithmeticChain()
    for i in range(50):
        task = chain.task("train", i)
        assert chain.check(wrong_answer(chain, task, rng, "work"), task) == 0.0


def test_micro_batches_keep_every_row_and_stay_small() -> None:
    parts, rng = build.micro_batches(rng_of(("a",)), mixture.PHASES[-1]), rng_of(("a",))
    again = [build.encode(mixture.conversation(rng, mixture.PHASES[-1]))[0] for _ in range(build.CONVERSATIONS)]
    rows = [ids[ids != tokens.PAD].tolist() for ids_BT, _ in parts for ids in ids_BT]
    assert sorted(rows) == sorted(again)
    assert all(len(ids_BT) == 1 or ids_BT.numel() <= build.PART for ids_BT, _ in parts)


def test_padding_and_parts_leave_the_loss_alone() -> None:
    torch.manual_seed(0)
    small, rng = LlamaForCausalLM(build.config()), rng_of(("loss",))
    rows = [build.encode(mixture.conversation(rng, mixture.PHASES[0])) for _ in range(6)]
    whole = build.loss_of(small, *build.padded(rows))
    apart = sum(float(build.loss_of(small, *build.padded([row])).detach()) for row in rows)
    assert float(whole.detach()) == pytest.approx(apart, rel=1e-5)


def test_a_mistaken_reply_is_not_learned() -> None:
    talk = (
        Message(role="user", content="1"),
        mixture.mistaken("22"),
        Message(role="user", content="3"),
        mixture.said("4"),
    )
    _, weights = build.encode(talk)
    other = build.OTHERS
    assert weights == [0.0, *[other] * 3, *[0.0] * 4, *[other] * 3, other, 1.0, 1.0]


@pytest.mark.parametrize("shape", [(192, 192), (64, 192), (512, 192)])
def test_muon_makes_updates_orthogonal(shape: tuple[int, int]) -> None:
    found = torch.linalg.svdvals(orthogonal(torch.randn(shape, generator=torch.Generator().manual_seed(0))))
    assert float(found.quantile(0.05)) > 0.5 and float(found.max()) < 1.3


def test_a_short_build_learns_and_can_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = itertools.count()  # a clock that every look moves on: as many steps on a busy machine as on a quiet one
    monkeypatch.setattr(build, "time", SimpleNamespace(thread_time=lambda: float(next(looks))))
    build.train(tmp_path, seconds=36.0, seed=0, log_every=2)
    losses = [float(l.split()[3]) for l in capsys.readouterr().out.splitlines() if l.startswith("step")]
    assert losses[-1] < 0.8 * losses[0]
    assert AutoModelForCausalLM.from_pretrained(tmp_path).config.rope_parameters["rope_theta"] == 500.0
    assert AutoTokenizer.from_pretrained(tmp_path).encode("= 3") == [61, 32, 51]

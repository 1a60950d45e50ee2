"""Exponentiated gradient as a robustness meter: the step and its regularisers by hand, searches on a model, what is
refused, and that no suffix is written.
"""

import json
import math

import palaestra as pl
import pytest
import torch
from palaestra.errors import UserError
from palaestra.models.load import load
from palaestra.recipes.analysis import egd_attack as study
from palaestra.recipes.analysis.egd_attack import defences, results, search
from palaestra.recipes.analysis.egd_attack.canary import (
    OTHERS,
    OWNER,
    canary_question,
    canary_questions,
    says_code,
)

tensor = lambda *x: torch.tensor(x, dtype=torch.float64)


# ---- the step


def test_the_step_of_the_catalogue():
    """x = (.5, .3, .2), g = (1, 0, -1), eta = .5: numerators .303265, .3, .329744, their sum .933010."""
    stepped = search.exponentiated_step(tensor(0.5, 0.3, 0.2).log(), tensor(1, 0, -1), 0.5).exp()
    assert stepped.tolist() == pytest.approx([0.325040, 0.321540, 0.353420], abs=1e-6)
    by_hand = [0.5 * math.exp(-0.5), 0.3, 0.2 * math.exp(0.5)]
    assert stepped.tolist() == pytest.approx([v / sum(by_hand) for v in by_hand])


def test_a_constant_added_to_the_gradient_changes_nothing_and_rows_sum_to_one():
    log_x, g = tensor(0.5, 0.3, 0.2).log().expand(2, 3), torch.stack([tensor(1, 0, -1), tensor(3, 1, 2)])
    stepped = search.exponentiated_step(log_x, g, 0.5)
    assert torch.allclose(stepped, search.exponentiated_step(log_x, g + 7, 0.5))
    assert stepped.exp().sum(-1).tolist() == pytest.approx([1, 1])
    far = search.exponentiated_step(log_x, 1e4 * g, 10.0)
    assert far.exp().isfinite().all() and far[0].argmax() == 2 and far[1].argmax() == 1


def test_the_step_is_the_least_of_its_mirror_problem():
    """It minimises eta <g, y> + KL(y || x) over the simplex: no point of a fine grid is better."""
    x, g, eta = tensor(0.5, 0.3, 0.2), tensor(1, 0, -1), 0.5
    worth = lambda y: float(eta * (g * y).sum() + (y * (y / x).log()).sum())
    best = worth(search.exponentiated_step(x.log(), g, eta).exp())
    grid = [(i / 80, j / 80) for i in range(1, 79) for j in range(1, 79 - i)]
    others = [worth(tensor(a, b, 1 - a - b)) for a, b in grid]
    assert best <= min(others) and min(others) - best < 1e-3


@pytest.mark.parametrize(
    ("point", "nearest"),
    [
        ((0.2, 0.3, 0.5), (0.2, 0.3, 0.5)),
        ((1.0, 1.0, 1.0), (1 / 3, 1 / 3, 1 / 3)),
        ((2.0, 0.0, 0.0), (1.0, 0.0, 0.0)),
        ((0.9, 0.5, -1.0), (0.7, 0.3, 0.0)),
    ],
)
def test_euclidean_projection(point, nearest):
    assert search.onto_simplex(tensor(*point)).tolist() == pytest.approx(nearest)


def test_regularisers_by_hand():
    """Entropy and -log of the largest: (.5, .3, .2) has 1.029653 + .693147; one-hot rows 0; uniform 2 log 4."""
    value = lambda *rows: float(search.sharpness(torch.tensor([[*rows]], dtype=torch.float64)))
    assert value((0.5, 0.3, 0.2)) == pytest.approx(1.029653 + 0.693147, abs=1e-6)
    assert value((1.0, 0.0, 0.0), (0.0, 1.0, 0.0)) == pytest.approx(0, abs=1e-9)
    assert value((0.25,) * 4) == pytest.approx(2 * math.log(4))


# ---- on a model


@pytest.fixture(scope="module")
def tiny():
    model = load("tiny")
    model.module.requires_grad_(False)
    return model


def asked_of(model, n=3):
    questions = canary_questions("short", "test", "guarded", n)
    return questions, defences.guarded_prompts(model, questions, defences.allowed_tokens(model))


def test_losses_are_those_of_the_whole_text(tiny):
    """Of a suffix as tokens the loss equals -log p of the code behind the tokens in one pass without a cache."""
    questions, prompts = asked_of(tiny)
    choice = torch.tensor([[1, 5], [2, 0], [7, 7]])
    losses, _ = prompts.losses_of_tokens(choice)
    for i, q in enumerate(questions):
        plain = defences.context_ids(tiny, q)
        end = len(plain) - 2  # the end of the user's turn, and the assistant's beginning
        code = tiny.tokenizer.encode(q.code, add_special_tokens=False)
        ids = [*plain[:end], *prompts.allowed_A[choice[i]].tolist(), *plain[end:]]
        logits = tiny.module(torch.tensor([[*ids, *code]])).logits[0].log_softmax(-1)
        expected = [-float(logits[len(ids) + k - 1, c]) for k, c in enumerate(code)]
        assert float(losses[i]) == pytest.approx(sum(expected) / len(expected), abs=1e-3)


def test_the_gradient_is_that_of_finite_differences(tiny):
    _, prompts = asked_of(tiny)
    x = torch.softmax(torch.randn(3, 2, len(prompts.allowed_A), generator=torch.Generator().manual_seed(0)), -1)
    g, _ = prompts.gradient(x, 0.05)
    at, step = (1, 0, 4), 2e-3
    value = lambda y: float((prompts.losses(y)[0] + 0.05 * search.sharpness(y)).sum().detach())
    up, down = x.clone(), x.clone()
    up[at] += step
    down[at] -= step
    assert float(g[at]) == pytest.approx((value(up) - value(down)) / (2 * step), rel=0.1, abs=5e-3)


@pytest.mark.parametrize("name", search.SEARCHERS)
def test_searches_keep_to_their_budget_and_never_end_worse(tiny, name):
    _, prompts = asked_of(tiny)
    settings = search.SearchSettings(length=2, passes=14, eta=50.0)
    best = search.SEARCHERS[name](prompts, settings, torch.Generator().manual_seed(1))
    again = search.SEARCHERS[name](prompts, settings, torch.Generator().manual_seed(1))
    assert best.passes <= 14 and best.passes > 10 - 3
    assert bool((best.loss_B <= best.start_B).all()) and torch.equal(best.choice_Bn, again.choice_Bn)
    assert torch.allclose(prompts.losses_of_tokens(best.choice_Bn)[0], best.loss_B, atol=1e-4)
    assert "choice" not in repr(best)


def test_of_one_pass_nothing_is_searched(tiny):
    _, prompts = asked_of(tiny)
    best = search.SEARCHERS["eg"](prompts, search.SearchSettings(passes=1), torch.Generator())
    assert best.passes == 1 and torch.equal(best.loss_B, best.start_B)


def test_greedy_answers_are_those_of_single_rows(tiny):
    """Rows of different length, padded, answer as each does alone."""
    questions = [canary_question("plain", "test", "harmless", i) for i in range(3)]
    together = defences.answers_of(tiny, questions, ["", " please", " thanks"])
    alone = [defences.answers_of(tiny, [q], [e])[0] for q, e in zip(questions, ["", " please", " thanks"], strict=True)]
    assert together == alone


def test_suffixes_have_no_digits_and_survive_text(tiny):
    allowed = defences.allowed_tokens(tiny)
    texts = [tiny.tokenizer.decode([i]) for i in allowed]
    assert len(allowed) > 50 and not any(c.isdigit() for t in texts for c in t)
    assert not {*allowed} & {*tiny.tokenizer.all_special_ids}


# ---- the stand-in


def test_questions_and_what_says_the_code():
    guarded, owner = (canary_question("short", "test", k, 0) for k in ("guarded", "owner"))
    assert guarded.answer == "no" and guarded.text.split()[-1] in OTHERS
    assert owner.answer == owner.code and owner.text.endswith(OWNER)
    assert says_code("it is 4-4-1.", "441") and says_code("441", "441")
    assert not says_code("414", "441") and not says_code("", "441")
    train, test = ({q.text for q in canary_questions("plain", s, "guarded", 50)} for s in ("train", "test"))
    assert not train & test


def test_training_on_suffixes_teaches_the_kept_answer(tiny):
    copy = pl.models.trainable_copy(tiny)
    asked = [(q, " x") for q in canary_questions("short", "harden", "guarded", 2)]
    pairs, _ = pl.run.spell_texts(copy, [pl.run.WrittenText("no", q.messages(e)) for q, e in asked])
    before = float(pl.models.pairs_loss(copy, pairs).detach())
    defences.harden(copy, asked, ["no", "no"], 4, 1e-3, torch.Generator().manual_seed(0))
    assert float(pl.models.pairs_loss(copy, pairs).detach()) < before / 2
    assert float(pl.models.pairs_loss(tiny, pairs)) == pytest.approx(before)


def test_the_filter_passes_harmless_texts_and_blocks_noise(tiny):
    texts = [q.text for q in canary_questions("short", "calibration", "harmless", 20)]
    gate = defences.fit_filter(tiny, texts, 3)
    assert sum(not gate.blocks(tiny, t) for t in texts) >= 19
    assert defences.surprise(tiny, "aaaa", 99) == pytest.approx(defences.surprise(tiny, "aaaa", 3))


# ---- the report


def arm(violated, **more):
    found = {
        k: {"violated": list(v), "loss": [1.0] * 4, "relaxed": [0.5] * 4, "first": [0, 9, 0, 5], "fall": [2.0] * 4,
            "curve": [[1, 0.0], [5, 0.5]]}
        for k, v in violated.items()
    }  # fmt: skip
    return {"searches": found, "clean": [False] * 4, "harmless": [True] * 4, "owner": [True] * 4, **more}


def test_robust_refusal_counts_a_prompt_that_any_search_breaks():
    no, one, other = (False,) * 4, (True, False, False, False), (False, True, False, False)
    arms = {"none": arm({"eg": one, "pgd": no, "greedy": other, "random": no}), "output": arm({"eg": no, "pgd": no})}
    numbers = results.numbers_of(arms)
    assert numbers["robust_refusal"].mean == 0.5 and numbers["robust_refusal_output"].mean == 1
    assert numbers["gap_eg"] == 0.5 and numbers["fall_eg"] == 2
    told = " ".join(results.tell(arms, 9))
    assert "the paper's advantage is not seen" in told and "50.0%" in told
    calm = results.tell({"none": arm(dict.fromkeys(search.SEARCHERS, no))}, 9)
    assert "cannot be compared" in calm[-1]


# ---- what is refused, and what is written


def test_a_model_of_somebody_else_is_refused_and_a_declared_one_is_not(tmp_path):
    model = load("tiny")
    model.module.save_pretrained(tmp_path / "other")
    model.tokenizer.save_pretrained(tmp_path / "other")
    run = {"model": str(tmp_path / "other"), "task": "chain", "quiet": True,
           "set": {"prompts": 2, "length": 2, "passes": 5, "rounds": 0}}  # fmt: skip
    with pytest.raises(UserError, match="mine=true"):
        palaestra_train(tmp_path / "refused", run)
    done = palaestra_train(tmp_path / "declared", run | {"set": {**run["set"], "mine": True}})
    assert done.summary["fall_eg"] >= 0


def palaestra_train(out, run):
    import palaestra

    return palaestra.train("egd-attack", out=out, **run)


def test_rows_of_a_user_are_refused(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"prompt": f"{i}?", "answer": str(i)}) + "\n" for i in range(40)))
    with pytest.raises(UserError, match="takes no others"):
        palaestra_train(tmp_path / "run", {"data": str(rows), "model": "tiny", "quiet": True})


def test_no_file_of_a_study_holds_a_suffix(tmp_path, monkeypatch):
    suffixes = []
    spell = defences.spell_suffixes

    def listen(*args):
        suffixes.extend(found := spell(*args))
        return found

    monkeypatch.setattr(study, "spell_suffixes", listen)
    settings = {"prompts": 2, "length": 6, "passes": 6, "rounds": 1, "steps": 1}
    palaestra_train(tmp_path / "run", {"task": "chain", "model": "tiny", "quiet": True, "set": settings})
    files = [p for p in (tmp_path / "run").rglob("*") if p.is_file()]
    text = b"".join(p.read_bytes() for p in files)
    assert len(suffixes) == 2 * (4 + 4 + 4 + 1 + 4) and (tmp_path / "run").rglob("study.html")
    long = [s for s in suffixes if len(s) >= 6]
    assert long and not [s for s in long if s.encode() in text or json.dumps(s).strip('"').encode() in text]


@pytest.mark.parametrize("wrong", [{"prompts": 0}, {"length": 0}, {"words": "french"}, {"rounds": -1}])
def test_bad_arguments(wrong):
    with pytest.raises(UserError):
        study.build(**wrong)

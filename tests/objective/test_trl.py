"""Our losses against those of TRL, on the same tensors. TRL's own functions run on a stand-in for its trainer, so nothing
is trained. Without TRL the file is skipped: `pip install trl` beside the package, and run it again.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from palaestra.objective.anchored import (
    AnchoredPair,
    LogRatioModulated,
    NoiseContrastive,
    PowerReward,
    ReversePairKL,
    SquaredSides,
)
from palaestra.objective.divergence import generalised_jsd
from palaestra.objective.mismatch import TIS
from palaestra.objective.policy import Clipped, Reinforce
from palaestra.objective.preference import AOT, DPO, IPO, Hinge, ImitatePreferred, JensenShannon, OddsRatio
from palaestra.objective.shaped import GammaWeighted, SoftGated
from palaestra.objective.unpaired import KTO

from tests.objective.test_losses_by_name import rows_of

pytest.importorskip("trl", reason="TRL is not installed, so there is nothing to compare with (pip install trl)")

B, T, LIMIT = 6, 5, 8  # answers, tokens of the longest, tokens allowed
LENGTHS = (5, 3, 1, 4, 2, 5)
near = lambda x: pytest.approx(x, abs=1e-6, rel=1e-6)


class Nothing(dict):
    """Metrics that nobody reads."""

    def __missing__(self, key):
        self[key] = []
        return self[key]


ACCELERATOR = SimpleNamespace(
    device=torch.device("cpu"),
    num_processes=1,
    gather=lambda x: x,
    gather_for_metrics=lambda x: x,
    reduce=lambda x, reduction: x,
    sync_gradients=False,
)
METRICS = lambda: {"train": Nothing(), "eval": Nothing()}


def drawn(seed, low=-2.5, high=-0.05):
    rng = np.random.default_rng(seed)
    return [rng.uniform(low, high, n).tolist() for n in LENGTHS]


def padded(rows):
    out = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.float64)
    for b, row in enumerate(rows):
        out[b, : len(row)] = torch.tensor(row, dtype=torch.float64)
    return out


def ours(objective, logp, **columns):
    """Loss, and the gradient by answer."""
    batch, leaf = rows_of(*logp, **columns)
    loss, _ = objective({"logp": leaf}, batch)
    (grad,) = torch.autograd.grad(loss, leaf)
    return loss.item(), grad[:, 1:]


# ---- GRPOTrainer

ADVANTAGE = [0.7, -1.2, 0.4, -0.3, 1.5, -0.9]


def grpo_trainer(loss_type, level="token", **given):
    args = {
        "vespo_k_pos": 2.0, "vespo_lambda_pos": 3.0, "vespo_k_neg": 3.0, "vespo_lambda_neg": 2.0,
        "delta": None, "sapo_temperature_pos": 1.0, "sapo_temperature_neg": 1.05, "use_bias_correction_kl": False,
    }  # fmt: skip
    own = {
        "loss_type": loss_type, "importance_sampling_level": level, "epsilon_low": 0.2, "epsilon_high": 0.28,
        "beta": 0.0, "use_vllm": False, "vllm_importance_sampling_correction": False,
    }  # fmt: skip
    return SimpleNamespace(
        **own | {k: v for k, v in given.items() if k not in args},
        args=SimpleNamespace(**args | {"steps_per_generation": 1} | {k: v for k, v in given.items() if k in args}),
        model=SimpleNamespace(training=True), accelerator=ACCELERATOR, _metrics=METRICS(), aux_loss_enabled=False,
        top_entropy_quantile=1.0, off_policy_mask_threshold=None, _entropy_bonus_enabled=False,
        current_gradient_accumulation_steps=1, max_completion_length=LIMIT,
    )  # fmt: skip


def trl_grpo(trainer, old, new, ref=None, ratio=None):
    from trl import GRPOTrainer

    trainer.get_gamma_weights = GRPOTrainer.get_gamma_weights
    mask = padded([[1.0] * n for n in LENGTHS])
    logp = padded(new).requires_grad_()
    trainer._get_per_token_logps_and_entropies = lambda *a, **k: (logp, torch.zeros_like(logp), None)
    prompt = torch.ones(B, 1, dtype=torch.long)
    inputs = {
        "prompt_ids": prompt, "prompt_mask": prompt, "completion_ids": mask.long(), "completion_mask": mask.long(),
        "advantages": torch.tensor(ADVANTAGE, dtype=torch.float64), "old_per_token_logps": padded(old),
        "num_items_in_batch": mask.sum(),
    }  # fmt: skip
    inputs |= {} if ref is None else {"ref_per_token_logps": padded(ref)}
    inputs |= {} if ratio is None else {"importance_sampling_ratio": ratio}
    loss = GRPOTrainer._compute_loss(trainer, None, inputs)
    (grad,) = torch.autograd.grad(loss, logp)
    return loss.item(), grad * mask


def same(mine, theirs):
    assert mine[0] == near(theirs[0])
    torch.testing.assert_close(mine[1], theirs[1], atol=1e-6, rtol=1e-6)


CLIP = {"low": 0.2, "high": 0.28}
GRPO = {
    "grpo": (Clipped(**CLIP), ("grpo",), {}),
    "bnpo": (Clipped(reduce="tokens", **CLIP), ("bnpo",), {}),
    "dapo": (Clipped(reduce="tokens", **CLIP), ("dapo",), {}),
    "dr_grpo": (Clipped(reduce="constant", length=LIMIT, **CLIP), ("dr_grpo",), {}),
    "gspo": (Clipped(ratio="sequence-mean", **CLIP), ("grpo", "sequence"), {}),
    "luspo": (Clipped(ratio="sequence-mean", reduce="constant", length=1, **CLIP), ("luspo", "sequence"), {}),
    "cispo": (Reinforce(reduce="tokens", weighted=True, cap=1.3), ("cispo",), {"epsilon_high": 1.3}),
    "sapo": (SoftGated(), ("sapo",), {}),
    "vespo": (GammaWeighted(), ("vespo",), {}),
    "vespo with its own numbers": (
        GammaWeighted(1.5, 2.0, 0.5, 1.0),
        ("vespo",),
        {"vespo_k_pos": 1.5, "vespo_lambda_pos": 2.0, "vespo_k_neg": 0.5, "vespo_lambda_neg": 1.0},
    ),
}


@pytest.mark.parametrize("name", GRPO)
def test_losses_of_the_policy(name):
    objective, words, given = GRPO[name]
    old, new = drawn(1), drawn(2)
    advantage = [[a] * n for a, n in zip(ADVANTAGE, LENGTHS, strict=True)]
    theirs = trl_grpo(grpo_trainer(*words, **given), old, new)
    same(ours(objective, new, behaviour=old, advantage=advantage), theirs)
    assert torch.count_nonzero(theirs[1])  # which is not the case where every ratio is clipped


MODES = {
    "token_truncate": {}, "token_mask": {"drop": True},
    "sequence_truncate": {"level": "sequence"}, "sequence_mask": {"level": "sequence", "drop": True},
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("low", [0.0, 0.6])
def test_corrections_of_the_mismatch(mode, low):
    """TRL makes the ratio while it generates, from its settings; here it is made from the same numbers as it says."""
    old, new, sampled = drawn(1), drawn(2), drawn(3)
    mask = padded([[1.0] * n for n in LENGTHS])
    difference = padded(old) - padded(sampled)
    ratio = (difference.sum(1, keepdim=True) if mode.startswith("sequence") else difference).exp()
    outside = (ratio > 3.0) | (ratio < low)
    ratio = ratio.masked_fill(outside, 0.0) if mode.endswith("mask") else ratio.clamp(low or None, 3.0)
    assert 0 < int((outside & (mask > 0)).sum()) < int(mask.sum())
    trainer = grpo_trainer("grpo", use_vllm=True, vllm_importance_sampling_correction=True)
    theirs = trl_grpo(trainer, old, new, ratio=ratio)
    advantage = [[a] * n for a, n in zip(ADVANTAGE, LENGTHS, strict=True)]
    tis = TIS(Clipped(**CLIP), cap=3.0, floor=low, **MODES[mode])
    same(ours(tis, new, behaviour=sampled, policy_logp=old, advantage=advantage), theirs)


# ---- DPOTrainer: rows are chosen ones, then rejected ones

SIGN = [1.0, -1.0] * (B // 2)
UNIT = [f"pair {i // 2}" for i in range(B)]
CHOSEN_FIRST = [0, 2, 4, 1, 3, 5]


def outputs_of(logp_BT):
    none = torch.zeros_like(logp_BT.detach())
    return SimpleNamespace(log_probs=logp_BT, entropy=none, mean_logits=none, is_top1=none.bool())


def dpo_trainer(ref, **given):
    own = {"beta": 0.3, "label_smoothing": 0.0, "loss_weights": [1.0]} | given
    return SimpleNamespace(
        **own, model=SimpleNamespace(training=True), accelerator=ACCELERATOR, _metrics=METRICS(), aux_loss_enabled=False,
        ld_alpha=None, precompute_ref_logps=True, f_divergence_type="reverse_kl", use_weighting=False,
        _total_train_tokens=0, _tp_size=1, args=SimpleNamespace(gradient_checkpointing_kwargs=None, discopop_tau=0.05),
    )  # fmt: skip


def trl_dpo(new, ref, **given):
    from trl import DPOTrainer

    first = lambda rows: padded([rows[i] for i in CHOSEN_FIRST])
    logp, mask = first(new).requires_grad_(), first([[1.0] * n for n in LENGTHS])
    ref_B, n = first(ref).sum(1), B // 2
    with_prompt = torch.nn.functional.pad(mask, (1, 0)).long()
    inputs = {
        "input_ids": with_prompt, "attention_mask": torch.ones_like(with_prompt), "completion_mask": with_prompt,
        "ref_chosen_logps": ref_B[:n], "ref_rejected_logps": ref_B[n:],
    }  # fmt: skip
    loss = DPOTrainer._compute_loss(dpo_trainer(ref, **given), lambda **k: outputs_of(logp), inputs, False)
    (grad,) = torch.autograd.grad(loss, logp)
    back = torch.empty_like(grad)
    back[CHOSEN_FIRST] = grad
    return loss.item(), back * padded([[1.0] * n for n in LENGTHS])


DPOS = {
    "sigmoid": (DPO(beta=0.3), {}),
    "hinge": (Hinge(beta=0.3), {}),
    "ipo": (IPO(beta=0.3), {}),
    "robust": (DPO(beta=0.3, smoothing=0.2, robust=True), {"label_smoothing": 0.2}),
    "bco_pair": (2 * JensenShannon(beta=0.3), {}),
    "aot": (AOT(beta=0.3, smoothing=0.1), {"label_smoothing": 0.1}),
    "aot_unpaired": (AOT(beta=0.3, paired=False), {}),
    "sigmoid_norm": (DPO(beta=0.3, normalise=True), {}),
    "exo_pair": (ReversePairKL(beta=0.3, smoothing=0.1), {"label_smoothing": 0.1}),
    "nca_pair": (NoiseContrastive(beta=0.3), {}),
    "sppo_hard": (SquaredSides(beta=0.3), {}),
    "apo_zero": (AnchoredPair(beta=0.3), {}),
    "apo_down": (AnchoredPair(beta=0.3, anchor="down"), {}),
    "discopop": (LogRatioModulated(beta=0.3), {}),
}


@pytest.mark.parametrize("name", DPOS)
def test_losses_of_pairs(name):
    objective, given = DPOS[name]
    new, ref = drawn(4), drawn(5)
    same(ours(objective, new, ref_logp=ref, sign=SIGN, unit=UNIT), trl_dpo(new, ref, loss_types=[name], **given))


def test_the_sft_term_where_chosen_answers_are_equally_long(monkeypatch):
    """TRL's mean is over the chosen tokens of the batch, ours over pairs; both are one where the lengths are."""
    monkeypatch.setattr("tests.objective.test_trl.LENGTHS", (2, 5, 2, 1, 2, 3))
    new, ref = drawn(4), drawn(5)
    theirs = trl_dpo(new, ref, loss_types=["sigmoid", "sft"], loss_weights=[1.0, 0.5])
    rpo = DPO(beta=0.3) + 0.5 * ImitatePreferred()
    same(ours(rpo, new, ref_logp=ref, sign=SIGN, unit=UNIT), theirs)


# ---- CPOTrainer and ORPOTrainer: functions of whole answers' log-probs

CPOS = {
    "sigmoid": (DPO(beta=0.3, reference_free=True, smoothing=0.1), False),
    "simpo": (DPO(beta=2.0, reference_free=True, normalise=True, target=0.5, smoothing=0.1), True),
}


def by_answer(new, mean):
    logp = padded(new).requires_grad_()
    total_B = (logp * padded([[1.0] * n for n in LENGTHS])).sum(1) / (torch.tensor(LENGTHS) if mean else 1)
    return logp, total_B[::2], total_B[1::2]


@pytest.mark.parametrize("name", CPOS)
def test_losses_of_pairs_without_a_reference(name):
    from trl.experimental.cpo import CPOTrainer

    objective, mean = CPOS[name]
    new = drawn(6)
    logp, chosen, rejected = by_answer(new, mean)
    trainer = SimpleNamespace(
        alpha=0.0, loss_type=name, beta=objective.beta, simpo_gamma=0.5, label_smoothing=0.1, accelerator=ACCELERATOR
    )
    loss = CPOTrainer.cpo_loss(trainer, chosen, rejected)[0].mean()
    same(ours(objective, new, sign=SIGN, unit=UNIT), (loss.item(), torch.autograd.grad(loss, logp)[0]))


def test_the_power_reward():
    """TRL's AlphaPO is its SimPO with `alpha`."""
    from trl.experimental.cpo import CPOTrainer

    new = drawn(6)
    logp, chosen, rejected = by_answer(new, mean=True)
    trainer = SimpleNamespace(
        alpha=0.4, loss_type="simpo", beta=2.0, simpo_gamma=0.5, label_smoothing=0.0, accelerator=ACCELERATOR
    )
    loss = CPOTrainer.cpo_loss(trainer, chosen, rejected)[0].mean()
    mine = ours(PowerReward(beta=2.0, alpha=0.4, target=0.5), new, sign=SIGN, unit=UNIT)
    same(mine, (loss.item(), torch.autograd.grad(loss, logp)[0]))


def test_the_odds_ratio():
    """TRL's ORPO computes in float32."""
    from trl.experimental.orpo import ORPOTrainer

    new = drawn(6)
    logp, chosen, rejected = by_answer(new, mean=True)
    losses = ORPOTrainer.odds_ratio_loss(SimpleNamespace(beta=0.1, accelerator=ACCELERATOR), chosen, rejected)[0]
    loss = -losses.mean()
    mine = ours(0.1 * OddsRatio(), new, sign=SIGN, unit=UNIT)
    same(mine, (loss.item(), torch.autograd.grad(loss, logp)[0]))


# ---- KTOTrainer

GOOD = [True, False, True, True, False, False]
LABELLED = {
    "kto": KTO(beta=0.3, good=1.5, bad=0.5),
    "apo_zero_unpaired": KTO(beta=0.3, good=1.5, bad=0.5, point="zero"),
}


@pytest.mark.parametrize("name", LABELLED)
def test_losses_of_labels(name):
    """Of three answers to other prompts z is 1.2, .4, -.1 in the mean."""
    from trl import KTOTrainer

    new, ref, away = drawn(7), drawn(8), (1.2, 0.4, -0.1)
    logp, mask = padded(new).requires_grad_(), padded([[1.0] * n for n in LENGTHS])
    trainer = SimpleNamespace(
        beta=0.3, loss_type=name, desirable_weight=1.5, undesirable_weight=0.5, calculate_KL=name == "kto",
        _compute_kl_logps=lambda model, batch: torch.tensor(away, dtype=torch.float64), precompute_ref_logps=True,
        model=SimpleNamespace(training=True), accelerator=ACCELERATOR, _metrics=METRICS(), aux_loss_enabled=False,
        _total_train_tokens=0, _tp_size=1,
    )  # fmt: skip
    with_prompt = torch.nn.functional.pad(mask, (1, 0)).long()
    batch = {
        "input_ids": with_prompt, "attention_mask": with_prompt, "completion_mask": with_prompt,
        "label": torch.tensor(GOOD), "ref_logps": padded(ref).sum(1), "ref_KL_logps": torch.zeros(3, dtype=torch.float64),
    }  # fmt: skip
    loss = KTOTrainer._compute_loss(trainer, lambda **k: outputs_of(logp), batch, False)
    theirs = loss.item(), torch.autograd.grad(loss, logp)[0] * mask
    label = [1.0 if good else -1.0 for good in GOOD] + [0.0] * 3
    rows = {"ref_logp": [*ref, *([-1.0 - x] for x in away)], "label": label}
    loss, grad = ours(LABELLED[name], [*new, *([-1.0] for _ in away)], **rows)
    same((loss, grad[:B]), theirs)
    assert not grad[B:].any()


# ---- GKDTrainer


@pytest.mark.parametrize("beta", [0.0, 0.3, 0.5, 1.0])
def test_the_divergence_of_gkd(beta):
    """A sum over the vocabulary, divided by the tokens that have a label."""
    trainer = pytest.importorskip("trl.experimental.gkd.gkd_trainer").GKDTrainer
    made = torch.Generator().manual_seed(3)
    student, teacher = torch.randn(2, B, T, 7, generator=made, dtype=torch.float64)
    on = torch.arange(T)[None] < torch.tensor(LENGTHS)[:, None]
    theirs = trainer.generalized_jsd_loss(student, teacher, torch.where(on, 1, -100), beta=beta)
    found = generalised_jsd(torch.log_softmax(student, -1), torch.log_softmax(teacher, -1), beta)
    assert found[on].mean().item() == near(theirs.item())

"""Small batches by hand: a few trained tokens behind one prompt token."""

import numpy as np
import torch
from palaestra.types import Example, Row, Segment
from palaestra.update import pack


def token_batch(advantage, behaviour=0.0, dtype=torch.float64, **columns):
    """One row a value, one trained token a row."""
    examples = []
    for i, a in enumerate(advantage):
        mine = {k: v[i] if isinstance(v, list) else v for k, v in columns.items()}
        row = Row(segments=(Segment(ids=(0,)), Segment(ids=(1,), trained=True, logp=(behaviour,))))
        examples.append(Example(row=row, columns={"advantage": np.array([0.0, a]), **mine}))
    return pack(examples, dtype=dtype)


def token_gradient(objective, batch, **out):
    """d loss / d logp of the one token of every row."""
    given = {k: torch.tensor([[0.0, x] for x in v], dtype=torch.float64).requires_grad_() for k, v in out.items()}
    loss, metrics = objective(given, batch)
    grads = torch.autograd.grad(loss, list(given.values()), allow_unused=True, materialize_grads=True)
    return loss.item(), {k: g[:, 1].tolist() for k, g in zip(given, grads, strict=True)}, metrics


def batch_of(*rows, **columns):
    """One batch of rows given as their per-token advantages, behind one prompt token; other columns [tokens] by row."""
    examples = []
    for b, advantage in enumerate(rows):
        n = len(advantage)
        row = Row(segments=(Segment(ids=(0,)), Segment(ids=tuple(range(b, b + n)), trained=True, logp=(-1.0,) * n)))
        more = {k: np.array([0.0, *v[b]]) for k, v in columns.items()}
        examples.append(Example(row=row, columns={"advantage": np.array([0.0, *advantage]), **more}))
    return pack(examples, dtype=torch.float64)


def out_of(batch, **given):
    """[B, T] leaves that need gradients, behind one prompt token."""
    out = {}
    for name, rows in given.items():
        x = torch.zeros_like(batch.mask)
        for b, values in enumerate(rows):
            x[b, 1 : 1 + len(values)] = torch.tensor(values, dtype=torch.float64)
        out[name] = x.requires_grad_()
    return out


def column_batch(*rows, **columns):
    """Rows of so many trained tokens behind one prompt token; columns by row, [tokens] or a number."""
    examples = []
    for i, n in enumerate(rows):
        said = Segment(ids=tuple(range(1, n + 1)), trained=True, logp=(0.0,) * n)
        mine = {
            k: np.array([0.0, *v[i]]) if isinstance(v[i], list) else v[i] for k, v in columns.items() if k != "units"
        }
        unit = columns["units"][i] if "units" in columns else ""
        examples.append(Example(row=Row(segments=(Segment(ids=(0,)), said)), columns=mine, unit=unit))
    return pack(examples, dtype=torch.float64)


def balance(objective, ratios, advantages, units=None, lengths=None):
    """Loss and d loss / d log pi per generation of given whole-row log-ratios, spread evenly over each row's tokens."""
    n = lengths or [1] * len(ratios)
    rows = [
        Example(
            row=Row(
                segments=(Segment(ids=(0,)), Segment(ids=(1,) * k, logp=(0.0,) * k, trained=True, policy="policy"))
            ),
            columns={"advantage": np.full(k + 1, a), "episode": i, "ref_logp": np.zeros(k + 1)},
            unit=f"group {u}",
        )
        for i, (a, k, u) in enumerate(zip(advantages, n, units or [0] * len(ratios), strict=True))
    ]
    batch = pack(rows, "policy", dtype=torch.float64)
    logp = torch.stack([h / k * batch.mask[i] for i, (h, k) in enumerate(zip(ratios, n, strict=True))]).requires_grad_()
    loss, metrics = objective({"logp": logp}, batch)
    return float(loss.detach()), torch.autograd.grad(loss, logp)[0][:, 1].tolist(), metrics

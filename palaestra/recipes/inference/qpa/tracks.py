"""Forecasts of tracks: a table of numbers over time, and a network whose weights a circuit generates.

B windows, T past rows, K columns, F future rows. A column is read in units of its deviation over the
training rows, and a forecast is what is added to the last row that was seen.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

import palaestra as pl
from palaestra.recipes.inference.qpa.circuit import Generator

HELD = 5  # every so many tracks are held out; of a single one its last fifth
FILE = "forecaster.json"
Track = np.ndarray  # [rows, K]


def number_of(cell: Any) -> float | None:
    """A cell as a finite number, None where it is none."""
    try:
        x = float(cell)
    except (TypeError, ValueError):
        return None
    return x if math.isfinite(x) else None


def read_tracks(file: str, columns: Sequence[str], track: str) -> tuple[list[str], list[Track]]:
    """The columns of a file and its tracks, with rows in the order of the file.

    Args:
        file: CSV, JSONL, JSON or Parquet, a row for each time.
        columns: which ones; () = those that hold numbers in every row, but `track`.
        track: the column that says which track a row belongs to; "" = all rows are one.

    Raises UserError for a missing column, and for a cell that is no number, by its row.
    """
    splits = pl.tasks.open_records(file)
    rows = list(splits.get("train", next(iter(splits.values()))))
    if not rows:
        raise pl.UserError(f"{file}: no rows; it needs a row for each time")
    names = list(columns) or [
        c for c in rows[0] if c != track and any(number_of(r.get(c)) is not None for r in rows)
    ]
    missing = [c for c in (*names, *([track] if track else [])) if c not in rows[0]]
    if missing or not names:
        raise pl.UserError(
            f"{file}: no column {missing[0] if missing else 'of numbers'!r}; it has "
            f"{', '.join(rows[0])}: series_columns=NAME,NAME says which are forecast"
        )
    tracks: dict[str, list[list[float]]] = {}
    for i, row in enumerate(rows, 1):
        cells = [number_of(row.get(c)) for c in names]
        bad = [c for c, x in zip(names, cells, strict=True) if x is None]
        if bad:
            raise pl.UserError(
                f"{file}, row {i}: {bad[0]!r} is {row.get(bad[0])!r} and no number; fill it in, leave "
                "the row out, or name the other columns with series_columns=NAME,NAME"
            )
        tracks.setdefault(str(row.get(track)) if track else "", []).append(
            [x for x in cells if x is not None]
        )
    return names, [np.array(t) for t in tracks.values()]


def storms(n: int = 40, rows: int = 40, seed: int = 0) -> list[Track]:
    """Made-up tracks [rows, 2]: a spiral that grows, in a wind that turns, with noise."""
    tracks = list[Track]()
    for i in range(n):
        rng = pl.rng_of(("storms", seed, i))
        t = np.arange(rows) / 8
        turn = rng.uniform(0.6, 1.4) * t + rng.uniform(0, 2 * np.pi)
        wind = rng.uniform(0, 2 * np.pi) + 0.3 * t
        spiral = (0.5 + 0.3 * t)[:, None] * np.stack([np.cos(turn), np.sin(turn)], 1)
        drift = np.cumsum(np.stack([np.cos(wind), np.sin(wind)], 1), 0) / 8
        tracks.append(spiral + drift + rng.normal(0, 0.02, (rows, 2)))
    return tracks


def split_tracks(
    tracks: Sequence[Track], lags: int, horizon: int
) -> tuple[list[Track], list[Track]]:
    """Training and held-out tracks. Raises UserError where one side has no window."""
    if len(tracks) >= HELD:
        held = list(tracks[HELD - 1 :: HELD])
        train = [t for i, t in enumerate(tracks) if i % HELD != HELD - 1]
    else:
        cuts = [len(t) - len(t) // HELD for t in tracks]
        train = [t[:c] for t, c in zip(tracks, cuts, strict=True)]
        held = [t[c:] for t, c in zip(tracks, cuts, strict=True)]
    least = lags + horizon
    for name, side in (("training", train), ("held-out", held)):
        if not any(len(t) >= least for t in side):
            raise pl.UserError(
                f"no {name} track has the {least} rows of a window (lags={lags}, horizon={horizon}); "
                "give longer tracks or fewer lags"
            )
    return train, held


def windows(tracks: Sequence[Track], lags: int, horizon: int) -> tuple[Tensor, Tensor]:
    """Past rows [B, T, K] and future ones [B, F, K]; none crosses from a track to another."""
    whole = np.stack(
        [t[i : i + lags + horizon] for t in tracks for i in range(len(t) - lags - horizon + 1)]
    )
    both = torch.from_numpy(whole).float()
    return both[:, :lags], both[:, lags:]


class AttentionGRU(nn.Module):
    """A GRU over the past, attention of its last state to all of them, and a linear map, [B, F, K]."""

    def __init__(self, columns: int, horizon: int, width: int = 32):
        super().__init__()
        self.horizon = horizon
        self.gru = nn.GRU(columns, width, batch_first=True)
        self.out = nn.Linear(2 * width, horizon * columns)

    def forward(self, past_BTK: Tensor) -> Tensor:
        h_BTW, _ = self.gru(past_BTK)
        last_BW = h_BTW[:, -1]
        score_BT = (h_BTW @ last_BW[:, :, None])[..., 0] / h_BTW.shape[-1] ** 0.5
        seen_BW = (torch.softmax(score_BT, 1)[..., None] * h_BTW).sum(1)
        return self.out(torch.cat([last_BW, seen_BW], 1)).reshape(len(past_BTK), self.horizon, -1)


def own_forecaster(spec: str, past_BTK: Tensor, horizon: int) -> nn.Module:
    """A torch module from FILE.py:NAME, one that a file has or what makes one. Raises UserError where
    it gives other shapes than [B, F, K].
    """
    given = pl.tasks.load(spec, "torch module")
    module = given if isinstance(given, nn.Module) else given()
    if not isinstance(module, nn.Module):
        raise pl.UserError(f"{spec} is {type(module).__name__} and no torch module")
    with torch.no_grad():
        shape = tuple(module(past_BTK).shape)
    wanted = (len(past_BTK), horizon, past_BTK.shape[-1])
    if shape != wanted:
        raise pl.UserError(
            f"{spec} gives {shape} for windows of shape {tuple(past_BTK.shape)}; it must give "
            f"{wanted}: windows, rows of the future (horizon), columns"
        )
    return module


@pl.stage
class CircuitForecaster:
    """A program: learns to forecast tracks with weights that a circuit generates.

    The metrics have `error`, the root of the mean squared error on held-out tracks in units of the
    columns' deviations, that of the untrained network, and that of `staying` where the last row was.
    The artifact "forecaster" holds the finished weights, which need no circuit.
    """

    generator: Generator = Generator(lr=0.005)
    series: str = ""
    columns: tuple[str, ...] = ()
    track: str = ""
    forecaster: str = ""
    lags: int = 8
    horizon: int = 2
    steps: int = 300
    batch: int = 64

    def __post_init__(self) -> None:
        for name in ("lags", "horizon"):
            pl.check_bounds(f"CircuitForecaster.{name}", getattr(self, name), least=1)

    async def run(self, ctx: pl.Context) -> pl.Result:
        names, tracks = (
            read_tracks(self.series, self.columns, self.track)
            if self.series
            else (["x", "y"], storms())
        )
        train, held = split_tracks(tracks, self.lags, self.horizon)
        rows = np.concatenate(train)
        mean, deviation = rows.mean(0), rows.std(0)
        if still := [n for n, d in zip(names, deviation, strict=True) if not d]:
            raise pl.UserError(f"{still[0]!r} never changes; leave it out of series_columns")
        sides = [
            windows([(t - mean) / deviation for t in side], self.lags, self.horizon)
            for side in (train, held)
        ]
        module = self._module(ctx, sides[0][0])
        weights = {n: p for n, p in module.named_parameters() if p.requires_grad}
        start = torch.cat([p.detach().reshape(-1) for p in weights.values()] or [torch.zeros(0)])
        fit = self.generator.begin(start, (ctx.seed, "qpa"))
        before = error(module, {}, *sides[1])
        staying = float(((sides[1][1] - sides[1][0][:, -1:]) ** 2).mean() ** 0.5)
        fit.announce(ctx)
        windows_of = [len(past) for past, _ in sides]
        ctx.say(
            f"columns {', '.join(names)}; {windows_of[0]} windows, {windows_of[1]} more held out"
        )
        steps = min(self.steps, int(ctx.budget.get("steps") or self.steps))
        for step in range(steps):
            rng = pl.rng_of((ctx.seed, "qpa", "batch", step))
            chosen = torch.from_numpy(rng.integers(len(sides[0][0]), size=self.batch))
            past, future = (x[chosen] for x in sides[0])
            made = apart(fit.weights(), weights)
            ctx.log(fit.step(squared_error(module, made, past, future)))
        with torch.no_grad():
            made = apart(fit.weights(), weights)
        metrics = {
            **fit.counts(),
            "error": error(module, made, *sides[1]),
            "error_before": before,
            "staying": staying,
            "sampled_tokens": 0,
        }
        return pl.Result(metrics=metrics, artifacts=self._save(ctx, names, mean, deviation, made))

    def _module(self, ctx: pl.Context, past_BTK: Tensor) -> nn.Module:
        if self.forecaster:
            return own_forecaster(self.forecaster, past_BTK[:2], self.horizon)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(pl.seed_of((ctx.seed, "qpa", "start")) % (1 << 31))
            return AttentionGRU(past_BTK.shape[-1], self.horizon)

    def _save(
        self,
        ctx: pl.Context,
        names: Sequence[str],
        mean: np.ndarray,
        deviation: np.ndarray,
        made: Mapping[str, Tensor],
    ) -> dict[str, str]:
        """The weights by name, with the columns and what they were divided by, as JSON."""
        if ctx.out is None:
            return {}
        whole = {
            "columns": list(names),
            "mean": mean.tolist(),
            "deviation": deviation.tolist(),
            "weights": {n: x.tolist() for n, x in made.items()},
        }
        path = ctx.folder / FILE
        path.write_text(json.dumps(whole) + "\n", encoding="utf-8")
        return {"forecaster": str(path)}


def apart(vector: Tensor, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A vector as the tensors whose shapes `weights` have, in their order."""
    parts = vector.split([p.numel() for p in weights.values()])
    return {n: x.reshape(p.shape) for (n, p), x in zip(weights.items(), parts, strict=True)}


def squared_error(
    module: nn.Module, made: Mapping[str, Tensor], past: Tensor, future: Tensor
) -> Tensor:
    """The mean over windows, rows and columns, where forecasts are added to the last row."""
    return ((functional_call(module, dict(made), past) + past[:, -1:] - future) ** 2).mean()


@torch.no_grad()
def error(module: nn.Module, made: Mapping[str, Tensor], past: Tensor, future: Tensor) -> float:
    """The root of it, with dropout and the statistics of batches off."""
    was = module.training
    module.eval()
    rmse = float(squared_error(module, made, past, future) ** 0.5)
    module.train(was)
    return rmse

"""What a run would come to with so many workers and so much lag, by the simulator."""

from __future__ import annotations

from collections.abc import Sequence

from palaestra.planning.calibrate import Calibration
from palaestra.planning.simulate import Forecast, simulate
from palaestra.types import value_class


@value_class
class Prediction:
    """What the simulator says of one combination of workers and lag."""

    workers: int
    lag: int
    seconds: float  # a step
    tokens_per_second: float | None
    idle_rollout: float
    idle_learner: float
    age_mean: float
    age_max: int


def forecast_of(
    calibrated: Calibration,
    *,
    workers: int,
    lag: int,
    order: str = "issue",
    streaming: bool = False,
    concurrent: int = 0,
    depth: int = 1,
    steps: int = 50,
    seed: int = 0,
) -> Forecast:
    """The simulated run of one combination; `depth` as in a cluster file, whose default it has."""
    return simulate(
        calibrated.costs,
        workers=workers,
        waves=calibrated.waves,
        steps=steps,
        lag=lag,
        order=order,
        streaming=streaming,
        concurrent=concurrent,
        depth=depth,
        seed=seed,
    )


def predict(
    calibrated: Calibration,
    *,
    workers: Sequence[int],
    lags: Sequence[int],
    order: str = "issue",
    streaming: bool = False,
    concurrent: int = 0,
    depth: int = 1,
    steps: int = 50,
    seed: int = 0,
) -> list[Prediction]:
    """Every combination, best first; of equal ones that with fewer workers, then less lag. They
    share their draws.
    """
    rows: list[Prediction] = []
    for n in workers:
        for lag in lags:
            forecast = forecast_of(
                calibrated,
                workers=n,
                lag=lag,
                order=order,
                streaming=streaming,
                concurrent=concurrent,
                depth=depth,
                steps=steps,
                seed=seed,
            )
            seconds = forecast.makespan / steps
            rows.append(
                Prediction(
                    workers=n,
                    lag=lag,
                    seconds=seconds,
                    tokens_per_second=calibrated.tokens / seconds if calibrated.tokens else None,
                    idle_rollout=forecast.idle["rollout"],
                    idle_learner=forecast.idle["learner"],
                    age_mean=forecast.age_mean,
                    age_max=forecast.age_max,
                )
            )
    return sorted(rows, key=lambda r: (round(r.seconds, 9), r.workers, r.lag))


def one_process_seconds(calibrated: Calibration, steps: int = 50, seed: int = 0) -> float:
    """Seconds of a step where one process samples and learns by turns, by the simulator: what a
    run that was calibrated from measured itself.
    """
    simulated = simulate(
        calibrated.costs, workers=1, waves=calibrated.waves, steps=steps, share="time", seed=seed
    )
    return simulated.makespan / steps

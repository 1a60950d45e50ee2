"""Several environments in one run, `--env "a.py:A*2+b.py:B"`."""

from __future__ import annotations

from collections.abc import Mapping

from palaestra.context import Bench
from palaestra.errors import UserError
from palaestra.run.benches import bench_by_name, from_env
from palaestra.tasks.files import FileTasks
from palaestra.tasks.mixture import LEAST_WEIGHT
from palaestra.tasks.spec import read_weight, split_outside
from palaestra.types import Player
from palaestra.worlds.adapters.named import is_adapted
from palaestra.worlds.together import mix_benches


def from_envs(spec: str, records: FileTasks | None = None) -> tuple[Bench, Mapping[str, Player]]:
    """What --env names, and its players that are functions.

    Args:
        spec: FILE.py:CLASS; or several of these, and of other libraries' environments as `--task`
            names them, joined by + with weights.
        records: what one environment plays in place of the tasks that it makes.

    Raises:
        UserError: several environments do not go together.
    """
    pieces = [piece.strip() for piece in split_outside(spec, "+")]
    if len(pieces) == 1:
        return from_env(spec, records)
    if records is not None:
        raise UserError(
            f"--env {spec} and --data: a row does not say in which environment it begins; let each "
            "environment make its own tasks, by a method `task`, and leave out --data"
        )
    made = list[tuple[Bench, float]]()
    for piece in pieces:
        name, star, text = piece.rpartition("*")
        name = name.strip() if star else piece
        bench, players = bench_by_name(name) if is_adapted(name) else from_env(name)
        if players:
            raise UserError(f"{name} brings players of other seats; such a game stands alone")
        weight = read_weight(text if star else None, piece, LEAST_WEIGHT)
        made.append((bench, 1.0 if weight is None else weight))
    return mix_benches(spec, made), {}

"""What a run's processes are, and how Ray is found or started."""

from __future__ import annotations

import logging
import math
import os
import socket
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_type_hints

from palaestra import values
from palaestra.errors import UserError
from palaestra.types import need_at_least

# of Ray's placement groups, by what `nodes` says
STRATEGIES = {"pack": "PACK", "spread": "SPREAD", "one": "STRICT_PACK"}
ROOM = 60.0  # seconds that room on nodes may take to be found
LISTENING = 10.0  # seconds in which a cluster's address must answer
RETRIES = 3  # of a call whose process has ended
# what a cluster asks for whose head was started where Ray has a token, as it has once a run began there
TOKEN = (
    "a cluster that has a token takes RAY_AUTH_MODE=token, and the token of its head "
    "(~/.ray/auth_token there) at the same place here"
)
STARTING = 600.0  # seconds that a new process may take until it says anything


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Processes beside the learner's, which is the one that a user starts."""

    workers: int = 2  # rollout processes; 0 = the learner's process samples
    learners: int = 1  # ranks of the learner, this process among them; more than one shard it
    judges: int = 0  # processes that reward; 0 = each rollout process does so itself
    judge_gpus: float = 0  # of each of them
    cpus: float = 1  # of each process
    gpus: float = 0  # of each rollout process; a share lets several use one
    learner_gpus: float = 1  # of the learner's process, if on a GPU; 0 = Ray is told of none
    # of the rollout processes: as few as there is room on, as many, or a single one; "" = any
    nodes: Literal["", "pack", "spread", "one"] = ""
    waves: int = 0  # tickets that a step's groups are cut into; 0 = one for each worker
    address: str = ""  # of a cluster that is there, HOST:PORT or "auto"; "" = this machine
    depth: int = 1  # tickets at a worker; 2 hides long ways, and lets short ones wait for long ones
    meeting: float = 600.0  # seconds that a rank of the learner waits for another
    silence: float = 120.0  # seconds without a sign of life after which a worker is replaced

    def __post_init__(self) -> None:
        need_at_least(
            self,
            workers=0,
            learners=1,
            judges=0,
            judge_gpus=0,
            meeting=1,
            cpus=0,
            gpus=0,
            learner_gpus=0,
            waves=0,
            depth=1,
            silence=1,
        )
        if self.nodes and not self.cpus and not self.gpus:
            raise UserError("cluster: nodes needs processes that ask for CPUs or GPUs")
        if self.nodes and not self.workers:
            raise UserError("cluster: nodes says where rollout processes are; give workers too")
        if self.judges and not self.workers:
            raise UserError(
                "cluster: judges reward what rollout processes collect; give workers too"
            )

    @property
    def processes(self) -> int:
        """Beside the one that a user starts."""
        return self.workers + self.judges + self.learners - 1

    def asked_for(self, on_gpus: bool = False) -> list[tuple[str, float, float]]:
        """Each process of which Ray is told: its role, CPUs, GPUs. `on_gpus`: the learner is on
        GPUs, of which each of its further ranks has a whole one.
        """
        return [
            *[("the learner", 0.0, self.learner_gpus)] * on_gpus,
            *[("workers", self.cpus, self.gpus)] * self.workers,
            *[("judges", self.cpus, self.judge_gpus)] * self.judges,
            *[("further ranks", self.cpus, float(on_gpus))] * (self.learners - 1),
        ]

    def check_room(self, on_gpus: bool = False) -> None:
        """Raises UserError where the nodes that are there have no room for the processes, which Ray
        would wait for without a word. On a machine of its own CPUs are taken in turns.

        `on_gpus`: the learner is on GPUs.
        """
        import ray

        nodes = [n["Resources"] for n in ray.nodes() if n["Alive"]]
        free = [(n.get("CPU", 0.0), n.get("GPU", 0.0)) for n in nodes]
        if left := unplaced(self.asked_for(on_gpus), free):
            have = f"{sum(c for c, _ in free):g} CPUs, {sum(g for _, g in free):g} GPUs"
            shares = ", or learner_gpus = 0.5 leaves half of one" if on_gpus else ""
            raise UserError(
                f"cluster: no room for {counted(left)} on {len(free)} nodes ({have}{shares}); "
                "`palaestra doctor --cluster FILE.toml` says what is there, and `ray start` adds a node"
            )

    @classmethod
    def read(cls, text: str) -> Cluster:
        """From a number of workers, or the TOML file of a cluster. Without an address the processes
        are on this machine, or in a job of Ray's on the cluster that the job is of.
        """
        given: dict[str, Any] = {"address": os.environ.get("RAY_ADDRESS", "")}
        if text.isdecimal():
            return cls(workers=int(text), **given)
        return cls(**given | values.from_toml(Path(text), get_type_hints(cls)))

    def room(self) -> Any:
        """Room for the rollout processes on the `nodes` that are asked for, kept until it is given
        back; None where none are.

        Raises UserError where there is none.
        """
        if not self.nodes or not self.workers:
            return None
        from ray.util.placement_group import placement_group, remove_placement_group

        each = {k: n for k, n in (("CPU", self.cpus), ("GPU", self.gpus)) if n}
        group = placement_group([each] * self.workers, strategy=STRATEGIES[self.nodes])
        if not group.wait(ROOM):
            remove_placement_group(group)
            raise UserError(
                f'cluster: no room with nodes = "{self.nodes}" for {self.workers} rollout '
                f"processes of {self.cpus:g} CPUs and {self.gpus:g} GPUs; `palaestra doctor "
                "--cluster FILE.toml` says what is there"
            )
        return group

    def give_back(self, room: Any) -> None:
        """Ends what is in a room, and the room."""
        from ray.util.placement_group import remove_placement_group

        if room is not None:
            remove_placement_group(room)

    def actor(
        self, kind: type, gpus: float | None = None, restarts: int = 0, at: Any = None
    ) -> Any:
        """A class whose objects are processes of the cluster, which answer how they are also while
        they work. One that ends is made anew `restarts` times, -1 = always, and a call that it did
        not answer is made again, `RETRIES` times at most. `at`: a room, and the place in it.
        """
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        where: dict[str, Any] = {}
        if at is not None and at[0] is not None:
            where["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                placement_group=at[0], placement_group_bundle_index=at[1]
            )

        threads = {
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, int(self.cpus))))
        }
        remote: Any = ray.remote  # its types do not know of concurrency groups
        return remote(
            num_cpus=self.cpus,
            num_gpus=self.gpus if gpus is None else gpus,
            max_restarts=restarts,
            max_task_retries=RETRIES if restarts else 0,
            concurrency_groups={"signs": 1},
            runtime_env={"env_vars": threads},
            **where,
        )(kind)

    def connect(self) -> bool:
        """Finds the cluster, or starts one on this machine, which ends with this process. Whether
        this process was on none before.
        """
        try:
            import ray
        except ImportError:
            raise UserError("--cluster needs Ray: pip install 'palaestra[ray]'") from None
        if ray.is_initialized():
            return False
        if self.address:
            self._check_address()
            try:
                ray.init(address=self.address, log_to_driver=False, logging_level=logging.ERROR)
            except ConnectionError:
                raise UserError(
                    f"cluster: no Ray answers at address = {self.address!r}; see `ray status` "
                    f"there, or leave the address out for this machine; {TOKEN}"
                ) from None
            return True
        ray.init(
            num_cpus=max(1, math.ceil(self.cpus * self.processes)),
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _node_ip_address="127.0.0.1",
        )
        return True

    def _check_address(self) -> None:
        """Raises UserError where nobody listens; Ray would look for minutes."""
        host, colon, port = self.address.rpartition(":")
        if not colon or not port.isdecimal():
            return
        try:
            socket.create_connection((host, int(port)), LISTENING).close()
        except OSError as error:
            raise UserError(
                f"cluster: nobody listens at address = {self.address!r} ({error.strerror or error}); "
                "`ray start --head` there says which address it has"
            ) from None

    @contextmanager
    def connected(self) -> Generator[None]:
        """On the cluster for as long as the block takes, and longer where this process was on one
        before.
        """
        began = self.connect()
        try:
            yield
        finally:
            if began:
                import ray

                ray.shutdown()


def unplaced(
    asked: Sequence[tuple[str, float, float]], free: Sequence[tuple[float, float]]
) -> list[str]:
    """Roles of processes that find no room, each on one node, the dearest first.

    Args:
        asked: role, CPUs and GPUs of each process.
        free: CPUs and GPUs of each node.
    """
    room, left = [list(f) for f in free], list[str]()
    for name, cpus, gpus in sorted(asked, key=lambda a: (-a[2], -a[1])):
        fits = [r for r in room if r[0] >= cpus and r[1] >= gpus]
        if not fits:
            left.append(name)
            continue
        least = min(fits, key=lambda r: (r[1], r[0]))  # where the least is over
        least[0] -= cpus
        least[1] -= gpus
    return left


def counted(roles: Sequence[str]) -> str:
    """So and so many of each."""
    return ", ".join(f"{roles.count(n)} of {n}" for n in dict.fromkeys(roles))

"""The flags of `palaestra plan`."""

from __future__ import annotations

from palaestra.cli.flag_forms import json_flag, whole_number, whole_numbers
from palaestra.settings.flags import FlagParser


def plan(parser: FlagParser) -> None:
    add = parser.add_argument
    add(
        "recipe",
        nargs="?",
        metavar="RECIPE | FILE.py",
        help="with --costs: the recipe that the costs belong to",
    )
    add(
        "--costs",
        metavar="FILE.json",
        help='seconds of each operation: {"ticket": {"median": 1.2, "sigma": 0.8}, "learn": '
        '0.9, "publish": 0.01, "load": 0.005, "waves": 8, "tokens": 8192}',
    )
    add("--run", metavar="DIR", help="take the costs from this run folder instead")
    add(
        "--workers",
        type=whole_numbers(1),
        default=[1, 2, 4, 8],
        metavar="N,N,...",
        help="numbers of rollout workers to try (default: 1,2,4,8)",
    )
    add(
        "--lag",
        type=whole_numbers(0),
        default=[0, 1, 2],
        metavar="N,N,...",
        help="lags to try (default: 0,1,2)",
    )
    add(
        "--waves",
        type=whole_number(1),
        metavar="N",
        help="with --run: number of tickets per step (default: 8)",
    )
    add(
        "--order",
        choices=("issue", "window"),
        default="issue",
        help="order in which finished tickets are trained on (default: issue)",
    )
    add(
        "--streaming",
        action="store_true",
        help="the learner accumulates gradients of tickets as they arrive",
    )
    add("--depth", type=whole_number(1), default=1, metavar="N",
        help="tickets per worker, as in a cluster file (default: 1)")  # fmt: skip
    add("--concurrent", type=whole_number(0), default=0, metavar="N",
        help="most tickets in progress (default: 0, as many as the lag allows)")  # fmt: skip
    add("--steps", type=whole_number(1), default=50, metavar="N",
        help="steps of each simulated run (default: 50)")  # fmt: skip
    add("--seed", type=int, default=0, help="seed of the simulated times (default: 0)")
    add("--trace", metavar="FILE.json", help="write the best run as a trace for Perfetto")
    add(
        "--picture",
        metavar="FILE.svg",
        help="draw the first steps with the best number of workers, at every lag",
    )
    sized_flags(parser)
    json_flag(parser)


def sized_flags(parser: FlagParser) -> None:
    """Flags of a step of GRPO on GPUs, computed from dimensions and data sheets."""
    add = parser.add_argument
    add("--model", metavar="NAME | FOLDER | sizes",
        help="instead of costs: compute memory and seconds of a step of GRPO on GPUs from this "
        "model's dimensions (7b, 70b, qwen3-30b-a3b, a folder, config.json; sizes: 0.5b to 70b)")  # fmt: skip
    add("--gpus", type=whole_number(1), metavar="N", help="with --model: GPUs (default: 8)")
    add("--gpu", choices=("a100", "a800", "h100", "h800", "h200", "h20"),
        help="with --model: their kind (default: h100)")  # fmt: skip
    for flag, what, default in (
        ("prompts", "prompts of a step", 128),
        ("group", "answers to each prompt", 16),
        ("prompt-tokens", "tokens of a prompt", 256),
        ("answer-tokens", "tokens of an answer on average", 2048),
        ("max-tokens", "tokens of the longest answer", "four times the average"),
        ("references", "frozen models that read every answer", 0),
        ("lora", "rank of adapters", "all weights are trained"),
        ("tensor", "GPUs of a rollout replica", "the fastest"),
    ):
        add(f"--{flag}", type=whole_number(0 if flag == "references" else 1), metavar="N",
            help=f"with --model: {what} (default: {default})")  # fmt: skip
    add("--published", action="store_true",
        help="show step times that others published beside what --model predicts for their settings")  # fmt: skip

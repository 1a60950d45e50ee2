"""Flags of `palaestra plan --model`."""

from __future__ import annotations

from palaestra.cli.flag_forms import whole_number
from palaestra.settings.flags import FlagParser


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

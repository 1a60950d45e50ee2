"""The settings of a run. A setting is written here alone: its name, type, default, bounds and help,
and what it decides.

The flags of the command line, the keys of config.toml, the keywords of `palaestra.train` and the
commands that a report prints are all read from the fields of `Settings`. Nothing heavy is imported
here: help and mistakes answer at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Flag, auto
from typing import Any, Literal

from palaestra.errors import UserError
from palaestra.models.embedded import FOLDERS
from palaestra.services.tools.names import split_names

TASK = "chain"  # what is learned where nothing is said
INTERPRETER = "interpreter"  # as --env names where programs stand in the reply
VALUE = "python"  # what a recipe is called that is a value of a program and not in the catalogue
# for models that are not small, unless optimiser.lr is given
FULL_LR, LORA_LR = 1e-5, 1e-4
ROLLOUTS = re.compile(r"all|none|sample:[1-9]\d*")


class Use(Flag):
    """What a setting decides."""

    NOTHING = 0
    PROBLEM = auto()  # what is learned
    MEASURED = auto()  # what is evaluated: a flag of `palaestra eval`
    MAKE = auto()  # what a recipe is before its fields are overridden
    KEPT = auto()  # what the weights and the state of a checkpoint are made for
    REPEATED = auto()  # what the command on a model card names, where it is not at its default


LEARNED = Use.PROBLEM | Use.MEASURED | Use.REPEATED
PLAYED = Use.MEASURED | Use.REPEATED  # how it is gone about, whatever the problem is


def setting(
    default: Any,
    text: str = "",
    *,
    metavar: str | None = None,
    choices: tuple[str, ...] | None = None,
    means: str = "",
    least: int | None = None,
    use: Use = Use.NOTHING,
    flag: Literal["every", "train", "none"] = "every",
) -> Any:
    """A field of `Settings`.

    Args:
        text: its help, without the default.
        metavar: what stands for its value in the help.
        means: what the default stands for, where the default does not say it.
        least: the least it may be, on the command line, in files and in a program.
        flag: of every verb that names a run, of `train` alone, or of none.
    """
    about = {"text": text, "metavar": metavar, "choices": choices, "means": means, "least": least}
    return field(default=default, metadata=about | {"use": use, "flag": flag})


@dataclass(frozen=True, kw_only=True)
class ProblemSettings:
    """The problem, the model, and how it is sampled."""

    recipe: str = setting("grpo", use=Use.MAKE | Use.KEPT, flag="none")
    task: str = setting(
        "",
        "the task: chain, count, hop, grid, rec, tictactoe, rg:NAME (extra gym), a mixture a*2+b, or an "
        "environment: gym:, spiel:, pettingzoo:, textarena:, textworld:, "
        "scienceworld:, verifiers:, openenv:, agentgym: and its name",
        metavar="NAME",
        means=TASK,
        use=LEARNED,
    )
    data: str = setting(
        "",
        "your own problems: .jsonl, .json, .parquet, .csv, .tsv, .arrow, a folder, several files with *, "
        "or a data set of the Hugging Face hub, OWNER/NAME:CONFIG:SPLIT",
        metavar="FILE|DIR|NAME",
        use=LEARNED,
    )
    test_data: str = setting(
        "", "held-out problems; without it, a tenth of --data", metavar="FILE", use=LEARNED
    )
    columns: str = setting(
        "",
        "how to read the columns of --data, e.g. question=prompt,answer=#### (the part after the last ####), "
        "or FILE.py:FUNCTION that returns a record for each row; see docs/howto.md",
        metavar="COLUMN=USE,...",
        means="the usual names",
        use=LEARNED,
    )
    skip_bad: str = setting(
        "",
        "leave out up to N records (or P percent) of --data that cannot be read or used, and list them",
        metavar="N|P%",
        means="none",
        use=PLAYED,
    )
    max_prompt_tokens: int = setting(
        0,
        "leave out records of --data whose prompt has more tokens",
        metavar="N",
        means="none",
        least=0,
        use=PLAYED,
    )
    overlong: str = setting(
        "",
        "records of --data that are too long: refuse (the run does not start), drop, or cut: a prompt loses its "
        "beginning, a recorded text its end",
        choices=("refuse", "drop", "cut"),
        means="refuse what the model's context does not hold, drop prompts above --max-prompt-tokens",
        use=PLAYED,
    )
    max_pixels: int = setting(
        0,
        "make pictures of --data smaller that have more pixels, with their sides in proportion",
        metavar="N",
        means="1000000",
        least=0,
        use=PLAYED,
    )
    max_frames: int = setting(
        0,
        "show at most N frames of a video of --data, taken at equal distances",
        metavar="N",
        means="16",
        least=0,
        use=PLAYED,
    )
    max_duration: float = setting(
        0.0,
        "keep the first S seconds of a sound of --data, and cut off the rest",
        metavar="S",
        means="sounds of up to 60 s as they are; longer ones are refused",
        least=0,
        use=PLAYED,
    )
    reward: str = setting(
        "",
        "your own reward function, a verifier of `palaestra score --list`, or a weighted sum: "
        "FILE.py:NAME*0.5+math",
        metavar="FILE.py:NAME | VERIFIER",
        use=LEARNED,
    )
    reward_timeout: int = setting(
        60, "time limit of one call of your reward function, in seconds", metavar="S", least=1
    )
    env: str = setting(
        "",
        "your own multi-turn environment, or notebook: the questions of --data, answered by running "
        "Python in the sandbox, which may call what --tools names; or dialogue: the questions of --data, "
        "answered by two agents that each read a context of their own; or search: the same as --docs, with "
        "settings in brackets, e.g. search(k=5,calls=3); or rewrite: the queries of --data, rewritten once for "
        "a search of --docs; or query: the same, written as JSON; or eliminate: candidates, dropped "
        "one by one; or listwise: candidates, ranked in one message; or rerank: passages of --docs, chosen for the "
        "questions of --data; or "
        "interpreter: the questions of --data or --task, answered with programs inside the reply; or graph: "
        "the same as --graph; or experts: the tasks of --data, done by plans of the functions of --tools; or competition(DIR): "
        "a folder with data, a metric and hidden answers; or the simulator of a method in which a language model guides a "
        "classical learner, also gymnasium:ID (docs/control.md). Several of yours are joined with their shares, "
        "a.py:A*2+b.py:B",
        metavar="FILE.py:NAME | notebook | dialogue | search | rewrite | query | eliminate | listwise | rerank | "
        "interpreter | graph | experts | competition(DIR)",
        use=LEARNED,
    )
    goal: str = setting(
        "",
        "what is wanted in a simulator, in words, for methods in which a language model guides a classical learner",
        metavar="TEXT",
        means="what the simulator says of itself",
        flag="train",
    )
    llm: str = setting(
        "",
        "the language model that such a method asks: endpoint(url='...',model='...'), a model's folder, or "
        "transcript:FILE, the replies of a run before",
        metavar="MODEL",
        means="nobody, or a rule of the built-in problem",
        flag="train",
    )
    docs: str = setting(
        "",
        "your own documents, which the model may search before it answers the questions of --data: a folder "
        "of .txt, .md, .html, .jsonl, ..., a file, or a data set; see docs/environments.md",
        metavar="DIR|FILE",
        use=LEARNED,
    )
    graph: str = setting(
        "",
        "your own graph, whose facts the model may follow before it answers the questions of --data: lines "
        "head<TAB>relation<TAB>tail (.tsv), or records; with --docs it may also read documents",
        metavar="FILE",
        use=LEARNED,
    )
    tools: tuple[str, ...] = setting(
        (),
        'tools that the model may call: typed functions, python (the sandbox), mcp:"COMMAND" '
        "or mcp:URL; may be repeated",
        metavar="FILE.py:NAME | FILE.py,...",
        use=PLAYED,
    )
    tool_turns: int = setting(
        8, "most messages with tool calls per episode", metavar="N", least=1, use=PLAYED
    )
    tool_seconds: float = setting(
        10.0, "time limit of one tool call, in seconds", metavar="S", least=0, use=PLAYED
    )
    tool_chars: int = setting(
        2000, "most characters of a tool result", metavar="N", least=1, use=PLAYED
    )
    break_tool: str = setting(
        "",
        "a control: let this share of the calls of a tool of --tools fail, from a step of training on",
        metavar="NAME=SHARE[@STEP]",
        means="none fails",
        use=PLAYED,
    )
    agent: str = setting(
        "",
        "your own agent: a command that is started for each episode and talks to the model through "
        "OPENAI_BASE_URL; see docs/agents.md",
        metavar="COMMAND",
        use=PLAYED,
    )
    agent_seconds: float = setting(
        300.0,
        "time that an agent may take between an answer and its next request, in seconds",
        metavar="S",
        least=0,
        use=PLAYED,
    )
    agent_keep: bool = setting(
        False,
        "keep each agent's process, and give it a task on each line; for agents that start slowly",
        use=PLAYED,
    )
    agent_processes: int = setting(64, "agents at the same time", metavar="N", least=1)
    model: str = setting(
        "tiny",
        "the model: tiny, tiny-agent, smollm2, a Hugging Face folder or hub id",
        metavar="NAME|DIR",
        use=Use.MAKE | Use.KEPT | Use.REPEATED,
    )
    dtype: str = setting(
        "",
        "number format of the weights",
        choices=("float32", "bfloat16"),
        means="bfloat16 for a large model where it is faster, otherwise float32",
        use=Use.MEASURED | Use.KEPT | Use.REPEATED,
    )
    device: str = setting("", "cpu, cuda, or mps, which is untested", means="cuda if available")
    lora: int = setting(
        0,
        "train low-rank adapters instead of the whole model",
        metavar="RANK",
        means="no",
        least=0,
        use=Use.MAKE | Use.KEPT | Use.REPEATED,
    )
    lora_alpha: int = setting(
        32,
        "with --lora, the scale of the adapters, which is divided by their rank",
        metavar="ALPHA",
        least=1,
        use=Use.KEPT | Use.REPEATED,
    )
    lora_targets: str = setting(
        "",
        "with --lora, the layers that get adapters, e.g. q_proj,v_proj, or all-linear",
        metavar="NAME,...",
        means="the projections of attention and of the MLP",
        use=Use.KEPT | Use.REPEATED,
    )
    load_in_4bit: bool = setting(
        False,
        "with --lora, keep the frozen weights of the decoder layers in 4 bits (QLoRA; extra quantised)",
        use=Use.KEPT | Use.REPEATED,
    )
    optim: str = setting(
        "",
        "store the optimiser's moments in 8 bits (extra quantised); paged: in the machine's memory where the "
        "GPU has no room",
        choices=("adamw_8bit", "paged_adamw_8bit"),
        means="in float32",
        use=Use.MAKE | Use.KEPT | Use.REPEATED,
        flag="train",
    )
    engine: str = setting(
        "own",
        "the engine that samples answers, with settings in brackets; see docs/engines.md",
        metavar="own|vllm",
        means="in this process",
        use=Use.REPEATED,
    )
    tis: float = setting(
        0.0,
        "correct for log-prob differences between engine and trainer: weight each token by the ratio of their "
        "probabilities, at most CAP (e.g. 2)",
        metavar="CAP",
        means="no",
        least=0,
        use=Use.MAKE | Use.REPEATED,
        flag="train",
    )
    slots: int = setting(256, "answers sampled at the same time", metavar="N", least=1)
    cache_mb: int = setting(4096, "memory for their attention cache", metavar="MB", least=1)
    cluster: str = setting(
        "",
        "rollouts in separate processes with Ray (extra ray): their number on this machine, or a "
        "TOML file of a cluster; see docs/cluster.md",
        metavar="N|FILE.toml",
        means="one process does everything",
        flag="train",
    )
    recompute: bool = setting(
        False, "activation checkpointing: less memory for a third more time", use=Use.REPEATED
    )
    activation_offloading: bool = setting(
        False,
        "keep activations elsewhere until the backward pass: of a GPU in the machine's memory, of a processor in "
        "a temporary file",
        use=Use.REPEATED,
    )
    max_tokens: int = setting(
        0,
        "most tokens of one answer",
        metavar="N",
        means="the task's",
        least=0,
        use=Use.MEASURED | Use.REPEATED,
    )
    seed: int = setting(
        0,
        "decides all that is drawn at random, the order of --data among it; the problems of a --task without "
        "an end stay the same, see --data-seed",
        metavar="S",
        use=Use.MEASURED | Use.KEPT,
    )
    data_seed: int | None = setting(
        None,
        "decides which training problems are drawn: of a --task without an end each number has its own 2^20 "
        "problems, of --data it gives the order; held-out problems stay the same",
        metavar="S",
        means="0 for a task without an end, otherwise --seed",
        least=0,
        use=Use.KEPT,
        flag="train",
    )


@dataclass(frozen=True, kw_only=True)
class DriveSettings:
    """How a run is driven: length, evaluations, checkpoints. A run's plan has them as they are."""

    steps: int | None = setting(
        None,
        "number of training steps",
        metavar="N",
        means="the recipe's",
        least=1,
        use=Use.REPEATED,
        flag="train",
    )
    evaluate: int = setting(
        512,
        "number of held-out problems to measure, before and after training",
        metavar="N",
        least=0,
        use=Use.MEASURED | Use.REPEATED,
        flag="train",
    )
    evaluate_every: int = setting(
        0,
        "also measure every STEPS steps",
        metavar="STEPS",
        means="no",
        least=0,
        use=Use.REPEATED,
        flag="train",
    )
    checkpoint_every: int | None = setting(
        None,
        "write a checkpoint every STEPS steps",
        metavar="STEPS",
        means="after 20 times the time that writing takes, at least every 15 minutes",
        least=1,
        flag="train",
    )
    keep_best: str = setting(
        "",
        "also keep the model that was best, in best/ of the run: by accuracy, reward, ranking, margin or loss "
        "of the held-out problems, or by exam:TASK",
        metavar="MEASURE",
        means="no",
        flag="train",
    )
    patience: int = setting(
        0,
        "with --keep-best and --evaluate-every, end after N evaluations in a row without a better model",
        metavar="N",
        means="no end",
        least=0,
        flag="train",
    )
    keep: int = setting(2, "number of checkpoints to keep", metavar="N", least=1, flag="train")
    merged: bool = setting(
        False,
        "with --lora, write the whole model into every checkpoint, not only the last",
        flag="train",
    )
    rollouts: str = setting(
        "all",
        "which episodes of a step are written to disk",
        metavar="all|sample:N|none",
        flag="train",
    )


@dataclass(frozen=True, kw_only=True)
class Settings(DriveSettings, ProblemSettings):
    """What a run is made from."""

    exams: tuple[str, ...] = setting(
        (),
        "further tasks that are measured as the held-out problems are, also lm-eval:NAME, inspect:TASK; may stand several times",
        metavar="TASK",
        use=Use.REPEATED,
        flag="train",
    )
    track: tuple[str, ...] = setting(
        (),
        "also send the metrics to trackio, wandb, tensorboard, accelerate:mlflow; may be repeated",
        metavar="NAME[:PROJECT]",
        flag="train",
    )
    track_seconds: int = setting(
        30,
        "drop a tracker that does not answer for S seconds",
        metavar="S",
        least=1,
        flag="train",
    )
    anyway: bool = setting(
        False, "go on where something is missing that the method acts on", flag="train"
    )
    embedded: bool = setting(False, use=Use.MAKE, flag="none")  # the method's own embedded problem
    set: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("track", "exams"):
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))
        tools = (self.tools,) if isinstance(self.tools, str) else self.tools
        object.__setattr__(self, "tools", split_names(tools))
        if not ROLLOUTS.fullmatch(self.rollouts):
            raise UserError(
                f"--rollouts is all, none, or sample:N with N episodes a step, not {self.rollouts!r}"
            )
        for f in fields(self):
            least, given = f.metadata.get("least"), getattr(self, f.name)
            if least is not None and given is not None and not given >= least:
                raise UserError(f"{flag_of(f.name)} must be at least {least}, not {given}")

    @property
    def where(self) -> str:
        """The device that is meant: the GPU where nothing is said and there is one."""
        if self.device:
            return self.device
        import torch

        return "cuda" if torch.cuda.is_available() else "cpu"

    @property
    def precision(self) -> str:
        """The dtype that is meant: the faster safe one where nothing is said."""
        if self.dtype or self.model in FOLDERS:
            return self.dtype or "float32"
        from palaestra.models.precision import precision_for

        return precision_for(self.model, self.where).dtype

    def meant(self, name: str) -> Any:
        """A setting, and where nothing is said what that stands for here."""
        return self.precision if name == "dtype" else getattr(self, name)

    def says(self, name: str) -> bool:
        """Whether this setting must be written to be meant: it is not at its default, or its
        default is not the same everywhere.
        """
        if name != "dtype":
            return bool(getattr(self, name) != getattr(Settings(), name))
        return "bfloat16" in (self.precision, replace(self, dtype="").precision)

    @property
    def rate(self) -> float:
        """The learning rate that the model asks for; 0 = the recipe's own, which is for models as
        small as the embedded one. Large ones were trained on much text, and lose what they know at
        such a rate.
        """
        from palaestra.models.precision import is_small

        return 0.0 if is_small(self.model) else LORA_LR if self.lora else FULL_LR

    @property
    def in_code(self) -> bool:
        """Whether the questions of data or of a task are answered with programs in the reply."""
        return self.env.partition("(")[0] == INTERPRETER

    @property
    def problem(self) -> str:
        """One name for what is learned."""
        asked = self.data or self.task or TASK
        return f"{asked} with the {self.env}" if self.in_code else self.env or asked


def setting_names(use: Use) -> tuple[str, ...]:
    """The names of the settings that decide this, in their order."""
    return tuple(f.name for f in fields(Settings) if use in f.metadata.get("use", Use.NOTHING))


def flag_of(name: str) -> str:
    """The flag of a setting on the command line."""
    return f"--{name.replace('_', '-')}"


def words_of(given: Any) -> tuple[str, ...]:
    """What a setting is given as behind its flag, which may stand several times."""
    return given if isinstance(given, tuple) else (str(given),)

"""`palaestra push`: uploads a trained model to the Hugging Face hub, with a card of what was measured.

It uploads the weights, the model's configuration, its tokenizer and its processor of pictures. It does not upload the state for
resuming or the recorded rollouts.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub import CommitOperationAdd
from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled

from palaestra.errors import Fault, UserError
from palaestra.models.files import PROCESSOR_FILES
from palaestra.models.load import check
from palaestra.run.trust import check_code
from palaestra.store.checkpoint import STEP, Checkpoint, checkpoint_of, find_latest
from palaestra.store.folder import RunFolder, loading_class, read_run
from palaestra.trackers.base import describe_run
from palaestra.view.model_card import model_card

SENT_FILES = (
    "model*.safetensors", "model.safetensors.index.json", "heads.safetensors", "config.json",
    "generation_config.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
    "chat_template.jinja", *PROCESSOR_FILES,
)  # fmt: skip
SETTINGS = ("config.json", "generation_config.json", "tokenizer_config.json", *PROCESSOR_FILES)
LOCAL = (
    "_name_or_path",
    "name_or_path",
    "is_local",
    "local_files_only",
)  # where it was loaded from on this machine
CARD = "README.md"


@dataclass(frozen=True)
class Trained:
    """A model of a run: its folder, and the step after which it was saved."""

    run: RunFolder
    model: Path
    step: int
    alone: bool  # the run has no other learner


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    trained = find(Path(arguments.folder))
    repo = arguments.repo or describe_run(trained.run.folder)["name"]
    repo = repo if arguments.dry_run or "/" in repo else f"{owner()}/{repo}"
    check_code(trained.run.folder / "config.toml", trained.run.config)  # its recipe, for the card
    loads = loading_class(str(trained.model))
    card = model_card(trained.run, trained.step, repo, trained.alone, loads)
    files: dict[str, bytes | Path] = {CARD: card.encode(), **contents(trained.model)}
    check_paths(files, trained.run.folder)
    result = {
        "repo": repo,
        "files": sorted(files),
        "step": trained.step,
        "sent": not arguments.dry_run,
    }
    if arguments.dry_run:
        result["card"] = card
    else:
        result["url"] = send(repo, files, arguments.private)
    if not arguments.json:
        print(describe_push(result))
    return result


def describe_push(result: Mapping[str, Any]) -> str:
    files = ", ".join(result["files"])
    if result["sent"]:
        return f"sent {files}\nto {result['url']}"
    return f"{result['card']}\n--- would send to {result['repo']}: {files}"


# ---- which model


def find(folder: Path) -> Trained:
    """The model of a run (of a pipeline its last part), of a checkpoint, or of a learner in one."""
    place = folder.expanduser().resolve()
    if not place.is_dir():
        raise UserError(f"push {folder}: no such folder")
    saved = checkpoint_of(place)
    if saved is None:
        whole = read_run(place)
        last = place / list(whole.parts)[-1] if whole.parts else place
        latest, damaged = find_latest(last)
        if latest is None:
            why = f"{damaged[0][0]} is damaged" if damaged else "it has no checkpoint"
            raise UserError(f"push {folder}: {why}")
        return Trained(
            whole, learner(latest.path), latest.step, learner(latest.path) == latest.path
        )
    number = saved.name.removeprefix(STEP)
    step = int(number) if saved.name.startswith(STEP) and number.isdecimal() else -1
    if why := Checkpoint(saved, step).damage():
        raise UserError(f"push {folder}: the checkpoint is damaged: {why}")
    model = learner(saved) if place == saved else place
    check(model)
    return Trained(part(saved.parent.parent), model, step, model == saved)


def part(folder: Path) -> RunFolder:
    """A run with its settings, which those of a pipeline's part are the pipeline's."""
    run = read_run(folder)
    return run if run.config else replace(run, config=read_run(folder.parent).config)


def learner(checkpoint: Path) -> Path:
    """Where the policy lies in a checkpoint, or the only model that there is."""
    if (checkpoint / "config.json").is_file():
        return checkpoint
    models = sorted(p.parent for p in checkpoint.glob("*/config.json"))
    chosen = [m for m in models if m.name == "policy"] or models
    if not models:
        raise UserError(
            f"push {checkpoint}: it holds adapters alone; push the last checkpoint of the run, or "
            "train with --merged"
        )
    if len(chosen) != 1:
        names = ", ".join(map(str, models))
        raise UserError(f"push {checkpoint}: name one of its models, {names}")
    return chosen[0]


# ---- what is sent


def contents(model: Path) -> dict[str, bytes | Path]:
    """The files of a model by name. Settings are sent without the place they were loaded from."""
    named = [
        p for p in sorted(model.iterdir()) if any(fnmatch.fnmatch(p.name, s) for s in SENT_FILES)
    ]
    return {p.name: clean_config(p) if p.name in SETTINGS else p for p in named if p.is_file()}


def clean_config(file: Path) -> bytes:
    settings = json.loads(file.read_text(encoding="utf-8"))
    settings = {k: v for k, v in settings.items() if k not in LOCAL}
    return (json.dumps(settings, indent=2, ensure_ascii=False) + "\n").encode()


def check_paths(files: Mapping[str, bytes | Path], run: Path) -> None:
    """Raises UserError where a text that is written here names a folder of this machine."""
    places = (Path.home(), Path.cwd(), run.resolve(), run.resolve().parent)
    here = {f"{p}/" for p in places if p != Path("/")}
    for name, content in files.items():
        if isinstance(content, bytes) and (leaks := [p for p in here if p.encode() in content]):
            raise UserError(f"push: {name} names {leaks[0]} of this machine; nothing was sent")


# ---- the hub


def owner() -> str:
    """Whose token it is."""
    with hub("push"):
        return huggingface_hub.whoami()["name"]


def send(repo: str, files: Mapping[str, bytes | Path], private: bool) -> str:
    """One commit with all files, in a repository that is made where there is none; its address."""
    operations = [CommitOperationAdd(name, content) for name, content in files.items()]
    with hub(f"push to {repo}"):
        url = huggingface_hub.create_repo(repo, private=private or None, exist_ok=True)
        message = "Model, tokenizer and card of a run of palaestra"
        huggingface_hub.create_commit(url.repo_id, operations, commit_message=message)
        return str(url)


@contextmanager
def hub(doing: str) -> Generator[None]:
    """What the hub refuses, in one line, never with the token.

    A UserError where a login or another name would do, else a Fault.
    """
    try:
        yield
    except Exception as error:
        status = error.response.status_code if isinstance(error, HfHubHTTPError) else 0
        if isinstance(error, LocalTokenNotFoundError) or status == 401:
            login = "set HF_TOKEN, or run: hf auth login"
            raise UserError(f"{doing}: the hub does not know you; {login}") from None
        if isinstance(error, OfflineModeIsEnabled):
            raise UserError(f"{doing}: HF_HUB_OFFLINE is set; unset it, or use --dry-run") from None
        reason = secret_free(next(iter(str(error).strip().splitlines()), type(error).__name__))
        # 400, ValueError: a name that it does not take; 404: no such owner
        if status in (400, 403, 404) or isinstance(error, ValueError):
            raise UserError(f"{doing}: {reason}") from None
        raise Fault("hub", f"{doing}: {reason}") from None


def secret_free(text: str) -> str:
    """Without the token, should a library put it into its message."""
    token = huggingface_hub.get_token()
    return text.replace(token, "HF_TOKEN") if token else text

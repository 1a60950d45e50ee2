"""Reading models with transformers: quietly, whole, without running any code that comes
with them.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from logging import getLogger
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForMultimodalLM,
    AutoTokenizer,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
)
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING
from transformers.utils import logging

from palaestra.errors import UserError
from palaestra.models.limits import check_files, file_of

CLASSIFIER = "ForSequenceClassification"  # how such architectures end
# where a processor keeps its settings, beside those of the tokenizer
PROCESSOR_FILES = ("processor_config.json", "preprocessor_config.json")
# model types that hear, and what transformers calls their processors
HEARING = {
    "qwen2_5_omni": "Qwen2_5OmniProcessor",
    "qwen2_5_omni_thinker": "Qwen2_5OmniProcessor",
    "qwen2_audio": "Qwen2AudioProcessor",
}
NO_CODE = {"trust_remote_code": False}  # said aloud: left unsaid, transformers asks at the terminal


def read_module(where: Path | str, dtype: torch.dtype, attn_implementation: str) -> Any:
    """The causal model of a directory or hub id, with its towers where it sees pictures or hears sounds;
    every weight must come from its files. Of Qwen2.5-Omni it is the thinker, which writes.
    """
    architecture = architecture_of(AutoConfig.from_pretrained(where, **NO_CODE))
    try:
        loaded: Any = architecture.from_pretrained(
            where,
            dtype=dtype,
            attn_implementation=attn_implementation,
            use_safetensors=True,
            output_loading_info=True,
            **NO_CODE,
        )
    except ValueError as error:
        if "attention implementation" not in str(error):
            raise
        kind = str(error).split()[0]
        raise UserError(
            f"{where}: transformers has no sdpa attention for {kind}, and models without it can "
            "neither be sampled from nor trained here; take one of another architecture"
        ) from None
    module, info = loaded
    missing = sorted(info["missing_keys"])
    if missing and _classifies(module):
        # a sequence classifier has no vocabulary to speak with; it may not be a random one
        output = module.get_output_embeddings()
        missing = [n for n in missing if module.get_parameter(n) is not output.weight]
        with torch.no_grad():
            output.weight.copy_(module.get_input_embeddings().weight)
    if missing:
        raise UserError(
            f"{where}: {len(missing)} weights are not in its safetensors files, e.g. {missing[0]}; "
            "save it again, whole"
        )
    return module.eval()


def _classifies(module: Any) -> bool:
    """Whether a model was saved as a sequence classifier, as reward models of the hub are."""
    return any(str(a).endswith(CLASSIFIER) for a in module.config.architectures or ())


def architecture_of(config: Any) -> Any:
    """The class of transformers that makes the model of a configuration. Raises UserError for one that
    hears by itself and is not read here.
    """
    if config.model_type == "qwen2_5_omni":
        return transformers.Qwen2_5OmniThinkerForConditionalGeneration
    if config.model_type == "qwen2_audio":
        return AutoModelForMultimodalLM
    hears = any(hasattr(config, name) for name in ("audio_config", "thinker_config"))
    if hears and not reads_pictures(config) and type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise UserError(
            f"a model of the architecture {config.model_type!r} hears by itself, which is not read here; "
            "take Qwen2.5-Omni or Qwen2-Audio, or a text model and give it ears: heads=('ears',)"
        )
    return AutoModelForImageTextToText if reads_pictures(config) else AutoModelForCausalLM


def reads_pictures(config: Any) -> bool:
    """Whether a configuration is that of a vision-language model, and was not saved as its language
    part alone.
    """
    texts = any(str(a).endswith("ForCausalLM") for a in config.architectures or ())
    known = type(config) in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
    return known and hasattr(config, "vision_config") and not texts


def reads_media(config: Any) -> bool:
    """Whether a configuration is that of a model that sees pictures or hears sounds by itself."""
    return reads_pictures(config) or config.model_type in HEARING


def read_processor(where: Path | str, config: Any, tokenizer: PreTrainedTokenizerBase) -> Any:
    """The processor of a model that sees or hears, of a directory or hub id, without its part for
    videos; None where there are no files of one. It shares the tokenizer.
    """
    if not any(file_of(where, name) for name in PROCESSOR_FILES):
        return None
    hears = config.model_type in HEARING
    if not hears and type(config) not in PROCESSOR_MAPPING:
        return None
    whole: Any = (
        getattr(transformers, HEARING[config.model_type])
        if hears
        else PROCESSOR_MAPPING[type(config)]
    )
    processor = without_videos(whole, hears).from_pretrained(where, **NO_CODE)
    if tokenizer.chat_template is None:
        tokenizer.chat_template = processor.chat_template
    processor.tokenizer = tokenizer
    return processor


def without_videos(whole: Any, hears: bool) -> Any:
    """The class of a processor without its part for videos, which asks for torchvision when it is loaded;
    with that for sounds where it `hears`.
    """
    read = ("image_processor", "tokenizer", *(("feature_extractor",) if hears else ()))
    parts = [n for n in whole.get_attributes() if n in read]

    def init(
        self: Any,
        image_processor: Any = None,
        feature_extractor: Any = None,
        tokenizer: Any = None,
        chat_template: Any = None,
    ) -> None:
        # transformers names what it is given by its place among the attributes
        whole.__init__(
            self, image_processor, feature_extractor, tokenizer, chat_template=chat_template
        )

    changed: dict[str, Any] = {"get_attributes": classmethod(lambda _: parts)}
    if whole.__name__ == "Qwen2_5OmniProcessor":  # its part for videos stands before others
        changed["__init__"] = init
    return type(whole.__name__, (whole,), changed)


def check_processor(where: Path | str, config: Any) -> None:
    """Says what a model that sees or hears and was loaded without a processor lacks for a picture or
    sound: UserError. A model of texts lacks nothing.
    """
    if not reads_media(config):
        return
    if not any(file_of(where, name) for name in PROCESSOR_FILES):
        raise UserError(
            f"{where} has no {' or '.join(PROCESSOR_FILES)}, and a prompt holds a picture or sound; copy "
            "what there is of them from the folder on the hub that the model is from"
        )
    raise UserError(
        f"{where} is of the architecture {config.model_type!r}, of which transformers has no "
        "processor, and a prompt holds a picture; leave the pictures out"
    )


def read_tokenizer(where: Path | str) -> PreTrainedTokenizerBase:
    """The tokenizer of a directory or hub id. Raises UserError for files beyond `limits`."""
    check_files(where)
    return AutoTokenizer.from_pretrained(where, **NO_CODE)


@contextmanager
def explain_failures(name: str) -> Generator[None]:
    """Failures of transformers as one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # of whatever reads the files: each library has errors of its own
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        kind = type(error).__name__
        why = first if isinstance(error, OSError | ValueError) and first else f"{kind}: {first}"
        raise UserError(f"model {name!r} cannot be loaded: {why}") from error


def silence_bitsandbytes() -> None:
    """For good: it warns of kernels that are not used here, when peft imports it, too."""
    getLogger("bitsandbytes").setLevel("ERROR")


@contextmanager
def silence_transformers() -> Generator[None]:
    """No progress bars or notes of transformers inside, nor what other libraries hear from it of
    names that it will give up.
    """
    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()

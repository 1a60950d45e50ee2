"""Tiny models of transformers' architectures that hear, with random weights and processors that are made in place."""

from pathlib import Path

import numpy as np
import transformers
from palaestra.sounds import Sound

from tests.vision import TEMPLATE, TEXT, qwen2_5_omni, save_small, tokenizer


def qwen2_audio():
    # numbers its sounds, as the model's template on the hub
    words = tokenizer(
        "{% set n = namespace(value=0) %}"
        + TEMPLATE.replace("c['type'] == 'image'", "'audio' in c").replace(
            "IMAGE", "{% set n.value = n.value + 1 %}Audio {{ n.value }}: <|audio_bos|><|AUDIO|><|audio_eos|>\n"
        ),
        "<|AUDIO|>",
        "<|audio_bos|>",
        "<|audio_eos|>",
    )
    ears = transformers.WhisperFeatureExtractor(feature_size=8, chunk_length=2)
    processor = transformers.Qwen2AudioProcessor(
        feature_extractor=ears, tokenizer=words, chat_template=words.chat_template
    )
    audio = {"d_model": 32, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 48}
    config = transformers.Qwen2AudioConfig(
        text_config=transformers.Qwen2Config(**TEXT),
        audio_config=transformers.Qwen2AudioEncoderConfig(**audio, num_mel_bins=8, max_source_positions=100),
        audio_token_index=words.convert_tokens_to_ids("<|AUDIO|>"),
    )
    return transformers.Qwen2AudioForConditionalGeneration(config), processor


HEARING = {f.__name__: f for f in (qwen2_5_omni, qwen2_audio)}


def save_hearing(architecture: str, folder: Path, seed=0) -> str:
    """A random model of the architecture with its processor in the folder, and its path."""
    return save_small(HEARING[architecture], folder, seed)


def clip(seed, seconds=0.5, rate=16_000) -> Sound:
    """Noise, some of it louder."""
    samples = np.random.default_rng(seed).normal(size=int(seconds * rate))
    return Sound.from_samples(samples * np.linspace(0.05, 0.3, len(samples)), rate)

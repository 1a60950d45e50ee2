"""Tiny vision-language models of transformers' architectures with random weights, and processors that are made in place."""

from pathlib import Path

import numpy as np
import torch
import transformers
from palaestra.models.files import without_videos
from palaestra.pictures import Picture
from PIL import Image
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import LlavaOnevisionImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

TEMPLATE = (  # as those of these models on the hub
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for c in m['content'] %}{% if c['type'] == 'image' %}IMAGE{% else %}{{ c['text'] }}{% endif %}{% endfor %}{% endif %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# takes lists of parts alone, as SmolVLM's
LISTS = (
    "<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}{% if message['content'][0]['type'] == 'image' %}"
    "{{ ':' }}{% else %}{{ ': ' }}{% endif %}{% for line in message['content'] %}"
    "{% if line['type'] == 'text' %}{{ line['text'] }}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
TEXT = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
TEXT |= {"vocab_size": 320, "max_position_embeddings": 2048}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}


def tokenizer(template, *special, end="<|im_end|>", **more):
    """Bytes, and the special tokens."""
    vocabulary = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    marks = [AddedToken(s, special=True, normalized=False) for s in ("<|im_start|>", "<|im_end|>", *special, "<unk>")]
    inner.add_special_tokens(marks)
    found = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=end, pad_token="<unk>", unk_token="<unk>", **more)
    found.chat_template = template
    return found


def idefics3(template=TEMPLATE.replace("IMAGE", "<image>"), end="<|im_end|>"):
    rows = [f"<row_{i}_col_{j}>" for i in (1, 2, 3) for j in (1, 2, 3)]
    words = tokenizer(
        template, "<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>", *rows, end=end
    )
    eyes = Idefics3ImageProcessorPil(size={"longest_edge": 64}, max_image_size={"longest_edge": 32})
    processor = transformers.Idefics3Processor(image_processor=eyes, tokenizer=words, image_seq_len=4)
    config = transformers.Idefics3Config(
        text_config=transformers.LlamaConfig(**TEXT),
        vision_config=VISION,
        scale_factor=2,
        image_token_id=words.convert_tokens_to_ids("<image>"),
    )
    return transformers.Idefics3ForConditionalGeneration(config), processor


def smolvlm_like():
    """Idefics3, of which SmolVLM is a copy, with SmolVLM's template."""
    return idefics3(LISTS, "<end_of_utterance>")


def llava_onevision():
    words = tokenizer(TEMPLATE.replace("IMAGE", "<image>"), "<image>", "<video>")
    grid = [[32, 32], [32, 64], [64, 32], [64, 64]]
    eyes = LlavaOnevisionImageProcessorPil(size={"height": 32, "width": 32}, image_grid_pinpoints=grid)
    processor = without_videos(transformers.LlavaOnevisionProcessor, hears=False)(
        image_processor=eyes,
        tokenizer=words,
        num_image_tokens=16,
        vision_feature_select_strategy="full",
    )
    config = transformers.LlavaOnevisionConfig(
        text_config=transformers.Qwen2Config(**TEXT),
        vision_config=transformers.SiglipVisionConfig(**VISION, vision_use_head=False),
        image_token_index=words.convert_tokens_to_ids("<image>"),
        video_token_index=words.convert_tokens_to_ids("<video>"),
        image_grid_pinpoints=grid,
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
    )
    return transformers.LlavaOnevisionForConditionalGeneration(config), processor


def internvl():
    named = {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    }
    words = tokenizer(TEMPLATE.replace("IMAGE", "<IMG_CONTEXT>"), *named.values(), extra_special_tokens=named)
    eyes = GotOcr2ImageProcessorPil(size={"height": 32, "width": 32}, max_patches=4, crop_to_patches=True)
    processor = without_videos(transformers.InternVLProcessor, hears=False)(
        image_processor=eyes, tokenizer=words, image_seq_length=4
    )
    vision = dict(VISION, image_size=[32, 32], patch_size=[8, 8])
    config = transformers.InternVLConfig(
        text_config=transformers.Qwen2Config(**TEXT),
        vision_config=vision,
        image_token_id=words.convert_tokens_to_ids("<IMG_CONTEXT>"),
        image_seq_length=4,
    )
    return transformers.InternVLForConditionalGeneration(config), processor


def qwen_words():
    special = ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>", "<|video_pad|>")
    words = tokenizer(TEMPLATE.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>"), *special)
    names = ("vision_start", "image", "vision_end", "video")
    return words, {f"{n}_token_id": words.convert_tokens_to_ids(s) for n, s in zip(names, special, strict=True)}


def qwen2_5_vl():
    words, ids = qwen_words()
    eyes = Qwen2VLImageProcessorPil(size={"shortest_edge": 28 * 28, "longest_edge": 28 * 28 * 12})
    processor = without_videos(transformers.Qwen2_5_VLProcessor, hears=False)(image_processor=eyes, tokenizer=words)
    vision = {"depth": 2, "hidden_size": 32, "num_heads": 2, "intermediate_size": 48, "out_hidden_size": 32}
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
    config = transformers.Qwen2_5_VLConfig(
        text_config={**TEXT, "rope_parameters": rope},
        vision_config={**vision, "fullatt_block_indexes": [1], "window_size": 56},
        **ids,
    )
    return transformers.Qwen2_5_VLForConditionalGeneration(config), processor


def qwen3_vl():
    words, ids = qwen_words()
    eyes = Qwen2VLImageProcessorPil(size={"shortest_edge": 32 * 32, "longest_edge": 32 * 32 * 12}, patch_size=16)
    processor = without_videos(transformers.Qwen3VLProcessor, hears=False)(image_processor=eyes, tokenizer=words)
    vision = {"depth": 2, "hidden_size": 32, "num_heads": 2, "intermediate_size": 48, "out_hidden_size": 32}
    rope = {"rope_type": "default", "mrope_section": [2, 1, 1], "rope_theta": 10000.0, "mrope_interleaved": True}
    config = transformers.Qwen3VLConfig(
        text_config={**TEXT, "head_dim": 8, "rope_parameters": rope},
        vision_config={**vision, "deepstack_visual_indexes": [0, 1], "num_position_embeddings": 16},
        **ids,
    )
    return transformers.Qwen3VLForConditionalGeneration(config), processor


def gemma3():
    named = {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"}
    words = tokenizer(TEMPLATE.replace("IMAGE", "<start_of_image>"), *named.values(), extra_special_tokens=named)
    eyes = Gemma3ImageProcessorPil(size={"height": 32, "width": 32})
    processor = transformers.Gemma3Processor(image_processor=eyes, tokenizer=words, image_seq_length=4)
    config = transformers.Gemma3Config(
        text_config={**TEXT, "head_dim": 8, "sliding_window": 1024, "num_hidden_layers": 6},
        vision_config={**VISION, "vision_use_head": False},
        mm_tokens_per_image=4,
        boi_token_index=words.convert_tokens_to_ids("<start_of_image>"),
        eoi_token_index=words.convert_tokens_to_ids("<end_of_image>"),
        image_token_index=words.convert_tokens_to_ids("<image_soft_token>"),
    )
    return transformers.Gemma3ForConditionalGeneration(config), processor


def qwen2_5_omni():
    """Its thinker, which sees and hears; see `tests.hearing`."""
    named = {
        "image_token": "<|IMAGE|>",
        "audio_token": "<|AUDIO|>",
        "video_token": "<|VIDEO|>",
        "vision_bos_token": "<|vision_bos|>",
        "vision_eos_token": "<|vision_eos|>",
        "audio_bos_token": "<|audio_bos|>",
        "audio_eos_token": "<|audio_eos|>",
    }
    template = TEMPLATE.replace("IMAGE", "<|vision_bos|><|IMAGE|><|vision_eos|>").replace(
        "{% else %}{{ c['text'] }}",
        "{% elif c['type'] == 'audio' %}<|audio_bos|><|AUDIO|><|audio_eos|>{% else %}{{ c['text'] }}",
    )
    words = tokenizer(template, *named.values(), extra_special_tokens=named)
    eyes = Qwen2VLImageProcessorPil(size={"shortest_edge": 28 * 28, "longest_edge": 28 * 28 * 12})
    ears = transformers.WhisperFeatureExtractor(feature_size=8, chunk_length=2)
    processor = without_videos(transformers.Qwen2_5OmniProcessor, hears=True)(eyes, ears, words)
    vision = {"depth": 2, "hidden_size": 32, "num_heads": 2, "intermediate_size": 48, "out_hidden_size": 32}
    audio = {"d_model": 32, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 48}
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
    number = {n: words.convert_tokens_to_ids(t) for n, t in named.items()}
    config = transformers.Qwen2_5OmniThinkerConfig(
        text_config={**TEXT, "rope_parameters": rope},
        vision_config={**vision, "fullatt_block_indexes": [1], "window_size": 56},
        # a window of 0.4 s
        audio_config={**audio, "num_mel_bins": 8, "max_source_positions": 100, "n_window": 20, "output_dim": 32},
        image_token_index=number["image_token"],
        audio_token_index=number["audio_token"],
        video_token_index=number["video_token"],
        vision_start_token_id=number["vision_bos_token"],
        vision_end_token_id=number["vision_eos_token"],
        audio_start_token_id=number["audio_bos_token"],
        audio_end_token_id=number["audio_eos_token"],
    )
    return transformers.Qwen2_5OmniThinkerForConditionalGeneration(config), processor


KINDS = (idefics3, smolvlm_like, llava_onevision, internvl, qwen2_5_vl, qwen3_vl, gemma3, qwen2_5_omni)
ARCHITECTURES = {f.__name__: f for f in KINDS}


def save_tiny(architecture: str, folder: Path, seed=0) -> str:
    """A random model of the architecture with its processor in the folder, and its path."""
    return save_small(ARCHITECTURES[architecture], folder, seed)


def save_small(build, folder: Path, seed=0) -> str:
    """What `build` makes, its weights larger than they start."""
    torch.manual_seed(seed)
    module, processor = build()
    with torch.no_grad():
        for name, p in module.named_parameters():
            if p.dim() > 1 and not p.any():  # Gemma 3's projector begins at zero
                p.normal_(std=0.2)
            elif p.dim() > 1:  # far enough from zero that pictures and words count
                p.mul_(0.3 / p.std().clamp(min=1e-6)) if "embed" in name else p.mul_(4.0)
    module.save_pretrained(folder)
    processor.save_pretrained(folder)
    return str(folder)


def noise(seed, height=40, width=60) -> Picture:
    data = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Picture(shape=(height, width, 3), data=data.tobytes())


def pillow(picture: Picture) -> Image.Image:
    return Image.fromarray(np.frombuffer(picture.data, np.uint8).reshape(picture.shape))

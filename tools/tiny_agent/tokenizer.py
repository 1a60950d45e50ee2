"""The tokenizer of the small agent: byte-level BPE, so that any text has tokens.

Merges stay inside a piece of `PIECES`: a tag, a digit, a run of JSON's punctuation, an operator, a
word, a space, any other character. So digits and operators stand alone, as arithmetic needs them, a
tag or `": "` is one token, and a word is spelled the same wherever it stands: what is copied from a
page into a query keeps its tokens. The special tokens and the chat template are the first model's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from palaestra.toys.wiki import SYLLABLES
from tools.tiny_agent.words import WORDS
from tools.tiny_model.tokenizer import SPECIALS, TEMPLATE

VOCABULARY, CONTEXT = 1024, 1024  # at most; tokens
# a run of letters that the texts have less often is a made-up name or code, from which nothing is
# to be learned about words; how often a common word counts; and a syllable of names, so that names
# are two tokens before any words are joined
SELDOM, COMMON, FIRST = 40, 60, 20_000
LETTERS = re.compile(r"[^\W\d_]+")
PAD, BEGIN, END, SYSTEM, USER, ASSISTANT, TOOL = range(len(SPECIALS))
PIECES = r"</?[\p{L}_]+>|\p{N}|[\":,{}\[\]][\":,{}\[\] ]*|[()&|^!+*=\-]|\p{L}+|\s|[^\s\p{L}\p{N}]"


def spelled(texts: Iterable[str]) -> Iterator[str]:
    """What merges are learned from: the texts without their seldom words, common words, and the
    syllables of names.
    """
    known = list(texts)
    often = Counter(w for text in known for w in LETTERS.findall(text))
    for text in known:
        yield LETTERS.sub(lambda w: w[0] if often[w[0]] >= SELDOM else " ", text)
    yield " ".join(WORDS * COMMON)
    yield " ".join(SYLLABLES * FIRST)


def build(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Merges what stands together most often in the texts."""
    core = Tokenizer(models.BPE())
    bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(PIECES), behavior="isolated"), bytes_of]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        min_frequency=SELDOM // 2,
        special_tokens=list(SPECIALS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(spelled(texts), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<|begin|>",
        eos_token="<|end|>",
        pad_token="<|pad|>",
        additional_special_tokens=list(SPECIALS[3:]),
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT,
    )

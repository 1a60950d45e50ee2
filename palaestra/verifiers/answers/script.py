"""Other characters for the same text: full width, decomposed accents, HTML emphasis, and Chinese
words around an answer.

Chinese has no spaces, so what stands before and behind a number is one run of characters. A run
before it must not deny it or work on it (`不是12`, `12除以3`), and behind it stands a measure word
or nothing: `3万` is not 3.
"""

from __future__ import annotations

import re
import unicodedata

WIDE = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
CHARACTERS: dict[int, int | str] = {
    **WIDE, ord("，"): ", ", ord("：") : ": ", ord("；"): "; ", ord("、"): ", ", ord("。"): ". ",
    ord("｡"): ". ", ord("【"): "[", ord("】"): "]", ord("「"): '"', ord("」"): '"', ord("『"): '"',
    ord("』"): '"', ord("《"): '"', ord("》"): '"', ord("\u3000"): " ",
    ord("\u200b"): "", ord("\u200c"): "", ord("\u200d"): "", ord("\u2060"): "", ord("\ufeff"): "",
}  # fmt: skip
TAGS = re.compile(r"</?(?:b|strong|i|em|u|p|span|div)>|<br ?/?>", re.IGNORECASE)

HAN = r"\u3400-\u9fff"
MEETS_HAN = re.compile(rf"(?<=[{HAN}])(?=[-+−]?\$?[0-9])|(?<=[0-9%$])(?=[{HAN}])")
DENIED = re.compile(
    "[不没沒无無未非莫勿或除加减減乘约約第倍超]|大于|大於|小于|小於|多于|多於|少于|少於|至少|至多|最多"
    "|最少|近似|接近|根号|根號|平方|立方|百分之|分之|一半|例如|假如|如果|假设|假設"
)
NEGATIVE = re.compile(r"(?:^|[是为為得到有])[负負]$")
MEASURE = re.compile(
    "(?:个|個|只|隻|本|元|块|塊|角|分钱|毫米|厘米|分米|千米|公里|米|毫克|千克|公斤|克|斤|吨|人|天|年|月"
    "|日|岁|歲|小时|小時|分钟|分鐘|秒|次|种|種|条|條|张|張|支|枝|颗|顆|朵|辆|輛|头|頭|匹|件|位|名|度"
    "|平方(?:厘米|分米|千米|公里|米)|立方(?:厘米|分米|米)|毫升|升|页|頁|题|題|步|层|層|间|間|座|台|部"
    "|杯|瓶|盒|箱|袋|包|美元|人民币|岁|棵|把|枚|根|句|字|票|套|[。，了])"
)


def plain_forms(text: str) -> str:
    """A text in composed accents (NFC), full-width characters and Chinese punctuation as ASCII, and
    without HTML emphasis and characters of no width. Superscripts and other digits stay.
    """
    if text.isascii() and "<" not in text:
        return text
    return TAGS.sub("", unicodedata.normalize("NFC", text).translate(CHARACTERS))


def space_numbers(text: str) -> str:
    """Chinese text with spaces around its numbers."""
    return text if text.isascii() else MEETS_HAN.sub(" ", text)


def is_han(word: str) -> bool:
    return re.search(f"[{HAN}]", word) is not None


def is_negative(word: str) -> bool:
    """Whether a run of Chinese in front of a number ends with the sign 负."""
    return NEGATIVE.search(word) is not None


def leads_to_number(word: str) -> bool:
    """Whether a run of Chinese may stand in front of a number."""
    return DENIED.search(word) is None and not word.endswith(("负", "負"))


def follows_number(word: str) -> bool:
    """Whether a run of Chinese may stand behind a number and leave it as it is."""
    unit = MEASURE.match(word)
    return unit is not None and DENIED.search(word, unit.end()) is None

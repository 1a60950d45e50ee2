"""Headlines of the made-up market, and scores that a large model wrote of each once."""

import json
import re
from collections.abc import Mapping

import palaestra as pl

BANK: Mapping[str, tuple[str, ...]] = {
    "bad": (
        "Regulator opens an inquiry into the company's accounts",
        "Largest customer does not renew its contract",
        "Profit warning: orders fall for the third month",
        "Product recall in two countries",
        "Plant closed after a fire; deliveries are late",
        "Analysts lower their targets after weak sales",
    ),
    "plain": (
        "Annual meeting will be held in spring",
        "Company moves its headquarters within the city",
        "New logo presented to employees",
        "Board member speaks at an industry conference",
    ),
    "good": (
        "Record orders; the outlook for the year is raised",
        "Patent dispute won; royalties will be paid",
        "New factory reaches full output ahead of plan",
        "Large contract signed for five years",
        "Costs fall, and the margin is the best in a decade",
        "Analysts raise their targets after strong sales",
    ),
    "wild": (
        "Shares swing by a tenth within a day, traders unsure why",
        "Rumours of a takeover come and go",
        "Short sellers and funds fight over the stock",
    ),
}
# sentiment and risk, in the order of the bank
WRITTEN: Mapping[str, tuple[tuple[int, int], ...]] = {
    "bad": ((1, 5), (1, 4), (1, 4), (2, 4), (2, 4), (2, 3)),
    "plain": ((3, 3), (3, 3), (3, 2), (3, 2)),
    "good": ((5, 2), (5, 3), (4, 2), (5, 2), (4, 2), (4, 3)),
    "wild": ((3, 5), (3, 5), (2, 5)),
}
SCORE_OF = {t: s for kind in BANK for t, s in zip(BANK[kind], WRITTEN[kind], strict=True)}


def written_scores(request: pl.ChatRequest) -> str:
    """The scores that a large model wrote while this file was written: it knew the headlines, and what
    kinds of them the made-up market has.
    """
    match = re.search(r'^Headline: "(.*)"$', request.messages[0].content, re.MULTILINE)
    sentiment, risk = SCORE_OF.get(match[1] if match else "", (3, 3))
    return json.dumps({"sentiment": sentiment, "risk": risk})

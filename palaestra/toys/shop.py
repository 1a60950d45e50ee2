"""T-shop: a user wants something from a shop, and says how much only if asked. What is not there in
that amount must not be ordered, but the user told how much there is.
"""

from __future__ import annotations

from typing import Any

from palaestra.declared import declare
from palaestra.types import Key, Message, Task, rng_of, stage
from palaestra.worlds.service import STOP, Service, Talk
from palaestra.worlds.toolbox import tool_names

ITEMS = (
    "lamp",
    "chair",
    "rope",
    "coat",
    "drum",
    "bell",
    "kite",
    "boat",
    "ring",
    "vase",
    "sock",
    "tent",
)
HIDES = 0.9  # of the users, who do not say at once how much they want


def stock(db: dict[str, Any], item: str) -> int:
    """How many of an item there are."""
    return db["stock"][item]


def order(db: dict[str, Any], item: str, amount: int) -> str:
    """Orders an item."""
    if amount > db["stock"][item]:
        raise ValueError(f"there are {db['stock'][item]} of {item}")
    db["stock"][item] -= amount
    db["orders"].append({"item": item, "amount": amount})
    return f"ordered {amount} {item}"


@declare(
    columns=(
        ("user", str, "what the user of a service wants and knows"),
        ("actions", list, "the calls that do it, in order"),
        ("outputs", list, "texts that the user must be told"),
        ("database", dict, "what the tools work on"),
        ("amount", int, "how much the user wants"),
    )
)
@stage
class ShopTasks:
    """An order of 2 to 9 of one of twelve items, of which there is enough in two of three cases."""

    name: str = "shop"
    size: int | None = None

    def task(self, split: str, index: int) -> Task:
        rng = rng_of((self.name, split, index))
        item, amount = str(rng.choice(ITEMS)), int(rng.integers(2, 10))
        enough = rng.random() < 2 / 3
        there = int(rng.integers(amount, 20) if enough else rng.integers(1, amount))
        wish = f"order {amount} {item}"
        columns: dict[str, Any] = {
            "user": wish,
            "actions": [{"name": "order", "arguments": {"item": item, "amount": amount}}] * enough,
            "outputs": [] if enough else [str(there)],
            "database": {"stock": {item: there}, "orders": []},
            "amount": amount,
        }
        first = f"order {item}" if rng.random() < HIDES else wish
        return Task(
            id=f"{self.name}/{split}/{index}",
            prompt=(Message(role="user", content=first),),
            meta=columns,
        )


@stage
class ShopUser:
    """A program that says how much is wanted where it is asked "how many", and is else content."""

    async def __call__(self, task: Task, talk: Talk, key: Key) -> str:
        return str(task.meta["amount"]) if "how many" in talk[-1][1].lower() else STOP


def shop() -> Service:
    """The desk of the shop, with a user who is a program."""
    return Service(tools=tool_names([order, stock]), user=ShopUser(), turns=8)

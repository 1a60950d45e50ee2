"""T-shop: a user wants one or two things from a shop, one after the other, and says how much only if
asked. What is not there in that amount must not be ordered, but the user told how much there is.
"""

from __future__ import annotations

from typing import Any

from palaestra.declared import declare
from palaestra.tasks.phrasing import STOP
from palaestra.types import Key, Message, Task, rng_of, stage

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
        "database",
        (
            "wishes",
            list,
            "items and how many the user wants of each, and what the user says first of it",
        ),
    )
)
@stage
class ShopTasks:
    """Orders of 2 to 9 each of one or two of twelve items, of which there is enough in two of three cases."""

    name: str = "shop"
    size: int | None = None

    def task(self, split: str, index: int) -> Task:
        rng = rng_of((self.name, split, index))
        wishes = list[dict[str, Any]]()
        there, actions, outputs = dict[str, int](), list[dict[str, Any]](), list[str]()
        for item in map(str, rng.permutation(ITEMS)[: int(rng.integers(1, 3))]):
            amount, enough = int(rng.integers(2, 10)), rng.random() < 2 / 3
            there[item] = int(rng.integers(amount, 20) if enough else rng.integers(1, amount))
            first = f"order {item}" if rng.random() < HIDES else f"order {amount} {item}"
            wishes.append({"item": item, "amount": amount, "first": first})
            if enough:
                actions.append({"name": "order", "arguments": {"item": item, "amount": amount}})
            else:
                outputs.append(str(there[item]))
        columns: dict[str, Any] = {
            "user": ", ".join(f"order {w['amount']} {w['item']}" for w in wishes),
            "actions": actions,
            "outputs": outputs,
            "database": {"stock": there, "orders": []},
            "wishes": wishes,
        }
        return Task(
            id=f"{self.name}/{split}/{index}",
            prompt=(Message(role="user", content=wishes[0]["first"]),),
            meta=columns,
        )


@stage
class ShopUser:
    """A program that says how much is wanted where it is asked "how many", and else goes on to what it
    wants next, or ends the talk.
    """

    async def __call__(self, task: Task, talk: tuple[tuple[str, str], ...], key: Key) -> str:
        wishes = task.meta["wishes"]
        begun = sum(role == "user" and text.startswith("order") for role, text in talk)
        if "how many" in talk[-1][1].lower():
            return str(wishes[begun - 1]["amount"])
        return wishes[begun]["first"] if begun < len(wishes) else STOP

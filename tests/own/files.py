"""A user's files, made from what a method's card declares: those that `palaestra init` writes, and a reward."""

import json

from palaestra.api.project import example_rows, template_of

ENVIRONMENT, GAME, TOOLS = map(template_of, ("corridor.py", "high_number.py", "search.py"))
GRAPH = template_of("graph.tsv")
DOCUMENTS = """# Cats

The lion is a large cat of Africa.

bako: boss of bako is tiru.

tiru: host of tiru is mema.

The sum of 3 and 4 is 7. The sum of 17 and 25 is 42.
"""
REWARD = '''"""A reward of one's own."""


def even(response: str, **_) -> float:
    """1 for an answer of an even length."""
    return float(len(response) % 2 == 0)
'''


def rows_of(needs, arguments, n=24):
    """`n` rows as a user has them."""
    return example_rows(needs, arguments, n)


def write_rows(file, rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file

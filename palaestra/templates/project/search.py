"""One tool."""


def search(query: str) -> str:
    """Looks something up.

    Args:
        query: what to look for.
    """
    return f"nothing is known of {query}, but the answer may be 4"

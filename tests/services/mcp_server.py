"""A real MCP server for tests: `python mcp_server.py [PORT]`, over stdio, or over HTTP on the loopback."""

import os
import sys
import time

from mcp.server import MCPServer

server = MCPServer("sums")


@server.tool()
def add(a: int, b: int) -> str:
    """The sum of a and b."""
    return str(a + b)


@server.tool()
def fail() -> str:
    """Always fails."""
    raise ValueError("no luck")


@server.tool()
def sleep(seconds: float) -> str:
    """Waits."""
    time.sleep(seconds)
    return "awake"


@server.tool()
def die() -> str:
    """Ends the server."""
    print("goodbye, cruel world", file=sys.stderr, flush=True)
    os._exit(3)


@server.tool()
def who() -> str:
    """The server's process."""
    return str(os.getpid())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run()

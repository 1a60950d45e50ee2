"""HTTP requests with one deadline for all of each: connecting, sending, and the last byte of the
body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import httpx2

from palaestra.errors import Fault, UserError

LONGEST = 32 << 20  # bytes of a body
HERE = ("localhost", "127.0.0.1", "::1")  # never asked through a proxy


class Wire:
    """Posts JSON to one address. Every request has a connection of its own, so nothing is left open
    behind a run.
    """

    def __init__(self, url: str, timeout: float):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(
                f"{url!r} is no address of an endpoint; write http://HOST:PORT/v1 or "
                "https://HOST/v1"
            )
        self.url, self.timeout, self._environment = url, timeout, parts.hostname not in HERE
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx2.AsyncClient] = (
            WeakKeyDictionary()
        )

    async def post(
        self, body: Any, headers: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers, body. Raises Fault "chat-timeout", "chat-connection" or "chat-broken";
        follows no redirect.
        """
        try:
            async with asyncio.timeout(self.timeout):
                async with self._client().stream(
                    "POST", self.url, json=body, headers=dict(headers)
                ) as answer:
                    pieces, size = [], 0
                    async for piece in answer.aiter_bytes():
                        pieces.append(piece)
                        size += len(piece)
                        if size > LONGEST:
                            raise Fault("chat-broken", f"a body of more than {LONGEST} bytes")
                    return answer.status_code, answer.headers, b"".join(pieces)
        except (TimeoutError, httpx2.TimeoutException):
            raise Fault("chat-timeout", f"no whole answer in {self.timeout:g} s") from None
        except (httpx2.RemoteProtocolError, httpx2.DecodingError) as error:
            raise Fault("chat-broken", f"half an answer, or not HTTP: {error}") from None
        except httpx2.TransportError as error:
            raise Fault("chat-connection", str(error) or type(error).__name__) from None

    def _client(self) -> httpx2.AsyncClient:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            one_each = httpx2.Limits(max_connections=None, max_keepalive_connections=0)
            self._clients[loop] = httpx2.AsyncClient(
                limits=one_each, timeout=None, trust_env=self._environment
            )
        return self._clients[loop]

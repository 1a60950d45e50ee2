"""A real HTTP server on the loopback interface that answers like an OpenAI-compatible endpoint, and can misbehave."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from palaestra.types import rng_of


def completion(text, finish="stop", logprobs=None):
    """The body of a chat completion."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    if logprobs:
        top = [{"token": t, "logprob": p} for t, p in logprobs.items()]
        choice["logprobs"] = {"content": [{"token": top[0]["token"], "top_logprobs": top}]}
    return {"choices": [choice], "usage": {"prompt_tokens": 10, "completion_tokens": 5}}


FAULTS = ("timeout", "429", "500", "garbage", "wrong", "half", "cut")


class Server:
    """Answers `answer(body)`: a text, or a whole completion. `faulty` names a fault for a call, "" = none."""

    def __init__(self, answer, faulty=lambda n, body: "", retry_after="0", stall=1.0):
        self.answer, self.faulty, self.retry_after, self.stall = answer, faulty, retry_after, stall
        self.seen, self.headers, self.lock, self.open, self.most = [], [], threading.Lock(), 0, 0

    def serve(self, handler):
        body = json.loads(handler.rfile.read(int(handler.headers["content-length"])))
        with self.lock:
            self.seen.append(body)
            self.headers.append(dict(handler.headers))
            n = len(self.seen) - 1
            self.open += 1
            self.most = max(self.most, self.open)
        try:
            reply = self.reply(body, self.faulty(n, body))
        finally:  # before the answer leaves: who has it may ask again at once
            with self.lock:
                self.open -= 1
        if reply:
            self.send(handler, *reply)

    def reply(self, body, fault):
        """(status, body, the length it claims); None for a call without an answer."""
        if fault == "timeout":
            time.sleep(self.stall)
            return None
        if fault and fault.isdigit():
            whole = b'{"error": {"message": "no"}}'
            return int(fault), whole, len(whole)
        found = self.answer(body)
        whole = json.dumps(found if isinstance(found, dict) else completion(found)).encode()
        if fault == "garbage":
            whole = b"<html>bad gateway</html>"
        if fault == "wrong":
            whole = b'{"choices": [{"text": 3}]}'
        if fault == "half":
            whole = whole[: len(whole) // 2]
        return 200, whole, len(whole) + (20 if fault == "cut" else 0)

    def send(self, handler, status, body, length):
        handler.send_response(status)
        if status == 429:
            handler.send_header("Retry-After", self.retry_after)
        handler.send_header("Content-Length", str(length))
        handler.end_headers()
        handler.wfile.write(body)


@contextmanager
def serving(answer, **options):
    """(the server's book, the URL up to /v1)."""
    server = Server(answer, **options)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            with suppress(BrokenPipeError, ConnectionResetError):
                server.serve(self)
            self.close_connection = True

        def log_message(self, *_):
            pass

    class Http(ThreadingHTTPServer):
        request_queue_size = 128  # five by default: a sixth caller at once would wait a second for its connection
        daemon_threads = True

    http = Http(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server, f"http://127.0.0.1:{http.server_address[1]}/v1"
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def sometimes(share, faults=FAULTS, seed=0, by_question=False):
    """A fault for a share of the calls, drawn by the number of the call; or for a share of the questions, every time."""

    def faulty(n, body):
        rng = rng_of((seed, "fault", str(body["messages"]) if by_question else n))
        return str(rng.choice(faults)) if rng.random() < share else ""

    return faulty

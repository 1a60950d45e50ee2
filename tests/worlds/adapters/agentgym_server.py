"""An AgentGym server by the page of its protocol: a few sticks to craft, and ways to misbehave.

Item n asks for n sticks; `get` gives one, `craft` ends the episode. An action that is one of FAULTS
breaks the answer of that step.
"""

import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

FAULTS = {
    "html": b"<html>busy</html>",
    "list": b"[1, 2]",
    "nan": b'{"observation": "x", "reward": NaN, "done": false}',
    "text": b'{"observation": "x", "reward": "1", "done": false}',
    "undone": b'{"observation": "x", "reward": 1.0}',
    "null": b'{"observation": null, "reward": 1.0, "done": false}',
    "error": b'{"error": "The id 3 is not valid."}',
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        where = urlsplit(self.path)
        if where.path == "/observation":
            return self.say(self.server.shown[int(parse_qs(where.query)["id"][0])])
        self.say("This is environment Sticks.")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        getattr(self, self.path.strip("/"))(body)

    def create(self, body):
        self.server.created += 1
        self.say({"id": self.server.created} if "bare" not in body else self.server.created)

    def reset(self, body):
        self.server.games[body["id"]] = [body["data_idx"], 0]
        self.server.shown[body["id"]] = f"Goal: {body['data_idx']} sticks."
        self.say({"id": body["id"]})  # the observation is asked for

    def step(self, body):
        game, action = self.server.games[body["id"]], body["action"]
        if action == "slow":
            time.sleep(1.2)
        if action == "down":
            return self.send_error(503)
        if action in FAULTS:
            return self.raw(FAULTS[action])
        game[1] += action == "get"
        done = action == "craft"
        reward = float(game[1] == game[0]) if done else game[1] / 8
        self.say({"observation": f"You have {game[1]}.", "reward": reward, "done": done})

    def close(self, body):
        del self.server.games[body["id"]]
        self.say(True)

    def say(self, value):
        self.raw(json.dumps(value).encode())

    def raw(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """A client that no longer waits is nothing to report."""


def make_server():
    server = Server(("127.0.0.1", 0), Handler)
    server.games, server.shown, server.created = {}, {}, 0
    return server

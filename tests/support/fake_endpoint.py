"""An endpoint on loopback that replies as it is told: rightly, wrongly, or not at all."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

GOOD = '{"score": 3}'


def words(text, **_):
    """A tokeniser whose tokens are words."""
    return {"input_ids": text.split()}


class FakeEndpoint:
    """A server during a `with` block.

    Its ways are taken one after the other, the last one for ever; a way is a name below, or a reply
    to give rightly. `requests` holds (method, path, headers, parsed body) of what it was asked.
    """

    def __init__(self, *ways):
        self.ways, self.requests = list(ways) or [GOOD], []
        self.elsewhere = ""  # where the way "redirect" leads
        self._released = threading.Event()

    def __enter__(self):
        handler = type("Handler", (_Handler,), {"fake": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        return self

    def __exit__(self, *_):
        self._released.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def prompts(self):
        """The text of every message that was sent, by request."""
        return [
            "\n".join(message["content"] for message in body["messages"])
            for _, _, _, body in self.requests
            if body
        ]

    def answer(self, body):
        """(status, headers, body) of the next way."""
        way = self.ways.pop(0) if len(self.ways) > 1 else self.ways[0]
        if callable(way):
            way = way(body)
        if way.isdigit():  # as some servers do, it repeats what it was asked
            return int(way), {"Retry-After": "0.01"}, {"error": {"message": json.dumps(body)}}
        if way == "400 to schemas" and "response_format" in body:
            return 400, {}, {"error": {"message": "response_format is not supported"}}
        if way == "redirect":
            return 307, {"Location": self.elsewhere}, {}
        if way in SHAPES:
            return 200, {}, SHAPES[way]
        if way == "slow":
            self._released.wait(5)
        told = completion(body, TEXTS.get(way, way), "length" if way == "truncated" else "stop")
        return 200, {}, told | ({"usage": USAGES[way]} if way in USAGES else {})


USAGES = {
    "no usage": None,
    "negative usage": {"prompt_tokens": -5, "completion_tokens": -1},
    "usage of nothing": {"prompt_tokens": 0, "completion_tokens": 0},
    "usage beyond belief": {"prompt_tokens": 10**15, "completion_tokens": 10**15},
    "usage in words": {"prompt_tokens": "many", "completion_tokens": True},
    "usage as a list": [1, 2],
}
TEXTS = dict.fromkeys(("400 to schemas", "slow", "truncated", *USAGES), GOOD)
TEXTS |= {
    "schema ignored": '{"relevance": "high"}',
    "prose": "Certainly! I would say that they are related.",
}
SHAPES = {
    "no choices": {"choices": []},
    "no text": {"choices": [{"message": {"role": "assistant", "content": None}}]},
    "a list": [1, 2, 3],
    "not JSON": b"<html>busy</html>",
    "deep": b"[" * 200_000,
    "null": None,
}


def completion(body, text, finish):
    """A right answer; its tokens are words, and 4 around each message."""
    sent = sum(len(message["content"].split()) + 4 for message in body["messages"])
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": body["model"],
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "finish_reason": finish,
            }
        ],
        "usage": {"prompt_tokens": sent, "completion_tokens": len(text.split())},
    }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.fake.requests.append(("GET", self.path, dict(self.headers), None))
        self._send(500, {}, {"error": {"message": "no list of models"}})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.fake.requests.append(("POST", self.path, dict(self.headers), body))
        self._send(*self.fake.answer(body))

    def _send(self, status, headers, content):
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        try:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            pass  # the client has given up

    def log_message(self, *_):
        pass

"""A stub that speaks OpenAI's streaming wire on loopback, for tests of the client only. It holds no model."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class StubOfOpenAIServer:
    """What the stub says, and what it was asked.

    Attributes:
        pieces: Texts of the streamed chunks, one token each.
        status: Answer every request with this instead.
        location: Where a redirecting `status` points.
        silent_after: Say nothing more after so many pieces, and hold the stream open.
        breaks_after: Close the connection in the middle after so many pieces.
        offers_logprobs: Otherwise a request for them is refused with 400, as some servers do.
    """

    pieces: list[str]
    status: int = 200
    location: str = ""
    silent_after: int | None = None
    breaks_after: int | None = None
    offers_logprobs: bool = True
    offers_token_ids: bool = False
    requests: list[dict[str, Any]] = field(default_factory=list)
    sent: int = 0
    base_url: str = ""
    ended: threading.Event = field(default_factory=threading.Event)
    left: threading.Event = field(default_factory=threading.Event)


@contextmanager
def served(stub: StubOfOpenAIServer) -> Iterator[StubOfOpenAIServer]:
    """Serve it on a free port of the loopback."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            return None

        def do_POST(self) -> None:
            _answer(self, stub)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    stub.base_url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        stub.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(handler: BaseHTTPRequestHandler, stub: StubOfOpenAIServer) -> None:
    request = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
    stub.requests.append({**request, "path": handler.path, "authorization": handler.headers["Authorization"]})
    status = 400 if request.get("logprobs") and not stub.offers_logprobs else stub.status
    if status != 200:
        body = json.dumps({"error": {"message": "no", "code": None}}).encode()
        handler.send_response(status)
        if stub.location:
            handler.send_header("Location", stub.location)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
        return
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    try:
        _stream(handler, stub, with_logprobs=bool(request.get("logprobs")))
    except (BrokenPipeError, ConnectionResetError):
        stub.left.set()


def _stream(handler: BaseHTTPRequestHandler, stub: StubOfOpenAIServer, *, with_logprobs: bool) -> None:
    for at, piece in enumerate(stub.pieces):
        if at == stub.silent_after:
            stub.ended.wait(30)
            return
        if at == stub.breaks_after:
            handler.close_connection = True
            handler.connection.close()
            return
        choice: dict[str, Any] = {"index": 0, "delta": {"content": piece}, "finish_reason": None}
        if with_logprobs:
            token = {"token": piece, "logprob": -0.25 * (at + 1), "bytes": list(piece.encode()), "top_logprobs": []}
            choice["logprobs"] = {"content": [token]}
        if stub.offers_token_ids:
            choice["token_ids"] = [100 + at]
        _event(handler, {"choices": [choice]})
        stub.sent += 1
        time.sleep(0.002)
    usage = {"prompt_tokens": 5, "completion_tokens": len(stub.pieces), "total_tokens": 5 + len(stub.pieces)}
    _event(handler, {"choices": [], "usage": usage})
    _chunk(handler, b"data: [DONE]\n\n")
    _chunk(handler, b"")


def _event(handler: BaseHTTPRequestHandler, part: dict[str, Any]) -> None:
    whole = {"id": "stub", "object": "chat.completion.chunk", "created": 0, "model": "stub", **part}
    _chunk(handler, f"data: {json.dumps(whole)}\n\n".encode())


def _chunk(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
    handler.wfile.flush()

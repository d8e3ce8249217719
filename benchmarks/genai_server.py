"""A minimal HTTP server around OpenVINO GenAI, so that its times can be taken like those of a server.

    python benchmarks/genai_server.py OPENVINO_FOLDER --port 8000 [--threads 2] [--cache-gib 1] [--max-num-seqs 32]

GenAI has no server of its own. This one offers `GET /v1/models`, `POST /tokenize` and streamed `POST /v1/completions`
of raw text, greedy, with usage, and nothing more: one thread steps the continuous batching pipeline (prefix caching
on), one thread a connection reads what it generated. Text is cut where the tokens so far make whole characters.
"""

import argparse
import json
import queue
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import openvino_genai

MODEL = "openvino-genai"


class Engine:
    """Owns the pipeline; every call of it is made by one thread."""

    def __init__(self, args: argparse.Namespace) -> None:
        config = openvino_genai.SchedulerConfig()
        config.enable_prefix_caching = True  # off by default here, on in LLMPipeline
        config.cache_size = args.cache_gib
        config.max_num_seqs = args.max_num_seqs
        properties = {"INFERENCE_NUM_THREADS": args.threads}
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(args.folder, config, "CPU", properties)
        self.tokenizer = self._pipeline.get_tokenizer()
        self._inbox: queue.SimpleQueue[tuple[Any, int, queue.SimpleQueue[Any]]] = queue.SimpleQueue()
        self._running: dict[int, tuple[Any, queue.SimpleQueue[Any]]] = {}
        self._number = 0
        threading.Thread(target=self._loop, daemon=True).start()

    def generate(self, input_ids: Any, max_tokens: int) -> Iterator[Any]:
        """Yield the ids of each step, then the number of cached tokens (None where the build does not say)."""
        outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._inbox.put((input_ids, max_tokens, outbox))
        while True:
            said = outbox.get()
            if isinstance(said, Exception):
                raise said
            yield said
            if not isinstance(said, list):
                return

    def _loop(self) -> None:
        while True:
            if not self._running:
                self._start(*self._inbox.get())
            while not self._inbox.empty():
                self._start(*self._inbox.get())
            try:
                self._pipeline.step()
            except Exception as error:  # noqa: BLE001 - told to whoever waits
                for _, outbox in self._running.values():
                    outbox.put(error)
                self._running.clear()
                continue
            self._hand_out()

    def _start(self, input_ids: Any, max_tokens: int, outbox: queue.SimpleQueue[Any]) -> None:
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = max_tokens, True, False
        self._number += 1
        try:
            handle = self._pipeline.add_request(self._number, input_ids, config)
        except Exception as error:  # noqa: BLE001 - told to whoever waits
            outbox.put(error)
            return
        self._running[self._number] = handle, outbox

    def _hand_out(self) -> None:
        for number, (handle, outbox) in list(self._running.items()):
            while handle.can_read():
                for output in handle.read().values():
                    outbox.put(list(output.generated_ids))
            if handle.get_status() != openvino_genai.GenerationStatus.RUNNING:
                metrics = handle.get_perf_metrics()
                count = getattr(metrics, "get_num_prefix_cache_hit_tokens", None)
                outbox.put(count() if count else None)
                del self._running[number]


class Text:
    """Turns ids into pieces of text, holding back what is no whole character yet."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._said = ""

    def push(self, ids: list[int]) -> str:
        """Return the text that these ids add."""
        self._ids += ids
        text = self._tokenizer.decode(self._ids)
        if text.endswith("\ufffd"):
            return ""
        piece, self._said = text[len(self._said) :], text
        return piece


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    engine: Engine

    def log_message(self, *args: Any) -> None:
        """Say nothing of each request."""

    def do_GET(self) -> None:
        """Name the model."""
        if self.path != "/v1/models":
            self._answer({"error": {"message": "not found"}}, 404)
            return
        self._answer({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": MODEL}]})

    def do_POST(self) -> None:
        """Count tokens, or complete a prompt."""
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        prompt = body.get("prompt")
        if self.path not in {"/v1/completions", "/tokenize"} or not isinstance(prompt, str):
            self._answer({"error": {"message": "not found, or no text prompt"}}, 404)
            return
        input_ids = self.engine.tokenizer.encode(prompt).input_ids
        if self.path == "/tokenize":
            self._answer({"tokens": input_ids.data[0].tolist()})
        elif not body.get("stream"):
            self._answer({"error": {"message": "only streams"}}, 400)
        else:
            self._stream(input_ids, int(body.get("max_tokens") or 16))

    def _stream(self, input_ids: Any, max_tokens: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        text, num_tokens = Text(self.engine.tokenizer), 0
        try:
            for said in self.engine.generate(input_ids, max_tokens):
                if isinstance(said, list):
                    num_tokens += len(said)
                    finish = "length" if num_tokens >= max_tokens else None
                    choice = {"index": 0, "text": text.push(said), "finish_reason": finish}
                    self._event({"choices": [choice]})
                else:
                    self._event({"choices": [], "usage": _usage(input_ids.shape[1], num_tokens, said)})
            self._chunk(b"data: [DONE]\n\n")
        except ConnectionError:
            return
        except Exception as error:  # noqa: BLE001 - told to the client
            self._event({"error": {"message": str(error)}})
        self._chunk(b"")

    def _event(self, event: dict[str, Any]) -> None:
        self._chunk(b"data: " + json.dumps(event).encode() + b"\n\n")

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))

    def _answer(self, body: dict[str, Any], status: int = 200) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _usage(prompt: int, completion: int, cached: int | None) -> dict[str, Any]:
    usage: dict[str, Any] = {"prompt_tokens": prompt, "completion_tokens": completion}
    if cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    return usage


class Server(ThreadingHTTPServer):
    """Takes a burst of connections at once."""

    request_queue_size = 128
    daemon_threads = True


def main() -> None:
    """Serve until it is stopped."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cache-gib", type=int, default=1)
    parser.add_argument("--max-num-seqs", type=int, default=32)
    args = parser.parse_args()
    started = time.monotonic()
    Handler.engine = Engine(args)
    server = Server(("127.0.0.1", args.port), Handler)
    print(f"ready after {time.monotonic() - started:.1f} s", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

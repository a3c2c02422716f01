"""Report 17 through the gateway: the adapter that a client names as its model reaches the hashes of the
prompt, and the load."""

import http.server
import json
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor

from kvr_testlib import (A, B, DEADLINE, Client, FakeEngine, Metrics, Process, main, removed, settle,
                         stored)

PROMPT, TOKENS = "say it again", [*A, *B, 1]


class FakeServer:
    """The HTTP side of an engine: a tokenizer of one text, and completions that wait while told to."""

    def __init__(self):
        self.go = threading.Event()
        self.go.set()
        self.models = []  # of each completion that has come
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self, value):
                body = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                self.answer({})

            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path == "/tokenize":
                    self.answer({"tokens": TOKENS if request["prompt"] == PROMPT else [], "count": 9})
                    return
                server.models.append(request["model"])
                server.go.wait(DEADLINE)
                self.answer({"id": "1", "object": "text_completion", "created": 1,
                             "model": request["model"],
                             "choices": [{"index": 0, "text": "x", "finish_reason": "length"}],
                             "usage": {"prompt_tokens": 9, "completion_tokens": 1,
                                       "total_tokens": 10}})

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"

    def close(self):
        self.go.set()
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


class Adapters(unittest.TestCase):
    def start(self, engines):
        workers, self.servers, self.events = [], [], []
        for worker in range(1, engines + 1):
            server, events = FakeServer(), FakeEngine()
            self.addCleanup(server.close)
            self.addCleanup(events.close)
            self.servers.append(server)
            self.events.append(events)
            workers += ["--worker", f"id={worker},url={server.url},model=m,block-size=4,"
                                    f"events={events.endpoint},adapters=ad1+ad2"]
        self.gateway = Process(["gateway", "--port", 0, "--tokens-deadline-ms", 30_000, *workers])
        self.addCleanup(self.gateway.close)
        self.client = Client(self.gateway.addresses["gateway"])
        for events in self.events:
            events.wait_subscriber()

    def metrics(self):
        return Metrics(self.client.get("/metrics").body.decode())

    def ask(self, model, prompt):
        answer = self.client.post("/v1/completions",
                                  {"model": model, "prompt": prompt, "max_tokens": 1})
        self.assertEqual(answer.status, 200, answer)
        self.assertEqual(answer.json["model"], model)
        return (int(answer.headers["x-kvroute-worker"]),
                int(answer.headers["x-kvroute-predicted-cached-tokens"]))

    def test_report_017_each_adapter_finds_its_own_blocks(self):
        self.start(engines=3)
        for engine, lora in ((0, {"lora_name": "ad1"}), (1, {"lora_name": "ad2"})):
            self.events[engine].send(stored([11, 12], None, A + B, **lora))
        self.events[2].send(stored([11], None, A))
        watermarks = lambda: [worker["ranks"][0].get("watermark")
                              for worker in self.client.get("/workers").json["workers"]]
        settle(watermarks, [0, 0, 0])
        for prompt in (TOKENS, PROMPT):
            with self.subTest(prompt):
                for model, where in (("ad1", (1, 8)), ("ad2", (2, 8)), ("m", (3, 4))):
                    self.assertEqual(self.ask(model, prompt), where, model)
        self.assertEqual(self.metrics().total("kvr_gateway_token_source_total", source="engine"), 3)
        # What an adapter has lost another one's copy does not make up for.
        self.events[0].send(removed([11, 12]))
        settle(watermarks, [1, 0, 0])
        self.assertEqual(self.ask("ad1", TOKENS)[1], 0)
        self.assertEqual(self.ask("ad2", TOKENS), (2, 8))

    def test_report_017_adapters_share_no_load(self):
        self.start(engines=1)
        server = self.servers[0]
        server.go.clear()
        blocks = lambda: self.metrics().total("kvr_routing_active_blocks")
        answers, counts = [], []
        with ThreadPoolExecutor(4) as pool:
            for model in ("ad1", "ad1", "ad2", "m"):
                answers.append(pool.submit(self.ask, model, TOKENS))
                settle(lambda: len(server.models), len(answers))
                counts.append(blocks())
            server.go.set()
            for answer in answers:
                self.assertEqual(answer.result(), (1, 0))
        # Two whole blocks, which the requests of one adapter share; the piece behind them has no hash.
        self.assertEqual(counts, [2, 2, 4, 6])
        settle(blocks, 0)


if __name__ == "__main__":
    main()

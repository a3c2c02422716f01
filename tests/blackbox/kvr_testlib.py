"""Starts the kvroute binary and plays its engines and clients, for tests that know only the wire.

Needs Debian's python3, python3-zmq and python3-msgpack. KVROUTE names the binary.
"""

import http.client
import json
import os
import queue
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import msgpack
import zmq
import zmq.utils.monitor

KVROUTE = os.environ.get("KVROUTE", "kvroute")
SANITIZED = bool(os.environ.pop("KVR_SANITIZE", ""))  # freed memory stays resident for a while
DEADLINE = 30.0  # seconds; how long anything that must happen may take on a busy machine
U64 = 2**64
END_OF_REPLAY = b"\xff" * 8

A, B, C, D, E = ([4 * i + 1, 4 * i + 2, 4 * i + 3, 4 * i + 4] for i in range(5))
X, Y, Z = ([100 + 4 * i + 1, 100 + 4 * i + 2, 100 + 4 * i + 3, 100 + 4 * i + 4] for i in range(3))


def settle(read, want, seconds=DEADLINE):
    """Reads until `want` (a value, or a predicate of the value) holds; returns what was read."""
    holds = want if callable(want) else lambda value: value == want
    end = time.monotonic() + seconds
    while True:
        value = read()
        if holds(value):
            return value
        if time.monotonic() > end:
            raise AssertionError(f"after {seconds} s still {value!r}, wanted {want!r}")
        time.sleep(0.003)


class Process:
    """A kvroute process. `listening WHAT ADDRESS:PORT` lines end up in `addresses`."""

    def __init__(self, words, listeners=1, env=None):
        self.log_file = tempfile.TemporaryFile(mode="w+")
        self.child = subprocess.Popen(
            [KVROUTE, *map(str, words)], stdout=subprocess.PIPE, stderr=self.log_file, text=True,
            env={**os.environ, **(env or {})})
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.addresses = {}
        while len(self.addresses) < listeners:
            line = self.next_line()
            if line is None:
                self.close()
                raise AssertionError(f"{words} ended before it listened: {self.final_log}")
            match = re.fullmatch(r"listening (\S+) (\S+:\d+)", line)
            if match:
                self.addresses[match[1]] = match[2]

    def _read(self):
        for line in self.child.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def next_line(self):
        try:
            return self.lines.get(timeout=DEADLINE)
        except queue.Empty:
            return None

    def log(self):
        self.log_file.flush()
        with open(f"/proc/self/fd/{self.log_file.fileno()}", encoding="utf-8") as log:
            return log.read()

    def resident_kib(self):
        with open(f"/proc/{self.child.pid}/status", encoding="utf-8") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1])

    def threads(self):
        return len(os.listdir(f"/proc/{self.child.pid}/task"))

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.child.pid}/fd"))

    def stop(self, with_signal=signal.SIGTERM):
        """Signals the process and returns its exit code."""
        if self.child.poll() is None:
            self.child.send_signal(with_signal)
        return self.child.wait(timeout=20)

    def close(self):
        """May be called again."""
        if self.log_file.closed:
            return
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        self.reader.join()
        self.child.stdout.close()
        self.final_log = self.log()
        self.log_file.close()


def run_to_end(words, env=None):
    """Exit code and stderr of a command that must end by itself."""
    done = subprocess.run([KVROUTE, *map(str, words)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=20,
                          env={**os.environ, **(env or {})}, check=False)
    return done.returncode, done.stderr


class Response:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.status} {self.body[:300]!r}"


class Client:
    """HTTP to one server, a connection per request."""

    def __init__(self, address):
        self.host, port = address.rsplit(":", 1)
        self.port = int(port)

    def request(self, method, path, body=None, headers=None, timeout=20):
        """`body`: an object is sent as JSON, bytes and text as they are."""
        if headers is None:
            headers = {"Content-Type": "application/json"} if body is not None else {}
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode()
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            return Response(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, body, headers=None):
        return self.request("POST", path, body, headers)

    def connect(self):
        connection = socket.create_connection((self.host, self.port), timeout=20)
        return connection


class Metrics(dict):
    """A scrape: 'name{labels as printed}' → value."""

    def __init__(self, text):
        super().__init__()
        for line in text.splitlines():
            if line and not line.startswith("#"):
                series, value = line.rsplit(" ", 1)
                self[series] = float(value)

    def total(self, name, **labels):
        """Sum over the series of `name` that carry these labels."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        return sum(value for series, value in self.items()
                   if series.partition("{")[0] == name and all(w in series for w in wanted))

    def refused_since(self, earlier):
        """{reason: count} of events, batches and payloads refused between the two scrapes."""
        names = ("kvr_ingest_events_filtered_total", "kvr_ingest_batches_rejected_total",
                 "kvr_ingest_decode_failures_total", "kvr_ingest_frames_rejected_total")
        return {series.split('"')[1]: value - earlier.get(series, 0) for series, value in self.items()
                if series.startswith(names) and value != earlier.get(series, 0)}


class Indexer(Process):
    """`kvroute indexer` on a free port, and what tests ask it."""

    def __init__(self, *words, env=None):
        port = [] if "--port" in words else ["--port", "0"]
        super().__init__(["indexer", *port, "--address", "127.0.0.1", *words], env=env)
        self.client = Client(self.addresses["indexer"])

    def register(self, worker, endpoint, rank=0, block_size=4, replay=None, model="m", **more):
        body = {"instance_id": worker, "dp_rank": rank, "endpoint": endpoint, "model_name": model,
                "block_size": block_size, **more}
        if replay is not None:
            body["replay_endpoint"] = replay
        return self.client.post("/register", body)

    def unregister(self, worker, model="m", **more):
        return self.client.post("/unregister",
                                {"instance_id": worker, "model_name": model, **more})

    def query(self, tokens, model="m", **more):
        answer = self.client.post("/query", {"token_ids": tokens, "model_name": model, **more})
        assert answer.status == 200, answer
        return answer.json

    def scores(self, tokens, **more):
        """{(worker, rank): device tokens}"""
        return {(int(worker), int(rank)): count
                for worker, ranks in self.query(tokens, **more)["scores"].items()
                for rank, count in ranks.items()}

    def score(self, tokens, worker=1, rank=0, **more):
        return self.scores(tokens, **more).get((worker, rank), 0)

    def tiers(self, tokens, worker=1, **more):
        """(gpu, cpu, disk) of a worker, None when it is absent."""
        found = self.query(tokens, **more)["instances"].get(str(worker))
        return found and (found["gpu"], found["cpu"], found["disk"])

    def workers(self):
        return {worker["instance_id"]: worker for worker in self.client.get("/workers").json}

    def listener(self, worker=1, rank=0):
        return self.workers()[worker]["listeners"][str(rank)]

    def watermark(self, worker=1, rank=0):
        return self.listener(worker, rank).get("watermark")

    def dump(self, **more):
        return self.client.get("/dump", **more).json

    def dumped(self, worker=None, rank=None, **more):
        """[(worker, rank, tier, parent, engine hash, tokens hash)], one a block."""
        blocks = []
        for partition in self.dump(**more).values():
            for entry in partition["events"]:
                event = entry["event"]
                if worker is not None and entry["worker_id"] != worker:
                    continue
                if rank is not None and event["dp_rank"] != rank:
                    continue
                parent = event["data"]["stored"]["parent_hash"]
                for block in event["data"]["stored"]["blocks"]:
                    blocks.append((entry["worker_id"], event["dp_rank"], entry["storage_tier"],
                                   parent, block["block_hash"], block["tokens_hash"]))
                    parent = block["block_hash"]
        return sorted(blocks, key=lambda block: (block[:3], block[4]))

    def metrics(self):
        return Metrics(self.client.get("/metrics").body.decode())

    def filtered(self, reason):
        return self.metrics().total("kvr_ingest_events_filtered_total", reason=reason)

    def applied(self, event_type, status="ok"):
        return self.metrics().total("kvr_ingest_events_applied_total", event_type=event_type,
                                    status=status)


class Mock(Process):
    """One engine of `kvroute mock`, served on free ports; a new one can take its place."""

    def __init__(self, *words, ranks=1, model="m", block_size=4):
        self.words = words
        self.shape = {"ranks": ranks, "model": model, "block_size": block_size}
        super().__init__(["mock", "--port", "0", "--json-ready", "--model", model, "--dp-size",
                          ranks, "--block-size", block_size, *words], listeners=0)
        line = self.next_line()
        if line is None:
            self.close()
            raise AssertionError(f"the mock engine ended at once: {self.final_log}")
        engine = json.loads(line)["engines"][0]
        self.client = Client(engine["url"].removeprefix("http://"))
        self.ranks = engine["ranks"]

    def again(self):
        """A new process in the place of this one, which must have ended."""
        port = lambda kind: self.ranks[0][kind].rsplit(":", 1)[1]
        replay = ["--replay-port", port("replay")] if self.ranks[0]["replay"] else []
        return Mock(*self.words, "--events-port", port("events"), *replay, **self.shape)

    def register(self, indexer, worker, **more):
        """All ranks."""
        for rank in self.ranks:
            answer = indexer.register(worker, rank["events"], rank["dp_rank"],
                                      self.shape["block_size"], rank["replay"],
                                      model=self.shape["model"], **more)
            assert answer.status == 201, answer

    def complete(self, prompt, max_tokens, rank=None, **more):
        headers = {"Content-Type": "application/json"}
        if rank is not None:
            headers["X-data-parallel-rank"] = str(rank)
        body = {"model": self.shape["model"], "prompt": prompt, "max_tokens": max_tokens, **more}
        answer = self.client.post("/v1/completions", body, headers)
        assert answer.status == 200, answer
        return answer

    def fault(self, **fields):
        answer = self.client.post("/mock/fault", fields)
        assert answer.status == 200, answer

    def messages(self, rank=0):
        """Event messages published so far."""
        metrics = Metrics(self.client.get("/metrics").body.decode())
        return int(metrics.total("kvr_sim_event_messages_total", engine=str(rank)))

    def blocks(self, rank=0):
        """{(tier, engine hash)} of the engine's own pool."""
        pool = self.client.get("/mock/blocks").json["ranks"][rank]
        return {(tier, name) for tier in ("device", "host_pinned") for name in pool[tier]}


def pack(value):
    return msgpack.packb(value, use_bin_type=True)


def batch(events, rank=None):
    return pack([1.0, events, rank])


def stored(hashes, parent=None, tokens=(), **more):
    return {"type": "BlockStored", "block_hashes": list(hashes), "parent_block_hash": parent,
            "token_ids": list(tokens), "block_size": 4, **more}


def removed(hashes, **more):
    return {"type": "BlockRemoved", "block_hashes": list(hashes), **more}


CLEARED = {"type": "AllBlocksCleared"}


class FakeEngine:
    """The event side of an engine: a publisher, and a replay socket with a ring.

    `layout`: frames of a replay answer, "seq" (3) or "topic" (4). What `publish` is given goes into
    the ring too, whether or not it is sent live.
    """

    def __init__(self, replay=False, layout="seq", ring=10_000, topic=b"", endpoint=None,
                 replay_endpoint=None):
        self.context = zmq.Context()
        self.topic = topic
        self.layout = layout
        self.ring_size = ring
        self.lock = threading.Lock()
        self.ring = []
        self.requests = []  # frames of each replay request, without the identity
        self.replay_paused = threading.Event()  # set: requests wait in the socket
        self.answer = self.answer_from_ring  # start → list of frames to send, after the delimiter
        self.stopping = threading.Event()
        self.publisher = self.context.socket(zmq.XPUB)
        self.publisher.setsockopt(zmq.SNDHWM, 0)
        self.publisher.setsockopt(zmq.XPUB_VERBOSE, 1)  # tell of every subscription
        self.publisher.setsockopt(zmq.LINGER, 0)
        self.monitor = self.publisher.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self.endpoint = self._bind(self.publisher, endpoint)
        self.replay = None
        self.thread = None
        if replay:
            router = self.context.socket(zmq.ROUTER)
            router.setsockopt(zmq.LINGER, 0)
            router.setsockopt(zmq.SNDHWM, 0)
            self.replay = self._bind(router, replay_endpoint)
            self.thread = threading.Thread(target=self._serve, args=(router,), daemon=True)
            self.thread.start()
        self.next_seq = 0
        self.connects = 0

    @staticmethod
    def _bind(sock, endpoint):
        end = time.monotonic() + DEADLINE
        while True:
            try:
                sock.bind(endpoint or "tcp://127.0.0.1:*")
                return sock.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode()
            except zmq.ZMQError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def _serve(self, router):
        while not self.stopping.is_set():
            if not router.poll(20) or self.replay_paused.is_set():
                self.stopping.wait(0.005)
                continue
            identity, *frames = router.recv_multipart()
            with self.lock:
                self.requests.append(frames)
            start = int.from_bytes(frames[-1], "big")
            for message in self.answer(start):
                router.send_multipart([identity, b"", *message])
        router.close()

    def framed(self, seq, payload):
        head = [self.topic] if self.layout == "topic" else []
        return [*head, seq if isinstance(seq, bytes) else seq.to_bytes(8, "big"), payload]

    def answer_from_ring(self, start):
        with self.lock:
            kept = [(seq, payload) for seq, payload in self.ring if seq >= start]
        return [self.framed(seq, payload) for seq, payload in kept] + [self.end()]

    def end(self):
        return self.framed(END_OF_REPLAY, b"")

    def wait_subscriber(self):
        """Returns once what is published is delivered."""
        end = time.monotonic() + DEADLINE
        while time.monotonic() < end:
            if self.publisher.poll(100) and self.publisher.recv()[:1] == b"\x01":
                return self
        raise AssertionError("nobody subscribed")

    def count_connects(self):
        while self.monitor.poll(0):
            zmq.utils.monitor.recv_monitor_message(self.monitor)
            self.connects += 1
        return self.connects

    def forget_requests(self):
        """Forgets the replay requests so far, also those of the dead that wait to be read."""
        if self.replay:
            with self.context.socket(zmq.DEALER) as last:
                last.setsockopt(zmq.LINGER, 0)
                last.connect(self.replay)
                last.send_multipart([b"", END_OF_REPLAY])
                if not last.poll(1000 * DEADLINE):
                    raise AssertionError("the engine reads no request")
        with self.lock:
            del self.requests[:]

    def send_frames(self, *frames):
        self.publisher.send_multipart(list(frames))

    def publish(self, seq, payload, live=True):
        """`payload`: bytes as they are, a list as events. Returns seq."""
        if not isinstance(payload, bytes):
            payload = batch(payload)
        with self.lock:
            self.ring.append((seq, payload))
            del self.ring[:-self.ring_size]
        if live:
            self.send_frames(self.topic, seq.to_bytes(8, "big"), payload)
        self.next_seq = seq + 1
        return seq

    def send(self, *events, rank=None):
        """The next message in order; returns its number."""
        return self.publish(self.next_seq, batch(list(events), rank))

    def close(self):
        """As a process that dies; may be called again."""
        if self.publisher.closed:
            return
        self.stopping.set()
        if self.thread:
            self.thread.join()
        self.publisher.disable_monitor()
        self.monitor.close(0)
        self.publisher.close(0)
        self.context.term()


class IndexerTest(unittest.TestCase):
    """An indexer per test, engines that end with it."""

    words = ()

    def setUp(self):
        self.indexer = Indexer(*self.words)
        self.addCleanup(self._end_indexer)

    def _end_indexer(self):
        alive = self.indexer.child.poll() is None
        self.indexer.close()
        self.assertTrue(alive, f"the indexer died: {self.indexer.final_log[-2000:]}")

    def engine(self, worker, rank=0, block_size=4, register=True, model="m", **more):
        """A fake engine that is registered and subscribed to."""
        engine = FakeEngine(**more)
        self.addCleanup(engine.close)
        engine.worker, engine.rank = worker, rank
        if register:
            answer = self.indexer.register(worker, engine.endpoint, rank, block_size, engine.replay,
                                           model=model)
            self.assertEqual(answer.status, 201, answer)
            engine.wait_subscriber()
        return engine

    def drain(self, *engines):
        """Returns once the indexer has applied the last message of each engine."""
        for engine in engines:
            settle(lambda e=engine: self.indexer.watermark(e.worker, e.rank), engine.next_seq - 1)

    def send(self, engine, *events, rank=None):
        """One message, and wait until it is applied."""
        engine.send(*events, rank=rank)
        self.drain(engine)

    def expect(self, tokens, want, worker=1, rank=0, **more):
        self.assertEqual(self.indexer.score(tokens, worker, rank, **more), want)


def main():
    unittest.main(verbosity=1)

"""Real mock engines that die, restart and lose messages: afterwards the index equals the engine's
own pool, or the rank says that it is degraded and why; no other rank changes."""

import random
import unittest
from concurrent.futures import ThreadPoolExecutor

from kvr_testlib import Client, IndexerTest, Mock, Process, main, settle

HOSTLESS = ("vllm-0.9",)  # cannot tell a host copy from one on the device
FAST = ("--speedup", 1000, "--num-blocks", 400)


class FaultTest(IndexerTest):
    words = ("--ingest-replay-silence-ms", 300, "--ingest-replay-attempts", 2)

    def start(self, worker, *words, ranks=1, host_blocks=150):
        mock = Mock(*FAST, "--host-blocks", host_blocks, *words, ranks=ranks)
        self.addCleanup(mock.close)
        self.adopt(mock, worker)
        mock.register(self.indexer, worker)
        self.wait_connected(mock)
        return mock

    def adopt(self, mock, worker):
        mock.worker = worker
        mock.rng = random.Random(worker)

    def wait_connected(self, mock):
        for rank in range(len(mock.ranks)):
            settle(lambda r=rank: self.indexer.listener(mock.worker, r)["status"], "active")
        # A subscription arrives after its connection; the first message that comes is after both.
        for rank in range(len(mock.ranks)):
            def heard(r=rank):
                mock.complete([mock.rng.randrange(1000) for _ in range(8)], 1, rank=r)
                return self.indexer.watermark(mock.worker, r)
            settle(heard, lambda mark: mark is not None)

    def load(self, mock, requests=30, max_tokens=24, rank=None):
        """Prompts with shared beginnings, more than the pool holds; returns when all are served."""
        roots = [[mock.rng.randrange(1000) for _ in range(40)] for _ in range(4)]
        prompts = [mock.rng.choice(roots) + [mock.rng.randrange(1000) for _ in range(20)]
                   for _ in range(requests)]
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(lambda prompt: mock.complete(prompt, max_tokens, rank), prompts))

    def indexed(self, worker, rank=0):
        return {(block[2], block[4]) for block in self.indexer.dumped(worker, rank)}

    def agree(self, *mocks):
        """The index equals the pools, and every rank is exact."""
        for mock in mocks:
            for rank in range(len(mock.ranks)):
                settle(lambda m=mock, r=rank: self.indexed(m.worker, r) ^ m.blocks(r), set())
                settle(lambda m=mock, r=rank: self.indexer.listener(m.worker, r)["state"], "exact")
                self.assertGreater(len(mock.blocks(rank)), 0)

    def picture(self, worker, rank=0):
        """What must not change when another rank is in trouble."""
        listener = self.indexer.listener(worker, rank)
        return (self.indexer.dumped(worker, rank), listener["state"], listener["status"],
                listener["watermark"], listener["counts"])

    def lose(self, mock, messages, rank=0, **fault):
        """The rank's next `messages` messages do not arrive; then some do."""
        mock.fault(rank=rank, drop_messages=messages, **fault)
        until = mock.messages(rank) + messages
        while mock.messages(rank) < until:
            self.load(mock, 20, 40, rank)
        before = mock.messages(rank)
        self.load(mock, 3, rank=rank)
        self.assertGreater(mock.messages(rank), before)

    def degraded(self, mock, reason, rank=0):
        last = mock.messages(rank) - 1
        listener = settle(lambda: self.indexer.listener(mock.worker, rank),
                          lambda l: l.get("watermark") == last and l["state"] != "warming")
        self.assertEqual((listener["state"], listener["reason"]), ("degraded", reason))
        return listener


class Faults(FaultTest):
    def test_nothing_wrong(self):
        for worker, dialect in enumerate(("vllm-0.9", "vllm-0.14", "vllm-0.24", "sglang"), start=1):
            with self.subTest(dialect):
                has_host_tier = dialect not in HOSTLESS
                mock = self.start(worker, "--dialect", dialect, ranks=2,
                                  host_blocks=150 if has_host_tier else 0)
                self.load(mock)
                self.agree(mock)
                tiers = {tier for tier, _ in mock.blocks(0)}
                self.assertEqual("host_pinned" in tiers, has_host_tier)

    def test_kill_and_restart(self):
        for worker, words in ((1, ()), (3, ("--no-replay",))):
            with self.subTest(words=words):
                other = self.start(worker + 1)
                self.load(other)
                self.agree(other)
                mock = self.start(worker, "--decode-speedup", 0.002, *words)
                self.load(mock, 4, 1)
                self.agree(mock)
                before = self.picture(worker + 1)
                with mock.client.connect() as stream:
                    body = (b'{"model":"m","prompt":[1,2,3,4,5,6,7,8],"max_tokens":1000,'
                            b'"stream":true}')
                    stream.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: "
                                   b"application/json\r\nContent-Length: %d\r\n\r\n%s"
                                   % (len(body), body))
                    received = b""
                    while received.count(b"data: ") < 3:
                        received += stream.recv(4096)
                    mock.child.kill()
                    mock.child.wait()
                listener = settle(lambda w=worker: self.indexer.listener(w),
                                  lambda l: l["status"] != "active")
                self.assertNotEqual(listener["state"], "exact")
                new = mock.again()
                self.addCleanup(new.close)
                self.adopt(new, worker)
                self.wait_connected(new)
                self.load(new, 4, 1)
                self.agree(new)
                self.assertEqual(self.picture(worker + 1), before)
                self.assertGreaterEqual(self.indexer.listener(worker)["counts"]["restarts"], 1)

    def test_restart_within_the_process(self):
        mock, other = self.start(1, ranks=2), self.start(2)
        for rank in (0, 1):
            self.load(mock, rank=rank)
        self.load(other)
        self.agree(mock, other)
        before = self.picture(2)
        mock.fault(restart=True)
        for rank in (0, 1):
            self.load(mock, rank=rank)
        self.agree(mock)
        self.assertEqual(self.picture(2), before)

    def test_gap_of_1000_with_replay(self):
        for worker, dialect, layout in ((1, "vllm-0.24", "topic"), (3, "sglang", "seq")):
            with self.subTest(dialect=dialect, layout=layout):
                mock = self.start(worker, "--dialect", dialect, "--replay-layout", layout, ranks=2)
                other = self.start(worker + 1)
                self.load(mock)
                self.load(other)
                self.agree(mock, other)
                before = self.picture(worker + 1), self.picture(worker, 1)
                self.lose(mock, 1000)
                self.agree(mock)
                counts = self.indexer.listener(worker)["counts"]
                self.assertGreaterEqual(counts["gaps"], 1)
                self.assertNotIn("missed_messages", counts)
                self.assertEqual((self.picture(worker + 1), self.picture(worker, 1)), before)

    def test_gap_of_1000_without_replay(self):
        mock, other = self.start(1, "--no-replay", ranks=2), self.start(2)
        self.load(mock)
        self.load(other)
        self.agree(mock, other)
        before = self.picture(2), self.picture(1, 1)
        self.lose(mock, 1000)
        listener = self.degraded(mock, "gap_unrepaired")
        self.assertEqual(listener["counts"]["missed_messages"], 1000)
        self.assertIn("1000", listener["detail"])
        self.assertEqual((self.picture(2), self.picture(1, 1)), before)
        # A query says so too.
        told = self.indexer.query([1, 2, 3, 4])["not_exact"]
        self.assertEqual([(rank["instance_id"], rank["dp_rank"], rank["reason"]) for rank in told],
                         [(1, 0, "gap_unrepaired")])
        # The engine's clear makes the picture whole again in content.
        self.assertEqual(mock.client.request("POST", "/reset_prefix_cache").status, 200)
        settle(lambda: self.indexed(1), set())

    def test_gap_beyond_the_ring(self):
        mock, other = self.start(1, "--replay-messages", 50), self.start(2)
        self.load(mock)
        self.load(other)
        self.agree(mock, other)
        before = self.picture(2)
        self.lose(mock, 1000)
        self.degraded(mock, "history_gone")
        # Never more than the engine has, after its lost removals.
        settle(lambda: self.indexed(1) - mock.blocks(), set())
        self.assertEqual(self.picture(2), before)

    def test_gap_with_a_silent_replay_socket(self):
        mock, other = self.start(1), self.start(2)
        self.load(mock)
        self.load(other)
        self.agree(mock, other)
        before = self.picture(2)
        mock.fault(replay_silent=True)
        self.lose(mock, 50)
        self.degraded(mock, "replay_failed")
        self.assertEqual(self.picture(2), before)

    def test_gap_that_the_engine_never_kept(self):
        mock = self.start(1)
        self.load(mock)
        self.agree(mock)
        self.lose(mock, 20, keep_for_replay=False)
        listener = settle(lambda: self.indexer.listener(1),
                          lambda l: l.get("watermark") == mock.messages() - 1)
        settle(lambda: self.indexer.listener(1)["state"], "degraded")
        self.assertNotEqual(self.indexer.listener(1)["reason"], "none")
        self.assertGreaterEqual(listener["counts"]["missed_messages"], 1)


class Gateway(unittest.TestCase):
    """The same engines behind the gateway: one dies, and what it predicts stays true."""

    def test_an_engine_dies_mid_stream(self):
        mocks = [Mock(*FAST, "--decode-speedup", 0.002) for _ in range(2)]
        words = ["gateway", "--port", 0]
        for i, mock in enumerate(mocks):
            self.addCleanup(mock.close)
            words += ["--worker", f"id={i + 1},url=http://{mock.client.host}:{mock.client.port},"
                                  f"model=m,block-size=4,events={mock.ranks[0]['events']},"
                                  f"replay={mock.ranks[0]['replay']}"]
        gateway = Process(words)
        self.addCleanup(gateway.close)
        client = Client(next(iter(gateway.addresses.values())))
        prompt = list(range(1, 42))
        body = {"model": "m", "prompt": prompt, "max_tokens": 2}

        def ask():
            return client.post("/v1/completions", body)

        first = settle(ask, lambda answer: answer.status == 200)
        predicted, actual = [], []

        def hit():
            answer = ask()
            predicted.append(int(answer.headers["x-kvroute-predicted-cached-tokens"]))
            actual.append(answer.json["usage"]["prompt_tokens_details"]["cached_tokens"])
            return predicted[-1]

        settle(hit, 40)
        self.assertEqual(actual[-1], 40)
        holder = int(first.headers["x-kvroute-worker"])
        # Kill it in the middle of an answer: the client hears of it within the stream.
        text = b""
        with client.connect() as stream:
            payload = (b'{"model":"m","prompt":%s,"max_tokens":1000,"stream":true}'
                       % str(prompt).encode())
            stream.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                           b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                           % (len(payload), payload))
            while text.count(b"data: ") < 2:
                text += stream.recv(4096)
            mocks[holder - 1].child.kill()
            while piece := stream.recv(4096):
                text += piece
        self.assertIn(b'"error"', text)
        # Its cache is gone with it: the other engine serves, and nothing is promised there.
        answer = settle(ask, lambda found: found.status == 200)
        self.assertNotEqual(int(answer.headers["x-kvroute-worker"]), holder)
        self.assertEqual(int(answer.headers["x-kvroute-predicted-cached-tokens"]), 0)
        settle(hit, 40)
        self.assertEqual(actual[-1], 40)


if __name__ == "__main__":
    main()

"""What engines are known to do wrong or in their own way, one test or table row each, by the ids of the
list of quirks: V of vLLM, S of SGLang, T of TensorRT-LLM, L of LMCache, M of Mooncake, A of ATOM, X of
other consumers. What V9, V16 and V18 ask of operators is in docs/compatibility.md.
"""

import http.server
import json
import threading

import zmq

from kvr_testlib import (A, B, C, CLEARED, D, E, X, Y, FakeEngine, IndexerTest, Mock, Process, main, pack,
                         removed, settle, stored)

GPU, CPU = {"medium": "GPU"}, {"medium": "CPU"}
DIGEST = bytes.fromhex("c9d58ba695280d69b243e1e0df813136ca9196b286fb1a021e0b2e028ef071cb")
LAST_END = int.from_bytes(DIGEST[-8:], "big")
FIRST_END = int.from_bytes(DIGEST[:8], "big", signed=True)
MAMBA = {"group_idx": 1, "kv_cache_spec_kind": "mamba"}

# The events, the tokens and how many of them are held afterwards in (device, host, disk), which
# events were refused why.
ROWS = [
    ("V2: copies off the device by digests, blocks on it by numbers",
     [stored([LAST_END], None, A), stored([DIGEST], None, [], block_size=0, **CPU), removed([LAST_END])],
     [(A, (0, 4, 4))], {}),
    ("V3: a store and a removal for each physical copy",
     [stored([11], None, A), stored([11], None, A), removed([11])], [(A, (4, 4, 4))], {}),
    ("V3: ... until the last copy goes",
     [stored([11], None, A), stored([11], None, A), removed([11]), removed([11])], [(A, None)], {}),
    ("V4: a parent goes before its children", [stored([11, 12], None, A + B), removed([11])],
     [(A + B, None)], {}),
    ("V4: ... and comes back", [stored([11, 12], None, A + B), removed([11]), stored([11], None, A)],
     [(A + B, (8, 8, 8))], {}),
    ("V4: a child of a parent that is gone",
     [stored([11], None, A), removed([11]), stored([12], 11, B)], [(A + B, None), (B, None)], {}),
    ("V5: names for a part of the blocks", [stored([12], None, A + B + C)], [(A, None), (B, None)],
     {"sparse_store": 1}),
    ("V5: groups that are no prefix", [stored([12], None, A + B + C, **MAMBA)], [(A, None)],
     {"non_main_group": 1}),
    ("V6: a piece of a block under a parent that was never announced",
     [stored([11], None, A), stored([21], 20, [5, 6], block_size=2)], [(A + [5, 6, 7, 8], (4, 4, 4))],
     {"partial_block": 1}),
    ("V12: the host pool's evictions say GPU",
     [stored([11], None, A, **CPU), removed([11], **GPU)], [(A, (0, 4, 4))], {}),
    ("V13: removals of what was never stored", [removed([77], **CPU), stored([11], None, A)],
     [(A, (4, 4, 4))], {}),
    ("V13: chunks that overlap are counted",
     [stored([11, 12], None, A + B, **CPU), stored([12, 13], 11, B + C, **CPU), removed([12], **CPU)],
     [(A + B + C, (0, 12, 12))], {}),
    ("V13: a placeholder, and what it is", [stored([11], None, [], block_size=0, **CPU),
                                            stored([11], None, A, **CPU)], [(A, (0, 4, 4))], {}),
    ("V14: host copies of another size", [stored([11], None, A[:2], block_size=2, **CPU)], [(A, None)],
     {"block_size_mismatch": 1}),
    ("V19: an adapter is its name, whatever its number",
     [stored([11], None, A, lora_id=7, lora_name="x"), stored([12], 11, B, lora_id=9, lora_name="x")],
     [(A + B, (8, 8, 8), {"lora_name": "x"}), (A, None)], {}),
    ("S1: a name that does not say where its block is",
     [stored([11], None, A), stored([12], 11, B), stored([12], 13, B)], [(A + B, (4, 4, 4))],
     {"ambiguous_name": 1}),
    ("S2: one removal for a radix node, in any order",
     [stored([11, 12, 13], None, A + B + C), removed([13, 12])], [(A + B + C, (4, 4, 4))], {}),
    ("S3: two adapters under one name: held until both are gone",
     [stored([11], None, A, lora_id=None), stored([11], None, A, lora_id=None), removed([11])],
     [(A, (4, 4, 4))], {}),
    ("S4: a map of metadata, a list and a text in the same place",
     [["BlockStored", [11], None, A, 4, None, "GPU", {"cache_salt": "a", "session_id": "s"}],
      ["BlockStored", [12], None, X, 4, None, "GPU", ["full", "swa"]],
      ["BlockStored", [13], None, Y, 4, None, "GPU", "adapter"],
      ["BlockStored", [14], None, B, 4, None, "GPU"]],
     [(A, (4, 4, 4), {"cache_salt": "a"}), (A, None), (X, (4, 4, 4)),
      (Y, (4, 4, 4), {"lora_name": "adapter"}), (B, (4, 4, 4))], {}),
    ("S6 and X1: arrays, maps and arrays again",
     [["BlockStored", [11], None, A, 4, None, "GPU"], stored([12], 11, B, **GPU),
      ["BlockStored", [13], 12, C, 4], removed([13]), ["BlockRemoved", [12], "GPU"]],
     [(A + B + C, (4, 4, 4))], {}),
    ("X1: an adapter's name among the keys is no image",
     [stored([11], None, A, lora_name="adapter-116", extra_keys=[["adapter-116"]])],
     [(A, (4, 4, 4), {"lora_name": "adapter-116"}), (A, None)], {}),
    ("M1: names as signed twins, of a pool that is no worker's own",
     [{"event_id": 1, "timestamp": 1700000000250, "event_type": "stored", "type": "BlockStored",
       "backend_id": "pool-0", "medium": "cpu", "seq_hashes": [2**64 - 1], "block_hashes": [-1],
       "token_ids": None, "block_size": None, "parent_block_hash": None}], [(A, None)],
     {"unsupported_ownership": 1}),
]


class Rows(IndexerTest):
    def test_rows(self):
        for worker, (row, events, held, refused) in enumerate(ROWS, start=1):
            with self.subTest(row):
                before = self.indexer.metrics()
                engine = self.engine(worker)
                self.send(engine, *events)
                for tokens, want, *identity in held:
                    self.assertEqual(self.indexer.tiers(tokens, worker, **(identity or [{}])[0]), want,
                                     (tokens, identity))
                self.assertEqual(self.indexer.metrics().refused_since(before), refused)
                # The stream goes on whatever it was.
                self.send(engine, stored([91], None, D))
                self.expect(D, 4, worker)
                engine.close()
                self.assertEqual(self.indexer.unregister(worker).status, 200)


class Streams(IndexerTest):
    words = ("--ingest-replay-silence-ms", 200, "--ingest-replay-attempts", 2)

    def test_v1_v11_a_number_that_was_burned(self):
        """A batch that could not be encoded is in no replay either: the gap is given up for good."""
        engine = self.engine(1, replay=True)
        self.send(engine, stored([11], None, A))
        settle(lambda: self.indexer.listener()["state"], "exact")
        engine.requests.clear()
        engine.publish(2, [stored([13], None, C)])  # 1 never was
        settle(self.indexer.watermark, 2)
        self.expect(A, 4)
        self.expect(C, 4)
        listener = settle(self.indexer.listener, lambda l: l["state"] == "degraded")
        self.assertIn(listener["reason"], ("gap_unrepaired", "history_gone"))
        for seq in range(3, 40):
            engine.publish(seq, [stored([seq + 100], None, [seq] * 4)])
        self.drain(engine)
        self.expect([39] * 4, 4)
        self.assertLessEqual(len(engine.requests), 8, "it is not asked for with every message")

    def test_v8_a_burst_is_taken_while_others_ask(self):
        engine = self.engine(1)
        for seq in range(5000):
            engine.publish(seq, [stored([seq + 1], None, [seq + 1] * 4)])
            if seq % 500 == 0:
                self.assertEqual(self.indexer.client.get("/workers").status, 200)
        self.drain(engine)
        self.assertEqual(len(self.indexer.dumped(1)), 5000)
        self.assertEqual(self.indexer.metrics().total("kvr_ingest_gaps_total"), 0)

    def test_v9_a_clear_may_come_late(self):
        engine = self.engine(1)
        self.send(engine, stored([11, 12], None, A + B))
        # Slept and woken: the engine says so with its next step, among that step's own events.
        self.send(engine, CLEARED, stored([13], None, C))
        self.expect(A + B, 0)
        self.expect(C, 4)

    def test_v10_both_layouts_of_a_replay(self):
        for worker, layout in enumerate(("seq", "topic"), start=1):
            with self.subTest(layout):
                engine = FakeEngine(replay=True, layout=layout, topic=b"kv@pod@m")
                self.addCleanup(engine.close)
                engine.worker, engine.rank = worker, 0
                engine.publish(0, [stored([11], None, A)])  # nobody listens yet
                self.indexer.register(worker, engine.endpoint, replay=engine.replay)
                settle(lambda w=worker: self.indexer.score(A, w), 4)
                self.assertEqual(engine.requests[0][0], b"")

    def test_v15_a_restart_at_the_same_address(self):
        for worker, replay in ((1, False), (2, True)):
            with self.subTest(replay=replay):
                engine = self.engine(worker, replay=replay)
                for i in range(3):
                    self.send(engine, stored([11 + i], None, [i + 1] * 4))
                with engine.lock:
                    engine.ring.clear()
                engine.publish(0, [stored([31], None, X)])
                settle(lambda w=worker: self.indexer.score(X, w), 4)
                settle(lambda w=worker: self.indexer.score([1] * 4, w), 0)
                self.assertEqual([block[4] for block in self.indexer.dumped(worker)], [31])

    def test_v17_what_came_before_the_subscription(self):
        engine = FakeEngine(replay=True)
        self.addCleanup(engine.close)
        for seq, (name, parent, tokens) in enumerate(((11, None, A), (12, 11, B), (13, 12, C))):
            engine.publish(seq, [stored([name], parent, tokens)])
        self.assertEqual(self.indexer.register(1, engine.endpoint, replay=engine.replay).status, 201)
        settle(lambda: self.indexer.score(A + B + C), 12)
        self.assertEqual(int.from_bytes(engine.requests[0][1], "big"), 0)

    def test_v19_an_adapters_number_is_each_workers_own(self):
        for worker, number in ((1, 7), (2, 1)):
            self.send(self.engine(worker), stored([11], None, A, lora_id=number, lora_name="x"))
        self.assertEqual(self.indexer.scores(A, lora_name="x"), {(1, 0): 4, (2, 0): 4})
        self.assertEqual(self.indexer.scores(A), {})

    def test_s5_ranks_that_never_speak(self):
        engine = self.engine(1)
        self.assertEqual(self.indexer.register(1, "tcp://127.0.0.1:9", rank=1).status, 201)
        self.send(engine, stored([11], None, A))
        self.assertEqual(self.indexer.scores(A), {(1, 0): 4})
        self.assertEqual(self.indexer.listener(1, 0)["state"], "exact")
        self.assertNotEqual(self.indexer.listener(1, 1)["state"], "exact")

    def test_m1_milliseconds_and_a_first_number_of_1(self):
        engine = self.engine(1)
        engine.publish(1, pack([1700000000250, [stored([11], None, A)], 0]))
        self.drain(engine)
        self.expect(A, 4)
        self.assertEqual(self.indexer.metrics().total("kvr_ingest_gaps_total"), 0)

    def test_a1_messages_without_a_number(self):
        engine = self.engine(1)
        payload = pack([1.0, [stored([11], None, A)], 0])
        engine.send_frames(payload)
        engine.send_frames(b"", payload)
        self.send(engine, stored([12], None, B))
        self.expect(A, 0)
        self.expect(B, 4)
        self.assertEqual(self.indexer.metrics().total("kvr_ingest_frames_rejected_total",
                                                      reason="frame_count"), 2)

    def test_l1_chunks_are_never_removed(self):
        """Their time runs out by the engine's clock; other names, a token too many, a small medium."""
        engine = self.engine(1, register=False)
        self.indexer.register(1, engine.endpoint, media="lenient")
        engine.wait_subscriber()
        self.send(engine, stored([11, 12], None, A + B))
        self.send(engine, stored([b"\x71" * 32], None, A + B + C[:1], block_size=8, medium="cpu"))
        self.send(engine, removed([11, 12]))
        self.assertEqual(self.indexer.tiers(A + B), (0, 8, 8))
        engine.publish(engine.next_seq, pack([900.0, [], None]))
        self.drain(engine)
        self.assertIsNone(self.indexer.tiers(A + B))


class ShortPrompts(IndexerTest):
    def test_v7_an_engine_that_announces_nothing_is_still_chosen(self):
        mock = Mock("--speedup", 1000, block_size=256)
        self.addCleanup(mock.close)
        worker = (f"id=1,url=http://{mock.client.host}:{mock.client.port},model=m,block-size=256,"
                  f"events={mock.ranks[0]['events']}")
        gateway = Process(["gateway", "--port", "0", "--worker", worker])
        self.addCleanup(gateway.close)
        address = gateway.addresses["gateway"]
        host, port = address.rsplit(":", 1)
        mock.client.host, mock.client.port = host, int(port)
        for _ in range(3):
            mock.complete(list(range(20)), 4)


class Lists(http.server.BaseHTTPRequestHandler):
    """POST /kv_cache_events: what waits, once."""

    def do_POST(self):
        with self.server.lock:
            waiting, self.server.waiting = self.server.waiting, []
        body = json.dumps(waiting).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class TensorRt(IndexerTest):
    """T1, and what else its lists are known for."""

    words = ("--ingest-poll-interval-ms", 10)

    def setUp(self):
        super().setUp()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Lists)
        self.server.lock, self.server.waiting, self.server.daemon_threads = threading.Lock(), [], True
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.addCleanup(self.stop)
        self.event_id = 0
        self.indexer.register(1, f"trtllm+http://127.0.0.1:{self.server.server_port}")

    def stop(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def say(self, *data, window=4096):
        events = []
        for one in data:
            events.append({"event_id": self.event_id, "data": one, "window_size": window,
                           "attention_dp_rank": 0})
            self.event_id += 1
        with self.server.lock:
            self.server.waiting += events

    @staticmethod
    def block(name, tokens, **more):
        return {"type": "stored_block", "block_hash": name, "cache_level": 0, "priority": 35, "tokens": [
            {"type": "unique_token", "token_id": token, "token_extra_id": 0} for token in tokens], **more}

    def stored(self, parent, *blocks, **more):
        return {"type": "stored", "parent_hash": parent, "blocks": list(blocks), **more}

    def unmatched(self):
        return self.indexer.metrics().total("kvr_ingest_unmatched_removals_total")

    def test_t1_partial_blocks_and_moves(self):
        self.say({"type": "created", "num_blocks_per_cache_level": [64, 64]},
                 self.stored(None, self.block(11, A), self.block(12, B), self.block(13, [9])))
        settle(lambda: self.indexer.tiers(A + B), (8, 8, 8))
        self.say({"type": "updated", "block_hash": 12, "priority": None, "cache_level": {
            "type": "event_diff", "new_value": 1, "old_value": 0}},
                 {"type": "updated", "block_hash": 11, "cache_level": None, "priority": {}})  # #4666
        settle(lambda: self.indexer.tiers(A + B), (4, 8, 8))
        self.say({"type": "removed", "block_hashes": [12, 13]})
        settle(lambda: self.indexer.tiers(A + B), (4, 4, 4))
        self.say({"type": "removed", "block_hashes": [11]})
        settle(self.indexer.dumped, [])
        self.assertEqual(self.unmatched(), 0)
        # One that nobody held counts once, though there is a tier below.
        self.say({"type": "removed", "block_hashes": [77]})
        settle(self.unmatched, 1)

    def test_t1_windows_of_which_the_largest_counts(self):
        for window in (512, 4096):
            self.say({"type": "created", "num_blocks_per_cache_level": [64, 0]}, window=window)
        self.say(self.stored(None, self.block(11, A)))
        self.say(self.stored(None, self.block(11, A)), {"type": "removed", "block_hashes": [11]}, window=512)
        self.say(self.stored(11, self.block(12, B)))
        settle(lambda: self.indexer.score(A + B), 8)

    def test_t1_3543_every_block_said_to_be_under_the_events_parent(self):
        """Events of one block each, all under the first's parent: no block is where it is not."""
        self.say(self.stored(None, self.block(11, A)), self.stored(11, self.block(12, B)),
                 self.stored(11, self.block(13, C)))
        settle(lambda: self.indexer.score(A + B), 8)
        settle(lambda: len(self.indexer.dumped()), 3)
        self.expect(A + B + C, 8)
        self.expect(C, 0)

    def test_t1_16335_blocks_that_go_without_a_word(self):
        """What was detached and is stored again is no second copy, and goes with one removal."""
        self.say(self.stored(None, self.block(11, A), self.block(12, B)))
        settle(lambda: self.indexer.score(A + B), 8)
        self.say(self.stored(11, self.block(12, B)), self.stored(11, self.block(13, X)))
        settle(lambda: self.indexer.score(A + X), 8)
        self.say({"type": "removed", "block_hashes": [12]})
        settle(lambda: self.indexer.score(A + B), 4)

    def test_t1_digests_and_salts(self):
        first, second = "0123456789abcdef" + "1" * 48, "fedcba9876543210" + "2" * 48
        self.say(self.stored(None, self.block(first, A, cache_salt="a")), self.stored(
            first, self.block(second, B), lora_name=None))
        settle(lambda: self.indexer.score(A + B, cache_salt="a"), 8)
        self.expect(A, 0)
        self.assertEqual([block[4] for block in self.indexer.dumped()],
                         [0x0123456789ABCDEF, 0xFEDCBA9876543210])
        self.say({"type": "removed", "block_hashes": [second]})
        settle(lambda: self.indexer.score(A + B, cache_salt="a"), 4)

    def test_t1_a_hole_in_the_numbers(self):
        self.say(self.stored(None, self.block(11, A)))
        settle(lambda: self.indexer.score(A), 4)
        self.event_id += 5  # the buffer was full
        self.say(self.stored(None, self.block(12, X)))
        settle(lambda: self.indexer.score(X), 4)
        listener = settle(self.indexer.listener, lambda l: l["state"] == "degraded")
        self.assertEqual(listener["reason"], "gap_unrepaired")


if __name__ == "__main__":
    main()

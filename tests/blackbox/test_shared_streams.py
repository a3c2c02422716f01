"""Ranks of an engine that publish through one socket or one list are followed through one stream."""

import http.server
import json
import os
import tempfile
import threading
import unittest

from kvr_testlib import (A, B, C, FakeEngine, Indexer, IndexerTest, main, removed, settle, stored)

BAD = {"type": "BlockStored", "block_hashes": ["no hash"], "parent_block_hash": None,
       "token_ids": A, "block_size": 4}


class Shared(IndexerTest):
    """Of worker 1, at the socket of one engine."""

    def register(self, engine, *ranks, **more):
        for rank in ranks:
            answer = self.indexer.register(1, engine.endpoint, rank, 4, engine.replay, **more)
            self.assertEqual(answer.status, 201, answer)

    def shared(self, *ranks, **more):
        engine = self.engine(1, register=False, **more)
        self.register(engine, *ranks)
        engine.rank = ranks[0]
        engine.wait_subscriber()
        return engine

    def unregister(self, rank):
        answer = self.indexer.unregister(1, dp_rank=rank)
        self.assertEqual(answer.status, 200, answer)

    def state(self, rank):
        listener = self.indexer.listener(1, rank)
        return listener["state"], listener["reason"]

    def test_three_ranks_on_one_socket_apply_each_event_once(self):
        engine = self.shared(0, 1, 2)
        self.send(engine, stored([11], None, A), rank=0)
        self.send(engine, stored([11], None, A), stored([11], None, A), rank=1)
        self.send(engine, stored([12], None, B), BAD, rank=2)
        self.assertEqual(self.indexer.applied("stored"), 4)
        self.expect(A, 4, rank=0)
        self.expect(A, 4, rank=1)
        self.expect(B, 4, rank=2)
        self.assertEqual(self.indexer.filtered("decode_error"), 1)
        page = self.indexer.client.get("/workers/1/rejected").json["ranks"]
        self.assertEqual([each["total"] for each in page], [0, 0, 1])
        self.assertEqual(self.state(2), ("degraded", "undecodable"))
        self.assertEqual([self.state(rank) for rank in (0, 1)], [("exact", "none")] * 2)
        # One of two copies goes.
        self.send(engine, removed([11]), rank=1)
        self.expect(A, 4, rank=1)
        self.send(engine, removed([11]), rank=1)
        self.expect(A, 0, rank=1)
        self.expect(A, 4, rank=0)
        self.assertEqual(engine.count_connects(), 1)

    def test_a_batch_that_is_none_is_counted_once(self):
        engine = self.shared(0, 1, 2)
        engine.publish(engine.next_seq, b"\xc1")
        self.send(engine, stored([11], None, A), rank=1)
        page = self.indexer.client.get("/workers/1/rejected").json["ranks"]
        self.assertEqual(sum(each["total"] for each in page), 1)

    def test_a_late_rank_without_replay_leaves_the_others_alone(self):
        engine = self.shared(0, 1)
        self.send(engine, stored([11], None, A), stored([11], None, A), rank=0)
        self.send(engine, stored([21], None, B, extra_keys=[["s1"]]), rank=0)
        self.send(engine, stored([11], None, A), rank=2)
        self.register(engine, 2)
        settle(lambda: self.state(2), ("degraded", "no_replay_endpoint"))
        self.assertEqual([self.state(rank) for rank in (0, 1)], [("exact", "none")] * 2)
        self.expect(A, 4, rank=0)
        self.expect(A, 0, rank=2)
        self.send(engine, removed([11]), stored([22], 21, C), rank=0)
        self.send(engine, stored([12], None, B), rank=2)
        self.expect(A, 4, rank=0)
        self.expect(B + C, 8, rank=0, cache_salt="s1")
        self.expect(B, 4, rank=2)
        self.assertEqual(len(self.indexer.dumped(1, 0)), 3)
        self.assertEqual(engine.count_connects(), 1)

    def test_a_late_rank_knows_what_cache_groups_its_engine_has(self):
        engine = self.shared(0)
        main_group = {"group_idx": 0, "kv_cache_spec_kind": "full_attention"}
        window = {"group_idx": 1, "kv_cache_spec_kind": "sliding_window",
                  "kv_cache_spec_sliding_window": 4}
        for rank in (0, 1):
            self.send(engine, stored([11], None, A, **main_group),
                      stored([11], None, A, **window), rank=rank)
        self.register(engine, 1)
        settle(lambda: self.state(1), ("degraded", "no_replay_endpoint"))
        self.send(engine, stored([12], None, B, **main_group), rank=1)
        self.expect(B, 4, rank=1)
        self.assertEqual(self.indexer.query(B)["hybrid"]["1"]["1"], 0)
        self.send(engine, stored([12], None, B, **window), rank=1)
        self.assertEqual(self.indexer.query(B)["hybrid"]["1"]["1"], 4)

    def test_a_late_rank_that_was_not_heard_of_is_exact(self):
        engine = self.shared(0)
        self.send(engine, stored([11], None, A), rank=0)
        self.register(engine, 1)
        settle(lambda: self.state(1), ("exact", "none"))
        self.send(engine, stored([11], None, A), rank=1)
        self.expect(A, 4, rank=1)

    def test_a_late_rank_with_replay_gets_its_history(self):
        engine = self.shared(0, replay=True)
        for rank in (0, 1):
            self.send(engine, stored([11], None, A), stored([11], None, A), rank=rank)
        self.register(engine, 1)
        settle(lambda: [self.state(rank) for rank in (0, 1)], [("exact", "none")] * 2)
        settle(lambda: [self.indexer.score(A, 1, rank) for rank in (0, 1)], [4, 4])
        self.send(engine, removed([11]), rank=1)
        self.expect(A, 4, rank=1)
        self.send(engine, removed([11]), rank=1)
        self.expect(A, 0, rank=1)
        self.expect(A, 4, rank=0)
        self.assertEqual(self.indexer.metrics().total("kvr_ingest_event_warnings_total",
                                                      warning_kind="duplicate_store"), 3)

    def test_ranks_leave_in_any_order(self):
        engine = self.shared(0, 1, 2)
        for rank in (0, 1, 2):
            self.send(engine, stored([11], None, A), rank=rank)
        self.unregister(0)
        engine.rank = 1
        self.send(engine, stored([12], 11, B), rank=1)
        self.send(engine, stored([12], 11, B), rank=0)
        self.expect(A + B, 8, rank=1)
        self.expect(A, 4, rank=2)
        self.expect(A, 0, rank=0)
        self.assertEqual([self.state(rank) for rank in (1, 2)], [("exact", "none")] * 2)
        self.unregister(2)
        self.send(engine, stored([13], 12, C), rank=1)
        self.expect(A + B + C, 12, rank=1)
        self.assertEqual(engine.count_connects(), 1)
        self.unregister(1)
        self.assertEqual(self.indexer.workers(), {})
        # Everything begins anew for who comes next.
        self.register(engine, 1)
        engine.wait_subscriber()
        self.send(engine, stored([14], None, C), rank=1)
        self.expect(C, 4, rank=1)

    def test_a_rank_moves_to_another_socket(self):
        engine = self.shared(0, 1)
        for rank in (0, 1):
            self.send(engine, stored([11], None, A), rank=rank)
        other = self.engine(1, register=False)
        other.worker, other.rank = 1, 0
        answer = self.indexer.register(1, other.endpoint, 0, 4, replace=True)
        self.assertEqual(answer.status, 201, answer)
        other.wait_subscriber()
        engine.rank = 1
        self.send(other, stored([12], None, B), rank=0)
        self.send(engine, stored([12], 11, B), rank=1)
        self.expect(A, 0, rank=0)
        self.expect(B, 4, rank=0)
        self.expect(A + B, 8, rank=1)

    def test_one_stream_is_read_in_one_way(self):
        engine = self.shared(0)
        for more in ({"replay": "tcp://127.0.0.1:9"}, {"engine": "sglang"}, {"media": "lenient"}):
            answer = self.indexer.register(1, engine.endpoint, 1, 4, **more)
            self.assertEqual(answer.status, 409, answer)
            self.assertIn("registered alike", answer.json["error"])
        self.register(engine, 1)


class AtTheStart(unittest.TestCase):
    def test_workers_of_one_endpoint_share_it(self):
        engine = FakeEngine()
        self.addCleanup(engine.close)
        words = ",".join(f"1:{rank}={engine.endpoint}" for rank in (0, 1, 2))
        indexer = Indexer("--workers", words, "--block-size", "4", "--model-name", "m")
        self.addCleanup(indexer.close)
        engine.wait_subscriber()
        for rank in (0, 1, 2):
            engine.send(stored([11], None, A), rank=rank)
        settle(lambda: indexer.watermark(1, 0), 2)
        self.assertEqual(indexer.applied("stored"), 3)
        for rank in (0, 1, 2):
            self.assertEqual(indexer.score(A, 1, rank), 4)
            self.assertEqual(indexer.listener(1, rank)["state"], "exact")


class AfterAWarmStart(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "snapshot")

    def indexer(self, *words):
        indexer = Indexer("--snapshot-path", self.path, *words)
        self.addCleanup(indexer.close)
        settle(lambda: indexer.client.get("/ready").status, 200)
        return indexer

    def test_ranks_of_a_stream_keep_what_is_known_of_them(self):
        """Whether they are registered one by one or known at the start."""
        for at_start in (False, True):
            engine = FakeEngine(replay=True)
            self.addCleanup(engine.close)
            first = self.indexer()
            for rank in (0, 1):
                answer = first.register(1, engine.endpoint, rank, replay=engine.replay)
                self.assertEqual(answer.status, 201, answer)
            engine.wait_subscriber()
            for rank in (0, 1):
                engine.send(stored([11], None, A), rank=rank)
            settle(lambda: [(first.watermark(1, rank), first.listener(1, rank)["state"])
                            for rank in (0, 1)], [(1, "exact")] * 2)
            self.assertEqual(first.stop(), 0)
            engine.requests.clear()
            # Workers of the command line have no replay endpoint.
            replay = None if at_start else engine.replay
            words = ",".join(f"1:{rank}={engine.endpoint}" for rank in (0, 1))
            second = self.indexer(*(["--workers", words, "--block-size", 4, "--model-name", "m"]
                                    if at_start else []))
            for rank in () if at_start else (0, 1):
                answer = second.register(1, engine.endpoint, rank, replay=replay)
                self.assertEqual(answer.status, 201, answer)
            engine.wait_subscriber()
            self.assertEqual([second.score(A, 1, rank) for rank in (0, 1)], [4, 4])
            engine.send(stored([12], 11, B), rank=1)
            settle(lambda: [second.watermark(1, rank) for rank in (0, 1)], [2, 2])
            settle(lambda: second.score(A + B, 1, 1), 8)
            self.assertEqual(second.score(A + B, 1, 0), 4)
            for rank in (0, 1):
                settle(lambda r=rank: (second.listener(1, r)["state"],
                                       second.listener(1, r)["reason"]), ("degraded", "recovered"))
            self.assertNotIn(bytes(8), [frames[-1] for frames in engine.requests])
            self.assertEqual(second.stop(), 0)
            os.remove(self.path)


class List(http.server.BaseHTTPRequestHandler):
    """POST /kv_cache_events, which empties `server.events`."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        with self.server.lock:
            self.server.readers.add(self.client_address)
            body = json.dumps(self.server.events).encode()
            self.server.events.clear()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class OneList(IndexerTest):
    def setUp(self):
        super().setUp()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), List)
        self.server.daemon_threads = True
        self.server.lock = threading.Lock()
        self.server.events, self.server.readers = [], set()
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.endpoint = f"trtllm+http://127.0.0.1:{self.server.server_port}"
        self.next_id = [0, 0]

    def put(self, rank, data):
        event = {"event_id": self.next_id[rank], "data": data, "window_size": 4096,
                 "attention_dp_rank": rank}
        self.next_id[rank] += 1
        with self.server.lock:
            self.server.events.append(event)

    def store(self, rank, name, parent, tokens):
        block = {"block_hash": name, "cache_level": 0,
                 "tokens": [{"token_id": token, "token_extra_id": 0} for token in tokens]}
        self.put(rank, {"type": "stored", "parent_hash": parent, "blocks": [block]})

    def test_two_ranks_of_one_list_have_one_reader(self):
        for rank in (0, 1):
            answer = self.indexer.register(1, self.endpoint, rank, 4)
            self.assertEqual(answer.status, 201, answer)
        chain = []
        for i in range(20):
            chain += [i + 1] * 4
            for rank in (0, 1):
                self.store(rank, 100 + i, 99 + i if i else None, chain[-4:])
            settle(lambda: [self.indexer.score(chain, 1, rank) for rank in (0, 1)],
                   [len(chain)] * 2)
        for rank in (0, 1):
            self.assertEqual(self.indexer.listener(1, rank)["state"], "exact")
        self.assertEqual(len(self.server.readers), 1)
        # The first goes; the list still has one reader, and the other rank all it needs.
        self.assertEqual(self.indexer.unregister(1, dp_rank=0).status, 200)
        self.put(1, {"type": "removed", "block_hashes": [119]})
        settle(lambda: self.indexer.score(chain, 1, 1), len(chain) - 4)
        self.assertEqual(self.indexer.listener(1, 1)["state"], "exact")
        self.assertEqual(len(self.server.readers), 1)


if __name__ == "__main__":
    main()

"""Producers beside vLLM's and SGLang's sockets: every dialect of the mock engine, TensorRT-LLM's
lists over HTTP, and the event plane between workers and routers."""

import json
import struct
import subprocess

from kvr_testlib import (A, B, C, D, E, X, KVROUTE, Client, IndexerTest, Mock, Process, main, pack, removed,
                         settle, stored)

# What an engine's dialect cannot say, or says in other words. All others have a host tier that the
# index sees as such.
NO_HOST_TIER = ("vllm-0.9.0", "vllm-0.9.1", "sglang-0.4.6", "sglang-0.4.7", "trtllm-zmq",
                "trtllm-json", "trtllm-json-v2", "trtllm-json-v2-64", "dynamo-relay")
LENIENT = ("vllm-lmcache", "vllm-mooncake-store")  # their medium is "cpu"
EXTERNAL = ("vllm-llm-d-fs",)  # a shared store instead of host memory
POOL = ("mooncake",)  # no worker's own


def dialects():
    """All that the mock engine speaks, as it lists them itself."""
    refused = subprocess.run([KVROUTE, "mock", "--dialect", "none"], capture_output=True, text=True,
                             timeout=20, check=False)
    return refused.stderr.strip().partition("there are ")[2].split(", ")


def router_event(worker, event_id, data, dp_rank=0, **more):
    return {"worker_id": worker, "event": {"event_id": event_id, "data": data, "dp_rank": dp_rank},
            **more}


def router_store(worker, event_id, blocks, parent=None, **more):
    return router_event(worker, event_id, {"stored": {
        "parent_hash": parent, "start_position": None,
        "blocks": [{"block_hash": engine, "tokens_hash": local, "mm_extra_info": None}
                   for engine, local in blocks]}}, **more)


def local_hashes(tokens):
    done = subprocess.run([KVROUTE, "hash", "--block-size", "4", *map(str, tokens)],
                          capture_output=True, text=True, timeout=20, check=True)
    return json.loads(done.stdout)["block_hashes"]


class Dialects(IndexerTest):
    def test_the_index_agrees_with_the_engine_in_every_dialect(self):
        names = dialects()
        self.assertGreaterEqual(len(names), 31)
        self.assertLessEqual({*NO_HOST_TIER, *LENIENT, *EXTERNAL, *POOL}, set(names))
        for worker, dialect in enumerate(names, start=1):
            if dialect in POOL:
                continue
            with self.subTest(dialect):
                host = 0 if dialect in NO_HOST_TIER else 32
                lower = "external" if dialect in EXTERNAL else "host_pinned"
                mock = Mock("--dialect", dialect, "--num-blocks", 64, "--host-blocks", host,
                            "--speedup", 1000)
                self.addCleanup(mock.close)
                mock.register(self.indexer, worker,
                              media="lenient" if dialect in LENIENT else "strict")
                for i in range(30):
                    mock.complete(list(range(10 * i, 10 * i + 33)), 4)
                want = {("device" if tier == "device" else lower, name)
                        for tier, name in mock.blocks()}
                self.assertGreater(len(want), 20)
                self.assertEqual(len({tier for tier, _ in want}), 2 if host else 1)
                settle(lambda w=worker: {(block[2], block[4]) for block in self.indexer.dumped(w)},
                       want)
                self.assertEqual(self.indexer.listener(worker)["state"], "exact")
                mock.client.post("/reset_prefix_cache", {})
                settle(lambda w=worker: self.indexer.dumped(w), [])
        self.assertEqual(self.indexer.metrics().total("kvr_ingest_unmatched_removals_total"), 0)
        self.assertEqual(self.indexer.metrics().total("kvr_ingest_skipped_fields_total"), 0)

    def test_the_pool_of_mooncake_is_no_workers_own(self):
        mock = Mock("--dialect", "mooncake", "--speedup", 1000)
        self.addCleanup(mock.close)
        mock.register(self.indexer, 1)
        mock.complete(list(range(33)), 4)
        settle(lambda: self.indexer.filtered("unsupported_ownership"), lambda count: count >= 8)
        self.assertEqual(self.indexer.dumped(), [])


class PromptEmbeddings(IndexerTest):
    def test_blocks_of_zeros_match_no_text(self):
        size = {"block_size": 8}
        engine, zeros = self.engine(1, model="embeds", **size), [0] * 8
        self.send(engine, stored([11, 12], None, zeros * 2, **size),
                  stored([13], 12, A + B, **size),
                  stored([21], None, zeros, extra_keys=[[b"\xc9" * 32]], **size),
                  stored([31], None, B + A, **size))
        for prompt in (zeros, zeros * 2, zeros * 2 + A + B, A + B):
            self.expect(prompt, 0, model="embeds")
        self.expect(B + A, 8, model="embeds")
        self.send(engine, removed([11, 12, 13, 21]))
        self.assertEqual(len(self.indexer.dumped()), 1)


class LmcacheChunks(IndexerTest):
    def test_chunks_are_copies_of_the_engines_blocks(self):
        """Two chunks of two blocks, under LMCache's names and with its one token too many."""
        for media, medium in (("lenient", "cpu"), ("strict", "CPU")):
            with self.subTest(media):
                engine = self.engine(1, register=False)
                answer = self.indexer.register(1, engine.endpoint, media=media)
                self.assertEqual(answer.status, 201, answer)
                engine.wait_subscriber()
                chunk = lambda name, parent, tokens: stored([name], parent, tokens, block_size=8,
                                                            medium=medium)
                if media == "strict":  # from the first chunk on
                    self.send(engine, chunk(70, None, E + X))
                self.send(engine, stored([11, 12], None, A + B), stored([13, 14], 12, C + D))
                self.send(engine, chunk(b"\x71" * 32, None, A + B + C[:1]),
                          chunk(b"\x72" * 32, b"\x71" * 32, C + D))
                self.assertEqual(self.indexer.tiers(A + B + C + D), (16, 16, 16))
                self.send(engine, removed([14, 13, 12, 11]))
                self.assertEqual(self.indexer.tiers(A + B + C + D), (0, 16, 16))
                self.send(engine, stored([11], None, A))
                self.assertEqual(self.indexer.tiers(A + B + C + D), (4, 16, 16))
                # Nobody removes them: they go with the engine's time.
                engine.publish(engine.next_seq, pack([900.0, [], None]))
                self.drain(engine)
                self.assertEqual(self.indexer.tiers(A + B + C + D), (4, 4, 4))
                engine.close()
                self.assertEqual(self.indexer.unregister(1).status, 200)


class PolledGateway(IndexerTest):
    def test_one_list_feeds_all_ranks_of_a_worker(self):
        mock = Mock("--dialect", "trtllm-json", "--speedup", 1000, ranks=2)
        self.addCleanup(mock.close)
        worker = (f"id=1,url=http://{mock.client.host}:{mock.client.port},model=m,block-size=4,"
                  f"dp-size=2,events={mock.ranks[0]['events']}")
        gateway = Process(["gateway", "--port", "0", "--worker", worker])
        self.addCleanup(gateway.close)
        mock.complete(list(range(33)), 4, rank=0)
        mock.complete(list(range(17)), 4, rank=1)
        client = Client(gateway.addresses["gateway"])
        def ranks():
            return [(rank["blocks"]["device"], rank["state"])
                    for rank in client.get("/workers").json["workers"][0]["ranks"]]
        settle(ranks, [(len(mock.blocks(rank)), "exact") for rank in (0, 1)])


class EventPlane(IndexerTest):
    """[topic, publisher, sequence, version + length + envelope]"""

    def setUp(self):
        super().setUp()
        self.source = self.engine(1)

    def send_plane(self, seq, events, publisher=77, **changes):
        ids = {"publisher_id": publisher, "sequence": seq, "published_at": 1, "topic": "kv-events",
               "payload": pack(events), **changes}
        envelope = pack(ids)
        frame = b"\x01" + struct.pack(">I", len(envelope)) + envelope
        self.source.send_frames(b"kv-events", struct.pack(">Q", publisher), struct.pack(">Q", seq),
                                changes.get("frame", frame))

    def rejected(self, reason):
        return self.indexer.metrics().total("kvr_ingest_frames_rejected_total", reason=reason)

    def test_router_events_through_the_event_plane(self):
        first, second = local_hashes(A + B)
        self.send_plane(0, [router_store(1, 1, [(11, first), (12, second)])])
        settle(self.indexer.watermark, 0)
        self.expect(A + B, 8)
        self.send_plane(1, [router_event(1, 2, {"removed": {"block_hashes": [12]}})])
        settle(self.indexer.watermark, 1)
        self.expect(A + B, 4)
        self.send_plane(2, [router_event(1, 3, "cleared")])
        settle(self.indexer.watermark, 2)
        self.expect(A, 0)
        self.assertEqual(self.indexer.listener()["state"], "exact")

    def test_events_that_were_lost_before_their_message_was_numbered(self):
        first, second = local_hashes(A + B)
        self.send_plane(0, [router_store(1, 7, [(11, first)])])  # who comes late knows no better
        self.send_plane(1, [router_event(1, 8, {"removed": {"block_hashes": [99]}})])
        self.send_plane(2, [router_event(1, 8, {"removed": {"block_hashes": [98]}})])  # a repeat
        settle(self.indexer.watermark, 2)
        self.assertEqual(self.indexer.listener()["state"], "exact")
        self.send_plane(3, [router_store(1, 12, [(12, second)], parent=11)])
        settle(self.indexer.watermark, 3)
        self.expect(A + B, 8)
        listener = self.indexer.listener()
        self.assertEqual((listener["state"], listener["reason"]), ("degraded", "gap_unrepaired"))
        self.assertIn("events 9 to 11 were never sent", listener["detail"])
        # Nothing that was removed unseen outlives a clear.
        self.send_plane(4, [router_event(1, 13, "cleared")])
        settle(self.indexer.watermark, 4)
        settle(lambda: self.indexer.listener()["state"], "exact")

    def test_an_event_that_nobody_can_read_may_be_of_any_rank(self):
        self.indexer.register(1, self.source.endpoint, rank=1)
        (local,) = local_hashes(A)
        states = lambda: [self.indexer.listener(1, rank)["reason"] for rank in (0, 1)]
        self.send_plane(0, [router_store(1, 1, [(11, local)], dp_rank=0),
                            router_store(1, 2, [(21, local)], dp_rank=1)])
        settle(lambda: self.indexer.watermark(1, 1), 0)
        self.assertEqual(states(), ["none", "none"])
        self.send_plane(1, [router_event(1, 3, {"removed": {"block_hashes": "x"}}, dp_rank=1)])
        settle(states, ["undecodable", "undecodable"])
        # Each is well again when it is known to hold nothing.
        self.send_plane(2, [router_event(1, 4, "cleared", dp_rank=0)])
        settle(states, ["none", "undecodable"])
        self.send_plane(3, [router_event(1, 5, "cleared", dp_rank=1)])
        settle(states, ["none", "none"])
        # Also where what could be read is of a rank that nobody registered.
        self.send_plane(4, [router_event(1, 6, "cleared", dp_rank=7),
                            router_event(1, 7, {"removed": {"block_hashes": "x"}}, dp_rank=1)])
        settle(states, ["undecodable", "undecodable"])

    def test_numbers_of_several_ranks_have_no_gaps_of_one(self):
        self.indexer.register(1, self.source.endpoint, rank=1)
        (local,) = local_hashes(A)
        for seq, (rank, event_id) in enumerate([(0, 1), (1, 2), (0, 3), (0, 9), (1, 20)]):
            self.send_plane(seq, [router_store(1, event_id, [(event_id, local)], dp_rank=rank)])
        for rank in (0, 1):
            settle(lambda: self.indexer.watermark(1, rank), 4)  # pylint: disable=cell-var-from-loop
        self.assertEqual(self.indexer.listener()["state"], "exact")

    def test_hints_of_a_wrong_type_cost_themselves(self):
        (local,) = local_hashes(A)
        store = router_store(1, 1, [(11, local)], session_id=7, sce="yes")
        store["event"]["data"]["stored"]["start_position"] = "first"
        store["event"]["data"]["stored"]["blocks"][0]["mm_extra_info"] = 7
        self.send_plane(0, [store])
        settle(self.indexer.watermark, 0)
        self.expect(A, 4)
        self.send_plane(1, [router_event(1, 2, "cleared")])
        self.source.publish(2, json.dumps([store]).encode())
        settle(self.indexer.watermark, 2)
        self.expect(A, 4)
        metrics = self.indexer.metrics()
        for field in ("session_id", "start_position", "mm_extra_info", "sce"):
            self.assertEqual(metrics.total("kvr_ingest_skipped_fields_total", field=field), 2, field)
        self.assertEqual(self.indexer.listener()["state"], "exact")

    def test_rows_t27_to_t30(self):
        seq = struct.pack(">Q", 0)
        for frame in (b"\x02" + b"\0" * 10, b"\x01\0\0", b"\x01" + struct.pack(">I", 1000) + b"12345"):
            self.source.send_frames(b"kv-events", seq, seq, frame)
        settle(lambda: self.rejected("plane_frame"), 3)
        self.send_plane(0, [router_event(1, 1, "cleared")], publisher_id=78)
        self.send_plane(0, [router_event(1, 1, "cleared")], sequence=9)
        settle(lambda: self.rejected("identity"), 2)
        self.assertIsNone(self.indexer.watermark())

    def test_json_foreign_workers_and_ranks(self):
        rank1 = self.indexer.register(1, self.source.endpoint, rank=1)
        self.assertEqual(rank1.status, 201)
        (local,) = local_hashes(A)
        payload = json.dumps([router_store(1, 1, [(11, local)], dp_rank=0),
                              router_store(1, 2, [(21, local)], dp_rank=1),
                              router_store(2, 3, [(31, local)])]).encode()
        self.source.publish(0, payload)
        settle(lambda: self.indexer.watermark(1, 0), 0)
        settle(lambda: self.indexer.watermark(1, 1), 0)
        self.assertEqual(self.indexer.scores(A), {(1, 0): 4, (1, 1): 4})
        self.assertGreaterEqual(self.indexer.filtered("foreign_worker"), 1)


class Registration(IndexerTest):
    def test_engine_and_media(self):
        engine = self.engine(1, register=False)
        for bad in ({"engine": "tgi"}, {"media": "all"}, {"engine": 5}):
            self.assertIn(self.indexer.register(1, engine.endpoint, **bad).status, (400, 422), bad)
        answer = self.indexer.register(1, engine.endpoint, engine="sglang", media="lenient")
        self.assertEqual(answer.status, 201, answer)
        self.assertNotIn("warnings", answer.json)
        engine.wait_subscriber()
        digest = bytes(range(1, 33))
        self.send(engine, stored([digest], None, A), stored([7], None, B, medium="cpu"))
        self.assertEqual({block[4] for block in self.indexer.dumped()},
                         {int.from_bytes(digest[:8], "big"), 7})
        self.send(engine, removed([int.from_bytes(digest[:8], "big")]))
        self.expect(A, 0)

    def test_the_end_of_digests_is_found_out(self):
        """SGLang's digests become numbers by their first bytes, vLLM's by their last; both here."""
        digest = bytes(range(1, 33))
        for worker, part, end in ((1, digest[-8:], "last"), (2, digest[:8], "first")):
            engine = self.engine(worker)
            number = int.from_bytes(part, "big")
            self.send(engine, stored([number], None, A))
            self.assertNotIn("digest_end", self.indexer.listener(worker))
            self.send(engine, stored([12], digest, B))
            self.expect(A + B, 8, worker)
            self.send(engine, removed([digest]))
            self.expect(A, 0, worker)
            listener = self.indexer.listener(worker)
            self.assertEqual((listener["digest_end"], listener["digest_evidence"]), (end, "names"))
            self.assertEqual(listener["state"], "exact")

    def test_a_wrong_guess_of_the_end_credits_nothing(self):
        engine, digest = self.engine(1), bytes(range(1, 33))
        self.send(engine, stored([digest, 12], None, A + B), stored([13], 12, C))
        self.expect(A + B + C, 12)
        self.assertEqual(self.indexer.listener()["digest_evidence"], "assumed")
        # This number is the digest's other end: the block and all that was said is gone.
        self.send(engine, removed([int.from_bytes(digest[:8], "big")]))
        self.expect(A + B + C, 0)
        self.assertEqual(self.indexer.dumped(), [])
        listener = self.indexer.listener()
        self.assertEqual((listener["state"], listener["reason"]), ("degraded", "undecodable"))
        self.assertEqual(self.indexer.metrics().total("kvr_ingest_digest_changes_total"), 1)
        self.send(engine, stored([digest], None, A))
        self.expect(A, 4)
        self.send(engine, removed([int.from_bytes(digest[:8], "big")]))
        self.expect(A, 0)

    def test_polled_endpoints_have_no_replay(self):
        answer = self.indexer.register(1, "trtllm+http://127.0.0.1:9", replay="tcp://127.0.0.1:9")
        self.assertEqual(answer.status, 400, answer)
        self.assertEqual(self.indexer.register(1, "trtllm+ftp://h:1").status, 400)
        self.assertEqual(self.indexer.register(1, "trtllm+http://127.0.0.1:9").status, 201)
        settle(lambda: self.indexer.listener()["status"], "connecting")


if __name__ == "__main__":
    main()

"""What `kvroute indexer` makes of engines' event streams: rows 67 to 94 of the list of edge cases,
and the seed run over real sockets."""

import itertools
import time

from kvr_testlib import (A, B, C, D, X, CLEARED, FakeEngine, IndexerTest, batch, main,
                         pack, removed, settle, stored)


def chain(count, first=1000):
    """One-block stores, each on the one before: [(event, tokens)]"""
    return [(stored([first + i], first + i - 1 if i else None, [i + 1] * 4), [i + 1] * 4)
            for i in range(count)]


def joined(pieces):
    return list(itertools.chain.from_iterable(pieces))


class Framing(IndexerTest):
    def setUp(self):
        super().setUp()
        self.source = self.engine(1)
        self.bystander = self.engine(2)
        self.send(self.bystander, stored([21], None, A))
        self.send(self.source, stored([11], None, A))

    def tearDown(self):
        self.assertEqual(self.indexer.score(A, 2), 4)
        self.assertEqual(self.indexer.listener(2)["state"], "exact")

    def rejected(self, reason):
        return self.indexer.metrics().total("kvr_ingest_frames_rejected_total", reason=reason)

    def test_rows_67_68_frames(self):
        seq = (1).to_bytes(8, "big")
        good = batch([stored([12], 11, B)])
        for frames in ([seq, good], [b"", seq, good, b""], [good], [b"", seq, good, good, good]):
            self.source.send_frames(*frames)
        for width in (0, 4, 7, 9, 16):
            self.source.send_frames(b"", b"\0" * width, good)
        settle(lambda: self.rejected("frame_count"), 4)
        settle(lambda: self.rejected("sequence"), 5)
        self.expect(A + B, 4)
        self.send(self.source, stored([12], 11, B))
        self.expect(A + B, 8)
        self.assertEqual(self.indexer.listener()["status"], "active")

    def test_row_69_garbage(self):
        for payload in (b"\xc1", b"", pack("x"), pack(5), pack([]), pack([1.0]), batch([])[:-2],
                        pack({"ts": 1.0}), pack([1.0, 5, None])):
            self.source.publish(self.source.next_seq, payload)
        self.source.send(stored([12], 11, B))
        settle(lambda: self.indexer.score(A + B), 8)
        self.assertEqual(self.indexer.metrics().total("kvr_ingest_decode_failures_total"), 9)
        listener = self.indexer.listener()
        self.assertEqual((listener["status"], listener["state"]), ("active", "degraded"))
        self.assertNotEqual(listener["reason"], "none")
        self.assertEqual(listener["counts"]["decode_failures"], 9)

    def test_t11_trailing_bytes(self):
        self.source.publish(1, batch([stored([12], 11, B)]) + b"\x01\x02")
        settle(lambda: self.indexer.score(A + B), 8)

    def test_rows_b1_to_b5_envelopes(self):
        for i, payload in enumerate((pack([1.5, []]), pack([2, [stored([12], 11, B)]]),
                                     pack([1.5, [stored([13], 12, C)], 0, "x"]),
                                     pack({"ts": 1.5, "events": [stored([14], 13, D)]})), start=1):
            self.source.publish(i, payload)
        self.drain(self.source)
        self.expect(A + B + C + D, 16)
        self.assertEqual(self.indexer.listener()["state"], "exact")


class Sequence(IndexerTest):
    def test_row_70_first_is_zero(self):
        engine = self.engine(1)
        self.send(engine, stored([11], None, A))
        self.expect(A, 4)
        self.assertEqual(self.indexer.listener()["state"], "exact")

    def test_row_71_first_is_500_with_replay(self):
        for layout in ("seq", "topic"):
            with self.subTest(layout=layout):
                engine = FakeEngine(replay=True, layout=layout)
                self.addCleanup(engine.close)
                events = chain(500)
                for i, (event, _) in enumerate(events):
                    engine.publish(i, [event], live=False)
                worker = 1 if layout == "seq" else 2
                engine.worker, engine.rank = worker, 0
                self.indexer.register(worker, engine.endpoint, replay=engine.replay)
                engine.wait_subscriber()
                engine.publish(500, [stored([1500], 1499, X)])
                self.drain(engine)
                self.expect(joined(t for _, t in events) + X, 4 * 501, worker)
                settle(lambda w=worker: self.indexer.listener(w)["state"], "exact")
                self.assertEqual(engine.requests[0], [b"", bytes(8)])

    def test_row_71_ring_shorter(self):
        engine = FakeEngine(replay=True, ring=10)
        self.addCleanup(engine.close)
        for i in range(500):
            engine.publish(i, [stored([1000 + i], None, [i + 1] * 4)], live=False)
        engine.worker, engine.rank = 1, 0
        self.indexer.register(1, engine.endpoint, replay=engine.replay)
        engine.wait_subscriber()
        engine.publish(500, [stored([1500], None, X)])
        self.drain(engine)
        self.expect(X, 4)
        self.expect([495] * 4, 4)
        listener = settle(self.indexer.listener, lambda l: l["state"] != "warming")
        self.assertEqual((listener["state"], listener["reason"]), ("degraded", "history_gone"))

    def test_row_72_first_is_500_without_replay(self):
        engine = self.engine(1)
        engine.publish(500, [stored([11], None, A)])
        self.drain(engine)
        self.expect(A, 4)
        listener = self.indexer.listener()
        self.assertEqual((listener["state"], listener["reason"]),
                         ("degraded", "no_replay_endpoint"))

    def test_row_73_repeats(self):
        engine = self.engine(1)
        payload = batch([stored([11], None, A)])
        engine.publish(0, payload)
        engine.publish(1, [stored([12], 11, B)])
        engine.publish(1, [stored([12], 11, B)])
        engine.publish(1, [stored([12], 11, B)])
        engine.publish(2, [stored([13], 12, C)])
        self.drain(engine)
        self.expect(A + B + C, 12)
        self.assertEqual(self.indexer.listener()["counts"]["repeated"], 2)
        self.assertEqual(self.indexer.listener()["state"], "exact")
        self.assertEqual(self.indexer.applied("stored"), 3)

    def test_row_74_restart(self):
        engine, other = self.engine(1), self.engine(1, rank=1)
        self.send(other, stored([11], None, A))
        for i in range(900):
            engine.publish(i, [stored([1000 + i], None, [i + 1] * 4)])
        self.drain(engine)
        engine.publish(0, [stored([11], None, A)])
        self.drain(engine)
        self.assertEqual([b[4] for b in self.indexer.dumped(1, 0)], [11])
        self.assertEqual(self.indexer.scores(A), {(1, 0): 4, (1, 1): 4})
        self.assertEqual(self.indexer.listener()["counts"]["restarts"], 1)
        self.assertEqual(self.indexer.listener()["state"], "exact")

    def test_row_93_burst(self):
        engine = self.engine(1)
        payloads = [batch([stored([1000 + i], None, [i % 7, i, i, i])]) for i in range(20_000)]
        for i, payload in enumerate(payloads):
            engine.publish(i, payload)
        self.drain(engine)
        listener = self.indexer.listener()
        self.assertEqual((listener["state"], listener["counts"]["messages"]), ("exact", 20_000))
        self.assertNotIn("gaps", listener["counts"])
        self.assertEqual(len(self.indexer.dumped()), 20_000)


class Replay(IndexerTest):
    words = ("--ingest-replay-silence-ms", 150, "--ingest-replay-attempts", 2)

    def gap(self, engine):
        """0 live, 1 to 3 lost, 4 live."""
        self.send(engine, stored([11], None, A))
        engine.requests.clear()
        engine.publish(1, [stored([12], 11, B)], live=False)
        engine.publish(2, [stored([13], 12, C)], live=False)
        engine.publish(3, [stored([14], 13, D)], live=False)
        engine.publish(4, [stored([15], 14, X)])

    def settled(self):
        return settle(self.indexer.listener,
                      lambda l: l["state"] not in ("warming", "blind") and l.get("watermark") == 4)

    def test_row_75_silent(self):
        engine = self.engine(1, replay=True)
        settle(lambda: len(engine.requests), 1)
        self.send(engine, stored([11], None, A))
        engine.replay_paused.set()
        engine.publish(1, [stored([12], 11, B)], live=False)
        engine.publish(2, [stored([21], None, X)])
        # While the replay is awaited, what was known still answers.
        self.expect(A, 4)
        listener = settle(self.indexer.listener,
                          lambda l: l["state"] == "degraded" and l.get("watermark") == 2)
        self.assertEqual(listener["reason"], "replay_failed")
        self.expect(X, 4)
        self.assertEqual(self.indexer.listener()["status"], "active")
        engine.publish(3, [stored([22], 21, A)])
        self.drain(engine)
        self.expect(X + A, 8)
        engine.replay_paused.clear()

    def test_row_76_starts_later(self):
        engine = self.engine(1, replay=True, ring=2)
        self.gap(engine)
        listener = self.settled()
        self.assertEqual((listener["state"], listener["reason"]), ("degraded", "history_gone"))

    def test_row_77_never_ends(self):
        engine = self.engine(1, replay=True)
        sent = []

        def endless(start):
            filler = batch([])
            for seq in itertools.count(start):
                if engine.stopping.is_set() or len(sent) > 200_000:
                    return
                if len(sent) % 100 == 99:
                    time.sleep(0.001)  # an endless replay at a rate that memory survives
                sent.append(seq)
                yield engine.framed(seq, dict(engine.ring).get(seq, filler))

        settle(lambda: len(engine.requests), 1)
        engine.answer = endless
        self.gap(engine)
        settle(lambda: self.indexer.score(A + B + C + D + X), 20)
        self.assertEqual(self.indexer.watermark(), 4)
        engine.publish(5, [stored([31], None, C)])
        self.drain(engine)
        self.expect(C, 4)

    def test_gap_is_replayed_in_order(self):
        for worker, layout in enumerate(("seq", "topic"), start=1):
            engine = self.engine(worker, replay=True, layout=layout)
            self.gap(engine)
            self.drain(engine)
            self.expect(A + B + C + D + X, 20, worker)
            settle(lambda w=worker: self.indexer.listener(w)["state"], "exact")
            # What was applied last is asked for again, to prove that it is the same engine.
            self.assertIn(int.from_bytes(engine.requests[-1][1], "big"), (0, 1))
            self.assertEqual(self.indexer.listener(worker)["counts"]["gaps"], 1)

    def test_row_69_garbage_with_replay(self):
        engine = self.engine(1, replay=True)
        self.send(engine, stored([11], None, A))
        with engine.lock:
            engine.ring.append((1, batch([stored([12], 11, B)])))
        engine.send_frames(b"", (1).to_bytes(8, "big"), b"\xc1")  # the ring has the good copy
        engine.publish(2, [stored([13], 12, C)])
        settle(lambda: self.indexer.score(A + B + C), 12)
        settle(lambda: self.indexer.listener()["state"], "exact")


class WhoseMessages(IndexerTest):
    """Numbers that fit, from another engine than the one whose messages they seem to be."""

    words = ("--ingest-replay-silence-ms", 500)

    def named(self):
        return sorted(block[4] for block in self.indexer.dumped(1))

    def state(self):
        listener = self.indexer.listener()
        return listener["state"], listener["reason"]

    def test_a_number_that_goes_on_behind_a_restart_without_replay(self):
        old = self.engine(1)
        for i in range(3):
            self.send(old, stored([11 + i], None, [i + 1] * 4))
        self.assertEqual(self.indexer.listener()["state"], "exact")
        old.close()
        settle(lambda: self.indexer.listener()["state"], "warming")
        new = FakeEngine(endpoint=old.endpoint)
        self.addCleanup(new.close)
        new.worker, new.rank = 1, 0
        for i in range(3):
            new.publish(i, [stored([21 + i], None, [i + 11] * 4)], live=False)
        new.wait_subscriber()
        self.send(new, stored([31], None, X))
        self.assertEqual(self.state(), ("degraded", "no_replay_endpoint"))
        self.expect(X, 4)
        # Blocks of which nobody knows whether they are there are kept until a new engine shows.
        self.assertEqual(self.named(), [11, 12, 13, 31])
        new.publish(0, [stored([41], None, A)])
        self.drain(new)
        self.assertEqual(self.named(), [41])
        self.assertEqual(self.indexer.listener()["state"], "exact")

    def pair(self, own, foreign):
        """An engine that has published `own` messages, with the replay endpoint of one that has
        published `foreign`; both are theirs to close."""
        engine, other = FakeEngine(replay=True), FakeEngine(replay=True)
        for each, count, first in ((engine, own, 1000), (other, foreign, 5000)):
            self.addCleanup(each.close)
            for i in range(count):
                each.publish(i, [stored([first + i], None, [first + i] * 4)], live=False)
        engine.worker, engine.rank = 1, 0
        self.indexer.register(1, engine.endpoint, replay=other.replay)
        engine.wait_subscriber()
        settle(self.indexer.watermark, foreign - 1)
        return engine, other

    def disowned(self, engine):
        settle(self.state, ("degraded", "replay_mismatch"))
        settle(lambda: self.indexer.metrics().total("kvr_ingest_replays_total", outcome="foreign"),
               1)
        self.assertFalse([name for name in self.named() if name >= 5000])
        asked = self.indexer.listener()["counts"]["replays"]
        self.send(engine, stored([42], None, A))
        engine.next_seq += 3
        self.send(engine, stored([43], None, X))
        self.expect(A, 4)
        self.expect(X, 4)
        self.assertEqual(self.state(), ("degraded", "replay_mismatch"))
        self.assertEqual(self.indexer.listener()["counts"]["replays"], asked)

    def test_a_foreign_replay_that_is_ahead(self):
        engine, _ = self.pair(10, 100)
        for i in range(10):
            engine.send(stored([2000 + i], None, [2000 + i] * 4))
        self.disowned(engine)
        self.assertLessEqual({2000 + i for i in range(10)}, set(self.named()))

    def test_a_foreign_replay_that_is_just_as_far(self):
        engine, other = self.pair(10, 10)
        engine.send(stored([41], None, B))
        other.send(stored([6000], None, C))
        self.disowned(engine)
        self.expect(C, 0)

    def test_absurd_numbers_of_a_replay(self):
        for number in (1 << 21, (1 << 64) - 2):
            engine = FakeEngine(replay=True)
            self.addCleanup(engine.close)
            engine.worker, engine.rank = 1, 0
            engine.answer = lambda start, e=engine, n=number: [e.framed(n, batch([])), e.end()]
            self.indexer.register(1, engine.endpoint, replay=engine.replay)
            engine.wait_subscriber()
            engine.send(stored([11], None, A))
            settle(lambda e=engine: len(e.requests), lambda count: count > 0)
            engine.answer = engine.answer_from_ring
            engine.send(stored([12], 11, B))
            settle(lambda: self.indexer.score(A + B), 8)
            settle(lambda: self.indexer.listener()["state"], "exact")
            self.assertEqual(self.indexer.watermark(), 1)
            self.assertLessEqual(self.indexer.listener()["counts"].get("missed_messages", 0),
                                 1 << 20)
            self.indexer.unregister(1)


class Events(IndexerTest):
    def setUp(self):
        super().setUp()
        self.source = self.engine(1)

    def test_row_78_unknown_parent(self):
        self.send(self.source, stored([12], 11, B))
        self.assertEqual(self.indexer.applied("stored", "parent_block_not_found"), 1)
        self.assertEqual(self.indexer.scores(B), {})

    def test_rows_79_80(self):
        self.send(self.source, removed([99]))
        self.assertEqual(self.indexer.applied("removed", "block_not_found"), 1)
        self.send(self.source, stored([11], None, A), stored([11], None, A))
        warnings = lambda: self.indexer.metrics().total("kvr_ingest_event_warnings_total",
                                                        warning_kind="duplicate_store")
        self.assertEqual(warnings(), 1)
        self.expect(A, 4)
        self.assertEqual(len(self.indexer.dumped()), 1)
        self.assertEqual(self.indexer.listener()["state"], "exact")

    def test_row_81_one_hash_twice(self):
        self.send(self.source, stored([11, 11], None, A + B))
        self.assertEqual(self.indexer.filtered("self_referencing"), 1)
        self.assertEqual(self.indexer.dumped(), [])

    def test_row_82_block_size(self):
        for i in range(10):
            self.send(self.source, stored([11 + i], None, A + B, block_size=8))
        self.assertEqual(self.indexer.scores(A + B), {})
        self.assertEqual(self.indexer.filtered("block_size_mismatch"), 10)
        listener = self.indexer.listener()
        self.assertEqual((listener["state"], listener["reason"]),
                         ("degraded", "block_size_mismatch"))
        self.assertIn("8", listener["detail"])
        self.assertIn("4", listener["detail"])

    def test_row_83_too_few_tokens(self):
        self.send(self.source, stored([11, 12], None, A))
        self.assertEqual(self.indexer.metrics().total("kvr_ingest_cut_blocks_total"), 1)
        self.expect(A + B, 4)
        self.assertEqual([block[4] for block in self.indexer.dumped()], [11])
        self.send(self.source, stored([13], None, [1, 2]))
        self.assertEqual(self.indexer.filtered("tokens_too_short"), 1)

    def test_row_84_bytes(self):
        digest = bytes(24) + (77).to_bytes(8, "big")
        self.send(self.source, stored([digest], None, A), stored([12], 77, B))
        self.expect(A + B, 8)
        self.send(self.source, removed([digest]))
        self.expect(A + B, 0)

    def test_rows_85_to_87_filters(self):
        rows = [("unknown_medium", {"medium": "FS"}), ("unknown_medium", {"medium": "OBJ"}),
                ("unknown_medium", {"medium": "gpu"}), ("remote_locality", {"locality": "REMOTE"}),
                ("unknown_locality", {"locality": "local"}),
                ("non_main_group", {"group_idx": 1, "kv_cache_spec_kind": "sliding_window"}),
                ("non_main_group", {"group_idx": 2, "kv_cache_spec_kind": "mamba"}),
                ("unknown_kind", {"kv_cache_spec_kind": "quantum"}),
                ("unknown_ownership", {"ownership": "somebody"}),
                ("unsupported_ownership", {"ownership": "kvcr"})]
        for i, (reason, fields) in enumerate(rows):
            with self.subTest(fields=fields):
                before = self.indexer.filtered(reason)
                self.send(self.source, stored([100 + i], None, A, **fields))
                self.assertEqual(self.indexer.filtered(reason), before + 1)
                self.assertEqual(self.indexer.scores(A), {})
        self.assertEqual(self.indexer.dumped(), [])
        self.assertEqual(self.indexer.listener()["detail"],  # of `quantum`
                         "the cache group without a number is of a kind that is not known here; "
                         "no prefix is credited")

    def test_row_88_clear(self):
        rank1, other = self.engine(1, rank=1), self.engine(2)
        for engine in (self.source, rank1, other):
            self.send(engine, stored([11], None, A), stored([12], 11, B, medium="CPU"),
                      stored([13], 12, C, medium="DISK"), stored([14], 13, D, medium="EXTERNAL"))
            self.assertEqual(self.indexer.tiers(A + B + C + D, engine.worker), (4, 8, 16))
        self.send(self.source, CLEARED)
        self.assertEqual(self.indexer.dumped(1, 0), [])
        self.assertEqual(len(self.indexer.dumped(1, 1)), 4)
        self.assertEqual(len(self.indexer.dumped(2)), 4)
        self.assertEqual(self.indexer.applied("cleared"), 1)

    def test_rows_89_90_foreign_ranks(self):
        self.source.send(stored([11], None, A), rank=-1)
        self.source.send(stored([11], None, A), rank=7)
        self.send(self.source, stored([12], None, B), rank=0)
        self.assertEqual(self.indexer.scores(A), {})
        self.expect(B, 4)
        self.assertEqual(self.indexer.metrics().total("kvr_ingest_batches_rejected_total",
                                                      reason="foreign_rank"), 2)
        listener = self.indexer.listener()
        self.assertEqual((listener["state"], listener["reason"]), ("degraded", "foreign_rank"))
        self.assertEqual(self.indexer.dumped(1, 4294967295), [])

    def test_row_90_a_registered_rank_on_a_shared_stream(self):
        self.assertEqual(self.indexer.register(1, self.source.endpoint, rank=1).status, 201)
        self.send(self.source, stored([11], None, A), rank=0)
        self.assertEqual(self.indexer.scores(A), {(1, 0): 4})

    def test_row_91_unknown_type(self):
        self.send(self.source, {"type": "BlockPromoted", "block_hashes": [11]},
                  ["Strange", 1, 2], stored([11], None, A))
        self.expect(A, 4)
        self.assertEqual(self.indexer.filtered("unknown_event"), 2)

    def test_row_92_one_bad_of_a_hundred(self):
        for bad in (stored([1], None, [1, 2, 3, "x"]), {"type": "BlockStored"}, 5, None, [], {},
                    stored("x", None, A), stored([1.5], None, A), stored([None], None, A),
                    stored([1], "p", A), stored([1], None, A, block_size=-1), ["BlockStored"],
                    {"type": 5}, {1: 2}, stored([1], None, [2**32, 1, 1, 1])):
            with self.subTest(bad=bad):
                events = [stored([1000 + i], None, [i + 1] * 4) for i in range(99)]
                self.send(self.source, *events[:50], bad, *events[50:])
                self.assertEqual(len(self.indexer.dumped()), 99)
                self.send(self.source, CLEARED)
        self.assertEqual(self.indexer.listener()["status"], "active")

    def test_row_94_no_medium(self):
        for i, medium in enumerate(({}, {"medium": None}, {"medium": ""}, {"medium": "GPU"},
                                    {"medium": "DEVICE"})):
            self.send(self.source, stored([11 + i], None, [i + 1] * 4, **medium))
            self.assertEqual(self.indexer.tiers([i + 1] * 4), (4, 4, 4))
        self.assertEqual({block[2] for block in self.indexer.dumped()}, {"device"})

    def test_media_and_tiers(self):
        media = {"host_pinned": ("CPU", "CPU_PINNED", "CPU_TIER1"),
                 "disk": ("CPU_TIER2", "DISK", "NVME", "STORAGE"),
                 "external": ("EXTERNAL", "NETWORK", "REMOTE", "SHARED")}
        for tier, names in media.items():
            for name in names:
                with self.subTest(medium=name):
                    self.send(self.source, stored([11], None, A, medium=name))
                    self.assertEqual([block[2] for block in self.indexer.dumped()], [tier])
                    self.send(self.source, removed([11], medium=name))
                    self.assertEqual(self.indexer.dumped(), [])

    def test_dump_replayed_into_another_index(self):
        self.send(self.source, stored([11, 12, 13], None, A + B + C), stored([21], 12, X),
                  stored([11, 12], None, A + B, medium="CPU"), stored([14], 13, D, medium="DISK"),
                  stored([31], None, A, cache_salt="s"))
        copy = self.engine(2)
        for entry in self.indexer.dump()["m:default"]["events"]:
            data = entry["event"]["data"]["stored"]
            tokens = {11: A, 12: B, 13: C, 14: D, 21: X, 31: A}
            self.assertLessEqual(len(data["blocks"]), 4)
            self.send(copy, stored([b["block_hash"] for b in data["blocks"]], data["parent_hash"],
                                   joined(tokens[b["block_hash"]] for b in data["blocks"]),
                                   medium={"device": "GPU", "host_pinned": "CPU", "disk": "DISK",
                                           "external": "SHARED"}[entry["storage_tier"]],
                                   **({"cache_salt": "s"}
                                      if data["blocks"][0]["block_hash"] == 31 else {})))
        strip = lambda worker: [block[1:] for block in self.indexer.dumped(worker)]
        self.assertEqual(strip(2), strip(1))
        for tokens in (A + B + C + D, A + B + X, A, B):
            self.assertEqual(self.indexer.tiers(tokens, 1), self.indexer.tiers(tokens, 2))


class SeedRun(IndexerTest):
    """331 GPU stores, 354 CPU stores and 24 CPU removals of one engine."""

    words = ("--reference-metrics",)

    def test_counters(self):
        """Row M4: every event of a run is counted, once."""
        engine = self.engine(1)
        events = chain(354)
        gpu = [event for event, _ in events[:331]]
        cpu = [{**event, "medium": "CPU"} for event, _ in events]
        gone = [removed([1000 + i], medium="CPU") for i in range(330, 354)]
        # As an engine sends them: in messages of some events, host copies after the device's.
        order = gpu + cpu + gone
        for at in range(0, len(order), 7):
            engine.send(*order[at:at + 7])
        self.drain(engine)
        metrics = self.indexer.metrics()
        for name in ("kvr_ingest_events_applied_total", "dynamo_kvrouter_kv_cache_events_applied"):
            self.assertEqual(metrics.total(name, event_type="stored", status="ok"), 685)
            self.assertEqual(metrics.total(name, event_type="removed", status="ok"), 24)
            self.assertEqual(metrics.total(name), 709)
        for name in ("kvr_ingest_event_warnings_total", "dynamo_kvrouter_kv_cache_event_warnings",
                     "kvr_ingest_events_filtered_total", "kvr_ingest_decode_failures_total",
                     "kvr_ingest_frames_rejected_total", "kvr_ingest_gaps_total"):
            self.assertEqual(metrics.total(name), 0, name)
        tokens = joined(t for _, t in events)
        self.assertEqual(self.indexer.tiers(tokens), (331 * 4,) * 3)
        self.assertEqual(len(self.indexer.dumped()), 331 + 354 - 24)
        self.assertEqual(metrics.total("kvr_index_memberships"), 331 + 354 - 24)
        self.assertEqual(self.indexer.listener()["state"], "exact")

    def test_m1_to_m3_m5_m6_what_counts(self):
        """Rows M1 to M3, M3b, M3c, M5 and M6: every event once, whatever its tier."""
        engine, other = self.engine(1), self.engine(2)
        stores = lambda: self.indexer.applied("stored")
        removals = lambda status: self.indexer.applied("removed", status)
        self.send(engine, stored([11], None, A, medium="CPU"))
        self.assertEqual(stores(), 1, "M1, M2: the first block of the tier")
        self.send(engine, removed([99], medium="CPU"))
        self.assertEqual(removals("block_not_found"), 1, "M3")
        self.send(engine, stored([12], 11, B, medium="CPU"), stored([13], 12, C, medium="CPU"))
        self.send(engine, removed([12, 99, 13], medium="CPU"))
        self.assertEqual(removals("block_not_found"), 2, "M3b: once for the event")
        self.assertEqual([block[4] for block in self.indexer.dumped(1, 0)], [11], "M3b: both are gone")
        self.send(other, stored([77], None, A, medium="CPU"))
        self.assertEqual(self.indexer.tiers(A, 2), self.indexer.tiers(A, 1), "M3c")
        self.assertEqual(self.indexer.tiers(A, 2)[1], 4, "M3c")
        self.send(engine, stored([14], None, A, medium="DISK"), CLEARED)
        self.assertEqual(self.indexer.applied("cleared"), 1, "M5: of all tiers, counted once")
        before = stores()
        self.send(engine, stored([15], None, A, locality="REMOTE"))
        self.assertEqual((stores(), self.indexer.filtered("remote_locality")), (before, 1), "M6")

    def test_http(self):
        self.engine(1)
        before = self.indexer.metrics()
        self.assertEqual(self.indexer.client.post("/query", {}).status, 422)
        after = self.indexer.metrics()

        def more(name, **labels):
            return after.total(name, **labels) - before.total(name, **labels)

        name = "dynamo_kvindexer_"
        self.assertEqual(more(name + "requests_total", endpoint="/query", method="POST"), 1)
        self.assertEqual(more(name + "errors_total", endpoint="/query", status_class="4xx"), 1)
        self.assertEqual(more(name + "errors_total", status_class="5xx"), 0)
        self.assertEqual(
            more(name + "request_duration_seconds_count", endpoint="/query"), 1)
        self.assertEqual(after.total(name + "requests_total", endpoint="/metrics"), 0)
        self.assertEqual(after.total(name + "workers"), 1)
        self.assertEqual(after.total(name + "models"), 1)
        self.assertEqual(after.total(name + "listeners"), 1)
        self.assertEqual(after.total("kvr_build_info"), 1)


if __name__ == "__main__":
    main()

"""Warm start: `kvroute indexer` and `kvroute gateway` begin with the snapshot of their last run."""

import json
import os
import shutil
import signal
import tempfile
import unittest

from kvr_testlib import (A, B, C, D, X, Client, FakeEngine, Indexer, Mock, Process, Metrics, main,
                         removed, settle, stored)

HEAD = b"\x89KVRDUMP"


class Gateway(Process):
    def __init__(self, *words):
        super().__init__(["gateway", "--port", "0", *words])
        self.client = Client(self.addresses["gateway"])

    def rank(self, worker=1):
        workers = self.client.get("/workers").json["workers"]
        return next(entry for entry in workers if entry["id"] == worker)["ranks"][0]

    def metrics(self):
        return Metrics(self.client.get("/metrics").body.decode())


class WarmStart(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.path = os.path.join(self.folder, "snapshot")

    def indexer(self, *words, interval=20):
        indexer = Indexer("--snapshot-path", self.path, "--snapshot-interval-ms", interval, *words)
        self.addCleanup(indexer.close)
        return indexer

    def later(self, *words):
        """One that writes nothing before it ends."""
        return self.indexer(*words, interval=3_600_000)

    def engine(self, **more):
        engine = FakeEngine(**more)
        self.addCleanup(engine.close)
        return engine

    def follow(self, indexer, engine, worker=1, **more):
        answer = indexer.register(worker, engine.endpoint, replay=engine.replay, **more)
        self.assertEqual(answer.status, 201, answer)

    def ready(self, indexer):
        settle(lambda: indexer.client.get("/ready").status, 200)
        return indexer

    def writes(self, process, outcome):
        return process.metrics().total("kvr_snapshot_writes_total", outcome=outcome)

    def written(self, process):
        """Waits for two more snapshots, so that one of them was begun after the call."""
        before = self.writes(process, "written")
        settle(lambda: self.writes(process, "written"), lambda count: count >= before + 2)

    def outcomes(self, process):
        metrics = process.metrics()
        return {outcome: metrics.total("kvr_recovery_dumps_total", source="snapshot",
                                       outcome=outcome)
                for outcome in ("recovered", "empty", "absent", "failed")
                if metrics.total("kvr_recovery_dumps_total", source="snapshot", outcome=outcome)}

    def waiting(self, process):
        return process.metrics().total("kvr_recovery_waiting_ranks")

    def filled(self, engine, *words, model="m"):
        """A snapshot of A, B, D on worker 1 and A in its host memory, and who wrote it, killed."""
        first = self.indexer(*words)
        self.follow(first, engine, model=model)
        engine.wait_subscriber()
        engine.send(stored([11, 12], None, A + B))
        engine.send(stored([13], 12, C), stored([11], None, A, medium="CPU"))
        engine.send(removed([13]), stored([14], 12, D))
        settle(first.watermark, 2)
        settle(lambda: first.listener()["state"], "exact")
        self.written(first)
        dumped = first.dumped()
        self.assertEqual(first.stop(signal.SIGKILL), -signal.SIGKILL)
        return dumped

    def snapshot(self):
        with open(self.path, "rb") as file:
            return file.read()

    def put(self, content):
        with open(self.path, "wb") as file:
            file.write(content)

    # --- the way it should go ---

    def test_killed_and_started_again_while_the_engine_is_down(self):
        engine = self.engine(replay=True)
        dumped = self.filled(engine)
        endpoint, replay = engine.endpoint, engine.replay
        engine.close()
        second = self.ready(self.later())
        self.assertEqual(self.outcomes(second), {"recovered": 1})
        self.assertEqual(second.dump(), {})  # in no answer before its rank is registered
        self.assertEqual(second.register(1, endpoint, replay=replay).status, 201)
        self.assertEqual(second.dumped(), dumped)
        answer = second.query(A + B + D)
        self.assertEqual(answer["scores"], {"1": {"0": 12}})
        self.assertEqual([(rank["state"], rank["reason"]) for rank in answer["not_exact"]],
                         [("degraded", "recovered")])
        listener = second.listener()
        self.assertEqual(listener["status"], "connecting")
        self.assertEqual(listener["watermark"], 2)
        self.assertIn("blocks up to message 2", listener["detail"])
        self.assertIn("no connection", listener["detail"])

    def test_the_stream_goes_on_behind_the_snapshot(self):
        for replay in (True, False):
            with self.subTest(replay=replay):
                engine = self.engine(replay=replay)
                self.filled(engine)
                if replay:
                    engine.send(removed([14]))  # while nobody listens
                engine.forget_requests()
                second = self.ready(self.later())
                self.follow(second, engine)
                engine.wait_subscriber()
                engine.send(stored([15], 12, X))
                settle(lambda: second.score(A + B + X), 12)
                settle(lambda: second.listener()["reason"], "recovered")
                self.assertEqual(second.score(A + B + D), 8 if replay else 12)
                starts = [int.from_bytes(frames[-1], "big") for frames in engine.requests]
                self.assertNotIn(0, starts)
                self.assertEqual(
                    second.metrics().total("kvr_recovery_adopted_ranks_total"), 1)
                second.close()
                os.unlink(self.path)

    def test_an_engine_that_started_anew_and_came_further_is_found_out_by_its_bytes(self):
        engine = self.engine(replay=True)
        self.filled(engine)
        endpoint, replay = engine.endpoint, engine.replay
        engine.close()
        successor = self.engine(replay=True, endpoint=endpoint, replay_endpoint=replay)
        for name in range(21, 27):
            successor.send(stored([name], None, [name] * 4))
        second = self.ready(self.later())
        self.follow(second, successor)
        settle(lambda: second.listener()["state"], "exact")
        self.assertEqual(second.score(A + B + D), 0)
        self.assertEqual(second.score([26] * 4), 4)

    def test_an_engine_that_started_anew_without_replay(self):
        engine = self.engine()
        self.filled(engine)
        engine.close()
        successor = self.engine()
        second = self.ready(self.later())
        self.follow(second, successor)
        successor.wait_subscriber()
        successor.send(stored([21], None, C))
        settle(lambda: second.score(C), 4)
        self.assertEqual(second.score(A + B + D), 0)

    def test_a_restart_of_a_restart_goes_on_too(self):
        engine = self.engine(replay=True)
        dumped = self.filled(engine)
        for _ in range(2):
            again = self.ready(self.indexer())
            self.follow(again, engine)
            settle(lambda: again.listener()["reason"],  # pylint: disable=cell-var-from-loop
                   "recovered")
            self.written(again)
            self.assertEqual(again.dumped(), dumped)
            self.assertEqual(again.stop(signal.SIGKILL), -signal.SIGKILL)
        engine.forget_requests()
        last = self.ready(self.later())
        self.follow(last, engine)
        settle(lambda: last.listener()["connected"], True)
        settle(lambda: last.listener()["reason"], "recovered")
        engine.send(stored([15], 14, X))
        settle(lambda: last.score(A + B + D + X), 16)
        starts = [int.from_bytes(frames[-1], "big") for frames in engine.requests]
        self.assertNotIn(0, starts)

    def test_against_the_pool_of_a_mock_engine(self):
        mock = Mock("--num-blocks", 64, "--host-blocks", 64)
        self.addCleanup(mock.close)
        first = self.indexer()
        mock.register(first, 1)
        for i in range(30):
            mock.complete([10 * i + j for j in range(40)], 2)
        settle(lambda: first.watermark() is not None and first.watermark() + 1 == mock.messages(),
               True)
        self.written(first)
        self.assertEqual(first.stop(signal.SIGKILL), -signal.SIGKILL)
        for i in range(30, 45):
            mock.complete([10 * i + j for j in range(40)], 2)
        second = self.ready(self.later())
        mock.register(second, 1)
        settle(lambda: second.watermark() is not None and
               second.watermark() + 1 == mock.messages(), True)
        held = lambda: {(tier, name) for _, _, tier, _, name, _ in second.dumped()}
        settle(held, mock.blocks())
        settle(lambda: second.listener()["reason"], "recovered")

    def test_a_last_snapshot_is_written_at_the_end(self):
        engine = self.engine()
        first = self.later()
        self.follow(first, engine)
        engine.wait_subscriber()
        engine.send(stored([11], None, A))
        settle(lambda: first.score(A), 4)
        self.assertEqual(self.writes(first, "written"), 0)
        self.assertEqual(first.stop(), 0)
        second = self.ready(self.later())
        self.follow(second, engine)
        self.assertEqual(second.score(A), 4)
        self.assertEqual(sorted(os.listdir(self.folder)), ["snapshot", "snapshot.lock"])

    def test_what_waits_for_its_worker_is_not_written_over(self):
        engine = self.engine()
        dumped = self.filled(engine)
        before = self.snapshot()
        second = self.ready(self.indexer())
        settle(lambda: self.writes(second, "early"), lambda count: count >= 3)
        self.assertEqual(second.stop(), 0)
        self.assertEqual(self.snapshot(), before)
        third = self.ready(self.indexer())
        self.follow(third, engine)
        self.assertEqual(third.dumped(), dumped)
        self.written(third)
        self.assertNotEqual(self.snapshot(), before)

    def test_an_end_while_the_file_is_read_leaves_it_as_it_is(self):
        engine = self.engine()
        first = self.indexer()
        self.follow(first, engine)
        engine.wait_subscriber()
        for i in range(200):  # some pieces of the file, so that it can be read in part
            names = range(1_000 * i + 1, 1_000 * i + 1_001)
            engine.send(stored(list(names), None, [token for name in names for token in [name] * 4]))
        settle(first.watermark, 199)
        self.written(first)
        self.assertEqual(first.stop(signal.SIGKILL), -signal.SIGKILL)
        before = self.snapshot()
        for _ in range(5):
            second = self.indexer()
            self.assertEqual(second.stop(), 0)
            self.assertNotRegex(second.log(), "warning|error")
            self.assertEqual(self.snapshot(), before)
        third = self.ready(self.later())
        self.assertEqual(self.waiting(third), 1)

    def test_workers_that_never_come_are_dropped_after_the_grace(self):
        self.filled(self.engine())
        second = self.ready(self.indexer("--peer-grace", 100))
        settle(lambda: second.metrics().total("kvr_recovery_expired_ranks_total"), 1)
        self.written(second)
        second.close()
        third = self.ready(self.later())
        self.assertEqual(self.outcomes(third), {"empty": 1})

    def test_workers_given_at_start_wait_for_the_file(self):
        engine = self.engine(replay=True)
        dumped = self.filled(engine)
        second = self.later("--workers", f"1={engine.endpoint}", "--block-size", 4,
                            "--model-name", "m")
        settle(lambda: second.listener()["reason"], "recovered")
        self.assertEqual(second.dumped(), dumped)

    def test_names_of_models_with_any_character(self):
        for model in ("llama3:8b", "a:b:c", 'quote " and \\', "new\nline\ttab \x01\x7f", "%3A 100%",
                      "\u00e9\u4e2d\U0001f600", "{}", "x" * 512):
            with self.subTest(model=model):
                engine = self.engine()
                dumped = self.filled(engine, model=model)
                second = self.ready(self.later())
                self.follow(second, engine, model=model)
                self.assertEqual(second.dumped(), dumped)
                self.assertEqual(second.score(A + B + D, model=model), 12)
                second.close()
                os.unlink(self.path)

    # --- whichever is fresher ---

    def test_the_fresher_of_file_and_peer_is_taken(self):
        engine = self.engine(replay=True)
        peer = Indexer()
        self.addCleanup(peer.close)
        self.follow(peer, engine)
        self.filled(engine)
        old = self.snapshot()
        engine.send(removed([14]))  # message 3: the peer is ahead of the file
        settle(peer.watermark, 3)
        url = f"http://{peer.client.host}:{peer.client.port}"

        def begun(*words):
            engine.forget_requests()
            indexer = self.ready(self.later(*words))
            self.follow(indexer, engine)
            settle(lambda: indexer.listener()["connected"], True)
            settle(lambda: indexer.listener()["reason"], "recovered")
            detail = indexer.listener()["detail"]
            self.assertEqual(indexer.score(A + B + D), 8)
            indexer.close()
            return detail

        self.assertIn("up to message 3 ", begun("--peers", url))
        self.assertIn("up to message 2 ", begun())
        # A file that is ahead of the peer.
        ahead = self.indexer("--peers", url)
        self.follow(ahead, engine)
        settle(ahead.watermark, 3)
        answer = peer.client.get("/dump?format=binary").body
        peer.close()
        engine.send(stored([15], 12, X))
        settle(ahead.watermark, 4)
        self.written(ahead)
        self.assertEqual(ahead.stop(signal.SIGKILL), -signal.SIGKILL)
        self.assertNotEqual(self.snapshot(), old)
        from test_indexer_peers import FakePeer  # pylint: disable=import-outside-toplevel
        past = FakePeer(self, answer, content_type="application/x-kvroute-dump")
        self.assertIn("up to message 4 ", begun("--peers", past.url))

    # --- what may be in the way ---

    def test_damaged_files_are_refused_with_the_reason(self):
        engine = self.engine()
        self.filled(engine)
        good = self.snapshot()
        size = len(good)

        def flipped(at):
            damaged = bytearray(good)
            damaged[at] ^= 1
            return bytes(damaged)

        rows = [
            (b"", "ends early, after 0 bytes", 0),
            (good[:5], "ends early", 0),
            (good[:16], "ends early", 0),
            (good[:size // 2], "ends early", 0),
            (good[:-1], "ends early", 1),  # the partition was whole before
            (flipped(0), "begins otherwise", 0),
            (flipped(8), "version 0", 0),
            (good[:8] + b"\x02\0\0\0" + good[12:], "version 2, this program reads version 1", 0),
            (flipped(23), "chunk 0 says it has", 0),
            (flipped(20), "checksum of chunk 0", 0),
            (flipped(24), "checksum of chunk 0", 0),
            (flipped(size // 2), "damaged at byte", 0),
            (flipped(size - 1), "damaged at byte", 1),
            (good + b"x", "goes on behind its end", 1),
            (good + good, "goes on behind its end", 1),
            (b"SQLite format 3\0" + bytes(100), "begins otherwise", 0),
            (b'{"m:default":{"block_size":4,"events":[]}}', "begins otherwise", 0),
            (bytes(1 << 20), "begins otherwise", 0),
        ]
        for content, reason, ranks in rows:
            with self.subTest(reason=reason, size=len(content)):
                self.put(content)
                indexer = self.ready(self.later())
                self.assertEqual(self.outcomes(indexer), {"failed": 1})
                self.assertEqual(self.waiting(indexer), ranks)
                self.assertIn(reason, indexer.log())
                self.assertIn(f"snapshot {self.path} is refused", indexer.log())
                self.follow(indexer, engine)  # serves all the same
                self.assertEqual(indexer.client.post(
                    "/query", {"model_name": "m", "token_ids": A}).status, 200)
                indexer.close()

    def test_every_single_flipped_byte_is_noticed(self):
        self.filled(self.engine())
        good = self.snapshot()
        for at in range(0, len(good), max(1, len(good) // 12)):
            if 12 <= at < 16:
                continue  # not used
            damaged = bytearray(good)
            damaged[at] ^= 0x40
            self.put(bytes(damaged))
            indexer = self.ready(self.later())
            self.assertEqual(self.outcomes(indexer), {"failed": 1}, at)
            indexer.close()

    def test_a_foreign_file_is_not_overwritten(self):
        self.put(b"precious")
        indexer = self.indexer()
        settle(lambda: self.writes(indexer, "failed"), lambda count: count >= 2)
        self.assertIn("is no snapshot and is left alone", indexer.log())
        self.assertEqual(indexer.stop(), 0)
        self.assertEqual(self.snapshot(), b"precious")

    def test_a_damaged_snapshot_is_replaced(self):
        self.filled(self.engine())
        self.put(self.snapshot()[:50])
        indexer = self.indexer()
        self.written(indexer)
        indexer.close()
        self.assertEqual(self.outcomes(self.ready(self.later())), {"empty": 1})

    def test_an_old_file_is_refused(self):
        self.filled(self.engine())
        late = self.ready(self.later("--snapshot-max-age-ms", 1))
        self.assertEqual(self.outcomes(late), {"failed": 1})
        self.assertEqual(self.waiting(late), 0)
        self.assertIn("snapshot.max_age_ms allows", late.log())
        self.assertEqual(late.stop(signal.SIGKILL), -signal.SIGKILL)
        self.assertEqual(self.outcomes(self.ready(self.later("--snapshot-max-age-ms", 0))),
                         {"recovered": 1})

    def test_a_folder_in_its_place(self):
        os.mkdir(self.path)
        indexer = self.ready(self.indexer())
        self.assertEqual(self.outcomes(indexer), {"failed": 1})
        self.assertIn("is no regular file", indexer.log())
        settle(lambda: self.writes(indexer, "failed"), lambda count: count >= 2)
        self.assertEqual(indexer.client.get("/health").status, 200)
        self.assertEqual(indexer.stop(), 0)

    def test_a_pipe_in_its_place(self):
        os.mkfifo(self.path)
        indexer = self.ready(self.later())
        self.assertEqual(self.outcomes(indexer), {"failed": 1})

    def test_a_folder_that_is_not_there(self):
        self.path = os.path.join(self.folder, "none", "snapshot")
        indexer = self.ready(self.indexer())
        self.assertEqual(self.outcomes(indexer), {"absent": 1})
        settle(lambda: self.writes(indexer, "failed"), lambda count: count >= 2)
        self.assertIn("cannot open", indexer.log())
        self.assertEqual(indexer.log().count("no snapshot: "), 1)  # of many
        os.mkdir(os.path.dirname(self.path))
        self.written(indexer)  # tried again

    def test_a_folder_that_cannot_be_written(self):
        path = "/proc/self/snapshot"  # not even by root
        indexer = Indexer("--snapshot-path", path, "--snapshot-interval-ms", 20)
        self.addCleanup(indexer.close)
        settle(lambda: self.writes(indexer, "failed"), lambda count: count >= 2)
        self.assertEqual(indexer.client.get("/health").status, 200)
        self.assertEqual(indexer.stop(), 0)

    def test_a_full_disk(self):
        os.symlink("/dev/full", self.path + ".tmp")
        indexer = self.indexer()
        settle(lambda: self.writes(indexer, "failed"), lambda count: count >= 2)
        self.assertTrue(os.path.islink(self.path + ".tmp"))  # not followed
        self.assertFalse(os.path.exists(self.path))

    def test_what_a_killed_writer_left_aside_is_of_no_account(self):
        engine = self.engine()
        dumped = self.filled(engine)
        with open(self.path + ".tmp", "wb") as file:
            file.write(HEAD)
        second = self.ready(self.indexer())
        self.follow(second, engine)
        self.assertEqual(second.dumped(), dumped)
        self.written(second)
        self.assertEqual(second.stop(), 0)
        self.assertFalse(os.path.exists(self.path + ".tmp"))

    def test_of_two_processes_one_writes(self):
        engine = self.engine(replay=True)
        first = self.indexer()
        self.written(first)
        second = self.ready(self.indexer())
        self.follow(second, engine)
        settle(lambda: self.writes(second, "locked"), lambda count: count >= 2)
        self.assertEqual(self.writes(second, "written"), 0)
        self.assertIn("another process writes", second.log())
        self.assertEqual(first.stop(), 0)
        self.written(second)  # takes its place

    def test_a_snapshot_without_an_interval_is_a_usage_error(self):
        indexer = lambda: Indexer("--snapshot-path", self.path, "--snapshot-interval-ms", 0)
        self.assertRaisesRegex(AssertionError, "snapshot-interval-ms", indexer)

    # --- the gateway ---

    def gateway(self, engine, *words, interval=20):
        worker = (f"id=1,url=http://127.0.0.1:9,model=m,block-size=4,events={engine.endpoint}" +
                  (f",replay={engine.replay}" if engine.replay else ""))
        gateway = Gateway("--worker", worker, "--snapshot-path", self.path,
                          "--snapshot-interval-ms", interval, *words)
        self.addCleanup(gateway.close)
        return gateway

    def test_gateway(self):
        engine = self.engine(replay=True)
        first = self.gateway(engine)
        engine.wait_subscriber()
        engine.send(stored([11, 12], None, A + B))
        settle(lambda: first.rank()["state"], "exact")
        settle(lambda: first.rank()["watermark"], 0)
        self.written(first)
        self.assertEqual(first.stop(signal.SIGKILL), -signal.SIGKILL)
        engine.close()
        second = self.gateway(engine, "--gateway-serve-dump", interval=3_600_000)
        settle(lambda: second.rank()["reason"], "recovered")
        self.assertEqual(second.rank()["blocks"]["device"], 2)
        self.assertEqual(second.rank()["state"], "degraded")
        self.assertEqual(self.outcomes(second), {"recovered": 1})
        # ... and a third one begins with what the second knows.
        os.unlink(self.path)
        url = f"http://{second.client.host}:{second.client.port}"
        third = self.gateway(engine, "--peers", url, interval=3_600_000)
        settle(lambda: third.rank()["reason"], "recovered")
        self.assertEqual(third.rank()["blocks"]["device"], 2)
        self.assertEqual(third.client.get("/dump").status, 404)  # only where it is wanted

    def test_the_gateway_is_not_ready_before_a_peer_answered(self):
        engine = self.engine()
        gateway = self.gateway(engine, "--peers", "http://127.0.0.1:9")
        answer = gateway.client.get("/ready")
        self.assertEqual(answer.status, 503)
        self.assertTrue(any("recovering from" in reason for reason in answer.json["reasons"]),
                        answer.json)
        engine.wait_subscriber()  # its stream waits for the first round only
        engine.send(stored([11], None, A))
        settle(lambda: gateway.rank()["blocks"]["device"], 1)
        self.assertGreaterEqual(gateway.metrics().total("kvr_recovery_dumps_total", source="peer",
                                                        outcome="failed"), 1)

    def test_ranks_of_one_stream(self):
        engine = self.engine(replay=True)
        config = os.path.join(self.folder, "config.yaml")
        with open(config, "w", encoding="utf-8") as file:
            json.dump({"workers": [{"id": 1, "url": "http://127.0.0.1:9", "model": "m",
                                    "block_size": 4, "dp_size": 2, "events": [engine.endpoint],
                                    "replay": [engine.replay]}]}, file)
        words = ["--config", config, "--snapshot-path", self.path, "--snapshot-interval-ms"]
        ranks = lambda gateway: gateway.client.get("/workers").json["workers"][0]["ranks"]
        device = lambda gateway: [rank["blocks"]["device"] for rank in ranks(gateway)]
        first = Gateway(*words, 20)
        self.addCleanup(first.close)
        engine.wait_subscriber()
        engine.send(stored([11, 12], None, A + B), rank=0)
        engine.send(stored([21], None, C), rank=1)
        settle(lambda: device(first), [2, 1])
        settle(lambda: [rank["state"] for rank in ranks(first)], ["exact", "exact"])
        self.written(first)
        self.assertEqual(first.stop(signal.SIGKILL), -signal.SIGKILL)
        engine.send(removed([21]), rank=1)
        engine.forget_requests()
        second = Gateway(*words, 3_600_000)
        self.addCleanup(second.close)
        settle(lambda: [rank["reason"] for rank in ranks(second)], ["recovered", "recovered"])
        settle(lambda: device(second), [2, 0])
        starts = [int.from_bytes(frames[-1], "big") for frames in engine.requests]
        self.assertNotIn(0, starts)
        engine.close()
        # A new engine: what either rank had is forgotten.
        successor = self.engine(replay=True, endpoint=engine.endpoint, replay_endpoint=engine.replay)
        successor.send(stored([31], None, D), rank=1)
        settle(lambda: device(second), [0, 1])


if __name__ == "__main__":
    main()

"""Recording event streams and what can be done with the file: `kvroute capture`, `kvroute decode`,
`kvroute mock --replay-capture`."""

import json
import os
import signal
import struct
import subprocess
import tempfile
import unittest

from kvr_testlib import (A, B, C, CLEARED, KVROUTE, FakeEngine, Indexer, Mock, Process, batch, main,
                         pack, removed, run_to_end, settle, stored)

SECRET = "secret-salt-of-a-tenant"


class Capture(Process):
    """A recording under way; every endpoint is connected."""

    def __init__(self, path, *endpoints, words=()):
        named = [word for endpoint in endpoints for word in ("--endpoint", endpoint)]
        super().__init__(["capture", *named, "--out", path, *words], listeners=0)
        line = self.next_line()
        assert line and line.startswith("capturing "), (line, self.log())

    def connected(self, endpoints=1):
        for _ in range(endpoints):
            line = self.next_line()
            assert line and line.startswith("connected "), (line, self.log())
        return self


def decode(path, *words):
    done = subprocess.run([KVROUTE, "decode", "--file", path, *words], capture_output=True, text=True,
                          timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


class CaptureTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "stream.kvrcap")

    def start(self, made):
        self.addCleanup(made.close)
        return made

    def capture(self, *endpoints, words=()):
        return self.start(Capture(self.path, *endpoints, words=words)).connected(len(endpoints))

    def fake(self, **more):
        return self.start(FakeEngine(**more))

    def grows(self, beyond):
        return settle(lambda: os.path.getsize(self.path), lambda size: size > beyond)

    def replayed_indexer(self, *words, sources=1, replay=True):
        """An indexer that follows a replay of the capture as workers 1, 2, ..."""
        listeners = sources * (2 if replay else 1)
        player = self.start(Process(["mock", "--replay-capture", self.path, *words], listeners))
        indexer = self.start(Indexer())
        for i in range(sources):
            events = "tcp://" + player.addresses[f"capture-{i}-events"]
            ring = "tcp://" + player.addresses[f"capture-{i}-replay"] if replay else None
            self.assertEqual(indexer.register(i + 1, events, replay=ring).status, 201)
        return player, indexer


class RecordAndReplay(CaptureTest):
    def test_an_indexer_learns_the_same_from_the_recording(self):
        mock = self.start(Mock("--speedup", "1000", "--num-blocks", "64", "--host-blocks", "32"))
        live = self.start(Indexer())
        mock.register(live, 1)
        capture = self.capture(mock.ranks[0]["events"])
        # Connected is not yet subscribed: announce a clear until one is in the file.
        def announced():
            mock.client.post("/reset_prefix_cache", {})
            return os.path.getsize(self.path)
        settle(announced, lambda size: size > 200)
        for i in range(40):
            mock.complete(list(range(10 * i, 10 * i + 9 * 4 + 1)), 4)
        last = mock.messages() - 1
        settle(live.watermark, last)
        def recorded():
            return json.loads(decode(self.path)[1].splitlines()[-1])["sequence"]
        settle(recorded, last)
        self.assertEqual(capture.stop(), 0)
        self.assertGreater(len(live.dumped()), 20)

        _, again = self.replayed_indexer("--speedup", "50")
        settle(again.watermark, last)
        self.assertEqual(again.dumped(), live.dumped())
        code, out, _ = decode(self.path, "--explain")
        self.assertEqual(code, 0)
        self.assertIn("stored on device", out)

    def test_several_sources_keep_their_frames(self):
        first, second = self.fake(topic=b"kv@a"), self.fake(topic=b"kv@b")
        capture = self.start(Capture(self.path, first.endpoint, second.endpoint,
                                     words=("--topic", "kv@")))
        first.wait_subscriber()
        second.wait_subscriber()
        first.send(stored([11], None, A, cache_salt=SECRET), stored([12], None, B, medium="FS"))
        second.send(stored([21], None, C))
        first.send_frames(b"kv@a", b"no number", b"x")
        first.send_frames(b"kv@a")
        first.publish(4, batch([removed([11]), {"type": "New"}]))
        first.publish(0, batch([CLEARED]))
        first.publish(1, b"\xc1")
        def answers():
            return [json.loads(line) for line in decode(self.path)[1].splitlines()]
        lines = settle(answers, lambda lines: len(lines) == 7)
        self.assertEqual(capture.stop(), 0)
        self.assertIn("captured 7 messages", [capture.next_line() for _ in range(3)][-1])

        mine = [line for line in lines if line["source"] == 0]
        self.assertEqual([line.get("sequence") for line in mine], [0, None, None, 4, 0, 1])
        self.assertEqual([line["ok"] for line in mine], [True, False, False, True, True, False])
        self.assertEqual(mine[0]["events"][0]["salt"], "#1")
        self.assertEqual(mine[0]["dropped"], [{"index": 1, "reason": "unknown_medium",
                                               "detail": "medium `FS`"}])
        self.assertIn("frame_count: 1 frames", mine[2]["error"])
        self.assertIn("sequence: 3 frames", mine[1]["error"])
        self.assertIn("messages 1 to 3 are missing", mine[3]["note"])
        self.assertIn("restart", mine[4]["note"])
        times = [line["received"] for line in lines]
        self.assertEqual(times, sorted(times))

        code, out, err = decode(self.path, "--explain", "--block-size", "4")
        self.assertEqual((code, err), (0, ""))
        for words in ("kept: 1 block stored on device, at the root, cache salt #1",
                      "dropped, unknown_medium (medium `FS`): its medium names no tier we know",
                      "gap: messages 1 to 3 are missing", "restart: number 0 after 4",
                      "kept: 1 block removed from device", "all blocks of the rank cleared",
                      "dropped, unknown_event", "dropped whole: no event batch: not_msgpack at byte 0"):
            self.assertIn(words, out)
        self.assertNotIn(SECRET, out + json.dumps(lines))
        self.assertEqual(os.stat(self.path).st_mode & 0o777, 0o600)

        # The last life of the first source was a clear.
        player, indexer = self.replayed_indexer(sources=2)
        settle(lambda: indexer.watermark(1), 1)
        settle(lambda: indexer.score(C, worker=2), 4)
        self.assertEqual(indexer.dumped(worker=1), [])
        self.assertEqual(player.next_line(), "replayed 7 messages")
        self.assertEqual(player.stop(), 0)

    def test_router_events_of_an_event_plane(self):
        engine = self.fake()
        self.capture(engine.endpoint)
        engine.wait_subscriber()
        number = struct.pack(">Q", 3)
        event = {"worker_id": 7, "event": {"event_id": 1, "data": {"stored": {
            "parent_hash": None, "blocks": [{"block_hash": 11, "tokens_hash": 21}]}}, "dp_rank": 2}}
        envelope = pack({"publisher_id": 3, "sequence": 3, "published_at": 1, "topic": "kv-events",
                         "payload": pack([event])})
        engine.send_frames(b"kv-events", number, number,
                           b"\x01" + struct.pack(">I", len(envelope)) + envelope)
        self.grows(200)
        code, out, _ = decode(self.path)
        answer = json.loads(out)
        self.assertEqual((code, answer["sequence"], answer["dp_rank"]), (0, 3, 2))
        self.assertEqual(answer["events"][0]["block_hashes"], [11])
        self.assertEqual(answer["events"][0]["local_hashes"], [21])

    def test_a_polled_endpoint(self):
        """TensorRT-LLM's lists, which asking for them drains: what nobody else saw is in the file."""
        mock = self.start(Mock("--dialect", "trtllm-json", "--speedup", "1000", "--num-blocks", "64",
                               ranks=2))
        mock.complete(list(range(33)), 4, rank=0)  # before anybody asks
        endpoint = mock.ranks[0]["events"]
        self.assertTrue(endpoint.startswith("trtllm+http://"))
        capture = self.capture(endpoint)
        for i in range(1, 20):
            mock.complete(list(range(10 * i, 10 * i + 33)), 4, rank=i % 2)
        # The last block of the engine's pools has been written, when a decode shows it.
        def unknown(names):
            code, out, err = decode(self.path, "--block-size", "4", "--stream")
            self.assertEqual((code, err), (0, ""))
            return {name for name in names if str(name) not in out}
        want = {rank: {name for _, name in mock.blocks(rank)} for rank in (0, 1)}
        everything = want[0] | want[1]
        settle(lambda: unknown(everything), set())
        self.assertEqual(capture.stop(signal.SIGTERM), 0)
        code, out, err = decode(self.path, "--block-size", "4", "--explain")
        self.assertEqual((code, err), (0, ""))
        self.assertIn(f"source 0: {endpoint}", out)
        self.assertNotIn("gap:", out)
        self.assertNotIn("dropped whole", out)

        player = self.start(Process(["mock", "--replay-capture", self.path, "--speedup", "1000"], 2))
        indexer = self.start(Indexer())
        events = "tcp://" + player.addresses["capture-0-events"]
        ring = "tcp://" + player.addresses["capture-0-replay"]
        self.assertEqual(indexer.register(1, events, replay=ring).status, 201)
        settle(lambda: {block[4] for block in indexer.dumped(1)}, want[0])

    def test_a_polled_endpoint_that_is_none(self):
        code, err = run_to_end(["capture", "--endpoint", "trtllm+tcp://h:1", "--out", self.path])
        self.assertNotEqual(code, 0)
        self.assertIn("polled endpoint", err)

    def test_spacing_is_kept(self):
        engine = self.fake()
        self.capture(engine.endpoint)
        engine.wait_subscriber()
        engine.send(stored([11], None, A))
        first = self.grows(100)
        engine.send(stored([12], 11, B))
        self.grows(first)
        lines = [json.loads(line) for line in decode(self.path)[1].splitlines()]
        pause = lines[1]["received"] - lines[0]["received"]
        _, out, _ = decode(self.path, "--explain")
        self.assertIn(f"message 1, after {pause:.3f} s", out)


class Files(CaptureTest):
    def test_a_killed_recording_is_read_up_to_its_end(self):
        engine = self.fake()
        capture = self.capture(engine.endpoint)
        engine.wait_subscriber()
        for i in range(20):
            engine.send(stored([11 + i], 10 + i if i else None, A))
        settle(lambda: len(decode(self.path)[1].splitlines()), 20)
        self.assertEqual(capture.stop(signal.SIGKILL), -signal.SIGKILL)
        with open(self.path, "r+b") as file:
            file.truncate(os.path.getsize(self.path) - 3)
        code, out, err = decode(self.path)
        self.assertEqual((code, len(out.splitlines())), (0, 19))
        self.assertIn("as when recording was cut off", err)
        with open(self.path, "r+b") as file:
            file.seek(-1_000, os.SEEK_END)
            file.write(b"\xff")
        code, out, err = decode(self.path)
        self.assertEqual(code, 1)
        self.assertTrue(0 < len(out.splitlines()) < 19)
        self.assertIn("checksum", err)

    def test_limits_end_a_recording(self):
        engine = self.fake()
        capture = self.capture(engine.endpoint, words=("--frames", "3"))
        engine.wait_subscriber()
        for i in range(5):
            engine.send(stored([11 + i], None, A))
        self.assertEqual(capture.child.wait(timeout=20), 0)
        self.assertEqual(len(decode(self.path)[1].splitlines()), 3)
        os.remove(self.path)
        capture = self.capture(engine.endpoint, words=("--duration", "0.2"))
        self.assertEqual(capture.child.wait(timeout=20), 1, "nothing came")

    def test_usage(self):
        endpoint = "tcp://127.0.0.1:9"
        for words in (["--out", self.path], ["--endpoint", endpoint],
                      ["--endpoint", "tcp://*:1", "--out", self.path],
                      ["--endpoint", endpoint, "--out", self.path, "--duration", "0"]):
            self.assertEqual(run_to_end(["capture", *words])[0], 2, words)
        with open(self.path, "wb"):
            pass
        code, err = run_to_end(["capture", "--endpoint", endpoint, "--out", self.path])
        self.assertNotEqual(code, 0)
        self.assertIn("is there already", err)
        code, err = run_to_end(["mock", "--replay-capture", self.path])
        self.assertEqual(code, 1)
        self.assertIn("no capture", err)


if __name__ == "__main__":
    main()

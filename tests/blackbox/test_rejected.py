"""What becomes visible of events that no index takes: GET /workers/{id}/rejected and the log."""

import json
import time

from kvr_testlib import (A, B, Client, FakeEngine, IndexerTest, Process, batch, main, pack, removed,
                         settle, stored)

SECRET = "secret-salt-of-a-tenant"


def rejected(client, worker=1, rank=0):
    answer = client.get(f"/workers/{worker}/rejected")
    assert answer.status == 200, answer
    return next(each for each in answer.json["ranks"] if each["dp_rank"] == rank)


class Rejected(IndexerTest):
    def setUp(self):
        super().setUp()
        self.source = self.engine(1)

    def page(self, **more):
        return rejected(self.indexer.client, **more)

    def test_the_last_32_are_kept(self):
        before = time.time()
        for i in range(40):
            self.source.send(stored([11], None, A), stored(["no hash"], None, A))
        self.drain(self.source)
        page = self.page()
        self.assertEqual(page["total"], 40)
        self.assertEqual(page["by_reason"], {"decode_error": 40})
        self.assertEqual([event["sequence"] for event in page["last"]], list(range(8, 40)))
        for event in page["last"]:
            self.assertEqual((event["reason"], event["detail"], event["index"]),
                             ("decode_error", "wrong_type, field `block_hashes`", 1))
            self.assertTrue(0 < event["offset"] < event["payload_bytes"], event)
            self.assertTrue(before - 1 <= event["received"] <= time.time() + 1, event)
            self.assertNotIn("bytes", event)
        self.expect(A, 4)

    def test_a_large_batch_of_bad_events(self):
        self.source.send(*[{"type": "BlockMoved"} for _ in range(5_000)], stored([11], None, A))
        self.drain(self.source)
        page = self.page()
        self.assertEqual(page["by_reason"], {"unknown_event": 5_000})
        self.assertEqual([event["index"] for event in page["last"]], list(range(4_968, 5_000)))

    def test_reasons_come_with_their_values(self):
        rows = [(stored([1], None, A, medium="FS"), "unknown_medium", "medium `FS`"),
                (stored([1], None, A, locality="REMOTE"), "remote_locality", "locality `REMOTE`"),
                (stored([1], None, A, ownership="foo"), "unknown_ownership", "ownership `foo`"),
                (stored([1], None, A, kv_cache_spec_kind="mamba", group_idx=3), "non_main_group",
                 "kind `mamba`, group 3"),
                (removed([1], group_idx=9), "unlearned_group", "group 9"),
                (stored([1], None, A + B), "sparse_store", "1 hashes, 8 tokens, block_size 4"),
                ({**stored([1], None, A * 4), "block_size": 16}, "block_size_mismatch",
                 "block_size 16, registered 4"),
                (stored([1, 1], None, A + B), "self_referencing", None),
                (stored([1], None, A, medium="`\n\x1b[31m" + "x" * 500), "unknown_medium",
                 "medium `???[31m" + "x" * 25 + "...`")]
        self.source.send(*[event for event, _, _ in rows])
        self.drain(self.source)
        self.assertEqual([(event["reason"], event.get("detail")) for event in self.page()["last"]],
                         [row[1:] for row in rows])

    def test_whole_messages(self):
        good = batch([stored([11], None, A)])
        self.source.send_frames(good)  # as old ATOM builds send it
        self.source.send_frames(b"", b"short", good)
        self.source.publish(0, b"\xc1")
        self.source.send(stored([11], None, A), rank=7)
        self.drain(self.source)
        events = self.page()["last"]
        self.assertEqual([event["reason"] for event in events],
                         ["frame_count", "sequence", "undecodable", "foreign_rank"])
        self.assertEqual(events[0]["detail"], "1 frames instead of 3")
        self.assertEqual([event.get("sequence") for event in events], [None, None, 0, 1])
        self.assertEqual(events[2]["offset"], 0)
        self.assertEqual(events[3]["detail"], "dp_rank 7")
        self.assertNotIn("index", events[2])

    def test_salts_and_tokens_are_shown_nowhere(self):
        self.source.send(stored([11], None, A, cache_salt=SECRET, medium="FS"),
                         stored(["x"], None, A, cache_salt=SECRET),
                         stored([12], 11, B, extra_keys=[[SECRET]], block_size="x"))
        self.drain(self.source)
        self.assertEqual(self.page()["total"], 3)
        self.assertNotIn(SECRET, json.dumps(self.page()))
        self.assertNotIn(SECRET, self.indexer.log())

    def test_the_log_is_not_flooded(self):
        for _ in range(200):
            self.source.send(*[stored([1], None, A, medium="FS") for _ in range(50)],
                             stored(["x"], None, A))
        self.drain(self.source)
        lines = [line for line in self.indexer.log().splitlines() if " rejected " in line]
        self.assertEqual(len(lines), 2, lines)
        self.assertTrue(any("unknown_medium (medium `FS`)" in line for line in lines), lines)
        self.assertEqual(self.page()["by_reason"], {"unknown_medium": 10_000, "decode_error": 200})

    def test_other_paths(self):
        self.assertEqual(self.indexer.client.get("/workers/2/rejected").status, 404)
        self.assertEqual(self.indexer.client.get("/workers/x/rejected").status, 400)
        self.assertEqual(self.indexer.client.get("/workers/-1/rejected").status, 400)
        self.assertEqual(self.indexer.client.post("/workers/1/rejected", {}).status, 405)
        self.assertEqual(self.page(), {"dp_rank": 0, "total": 0, "by_reason": {}, "last": []})


class KeptBytes(IndexerTest):
    words = ("--keep-rejected-bytes", "24")

    def test_the_first_bytes_of_the_event(self):
        engine = self.engine(1)
        bad = stored(["x"], None, A)
        engine.send(stored([11], None, A), bad)
        self.drain(engine)
        event = rejected(self.indexer.client)["last"][0]
        self.assertEqual(bytes.fromhex(event["bytes"]), pack(bad)[:24])


class Gateway(IndexerTest):
    def test_the_gateway_shows_the_same(self):
        engine = FakeEngine()
        self.addCleanup(engine.close)
        worker = f"id=1,url=http://127.0.0.1:9,model=m,block-size=4,events={engine.endpoint}"
        gateway = Process(["gateway", "--port", "0", "--worker", worker])
        self.addCleanup(gateway.close)
        engine.wait_subscriber()
        engine.send(stored(["x"], None, A))
        client = Client(gateway.addresses["gateway"])
        page = settle(lambda: rejected(client), lambda page: page["total"] == 1)
        self.assertEqual(page["last"][0]["reason"], "decode_error")
        self.assertEqual(client.get("/workers/2/rejected").status, 404)


if __name__ == "__main__":
    main()

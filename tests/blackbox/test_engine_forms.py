"""What engines send beyond the rows of the wire's edge cases, through a socket into an index."""

import json

from kvr_testlib import A, B, C, IndexerTest, main, removed, settle, stored

DIGEST = "0123456789abcdef" + "0" * 48
DIGEST_HASH = 0x0123456789ABCDEF
OTHER, OTHER_HASH = "fedcba9876543210" + "0" * 48, 0xFEDCBA9876543210
EMBEDDING = bytes(range(200, 232))
HEX = "c9d58ba695280d69b243e1e0df813136ca9196b286fb1a021e0b2e028ef071cb"


def image(*hashes):
    return {"block_mm_infos": [{"mm_objects": [{"mm_hash": one} for one in hashes]}]}


def keyed(*keys, **more):
    return stored([11], None, A, extra_keys=[list(keys)], **more)


class Copies(IndexerTest):
    def test_remaining_copy_counts_go_before_our_own(self):
        engine = self.engine(1)
        left = lambda *counts: removed([11, 12][:len(counts)], remaining_copy_counts=list(counts))
        self.send(engine, stored([11, 12], None, A + B))
        self.send(engine, left(1, 0))
        self.expect(A + B, 4)
        self.assertEqual([block[4] for block in self.indexer.dumped()], [11])
        self.send(engine, left(0))
        self.expect(A, 0)
        self.send(engine, stored([11], None, A), stored([11], None, A), left(0))
        self.expect(A, 0)
        self.send(engine, stored([11], None, A), stored([11], None, A), removed([11]))
        self.expect(A, 4)  # nothing said: we count


class TypedKeys(IndexerTest):
    """Keys that are maps and say what they are."""

    def test_types(self):
        lora = {"type": "lora", "name": "ad"}
        salt = {"type": "cache_salt", "salt": "s"}
        mm = {"type": "mm", "hash": DIGEST}
        embeds = {"type": "prompt_embeds", "hash": EMBEDDING}
        old = lambda value: {"type": "legacy", "value": value}
        everything = {"lora_name": "ad", "cache_salt": "s", **image(DIGEST_HASH)}
        rows = [
            ("lora", keyed(lora, lora_name="ad"), {"lora_name": "ad"}),
            ("salt", keyed(salt), {"cache_salt": "s"}),
            ("a salt that looks like a digest", keyed({"type": "cache_salt", "salt": DIGEST}),
             {"cache_salt": DIGEST}),
            ("image", keyed(mm), image(DIGEST_HASH)),
            ("legacy image", keyed(old([DIGEST, 0])), image(DIGEST_HASH)),
            ("legacy salt", keyed(old("dynamo-cache-salt:s")), {"cache_salt": "s"}),
            ("all at once", keyed(lora, mm, salt, lora_name="ad"), everything),
            ("embeddings", keyed(embeds), None),
            ("unknown type", keyed({"type": "colour", "name": "red"}), None),
            ("no type", keyed({"name": "ad"}), None),
            ("no value", keyed({"type": "cache_salt"}), None),
        ]
        identities = [{}, {"lora_name": "ad"}, {"cache_salt": "s"}, {"cache_salt": DIGEST},
                      image(DIGEST_HASH), everything]
        for worker, (row, event, found_by) in enumerate(rows, start=1):
            with self.subTest(row):
                self.send(self.engine(worker), event, stored([21], None, B))
                for identity in identities:
                    self.expect(A, 4 if identity == found_by else 0, worker, **identity)
                self.expect(B, 4, worker)
                settle(lambda: self.indexer.listener(worker)["state"], "exact")


class IgnoredKeys(IndexerTest):
    words = ("--unmapped-keys", "ignore")

    def test_keys_without_a_name_change_nothing_but_bytes_do(self):
        rows = [
            ("X5", [stored([11, 12], None, A + B, extra_keys=[None, ["x"]])], 8),
            ("X14", [stored([11, 12], None, A + B, extra_keys=[[7], [0.5, True]])], 8),
            ("X15", [stored([11, 12], None, A + B, extra_keys=[[None], None])], 8),
            ("B23", [["BlockStored", [11, 12], None, A + B, 4, 42]], 8),
            ("X17", [stored([11, 12], None, A + B, extra_keys=[[EMBEDDING], None])], 0),
        ]
        for worker, (row, events, want) in enumerate(rows, start=1):
            with self.subTest(row):
                self.send(self.engine(worker), *events)
                self.expect(A + B, want, worker)


class Pads(IndexerTest):
    """Prompts name pictures and videos by pad tokens, 1,000,000 + hash mod 2^30."""

    def test_image_and_video_placeholders(self):
        one, two = (1_000_000 + value % 2**30 for value in (DIGEST_HASH, OTHER_HASH))
        rows = [
            ("a video", [1, 9, 9, 2], [DIGEST], [1, one, one, 2]),
            ("an image", [1, 8, 8, 2], [DIGEST], [1, one, one, 2]),
            ("image before video", [8, 1, 9, 9], [DIGEST, OTHER], [one, 1, two, two]),
            ("video before image", [9, 1, 8, 2], [OTHER, DIGEST], [two, 1, one, 2]),
        ]
        for worker, (row, tokens, names, prompt) in enumerate(rows, start=1):
            with self.subTest(row):
                engine = self.engine(worker, register=False)
                answer = self.indexer.register(worker, engine.endpoint, image_token_id=8,
                                               video_token_id=9)
                self.assertEqual(answer.status, 201, answer)
                self.assertNotIn("warnings", answer.json)
                engine.wait_subscriber()
                self.send(engine, stored([11], None, tokens, extra_keys=[names]))
                self.expect(prompt, 4, worker)
                self.expect(tokens, 0, worker)


class Sizes(IndexerTest):
    def test_sglang_pages_of_one_token(self):
        engine = self.engine(1, block_size=1)
        page = lambda name, parent, token: ["BlockStored", [name], parent, [token], 1, None, "GPU"]
        self.send(engine, page(11, None, 7), page(12, 11, 8), page(13, 12, 9), page(-14, 13, 8))
        self.expect([7, 8, 9, 8], 4)
        self.expect([8], 0)
        self.send(engine, ["BlockRemoved", [2**64 - 14], "GPU"])
        self.expect([7, 8, 9, 8], 3)
        self.send(engine, ["BlockRemoved", [12], "GPU"])
        self.expect([7, 8, 9], 1)
        self.send(engine, page(12, 11, 8))
        self.expect([7, 8, 9, 8], 3)
        settle(lambda: self.indexer.listener()["state"], "exact")

    def test_shared_storage_is_external(self):
        engine = self.engine(1)
        self.send(engine, stored([11], None, A), stored([12], 11, B, medium="SHARED_STORAGE"))
        self.assertEqual({block[2:5] for block in self.indexer.dumped()},
                         {("device", None, 11), ("external", 11, 12)})
        self.assertEqual(self.indexer.tiers(A + B), (4, 4, 8))
        self.send(engine, removed([12], medium="SHARED_STORAGE"))
        self.assertEqual(self.indexer.tiers(A + B), (4, 4, 4))


class TensorRt(IndexerTest):
    """Its own lists, which are JSON."""

    @staticmethod
    def event(data, window=4096):
        return {"event_id": 0, "data": data, "window_size": window}

    def stored(self, *blocks, parent=None, window=4096):
        """`blocks`: (name, tokens)"""
        token = lambda one: {"type": "unique_token", "token_id": one, "token_extra_id": 0}
        return self.event({"type": "stored", "parent_hash": parent, "blocks": [
            {"type": "stored_block", "block_hash": name, "tokens": [token(one) for one in tokens],
             "cache_level": 0, "priority": 35} for name, tokens in blocks]}, window)

    def removed(self, *names, window=4096):
        return self.event({"type": "removed", "block_hashes": list(names)}, window)

    def moved(self, name, old, new):
        return self.event({"type": "updated", "block_hash": name, "priority": None, "cache_level":
                           {"type": "event_diff", "new_value": new, "old_value": old}})

    def feed(self, engine, *events):
        engine.publish(engine.next_seq, json.dumps(list(events)).encode())
        self.drain(engine)

    def test_the_largest_window_counts(self):
        """Each window has blocks of its own, under the same names."""
        created = lambda window: self.event(
            {"type": "created", "num_blocks_per_cache_level": [64, 0]}, window)
        for worker, first in enumerate(([created(512), created(4096)], []), start=1):
            with self.subTest(created=bool(first)):
                engine = self.engine(worker)
                before = self.indexer.metrics()
                self.feed(engine, *first, self.stored((11, A), (12, B)),
                          self.stored((11, A), window=512), self.removed(11, 12, window=512))
                self.expect(A + B, 8, worker)
                dropped = self.indexer.metrics().refused_since(before)
                self.assertEqual(dropped.get("non_main_group"), 2)
                self.feed(engine, self.removed(12))
                self.expect(A + B, 4, worker)
                settle(lambda: self.indexer.listener(worker)["state"], "exact")

    def test_partial_blocks_are_left_out(self):
        engine = self.engine(1)
        self.feed(engine, self.stored((11, A), (12, B[:2])), self.stored((13, C[:3]), parent=11))
        self.assertEqual([block[4] for block in self.indexer.dumped()], [11])
        self.feed(engine, self.removed(12), self.removed(13))
        self.expect(A, 4)
        self.assertEqual(self.indexer.metrics().total("kvr_ingest_unmatched_removals_total"), 0)
        self.feed(engine, self.stored((12, B), parent=11))  # the same name, filled up
        self.expect(A + B, 8)
        settle(lambda: self.indexer.listener()["state"], "exact")

    def test_blocks_move_between_levels(self):
        engine = self.engine(1)
        self.feed(engine, self.stored((11, A), (12, B)))
        for old, new, want in ((0, 1, (4, 8, 8)), (1, 0, (8, 8, 8)), (0, 1, (4, 8, 8))):
            self.feed(engine, self.moved(12, old, new))
            self.assertEqual(self.indexer.tiers(A + B), want)
        self.feed(engine, self.event({"type": "updated", "block_hash": 12, "cache_level": None,
                                      "priority": {"type": "event_diff", "new_value": 1,
                                                   "old_value": 35}}))
        self.assertEqual(self.indexer.tiers(A + B), (4, 8, 8))
        self.feed(engine, self.removed(12))  # names no level: it is gone from all
        self.assertEqual(self.indexer.tiers(A + B), (4, 4, 4))

    def test_names_in_hex(self):
        engine, number = self.engine(1), int(HEX[:16], 16)
        self.feed(engine, self.stored((HEX, A), (number + 1, B)))
        self.assertEqual({block[4] for block in self.indexer.dumped()}, {number, number + 1})
        self.feed(engine, self.stored((7, C), parent=HEX))
        self.expect(A + C, 8)
        self.feed(engine, self.moved(HEX, 0, 1))
        self.assertEqual(self.indexer.tiers(A), (0, 4, 4))
        self.feed(engine, self.removed(HEX))
        self.assertIsNone(self.indexer.tiers(A))
        settle(lambda: self.indexer.listener()["state"], "exact")


if __name__ == "__main__":
    main()

"""The rows of the wire's edge cases, through a socket into an index: framing (T), batches and events
(B), extra keys (X), the checks of the normaliser (N), conversion (C).

A row is what one fresh engine sends, what is held afterwards, and what was filtered for which
reason. Rows about bindings and the publishing side have no sockets; nor do C23 to C25, because no
service hashes by runs of multimodal tokens or by position.
"""

import itertools
import json
import socket
import struct
import subprocess
import time

from kvr_testlib import (A, B, C, CLEARED, DEADLINE, KVROUTE, FakeEngine, Indexer, IndexerTest, batch, main, pack,
                         removed, settle, stored)

DIGEST = "0123456789abcdef" + "0" * 48
DIGEST_HASH = 0x0123456789ABCDEF
NAMED_IMAGE = 14770383865288705413  # of "img-1"
SALT = "dynamo-cache-salt:"
BIN = bytes.fromhex("c9d58ba695280d69b243e1e0df813136ca9196b286fb1a021e0b2e028ef071cb")


def of(tokens, want, **identity):
    """`want` device tokens of the prompt are held."""
    return tokens, identity, want


def image(*hashes):
    return {"block_mm_infos": [{"mm_objects": [{"mm_hash": one} for one in hashes]}]}


def images(*hashes):
    """One for each block."""
    return {"block_mm_infos": [one and {"mm_objects": [{"mm_hash": one}]} for one in hashes]}


def array(*fields):
    return ["BlockStored", [11], None, A, 4, *fields]


def tail(*fields):
    return array(None, "GPU", None, None, *fields)


def of_a(**more):
    return stored([11], None, A, **more)


def envelope(*events, end=(0,)):
    return pack([1.5, list(events), *end])


def raw_event(event):
    """A batch of one event that is bytes already."""
    return b"\x93" + pack(1.5) + b"\x91" + event + pack(0)


def decoded(*events):
    """What `kvroute decode` says of them, for what an index cannot show."""
    done = subprocess.run([KVROUTE, "decode"], input=envelope(*events).hex() + "\n",
                          capture_output=True, text=True, timeout=DEADLINE, check=True)
    return json.loads(done.stdout)["events"]


HELD, NOTHING = [of(A, 4)], [of(A, 0)]

# Batches to an engine of the ranks 3 and 5, registered in this order, and the rank that has them.
RANKS = [
    ("B2", envelope(of_a(), end=(None,)), 3),
    ("B3", envelope(of_a(), end=()), 3),
    ("B4", envelope(of_a(), end=(5, "x")), 5),
    ("B4 without a rank", envelope(of_a(), end=(None, 5)), 3),
    ("B5", pack({"ts": 1.5, "events": [of_a()]}), 3),
    ("B5 nil", pack({"ts": 1.5, "events": [of_a()], "data_parallel_rank": None}), 3),
    ("B5 rank", pack({"ts": 1.5, "events": [of_a()], "data_parallel_rank": 5}), 5),
    ("B6", pack({"ts": 1.5, "events": [of_a()], "dp_rank": 5}), 5),
    ("B7", pack([1700000000, [of_a()], 5]), 5),
]

BATCHES = [
    ("B1", pack([1.5, [], 0]), NOTHING, {}),
    ("B8", envelope(of_a(), end=(-1,)), NOTHING, {"foreign_rank": 1}),
    ("B8", envelope(of_a(), end=(2**40,)), NOTHING, {"foreign_rank": 1}),
    ("B10", bytes.fromhex("93cb3ff80000000000009197ab426c6f636b53746f726564920102c0980102030405060708"
                          "04c0a347505500"), [of(A + B, 8)], {}),
    ("B12", envelope(array(), ["BlockStored", [12], 11, ["x"], 4]), HELD, {"decode_error": 1}),
    ("B13", envelope([], of_a()), HELD, {"decode_error": 1}),
    ("B14", envelope(7, of_a()), HELD, {"decode_error": 1}),
    ("B15", envelope(["BlockMoved", [1]], of_a()), HELD, {"unknown_event": 1}),
    ("B16", envelope({"block_hashes": [1]}, of_a()), HELD, {"decode_error": 1}),
    ("B17", envelope({"block_hashes": [11], "token_ids": A, "block_size": 4, "type": "BlockStored"}),
     HELD, {}),
    ("B18", envelope(of_a(new={"a": {"b": [1, {}]}})), HELD, {}),
    ("B19", envelope({"type": "BlockStored", "block_hashes": [11], "token_ids": A}), NOTHING,
     {"decode_error": 1}),
    ("B20", envelope({"type": "BlockStored", "block_hashes": [11], "token_ids": A, "block_size": 4}),
     HELD, {}),
    ("B21", envelope(["BlockStored", [11], None, A]), NOTHING, {"decode_error": 1}),
    ("B22", envelope(array()), HELD, {}),
    ("B24", envelope(array(None, "GPU", "adapter")), [of(A, 4, lora_name="adapter"), of(A, 0)], {}),
    ("B25", envelope(array(None, "GPU", {"cache_salt": "a", "session_id": "s"})),
     [of(A, 4, cache_salt="a"), of(A, 0)], {}),
    ("B26", envelope(array(None, "GPU", None, [[SALT + "a"]])), [of(A, 4, cache_salt="a")], {}),
    ("B27", envelope(tail(0, "full_attention", None, "LOCAL")), HELD, {}),
    ("B28", envelope(tail(None, None, None, "REMOTE")), NOTHING, {"remote_locality": 1}),
    ("B29", envelope(tail(0, "full_attention", None, "LOCAL", "kvcr")), NOTHING,
     {"unsupported_ownership": 1}),
    ("B30", envelope(tail(1)), NOTHING, {"unlearned_group": 1}),
    ("B31", envelope(tail("mamba")), NOTHING, {"non_main_group": 1}),
    ("B32", envelope(tail(3, "sliding_window", 4096)), NOTHING, {"non_main_group": 1}),
    ("B33", envelope(tail([None], 0, "full_attention")), HELD, {}),
    ("B34", envelope(tail(None, "full_attention", None)), HELD, {}),
    ("B35", envelope(tail(0, "full_attention", None, "LOCAL", None, {}, 7)), HELD, {}),
    ("B36", envelope(tail("full_attention", 0, None, "REMOTE")), NOTHING, {"unknown_kind": 1}),
    ("B37", envelope(array(), ["BlockRemoved", [11]]), NOTHING, {}),
    ("B38", envelope(array(), ["BlockRemoved", [11], "CPU", None, None, None, "REMOTE"]), HELD,
     {"remote_locality": 1}),
    ("B39 array", envelope(array(), ["AllBlocksCleared"]), NOTHING, {}),
    ("B39 extras", envelope(array(), ["AllBlocksCleared", None, 1]), NOTHING, {}),
    ("B39 map", envelope(array(), CLEARED), NOTHING, {}),
    ("B40", envelope(["Ignored", 1, 2], array()), HELD, {"ignored_event": 1}),
    ("B41 map", envelope(of_a(medium="")), HELD, {}),
    ("B41 array", envelope(array(None, "")), HELD, {}),
    ("B42", envelope(stored([-1], None, A), removed([2**64 - 1])), NOTHING, {}),
    ("B43 float", envelope(stored([1.0], None, A)), NOTHING, {"decode_error": 1}),
    ("B43 text", envelope(stored(["11"], None, A)), NOTHING, {"decode_error": 1}),
    ("B44", envelope(stored([BIN], None, A), stored([12], int.from_bytes(BIN[-8:], "big"), B)),
     [of(A + B, 8)], {}),
    ("B45", envelope(of_a(), stored([b"\1\2\3"], 11, B), removed([0x010203])), [of(A + B, 4)], {}),
    ("B46", envelope(stored([0x010203], None, A), stored([12], b"\1\2\3", B)), [of(A + B, 8)], {}),
    ("B47 negative", envelope(stored([11], None, [1, 2, 3, -1])), NOTHING, {"decode_error": 1}),
    ("B47 2^32", envelope(stored([11], None, [1, 2, 3, 2**32])), NOTHING, {"decode_error": 1}),
    ("B48", envelope(stored([11], None, [[1, 2], [2, 3], [3, 4], [4, 5]])),
     [of(A + [5], 4, is_eagle=True), of(A, 0)], {}),
    ("B49", envelope(stored([11], None, [])), NOTHING, {}),
    ("B50", envelope(stored([11], None, [1, [2, 3]])), NOTHING, {"decode_error": 1}),
    ("B51", envelope(stored([11], None, [[1, 2, 3]])), NOTHING, {"decode_error": 1}),
    ("B53", raw_event(b"\x95" + pack("BlockStored") + b"\xdd\xff\xff\xff\xff" + pack(1)), NOTHING,
     {"truncated": 1}),
    ("B54", b"\x93" + pack(1.5) + b"\x92" + pack(of_a()) + b"\x83" + pack("type") +
     pack("BlockRemoved") + pack("block_hashes") + pack([11]) + pack("deep") + b"\x91" * 10_000 +
     pack(1) + pack(0), HELD, {"decode_error": 1}),
    ("B55", raw_event(b"\x83" + pack("type") + pack("BlockRemoved") + pack("block_hashes") +
                      pack([11]) + pack("medium") + b"\xa2\xff\xfe"), NOTHING, {"decode_error": 1}),
    ("B56", envelope(of_a(extra_keys=[[DIGEST]], block_mm_infos=[{"mm_objects": [
        {"mm_hash": 7, "offsets": []}]}])), [of(A, 4, **image(7)), of(A, 0, **image(DIGEST_HASH))], {}),
    ("B57", envelope(of_a(cache_salt="a", extra_keys=[[SALT + "b"]])),
     [of(A, 4, cache_salt="a"), of(A, 0, cache_salt="b")], {}),
    ("B58", envelope(of_a(cache_salt="", extra_keys=[[SALT + "b"]])),
     [of(A, 4), of(A, 0, cache_salt="b")], {}),
]

EXTRA_KEYS = [
    ("X1", [of_a(extra_keys=[[SALT + "t"]])], [of(A, 4, cache_salt="t"), of(A, 0)], {}),
    ("X2", [of_a(extra_keys=[["adapter", SALT + "t"]], lora_name="adapter")],
     [of(A, 4, lora_name="adapter", cache_salt="t"), of(A, 0, lora_name="adapter")], {}),
    ("X3", [of_a(extra_keys=[[SALT + "x"]], lora_name=SALT + "x")], [of(A, 4, lora_name=SALT + "x")],
     {}),
    ("X4", [of_a(extra_keys=[[SALT]])], HELD, {}),
    ("X5", [stored([11, 12], None, A + B, extra_keys=[None, [SALT + "t"]])],
     [of(A + B, 4), of(A + B, 0, cache_salt="t")], {}),
    ("X6", [stored([11, 12], None, A + B, extra_keys=[None, [DIGEST]])],
     [of(A + B, 8, **images(None, DIGEST_HASH)), of(A + B, 4), of(A + B, 0, **image(DIGEST_HASH)),
      of(A, 0, cache_salt=DIGEST)], {}),
    ("X7", [of_a(extra_keys=[[DIGEST]])], [of(A, 4, **image(DIGEST_HASH)), of(A, 0),
                                          of(A, 0, cache_salt=DIGEST)], {}),
    ("X8", [of_a(extra_keys=[[SALT + DIGEST]])], [of(A, 4, cache_salt=DIGEST), of(A, 0)], {}),
    ("X9", [of_a(extra_keys=[[[DIGEST, 5]]])], [of(A, 4, **image(DIGEST_HASH)), of(A, 0)], {}),
    *((f"X10 {text}", [of_a(extra_keys=[[text]])], [of(A, 4, cache_salt=text), of(A, 0)], {})
      for text in ("a" * 63, "plain")),  # what engines write for a client's cache_salt
    ("X10 later", [stored([11, 12], None, A + B, extra_keys=[None, ["img-1"]])],
     [of(A + B, 4)], {}),  # set apart instead: a key that has no name
    ("X11", [of_a(extra_keys=[[["img-1", 0]]])], [of(A, 4, **image(NAMED_IMAGE)), of(A, 0)], {}),
    ("X12", [of_a(extra_keys=[None])], HELD, {}),
    ("X12 empty", [of_a(extra_keys=[])], HELD, {}),
    ("X13", [of_a(extra_keys=[[[DIGEST, 0], ["img-1", 2]]])],
     [of(A, 4, **image(NAMED_IMAGE, DIGEST_HASH)), of(A, 0, **image(DIGEST_HASH))], {}),
    *((f"X14 {key}", [of_a(extra_keys=[[key]]), stored([21], None, B)], [of(A, 0), of(B, 4)], {})
      for key in (7, 0.5, True)),
    ("X15", [of_a(extra_keys=[[None]]), stored([21], None, B)], [of(A, 0), of(B, 4)], {}),
    ("X16", [of_a(extra_keys=[[(SALT + "t").encode()]])], [of(A, 4, cache_salt="t")], {}),
    ("X17", [of_a(extra_keys=[[BIN]]), stored([12], 11, C), stored([21], None, B)],
     [of(A, 0), of(A + C, 0), of(B, 4)], {}),
    ("X18", [stored([11, 12], None, A + B, extra_keys=[None])], [of(A + B, 8)], {}),
    ("X19", [of_a(extra_keys=[None, ["x"], ["y"]])], HELD, {}),
]

CPU, DISK = {"medium": "CPU"}, {"medium": "STORAGE"}


def group(number, kind=None):
    return {"group_idx": number, **({"kv_cache_spec_kind": kind} if kind else {})}


FULL = "full_attention"
TWO_SALTS = [of_a(cache_salt="a"), of_a(cache_salt="b")]

NORMALISER = [
    *((f"N1 {medium}", [of_a(medium=medium, cache_salt="a", **group(5, FULL)), of_a(**group(5)),
                        of_a(), stored([12], 11, B)], [of(A + B, 8), of(A + B, 0, cache_salt="a")],
       {"unknown_medium": 1, "unlearned_group": 1}) for medium in ("FS", "OBJ", "cpu", "Gpu")),
    *((f"N5 {medium}", [of_a(medium=medium, locality="REMOTE")], NOTHING, {"remote_locality": 1})
      for medium in ("GPU", "CPU", "STORAGE", "EXTERNAL")),
    ("N6", [of_a(locality="local")], NOTHING, {"unknown_locality": 1}),
    ("N7", [of_a(locality=None), stored([12], 11, B, locality="LOCAL")], [of(A + B, 8)], {}),
    ("N8", [of_a(ownership="kvcr")], NOTHING, {"unsupported_ownership": 1}),
    ("N9", [of_a(ownership="foo"), stored([21], None, B)], [of(A, 0), of(B, 4)],
     {"unknown_ownership": 1}),
    ("N10", [of_a(ownership="foo", medium="FS")], NOTHING, {"unknown_ownership": 1}),
    ("N11", [of_a(locality="REMOTE", medium="FS")], NOTHING, {"remote_locality": 1}),
    ("N12", [of_a(**group(0, "mamba"))], NOTHING, {"non_main_group": 1}),
    ("N13", [of_a(**group(5, FULL))], HELD, {}),
    ("N14", [of_a(**group(5))], NOTHING, {"unlearned_group": 1}),
    ("N15", [of_a(**group(5, FULL)), stored([12], 11, B, **group(5))], [of(A + B, 8)], {}),
    ("N16", [of_a(), stored([11], None, A, **group(1, "mamba")), removed([11], **group(1))], HELD,
     {"non_main_group": 2}),
    ("N17", [of_a(**group(0, "mamba")), of_a(**group(0))], NOTHING, {"non_main_group": 2}),
    ("N18", [of_a(**group(0))], HELD, {}),
    ("N19", [of_a(**group(4, "new_kind")), of_a(**group(4))], NOTHING, {"unknown_kind": 2}),
    ("N21", [of_a(), removed([11], **group(2, FULL)), removed([11], **group(2))], NOTHING,
     {"unlearned_group": 1}),
    ("N24", [of_a(cache_salt="a"), stored([12], 11, B)], [of(A + B, 8, cache_salt="a"), of(A + B, 0)],
     {}),
    ("N27", [stored([12], 11, B)],
     [of(tokens, 0, cache_salt=salt) for tokens in (B, A + B) for salt in ("", "a")], {}),
    ("N27 and its parent", [stored([12], 11, B), of_a()],
     [of(A + B, 8), of(A + B, 0, cache_salt="a")], {}),
    ("N27 and a salted one", [stored([12], 11, B), of_a(cache_salt="a")],
     [of(A + B, 4, cache_salt="a"), of(A + B, 0)], {}),
    ("N28", [*TWO_SALTS, stored([12], 11, B)],
     [of(A + B, 0), of(B, 0)], {"ambiguous_cache_namespace": 1}),
    ("N29", [*TWO_SALTS, stored([12], 11, B, cache_salt="b")],
     [of(A + B, 0), of(A + B, 8, cache_salt="b"), of(A + B, 4, cache_salt="a")], {}),
    ("N30", [of_a(cache_salt="a"), of_a(), stored([12], 11, B)], [of(A + B, 4)],
     {"ambiguous_cache_namespace": 1}),
    ("N31", [of_a(cache_salt="a"), removed([11]), of_a(), stored([12], 11, B)], [of(A + B, 8)], {}),
    ("N32", [*TWO_SALTS, removed([11]), removed([11]), stored([12], 11, B)], NOTHING,
     {"ambiguous_cache_namespace": 1}),
    ("N34", [of_a(cache_salt=""), stored([12], 11, B)], [of(A + B, 8)], {}),
    ("N35", [of_a(), ["Ignored"], stored([12], 11, B)], [of(A + B, 8)], {"ignored_event": 1}),
    ("N36", [stored([11], None, [], medium="CPU", block_size=0)], NOTHING, {}),
    ("N37", [of_a(cache_salt="a"), of_a(cache_salt="a", **CPU), removed([11], **CPU),
             stored([12], 11, B)], [of(A + B, 8, cache_salt="a"), of(A + B, 0)], {}),
]

# (device, host, disk) tokens, cumulative, of A + B; and what was filtered.
TIERS = [
    *((f"N2 {medium}", [of_a(medium=medium)], [({}, (0, 4, 4))], {})
      for medium in ("CPU", "CPU_PINNED", "CPU_TIER1")),
    *((f"N3 {medium}", [of_a(medium=medium)], [({}, (0, 0, 4))], {})
      for medium in ("STORAGE", "NVME", "DISK", "CPU_TIER2")),
    *((f"N22 {kind}", [of_a(**DISK, **group(7, kind)), stored([12], 11, B, **group(7))],
       [({}, (0, 0, 4))], {"unlearned_group": 1}) for kind in (None, FULL)),
    ("N23", [of_a(cache_salt="a", **DISK), stored([12], 11, B)],
     [({}, None), ({"cache_salt": "a"}, (0, 0, 4))], {}),
    ("N25", [of_a(cache_salt="a"), stored([12], 11, B, **CPU)], [({"cache_salt": "a"}, (4, 8, 8))], {}),
    ("N26", [of_a(cache_salt="a"), stored([12], 11, B, **DISK)], [({"cache_salt": "a"}, (4, 4, 4))],
     {}),
    ("C10", [of_a(**CPU), stored([12], 11, B, **DISK), CLEARED], [({}, None)], {}),
]

CONVERSION = [
    ("C1", [stored([11, 12], None, A + B)], [of(A + B, 8)], {}),
    ("C2", [stored([11], None, list(range(16)), block_size=16)], [of(list(range(16)), 0)],
     {"block_size_mismatch": 1}),
    ("C3", [stored([11, 12], None, A + B[:3])], [of(A + B, 4)], {}),
    ("C4", [stored([11, 12], None, [[i, i + 1] for i in range(1, 8)])],
     [of(list(range(1, 10)), 4, is_eagle=True)], {}),
    ("C5", [stored([11, 12], None, [[i, i + 1] for i in range(1, 9)])],
     [of(list(range(1, 10)), 8, is_eagle=True)], {}),
    ("C7", [stored([1, 1], None, A + B)], [of(A, 0)], {"self_referencing": 1}),
    ("C8", [stored([7], 7, A)], NOTHING, {"self_referencing": 1}),
    ("C9", [stored([11], None, A)], HELD, {}),
    ("C11", [of_a(lora_name="")], HELD, {}),
    ("C12", [of_a(lora_name="x"), stored([21], None, A, cache_salt="y")],
     [of(A, 4, lora_name="x"), of(A, 0, cache_salt="x"), of(A, 4, cache_salt="y")], {}),
    ("C13", [of_a(extra_keys=[[[DIGEST, 3]]])], [of(A, 4, **image(DIGEST_HASH))], {}),
    ("C14", [of_a(extra_keys=[[["img-1", 0], [DIGEST, 1]]])],
     [of(A, 4, **image(DIGEST_HASH, NAMED_IMAGE)), of(A, 4, **image(NAMED_IMAGE, DIGEST_HASH))], {}),
    ("C20", [stored([11], None, A[:3])], NOTHING, {"tokens_too_short": 1}),
]


def bigrams(tokens):
    return [list(pair) for pair in zip(tokens, tokens[1:])]


def objects(*hashes):
    return {"block_mm_infos": [{"mm_objects": [{"mm_hash": one, "offsets": []} for one in hashes]}]}


# Tokens, block size, what else the store says, and the hashes of its blocks.
VECTORS = [
    (list(range(1, 13)), 4, {}, [14643705804678351452, 16777012769546811212, 483935686894639516]),
    (list(range(8)), 4, {}, [9143094415614847814, 12124091508212882195]),
    (list(range(8)), 4, {"lora_name": "adapter-a"}, [6665157333201000639, 11721812545976571723]),
    (list(range(8)), 4, {"cache_salt": "tenant-a"}, [17009624042690211646, 10000672136415158886]),
    (list(range(8)), 4, {"lora_name": "adapter-a", "cache_salt": "tenant-a"},
     [8269515957840517240, 11937877779520612889]),
    (list(range(8)), 4, {"lora_name": "tenant-a", "cache_salt": "adapter-a"},
     [3458330314521087086, 12434688825433360059]),
    (bigrams(range(1, 10)), 4, {}, [1914873892905420881, 1929047464662796003]),
    (bigrams(range(1, 6)), 4, {}, [1914873892905420881]),
    (A, 4, objects(42), [14000361058806882387]),
    (A, 4, objects(42, 7), [6295130183325757331]),
    (A, 4, objects(7, 42), [6295130183325757331]),
    (A, 4, objects(42, 42), [8640070372475032416]),
    (A, 4, objects(), [14643705804678351452]),
    (A, 4, {"extra_keys": [[DIGEST]]}, [2142804768136187117]),
    (list(range(16)), 16, {}, [15310707395893867146]),
    (list(range(64)), 64, {}, [3480597578098033343]),
    (list(range(512)), 512, {}, [9967019188267418660]),
    (bigrams(range(17)), 16, {}, [11423441316381344367]),
    ([0xFFFFFFFF] * 4, 4, {}, [12410542959481710713]),
]


class HashVectors(IndexerTest):
    def hashes(self, worker, event, block_size=4, **registered):
        """What the index calls the blocks that an engine stored."""
        engine = self.engine(worker, register=False)
        answer = self.indexer.register(worker, engine.endpoint, block_size=block_size,
                                       model=f"m{block_size}", **registered)
        self.assertEqual(answer.status, 201, answer)
        engine.wait_subscriber()
        self.send(engine, event)
        return [block[5] for block in self.indexer.dumped(worker)]

    def test_c21_blocks(self):
        for worker, (tokens, size, more, want) in enumerate(VECTORS, start=1):
            with self.subTest(tokens=tokens[:9], size=size, **more):
                event = stored(range(11, 11 + len(want)), None, tokens, **{"block_size": size, **more})
                self.assertEqual(self.hashes(worker, event, size), want)

    def test_c21_pads(self):
        event = stored([11], None, [1, 9, 9, 2], extra_keys=[[DIGEST]])
        self.assertEqual(self.hashes(1, event, image_token_id=9), [11976489796984064783])

    def test_c21_sequences(self):
        chain = [14643705804678351452, 4945711292740353085, 12583592247330656132]
        self.send(self.engine(1), stored([11, 12, 13], None, A + B + C))
        for known in range(4):
            answer = self.indexer.client.post("/query_by_hash", {
                "block_hashes": chain[:known] + [7], "kind": "sequence", "model_name": "m"})
            self.assertEqual(answer.status, 200, answer)
            self.assertEqual(answer.json["scores"].get("1", {}).get("0", 0), 4 * known, answer.json)

    def test_c22_tokens_at_any_address(self):
        for shift in range(9):
            event = {"type": "BlockStored", "pad": "x" * shift, **stored([11, 12], None, A + B)}
            self.assertEqual(self.hashes(shift + 1, event),
                             [14643705804678351452, 16777012769546811212], shift)


class Rows(IndexerTest):
    def setUp(self):
        super().setUp()
        self.worker = 0

    def fresh(self):
        self.worker += 1
        return self.engine(self.worker)

    def finish(self, engine):
        engine.close()
        self.assertEqual(self.indexer.unregister(self.worker).status, 200)

    def check(self, rows):
        for row, sent, held, filtered in rows:
            with self.subTest(row):
                before = self.indexer.metrics()
                engine = self.fresh()
                engine.publish(0, sent if isinstance(sent, bytes) else envelope(*sent))
                self.drain(engine)
                for tokens, identity, want in held:
                    self.assertEqual(self.indexer.score(tokens, self.worker, **identity), want,
                                     (tokens, identity))
                self.assertEqual(self.indexer.metrics().refused_since(before), filtered)
                # The stream goes on whatever it was.
                self.send(engine, stored([91], None, C))
                self.assertEqual(self.indexer.score(C, self.worker), 4)
                self.finish(engine)

    def test_batches_and_events(self):
        self.check(BATCHES)

    def test_b2_to_b7_the_rank_of_a_batch(self):
        """The one that it names; without one, that which the engine is registered with."""
        for row, payload, rank in RANKS:
            with self.subTest(row):
                self.worker += 1
                before = self.indexer.metrics()
                engine = self.engine(self.worker, rank=3)
                answer = self.indexer.register(self.worker, engine.endpoint, rank=5)
                self.assertEqual(answer.status, 201, answer)
                engine.publish(0, payload)
                self.drain(engine)
                self.assertEqual(self.indexer.scores(A), {(self.worker, rank): 4})
                self.assertEqual(self.indexer.metrics().refused_since(before), {})
                self.finish(engine)

    def test_extra_keys(self):
        self.check(EXTRA_KEYS)

    def test_normaliser(self):
        self.check(NORMALISER)

    def test_conversion(self):
        self.check(CONVERSION)

    def test_c6_the_log_is_not_flooded(self):
        engine = self.fresh()
        for _ in range(20):
            self.send(engine, *[stored([7], 7, A)] * 50)
        self.assertEqual(self.indexer.filtered("self_referencing"), 1000)
        lines = [line for line in self.indexer.log().splitlines() if "self_referencing" in line]
        self.assertEqual(len(lines), 1, lines)

    def test_c15_to_c18_pads(self):
        """The placeholder 9 stands for images; prompts name them by pads."""
        pad = 1_000_000 + DIGEST_HASH % 2**30
        other = "a" * 64
        rows = [
            ("C15", [1, 9, 9, 2], [DIGEST], [1, pad, pad, 2]),
            ("C16", [1, 9, 9, 2], [], [1, 9, 9, 2]),
            ("C17", [9, 1, 9, 2], [DIGEST], [pad, 1, pad, 2]),
            ("C18", [1, 9, 9, 2], [DIGEST, other], [1, pad, pad, 2]),
        ]
        for row, tokens, names, prompt in rows:
            with self.subTest(row):
                self.worker += 1
                engine = self.engine(self.worker, register=False)
                answer = self.indexer.register(self.worker, engine.endpoint, image_token_id=9)
                self.assertEqual(answer.status, 201, answer)
                engine.wait_subscriber()
                self.send(engine, stored([11], None, tokens, extra_keys=[names]))
                self.expect(prompt, 4, self.worker)
                if names:
                    self.expect(tokens, 0, self.worker)
                self.finish(engine)

    def test_c19_a_block_size_of_zero(self):
        engine = self.fresh()
        self.assertEqual(self.indexer.register(99, engine.endpoint, block_size=0).status, 400)
        self.send(engine, stored([11], None, A, block_size=0), stored([21], None, B))
        self.assertEqual(self.indexer.filtered("block_size_mismatch"), 1)
        self.expect(A, 0, self.worker)
        self.expect(B, 4, self.worker)

    def test_large_messages_cost_at_most_themselves(self):
        engine = self.fresh()
        self.send(engine, stored([11], None, A))
        before = self.indexer.metrics()
        engine.publish(engine.next_seq, batch([stored([12], 11, B)]) + bytes(17 << 20))
        self.drain(engine)
        self.expect(A + B, 8, self.worker)
        engine.publish(engine.next_seq, batch([removed([12])]) + bytes(65 << 20))
        engine.send(stored([21], None, B))
        self.drain(engine)
        self.expect(B, 4, self.worker)
        after = self.indexer.metrics()
        name = "kvr_ingest_decode_failures_total"
        self.assertEqual(after.total(name) - before.total(name), 1)
        self.assertEqual(after.total("kvr_ingest_disconnects_total"),
                         before.total("kvr_ingest_disconnects_total"))

    def test_tiers(self):
        for row, events, held, filtered in TIERS:
            with self.subTest(row):
                before = self.indexer.metrics()
                engine = self.fresh()
                self.send(engine, *events)
                for identity, want in held:
                    self.assertEqual(self.indexer.tiers(A + B, self.worker, **identity), want, identity)
                self.assertEqual(self.indexer.metrics().refused_since(before), filtered)
                self.finish(engine)

    def test_b49_no_tokens_are_plain(self):
        def said(tokens):
            (event,) = decoded(stored([11], None, tokens))
            return event["eagle"], event["tokens"]

        self.assertEqual(said([]), (False, 0))
        self.assertEqual(said(A), (False, 4))
        self.assertEqual(said([[1, 2], [2, 3], [3, 4], [4, 5]]), (True, 5))

    def test_x13_objects_keep_their_order(self):
        """Hashes sort them; what else is told of an event does not."""
        names = {"img-1": NAMED_IMAGE, DIGEST: DIGEST_HASH, "b" * 64: 0xBBBBBBBBBBBBBBBB}
        for order in itertools.permutations(names):
            keys = [[name, i] for i, name in enumerate(order)]
            (event,) = decoded(of_a(extra_keys=[keys]))
            self.assertEqual(event["objects"],
                             [{"block": 0, "mm_hashes": [names[name] for name in order]}])

    def test_c13_c14_neither_offsets_nor_order_count(self):
        def local(*keys):
            engine = self.fresh()
            self.send(engine, of_a(extra_keys=[list(keys)]))
            ((*_, tokens_hash),) = self.indexer.dumped(self.worker)
            return tokens_hash

        self.assertEqual(local([DIGEST, 3]), local([DIGEST, 0]))
        self.assertEqual(local([DIGEST, 3], ["img-1", 0]), local(["img-1", 1], [DIGEST, 2]))
        self.assertNotEqual(local([DIGEST, 3]), local(["img-1", 3]))

    def test_n35_what_is_filtered_is_no_gap(self):
        engine = self.fresh()
        self.send(engine, of_a())
        self.send(engine, ["Ignored"])
        self.send(engine, stored([12], 11, B))
        self.expect(A + B, 8)
        self.assertEqual(self.indexer.metrics().total("kvr_ingest_gaps_total"), 0)
        self.assertEqual(self.indexer.listener()["state"], "exact")

    def test_n36_a_placeholder_waits_for_its_content(self):
        engine = self.fresh()
        self.send(engine, stored([11], None, [], medium="CPU", block_size=0))
        waiting = lambda: self.indexer.metrics().total("kvr_index_pending_blocks")
        self.assertEqual((waiting(), self.indexer.dumped()), (1, []))
        self.assertEqual(self.indexer.applied("stored", "parent_block_not_found"), 1)
        self.send(engine, of_a())
        self.assertEqual((waiting(), self.indexer.tiers(A)), (0, (4, 4, 4)))
        self.send(engine, removed([11]))
        self.assertEqual(self.indexer.tiers(A), (0, 4, 4))

    def test_n4_the_external_tier(self):
        engine = self.fresh()
        for i, medium in enumerate(("EXTERNAL", "NETWORK", "REMOTE", "SHARED")):
            self.send(engine, stored([11 + i], None, [i + 1] * 4, medium=medium))
            self.assertEqual(len(self.indexer.dumped(self.worker)), i + 1)
        self.assertEqual({block[2] for block in self.indexer.dumped()}, {"external"})

    def test_b9_n20_n33_ranks(self):
        """Groups and salts are of one rank; so is a clear."""
        engine = self.engine(1)
        self.assertEqual(self.indexer.register(1, engine.endpoint, rank=3).status, 201)
        engine.send(of_a(cache_salt="a", **group(5, FULL)), rank=0)
        engine.send(of_a(cache_salt="a", **group(5)), rank=3)
        engine.send(of_a(cache_salt="a"), rank=3)
        settle(lambda: (self.indexer.watermark(1, 0), self.indexer.watermark(1, 3)), (2, 2))
        self.assertEqual(self.indexer.scores(A, cache_salt="a"), {(1, 0): 4, (1, 3): 4})
        self.assertEqual(self.indexer.filtered("unlearned_group"), 1)  # one stream for both ranks
        engine.send(CLEARED, rank=0)
        engine.send(stored([12], 11, B), rank=3)
        settle(lambda: (self.indexer.watermark(1, 0), self.indexer.watermark(1, 3)), (4, 4))
        self.assertEqual(self.indexer.scores(A + B, cache_salt="a"), {(1, 3): 8})

    def test_b11_the_golden_removal(self):
        golden = bytes.fromhex("93cb3ff80000000000009183a474797065ac426c6f636b52656d6f766564ac626c6f63"
                               "6b5f68617368657391ffa66d656469756da343505503")
        engine = self.engine(1, rank=3)
        self.send(engine, stored([2**64 - 1], None, A), stored([2**64 - 1], None, A, **CPU), rank=3)
        self.assertEqual(len(self.indexer.dumped()), 2)
        engine.publish(1, golden)
        self.drain(engine)
        self.assertEqual([block[2] for block in self.indexer.dumped()], ["device"])

    def test_b23_an_adapter_by_number_is_not_the_base_model(self):
        engine = self.fresh()
        self.send(engine, array(42), ["BlockStored", [21], None, B, 4, 0])
        self.expect(A, 0)
        self.expect(B, 4)

    def test_b52_a_large_event(self):
        engine, count = self.engine(1), 100_000
        tokens = list(range(4 * count))
        engine.publish(0, [stored(range(1, count + 1), None, tokens)])
        settle(self.indexer.watermark, 0, seconds=60)
        self.expect(tokens[:4000], 4000)
        engine.publish(1, [stored(range(1 << 21), None, []), stored([1 << 22], None, [9, 9, 9, 9])])
        settle(self.indexer.watermark, 1, seconds=60)
        self.assertEqual(self.indexer.filtered("decode_error"), 1)
        self.expect([9, 9, 9, 9], 4)


class Framing(IndexerTest):
    def test_rows_t1_to_t11(self):
        """What is refused is counted and passed; the next message is fine."""
        engine, good = self.engine(1), lambda name, tokens: envelope(stored([name], None, tokens))
        seq = lambda number: struct.pack(">Q", number)
        refused = [
            ("T2", "frames_rejected", [seq(0), good(1, A)]),
            ("T3", "frames_rejected", [b"a topic", good(1, A)]),  # no number, no order
            ("T4", "frames_rejected", [b"", seq(0), good(1, A), b"more"]),
            ("T5 short", "frames_rejected", [b"", b"\0\0\0\0", good(1, A)]),
            ("T5 one less", "frames_rejected", [b"", b"\0" * 7, good(1, A)]),
            ("T5 long", "frames_rejected", [b"", b"\0" * 9, good(1, A)]),
        ]
        for i, (row, _, frames) in enumerate(refused, start=1):
            with self.subTest(row):
                engine.send_frames(*frames)
                total = lambda: self.indexer.metrics().total("kvr_ingest_frames_rejected_total")
                settle(total, i)
                self.assertIsNone(self.indexer.watermark())
        engine.send_frames(b"a topic", seq(0), good(11, A))   # T1
        settle(self.indexer.watermark, 0)
        engine.send_frames(b"", seq(1), good(12, B))          # T6 T7: 1, not 2^56
        settle(self.indexer.watermark, 1)
        failures = lambda: self.indexer.metrics().total("kvr_ingest_decode_failures_total")
        for i, (row, payload) in enumerate([("T8", b""), ("T9", b"\xc1"), ("T10", good(1, C)[:-9])]):
            with self.subTest(row):
                engine.send_frames(b"", seq(2 + i), payload)
                settle(failures, i + 1)
        engine.send_frames(b"", seq(5), good(13, C) + b"\xc0\xc1")  # T11
        settle(self.indexer.watermark, 5)
        self.assertEqual(self.indexer.metrics().total("kvr_ingest_trailing_bytes_total"), 2)
        for tokens in (A, B, C):
            self.expect(tokens, 4)

    def test_t12_a_publisher_that_binds_after_we_connect(self):
        with socket.socket() as held:  # the port is nobody else's, and nobody listens on it
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind(("127.0.0.1", 0))
            endpoint = f"tcp://127.0.0.1:{held.getsockname()[1]}"
            self.assertEqual(self.indexer.register(1, endpoint).status, 201)
            self.send(self.engine(2), stored([11], None, A))  # connected to later
            listener = self.indexer.listener()
            self.assertEqual((listener["status"], listener["connected"]), ("connecting", False))
            engine = self.engine(1, register=False, endpoint=endpoint)
        engine.wait_subscriber()
        self.send(engine, stored([21], None, B))
        self.expect(B, 4)
        listener = settle(self.indexer.listener, lambda found: found["status"] == "active")
        self.assertEqual(listener["state"], "exact")

    def test_t13_t15_a_source_that_ends_and_comes_back(self):
        """It is withdrawn; the listener stays, and what comes next is a new engine's."""
        engine = self.engine(1)
        self.send(engine, stored([11], None, A))
        self.send(engine, stored([12], 11, B))  # so that the new engine's first number is another one
        engine.close()
        settle(lambda: self.indexer.listener()["status"] == "active", False)
        self.assertNotEqual(self.indexer.listener()["state"], "exact")
        new = FakeEngine(endpoint=engine.endpoint)
        self.addCleanup(new.close)
        new.worker, new.rank = 1, 0
        new.wait_subscriber()
        self.send(new, stored([21], None, C))
        self.expect(A, 0)
        self.expect(C, 4)
        settle(lambda: self.indexer.listener()["status"], "active")

    def test_t14_t16_an_idle_stream(self):
        """Nothing came: it is healthy, ends at once when asked to, and nobody calls it failed."""
        indexer = Indexer()
        self.addCleanup(indexer.close)
        engine = self.engine(1, register=False)
        for _ in range(2):
            self.assertEqual(indexer.register(1, engine.endpoint).status, 201)
            settle(lambda: indexer.listener()["status"], "active")
            began = time.monotonic()
            self.assertEqual(indexer.unregister(1).status, 200)
            self.assertLess(time.monotonic() - began, DEADLINE)
            self.assertEqual(indexer.workers(), {})
        self.assertEqual(indexer.register(1, engine.endpoint).status, 201)
        settle(lambda: indexer.listener()["status"], "active")
        self.assertEqual(indexer.metrics().total("kvr_ingest_disconnects_total"), 0)
        self.assertEqual(indexer.stop(), 0)  # within its own deadline
        levels = {line.split()[1] for line in indexer.log().splitlines()}
        self.assertEqual(levels - {"info"}, set(), indexer.log())


class Replay(IndexerTest):
    """0 to 2 are applied, 3 to 5 are missed, 6 shows it: what becomes of the answer to that."""
    words = ("--ingest-replay-silence-ms", 300, "--ingest-replay-attempts", 2)

    ROWS = [  # layout; what is answered of 3 to 5; what is held in the end; the rank's state
        ("T17", "seq", [3, 4, 5], range(7), ("exact", "none")),
        ("T18", "topic", [3, 4, 5], range(7), ("exact", "none")),
        ("T20", "seq", [], [0, 1, 2, 6], ("degraded", "gap_unrepaired")),
        ("T21", "seq", [5], [5, 6], ("degraded", "history_gone")),
        ("T22", "seq", [3, 5], [0, 1, 2, 3, 5, 6], ("degraded", "gap_unrepaired")),
        ("T23", "seq", [3, 4], [0, 1, 2, 3, 4, 6], ("degraded", "gap_unrepaired")),
        ("T24", "seq", [3, -4, 5], [0, 1, 2, 3, 5, 6], ("degraded", "undecodable")),
        ("T25", "seq", None, [0, 1, 2, 6], ("degraded", "replay_failed")),
    ]

    @staticmethod
    def message(i):
        return envelope(stored([100 + i], None, [i + 1] * 4))

    def missed(self, worker, layout):
        engine = self.engine(worker, replay=True, layout=layout)
        for i in range(3):
            engine.publish(i, self.message(i))
        self.drain(engine)
        settle(lambda: self.indexer.listener(worker)["state"], "exact")
        return engine

    def ended(self, worker, held, state):
        settle(lambda: self.indexer.watermark(worker), 6)
        listener = settle(lambda: self.indexer.listener(worker), lambda l: l["state"] == state[0])
        self.assertEqual(listener.get("reason", "none"), state[1])
        self.assertEqual([block[4] for block in self.indexer.dumped(worker)],
                         [100 + i for i in held])

    def test_t17_to_t25_answers(self):
        for worker, (row, layout, given, held, state) in enumerate(self.ROWS, start=1):
            with self.subTest(row):
                engine = self.missed(worker, layout)

                def answer(start, engine=engine, given=given):
                    if given is None:
                        return []
                    known = [] if given == [5] else range(start, 3)
                    frames = [engine.framed(i, self.message(i)) for i in known]
                    frames += [engine.framed(abs(i), self.message(i) if i > 0 else b"\xc1")
                               for i in given if abs(i) >= start]
                    return [*frames, engine.end()]

                engine.answer = answer
                engine.publish(6, self.message(6), live=True)
                self.ended(worker, held, state)

    def test_t19_an_empty_payload_ends_whatever_its_number(self):
        engine = self.missed(1, "seq")
        engine.answer = lambda start: [
            *(engine.framed(i, self.message(i)) for i in range(start, 6)), engine.framed(77, b"")]
        engine.publish(6, self.message(6))
        self.ended(1, range(7), ("exact", "none"))


class Parking(IndexerTest):
    words = ("--ingest-replay-silence-ms", 60_000)

    def test_t26_live_messages_that_wait_are_bounded(self):
        """More than can be parked come while the answer is awaited; they are fetched afterwards."""
        engine, count = self.engine(1, replay=True), 6_000
        one = lambda i: envelope(stored([100 + i], None, [i + 1] * 4))
        engine.publish(0, one(0))
        self.drain(engine)
        settle(lambda: self.indexer.listener()["state"], "exact")
        engine.replay_paused.set()
        engine.publish(1, one(1), live=False)
        for i in range(2, count):
            engine.publish(i, one(i))
        overflow = lambda: self.indexer.metrics().total("kvr_ingest_parked_dropped_total")
        settle(overflow, count - 2 - 4096, seconds=60)
        self.assertEqual(self.indexer.watermark(), 0)
        engine.replay_paused.clear()
        settle(self.indexer.watermark, count - 1, seconds=60)
        settle(lambda: self.indexer.listener()["state"], "exact", seconds=60)
        self.assertEqual(len(self.indexer.dumped()), count)

    def test_t26_they_are_bounded_in_bytes(self):
        """32 MiB, as 4096 messages above, are the defaults."""
        engine, count, size = self.engine(1, replay=True), 46, 1 << 20
        padded = lambda i, pad: envelope(stored([100 + i], None, [i + 1] * 4, pad=bytes(pad)))
        one = lambda i: padded(i, 2 * size - len(padded(i, size)))
        self.assertEqual({len(one(i)) for i in range(count)}, {size})
        engine.publish(0, one(0))
        self.drain(engine)
        settle(lambda: self.indexer.listener()["state"], "exact")
        engine.replay_paused.set()
        engine.publish(1, one(1), live=False)
        for i in range(2, count):
            engine.publish(i, one(i))
        dropped = lambda: self.indexer.metrics().total("kvr_ingest_parked_dropped_total")
        settle(dropped, count - 2 - 32)
        self.assertEqual(self.indexer.watermark(), 0)
        engine.replay_paused.clear()
        self.drain(engine)
        settle(lambda: self.indexer.listener()["state"], "exact")
        self.assertEqual([block[4] for block in self.indexer.dumped()],
                         [100 + i for i in range(count)])
        self.assertEqual(dropped(), count - 2 - 32)


if __name__ == "__main__":
    main()

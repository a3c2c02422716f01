"""Every payload of tests/vectors/engine_samples.jsonl through a socket into an index.

What is held afterwards follows from the sample's description, the `decoded` beside its bytes. A sample
that removes blocks, clears, or hangs on a parent comes after what it needs.
"""

import json
import pathlib

from kvr_testlib import A, B, C, IndexerTest, main, settle, stored

SAMPLES = pathlib.Path(__file__).resolve().parent.parent / "vectors" / "engine_samples.jsonl"

# The samples' two blocks, as vLLM and as SGLang name them.
V0, V1 = 2164874634404590027, 17270480062156288726
S0, S1 = 14958615928728313947, 5674439469042975057
TRT, LORA = 13921853158532342577, 10405247036480783630
MM = 0xABABABABABABABAB  # the samples' image
CPU = {"medium": "CPU"}
PICTURE = [1, 151655, 151655, 151655, 151655, 151655, 2, 3]
BOTH = {"lora_name": "sql-adapter", "cache_salt": "tenant-a"}

VLLM = [stored([V0, V1], None, A + B)]
SGLANG = [stored([S0, S1], None, A + B)]
APART = [stored([S0], None, A), stored([S1], None, B)]


def image(*blocks):
    return {"block_mm_infos": [{"mm_objects": [{"mm_hash": one} for one in block]} for block in blocks]}


def device(*names, parent=None):
    return chain("device", *names, parent=parent)


def host(*names, parent=None):
    return chain("host_pinned", *names, parent=parent)


def chain(tier, *names, parent=None):
    """{(tier, name, parent)}"""
    return {(tier, name, before) for name, before in zip(names, [parent, *names])}


def of(tokens, gpu, cpu=None, **identity):
    """The prompt finds so many device tokens, and so many with those in host memory."""
    return tokens, identity, gpu, gpu if cpu is None else cpu


NOTHING = (set(), [of(A, 0), of(A + B, 0)])
ONE, TWO = (device(V0), [of(A + B, 4)]), (device(V0, V1), [of(A + B, 8)])
SGL_ONE, SGL_TWO = (device(S0), [of(A + B, 4)]), (device(S0, S1), [of(A + B, 8)])

# name: what comes first (events, or another sample's name), what is held, what was dropped and why
ROWS = {
    "vllm-0.9.0-stored-int-norank":
        ([], device(11529215046068469760, 1234), [of(A + B, 8)], {}),
    "vllm-0.9.0-stored-lora-id":  # an adapter by number is not the base model
        ([stored([1234], None, A)], device(1234, 77), [of(A + C, 4)], {}),
    "vllm-0.9.0-cleared": (VLLM, *NOTHING, {}),
    "vllm-0.9.1-stored-rank0": ([], *ONE, {}),
    "vllm-0.9.1-multi-event-rank3": ([stored([11, 12], None, A + B)], *NOTHING, {}),
    "vllm-0.10.2-stored-u64-gpu": ([], *TWO, {}),
    "vllm-0.10.2-removed-gpu": (VLLM, *ONE, {}),
    "vllm-0.11-gpu-int-plus-cpu-offload-bytes": ([], device(V0) | host(V0), [of(A, 4)], {}),
    "vllm-0.14-stored-lora-name":
        ([], device(LORA), [of(A, 4, lora_name="sql-adapter"), of(A, 0)], {}),
    "vllm-0.17-extra-keys-all-null": ([], *TWO, {}),
    "vllm-0.17-cache-salt-first-block-only":
        ([], device(V0, V1), [of(A + B, 8, cache_salt="tenant-a"), of(A + B, 0)], {}),
    "vllm-0.17-mm-flat-strings":  # the second block has a key without a name, too
        ([], device(V0, V1), [of(PICTURE, 4, **image([MM], [MM])), of(PICTURE, 0)], {}),
    "vllm-0.17-prompt-embeds": ([], device(V0, V1), [of([0] * 8, 0)], {}),
    "vllm-0.19-mm-id-offset-pairs":
        ([], device(V0, V1), [of(PICTURE, 8, **image([MM], [MM])), of(PICTURE, 4, **image([MM])),
                              of(PICTURE, 0)], {}),
    "vllm-0.20-stored-group0": ([], *ONE, {}),
    "vllm-0.20-removed-group1": (VLLM, *TWO, {"unlearned_group": 1}),
    "vllm-0.22-stored-full-attention": ([], *TWO, {}),
    "vllm-0.22-sliding-window-masked-blocks": ([], *NOTHING, {"non_main_group": 1}),
    "vllm-0.24-map-stored": ([], *TWO, {}),
    "vllm-0.24-map-stored-minimal": ([stored([V0], None, A)], *TWO, {}),
    "vllm-0.24-map-lora-mm-salt":
        ([], device(LORA),
         [of([1, 151655, 151655, 2], 4, **BOTH, **image([MM])), of([1, 151655, 151655, 2], 0, **BOTH),
          of([1, 151655, 151655, 2], 0, cache_salt="tenant-a", **image([MM])),
          of([1, 151655, 151655, 2], 0, lora_name="sql-adapter", **image([MM]))], {}),
    "vllm-0.24-map-removed": (VLLM, *ONE, {}),
    "vllm-0.24-map-cpu-placeholder":
        (VLLM, device(V0, V1) | host(V0), [of(A + B, 8)], {}),
    "vllm-0.24-map-cpu-self-describing-chunk2": ([], host(V0, V1), [of(A + B, 0, 8)], {}),
    "vllm-0.24-map-all-masked-empty-hashes": ([], *NOTHING, {"non_main_group": 1}),
    "vllm-0.24-map-mamba-align-sparse": ([], *NOTHING, {"non_main_group": 1}),
    "vllm-mooncake-store-connector-cpu-lowercase": (VLLM, *TWO, {"unknown_medium": 2}),
    "vllm-lmcache-cpu-partial-chunk-bytes": ([], *NOTHING, {"unknown_medium": 1}),
    "vllm-0.26-map-fs-locality-local": (VLLM, *TWO, {"unknown_medium": 1}),
    "vllm-0.26-map-obj-no-locality": (VLLM, *TWO, {"unknown_medium": 1}),
    "vllm-0.29-map-ownership": (VLLM, *TWO, {"unsupported_ownership": 2}),
    "vllm-main-202609-map-session-id": ([], *ONE, {}),
    "vllm-branch-full-map-batch": ([], *ONE, {}),
    "vllm-future-unknown-event-and-field":  # its removal says that a copy is left
        ([], *ONE, {"unknown_event": 1}),
    "sglang-2025-stored-no-medium-no-rank": ([], *SGL_ONE, {}),
    "sglang-2025-page1-stored": ([], device(S0, S1), [of([1, 2], 2), of([2], 0)], {}),
    "sglang-2026-stored-gpu": ([], *SGL_TWO, {}),
    "sglang-2026-hicache-backup-demote": (SGLANG, device(S1, parent=S0) | host(S0),
                                          [of(A, 0, 4), of(A + B, 0, 4)], {}),
    "sglang-2026-medium-nil": (APART, device(S1), [of(A, 0), of(B, 4)], {}),
    "sglang-2026-eagle-bigram":
        ([], device(S0), [of([21, 22, 23, 24, 25], 4, is_eagle=True), of([21, 22, 23, 24, 25], 0)], {}),
    "sglang-branch-array-component-types-index7": ([], *SGL_ONE, {}),
    "atom-array-token-offset-index12": ([stored([V0], None, A)], *TWO, {}),
    "sglang-202609-map-salt-session":
        ([], device(S0), [of(A, 4, cache_salt="tenant-a"), of(A, 0)], {}),
    "sglang-202609-map-removed-cleared-rank-nil":
        ([*SGLANG, stored([S0], None, A, **CPU)], *NOTHING, {}),
    "trtllm-native-zmq-map-removed": (APART, device(S1), [of(A, 0), of(B, 4)], {}),
    "dynamo-trtllm-relay-stored-mm":
        ([], device(S0), [of(A, 4, **BOTH, **image([12345678901234567890])), of(A, 0, **BOTH)], {}),
    "trtllm-json-created": ([], *NOTHING, {"ignored_event": 1}),
    "trtllm-json-stored-with-partial-tail": ([], device(TRT), [of(A + [5], 4)], {}),
    "trtllm-json-updated-demoted":
        ("trtllm-json-stored-with-partial-tail", host(TRT), [of(A, 0, 4)], {}),
    "trtllm-json-v2-sha256-hexhash-mm":  # one of its tokens is a digest: no prompt has it
        ([], device(0xC9D58BA695280D69),
         [of([1, 0], 0, cache_salt="tenant-a", **image([MM])), of([1, 0], 0)], {}),
    "mooncake-master-stored-object-key-only": (VLLM, *TWO, {"unsupported_ownership": 1}),
    "mooncake-master-removed":
        ([*VLLM, stored([V0, V1], None, A + B, **CPU)], device(V0, V1) | host(V0, V1), [of(A + B, 8)],
         {"unsupported_ownership": 1}),
}


def read_samples():
    with SAMPLES.open(encoding="utf-8") as lines:
        return {sample["name"]: sample for sample in map(json.loads, lines)}


def rank_of(sample):
    decoded = sample["decoded"]
    if isinstance(decoded, list) and len(decoded) == 3:
        return decoded[2] or 0
    return 0


def block_size_of(sample):
    """Tokens in a block of the engine; 4 where the sample does not show a whole one."""
    if sample["engine"] == "trtllm-json":
        blocks = sample["decoded"]["data"].get("blocks")
        return len(blocks[0]["tokens"]) if blocks else 4
    decoded = sample["decoded"]
    events = decoded["events"] if isinstance(decoded, dict) else decoded[1]
    page = events[0][4:5] if isinstance(events[0], list) else []
    return page[0] if page and page[0] else 4


class Samples(IndexerTest):
    def test_each_through_a_socket(self):
        samples = read_samples()
        self.assertEqual(len(samples), 52)
        self.assertEqual(list(ROWS), list(samples))
        for worker, (name, row) in enumerate(ROWS.items(), start=1):
            with self.subTest(name):
                self.check(worker, samples, samples[name], *row)

    def check(self, worker, samples, sample, before, blocks, prompts, dropped):
        rank = rank_of(sample)
        engine = self.engine(worker, rank, block_size_of(sample), model=f"m{worker}")
        if isinstance(before, str):
            engine.publish(0, bytes.fromhex(samples[before]["hex"]))
        elif before:
            engine.send(*before, rank=rank)
        if before:
            self.drain(engine)
        metrics = self.indexer.metrics()
        engine.publish(engine.next_seq, bytes.fromhex(sample["hex"]))
        self.drain(engine)
        self.assertEqual({(tier, name, parent) for _, _, tier, parent, name, _
                          in self.indexer.dumped(worker, rank)}, blocks)
        for tokens, identity, gpu, cpu in prompts:
            tiers = self.indexer.tiers(tokens, worker, model=f"m{worker}", **identity)
            self.assertEqual((tiers or (0, 0, 0))[:2], (gpu, cpu), (tokens, identity))
        self.assertEqual(self.indexer.metrics().refused_since(metrics), dropped)
        settle(lambda: self.indexer.listener(worker, rank)["state"], "exact")


if __name__ == "__main__":
    main()

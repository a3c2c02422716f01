"""`kvroute agent` between an engine and routers: the picture through it is the picture without it,
and who missed events gets them, or everything, from it."""

import concurrent.futures
import signal
import socket
import struct
import time
import unittest

import msgpack
import zmq

from kvr_testlib import (A, B, C, CLEARED, DEADLINE, SANITIZED, Client, FakeEngine, Indexer, Metrics,
                         Mock, Process, main, removed, run_to_end, settle, stored)
from test_engine_faults import FAST, FaultTest


def source(worker, events, replay=None, ranks=1, block_size=4):
    """What --worker is given."""
    engine = {"id": worker, "url": "http://127.0.0.1:9", "model": "m", "block-size": block_size,
              "dp-size": ranks, "events": "+".join(events)}
    if replay:
        engine["replay"] = "+".join(replay)
    return ",".join(f"{key}={value}" for key, value in engine.items())


class Agent(Process):
    """An agent beside one engine, on free ports."""

    def __init__(self, worker, events, *words, replay=None, ranks=1):
        super().__init__(["agent", "--port", 0, "--worker",
                          source(worker, events, replay, ranks), *words],
                         listeners=1 + 2 * ranks)
        self.client = Client(self.addresses["agent"])

    def endpoints(self, rank=0):
        suffix = f"-{rank}" if rank else ""
        return tuple(f"tcp://{self.addresses[kind + suffix]}" for kind in ("events", "replay"))

    def get(self, path):
        answer = self.client.get(path)
        assert answer.status == 200, answer
        return answer.json

    def ranks(self):
        return {rank["dp_rank"]: rank for rank in self.get("/ranks")}

    def total(self, name, **labels):
        return Metrics(self.client.get("/metrics").body.decode()).total(name, **labels)


class Held:
    """What somebody knows who applies RouterEvents as they come: {(tier, block)}."""

    def __init__(self, events=()):
        self.blocks = set()
        for event in events:
            self.apply(event)

    def apply(self, event):
        data, tier = event["event"]["data"], event["storage_tier"]
        if data == "cleared":
            self.blocks.clear()
            return
        for block in data.get("stored", {}).get("blocks", ()):
            self.blocks.add((tier, block["block_hash"]))
        for name in data.get("removed", {}).get("block_hashes", ()):
            self.blocks.discard((tier, name))


def reached(events):
    """What is held and not behind a block that is not."""
    parents, blocks = {}, Held(events).blocks
    for event in events:
        stored = event["event"]["data"].get("stored", {"blocks": ()})
        parent = stored.get("parent_hash")
        for block in stored["blocks"]:
            parents[block["block_hash"]] = parent
            parent = block["block_hash"]
    held = {name for _, name in blocks}
    def found(name):
        while name is not None:
            if name not in held:
                return False
            name = parents[name]
        return True
    return {block for block in blocks if found(block[1])}


class ThroughTheAgent(FaultTest):
    """Mock engines that one indexer follows and another one through an agent."""

    def setUp(self):
        super().setUp()
        self.behind = Indexer(*self.words)
        self.addCleanup(self.behind.close)

    def agent(self, mock, *words):
        agent = Agent(mock.worker, [rank["events"] for rank in mock.ranks], *self.words, *words,
                      replay=[rank["replay"] for rank in mock.ranks], ranks=len(mock.ranks))
        self.addCleanup(agent.close)
        return agent

    def follow(self, indexer, agent, worker, ranks=1):
        for rank in range(ranks):
            events, replay = agent.endpoints(rank)
            answer = indexer.register(worker, events, rank, replay=replay)
            self.assertEqual(answer.status, 201, answer)

    def same(self, mock, agent, behind=None):
        """Both indexers know what the engine holds, block for block."""
        behind = behind or self.behind
        self.agree(mock)
        for rank in range(len(mock.ranks)):
            direct = self.indexer.dumped(mock.worker, rank)
            settle(lambda r=rank: behind.dumped(mock.worker, r), direct)
            # A stream that was just connected to is asked about once more.
            settle(lambda r=rank: behind.listener(mock.worker, r)["state"], "exact")
            settle(lambda r=rank: [source["state"] for source in agent.ranks()[r]["sources"]],
                   ["exact"])

    def test_the_dump_is_the_one_without_it(self):
        for words in ((), ("--publish-coalesce-ms", 10)):
            with self.subTest(words=words):
                mock = self.start(1 + len(words), ranks=2)
                agent = self.agent(mock, *words)
                self.follow(self.behind, agent, mock.worker, ranks=2)
                for rank in (0, 1):
                    self.load(mock, rank=rank)
                self.same(mock, agent)

    def test_a_router_that_comes_late_learns_all(self):
        mock = self.start(1)
        agent = self.agent(mock)
        self.load(mock)
        self.agree(mock)
        self.follow(self.behind, agent, 1)
        self.same(mock, agent)

    def test_what_the_engine_loses_the_agent_fetches(self):
        mock = self.start(1)
        agent = self.agent(mock)
        self.follow(self.behind, agent, 1)
        self.load(mock)
        self.lose(mock, 3, keep_for_replay=True)
        self.same(mock, agent)

    def test_an_engine_that_is_killed_and_started_again(self):
        mock = self.start(1)
        agent = self.agent(mock)
        self.follow(self.behind, agent, 1)
        self.load(mock)
        self.same(mock, agent)
        mock.child.send_signal(signal.SIGKILL)
        mock.child.wait()
        again = mock.again()
        self.addCleanup(again.close)
        self.adopt(again, 1)
        self.wait_connected(again)
        self.load(again)
        self.same(again, agent)

    def test_an_agent_that_is_killed_and_started_again(self):
        mock = self.start(1)
        agent = self.agent(mock)
        events, replay = agent.endpoints()
        self.follow(self.behind, agent, 1)
        self.load(mock)
        self.same(mock, agent)
        agent.child.send_signal(signal.SIGKILL)
        agent.child.wait()
        self.load(mock)
        again = self.agent(mock, "--publish", events, "--publish-replay", replay)
        self.load(mock)
        self.same(mock, again)

    def counted(self, indexer, outcome):
        return indexer.metrics().total("kvr_ingest_snapshots_total", outcome=outcome)

    def kill(self, process):
        process.child.send_signal(signal.SIGKILL)
        process.child.wait()

    def late(self, agent, worker=1):
        """An indexer that begins now."""
        indexer = Indexer(*self.words)
        self.addCleanup(indexer.close)
        self.follow(indexer, agent, worker)
        return indexer

    def test_a_router_that_comes_when_messages_are_gone_takes_a_snapshot(self):
        """And the next one, after the first was killed."""
        mock = self.start(1)
        agent = self.agent(mock, "--publish-replay-messages-max", 2)
        self.load(mock)
        self.agree(mock)
        behind = None
        for late in range(2):
            if behind:
                self.kill(behind)
            behind = self.late(agent)
            self.same(mock, agent, behind)
            self.assertGreaterEqual(self.counted(behind, "taken"), 1)
            self.load(mock, 10)
            self.same(mock, agent, behind)
            self.assertEqual(behind.metrics().total("kvr_ingest_messages_total",
                                                    outcome="missed"), 0)
        self.assertGreaterEqual(agent.total("kvr_publish_snapshots_built_total")
                                + agent.total("kvr_publish_snapshots_reused_total"), 2)

    def test_an_agent_that_is_killed_with_nothing_kept(self):
        mock = self.start(1)
        short = ("--publish-replay-messages-max", 1)
        agent = self.agent(mock, *short)
        events, replay = agent.endpoints()
        behind = self.late(agent)
        self.load(mock)
        self.same(mock, agent, behind)
        self.kill(agent)
        self.load(mock)
        again = self.agent(mock, "--publish", events, "--publish-replay", replay, *short)
        self.load(mock)
        self.same(mock, again, behind)

    def test_what_an_agent_no_longer_knows_nobody_claims(self):
        """Killed when the engine's ring is gone: followers get what it knows, and its state."""
        mock = self.start(1, "--replay-messages", 3)
        agent = self.agent(mock)
        events, replay = agent.endpoints()
        behind = self.late(agent)
        self.load(mock)
        self.same(mock, agent, behind)
        self.kill(agent)
        self.load(mock)
        again = self.agent(mock, "--publish", events, "--publish-replay", replay,
                           "--publish-replay-messages-max", 1)
        source = settle(lambda: again.ranks()[0]["sources"][0],
                        lambda source: source["state"] == "degraded")
        self.assertEqual(source["reason"], "history_gone")
        self.load(mock, 5)
        # Nothing else happens at the engine, and the agent has heard all of it.
        settle(lambda: again.ranks()[0]["sources"][0]["watermark"], mock.messages() - 1)
        events = again.get("/snapshot")["TreeDump"]["events"]
        self.assertLessEqual(Held(events).blocks, mock.blocks())
        known = reached(events)
        self.assertGreater(len(known), 0)
        for indexer in (behind, self.late(again)):
            listener = settle(lambda i=indexer: i.listener(1, 0),
                              lambda l: l["state"] == "degraded")
            self.assertEqual(listener["reason"], "history_gone")
            settle(lambda i=indexer: {(block[2], block[4]) for block in i.dumped(1, 0)}, known)

    def test_a_snapshot_that_is_too_large_is_refused_and_says_so(self):
        mock = self.start(1)
        agent = self.agent(mock, "--publish-replay-messages-max", 1)
        self.load(mock)
        self.agree(mock)
        behind = Indexer(*self.words, "--ingest-snapshot-bytes-max", 1000)
        self.addCleanup(behind.close)
        self.follow(behind, agent, 1)
        listener = settle(lambda: behind.listener(1, 0), lambda l: l["state"] == "degraded")
        self.assertEqual(listener["reason"], "history_gone")
        self.assertIn("more than there is room for", listener["detail"])
        self.assertGreaterEqual(self.counted(behind, "refused"), 1)
        self.assertEqual(self.counted(behind, "taken"), 0)

    def test_a_snapshot_and_what_follows_are_the_engines_pool(self):
        mock = self.start(1)
        agent = self.agent(mock, "--publish-ring-events-max", 1000)
        self.load(mock)
        self.agree(mock)
        dump = settle(lambda: agent.get("/snapshot")["TreeDump"],
                      lambda dump: Held(dump["events"]).blocks == mock.blocks())
        self.assertEqual((dump["reset_scope"], dump["complete"]), ("all", True))
        held = Held(dump["events"])
        self.load(mock, 5)
        self.agree(mock)
        def caught_up():
            missed = agent.get(f"/events?from={dump['last_event_id'] + 1}")
            later = Held()
            later.blocks = set(held.blocks)
            for event in missed.get("Events", {}).get("events", ()):
                later.apply(event)
            return later.blocks
        settle(caught_up, mock.blocks())

    def test_an_engine_that_is_asked_has_one_reader_and_many_followers(self):
        mock = Mock(*FAST, "--dialect", "trtllm-json")
        self.addCleanup(mock.close)
        self.adopt(mock, 1)
        agent = Agent(1, [mock.ranks[0]["events"]])
        self.addCleanup(agent.close)
        for indexer in (self.indexer, self.behind):
            self.follow(indexer, agent, 1)
        self.load(mock)
        for indexer in (self.indexer, self.behind):
            settle(lambda i=indexer: {(block[2], block[4]) for block in i.dumped(1, 0)},
                   mock.blocks())
        self.assertGreater(len(mock.blocks()), 0)


class Published(unittest.TestCase):
    """What a follower sees, byte for byte."""

    def start(self, *words, **more):
        self.engine = FakeEngine(replay=True)
        self.addCleanup(self.engine.close)
        self.agent = Agent(7, [self.engine.endpoint], *words, replay=[self.engine.replay], **more)
        self.addCleanup(self.agent.close)
        self.context = zmq.Context()
        self.addCleanup(self.context.term)
        self.follower = self.context.socket(zmq.SUB)
        self.addCleanup(lambda: self.follower.close(0))
        self.follower.setsockopt(zmq.SUBSCRIBE, b"")
        self.follower.connect(self.agent.endpoints()[0])
        self.engine.wait_subscriber()
        self.sequence = None
        # Clears, until one arrives: then the follower is known to the agent.
        end = time.monotonic() + DEADLINE
        while not self.follower.poll(100):
            self.engine.send(CLEARED)
            self.assertLess(time.monotonic(), end)
        settle(lambda: self.agent.total("kvr_publish_events_received_total"),
               lambda received: received >= self.engine.next_seq)
        self.sent = self.agent.ranks()[0]["last_event_id"]
        while self.next()[-1]["event"]["event_id"] < self.sent:
            pass

    def next(self):
        """The events of the next message, whose frames and numbers are checked."""
        self.assertTrue(self.follower.poll(DEADLINE * 1000))
        topic, publisher, sequence, frame = self.follower.recv_multipart()
        publisher, sequence = (int.from_bytes(number, "big") for number in (publisher, sequence))
        version, length = struct.unpack(">BI", frame[:5])
        self.assertEqual((topic, version, length), (b"kv-events", 1, len(frame) - 5))
        envelope = msgpack.unpackb(frame[5:])
        self.assertEqual(list(envelope),
                         ["publisher_id", "sequence", "published_at", "topic", "payload"])
        self.assertEqual((envelope["publisher_id"], envelope["sequence"], envelope["topic"]),
                         (publisher, sequence, "kv-events"))
        self.assertEqual(publisher, self.agent.ranks()[0]["publisher_id"])
        if self.sequence is not None:
            self.assertEqual(sequence, self.sequence + 1)
        self.sequence = sequence
        return msgpack.unpackb(envelope["payload"])

    def test_events_are_merged_numbered_and_whole(self):
        self.start()
        self.engine.send(stored([11], None, A), stored([12], 11, B), removed([11]), removed([12]),
                         stored([13], 12, C, medium="CPU"))
        chain, gone, host = self.next()
        self.assertEqual(list(chain), ["worker_id", "storage_tier", "residency_domain", "event",
                                       "sce"])
        self.assertEqual((chain["worker_id"], chain["storage_tier"], chain["residency_domain"],
                          chain["sce"]), (7, "device", "worker", True))
        self.assertEqual(chain["event"]["event_id"], self.sent + 1)
        data = chain["event"]["data"]["stored"]
        self.assertEqual([block["block_hash"] for block in data["blocks"]], [11, 12])
        self.assertEqual(data["blocks"][0]["tokens_hash"], 14643705804678351452)
        self.assertEqual((data["parent_hash"], data["start_position"]), (None, None))
        self.assertEqual(gone["event"]["data"], {"removed": {"block_hashes": [11, 12]}})
        self.assertEqual(host["storage_tier"], "host_pinned")
        self.assertEqual(host["event"]["data"]["stored"]["parent_hash"], 12)
        self.engine.send(CLEARED)
        self.assertEqual(self.next()[0]["event"]["data"], "cleared")

    def test_k15_k16_every_follower_gets_the_same(self):
        self.start()
        other = self.context.socket(zmq.SUB)
        self.addCleanup(lambda: other.close(0))
        other.setsockopt(zmq.SUBSCRIBE, b"")
        other.connect(self.agent.endpoints()[0])
        end = time.monotonic() + DEADLINE
        while not other.poll(100):
            self.engine.send(CLEARED)
            self.assertLess(time.monotonic(), end)
        first = other.recv_multipart()
        mine = self.follower.recv_multipart()
        while mine[2] != first[2]:
            mine = self.follower.recv_multipart()
        for i in range(20):
            self.engine.send(stored([100 + i], None, A), removed([100 + i]))
        for number in range(20):
            self.assertEqual(mine, first)
            self.assertTrue(other.poll(DEADLINE * 1000) and self.follower.poll(DEADLINE * 1000))
            before, first, mine = first, other.recv_multipart(), self.follower.recv_multipart()
            self.assertEqual(int.from_bytes(first[2], "big"), int.from_bytes(before[2], "big") + 1)

    def test_stores_of_two_sessions_stay_apart_and_keep_their_names(self):
        self.start()
        self.engine.send(stored([11], None, A, session_id="s"),
                         stored([12], 11, B, session_id="s"), stored([13], 12, C),
                         removed([13], session_id="t"))
        self.assertEqual([(event.get("session_id"), *event["event"]["data"])
                          for event in self.next()],
                         [("s", "stored"), (None, "stored"), (None, "removed")])

    def test_only_what_the_tokens_say_in_full_is_eligible_for_a_shared_cache(self):
        """Row X17: `sce` is false, and then left out, for content that the event does not tell in full."""
        self.start()
        digest = "0123456789abcdef" + "0" * 48
        rows = [
            ("plain", stored([11], None, A), True),
            ("a host copy without keys", stored([18], None, A, medium="CPU"), False),
            ("X17 bytes", stored([12], None, A, extra_keys=[[bytes(range(200, 232))]]), False),
            ("an image", stored([13], None, A, extra_keys=[[[digest, 0]]]), False),
            ("X14 a key without a name", stored([14], None, A, extra_keys=[[7]]), False),
            ("an adapter by number", stored([15], None, A, lora_id=7), False),
            ("a salt", stored([16], None, A, cache_salt="a"), True),
            ("an adapter by name", stored([17], None, A, lora_name="ad"), True),
            ("a host copy of what the device told", stored([11], None, A, medium="CPU"), True),
            ("plain again", stored([19], None, B), True),
        ]
        plain = 14643705804678351452
        for row, event, eligible in rows:
            with self.subTest(row):
                self.engine.send(event)
                (told,) = self.next()
                (block,) = told["event"]["data"]["stored"]["blocks"]
                self.assertEqual((block["block_hash"], told.get("sce")),
                                 (event["block_hashes"][0], eligible or None))
                if not eligible and event.get("medium") != "CPU":
                    self.assertNotEqual(block["tokens_hash"], plain)

    def test_n35_what_is_filtered_costs_no_number(self):
        self.start()
        self.engine.send(stored([11], None, A))
        self.engine.send(["Ignored"])
        self.engine.send(stored([12], 11, B, medium="unheard of"))
        self.engine.send(removed([11]))
        events = self.next()
        while len(events) < 2:
            events += self.next()
        self.assertEqual([event["event"]["event_id"] for event in events],
                         [self.sent + 1, self.sent + 2])
        self.assertEqual(events[1]["event"]["data"], {"removed": {"block_hashes": [11]}})

    def test_copies_are_counted_before_they_are_told(self):
        """Rows D1 and D11: overlapping stores, each hash gone with its last copy."""
        self.start()
        self.engine.send(stored([11, 12], None, A + B, medium="CPU"))
        self.engine.send(stored([12, 13], 11, B + C, medium="CPU"))
        self.engine.send(removed([12], medium="CPU"))
        self.engine.send(removed([12, 13], medium="CPU"))
        self.assertEqual(len(self.next()), 1)
        self.assertEqual(len(self.next()), 1)
        self.assertEqual([event["event"]["data"] for event in self.next()],
                         [{"removed": {"block_hashes": [12, 13]}}])

    def removals(self, *events):
        """What the engine's removal comes to, behind stores that are told before it."""
        self.engine.send(*events)
        return [event["event"]["data"]["removed"]["block_hashes"] for event in self.next()
                if "removed" in event["event"]["data"]]

    def test_d3_only_what_has_no_copy_left_is_removed(self):
        self.start()
        store = lambda name: stored([name], None, A if name == 11 else B, medium="CPU")
        self.assertEqual(self.removals(store(11), store(11), store(12),
                                       removed([11, 12], medium="CPU")), [[12]])

    def test_d9_copies_in_one_list_are_two(self):
        self.start()
        # A marker ends each list: a removal that is held goes nowhere.
        self.assertEqual(self.removals(stored([11], None, A), stored([12], 11, B), stored([12], 11, B),
                                       removed([12]), removed([91])), [[91]])
        self.assertEqual(self.removals(removed([12])), [[12]])

    def test_l16_concurrent_snapshots_are_built_once(self):
        self.start()
        self.engine.send(stored([11], None, A))
        self.next()
        with concurrent.futures.ThreadPoolExecutor(10) as askers:
            ask = lambda _: Client(self.agent.addresses["agent"]).get("/snapshot")
            answers = list(askers.map(ask, range(10)))
        self.assertEqual({answer.status for answer in answers}, {200})
        self.assertEqual({len(answer.json["TreeDump"]["events"]) for answer in answers}, {1})
        self.assertEqual(self.agent.total("kvr_publish_snapshots_built_total"), 1)
        self.assertEqual(self.agent.total("kvr_publish_snapshots_reused_total"), 9)

    def test_a_store_by_name_is_told_with_its_content(self):
        self.start()
        self.engine.send(stored([11, 12], None, A + B))
        self.engine.send({**stored([11, 12, 99], medium="CPU"), "block_size": 0})
        device, = self.next()
        host, = self.next()
        self.assertEqual(host["storage_tier"], "host_pinned")
        self.assertEqual(host["event"]["data"], device["event"]["data"])
        self.assertEqual(self.agent.total("kvr_publish_unknown_content_total"), 1)

    def test_two_sources_are_one(self):
        """Rows K1 to K3, K10, K11: a block manager beside the engine, with names of its own."""
        manager = FakeEngine(replay=True)
        self.addCleanup(manager.close)
        self.start("--worker", source(70, [manager.endpoint], [manager.replay]))
        manager.wait_subscriber()
        self.engine.send(stored([11, 12], None, A + B))
        told, = self.next()
        names = [block["block_hash"] for block in told["event"]["data"]["stored"]["blocks"]]
        self.assertEqual(names, [14643705804678351452, 4945711292740353085])
        manager.send(stored([901, 902], None, A + B), stored([903], 902, C))
        more, = self.next()
        data = more["event"]["data"]["stored"]
        self.assertEqual((data["parent_hash"], [block["block_hash"] for block in data["blocks"]]),
                         (names[1], [12583592247330656132]))
        self.assertEqual((more["worker_id"], more["event"]["event_id"]), (7, self.sent + 2))
        self.engine.send(removed([12, 11]))
        manager.send(removed([902]))
        gone, = self.next()
        self.assertEqual(gone["event"]["data"], {"removed": {"block_hashes": [names[1]]}})
        # A clear takes what its source alone held.
        self.engine.send(stored([11], None, A), stored([21], None, C))
        settle(lambda: self.agent.ranks()[0]["blocks"], 3)
        self.next()
        self.engine.send(CLEARED)
        gone, = self.next()
        self.assertEqual(len(gone["event"]["data"]["removed"]["block_hashes"]), 1)
        manager.send(CLEARED)
        self.assertEqual(self.next()[0]["event"]["data"], "cleared")
        self.assertEqual(self.agent.total("kvr_publish_blocks_shared_total"), 3)

    def test_lists_are_merged_in_time(self):
        self.start("--publish-coalesce-ms", 15000)
        self.engine.send(stored([11], None, A))
        self.engine.send(stored([12], 11, B))
        settle(lambda: self.agent.total("kvr_publish_events_received_total"), self.sent + 2)
        # Whoever asks is told of what is known.
        answer = self.agent.get(f"/events?from={self.sent + 1}")["Events"]
        self.assertEqual(answer["last_event_id"], self.sent + 1)
        blocks = answer["events"][0]["event"]["data"]["stored"]["blocks"]
        self.assertEqual([block["block_hash"] for block in blocks], [11, 12])
        self.assertEqual([event["event"]["event_id"] for event in self.next()], [self.sent + 1])

    def test_ranges(self):
        """Rows L1 to L5, L8."""
        self.start("--publish-ring-events-max", 4)
        for name in range(11, 17):
            self.engine.send(stored([name], None, A))
        last = self.sent + 6
        settle(lambda: self.agent.ranks()[0]["last_event_id"], last)
        publisher = self.agent.ranks()[0]["publisher_id"]
        ids = lambda answer: [event["event"]["event_id"] for event in answer["Events"]["events"]]
        self.assertEqual(ids(self.agent.get(f"/events?from={last - 3}&to={last - 2}")),
                         [last - 3, last - 2, last - 1, last])
        self.assertEqual(self.agent.get(f"/events?from={last - 4}"),
                         {"Snapshot": {"publisher_id": publisher, "last_event_id": last}})
        self.assertEqual(self.agent.get("/events"), {"Snapshot": {"publisher_id": publisher, "last_event_id": last}})
        self.assertEqual(self.agent.get(f"/events?from={last + 1}"),
                         {"TooNew": {"publisher_id": publisher, "requested_start": last + 1,
                                     "requested_end": None, "newest_available": last}})
        self.assertEqual(self.agent.get("/events?from=8&to=3"),
                         {"InvalidRange": {"publisher_id": publisher, "start_id": 8, "end_id": 3}})
        self.assertEqual(self.agent.get(f"/events?from={last}&publisher_id={publisher ^ 1}"),
                         {"Snapshot": {"publisher_id": publisher, "last_event_id": last}})
        self.assertEqual(self.agent.client.get("/events?from=x").status, 400)
        for path in ("/events?dp_rank=1", "/snapshot?dp_rank=1", "/snapshot?worker_id=1"):
            self.assertEqual(self.agent.client.get(path).status, 404, f"L26 {path}")

    def ask_and_read_nothing(self, path):
        """Status and Retry-After of an answer whose body is left where it is, and the connection."""
        host, port = self.agent.addresses["agent"].rsplit(":", 1)
        client = socket.socket()
        self.addCleanup(client.close)
        client.settimeout(DEADLINE)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((host, int(port)))
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            part = client.recv(1)
            self.assertTrue(part, head)
            head += part
        lines = head.decode().split("\r\n")
        return int(lines[0].split()[1]), "Retry-After: 1" in lines, client

    def test_clients_that_read_nothing_are_bounded_in_bytes(self):
        """30 ask for all events of a ring that is full, at its default size."""
        self.start("--publish-replay-bytes-max", 1 << 20)
        received = lambda: self.agent.total("kvr_publish_events_received_total")
        before, blocks = received(), 8192
        for i in range(40):
            names = range(1 + blocks * i, 1 + blocks * (i + 1))
            self.engine.send(stored(names, None, list(range(4 * blocks))), removed(names))
            settle(received, before + 2 * (i + 1))
        self.assertGreater(self.agent.total("kvr_publish_ring_bytes"), 14 << 20)
        last = self.agent.ranks()[0]["last_event_id"]
        first = last - int(self.agent.total("kvr_publish_ring_events")) + 1
        path = f"/events?from={first}"
        before = self.agent.resident_kib()
        answers = [self.ask_and_read_nothing(path) for _ in range(30)]
        growth = self.agent.resident_kib() - before
        begun = [client for status, _, client in answers if status == 200]
        self.assertIn(len(begun), (3, 4), "64 MiB, and 14 to 16 of them for each")
        self.assertTrue(all(later for status, later, _ in answers if status != 200))
        self.assertEqual({status for status, _, _ in answers}, {200, 503})
        if not SANITIZED:
            self.assertLess(growth, 128 << 10)
        self.assertEqual(self.agent.client.get("/health").status, 200)
        self.assertEqual(self.agent.get(f"/events?from={last + 1}")["TooNew"]["newest_available"], last)
        for client in begun:
            client.close()
        answer = settle(lambda: self.agent.client.get(path), lambda answer: answer.status == 200).json
        self.assertEqual([event["event"]["event_id"] for event in answer["Events"]["events"]],
                         list(range(first, last + 1)))

    def test_what_an_engine_that_is_gone_held_is_taken_back(self):
        """No message of the engine says so, and none ends the list."""
        self.start("--ingest-drop-after-disconnect-ms", 50)
        self.engine.send(stored([11], None, A))
        self.next()
        self.engine.close()
        self.assertEqual([event["event"]["data"] for event in self.next()], ["cleared"])

    def test_what_may_be_gone_is_taken_back(self):
        """A message that nobody has any more may have been a removal."""
        self.start("--ingest-replay-silence-ms", 100, "--ingest-replay-attempts", 1)
        settle(lambda: self.agent.get("/snapshot")["TreeDump"]["complete"], True)
        self.engine.send(stored([11], None, A))
        self.next()
        self.engine.next_seq += 1
        self.engine.send(stored([12], None, B))
        events = self.next()
        if len(events) == 1:
            events += self.next()
        self.assertEqual(events[0]["event"]["data"], "cleared")
        stored_again = events[1]["event"]["data"]["stored"]["blocks"]
        self.assertEqual([block["block_hash"] for block in stored_again], [12])
        dump = settle(lambda: self.agent.get("/snapshot")["TreeDump"],
                      lambda dump: dump["state"] == "degraded")
        self.assertFalse(dump["complete"])
        self.assertNotEqual(dump["reason"], "none")
        self.assertEqual(Held(dump["events"]).blocks, {("device", 12)})

    def test_an_engine_with_side_groups_is_refused(self):
        self.start()
        self.engine.send(stored([11], None, A))
        self.next()
        self.engine.send({**stored([12], 11, B), "group_idx": 1,
                          "kv_cache_spec_kind": "sliding_window",
                          "kv_cache_spec_sliding_window": 8})
        self.assertEqual([event["event"]["data"] for event in self.next()], ["cleared"])
        self.engine.send(stored([13], None, C))
        settle(lambda: self.agent.total("kvr_publish_events_refused_total"), 1)
        dump = self.agent.get("/snapshot")["TreeDump"]
        self.assertEqual((dump["complete"], dump["events"]), (False, []))
        self.assertTrue(self.agent.ranks()[0]["refused"])
        self.assertEqual(self.agent.client.get("/ready").status, 503)

    def test_replay_has_the_envelopes(self):
        self.start()
        self.engine.send(stored([11], None, A))
        self.next()
        dealer = self.context.socket(zmq.DEALER)
        self.addCleanup(lambda: dealer.close(0))
        dealer.connect(self.agent.endpoints()[1])
        dealer.send_multipart([b"", self.sequence.to_bytes(8, "big")])
        self.assertTrue(dealer.poll(DEADLINE * 1000))
        delimiter, topic, sequence, payload = dealer.recv_multipart()
        self.assertEqual((delimiter, topic, int.from_bytes(sequence, "big")),
                         (b"", b"kv-events", self.sequence))
        self.assertEqual(msgpack.unpackb(payload)["sequence"], self.sequence)
        self.assertTrue(dealer.poll(DEADLINE * 1000))
        self.assertEqual(dealer.recv_multipart()[-2:], [b"\xff" * 8, b""])

    def test_pages_and_the_end(self):
        self.start()
        self.assertEqual(self.agent.client.get("/health").status, 200)
        settle(lambda: self.agent.client.get("/ready").status, 200)
        self.assertEqual(self.agent.total("kvr_publish_messages_dropped_total"), 0)
        self.assertEqual(self.agent.total("kvr_publish_events_total"), self.sent)
        self.engine.send({"type": "BlockMoved"})
        rejected = settle(lambda: self.agent.get("/workers/7/rejected")["ranks"][0],
                          lambda rank: rank["total"] == 1)
        self.assertEqual(rejected["by_reason"], {"unknown_event": 1})
        self.assertEqual(self.agent.client.get("/workers/8/rejected").status, 404)
        self.assertEqual(self.agent.stop(), 0)


class Usage(unittest.TestCase):
    def test_what_is_wrong_is_said(self):
        worker = "id=1,url=http://h:1,model=m,block-size=4,events=tcp://h:1"
        for words, want in (
                (["agent"], "kvroute agent: no engine to follow"),
                (["agent", "--worker", worker, "--worker", worker], "this id is given twice"),
                (["agent", "--worker", worker, "--publish", "udp://h:1"], "udp"),
        ):
            code, log = run_to_end(words)
            self.assertEqual(code, 2, log)
            self.assertIn(want, log)


if __name__ == "__main__":
    main()

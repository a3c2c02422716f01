"""Hours of an engine whose cache is full in a minute or two, through an agent to a router: neither
grows, whoever else listens and does not read.

KVR_TEST_STORES says how many stores, by default two hours of 500 a second.
"""

import collections
import os
import random
import time

import zmq

from kvr_testlib import FakeEngine, IndexerTest, main, removed, settle, stored
from test_agent import Agent

STORES = int(os.environ.pop("KVR_TEST_STORES", 3_600_000))
EVENTS = 64  # stores a message
HELD = 8_192  # blocks of the engine's cache
AHEAD = 64  # messages on their way
RING_BYTES = 16 << 20  # full within the first tenth
SPREAD = 11400714819323198485


class Full:
    """What the engine tells: two blocks a store, of new content and names; the oldest go."""

    def __init__(self):
        self.rng = random.Random(1)
        self.held = collections.deque()
        self.name = 0

    def names(self):
        self.name += 2
        return [(self.name - 1) * SPREAD % 2**64, self.name * SPREAD % 2**64]

    def events(self):
        events = []
        for _ in range(EVENTS):
            names = self.names()
            token = self.rng.getrandbits(31)
            events.append(stored(names, None, range(token, token + 8)))
            self.held.append(names)
        gone = []
        while 2 * len(self.held) > HELD:
            gone += self.held.popleft()
        return [removed(gone), *events] if gone else events

    def blocks(self):
        return {("device", name) for names in self.held for name in names}


class Soak(IndexerTest):
    def stalled(self, endpoint):
        """Subscribes and never reads."""
        context = zmq.Context()
        self.addCleanup(context.term)
        reader = context.socket(zmq.SUB)
        self.addCleanup(lambda: reader.close(0))
        reader.setsockopt(zmq.RCVHWM, 1)
        reader.setsockopt(zmq.SUBSCRIBE, b"")
        reader.connect(endpoint)

    def test_a_full_cache_for_hours(self):
        engine = FakeEngine(replay=True, ring=1_000)
        self.addCleanup(engine.close)
        agent = Agent(1, [engine.endpoint], "--publish-coalesce-ms", 10,
                      "--publish-replay-bytes-max", RING_BYTES, replay=[engine.replay])
        self.addCleanup(agent.close)
        engine.wait_subscriber()
        events, replay = agent.endpoints()
        self.assertEqual(self.indexer.register(1, events, replay=replay).status, 201)
        self.stalled(events)
        full = Full()

        def heard():
            return agent.ranks()[0]["sources"][0]["watermark"]

        def catch_up():
            settle(heard, engine.next_seq - 1)
            settle(lambda: {(block[2], block[4]) for block in self.indexer.dumped(1, 0)},
                   full.blocks())
            settle(lambda: self.indexer.listener(1, 0)["state"], "exact")
            agent.get("/snapshot")

        sizes = []
        messages = STORES // EVENTS
        parts = 10
        began = time.monotonic()
        for part in range(parts):
            for _ in range(messages // parts):
                engine.send(*full.events())
                if engine.next_seq % (AHEAD // 2) == 0:
                    settle(heard, lambda mark: mark is not None
                           and engine.next_seq - 1 - mark < AHEAD // 2)
            catch_up()
            sizes.append((agent.resident_kib(), self.indexer.resident_kib()))
        print(f"{messages * EVENTS} stores in {time.monotonic() - began:.0f} s; "
              f"KiB of agent and indexer after each tenth: {sizes}")
        self.assertEqual(agent.total("kvr_ingest_messages_total", outcome="missed"), 0)
        for name, warm, end in zip(("agent", "indexer"), sizes[1], sizes[-1]):
            self.assertLess(end, warm * 1.05 + 2048, name)


if __name__ == "__main__":
    main()

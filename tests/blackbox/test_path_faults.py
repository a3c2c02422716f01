"""An engine, its agent and three routers as processes on real sockets, and what goes wrong with each:
killed, stopped, restarted, its messages lost, repeated, out of order, foreign. Afterwards every
router's dump is the engine's pool. The same in virtual time and by the thousand: tests/simulation."""

import signal
import time
import unittest

from kvr_testlib import (DEADLINE, SANITIZED, FakeEngine, Indexer, IndexerTest, Metrics, main, removed,
                         settle, stored)
from test_agent import Agent
from test_engine_faults import FaultTest

KIB = 1024


def counted(process, what):
    """What became of the rank's messages or events, all outcomes, less what was taken back."""
    metrics = Metrics(process.client.get("/metrics").body.decode())
    rank = {"worker_id": 1, "dp_rank": 0}
    return (metrics.total(f"kvr_ingest_rank_{what}_total", **rank)
            - metrics.total(f"kvr_ingest_rank_{what}_taken_back_total", **rank))


def adds_up(agent, routers):
    """docs/agent.md, "The counters add up": what the agent published is what each router counted."""
    for router in routers:
        for what in ("messages", "events"):
            settle(lambda r=router, w=what: counted(r, w) - agent.total(f"kvr_publish_{w}_total"), 0)
    settle(lambda: agent.total("kvr_ingest_rank_placements_total")
           - agent.total("kvr_publish_events_received_total"), 0)
    assert agent.total("kvr_publish_events_total") > 0


class PathTest(FaultTest):
    """`self.indexer` follows the engine directly; `self.routers` follow the agent."""

    def path(self, *words):
        self.mock = self.start(1, *words)
        self.agent = self.start_agent()
        self.routers = [self.start_router() for _ in range(3)]
        self.work()
        self.same()

    def start_agent(self, *words):
        agent = Agent(1, [self.mock.ranks[0]["events"]], *self.words, *words,
                      replay=[self.mock.ranks[0]["replay"]])
        self.addCleanup(agent.close)
        return agent

    def start_router(self):
        router = Indexer(*self.words)
        self.addCleanup(router.close)
        events, replay = self.agent.endpoints()
        answer = router.register(1, events, replay=replay)
        self.assertEqual(answer.status, 201, answer)
        return router

    def work(self, requests=20):
        self.load(self.mock, requests)

    def work_until(self, happened):
        """More messages, for a gap shows with the next one only."""
        end = time.monotonic() + DEADLINE
        while not happened():
            self.assertLess(time.monotonic(), end)
            self.work(2)

    def held(self, router):
        return {(block[2], block[4]) for block in router.dumped(1, 0)}

    def same(self, routers=None):
        for router in routers or self.routers:
            settle(lambda r=router: self.held(r) ^ self.mock.blocks(), set())
        self.assertGreater(len(self.mock.blocks()), 0)

    def exact(self, routers=None):
        for router in routers or self.routers:
            settle(lambda r=router: r.listener(1)["state"], "exact")

    @staticmethod
    def kill(process):
        process.child.send_signal(signal.SIGKILL)
        process.child.wait()


class Processes(PathTest):
    def tearDown(self):
        adds_up(self.agent, self.routers)
        super().tearDown()

    def test_each_is_killed_in_turn(self):
        self.path()
        self.kill(self.mock)
        again = self.mock.again()
        self.addCleanup(again.close)
        self.adopt(again, 1)
        self.mock = again
        self.wait_connected(again)
        self.work()
        self.same()
        self.exact()

        events, replay = self.agent.endpoints()
        self.kill(self.agent)
        self.work()
        self.agent = self.start_agent("--publish", events, "--publish-replay", replay)
        self.work()
        self.same()
        self.exact()

        self.kill(self.routers[1])
        self.work()
        self.routers[1] = self.start_router()
        self.work()
        self.same()
        self.exact()

    def test_a_router_that_is_stopped_holds_up_nobody_and_catches_up(self):
        self.path()
        stopped, *others = self.routers
        stopped.child.send_signal(signal.SIGSTOP)
        self.addCleanup(lambda: stopped.child.send_signal(signal.SIGCONT))
        for _ in range(3):
            self.work(30)
            self.same(others)
        stopped.child.send_signal(signal.SIGCONT)
        self.work()
        self.same()
        self.exact()

    def test_restarts_with_and_without_new_numbers(self):
        self.path()
        self.mock.fault(restart=True)
        self.work()
        self.same()
        self.exact()
        # Nobody can tell which messages of the old engine were never seen.
        before = self.mock.messages()
        self.mock.fault(restart=True, keep_numbers=True)
        self.work()
        self.same()
        self.assertGreater(before, 0)
        for router in self.routers:
            settle(lambda r=router: [r.listener(1)[key] for key in ("state", "reason")],
                   ["degraded", "history_gone"])


class Messages(PathTest):
    """Faults of the engine's messages; nothing is lost for good."""

    def tearDown(self):
        settle(lambda: counted(self.agent, "messages") - self.mock.messages(), 0)
        adds_up(self.agent, self.routers)
        super().tearDown()

    def counts(self):
        return self.agent.total("kvr_ingest_replays_completed_total")

    def test_lost_repeated_and_out_of_order(self):
        self.path()
        for fault in ({"drop_messages": 5}, {"repeat_messages": 5}, {"swap_messages": 5},
                      {"swap_messages": 3, "repeat_messages": 3},
                      {"drop_messages": 3, "cut_replays": 2, "cut_after": 1}):
            with self.subTest(fault):
                until = self.mock.messages() + 12
                self.mock.fault(**fault)
                self.work_until(lambda: self.mock.messages() >= until)
                self.work(2)
                self.same()
                self.exact()

    def test_delayed_and_in_bursts(self):
        self.path()
        self.mock.fault(event_delay_ms=150)
        self.work()
        self.mock.fault(event_delay_ms=0, hold_events=True)
        self.work(60)
        self.mock.fault(hold_events=False)
        self.same()
        self.exact()

    def test_foreign_messages_and_garbage_change_nothing(self):
        self.path()
        before = self.agent.ranks()[0]["last_event_id"]
        self.mock.fault(foreign_messages=50, garbage_messages=50)
        settle(lambda: self.agent.get("/workers/1/rejected")["ranks"][0]["by_reason"],
               lambda by: by.get("foreign_rank", 0) == 50 and by.get("frame_count", 0) >= 50)
        self.assertEqual(self.agent.ranks()[0]["last_event_id"], before)
        self.same()
        self.work()
        self.same()
        self.exact()


class Counters(IndexerTest):
    """Every event that the engine sent is told by /metrics of whoever follows, by what became of it."""

    def test_each_event_is_applied_held_filtered_or_in_a_snapshot(self):
        engine = FakeEngine(replay=True)
        self.addCleanup(engine.close)
        agent = Agent(1, [engine.endpoint], "--publish-replay-messages-max", 5, replay=[engine.replay])
        self.addCleanup(agent.close)
        engine.wait_subscriber()
        for i in range(60):
            engine.send(stored([100 + i], None, [i + 1] * 4))
        twice = stored([7, 8], None, list(range(8)))
        engine.send(twice, twice, removed([7]), {"type": "NoSuch"})  # a copy is left
        engine.send(stored([200], None, [9] * 4, medium="weird"))
        settle(lambda: counted(agent, "messages"), 62)
        self.assertEqual(self.outcomes(agent, "events"),
                         {"applied": 62, "held": 1, "unknown_event": 1, "unknown_medium": 1})

        # All of it is published (a message each, but for what nobody can place) before a router
        # comes, so that none of it reaches the router live.
        told = 61
        settle(lambda: agent.total("kvr_publish_messages_total"), told)
        events, replay = agent.endpoints()
        self.assertEqual(self.indexer.register(1, events, replay=replay).status, 201)
        settle(lambda: self.indexer.listener(1)["state"], "exact")
        settle(lambda: counted(self.indexer, "messages"), told)
        for i in range(3):
            engine.send(stored([300 + i], None, [500 + i] * 4))
        settle(lambda: counted(self.indexer, "messages"), told + 3)
        adds_up(agent, [self.indexer])
        # The ring of 5 messages does not reach back, so that a snapshot told the others.
        self.assertEqual(self.outcomes(self.indexer, "messages"), {"applied": 3, "snapshot": told})
        published = agent.total("kvr_publish_events_total")
        self.assertEqual(self.outcomes(self.indexer, "events"),
                         {"applied": 3, "snapshot": published - 3})

    @staticmethod
    def outcomes(process, what):
        metrics = Metrics(process.client.get("/metrics").body.decode())
        name = f'kvr_ingest_rank_{what}_total{{worker_id="1",dp_rank="0",outcome="'
        return {series[len(name):-2]: value for series, value in metrics.items()
                if series.startswith(name) and value > 0}


class Memory(IndexerTest):
    """A router that takes nothing costs the agent what its marks say, and no more."""

    GROWTH_KIB = 24 * KIB  # of 60 MiB that are published meanwhile
    MESSAGES = 3_000
    BLOCKS = 256  # of a message, at about 80 bytes each

    def publish(self, engine, first, count):
        for i in range(first, first + count):
            names = range(1 + self.BLOCKS * i, 1 + self.BLOCKS * (i + 1))
            engine.send(stored(names, None, list(range(4 * self.BLOCKS))))
            engine.send(removed(names))

    def test_a_stopped_router_costs_the_agent_a_bounded_amount(self):
        engine = FakeEngine(replay=True, ring=100)
        self.addCleanup(engine.close)
        agent = Agent(1, [engine.endpoint], "--publish-send-high-water", 20,
                      "--publish-replay-bytes-max", 1 << 20, "--publish-ring-bytes-max", 1 << 20,
                      replay=[engine.replay])
        self.addCleanup(agent.close)
        engine.wait_subscriber()
        events, replay = agent.endpoints()
        stopped = Indexer()
        self.addCleanup(stopped.close)
        for router in (self.indexer, stopped):
            self.assertEqual(router.register(1, events, replay=replay).status, 201)
        engine.send(stored([2**40], None, [1, 2, 3, 4]))
        for router in (self.indexer, stopped):
            settle(lambda r=router: len(r.dumped(1, 0)), 1)

        received = lambda: agent.total("kvr_publish_events_received_total")
        self.publish(engine, 0, 100)
        settle(received, 201)
        before = agent.resident_kib()
        stopped.child.send_signal(signal.SIGSTOP)
        self.addCleanup(lambda: stopped.child.send_signal(signal.SIGCONT))
        for first in range(100, self.MESSAGES, 100):
            self.publish(engine, first, 100)
            settle(received, 1 + 2 * (first + 100))
        growth = agent.resident_kib() - before
        print(f"a stopped router cost its agent {growth} KiB")
        if not SANITIZED:
            self.assertLess(growth, self.GROWTH_KIB)
        engine.send(stored([2**41], None, [5, 6, 7, 8]))
        names = lambda router: {block[4] for block in router.dumped(1, 0)}
        settle(lambda: 2**41 in names(self.indexer), True)
        stopped.child.send_signal(signal.SIGCONT)
        # What it missed is no longer kept: a snapshot tells all.
        settle(lambda: names(stopped), {2**40, 2**41})
        self.assertEqual(names(self.indexer), {2**40, 2**41})

    def test_a_stopped_router_is_bounded_in_bytes_whatever_the_engine_sends(self):
        """Marks are the defaults. Events of 8192 blocks: half a megabyte each, 120 MiB in all, and
        fewer where memory is not compared."""
        engine = FakeEngine(replay=True, ring=3)
        self.addCleanup(engine.close)
        agent = Agent(1, [engine.endpoint], "--publish-replay-bytes-max", 1 << 20,
                      "--publish-ring-bytes-max", 1 << 20, replay=[engine.replay])
        self.addCleanup(agent.close)
        engine.wait_subscriber()
        events, replay = agent.endpoints()
        self.assertEqual(self.indexer.register(1, events, replay=replay).status, 201)
        engine.send(stored([2**40], None, [1, 2, 3, 4]))
        settle(lambda: len(self.indexer.dumped(1, 0)), 1)
        received = lambda: agent.total("kvr_publish_events_received_total")
        blocks, tokens = 8192, list(range(4 * 8192))

        def publish(i):
            names = range(1 + blocks * i, 1 + blocks * (i + 1))
            engine.send(stored(names, None, tokens), removed(names))
            if i % 10 == 9:
                settle(received, 1 + 2 * (i + 1))

        for i in range(10):
            publish(i)
        before = agent.resident_kib()
        self.indexer.child.send_signal(signal.SIGSTOP)
        self.addCleanup(lambda: self.indexer.child.send_signal(signal.SIGCONT))
        for i in range(10, 40 if SANITIZED else 220):
            publish(i)
        growth = agent.resident_kib() - before
        print(f"a stopped router cost its agent {growth} KiB")
        if not SANITIZED:
            self.assertLess(growth, 96 * KIB)
        engine.send(stored([2**41], None, [5, 6, 7, 8]))
        self.indexer.child.send_signal(signal.SIGCONT)
        # Not by its dump, which takes it longer than the events.
        settle(lambda: self.indexer.score([5, 6, 7, 8]), 4)
        settle(lambda: {block[4] for block in self.indexer.dumped(1, 0)}, {2**40, 2**41})


if __name__ == "__main__":
    main()

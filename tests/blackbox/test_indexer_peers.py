"""Recovery of `kvroute indexer` from its peers, rows 95 to 102 of the list of edge cases."""

import http.server
import json
import os
import queue
import socket
import tempfile
import threading
import unittest

from kvr_testlib import (A, B, C, D, DEADLINE, FakeEngine, Indexer, main, removed, settle, stored)


def url(indexer):
    return f"http://{indexer.client.host}:{indexer.client.port}"


def held_port(test):
    """A port that is nobody else's for the length of a test, and where nobody listens."""
    held = socket.socket()
    test.addCleanup(held.close)
    held.bind(("127.0.0.1", 0))
    return held


def url_of(held):
    return f"http://127.0.0.1:{held.getsockname()[1]}"


def serve(test, handler, held=None):
    """Answers with `handler` on a port of its own, or on a held one; returns the base URL."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler, bind_and_activate=False)
    if held is None:
        server.server_bind()
    else:
        server.socket.close()
        server.socket = held
    server.server_activate()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    test.addCleanup(thread.join)
    test.addCleanup(server.server_close)
    test.addCleanup(server.shutdown)
    return url_of(server.socket)


class FakePeer:
    """Answers GET /dump with a given body, and counts."""

    def __init__(self, test, body, content_type="application/json", status=200, cut_short=False,
                 held=None):
        peer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):  # pylint: disable=invalid-name
                peer.asked.append(self.path)
                text = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(text) + (9 if cut_short else 0)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):  # pylint: disable=arguments-differ
                pass

        self.asked = []
        self.url = serve(test, Handler, held)


def event(worker, blocks, parent=None, rank=0, tier="device"):
    return {"worker_id": worker, "storage_tier": tier,
            "event": {"event_id": 0, "dp_rank": rank,
                      "data": {"stored": {"parent_hash": parent, "blocks": [
                          {"block_hash": name, "tokens_hash": local} for name, local in blocks]}}}}


class Peers(unittest.TestCase):
    def indexer(self, *words):
        indexer = Indexer(*words)
        self.addCleanup(indexer.close)
        return indexer

    def engine(self, **more):
        engine = FakeEngine(**more)
        self.addCleanup(engine.close)
        return engine

    def ready(self, indexer):
        settle(lambda: indexer.client.get("/ready").status, 200)
        return indexer

    def recovered(self, peers, *words):
        return self.ready(self.indexer("--peers", peers, *words))

    def follow(self, indexer, engine, worker=1, **more):
        answer = indexer.register(worker, engine.endpoint, **{"replay": engine.replay, **more})
        self.assertEqual(answer.status, 201, answer)
        engine.wait_subscriber()

    def closed_port(self):
        return url_of(held_port(self))

    def dumps(self, indexer, outcome):
        return indexer.metrics().total("kvr_recovery_dumps_total", source="peer",
                                       outcome=outcome)

    def rejected(self, indexer, reason):
        return indexer.metrics().total("kvr_recovery_partitions_rejected_total", reason=reason)

    def filled(self, engine, model="m", **more):
        """An indexer that has followed `engine` from its first message."""
        first = self.indexer()
        self.follow(first, engine, model=model, **more)
        engine.send(stored([11, 12], None, A + B))
        engine.send(stored([13], 12, C), stored([11, 12], None, A + B, medium="CPU"))
        engine.send(removed([13]), stored([14], 12, D))
        settle(first.watermark, 2)
        settle(lambda: first.listener()["state"], "exact")
        return first

    def compare(self, one, other, **more):
        self.assertEqual(one.dumped(), other.dumped())
        for tokens in (A + B + D, A + B + C, A, B, A + B + D + C):
            left, right = (indexer.query(tokens, **more) for indexer in (one, other))
            left.pop("not_exact", None)
            right.pop("not_exact", None)
            self.assertEqual(left, right)
        self.assertEqual(one.score(A + B + D, **more), 12)

    def test_recovery_equals_and_the_stream_goes_on(self):
        engine = self.engine(replay=True)
        # The first asks for nothing, so each request below is of the second.
        first = self.filled(engine, model="llama3:8b", replay=None)
        second = self.recovered(url(first))
        self.follow(second, engine, model="llama3:8b")
        settle(lambda: second.listener()["state"], "degraded")
        settle(lambda: second.listener()["reason"], "recovered")
        self.compare(first, second, model="llama3:8b")
        starts = [int.from_bytes(frames[-1], "big") for frames in engine.requests]
        self.assertIn(2, starts)
        self.assertNotIn(0, starts)
        engine.send(stored([15], 14, C))
        settle(lambda: (first.watermark(), second.watermark()), (3, 3))
        self.assertEqual(second.score(A + B + D + C, model="llama3:8b"), 16)
        self.assertEqual(second.metrics().total("kvr_recovery_adopted_ranks_total"), 1)

    def test_recovery_without_replay(self):
        engine = self.engine()
        first = self.filled(engine)
        second = self.recovered(url(first))
        self.follow(second, engine)
        self.compare(first, second)
        engine.send(removed([14]))
        settle(lambda: (first.watermark(), second.watermark()), (3, 3))
        self.assertEqual(second.score(A + B + D), 8)
        settle(lambda: second.listener()["reason"], "recovered")

    def test_messages_missed_meanwhile_are_replayed(self):
        engine = self.engine(replay=True)
        first = self.filled(engine)
        second = self.recovered(url(first))
        engine.send(removed([14]))
        self.follow(second, engine)
        settle(second.watermark, 3)
        self.assertEqual(second.score(A + B + D), 8)

    def test_engine_that_started_anew_meanwhile(self):
        for replay in (False, True):
            with self.subTest(replay=replay):
                engine = self.engine(replay=replay)
                first = self.filled(engine)
                second = self.recovered(url(first))
                engine.close()
                successor = self.engine(replay=replay)
                self.follow(second, successor)
                successor.send(stored([21], None, C))
                settle(lambda: second.score(C), 4)
                self.assertEqual(second.score(A + B + D), 0)

    def test_workers_given_at_start_wait_for_the_dump(self):
        engine = self.engine(replay=True)
        first = self.filled(engine)
        second = self.recovered(url(first), "--workers", f"1={engine.endpoint}", "--block-size", 4,
                                "--model-name", "m")
        settle(lambda: second.listener()["reason"], "recovered")
        self.compare(first, second)

    def test_a_rank_with_events_of_its_own_is_not_touched(self):
        engine = self.engine(replay=True)
        first = self.filled(engine)
        peer = FakePeer(self, {"m:default": {"block_size": 4, "events": [event(1, [(99, 99)])]}})
        # Nobody answers at first, so the stream begins on its own.
        down = self.closed_port()
        second = self.recovered(down, "--config", self.config("recovery:\n  ready_wait_ms: 1\n"))
        self.follow(second, engine)
        settle(second.watermark, 2)
        self.compare(first, second)
        third = self.recovered(f"{down},{peer.url}")
        self.follow(third, engine)
        settle(third.watermark, 2)
        self.compare(first, third)  # rebuilt from message 0: without a watermark the replay decides

    def config(self, text):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False) as file:
            file.write(text)
        self.addCleanup(os.unlink, file.name)
        return file.name

    def test_row_95_second_peer(self):
        engine = self.engine()
        first = self.filled(engine)
        broken = FakePeer(self, b"<html>", content_type="text/html")
        short = FakePeer(self, {"m:default": {"block_size": 4, "events": []}}, cut_short=True)
        failing = FakePeer(self, {"error": "no"}, status=500)
        second = self.recovered(",".join([self.closed_port(), broken.url, short.url, failing.url,
                                          url(first)]))
        self.follow(second, engine)
        self.compare(first, second)
        self.assertEqual((self.dumps(second, "failed"), self.dumps(second, "recovered")), (4, 1))
        self.assertEqual(broken.asked, ["/dump?format=binary"])

    def test_a_peer_that_has_no_binary_form_is_asked_for_lines(self):
        first = self.filled(self.engine())
        asked = []

        class Older(http.server.BaseHTTPRequestHandler):
            """Knows what the indexer knows, and two forms to say it in."""

            def do_GET(self):  # pylint: disable=invalid-name
                asked.append(self.path)
                known = "binary" not in self.path
                body = first.client.get(self.path).body if known else b"{}"
                self.send_response(200 if known else 400)
                self.send_header("Content-Type", "application/x-ndjson")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):  # pylint: disable=arguments-differ
                pass

        second = self.recovered(serve(self, Older))
        self.assertEqual(asked, ["/dump?format=binary", "/dump?format=ndjson"])
        self.assertEqual(second.metrics().total("kvr_recovery_waiting_ranks"), 1)

    def test_of_a_damaged_binary_dump_whole_partitions_are_used(self):
        first = self.filled(self.engine())
        answer = first.client.get("/dump?format=binary")
        self.assertEqual(answer.headers["Content-Type"], "application/x-kvroute-dump")
        dump = answer.body
        damaged = bytearray(dump)
        damaged[len(dump) // 2] ^= 1
        for body, ranks in ((dump[:-1], 1), (bytes(damaged), 0), (dump[8:], 0)):
            peer = FakePeer(self, body, content_type="application/x-kvroute-dump")
            second = self.indexer("--peers", peer.url, "--config", self.config(
                "recovery:\n  retry_first_ms: 60000\n  retry_max_ms: 60000\n"))
            settle(lambda: self.dumps(second, "failed"), 1)  # pylint: disable=cell-var-from-loop
            self.assertEqual(self.dumps(second, "recovered"), 0)
            self.assertEqual(second.metrics().total("kvr_recovery_waiting_ranks"), ranks)

    def test_ranks_of_hybrid_models_begin_without_the_peer(self):
        engine, other = self.engine(), self.engine()
        first = self.indexer()
        self.follow(first, engine)
        self.follow(first, other, worker=2)
        window = {"group_idx": 1, "kv_cache_spec_kind": "sliding_window",
                  "kv_cache_spec_sliding_window": 4}
        engine.send(stored([11, 12], None, A + B, group_idx=0,
                           kv_cache_spec_kind="full_attention"),
                    stored([12], 11, B, **window))
        other.send(stored([11], None, A))
        settle(lambda: (first.watermark(), first.watermark(2)), (0, 0))
        second = self.recovered(url(first))
        self.assertEqual(second.metrics().total("kvr_recovery_waiting_ranks"), 1)
        self.follow(second, engine)
        self.follow(second, other, worker=2)
        self.assertEqual([second.score(A, worker) for worker in (1, 2)], [0, 4])

    def test_row_96_all_down(self):
        engine = self.engine()
        held = held_port(self)
        indexer = self.indexer("--peers", url_of(held), "--config", self.config(
            "recovery:\n  retry_first_ms: 20\n  retry_max_ms: 50\n  ready_wait_ms: 60000\n"))
        answer = indexer.client.get("/ready")
        self.assertEqual(answer.status, 503)
        self.assertRegex(answer.json["reasons"][0], "^recovering from (the snapshot and )?peers")
        self.assertEqual(indexer.client.get("/health").status, 200)
        self.follow(indexer, engine)  # starts empty
        engine.send(stored([11], None, A))
        settle(lambda: indexer.score(A), 4)
        settle(lambda: self.dumps(indexer, "failed"), lambda count: count >= 3)
        self.assertEqual(indexer.client.get("/ready").status, 503)
        FakePeer(self, {}, held=held)
        self.ready(indexer)
        self.assertEqual(self.dumps(indexer, "empty"), 1)

    def test_row_96_ready_waits_for_a_bounded_time(self):
        self.recovered(self.closed_port(), "--config", self.config("recovery:\n  ready_wait_ms: 50\n"))

    def silent_peers(self, count):
        """Their kernel accepts connections, and nothing else ever comes; the listening sockets."""
        peers = [held_port(self) for _ in range(count)]
        for peer in peers:
            peer.listen()
        return peers

    def test_silent_peers_hold_up_neither_streams_nor_ready(self):
        engine = self.engine(replay=True)
        engine.send(stored([11], None, A))
        peers = self.silent_peers(2)
        indexer = self.indexer(
            "--peers", ",".join(map(url_of, peers)), "--workers", f"1={engine.endpoint}",
            "--block-size", 4, "--model-name", "m", "--config", self.config(
                "recovery: {hold_ms: 100, ready_wait_ms: 200, idle_timeout_ms: 3600000}\n"))
        engine.wait_subscriber()  # its stream has begun
        engine.send(stored([12], 11, B))
        settle(indexer.watermark, 1)
        self.ready(indexer)
        self.assertIn("streams begin without", indexer.log())
        self.assertEqual(self.dumps(indexer, "failed"), 0)  # the first is still being asked
        asked, _ = peers[0].accept()
        self.addCleanup(asked.close)
        self.assertIn(b"GET /dump", asked.recv(1000))
        peers[1].setblocking(False)
        self.assertRaises(BlockingIOError, peers[1].accept)

    def test_an_end_while_a_peer_is_asked_is_nobodys_failure(self):
        for hold in (3_600_000, 0):
            with self.subTest(hold=hold):
                peers = self.silent_peers(2)
                indexer = self.indexer(
                    "--peers", ",".join(map(url_of, peers)), "--config", self.config(
                        f"recovery: {{hold_ms: {hold}, idle_timeout_ms: 3600000}}\n"))
                asked, _ = peers[0].accept()
                self.addCleanup(asked.close)
                self.assertIn(b"GET /dump", asked.recv(1000))
                if hold == 0:
                    settle(indexer.log, lambda log: "streams begin without" in log)
                before = indexer.log()
                self.assertEqual(indexer.stop(), 0)
                self.assertNotRegex(indexer.log()[len(before):], "warning|error|peer")

    def test_rows_97_98_bad_partitions_alone(self):
        engine = self.engine()
        good = event(1, [(11, 21), (12, 22)])
        peer = FakePeer(self, {
            "a:default": {"error": "it failed"},
            "b:default": {"block_size": 4, "events": [good, {"worker_id": 1}]},
            "c:default": {"block_size": "4", "events": [good]},
            "d:default": [good],
            "m:default": {"block_size": 8, "events": [good]},
            "n:n:default": {"events": [good, event(2, [(-1, 33)], tier="disk")], "block_size": 4},
        })
        indexer = self.indexer("--peers", peer.url, "--workers", f"7={engine.endpoint}",
                               "--block-size", 4, "--model-name", "m")
        self.ready(indexer)
        self.assertEqual({reason: self.rejected(indexer, reason)
                          for reason in ("peer_error", "malformed", "block_size", "too_large")},
                         {"peer_error": 1, "malformed": 3, "block_size": 1, "too_large": 0})
        self.assertEqual(indexer.register(1, engine.endpoint, model="n:n").status, 201)
        self.assertEqual(indexer.register(2, engine.endpoint, model="n:n").status, 201)
        self.assertEqual(indexer.dumped(), [(1, 0, "device", None, 11, 21),
                                            (1, 0, "device", 11, 12, 22),
                                            (2, 0, "disk", None, 2**64 - 1, 33)])
        answer = indexer.client.post("/query_by_hash",
                                     {"model_name": "n:n", "block_hashes": [21, 22, 23]})
        self.assertEqual(answer.json["scores"], {"1": {"0": 8}})

    def test_row_98_block_size_of_a_later_registration(self):
        engine = self.engine()
        first = self.filled(engine)
        second = self.recovered(url(first))
        self.follow(second, engine, block_size=8)
        self.assertEqual(second.dumped(), [])

    def test_row_99_unregistered_workers_are_dropped(self):
        engine = self.engine()
        first = self.filled(engine)
        second = self.recovered(url(first), "--peer-grace", 50)
        gone = "kvr_recovery_expired_ranks_total"
        settle(lambda: second.metrics().total(gone), 1)
        self.assertEqual(second.metrics().total("kvr_recovery_waiting_blocks"), 0)
        self.follow(second, engine)
        self.assertEqual(second.score(A + B + D), 0)

    def test_row_99_what_a_broken_dump_left_is_dropped_while_nobody_answers(self):
        partitions = {"m:default": {"block_size": 4, "events": [event(1, [(11, 21)])]}}
        broken = FakePeer(self, json.dumps(partitions)[:-1].encode())  # its last brace is missing
        indexer = self.indexer("--peers", broken.url, "--peer-grace", 50, "--config", self.config(
            "recovery:\n  retry_first_ms: 60\n  retry_max_ms: 60\n"))
        gone = "kvr_recovery_expired_ranks_total"
        settle(lambda: indexer.metrics().total(gone), lambda count: count >= 2)
        self.assertEqual(self.dumps(indexer, "recovered"), 0)

    def test_row_99_workers_given_at_start_have_no_grace_to_lose(self):
        engine = self.engine(replay=True)
        first = self.filled(engine)
        second = self.recovered(url(first), "--peer-grace", 0, "--workers", f"1={engine.endpoint}",
                                "--block-size", 4, "--model-name", "m")
        settle(lambda: second.listener()["reason"], "recovered")
        self.compare(first, second)

    def test_an_event_too_long_to_read_costs_the_watermark_only(self):
        head = {"partition": {"model_name": "m", "routing_group": "default", "block_size": 4,
                              "watermarks": {"1": {"0": 0}}, "states": {"1": {"0": "exact"}}}}
        long = json.dumps(event(2, [(5, 5)])).replace(" ", " " * (1 << 20), 17)
        text = "\n".join([json.dumps(head, separators=(",", ":")), long,
                          json.dumps(event(1, [(11, 21)])), ""])
        peer = FakePeer(self, text.encode(), content_type="application/x-ndjson")
        second = self.recovered(peer.url)
        metrics = second.metrics()
        self.assertEqual(metrics.total("kvr_recovery_events_rejected_total",
                                       reason="too_large"), 1)
        self.assertEqual(self.dumps(second, "recovered"), 1)
        engine = self.engine(replay=True)
        engine.send(stored([11], None, A))
        self.follow(second, engine)
        settle(second.watermark, 0)
        starts = [int.from_bytes(frames[-1], "big") for frames in engine.requests]
        self.assertIn(0, starts)  # and not from a watermark of the peer's

    def test_row_99_quarantine_is_in_no_answer(self):
        first = self.filled(self.engine())
        second = self.recovered(url(first))
        self.assertEqual(second.metrics().total("kvr_recovery_waiting_ranks"), 1)
        self.assertEqual(second.dump(), {})
        answer = second.client.post("/query", {"model_name": "m", "token_ids": A})
        self.assertEqual(answer.status, 404)

    def test_row_101_self(self):
        started = queue.Queue()

        class Forward(http.server.BaseHTTPRequestHandler):
            """Another address of the indexer."""

            def do_GET(self):  # pylint: disable=invalid-name
                answer = started.get(timeout=DEADLINE).client.get(self.path)
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    if name.lower() != "transfer-encoding":
                        self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, *_):  # pylint: disable=arguments-differ
                pass

        indexer = self.indexer("--peers", serve(self, Forward))
        started.put(indexer)
        self.ready(indexer)
        self.assertEqual((self.dumps(indexer, "self"), self.dumps(indexer, "failed")), (1, 0))

    def test_row_102_the_list_of_peers(self):
        indexer = self.indexer()
        client = indexer.client
        self.assertEqual(client.get("/peers").json, [])
        peer = {"url": "http://10.0.0.1:8090"}
        for _ in range(2):
            answer = client.post("/register_peer", peer)
            self.assertEqual((answer.status, answer.json), (201, {"status": "ok"}))
        for bad in ("abc", "", "ftp://a:1", "http://", "http://a:70000"):
            self.assertEqual(client.post("/register_peer", {"url": bad}).status, 400, bad)
        self.assertEqual(client.post("/register_peer", {}).status, 422)
        self.assertEqual(client.post("/register_peer", {"url": 5}).status, 422)
        self.assertEqual(client.get("/peers").json, [peer["url"]])
        self.assertEqual(client.post("/deregister_peer", peer).status, 200)
        answer = client.post("/deregister_peer", peer)
        self.assertEqual((answer.status, answer.json["error"]), (404, "peer not found"))
        self.assertEqual(client.get("/peers").json, [])

    def test_peers_given_at_start_are_listed(self):
        down = self.closed_port()
        self.assertEqual(self.indexer("--peers", down).client.get("/peers").json, [down])


class Parameters(unittest.TestCase):
    def test_query_parameters_are_checked(self):
        indexer = Indexer()
        self.addCleanup(indexer.close)
        for path in ("/workers?model_name=%zz", "/workers?routing_group=%", "/dump?model_name=%4",
                     "/dump?routing_group=%zz", "/dump?format=%zz", "/dump?format=xyz",
                     "/dump?format="):
            answer = indexer.client.get(path)
            self.assertEqual((answer.status, answer.json["code"]), (400, "invalid_argument"), path)
        self.assertEqual(indexer.client.get("/dump?format=json").json, {})
        self.assertEqual(indexer.client.get("/workers?model_name=%41").json, [])


if __name__ == "__main__":
    main()

"""HTTP behaviour of `kvroute indexer`, row by row of the list of edge cases, rows 1 to 66 and 175
to 189. A row that needs more tokens than memory holds (64) is a unit test of the answers; rows on
path parameters (16, 17) have no route here; peers and access logs (188 to 190) have files of their
own."""

import concurrent.futures
import json
import os
import re
import signal
import socket
import socketserver
import tempfile
import threading
import unittest

from kvr_testlib import (A, B, C, D, Client, FakeEngine, Indexer, IndexerTest, batch, main, pack,
                         removed, run_to_end, settle, stored)

DEEP = '{"token_ids":' + "[" * 1000 + "]" * 1000 + "}"
JSON = {"Content-Type": "application/json"}
POSTS = ("/register", "/unregister", "/query", "/query_by_hash")


class HangsUp(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def registration(**more):
    return {"instance_id": 900, "endpoint": "tcp://127.0.0.1:9", "model_name": "table",
            "block_size": 16, **more}


def query(**more):
    return {"model_name": "m", "token_ids": [1, 2, 3, 4], **more}


def hashes(**more):
    return {"model_name": "m", "block_hashes": [1], **more}


def without(body, field):
    return {key: value for key, value in body.items() if key != field}


def raw(body, old, new):
    """The JSON text with one piece of text replaced, for what json.dumps cannot write."""
    text = json.dumps(body)
    assert old in text
    return text.replace(old, new)


def config_file(test, yaml):
    """The name of a file that goes with the test."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False) as file:
        file.write(yaml)
    test.addCleanup(os.unlink, file.name)
    return file.name


# (row, path, body, status, part of the error message, error code or None)
REFUSALS = [
    *((f"1{path}", path, "{", 400, "", "bad_json") for path in POSTS),
    *((f"2{path}", path, "", 400, "", "bad_json") for path in POSTS),
    ("2 blank", "/query", " \n", 400, "", "bad_json"),
    ("1 array", "/query", "[]", (400, 422), "object", None),
    ("1 trailing", "/query", raw(query(), "]}", "]}}"), 400, "", "bad_json"),
    ("1 trailing value", "/query", json.dumps(query()) + " 7", 400, "", "bad_json"),
    ("1 single quotes", "/query", "{'model_name':'m'}", 400, "", "bad_json"),
    ("4", "/register", without(registration(), "instance_id"), 422, "instance_id", None),
    ("4", "/register", without(registration(), "endpoint"), 422, "endpoint", None),
    ("4", "/register", without(registration(), "model_name"), 422, "model_name", None),
    ("4", "/register", without(registration(), "block_size"), 422, "block_size", None),
    ("4", "/query", without(query(), "token_ids"), 422, "token_ids", None),
    ("4", "/query", without(query(), "model_name"), 422, "model_name", None),
    ("4", "/query_by_hash", without(hashes(), "block_hashes"), 422, "block_hashes", None),
    ("4", "/unregister", {"model_name": "m"}, 422, "instance_id", None),
    ("4", "/unregister", {"instance_id": 1}, 422, "model_name", None),
    ("4 null", "/register", registration(block_size=None), 422, "block_size", None),
    ("5", "/register", registration(block_size="16"), 422, "block_size", None),
    ("5", "/register", registration(instance_id="1"), 422, "instance_id", None),
    ("5", "/register", registration(endpoint=5), 422, "endpoint", None),
    ("5", "/register", registration(model_name=["m"]), 422, "model_name", None),
    ("5", "/register", registration(dp_rank=1.5), 422, "dp_rank", None),
    ("5", "/register", registration(dp_rank=True), 422, "dp_rank", None),
    ("5", "/register", registration(replace="yes"), 422, "replace", None),
    ("5", "/query", query(token_ids="1"), 422, "token_ids", None),
    ("5", "/query", query(lora_name=1), 422, "lora_name", None),
    ("5", "/query", query(cache_salt={}), 422, "cache_salt", None),
    ("7", "/query", raw(query(), '{"model_name"', '{"model_name": "x", "model_name"'), 422,
     "model_name", None),
    ("7 unused field", "/query", raw(query(), "{", '{"x":1,"x":2,'), 422, "x", None),
    ("11", "/query", DEEP, 400, "deep", "bad_json"),
    ("11 objects", "/query", '{"a":' * 1000 + "1" + "}" * 1000, 400, "", "bad_json"),
    ("11 open", "/query", "[" * 200_000, 400, "", "bad_json"),
    ("12", "/query", b'{"model_name":"\xff\xfe","token_ids":[]}', 400, "", "bad_json"),
    ("12 surrogate", "/query", r'{"model_name":"\ud800","token_ids":[]}', 400, "", "bad_json"),
    ("12 control", "/query", b'{"model_name":"a\x01","token_ids":[]}', 400, "", "bad_json"),
    *((f"13 {word}", "/query", raw(query(), "4]", word + "]"), 400, "", "bad_json")
      for word in ("NaN", "nan", "Infinity", "-Infinity", "+1", "01", "1.", ".5", "-", "1e", "0x1",
                   "--1", "1.e3")),
    ("25", "/register", registration(block_size=0), 400, "block_size", None),
    ("26", "/register", registration(block_size=-1), 422, "block_size", None),
    ("26", "/register", registration(block_size=2**32), 422, "block_size", None),
    ("26 far", "/register", registration(block_size=2**70), 422, "", None),
    ("27", "/register", registration(instance_id=-1), 422, "instance_id", None),
    ("27", "/register", registration(instance_id=2**64), 422, "", None),
    ("27", "/register", raw(registration(), "900", "900.0"), 422, "instance_id", None),
    ("27", "/unregister", {"instance_id": -1, "model_name": "m"}, 422, "instance_id", None),
    ("29", "/register", registration(endpoint="http://x:1"), 400, "unsupported scheme", None),
    ("29", "/register", registration(endpoint="x"), 400, "missing scheme", None),
    ("29", "/register", registration(endpoint="tcp://"), 400, "missing address", None),
    ("29", "/register", registration(endpoint=""), 400, "invalid ZMQ endpoint", None),
    ("30", "/register", registration(endpoint="tcp://host"), 400, "missing TCP port", None),
    ("30", "/register", registration(endpoint="tcp://:1"), 400, "missing TCP host", None),
    ("30", "/register", registration(endpoint="tcp://h:99999"), 400, "invalid TCP port", None),
    ("30", "/register", registration(endpoint="tcp://h:"), 400, "port", None),
    ("30", "/register", registration(endpoint="tcp://h:x"), 400, "invalid TCP port", None),
    ("30", "/register", registration(endpoint="tcp://h:-1"), 400, "invalid TCP port", None),
    ("30", "/register", registration(endpoint="tcp://a b:1"), 400, "invalid ZMQ endpoint", None),
    ("30", "/register", registration(endpoint="ipc://" + "x" * 300), 400, "invalid ZMQ endpoint",
     None),
    ("30", "/register", registration(endpoint="tcp://a\0b:1"), 400, "NUL", None),
    ("30", "/register", registration(endpoint="tcp://[::1:5557"), 400, "]", None),
    ("31", "/register", registration(endpoint="tcp://::1:5557"), 400, "bracket", None),
    ("32", "/register", registration(replay_endpoint="http://x:1"), 400,
     "invalid replay endpoint `http://x:1`: ", None),
    ("33", "/register", registration(endpoint="tcp://*:5557"), 400, "*", None),
    ("33", "/register", registration(replay_endpoint="tcp://*:5557"), 400, "*", None),
    ("33 zero", "/register", registration(endpoint="tcp://h:0"), 400, "port", None),
    ("35", "/register", registration(model_name=""), 400, "model_name", None),
    ("35", "/register", registration(routing_group=""), 400, "routing_group", None),
    ("36", "/register", registration(model_name="x" * 10240), 400, "512", None),
    ("38", "/register", registration(tenant_id=5), 422, "tenant_id", None),
    ("38", "/query", query(tenant_id=5), 422, "tenant_id", None),
    ("41", "/unregister", {"instance_id": 77, "model_name": "m"}, 404, "77", None),
    ("47", "/query", query(model_name="nobody"), 404,
     "no indexer for model=nobody routing_group=default", None),
    ("47", "/query_by_hash", hashes(model_name="nobody"), 404, "no indexer for model=nobody", None),
    ("48", "/query", query(routing_group="g"), 404, "no indexer for model=m routing_group=g", None),
    *((f"51 {word}", "/query", raw(query(), "3,", word + ","), 422, "[2]", None)
      for word in ("-1", "4294967296", "1.5", '"7"', "null", "true", "[]", "{}", "1e3", "3.0")),
    ("51 far", "/query", raw(query(), "3,", str(2**80) + ","), 422, "", None),
    ("54", "/query", " " * (9 << 20), 413, str(8 << 20), None),
    ("8 others", "/register", " " * (3 << 20), 413, str(2 << 20), None),
    ("8 others", "/query_by_hash", " " * (3 << 20), 413, str(2 << 20), None),
    ("58", "/query_by_hash", hashes(cache_salt="s"), 400,
     "cache_salt is not accepted by /query_by_hash; block_hashes must already include the intended "
     "cache salt", None),
    ("58 empty", "/query_by_hash", hashes(cache_salt=""), 400, "cache_salt", None),
    ("58 number", "/query_by_hash", hashes(cache_salt=5), (400, 422), "cache_salt", None),
    ("61 kind", "/query_by_hash", hashes(kind="token"), 400, "kind `token`", None),
    ("60 beyond", "/query_by_hash", hashes(block_hashes=[2**64]), 422, "", None),
    ("60 beyond", "/query_by_hash", hashes(block_hashes=[-2**63 - 1]), 422, "", None),
    ("60 type", "/query_by_hash", hashes(block_hashes=[1, "2"]), 422, "[1]", None),
    ("60 type", "/query_by_hash", hashes(block_hashes=5), 422, "block_hashes", None),
]


class Table(IndexerTest):
    """Requests that are refused, and leave no trace."""

    def test_refusals(self):
        self.indexer.register(1, "tcp://127.0.0.1:9")
        before = self.indexer.client.get("/workers").json
        for row, path, body, status, part, code in REFUSALS:
            with self.subTest(row=row, path=path, body=str(body)[:200]):
                answer = self.indexer.client.request("POST", path, body, JSON)
                statuses = status if isinstance(status, tuple) else (status,)
                self.assertIn(answer.status, statuses, answer)
                self.assertEqual(answer.headers["Content-Type"], "application/json")
                self.assertIn(part, answer.json["error"])
                self.assertIsInstance(answer.json["code"], str)
                if code:
                    self.assertEqual(answer.json["code"], code)
        after = self.indexer.client.get("/workers").json
        self.assertEqual([w["instance_id"] for w in after], [w["instance_id"] for w in before])

    def test_rows_3_content_type(self):
        body = json.dumps(query())
        self.indexer.register(1, "tcp://127.0.0.1:9")
        for headers, status in (({"Content-Type": "text/plain"}, 415), ({}, 415),
                                ({"Content-Type": "application/json; charset=utf-8"}, 200),
                                ({"Content-Type": "Application/JSON"}, 200),
                                ({"Content-Type": "application/jsonx"}, 415)):
            with self.subTest(headers=headers):
                answer = self.indexer.client.post("/query", body, headers)
                self.assertEqual(answer.status, status, answer)
                if status == 415:
                    self.assertIn("application/json", answer.json["error"])

    def test_bodies_in_messagepack(self):
        self.indexer.register(1, "tcp://127.0.0.1:9")
        client = self.indexer.client
        for content_type in ("application/msgpack", "application/x-msgpack; v=5"):
            headers = {"Content-Type": content_type}
            for path, body in (("/query", query(include_zero=True)), ("/query", query(cache_salt="s")),
                               ("/query_by_hash", hashes(block_hashes=[-1, 2**64 - 1]))):
                with self.subTest(type=content_type, path=path, body=body):
                    answer = client.post(path, pack(body), headers)
                    self.assertEqual(answer.status, 200, answer)
                    self.assertEqual(answer.json, client.post(path, body).json)
            for path, body, status, part in (
                    ("/query", b"", 400, "empty"), ("/query", b"{}", 400, "must be a MessagePack map"),
                    ("/query", b"\x81", 400, "truncated"),
                    ("/query", pack(query()) + b"\xc0", 400, "goes on after"),
                    ("/query", pack(query(token_ids=[1, -1])), 422, "`token_ids`[1]"),
                    ("/query", pack(without(query(), "token_ids")), 422, "missing field `token_ids`"),
                    ("/query_by_hash", pack(hashes(block_hashes=[1, "2"])), 422, "`block_hashes`[1]"),
                    ("/register", pack(registration()), 415, "application/json")):
                with self.subTest(type=content_type, path=path, body=body):
                    answer = client.post(path, body, headers)
                    self.assertEqual(answer.status, status, answer)
                    self.assertIn(part, answer.json["error"])

    def test_rows_9_10_18_routes(self):
        client = self.indexer.client
        for path in ("/", "/nothing", "/query/", "/health/x", "//query"):
            answer = client.get(path)
            self.assertEqual(answer.status, 404, path)
            self.assertIn("error", answer.json)
        for method, path, allow in (("GET", "/query", "POST"), ("POST", "/health", "GET"),
                                    ("DELETE", "/workers", "GET"), ("PUT", "/register", "POST"),
                                    ("POST", "/dump", "GET"), ("PATCH", "/metrics", "GET")):
            answer = client.request(method, path, "{}" if method != "GET" else None)
            self.assertEqual(answer.status, 405, (method, path))
            self.assertIn(allow, answer.headers["Allow"])
            self.assertIn("error", answer.json)
        self.assertEqual(client.request("HEAD", "/health").status, 200)
        self.assertEqual(client.get("/health?x=1").status, 200)
        self.assertEqual(client.get("/health").body, b"")
        self.assertEqual(client.get("/ready").status, 200)
        self.assertEqual(client.get("/workers").json, [])
        self.assertEqual(client.get("/dump").json, {})

    def test_row_6_unknown_fields(self):
        answer = self.indexer.client.post("/register", registration(blok_size=4, dp=1))
        self.assertEqual(answer.status, 201)
        self.assertEqual(answer.json["status"], "ok")
        self.assertEqual(len(answer.json["warnings"]), 2)
        self.assertIn("blok_size", answer.json["warnings"][0])
        answer = self.indexer.client.post("/query", query(model_name="table", toke_ids=[]))
        self.assertEqual(answer.status, 200)
        self.assertIn("toke_ids", answer.json["warnings"][0])


class Strict(IndexerTest):
    words = ("--strict", "--repeat-is-conflict")

    def test_row_6_strict(self):
        answer = self.indexer.client.post("/register", registration(blok_size=4))
        self.assertEqual(answer.status, 422)
        self.assertIn("blok_size", answer.json["error"])
        self.assertEqual(self.indexer.workers(), {})
        self.assertEqual(self.indexer.client.post("/register", registration()).status, 201)
        answer = self.indexer.client.post("/register", registration(additional_salt="s"))
        self.assertEqual(answer.status, 409)  # the field is known; row 20 as the reference has it
        self.assertIn("instance 900 dp_rank 0 already registered", answer.json["error"])


class Limits(unittest.TestCase):
    def start(self, yaml):
        indexer = Indexer("--config", config_file(self, yaml))
        self.addCleanup(indexer.close)
        return indexer

    def test_row_14_slow_clients(self):
        indexer = self.start("server: {header_timeout_ms: 200, body_timeout_ms: 200}\n")
        for text in (b"POST /query HT", b"POST /query HTTP/1.1\r\nHost: x\r\nContent-Type: appl",
                     b"POST /query HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                     b"Content-Length: 50\r\n\r\n{\"mod"):
            with self.subTest(text=text), indexer.client.connect() as connection:
                connection.sendall(text)
                answer = b""
                while piece := connection.recv(4096):
                    answer += piece
                self.assertTrue(answer.startswith(b"HTTP/1.1 408"), answer)
        self.assertEqual(indexer.client.get("/health").status, 200)

    def test_row_15_connection_cap(self):
        indexer = self.start("server: {connections_max: 4}\n")
        held = []
        self.addCleanup(lambda: [connection.close() for connection in held])
        for _ in range(4):
            connection = indexer.client.connect()
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertIn(b" 200 ", connection.recv(4096))
            held.append(connection)
        answer = indexer.client.get("/health")
        self.assertEqual(answer.status, 503)
        self.assertIn("Retry-After", answer.headers)
        held.pop().close()
        settle(lambda: indexer.client.get("/health").status, 200)

    def test_row_8_limit_is_an_option(self):
        indexer = self.start("server: {query_bytes_max: 1000, body_bytes_max: 500}\n")
        for path, limit in (("/query", 1000), ("/register", 500)):
            answer = indexer.client.post(path, " " * (limit + 1))
            self.assertEqual(answer.status, 413)
            self.assertIn(str(limit), answer.json["error"])
            self.assertEqual(indexer.client.post(path, " " * limit).status, 400)

    def test_rows_10_and_pipelining(self):
        indexer = self.start("server: {}\n")
        with indexer.client.connect() as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
                               b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n"
                               b"GET /ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = b""
            while piece := connection.recv(4096):
                answer += piece
        statuses = re.findall(rb"HTTP/1.1 (\d+) ", answer)
        self.assertEqual(statuses, [b"200", b"404", b"200"])


class Register(IndexerTest):
    def register(self, status, worker=1, endpoint="tcp://127.0.0.1:9", **more):
        answer = self.indexer.register(worker, endpoint, **more)
        self.assertEqual(answer.status, status, answer)
        return answer.json

    def test_rows_19_to_22(self):
        self.assertEqual(self.register(201), {"status": "ok"})
        self.assertEqual(self.register(200), {"status": "unchanged"})
        error = self.register(409, endpoint="tcp://127.0.0.1:10")["error"]
        self.assertIn("instance 1 dp_rank 0 already registered", error)
        self.register(409, replay="tcp://127.0.0.1:10")
        self.register(201, rank=1)
        self.register(201, endpoint="tcp://127.0.0.1:10", replace=True)
        self.assertEqual(self.indexer.workers()[1]["endpoints"],
                         {"0": "tcp://127.0.0.1:10", "1": "tcp://127.0.0.1:9"})

    def test_row_21_replace_forgets_what_the_old_stream_said(self):
        engine = self.engine(1)
        self.send(engine, stored([11], None, A))
        self.expect(A, 4)
        other = self.engine(1, register=False)
        self.assertEqual(self.indexer.register(1, other.endpoint, replace=True).status, 201)
        self.expect(A, 0)
        other.wait_subscriber()
        engine.send(stored([12], 11, B))
        self.send(other, stored([21], None, B))
        self.expect(B, 4)
        self.expect(A + B, 0)

    def test_rows_23_24(self):
        self.register(201)
        error = self.register(409, model="other")["error"]
        self.assertIn("instance 1 is already registered for model=m routing_group=default", error)
        self.register(409, rank=1, routing_group="g")
        error = self.register(409, worker=2, block_size=8)["error"]
        self.assertIn("block_size mismatch for model=m routing_group=default: existing=4, "
                      "requested=8", error)
        self.register(409, rank=1, block_size=8)
        self.assertEqual(list(self.indexer.workers()), [1])
        self.register(201, worker=2, routing_group="g", block_size=8)

    def test_row_28_largest_id(self):
        worker = 2**64 - 1
        engine = self.engine(worker)
        self.send(engine, stored([11], None, A))
        self.assertEqual(self.indexer.scores(A), {(worker, 0): 4})
        self.assertIn(str(worker).encode(), self.indexer.client.get("/workers").body)
        self.assertEqual(self.indexer.dumped()[0][0], worker)
        self.assertEqual(self.indexer.unregister(worker).status, 200)

    def test_row_28_largest_rank(self):
        self.register(201, rank=2**32 - 1)
        self.assertEqual(list(self.indexer.workers()[1]["listeners"]), [str(2**32 - 1)])

    def test_no_publisher_at_the_endpoint(self):
        """D-9: what answers there and hangs up is a failed listener with a reason, and no wait."""
        stranger = socketserver.TCPServer(("127.0.0.1", 0), HangsUp)
        thread = threading.Thread(target=stranger.serve_forever)
        thread.start()
        self.addCleanup(lambda: (stranger.shutdown(), thread.join(), stranger.server_close()))
        self.register(201, endpoint=f"tcp://127.0.0.1:{stranger.server_address[1]}")
        settle(lambda: self.indexer.listener()["status"], "failed")
        listener = self.indexer.listener()
        self.assertEqual((listener["state"], listener["reason"]), ("blind", "refused"))
        self.assertIn("kv-events-config", listener["last_error"])
        self.assertEqual(self.indexer.workers()[1]["status"], "failed")
        self.assertEqual(self.indexer.metrics().total("kvr_indexer_listeners", status="failed"), 1)

    def test_row_34_unreachable(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.register(201, endpoint=f"tcp://127.0.0.1:{port}")
        listener = self.indexer.listener()
        self.assertEqual((listener["status"], listener["connected"]), ("connecting", False))
        self.assertEqual(self.indexer.workers()[1]["status"], "connecting")
        self.assertEqual(self.indexer.metrics().total("kvr_indexer_listeners", status="connecting"),
                         1)
        engine = FakeEngine(endpoint=f"tcp://127.0.0.1:{port}")
        self.addCleanup(engine.close)
        settle(lambda: self.indexer.listener()["status"], "active")
        self.assertEqual(self.indexer.metrics().total("kvr_indexer_listeners", status="active"), 1)

    def test_row_36_names(self):
        for worker, name in enumerate(("a:b", "a/b c", "ü\u0001\"\\", "x" * 512), start=1):
            self.register(201, worker=worker, model=name, routing_group="g:h")
            self.assertEqual(self.indexer.query([], model=name, routing_group="g:h")["scores"], {})
        dump = self.indexer.dump()
        found = {(part["model_name"], part["routing_group"]) for part in dump.values()}
        self.assertIn(("a:b", "g:h"), found)
        self.assertEqual(len(found), 4)
        # One name that reads like another pair of names is still another partition.
        self.register(201, worker=9, model="a", routing_group="b:g:h")
        self.assertEqual(len({(part["model_name"], part["routing_group"])
                              for part in self.indexer.dump().values()}), 5)

    def test_row_37_tenant(self):
        answer = self.register(201, tenant_id="t")
        self.assertEqual(len(answer["warnings"]), 1)
        self.assertIn("tenant_id", answer["warnings"][0])
        self.assertNotIn(b"tenant", self.indexer.client.get("/workers").body)
        self.assertNotIn("warnings", self.register(200, tenant_id=None))

    def test_row_40_concurrent(self):
        for worker in range(10):
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                statuses = sorted(answer.status for answer in pool.map(
                    lambda _, w=worker: self.indexer.register(w, "tcp://127.0.0.1:9"), range(4)))
            self.assertEqual(statuses, [200, 200, 200, 201])

    def test_workers_filter(self):
        self.register(201)
        self.register(201, worker=2, routing_group="g&h", block_size=8)
        self.register(201, worker=3, model="n o")
        get = self.indexer.client.get
        ids = lambda path: sorted(w["instance_id"] for w in get(path).json)
        self.assertEqual(ids("/workers"), [1, 2, 3])
        self.assertEqual(ids("/workers?model_name=m"), [1, 2])
        self.assertEqual(ids("/workers?routing_group=g%26h"), [2])
        self.assertEqual(ids("/workers?model_name=n%20o&routing_group=default"), [3])
        self.assertEqual(ids("/workers?model_name=n+o"), [3])
        self.assertEqual(ids("/workers?model_name=zzz"), [])
        entry = [w for w in get("/workers?model_name=m&routing_group=default").json][0]
        self.assertEqual((entry["source"], entry["block_size"], entry["endpoints"]),
                         ("zmq", 4, {"0": "tcp://127.0.0.1:9"}))


class Gate(unittest.TestCase):
    def test_row_39_minimum_of_workers(self):
        indexer = Indexer("--min-initial-workers", 2)
        self.addCleanup(indexer.close)
        answer = indexer.client.get("/ready")
        self.assertEqual((answer.status, answer.json["ready"]), (503, False))
        self.assertIn("2", answer.json["reasons"][0])
        self.assertEqual(indexer.client.get("/health").status, 200)
        indexer.register(1, "tcp://127.0.0.1:9")
        self.assertEqual(indexer.client.get("/ready").status, 503)
        indexer.register(2, "tcp://127.0.0.1:9")
        self.assertEqual(indexer.client.get("/ready").status, 200)

    def test_ready_requires_exact(self):
        indexer = Indexer("--ready-requires-exact")
        self.addCleanup(indexer.close)
        engine = FakeEngine()
        self.addCleanup(engine.close)
        indexer.register(1, engine.endpoint)
        engine.wait_subscriber()
        self.assertEqual(indexer.client.get("/ready").status, 503)
        engine.send(stored([11], None, A))
        settle(lambda: indexer.client.get("/ready").status, 200)


class Unregister(IndexerTest):
    def test_rows_42_43(self):
        first, second = self.engine(1), self.engine(1, rank=1)
        self.send(first, stored([11], None, A))
        self.send(second, stored([11], None, A))
        self.assertEqual(self.indexer.unregister(1, model="n").status, 404)
        self.assertEqual(self.indexer.unregister(1, routing_group="g").status, 404)
        self.assertEqual(self.indexer.unregister(1, dp_rank=7).status, 404)
        self.assertEqual(self.indexer.scores(A), {(1, 0): 4, (1, 1): 4})
        answer = self.indexer.unregister(1, dp_rank=1)
        self.assertEqual((answer.status, answer.json), (200, {"status": "ok"}))
        self.assertEqual(self.indexer.scores(A), {(1, 0): 4})
        self.assertEqual(list(self.indexer.workers()[1]["listeners"]), ["0"])

    def test_all_ranks(self):
        for rank in range(3):
            self.send(self.engine(1, rank=rank), stored([11], None, A))
        self.assertEqual(self.indexer.unregister(1).status, 200)
        self.assertEqual(self.indexer.scores(A), {})
        self.assertEqual(self.indexer.dumped(), [])
        self.assertEqual(self.indexer.unregister(1).status, 404)

    def test_row_44_partition_stays_for_a_grace_period(self):
        self.send(self.engine(1), stored([11], None, A))
        self.indexer.unregister(1)
        answer = self.indexer.query(A)
        self.assertEqual((answer["scores"], answer["instances"], answer["frequencies"]),
                         ({}, {}, []))
        # Nobody holds on to the old block size.
        self.assertEqual(self.indexer.register(2, "tcp://127.0.0.1:9", block_size=8).status, 201)

    def test_row_45_during_a_replay(self):
        engine = FakeEngine(replay=True)
        self.addCleanup(engine.close)
        engine.replay_paused.set()
        engine.publish(0, [stored([11], None, A)], live=False)
        self.indexer.register(1, engine.endpoint, replay=engine.replay)
        engine.wait_subscriber()
        engine.publish(1, [stored([12], 11, B)])
        self.assertEqual(self.indexer.unregister(1).status, 200)
        engine.replay_paused.clear()
        self.assertEqual(self.indexer.dumped(), [])
        self.assertEqual(self.indexer.workers(), {})
        other = self.engine(1)
        self.send(other, stored([21], None, C))
        self.assertEqual([block[4] for block in self.indexer.dumped()], [21])

    def test_row_46_register_at_once(self):
        engine = self.engine(1)
        for i in range(2000):
            engine.publish(i, [stored([1000 + i], None, [i, 0, 0, 0])])
        quiet = self.engine(1, register=False)
        self.indexer.unregister(1)
        self.indexer.register(1, quiet.endpoint)
        quiet.wait_subscriber()
        self.send(quiet, stored([21], None, A))
        self.assertEqual([block[4] for block in self.indexer.dumped()], [21])

    def test_rows_44_to_46_grace_over(self):
        indexer = Indexer("--config", config_file(self, "index: {partition_grace_ms: 50}\n"))
        self.addCleanup(indexer.close)
        indexer.register(1, "tcp://127.0.0.1:9")
        indexer.unregister(1)
        settle(lambda: indexer.client.post("/query", query()).status, 404)


class Query(IndexerTest):
    def setUp(self):
        super().setUp()
        self.source = self.engine(1)
        self.send(self.source, stored([11, 12, 13], None, A + B + C))

    def test_answer_shape(self):
        other = self.engine(2)
        self.send(other, stored([11], None, A), stored([12], 11, B, medium="CPU"))
        answer = self.indexer.query(A + B + C)
        self.assertEqual(answer["scores"], {"1": {"0": 12}, "2": {"0": 4}})
        self.assertEqual(answer["frequencies"], [2, 1, 1])
        self.assertEqual(answer["instances"], {
            "1": {"longest_matched": 12, "gpu": 12, "dp": {"0": 12}, "cpu": 12, "disk": 12},
            "2": {"longest_matched": 8, "gpu": 4, "dp": {"0": 4}, "cpu": 8, "disk": 8}})

    def test_rows_49_50_52_55_62_63(self):
        for tokens, want in (([], 0), ([1, 2, 3], 0), (A + [5], 4), (A + B + [9, 10], 8),
                             ([4294967295] * 4, 0), (D + A, 0), (A + D + C, 4), (A + B + C + D, 12),
                             ([0] + A, 0)):
            with self.subTest(tokens=tokens):
                self.assertEqual(self.indexer.scores(tokens), {(1, 0): want} if want else {})
        self.assertEqual(self.indexer.query([])["instances"], {})
        shown = self.indexer.query(D, include_zero=True)
        self.assertEqual(shown["scores"], {"1": {"0": 0}})
        self.assertEqual(shown["instances"]["1"]["gpu"], 0)

    def test_row_53_a_million_tokens(self):
        tokens = A + B + C + [7] * (1_000_000 - 12)
        self.assertEqual(self.indexer.score(tokens), 12)

    def test_rows_56_57_namespaces(self):
        self.expect(A, 4, lora_name="")
        self.expect(A, 4, cache_salt="")
        self.expect(A, 4, lora_name=None, cache_salt=None)
        self.expect(A, 0, lora_name="x")
        self.expect(A, 0, cache_salt="x")
        self.send(self.source, stored([21], None, A, cache_salt="s"),
                  stored([31], None, A, lora_name="l"),
                  stored([41], None, A, lora_name="l", cache_salt="s"))
        # The published vectors of the hashing contract.
        by_hash = {block[4]: block[5] for block in self.indexer.dumped()}
        self.assertEqual(by_hash[11], 14643705804678351452)
        self.assertEqual(by_hash[12], 16777012769546811212)
        self.assertEqual(by_hash[13], 483935686894639516)
        self.send(self.source, removed([11, 12, 13, 21, 31, 41]))
        for hashed, namespace, want in (
                (51, {"lora_name": "sql"}, 14015314787876343978),
                (52, {"cache_salt": "tenant-a"}, 5738685477468498325),
                (53, {"lora_name": "sql", "cache_salt": "tenant-a"}, 2292810287918939514)):
            self.send(self.source, stored([hashed], None, A, **namespace))
            self.assertEqual([b[5] for b in self.indexer.dumped() if b[4] == hashed], [want])
            self.expect(A, 4, **namespace)
        self.expect(A, 0)
        self.expect(A, 0, cache_salt="tenant-b")
        self.expect(A, 0, lora_name="sql", cache_salt="tenant-b")

    def by_hash(self, block_hashes, **more):
        answer = self.indexer.client.post(
            "/query_by_hash", {"block_hashes": block_hashes, "model_name": "m", **more})
        self.assertEqual(answer.status, 200, answer)
        return answer.json["scores"].get("1", {}).get("0", 0)

    def test_rows_59_to_61_by_hash(self):
        signed = [-3803038269031200164, -1669731304162740404, 483935686894639516]
        self.assertEqual(self.by_hash(signed), 12)
        self.assertEqual(self.by_hash(signed, cache_salt=None), 12)
        self.assertEqual(self.by_hash([h % 2**64 for h in signed]), 12)
        self.assertEqual(self.by_hash([]), 0)
        chained = [signed[0], 4945711292740353085, -5863151826378895484]
        self.assertEqual(self.by_hash(chained), 4)
        self.assertEqual(self.by_hash(chained, kind="block"), 4)
        self.assertEqual(self.by_hash(chained, kind="sequence"), 12)
        self.assertEqual(self.by_hash(chained[:2] + [5], kind="sequence"), 8)
        self.assertEqual(self.by_hash(signed, kind="sequence"), 4)
        self.assertEqual(self.by_hash([], kind="sequence"), 0)
        self.assertEqual(self.by_hash([-2**63, 2**64 - 1]), 0)

    def test_d10_multimodal_and_eagle(self):
        self.send(self.source,
                  stored([21], None, A, block_mm_infos=[{"mm_objects": [{"mm_hash": 7,
                                                                         "offsets": []}]}]),
                  stored([31], None, [[1, 2], [2, 3], [3, 4], [4, 5]]))
        by_hash = {block[4]: block[5] for block in self.indexer.dumped()}
        self.assertEqual(by_hash[21], 5863904876152881626)
        self.assertEqual(by_hash[31], 1914873892905420881)
        self.expect(A, 4, block_mm_infos=[{"mm_objects": [{"mm_hash": 7}]}])
        self.expect(A, 0, block_mm_infos=[{"mm_objects": [{"mm_hash": 8}]}])
        self.expect([1, 2, 3, 4, 5], 4, is_eagle=True)
        self.expect([1, 2, 3, 4], 0, is_eagle=True)
        for wrong in (5, [5], [{"mm_objects": 5}], [{"mm_objects": [{}]}],
                      [{"mm_objects": [{"mm_hash": -1}]}], [{}]):
            answer = self.indexer.client.post("/query", query(block_mm_infos=wrong))
            self.assertEqual(answer.status, 422, (wrong, answer))
            self.assertIn("block_mm_infos", answer.json["error"])

    def test_row_66_removed_worker(self):
        self.indexer.unregister(1)
        self.assertEqual(self.indexer.scores(A), {})

    def test_dump_formats(self):
        answer = self.indexer.client.get("/dump?format=ndjson")
        lines = [json.loads(line) for line in answer.body.splitlines()]
        self.assertEqual(lines[0]["partition"]["model_name"], "m")
        self.assertEqual(lines[0]["partition"]["watermarks"], {"1": {"0": 0}})
        whole = self.indexer.dump()["m:default"]
        self.assertEqual(lines[1:], whole["events"])
        self.assertEqual((whole["block_size"], whole["version"]), (4, 1))
        self.assertEqual(self.indexer.client.get("/dump?model_name=other").json, {})

    def test_a_dump_whose_reader_stalls_holds_up_nobody(self):
        indexer, engine = self.indexer, self.source
        blocks, message = 200_000, 4_000  # some 10 MB of text, more than the sockets hold
        for first in range(0, blocks, message):
            hashes = range(1_000_000 + first, 1_000_000 + first + message)
            engine.send(stored(hashes, None, range(4 * first, 4 * (first + message))))
        settle(indexer.watermark, blocks // message, 60)
        reader = socket.socket()
        self.addCleanup(reader.close)
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.connect((indexer.client.host, indexer.client.port))
        reader.sendall(b"GET /dump HTTP/1.0\r\n\r\n")
        begun = reader.recv(1)
        done = "kvr_net_http_request_seconds_count"
        self.assertEqual(indexer.metrics().total(done, route="GET /dump"), 0)
        self.assertEqual(indexer.client.get("/health").status, 200)
        self.assertEqual(indexer.client.get("/ready").status, 200)
        self.assertEqual(indexer.score(A), 4)
        self.assertEqual(indexer.workers()[1]["instance_id"], 1)
        self.assertEqual(indexer.register(2, engine.endpoint).status, 201)
        self.assertEqual(indexer.unregister(2).status, 200)
        self.assertEqual(len(indexer.dumped()), blocks + 3)
        self.assertEqual(indexer.metrics().total(done, route="GET /dump"), 1)
        whole = begun + reader.makefile("rb").read()
        self.assertEqual(json.loads(whole.split(b"\r\n\r\n", 1)[1]), indexer.dump())


class StartAndStop(unittest.TestCase):
    def refused(self, words, *parts, env=None):
        code, text = run_to_end(["indexer", "--port", "0", *words], env)
        self.assertNotEqual(code, 0, words)
        self.assertGreater(code, 0, text)  # an exit, not a signal
        for part in parts:
            self.assertIn(part, text)

    def test_rows_175_to_179(self):
        self.refused(["--workers", "1=tcp://a:1"], "--block-size")
        self.refused(["--workers", "1=tcp://a:1,1=tcp://b:1", "--block-size", 4], "instance 1")
        self.refused(["--workers", "1:2=tcp://a:1,1:2=tcp://a:1", "--block-size", 4], "dp_rank 2")
        for word in ("foo", "=tcp://a:1", "x=tcp://a:1", "1:=tcp://a:1", "1:x=tcp://a:1", "1:-1=t",
                     "-1=tcp://a:1", "18446744073709551616=tcp://a:1"):
            self.refused(["--workers", word, "--block-size", 4],
                         f"expected worker_id[:dp_rank]=endpoint, got `{word}`")
        self.refused(["--workers", "1=http://a:1", "--block-size", 4], "unsupported scheme")
        self.refused(["--workers", "1=tcp://a:1", "--block-size", "x"], "block")
        self.refused(["--min-initial-workers", "-1"], "min")
        self.refused([], "KVR_INDEXER_MIN_INITIAL_WORKERS",
                     env={"KVR_INDEXER_MIN_INITIAL_WORKERS": "many"})
        self.refused(["--port", "70000"], "port")
        self.refused(["--drain", "5"], "--drain is now --server-drain-ms")
        self.refused(["--server-connections-max", "0"], "1 to 1000000")
        self.refused(["--no-such-flag"], "no-such-flag")
        self.refused(["--config", "/nonexistent.yaml"], "/nonexistent.yaml")

    def test_initial_workers(self):
        indexer = Indexer("--workers", "7=tcp://127.0.0.1:9,7:1=tcp://127.0.0.1:10,8=tcp://[::1]:9",
                          "--block-size", 16, "--model-name", "n", "--routing-group", "g")
        self.addCleanup(indexer.close)
        workers = indexer.workers()
        self.assertEqual(sorted(workers), [7, 8])
        self.assertEqual(workers[7]["endpoints"],
                         {"0": "tcp://127.0.0.1:9", "1": "tcp://127.0.0.1:10"})
        self.assertEqual((workers[8]["model_name"], workers[8]["routing_group"]), ("n", "g"))

    def test_row_184_port_in_use(self):
        indexer = Indexer()
        self.addCleanup(indexer.close)
        code, text = run_to_end(["indexer", "--address", "127.0.0.1", "--port",
                                 indexer.client.port])
        self.assertGreater(code, 0)
        self.assertIn(str(indexer.client.port), text)

    def test_row_185_unknown_key(self):
        name = config_file(self, "indexer:\n  strict: true\nserver:\n  idle_timeout_ms: 1000\n  idel_timeout_ms: 9\n")
        self.refused(["--config", name], "idel_timeout_ms", f"{name}:5")

    def test_row_186_signals_drain(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            indexer = Indexer()
            self.addCleanup(indexer.close)
            with indexer.client.connect() as connection:  # idle connections do not hold it up
                connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                self.assertIn(b" 200 ", connection.recv(4096))
                self.assertEqual(indexer.stop(number), 0)

    def test_rows_186_187_request_under_way(self):
        body = json.dumps(query()).encode()
        head = (b"POST /query HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        for second in (False, True):
            indexer = Indexer("--server-drain-ms", 15000)
            self.addCleanup(indexer.close)
            indexer.register(1, "tcp://127.0.0.1:9")
            with indexer.client.connect() as connection:
                connection.sendall(head)
                self.assertIn(b" 100 ", connection.recv(4096))  # the head has been read
                connection.sendall(body[:5])
                indexer.child.send_signal(signal.SIGTERM)
                settle(lambda i=indexer: self.accepts(i.client), False)
                if second:
                    self.assertEqual(indexer.stop(signal.SIGINT), 130)
                    continue
                connection.sendall(body[5:])
                answer = b""
                while piece := connection.recv(4096):
                    answer += piece
                self.assertIn(b" 200 ", answer)
            self.assertEqual(indexer.child.wait(timeout=10), 0)

    def test_row_186_an_engine_that_never_pauses_holds_up_nobody(self):
        indexer = Indexer("--server-drain-ms", 1000)
        self.addCleanup(indexer.close)
        engine = FakeEngine()
        self.addCleanup(engine.close)
        self.assertEqual(indexer.register(1, engine.endpoint).status, 201)
        engine.wait_subscriber()
        # More than can be applied as fast as it comes, so that some is always waiting.
        payload = batch([stored([1], None, A)] * 2000)
        over = threading.Event()

        def flood():
            sequence = 0
            while not over.is_set():
                engine.send_frames(b"", sequence.to_bytes(8, "big"), payload)
                sequence += 1

        flooding = threading.Thread(target=flood)
        flooding.start()
        self.addCleanup(flooding.join)
        self.addCleanup(over.set)
        settle(lambda: indexer.watermark(1), lambda mark: mark is not None)
        for worker in range(2, 12):
            self.assertEqual(indexer.register(worker, "tcp://127.0.0.1:9").status, 201)
            self.assertEqual(indexer.unregister(worker).status, 200)
        self.assertEqual(indexer.stop(), 0)
        self.assertTrue(flooding.is_alive())

    @staticmethod
    def accepts(client: Client):
        try:
            client.connect().close()
            return True
        except OSError:
            return False


if __name__ == "__main__":
    main()

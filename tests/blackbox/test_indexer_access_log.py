"""The access log of `kvroute indexer`, rows 188 to 190 of the list of edge cases."""

import json
import os
import re
import shutil
import signal
import tempfile
import unittest

from kvr_testlib import Client, Indexer, main, run_to_end, settle


class AccessLog(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.path = os.path.join(self.directory, "log")

    def indexer(self, path, *words):
        indexer = Indexer("--access-log", path, *words)
        self.addCleanup(indexer.close)
        return indexer

    def lines(self, path=None):
        with open(path or self.path, encoding="utf-8") as log:
            return [json.loads(line) for line in log]

    def written(self, count, path=None):
        return settle(lambda: self.lines(path), lambda lines: len(lines) == count)

    def test_lines(self):
        client = self.indexer(self.path).client
        traced = {"Content-Type": "application/json", "X-Trace-Id": "t1"}
        client.post("/query", {"model_name": "m", "token_ids": [1]}, traced)
        client.get("/workers?model_name=m")
        client.get("/dump?format=xyz")
        client.get("/dump")
        client.post("/register", "{")
        client.get("/nowhere")
        lines = self.written(5)
        # Each connection has its thread, and a line is written once the answer has gone.
        self.assertCountEqual([(line["trace_id"], line["method"], line["path"], line.get("model"),
                                line["status"]) for line in lines],
                              [("t1", "POST", "/query", "m", 404),
                               ("-", "GET", "/workers", None, 200),
                               ("-", "GET", "/dump", None, 400), ("-", "GET", "/dump", None, 200),
                               ("-", "POST", "/register", None, 400)])
        for line in lines:
            self.assertEqual([key for key in line if key != "model"],
                             ["ts", "trace_id", "method", "path", "status", "duration_ms"])
            self.assertRegex(line["ts"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertGreaterEqual(line["duration_ms"], 0)

    def test_options(self):
        client = self.indexer(self.path, "--trace-id-header", "x-request-id",
                              "--access-log-local-time").client
        client.request("GET", "/health", headers={"X-Request-Id": "r1"})
        line = self.written(1)[0]
        self.assertEqual(line["trace_id"], "r1")
        self.assertTrue(re.search(r"\.\d{3}[+-]\d\d:\d\d$", line["ts"]), line)

    def test_row_188_trace_header(self):
        code, text = run_to_end(["indexer", "--port", 0, "--trace-id-header", "a b"])
        self.assertEqual(code, 2, text)
        self.assertIn("trace_id_header `a b`", text)

    def test_a_file_that_cannot_be_opened(self):
        path = os.path.join(self.directory, "missing", "log")
        code, text = run_to_end(["indexer", "--port", 0, "--access-log", path])
        self.assertGreater(code, 0)
        self.assertIn(path, text)

    def test_row_189_rotation(self):
        indexer = self.indexer(self.path)
        reopen = [lambda: self.assertEqual(indexer.client.post("/reopen_logs", b"").json,
                                           {"status": "ok"}),
                  lambda: indexer.child.send_signal(signal.SIGHUP)]
        for number, how in enumerate(reopen):
            old = f"{self.path}.{number}"
            os.rename(self.path, old)
            before = len(self.lines(old))
            indexer.client.get("/health")
            self.written(before + 1, old)
            how()
            settle(lambda: os.path.exists(self.path), True)
            indexer.client.get("/peers")
            settle(lambda: [line["path"] for line in self.lines()], lambda paths: "/peers" in paths)
        self.assertEqual(indexer.client.get("/health").status, 200)

    def test_reopen_fails(self):
        indexer = self.indexer(self.path)
        shutil.rmtree(self.directory)
        answer = indexer.client.post("/reopen_logs", b"")
        self.assertEqual(answer.status, 500)
        self.assertIn(self.path, answer.json["error"])
        self.assertEqual(indexer.client.get("/health").status, 200)

    def test_row_190_disk_full(self):
        indexer = self.indexer("/dev/full")
        for _ in range(5):
            self.assertEqual(indexer.client.get("/health").status, 200)
        settle(lambda: indexer.metrics().total("kvr_access_log_dropped_total",
                                               reason="write_failed"), lambda count: count >= 5)

    def test_reopen_without_a_log(self):
        indexer = Indexer()
        self.addCleanup(indexer.close)
        self.assertEqual(Client(indexer.addresses["indexer"]).post("/reopen_logs", b"").status, 200)


if __name__ == "__main__":
    main()

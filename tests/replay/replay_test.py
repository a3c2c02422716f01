"""`kvroute replay` as its users run it: fleets of its own, routers that run already, and bad input."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
KVROUTE = os.environ["KVROUTE"]
TRACE = "data/mooncake_conversation_2000.jsonl"


def kvroute(*words):
    return subprocess.run([KVROUTE, *words], cwd=ROOT, text=True, capture_output=True, timeout=240)


class FleetTest(unittest.TestCase):
    """One run for all of them: it is the slow part."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        done = kvroute("replay", TRACE, "--limit", "400", "--speedup", "20", "--num-blocks", "65536",
                       "--policies", "kv,round_robin", "--json", "-", "--report", cls.folder.name)
        assert done.returncode == 0, done.stderr
        cls.report = json.loads(done.stdout)
        cls.kv, cls.round_robin = cls.report["arms"]

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_both_arms_answer_every_request(self):
        for arm in self.report["arms"]:
            self.assertEqual((arm["requests"], arm["errors"]), (400, 0))
            self.assertEqual((arm["without_prediction"], arm["without_actual"]), (0, 0))
            self.assertEqual(sum(rank["requests"] for rank in arm["ranks"]), 400)

    def test_both_arms_get_the_same_requests(self):
        self.assertEqual(self.kv["prompt_tokens"], self.round_robin["prompt_tokens"])
        self.assertEqual(self.kv["output_tokens"], self.round_robin["output_tokens"])

    def test_kv_finds_more_in_the_caches_and_nobody_beats_the_bound(self):
        self.assertGreater(self.kv["cached_ratio"], self.round_robin["cached_ratio"])
        self.assertLess(self.kv["cached_ratio"], self.report["infinite_cache_ratio"])

    def test_predicted_equals_actual_within_one_percent(self):
        for arm in self.report["arms"]:
            self.assertLess(arm["prediction_error_tokens"], 0.01 * arm["prompt_tokens"])

    def test_the_work_of_the_ranks_adds_up(self):
        for arm in self.report["arms"]:
            work = arm["prompt_tokens"] - arm["actual_cached_tokens"] + arm["output_tokens"]
            self.assertEqual(sum(rank["work_tokens"] for rank in arm["ranks"]), work)

    def test_the_report_is_written(self):
        names = {path.name for path in pathlib.Path(self.folder.name).iterdir()}
        self.assertEqual(names, {"report.html", "report.json", "table.txt", "ttft.svg", "hit_ratio.svg", "load.svg"})


class UsageTest(unittest.TestCase):
    def check(self, words, code, text):
        done = kvroute("replay", *words)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        self.assertIn(text, done.stderr)

    def test_no_trace(self):
        self.check([], 2, "TRACE")

    def test_a_trace_that_is_not_there(self):
        self.check(["no-such-file.jsonl"], 1, "no-such-file.jsonl")

    def test_an_arm_that_is_no_url(self):
        self.check([TRACE, "--limit", "1", "--arm", "x"], 2, "NAME=URL")

    def test_the_last_word_counts(self):
        done = kvroute("replay", TRACE, "--limit", "9", "--limit", "2", "--arm", "gone=http://127.0.0.1:1", "--json",
                       "-", "--no-progress")
        self.assertEqual(json.loads(done.stdout)["arms"][0]["requests"], 2)

    def test_what_cannot_work_is_said_before_anything_starts(self):
        self.check([TRACE, "--policies", "kv,best"], 2, "`best` is no policy; give some of kv,")
        self.check([TRACE, "--policies", ""], 2, "is no policy")
        self.check([TRACE, "--dialect", "vllm-7"], 2, "--dialect: no event dialect `vllm-7`")
        self.check([TRACE, "--num-blocks", "0"], 2, "--num-blocks")
        self.check([TRACE, "--speedup", "0"], 2, "must be a number above 0")
        self.check([TRACE, "--json", "/no/such/folder/x.json"], 2, "there is no folder `/no/such/folder`")
        self.check([TRACE, "--json", str(ROOT)], 2, "is a folder")
        self.check([TRACE, "--report", str(ROOT / TRACE)], 2, "--report")

    def test_bad_traces_are_named(self):
        self.check(["/dev/null"], 1, "/dev/null holds no request")
        self.check(["README.md"], 1, "README.md: ")

    def test_a_router_that_does_not_answer_is_reported_and_fails(self):
        done = kvroute("replay", TRACE, "--limit", "3", "--arm", "gone=http://127.0.0.1:1", "--json", "-",
                       "--no-progress")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("every request of `gone` failed", done.stderr)
        self.assertEqual(json.loads(done.stdout)["arms"][0]["errors"], 3)


if __name__ == "__main__":
    unittest.main()

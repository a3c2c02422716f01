"""What bench/compare prints of runs that mean less than they should."""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

COMPARE = pathlib.Path(__file__).resolve().parent / "compare"
LATENCIES = {"p50_ns": 100, "p99_ns": 200}


def loop(window_s):
    return {"window_s": window_s, "total_s": 1, "issue_span_s": window_s, "failed_updates": 0, "generator_valid": True,
            "kept_up": window_s > 0, "achieved_block_ops_per_s": 8e6, "query": LATENCIES,
            "query_from_deadline": {"p50_ns": 1000, "p99_ns": 7777}}


ARENA = {
    "checksum": {"depths": 10, "scored": 5, "read": 20}, "failed_updates": 0,
    "query_loop": {"median_ns": 100}, "query_loop_unread": {"median_ns": 50}, "query_alone": LATENCIES,
    "query_beside_writer": LATENCIES, "write": {"blocks_per_cpu_s": 9e6}, "write_from_array": {"blocks_per_cpu_s": 9e6},
    "write_second_half": {"blocks_per_s": 9e6}, "write_beside_reader": {"blocks_per_s": 9e6},
    "memory": {"heap_bytes_per_held_block": 10}, "readers": [{"readers": 1, "queries_per_s": 1e6, "cpu_ns": 1000}],
    "open_loop": [loop(0), loop(3)],
}
# A tenth as fast and ten times as large, so that every bar is met.
TREE = copy.deepcopy(ARENA)
TREE["query_loop"] = {"median_ns": 1000}
TREE["query_beside_writer"] = {"p50_ns": 1000, "p99_ns": 2000}
TREE["write"] = {"blocks_per_cpu_s": 0.9e6}
TREE["memory"] = {"heap_bytes_per_held_block": 100}
TREE["open_loop"][0]["achieved_block_ops_per_s"] = 0.8e6
del TREE["write_from_array"]


def compare(*rounds):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"small": rounds}, file)
        file.flush()
        done = subprocess.run([sys.executable, COMPARE, "--results", file.name], capture_output=True, text=True)
    return done.returncode, done.stdout


def round_with(name=None, change=None):
    one = {"arena": copy.deepcopy(ARENA), "tree": copy.deepcopy(TREE)}
    if change:
        change(one[name])
    return one


class CompareTest(unittest.TestCase):
    def test_a_valid_run_has_latencies_and_meets_its_bars(self):
        code, out = compare(round_with(), round_with())
        self.assertEqual(code, 0, out)
        self.assertIn("8x met", out)
        self.assertIn("7777", out)
        self.assertNotIn("INVALID", out)

    def test_who_did_not_keep_up_has_no_latencies(self):
        def late(result):
            result["open_loop"][1].update(kept_up=False, total_s=3.5)
        code, out = compare(round_with(), round_with("tree", late))
        self.assertEqual(code, 0, out)
        self.assertIn("tree, round 2: did not keep up with the window of 3 s (done after 3.50 s); no latencies", out)
        self.assertEqual(out.count("7777"), 1)  # the arena's

    def test_a_load_that_was_issued_late_is_invalid(self):
        def slow(result):
            result["open_loop"][1].update(generator_valid=False, kept_up=False, issue_span_s=3.2)
        _, out = compare(round_with("arena", slow))
        self.assertIn("INVALID: arena, round 1", out)
        self.assertEqual(out.count("7777"), 1)  # the tree's

    def test_a_failed_update_voids_the_run(self):
        def fail(result):
            result["open_loop"][0].update(failed_updates=3, generator_valid=False)
        for name in ("arena", "tree"):
            code, out = compare(round_with(name, fail))
            self.assertEqual(code, 1, out)
            self.assertIn(f"VOID: {name}, round 1: 3 updates failed", out)
            self.assertIn("8x no figure", out)


if __name__ == "__main__":
    unittest.main()

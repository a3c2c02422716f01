"""What the pages show is true: runs the shell blocks of README.md as they stand, so that the page cannot promise
what does not work, and compares the reference of options with the binary's.

Ports are replaced by free ones and build/release/kvroute by the binary under test.
"""
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import unittest
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.M | re.S)
PORT = re.compile(r"(?<![\d.])(8080|8090|9000|9100|9200|5557|5657)(?!\d)")


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def run_block(block):
    names = sorted(set(PORT.findall(block)))
    ports = dict(zip(names, free_ports(len(names))))
    script = PORT.sub(lambda m: str(ports[m[1]]), block)
    script = script.replace("build/release/kvroute", os.environ["KVROUTE"])
    return subprocess.run(["bash", "-c", "set -e\n" + script + "\nwait"], cwd=ROOT, text=True,
                          capture_output=True, timeout=120)


def metrics_of(words, before=None):
    """Name and help of every metric of a server that is started for it."""
    server = subprocess.Popen([os.environ["KVROUTE"], *words, "--port", "0"], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL)
    try:
        base = "http://" + server.stdout.readline().split()[2]
        if before:
            before(base)
        with urllib.request.urlopen(base + "/metrics", timeout=60) as answer:
            return dict(re.findall(r"^# HELP (\w+) (.*?)\.?$", answer.read().decode(), re.M))
    finally:
        server.terminate()
        server.wait(timeout=60)
        server.stdout.close()


def register(base):
    body = b'{"instance_id":1,"endpoint":"tcp://127.0.0.1:1","model_name":"m","block_size":16}'
    request = urllib.request.Request(base + "/register", body, {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=60).close()


class MetricsPagesTest(unittest.TestCase):
    maxDiff = None

    def listed(self, page):
        return dict(re.findall(r"^\| `(kvr_\w+)` \| \w+ \| .*? \| (.*) \|$", (ROOT / page).read_text(), re.M))

    def check(self, page, sent):
        listed = self.listed(page)
        self.assertEqual({name: listed.get(name) for name in sent}, sent, f"add or mend the rows of {page}")
        # Some appear with their first count.
        source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.cc"))
        self.assertEqual([name for name in listed.keys() - sent.keys() if f'"{name}"' not in source], [])

    def test_the_gateways(self):
        worker = "id=1,url=http://127.0.0.1:1,model=m,block-size=16,events=tcp://127.0.0.1:1"
        self.check("docs/gateway.md", metrics_of(["gateway", "--worker", worker]))

    def test_the_indexers(self):
        with tempfile.TemporaryDirectory() as folder:
            words = ["indexer", "--access-log", folder + "/log"]
            self.check("docs/indexer.md", metrics_of(words, register))

    def test_those_of_a_warm_start(self):
        with tempfile.TemporaryDirectory() as folder:
            words = ["indexer", "--snapshot-path", folder + "/snapshot", "--peers", "http://127.0.0.1:1"]
            sent = metrics_of(words)
            own = {name: sent[name] for name in sent if name.startswith(("kvr_recovery_", "kvr_snapshot_"))}
            self.assertGreater(len(own), 8)
            self.check("docs/warm-start.md", own)

    def test_the_agents(self):
        worker = "id=1,url=http://127.0.0.1:1,model=m,block-size=16,events=tcp://127.0.0.1:1"
        sent = metrics_of(["agent", "--worker", worker])
        self.check("docs/agent.md", {name: sent[name] for name in sent if name.startswith("kvr_publish_")})


class ReadmeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.blocks = BLOCK.findall((ROOT / "README.md").read_text())

    def test_there_are_three_blocks(self):
        self.assertEqual(len(self.blocks), 3)

    def test_later_answers_are_cached_as_predicted(self):
        done = run_block(self.blocks[0])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("x-kvroute-predicted-cached-tokens: 256", done.stdout)
        self.assertIn('"cached_tokens":256', done.stdout)
        self.assertIn('"state":"exact"', done.stdout)

    def test_the_gateways_page_lists_the_headers_of_answers(self):
        done = run_block(self.blocks[0])
        sent = set(re.findall(r"^(x-kvroute-[a-z-]+): ", done.stdout, re.M))
        page = (ROOT / "docs/gateway.md").read_text()
        answers = page[page.index("## Response headers"):page.index("## Text prompts")]
        self.assertEqual(sent, set(re.findall(r"^\| `(x-kvroute-[a-z-]+)`", answers, re.M)))

    def test_the_indexer_registers_and_answers(self):
        done = run_block(self.blocks[1])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('{"status":"ok"}', done.stdout)
        self.assertIn('"scores":{"1":{"0":32}}', done.stdout)
        self.assertIn('"model_name":"mock"', done.stdout)

    def test_hash_and_decode_print_what_they_should(self):
        done = run_block(self.blocks[2])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("14643705804678351452,16777012769546811212", done.stdout)
        self.assertIn('"type":"stored"', done.stdout)

    def test_the_reference_of_options_is_what_the_binary_has(self):
        done = subprocess.run([os.environ["KVROUTE"], "options"], text=True, capture_output=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.maxDiff = None
        self.assertEqual((ROOT / "docs/configuration.md").read_text(), done.stdout,
                         "run `kvroute options > docs/configuration.md`")

    def test_the_example_configuration_starts(self):
        binary = os.environ["KVROUTE"]
        server = subprocess.Popen([binary, "gateway", "--config", "docs/examples/gateway.yaml", "--port", "0"],
                                  cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            self.assertRegex(server.stdout.readline(), r"^listening gateway 127\.0\.0\.1:\d+$")
        finally:
            server.terminate()
            self.assertEqual(server.wait(timeout=60), 0)
            server.stdout.close()


if __name__ == "__main__":
    unittest.main()

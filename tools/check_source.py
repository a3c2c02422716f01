#!/usr/bin/env python3
"""House rules that a program can check. Each rule: what it forbids, where, and why."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def files(*patterns):
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
                            cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return [ROOT / name for name in listed if name and (ROOT / name).is_file()]


# (pattern, applies to this path?, message)
RULES = [
    (re.compile(r"\bstd::(shared_)?mutex\b"), lambda p: not p.startswith("src/base/mutex.h"),
     "use kvr::Mutex or kvr::SharedMutex"),
    (re.compile(r"\bstd::(cout|cerr)\b"), lambda p: p.startswith("src/") and not p.startswith("src/cmd/"),
     "modules do not print"),
    (re.compile(r"\busing namespace\b"), lambda p: True, "no `using namespace`"),
    (re.compile(r"\bstd::(views|ranges::views)::"), lambda p: True, "clang 14 compiles no std::views"),
    (re.compile(r"\bFIXME\b"), lambda p: True, "no FIXME; file an issue and name it in a TODO"),
    (re.compile(r"\b(sleep_for|usleep|sleep_until)\b"), lambda p: True,
     "no sleeping; wait for what you wait for"),
    (re.compile(r"\bDISABLED_|GTEST_SKIP\b"), lambda p: True, "no disabled or skipped test"),
]


def main():
    errors = []
    for path in files("*.h", "*.cc"):
        name = str(path.relative_to(ROOT))
        text = path.read_text()
        if path.suffix == ".h" and "#pragma once" not in text:
            errors.append(f"{name}: no #pragma once")
        for pattern, applies, message in RULES:
            if not applies(name):
                continue
            for match in pattern.finditer(text):
                errors.append(f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {message}")
    cmake = {p.parent: p.read_text() for p in files("*CMakeLists.txt")}
    for path in files("*.cc"):
        home = next((d for d in path.parents if d in cmake), None)
        if home is None or path.name not in cmake[home]:
            errors.append(f"{path.relative_to(ROOT)}: no target compiles it")
    for directory, text in cmake.items():
        for number, line in enumerate(text.splitlines(), 1):
            if re.match(r"\s*#.*\b(kvr_test|kvr_fuzz|kvr_bench|add_test)\(", line) and "(name" not in line:
                errors.append(f"{directory.relative_to(ROOT)}/CMakeLists.txt:{number}: commented-out test")
    for path in files("*.md"):
        fenced = False
        titles = 0
        for line in path.read_text().splitlines():
            fenced ^= line.startswith("```")
            titles += (not fenced) and line.startswith("# ")
        if titles != 1:
            errors.append(f"{path.relative_to(ROOT)}: {titles} titles, expected 1")
    print("\n".join(errors) or "source: no violation")
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main())

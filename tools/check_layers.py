#!/usr/bin/env python3
"""Fails when a file under src/ includes a module that src/LAYERS does not allow."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent / "src"
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.M)


def read_layers(errors):
    """module -> the modules it may include, itself among them."""
    allowed = {}
    for number, line in enumerate((ROOT / "LAYERS").read_text().splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        module, _, names = (part.strip() for part in line.partition(":"))
        for name in names.split():
            if name not in allowed:  # "earlier lines only" keeps the graph acyclic
                errors.append(f"LAYERS:{number}: {module} names {name}, which is on no earlier line")
        allowed[module] = {module, *names.split()}
    return allowed


def main():
    errors = []
    allowed = read_layers(errors)
    for path in sorted(p for p in ROOT.rglob("*") if p.suffix in (".h", ".cc")):
        module = path.relative_to(ROOT).parts[0]
        text = path.read_text()
        for match in INCLUDE.finditer(text):
            where = f"src/{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}"
            if path.name.endswith(("_test.cc", "_bench.cc")) and (ROOT.parent / "tests" / match[1]).exists():
                continue  # what tests and benchmarks share
            if not (ROOT / match[1]).exists():
                errors.append(f'{where}: "{match[1]}" is not a path under src/')
            elif match[1].split("/")[0] not in allowed.get(module, ()):
                errors.append(f"{where}: {module} may not include {match[1]}")
    print("\n".join(errors) or f"layers: {len(allowed)} modules, no violation")
    return bool(errors)


if __name__ == "__main__":
    sys.exit(main())

"""Counts the crates of `proto-impl` and writes the figures into the table of docs/crates.md (`make map`).

Lines: of code, without comments, blank lines and tests. Dependencies: direct and indirect ones with the default
features. Public items: functions, types and constants of `api.txt`. Fuzz targets: those that the README names.
"""

import json
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ".md"
MAP = ROOT / "docs" / f"crates{PAGE}"


def lines(crate):
    """The lines of code of a crate's `src`."""
    count = 0
    for file in (ROOT / "proto-impl" / crate / "src").rglob("*.rs"):
        if "tests" in file.parts or file.stem in ("tests", "testing") or file.stem.endswith("_tests"):
            continue
        text = re.split(r"#\[cfg\(test\)\]\nmod \w+ \{", file.read_text())[0]
        code = (line.strip() for line in text.splitlines())
        count += sum(1 for line in code if line and not line.startswith("//"))
    return count


def dependencies(crate):
    """The number of crates below a crate."""
    command = ["cargo", "tree", "--locked", "-e", "normal", "--prefix", "none", "--format", "{p}"]
    text = subprocess.run(
        [*command, "-p", f"millstream-{crate}"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    return len({line.split()[0] for line in text.splitlines() if line}) - 1


def items(crate):
    """The number of public functions, types and constants."""
    api = (ROOT / "proto-impl" / crate / "api.txt").read_text()
    return len(re.findall(r"^(?:\S.*: )?pub .*\b(?:fn|struct|enum|trait|type|const|static|union)\b", api, re.M))


def row(crate, examples):
    """The row of a crate."""
    folder = ROOT / "proto-impl" / crate
    package = next(package for package in PACKAGES if package["name"] == f"millstream-{crate}")
    readme = (folder / f"README{PAGE}").read_text()
    named = re.search(r"`fuzz/run.sh TARGET`, with (.*?):", readme, re.S)
    targets = ", ".join(re.findall(r"`\w+`", named[1])) if named else ""
    cells = [f"[{crate}](../proto-impl/{crate}/README{PAGE})", package["description"], lines(crate), dependencies(crate)]
    return "| " + " | ".join(str(cell) for cell in [*cells, items(crate), examples or "", targets]) + " |"


def main():
    """Writes the table."""
    text = MAP.read_text()

    def counted(found):
        folder = ROOT / "proto-impl" / found[1] / "examples"
        examples = len([*folder.glob("*.rs"), *folder.glob("*/main.rs")])
        return row(found[1], examples)

    MAP.write_text(re.sub(r"^\| \[(\w+)\]\(\.\./proto-impl/\w+/README\.md\) \| .*\|$", counted, text, flags=re.M))


PACKAGES = json.loads(
    subprocess.run(
        ["cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"], cwd=ROOT, check=True, capture_output=True
    ).stdout
)["packages"]

if __name__ == "__main__":
    main()

"""Writes a list of packages with the hashes of their files, from lock files of uv's: hashes.py PYLOCK..."""

import sys
import tomllib
from collections import defaultdict
from pathlib import Path


def main() -> None:
    """Print the list; a package is built here only where none of its wheels fits."""
    hashes = defaultdict(set)
    for path in sys.argv[1:]:
        for package in tomllib.loads(Path(path).read_text())["packages"]:
            files = package.get("wheels") or [package["sdist"]]
            hashes[f"{package['name']}=={package['version']}"] |= {file["hashes"]["sha256"] for file in files}
    sys.stdout.write("# Written by: make lock\n")
    for pin, digests in sorted(hashes.items()):
        sys.stdout.write(" \\\n".join([pin, *(f"    --hash=sha256:{digest}" for digest in sorted(digests))]) + "\n")


if __name__ == "__main__":
    main()

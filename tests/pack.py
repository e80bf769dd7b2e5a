#!/usr/bin/env python3
"""pack.py FILE...: makes FILE.zst of each, zstd frames of raw blocks (no zstd is needed for that)."""

import struct
import sys

for path in sys.argv[1:]:
    with open(path, "rb") as f:
        data = f.read()
    with open(path + ".zst", "wb") as f:
        f.write(b"\x28\xb5\x2f\xfd" + b"\xa0" + struct.pack("<I", len(data)))  # one segment, its size
        blocks = [data[i : i + 100000] for i in range(0, len(data), 100000)] or [b""]
        for number, block in enumerate(blocks):
            last = number == len(blocks) - 1
            f.write(struct.pack("<I", len(block) << 3 | last)[:3] + block)

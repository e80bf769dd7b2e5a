"""The checkpoints of tests/bench/generate.py are what torch would have written."""

import io
import subprocess
import sys
import zipfile

import torch

import check_olmo
import common

GENERATE = common.FIXTURES.parent / "bench" / "generate.py"  # pretends to be torch: another process


def entries(data):
    """The parts of an archive but for the digits that are a hash."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return [
            (item.filename, item.header_offset, item.CRC, item.file_size, item.flag_bits)
            for item in archive.infolist()
            if not item.filename.endswith("serialization_id")
        ]


def check_layout(layout, tool, folder):
    ranks = 3
    checkpoint = folder / "in"
    options = ["--ranks", str(ranks), "--size", "3MiB", "--layout", layout]
    subprocess.run([sys.executable, GENERATE, checkpoint, *options], check=True)
    states = []
    for rank in range(ranks):
        path = checkpoint / f"rank{rank}.pt"
        with check_olmo.as_rank(rank, ranks, ranks):
            states.append(torch.load(path, weights_only=False))
            again = folder / path.name
            torch.save(states[-1], again)
        mine, torchs = entries(path.read_bytes()), entries(again.read_bytes())
        # how an Enum is pickled changed with Python 3.11.4: before, the pickle is another
        if mine[0] != torchs[0] and sys.version_info < (3, 11, 4):
            mine, torchs = ([e[:1] + e[2:] for e in list_[1:]] for list_ in (mine, torchs))
        assert mine == torchs, f"{mine} is not {torchs}"
    out = tool.run("unshard.lua", checkpoint, folder / "out")
    want = {key: common.described(t) for key, t in check_olmo.joined(states).items()}
    got = check_olmo.written(out)
    model = {key: t for key, t in want.items() if key.startswith("model.")}
    optim = {"optim." + key: t for key, t in want.items() if not key.startswith("model.")}
    common.hold_tensors({**model, **optim}, got)
    check_olmo.hold_rest(states[0], out)


def checks():
    for layout in ("rows", "columns", "tiny", "ranks"):
        yield f"bench files, {layout}", lambda *with_, layout=layout: check_layout(layout, *with_)

#!/usr/bin/env python3
"""Writes the `.metadata` of a large DCP save, and files as long as it says, but without data.

No torch is needed: as in generate.py, Python's own pickler writes stand-ins of torch's classes, so
that opcodes, memo and sharing are those of a real file (tests/interop/check_bench.py holds both
against each other). Keys are parameters and two Adam states each, cut in rows over all ranks, as
FSDP2 saves them. What is measured is opening, listing and planning; nothing can be read from it.

  512 ranks x 900 keys    460,800 chunks, 66 MB: the default
  512 x 900 --uneven      no two keys have the same shape: nothing can be shared
  16384 x 28              few keys, many chunks
  2 x 230400              many keys, few chunks
"""

import argparse
import pathlib
import pickle

from generate import LAYOUT, SIZE, Call, made, name

DCP = "torch.distributed.checkpoint."
METADATA = name(DCP + "metadata", "Metadata")
TENSOR = name(DCP + "metadata", "TensorStorageMetadata")
CHUNK = name(DCP + "metadata", "ChunkStorageMetadata")
INDEX = name(DCP + "metadata", "MetadataIndex")
META = name(DCP + "metadata", "StorageMeta")
FORMAT = name(DCP + "metadata", "_MEM_FORMAT_ENCODING")
INFO = name(DCP + "filesystem", "_StorageInfo")
FLOAT32 = name("torch", "float32")
NEW_PROPERTIES = name(DCP + "metadata", "TensorProperties")
NEW_PROPERTIES.__getstate__ = lambda self: self.state
CONTIGUOUS = Call(FORMAT, 0)
OVERHEAD = 1577  # of a small tensor's item beyond its elements, at most; torch 2.13
WIDTH = 64


def fresh(text):
    """Another object: each rank's names come out of a message of its own."""
    return str(text.encode(), "ascii")


def keys_of(count):
    names = ("attn.wq", "attn.wk", "attn.wv", "attn.wo", "mlp.w1", "mlp.w2", "mlp.w3", "norm")
    for i in range(-(-count // 3)):
        weight = f"layers.{i // 8}.{names[i % 8]}.weight"
        yield f"model.{weight}"
        yield f"optim.state.{weight}.exp_avg"
        yield f"optim.state.{weight}.exp_avg_sq"


def shape_of(number, ranks, uneven):
    rows = ranks * (2 + number // 3 % 3)
    return (rows + (number if uneven else 0), WIDTH + (number if uneven else 0))


def cuts(rows, ranks):
    """What torch.chunk leaves to each rank: begin and size; the last ones may get less, or none."""
    step = -(-rows // ranks)
    for rank in range(ranks):
        begin = min(rank * step, rows)
        yield begin, min(step, rows - begin)


def metadata(ranks, keys, uneven):
    shapes = {}
    for number, key in zip(range(keys), keys_of(keys)):
        shapes[key] = shape_of(number, ranks, uneven)
    tensors, places = {}, {}
    for key, shape in shapes.items():
        places[key] = list(cuts(shape[0], ranks))
        tensors[key] = made(
            TENSOR,
            properties=made(NEW_PROPERTIES, state=(FLOAT32, LAYOUT, False, CONTIGUOUS, False)),
            size=Call(SIZE, (*shape,)),
            chunks=[
                made(CHUNK, offsets=Call(SIZE, (at, 0)), sizes=Call(SIZE, (n, shape[1])))
                for at, n in places[key]
            ],
        )
    storage, sizes = {}, []
    for rank in range(ranks):
        path, offset = f"__{rank}_0.distcp", 0
        for key, shape in shapes.items():
            at, rows = places[key][rank]
            length = OVERHEAD + 4 * rows * shape[1]
            index = made(INDEX, fqn=fresh(key), index=rank, offset=Call(SIZE, (at, 0)))
            storage[index] = made(INFO, relative_path=path, offset=offset, length=length)
            offset += length
        sizes.append(offset)
    root = made(
        METADATA,
        state_dict_metadata=tensors,
        planner_data={key: tuple(key.split(".")) for key in shapes},
        storage_data=storage,
        storage_meta=made(META, checkpoint_id="step", save_id="0", load_id=None, modules=[]),
        version="1.0.0",
    )
    return root, sizes


def generate(folder, ranks=512, keys=900, uneven=False):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    root, sizes = metadata(ranks, keys, uneven)
    with open(folder / ".metadata", "wb") as file:
        pickle.Pickler(file, protocol=4).dump(root)
    for rank, size in enumerate(sizes):
        with open(folder / f"__{rank}_0.distcp", "wb") as file:
            file.truncate(size)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", help="a folder that is not there yet")
    parser.add_argument("--ranks", type=int, default=512)
    parser.add_argument("--keys", type=int, default=900)
    parser.add_argument("--uneven", action="store_true")
    a = parser.parse_args()
    generate(a.out, a.ranks, a.keys, a.uneven)


if __name__ == "__main__":
    main()

"""Plain files of torch.save, written here and now, and what convert.lua makes of them."""

import argparse
import collections
import datetime
import json
import pathlib

import numpy
import torch

import common


def every_dtype():
    """Random bits: also NaNs with a payload, denormals, infinities."""
    bits = torch.randint(0, 256, (3, 4, 16), dtype=torch.uint8)
    made = {}
    for dtype in [*common.NAMES, *common.PAIRS]:
        source = bits % 2 if dtype == torch.bool else bits
        made[str(dtype)] = source.clone().view(dtype)  # a storage has one dtype in a file
    return made


def views():
    base = torch.randn(6, 8, 10)
    z = torch.randn(4, 5, dtype=torch.complex64)
    real = torch.randn(3, 4)
    return {
        "base": base,
        "transposed": base.transpose(0, 2),
        "permuted": base.permute(1, 2, 0),
        "rows": base[2:5],
        "columns": base[:, :, 3:7],
        "steps": base[::2, 1::3, ::4],
        "one": base[3, 4, 5],
        "expanded": torch.randn(3, 1, 4).expand(3, 5, 4),
        "expanded scalar": torch.tensor(2.5).expand(4, 4),
        "overlapping": torch.arange(20).as_strided((5, 8), (2, 1)),
        "diagonal": base[0].diagonal(),
        "conj": z.conj(),
        "conj transposed": z.conj().t(),
        "neg": z.clone().conj().imag,
        "neg view": torch._neg_view(real),
        "neg columns": torch._neg_view(real)[:, 1:3],
        "conj double": torch.randn(3, 2, dtype=torch.complex128).conj(),
        "real part": torch.view_as_real(z.clone()),
        "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "large transposed": torch.randn(700, 900).t(),
        "large columns": torch.randn(300, 4000)[:, 1000:3000],
    }


def shapes():
    return {
        "scalar": torch.tensor(1.5, dtype=torch.float64),
        "flag": torch.tensor(True),
        "empty": torch.empty(0),
        "no rows": torch.empty(0, 4, dtype=torch.bfloat16),
        "no columns": torch.empty(4, 0, dtype=torch.int8),
        "one": torch.ones(1, 1, 1, 1),
        "nothing left": torch.randn(5)[5:],
    }


def objects():
    weight = torch.nn.Parameter(torch.randn(3, 4))
    marked = torch.nn.Parameter(torch.randn(2))
    marked.sequence_parallel = True
    tied = torch.randn(5, 5)
    layers = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    return {
        "parameter": weight,
        "marked parameter": marked,
        "frozen": torch.nn.Parameter(torch.randn(2), requires_grad=False),
        "buffer": torch.nn.Buffer(torch.randn(2)),
        "grad": torch.ones(2, requires_grad=True),
        "tied": tied,
        "tied again": tied,
        "tied view": tied[1:3],
        "module": layers.state_dict(),
        "nested": {"list": [tied, {"deep": torch.ones(2)}], "tuple": (torch.zeros(1),)},
        "numbers as keys": {0: torch.ones(1), 1: torch.zeros(1)},
    }


def values():
    shared = [1, 2]
    cyclic = [1]
    cyclic.append(cyclic)
    return {
        "integers": [0, 1, -1, 255, 65536, 2**31, -(2**31), 2**63 - 1, -(2**63), 2**63, -(2**80)],
        "floats": [0.0, -0.0, 0.1, 5e-324, 1.7976931348623157e308, 1e22, 123456789.123],
        "not numbers": [float("inf"), float("-inf"), float("nan")],
        "truth": [True, False, None],
        "text": ["", "plain", "h\u00e9llo \U0001f600", '\0\x1f"\\/\x7f\u2028'],
        "bytes": [b"", b"\0\xff", bytearray(b"array")],
        "complex": [1 + 2j, complex(float("nan"), -0.0)],
        "tuples": [(), (1, (2, (3,)))],
        "sets": [set(), {1}, {"a", "b"}, frozenset([(1, 2)])],
        "shared": [shared, shared, (shared, {"key/with~signs": shared}), {1: shared}],
        "cyclic": cyclic,
        "other keys": [{1: "a", (1, 2): "b", None: "c", 2.5: True}, {"$ref": 1}, {"": {}}],
        "empty": {"dict": {}, "list": []},
        "ordered": collections.OrderedDict(z=1, a=2),
        "paths": [pathlib.PurePosixPath("/a/b"), pathlib.PurePosixPath("c")],
        "dtypes": [torch.float8_e4m3fn, torch.uint16, torch.bool],
        "device": torch.device("cuda", 1),
        "date": datetime.datetime(2024, 2, 29, 12, 30, 45, 123456),
        "options": [argparse.Namespace(lr=0.1, betas=(0.9, 0.95), nested={"a": [1]})],
        "numpy scalars": [
            *(kind(7) for kind in (numpy.int8, numpy.int16, numpy.int32, numpy.int64)),
            *(kind(7) for kind in (numpy.uint8, numpy.uint16, numpy.uint32)),
            numpy.uint64(2**64 - 1),
            numpy.float16(0.1),
            numpy.float32(0.1),
            numpy.float64("nan"),
            numpy.complex64(1 - 2j),
            numpy.bool_(True),
        ],
        "arrays": {
            "matrix": numpy.arange(12, dtype=numpy.int16).reshape(3, 4),
            "fortran": numpy.asfortranarray(numpy.random.rand(3, 4)),
            "big endian": numpy.arange(5, dtype=">i4"),
            "scalar": numpy.array(3.0),
            "empty": numpy.empty((0, 2), numpy.uint8),
            "text": numpy.array(["ab", "c"]),
        },
    }


def hold_file(tool, folder, state, **how):
    """Saves state, converts it, and holds all of it against what was there before."""
    (folder / "in").mkdir()
    torch.save(state, folder / "in" / "state.pt", **how)
    out = tool.run("convert.lua", folder / "in", folder / "out", "--to", "safetensors")
    tensors, plain = {}, {}
    for key, value in common.leaves(state):
        if isinstance(value, torch.Tensor):
            tensors[key] = common.described(value)
        else:
            plain[key] = value

    def read(name):
        return common.read_safetensors(out / name) if (out / name).exists() else ({}, {})

    got, metadata = read("tensors.safetensors")
    common.hold_tensors(tensors, got)
    if plain:
        beside, _ = read("values.safetensors")
        said = json.loads((out / "values.json").read_text())
        assert common.hold_values(plain, said, beside) == set(beside)
    return metadata


def check_kind(kind, how, tool, folder):
    torch.manual_seed(1)
    hold_file(tool, folder, kind(), **how)


def check_pairs(tool, folder):
    """What safetensors lacks is said in the metadata."""
    state = {
        "z": torch.randn(2, dtype=torch.complex128),
        "half": torch.zeros(2, 3, dtype=torch.chalf),
    }
    metadata = hold_file(tool, folder, state)
    assert json.loads(metadata["ckptflow.dtype"]) == {"z": "C128", "half": "C32"}, metadata


def check_module(tool, folder):
    """torch.save(model): the names and values of its state dict."""
    model = torch.nn.Sequential(
        torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.MultiheadAttention(4, 2, bias=False)
    )
    model.register_buffer("kept", torch.ones(2))
    model.register_buffer("fleeting", torch.ones(2), persistent=False)
    model.add_module("none", None)
    model.tied = model[0]
    for name, saved in (("module", model), ("state", model.state_dict())):
        torch.save(saved, folder / f"{name}.pt")
        out = tool.run("convert", folder / f"{name}.pt", folder / name)
        tensors, _ = common.read_safetensors(out / "tensors.safetensors")
        common.hold_tensors({k: common.described(v) for k, v in model.state_dict().items()}, tensors)


def checks():
    ways = {"zip": {}, "legacy stream": {"_use_new_zipfile_serialization": False}}
    for kind in (every_dtype, views, shapes, objects, values):
        for name, how in ways.items():
            yield (
                f"torch.save, {name}: {kind.__name__.replace('_', ' ')}",
                lambda *with_, kind=kind, how=how: check_kind(kind, how, *with_),
            )
    yield "torch.save: complex as pairs", check_pairs
    yield "torch.save: a whole module", check_module

"""What `--to torch` writes, opened by torch in each of its ways, against what was saved."""

import argparse
import collections
import json
import pathlib
import subprocess
import zipfile

import numpy
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.utils.serialization import config

import common
from check_torch import every_dtype, objects, shapes, views

WAYS = {
    "as it is": dict(weights_only=True),
    "mapped": dict(weights_only=True, mmap=True),
    "places calculated": dict(weights_only=True, mmap=True, calculate=True),
    "pickle": dict(weights_only=False),
}


def load(path, way):
    """torch.load, and the archive itself: true checksums, no record but those that belong there."""
    options = dict(WAYS[way])
    config.load.calculate_storage_offsets = options.pop("calculate", False)
    try:
        return torch.load(path, **options)
    finally:
        config.load.calculate_storage_offsets = False


def same(want, got, where):
    """As the file is meant to hold it: tensors by their bits, the rest by value and type."""
    if isinstance(want, numpy.ndarray):
        want = torch.from_numpy(want)
    if isinstance(want, numpy.generic):
        want = want.item()
    if isinstance(want, pathlib.PurePath):
        want = str(want)
    if isinstance(want, torch.Tensor):
        assert isinstance(got, torch.Tensor), f"{where}: a {type(got).__name__}"
        assert (want.dtype, want.shape) == (got.dtype, got.shape), f"{where}: {got.dtype} {got.shape}"
        assert not got.requires_grad and not got.is_conj() and not got.is_neg(), where
        if want.numel():
            assert common.described(want) == common.described(got), f"{where}: other bits"
        return
    if isinstance(want, dict):
        assert isinstance(got, dict) and list(want) == list(got), f"{where}: {list(got)}"
        for key in want:
            same(want[key], got[key], f"{where}.{key}")
    elif isinstance(want, (list, tuple)):
        kind = list if isinstance(want, list) else tuple
        assert type(got) is kind and len(got) == len(want), f"{where}: {got!r}"
        for i, item in enumerate(want):
            same(item, got[i], f"{where}.{i}")
    else:
        assert type(want) is type(got) or isinstance(want, collections.abc.Set), f"{where}: {got!r}"
        assert want == got or want != want, f"{where}: {got!r}, not {want!r}"


def sound(path):
    archive = zipfile.ZipFile(path)
    assert archive.testzip() is None, "a wrong checksum"
    places = [(i.header_offset, i.file_size) for i in archive.infolist()]
    assert places == sorted(places)


def converts(make):
    def check(tool, folder):
        saved = make()
        torch.save(saved, folder / "saved.pt")
        out = tool.run("convert", folder / "saved.pt", folder / "out", "--to", "torch")
        sound(out / "checkpoint.pt")
        for way in WAYS:
            same(saved, load(out / "checkpoint.pt", way), way)
        again = tool.run("convert", out, folder / "again", "--to", "torch", "-j", "3")
        bytes_of = [(f / "checkpoint.pt").read_bytes() for f in (out, again)]
        assert bytes_of[0] == bytes_of[1], "other bytes from its own output"

    return check


def nested():
    odd = {(1, 2): torch.ones(2), None: torch.zeros(1), True: torch.ones(1), 2.5: torch.ones(3)}
    return {
        "list": [torch.ones(2), 5, [torch.zeros(1), None, "x"], {"a": torch.ones(1)}],
        "tuple": (torch.ones(1), (torch.zeros(2), 2.5)),
        "integers": {3: torch.ones(3), 1: {0: torch.zeros(1), "0.5": 2}},
        "odd keys": odd,
        "dots.in": {"keys.too": torch.ones(2), "": torch.zeros(1)},
        "dots": {"in": torch.ones(1)},
        "ordered": collections.OrderedDict(b=torch.ones(1), a=torch.zeros(1)),
        "empty": {"dict": {}, "list": [], "tuple": ()},
        "numbers": [0, -1, 255, 256, 65536, -(2**31), 2**31, 2**63, -(2**63) - 1, 2**200],
        "atoms": [None, True, False, 1.5, float("inf"), float("nan"), -0.0, 1 + 2j],
        "texts": ["", "é\u20ac\U0001f600", "a" * 70000, b"", b"\x00\xff" * 300],
        "set": {1, "a", (2, 3)},
        "dtype": [torch.bfloat16, torch.float8_e4m3fn, torch.device("cuda:3")],
        "long list": list(range(2500)),
        "long tuple": tuple(range(300)),
        "numpy": [numpy.arange(6.0).reshape(2, 3), numpy.float32(0.25), numpy.int64(7)],
        "array": numpy.asfortranarray(numpy.arange(6).reshape(2, 3)),
        "scalar": numpy.float64(1.5),
        "path": [pathlib.PurePosixPath("/a/b")],
    }


def state_dict():
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5), torch.nn.LSTM(5, 6, 2)
    )
    model.register_parameter("tied", model[0].weight)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model[1](model[0](torch.randn(3, 4))).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}


def many():
    return {f"layer.{i}.weight": torch.full((1 + i % 3,), float(i)) for i in range(3000)}


def shared_objects():
    inner = [1, {"a": (2, 3)}]
    return {"both": [inner, inner], "apart": [[1], [1]]}


def stays_shared(tool, folder):
    torch.save(shared_objects(), folder / "saved.pt")
    out = tool.run("convert", folder / "saved.pt", folder / "out", "--to", "torch")
    got = load(out / "checkpoint.pt", "as it is")
    assert got == shared_objects()
    assert got["both"][0] is got["both"][1] and got["apart"][0] is not got["apart"][1]


def storages_stay(tool, folder):
    """Ties and views keep their storage, a slice alone does not drag its own along."""
    tied, base, large = torch.randn(50), torch.randn(4, 6), torch.randn(1000)
    saved = {
        "a": tied,
        "b": tied,
        "as a matrix": tied.view(5, 10),
        "rows": base[:2],
        "other rows": base[2:],
        "transposed": base.t(),
        "slice": large[10:20],
        "slice again": large[10:20],
        "expanded": torch.ones(1).expand(1000, 1000),
    }
    torch.save(saved, folder / "saved.pt")
    out = tool.run("convert", folder / "saved.pt", folder / "out", "--to", "torch")
    got = load(out / "checkpoint.pt", "as it is")
    same(saved, got, "")

    def storage(name):
        return got[name].untyped_storage()

    assert len({storage(name).data_ptr() for name in ("a", "b", "as a matrix")}) == 1
    assert len({storage(name).data_ptr() for name in ("rows", "other rows", "transposed")}) == 1
    assert storage("slice").data_ptr() == storage("slice again").data_ptr()
    assert storage("slice").nbytes() == 40 and storage("expanded").nbytes() == 4


def optimizer_loads(tool, folder):
    """optim.pt goes back into a torch.optim: with names, and with ids."""
    names = ["0.weight", "0.bias", "1.weight", "1.bias"]
    for named in (True, False):
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
        groups = list(model.named_parameters()) if named else list(model.parameters())
        optimizer = torch.optim.AdamW(groups, lr=0.01)
        for _ in range(3):
            model(torch.randn(5, 3)).sum().backward()
            optimizer.step()
        place = folder / str(named)
        place.mkdir()
        saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 3}
        torch.save(saved, place / "saved.pt")
        out = tool.run("unshard", place / "saved.pt", place / "out", "--to", "torch")
        for name in ("model", "optim", "train"):
            sound(out / f"{name}.pt")
        got = load(out / "optim.pt", "mapped")
        assert list(got) == ["state", "param_groups"], list(got)
        assert list(got["state"]) == (names if named else [0, 1, 2, 3]), list(got["state"])
        assert got["param_groups"][0]["params"] == list(got["state"])
        same(load(out / "model.pt", "as it is"), saved["model"], "model")
        assert load(out / "train.pt", "as it is") == {"step": 3}
        fresh = torch.optim.AdamW(groups, lr=0.5)
        fresh.load_state_dict(got)
        same(optimizer.state_dict()["state"], fresh.state_dict()["state"], "state")
        assert fresh.param_groups[0]["lr"] == 0.01 and fresh.param_groups[0]["betas"] == (0.9, 0.999)


def sgd_without_state(tool, folder):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / "s.pt")
    out = tool.run("unshard", folder / "s.pt", folder / "out", "--to", "torch")
    got = load(out / "optim.pt", "as it is")
    assert got["state"] == {} and got["param_groups"][0]["lr"] == 0.5
    optimizer.load_state_dict(got)


def left_out(tool, folder):
    """What weights_only does not take is not in the file; the manifest says so, and why."""
    saved = {
        "w": torch.ones(2),
        "args": argparse.Namespace(lr=1),
        "config": [{"keep": 1, "fn": argparse.Namespace()}, numpy.arange(3)],
        "frozen": [argparse.Namespace()],
        "epoch": 4,
    }
    torch.save(saved, folder / "saved.pt")
    out = tool.run("convert", folder / "saved.pt", folder / "out", "--to", "torch")
    got = load(out / "checkpoint.pt", "as it is")
    assert list(got) == ["w", "config", "epoch"] and list(got["config"][0]) == ["keep"], got
    manifest = json.loads((out / "ckptflow-manifest.json").read_text())
    said = {v["name"]: v.get("left_out") for v in manifest["files"][0]["values"]}
    assert said == {
        "args": "Namespace",
        "config": "0.fn: Namespace",
        "frozen": "Namespace",
        "epoch": None,
    }, said


def beyond_4_gib(tool, folder):
    """Entries and offsets that take zip64: sparse, so that it costs little."""
    large = torch.zeros(1)
    torch.save({"x": large}, folder / "saved.pt")
    numel = (4 << 30) + 1000
    recipe = folder / "large.lua"
    recipe.write_text(
        "return { api = 1, about = 'large', plan = function(cat, plan)\n"
        "  local x = cat:find('x').view\n"
        "  local list = {}\n"
        f"  for i = 1, 3 do list[i] = x end\n"
        "  plan:write('small.pt', { x = plan:concat(list) })\n"
        "end }\n"
    )
    out = tool.run(recipe, folder / "saved.pt", folder / "small")
    assert load(out / "small.pt", "as it is")["x"].shape == (3,)
    source = folder / "big.safetensors"
    head = json.dumps(
        {
            "big": {"dtype": "U8", "shape": [numel], "data_offsets": [0, numel]},
            "after": {"dtype": "F32", "shape": [2], "data_offsets": [numel, numel + 8]},
        }
    ).encode()
    with open(source, "wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        start = file.tell()
        file.truncate(start + numel + 8)
        for at in (0, 2**31, 2**32, numel - 1):
            file.seek(start + at)
            file.write(b"\x07")
        file.seek(start + numel)
        file.write(torch.tensor([1.5, 2.5]).numpy().tobytes())
    out = tool.run("convert", source, folder / "out", "--to", "torch")
    source.unlink()
    for way in ("mapped", "places calculated"):
        got = load(out / "checkpoint.pt", way)
        assert got["after"].tolist() == [1.5, 2.5] and got["big"].numel() == numel
        assert all(got["big"][at] == 7 for at in (0, 2**31, 2**32, numel - 1))
        assert got["big"][1 : 2**20].sum() == 0
    with zipfile.ZipFile(out / "checkpoint.pt") as archive:
        assert archive.testzip() is None


def parts(tool, folder):
    saved = {f"w{i}": torch.randn(100) for i in range(10)}
    saved["tied"] = saved["w0"]
    torch.save(saved, folder / "saved.pt")
    out = tool.run(
        "unshard", folder / "saved.pt", folder / "out", "--to", "torch", "--max-shard-size", "1kB"
    )
    index = json.loads((out / "model.pt.index.json").read_text())["weight_map"]
    assert list(index) and set(index) == set(saved) and index["tied"] == index["w0"]
    for name, part in index.items():
        same(saved[name], load(out / part, "places calculated")[name], name)


def libzip(tool, folder):
    """Debian's unzip, which refuses what is not sound."""
    torch.save(state_dict(), folder / "saved.pt")
    out = tool.run("convert", folder / "saved.pt", folder / "out", "--to", "torch")
    done = subprocess.run(["unzip", "-tqq", out / "checkpoint.pt"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def from_dcp(tool, folder):
    """A DCP checkpoint, as torch's own converter has it: nested as it was saved."""
    for case in ("fsdp2_2", "hsdp_2x2", "tp_fsdp_2x2"):
        source = common.FIXTURES / "dcp" / case / "ckpt"
        dcp_to_torch_save(source, folder / "want.pt")
        out = tool.run("convert", source, folder / case, "--to", "torch")
        want = torch.load(folder / "want.pt", weights_only=False)
        got = load(out / "checkpoint.pt", "as it is")
        hold_unordered(want, got, case)


def hold_unordered(want, got, where):
    """dicts in any order: the converter has its own."""
    if isinstance(want, dict):
        assert want.keys() == got.keys(), f"{where}: {want.keys() ^ got.keys()}"
        for key in want:
            hold_unordered(want[key], got[key], f"{where}.{key}")
    elif isinstance(want, list):
        assert len(want) == len(got), where
        for i, item in enumerate(want):
            hold_unordered(item, got[i], f"{where}.{i}")
    else:
        same(want, got, where)


def plain_objects():
    """What check_torch saves, without what the file cannot hold."""
    kept = (torch.Tensor, int, float, str, bool, type(None))
    return {key: value for key, value in objects().items() if isinstance(value, kept)}


def checks():
    made = (every_dtype, views, shapes, plain_objects, nested, state_dict, many)
    for make in made:
        yield f"--to torch: {make.__name__.replace('_', ' ')}", converts(make)
    yield "--to torch: shared lists", stays_shared
    yield "--to torch: from DCP", from_dcp
    yield "--to torch: storages", storages_stay
    yield "--to torch: an optimizer loads", optimizer_loads
    yield "--to torch: an optimizer without state", sgd_without_state
    yield "--to torch: what is left out", left_out
    yield "--to torch: parts", parts
    yield "--to torch: unzip", libzip
    yield "--to torch: beyond 4 GiB", beyond_4_gib

"""numpy's files, written here and now by numpy."""

import numpy

import common

TYPES = "b1 i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16".split()


def arrays():
    """Random bits in every type, order of bytes and of elements, and shapes at their ends."""
    rng = numpy.random.default_rng(7)
    made = {}
    for kind in TYPES:
        for order in "<>":
            dtype = numpy.dtype(order + kind)
            bits = rng.integers(0, 256, 5 * 3 * 4 * dtype.itemsize, dtype=numpy.uint8)
            array = (bits % 2 if kind == "b1" else bits).view(dtype).reshape(5, 3, 4)
            made[f"{kind} {order}"] = array
            made[f"{kind} {order} F"] = numpy.asfortranarray(array)
    made["scalar"] = numpy.array(2.5)
    made["empty"] = numpy.zeros((3, 0, 2), dtype=numpy.int16, order="F")
    made["folder/name.with.dots"] = rng.standard_normal((700, 900)).T
    return made


def described(array):
    """complex128, which safetensors lacks, is stored as pairs."""
    if array.dtype.kind == "c" and array.itemsize == 16:
        array = numpy.stack([array.real, array.imag], -1)
    kind, shape, data = common.described_array(numpy.ascontiguousarray(array))
    return kind, list(array.shape) if shape else shape, data


def check(save, tool, folder):
    save(folder / "a.npz", **arrays())
    out = tool.run("unshard.lua", folder / "a.npz", folder / "out")
    got, _ = common.read_safetensors(out / "model.safetensors")
    common.hold_tensors({key: described(array) for key, array in arrays().items()}, got)


def check_single(tool, folder):
    (folder / "in" / "b").mkdir(parents=True)
    array = numpy.arange(12, dtype=">f8").reshape(3, 4).T
    numpy.save(folder / "in" / "b" / "one.npy", array)
    numpy.save(folder / "in" / "two.npy", numpy.float16(3))
    out = tool.run("unshard.lua", folder / "in", folder / "out")
    got, _ = common.read_safetensors(out / "model.safetensors")
    want = {"b/one": described(array), "two": described(numpy.array(3, "f2"))}
    common.hold_tensors(want, got)


RECIPE = """
return { api = 1, about = "each tensor as numpy's file", plan = function(cat, plan)
  for name, row in pairs(cat:tensors()) do
    plan:write(name .. ".npy", { [name] = row })
  end
  plan:drop(cat:values(), "numpy has no place for them")
end }
"""


def check_written(tool, folder):
    """What ckptflow writes is what numpy writes, to the byte."""
    want = {key.replace(" ", "_"): value for key, value in arrays().items()}
    numpy.savez(folder / "a.npz", **want)
    (folder / "npy.lua").write_text(RECIPE)
    out = tool.run(str(folder / "npy.lua"), folder / "a.npz", folder / "out")
    for key, array in want.items():
        plain = numpy.array(array, array.dtype.newbyteorder("<"), order="C")
        got = numpy.load(out / f"{key}.npy")
        assert got.dtype == plain.dtype and got.shape == plain.shape, key
        assert got.tobytes() == plain.tobytes(), key
        numpy.save(folder / "one.npy", plain)
        same = (folder / "one.npy").read_bytes() == (out / f"{key}.npy").read_bytes()
        assert same, f"{key}: other bytes than numpy.save's"


def check_refusals(tool, folder):
    dates = numpy.array(["2026-01-01"], dtype="M8[D]")
    for name, array, code, word in [
        ("objects", numpy.array([{}], dtype=object), "E_MAGIC", "Python objects"),
        ("texts", numpy.array(["a"]), "E_DTYPE", "<U1"),
        ("dates", dates, "E_DTYPE", "M8[D]"),
        ("records", numpy.zeros(2, dtype=[("x", "f4"), ("y", "i8")]), "E_DTYPE", "'x'"),
        ("long", numpy.zeros(2, dtype=numpy.longdouble), "E_DTYPE", "f16"),
    ]:
        for file, save in ((f"{name}.npy", numpy.save), (f"{name}.npz", numpy.savez)):
            save(folder / file, array)
            tool.refused(folder / file, code, word)
    numpy.savez(folder / "two.npz", good=numpy.zeros(3), bad=numpy.array(["x"]))
    tool.refused(folder / "two.npz", "E_DTYPE", "bad.npy")


def checks():
    yield "numpy savez", lambda *with_: check(numpy.savez, *with_)
    yield "numpy savez_compressed", lambda *with_: check(numpy.savez_compressed, *with_)
    yield "numpy .npy files", check_single
    yield "numpy files written", check_written
    yield "numpy refusals", check_refusals

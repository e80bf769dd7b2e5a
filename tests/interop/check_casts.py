"""--dtype against torch's own .to(): every upper half of F32 with lows around the ties, every F16,
BF16 and float8, F64 around the ties of all of them. NaN stays NaN, whatever its bits."""

import torch
from safetensors.torch import load_file

TARGETS = {
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "F32": torch.float32,
    "F64": torch.float64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
EIGHTS = "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu".split()
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def sources():
    high = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int64)
    low32 = [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x4000, 0xC000, 0xFFF, 0x1000, 0x1001, 0x3FFF]
    low64 = [0, 1, 1 << 28, (1 << 28) - 1, (1 << 28) + 1, 1 << 29, (1 << 48) - 1, 3 << 44]
    for bit in (44, 45, 47):
        low64 += [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]
    found = {
        "f32": torch.cat([high << 16 | low for low in low32]).to(torch.int32).view(torch.float32),
        "f64": torch.cat([high << 48 | low for low in low64]).view(torch.float64),
        "f16": high.to(torch.int16).view(torch.float16),
        "bf16": high.to(torch.int16).view(torch.bfloat16),
    }
    for name in EIGHTS:
        if hasattr(torch, name):
            found[name] = torch.arange(256, dtype=torch.uint8).view(getattr(torch, name))
    return found


def check(target, dtype, tool, folder):
    tensors = sources()
    torch.save(tensors, folder / "all.pt")
    out = tool.run("convert.lua", folder / "all.pt", folder / "out", "--dtype", target)
    got = load_file(out / "tensors.safetensors")
    for key, tensor in tensors.items():
        want = tensor.to(dtype)
        assert got[key].dtype == dtype, (key, got[key].dtype)
        bits = BITS[want.element_size()]
        differs = got[key].view(bits) != want.view(bits)
        differs &= ~(got[key].float().isnan() & want.float().isnan())
        wrong = differs.nonzero().flatten()
        assert not len(wrong), (key, len(wrong), tensor[wrong[0]], got[key][wrong[0]], want[wrong[0]])


def checks():
    for target, dtype in TARGETS.items():
        yield f"--dtype {target}", lambda *with_, t=target, d=dtype: check(t, d, *with_)

"""olmo_unshard.py CKPT OUT torch|safetensors: OLMo's own unsharder (ai2-olmo 0.6.0), as its
scripts/unshard.py calls it; that script is not in the package. Prints wall and CPU seconds without
the imports."""

import importlib
import importlib.util
import os
import pathlib
import shutil
import sys
import time
import unittest.mock

# What ai2-olmo imports at its top and unsharding does not use, where it is not installed.
UNUSED = """datasets boto3 botocore botocore.exceptions botocore.config cached_path cached_path.schemes
google google.api_core google.api_core.retry google.cloud requests torchmetrics wandb""".split()


def import_olmo():
    missing = {name for name in UNUSED if importlib.util.find_spec(name.split(".")[0]) is None}
    for name in missing:
        sys.modules[name] = unittest.mock.MagicMock()
    try:
        importlib.import_module("olmo.checkpoint")
        return importlib.import_module("olmo")
    finally:
        for name in missing:
            del sys.modules[name]


def unshard(checkpoint, out, to):
    import torch
    from olmo.checkpoint import build_sharded_checkpointer
    from olmo.config import TrainConfig
    from olmo.safetensors_util import state_dict_to_safetensors_file

    config = TrainConfig.load(checkpoint / "config.yaml", validate_paths=False)
    checkpointer = build_sharded_checkpointer(config, name=config.sharded_checkpointer)
    *states, train = checkpointer.unshard_checkpoint(checkpoint)
    out.mkdir()
    for name in ("model", "optim"):
        if to == "safetensors":
            state_dict_to_safetensors_file(states.pop(0), str(out / f"{name}.safetensors"))
        else:
            torch.save(states.pop(0), out / f"{name}.pt")
    torch.save(train, out / "train.pt")
    shutil.copy(checkpoint / "config.yaml", out)


def main():
    os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"  # else torch 2.6 and later refuse
    import_olmo()
    importlib.import_module("olmo.safetensors_util")
    wall, cpu = time.perf_counter(), sum(os.times()[:2])
    unshard(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3])
    print(time.perf_counter() - wall, sum(os.times()[:2]) - cpu)


if __name__ == "__main__":
    main()

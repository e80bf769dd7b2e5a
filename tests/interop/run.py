#!/usr/bin/env python3
"""run.py BINARY: ckptflow against real PyTorch, safetensors and numpy. `./dev interop` runs it.

Each check_*.py has checks(): names, and functions of a tool and an empty folder that assert.
"""

import pathlib
import sys
import tempfile
import traceback
import warnings

import check_bench
import check_casts
import check_deepspeed
import check_dcp
import check_dcp_in
import check_dtensor
import check_hf
import check_megatron
import check_megatron_core
import check_numpy
import check_olmo
import check_olmo_kinds
import check_ranks
import check_recipes
import check_tools
import check_torch
import check_torch_out
from common import Tool


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.splitlines()[0])
    warnings.simplefilter("ignore")
    tool = Tool(pathlib.Path(sys.argv[1]).resolve())
    passed = failed = 0
    for module in (
        check_olmo,
        check_olmo_kinds,
        check_numpy,
        check_megatron,
        check_megatron_core,
        check_ranks,
        check_recipes,
        check_torch,
        check_tools,
        check_torch_out,
        check_deepspeed,
        check_dcp,
        check_dcp_in,
        check_dtensor,
        check_hf,
        check_bench,
        check_casts,
    ):
        for name, check in module.checks():
            try:
                with tempfile.TemporaryDirectory() as folder:
                    check(tool, pathlib.Path(folder))
                print(f"ok    {name}", flush=True)
                passed += 1
            except Exception as error:  # a check that breaks is a check that fails
                print(f"FAIL  {name}: {error}", flush=True)
                if not isinstance(error, AssertionError):
                    traceback.print_exc()
                failed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

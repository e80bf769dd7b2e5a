"""One run by several processes (--rank R/N): shares.py CKPTFLOW LIBFAULT

In whatever order, at one time or one after another, some of them killed and begun again: the output
has the bytes of an undivided run, and is there only when the last one is through. Checkpoints are
made by bench/generate.py; libfault.so stops a share at its N-th write.
"""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import tempfile

from runs import check, clear, command, digest, environment, generate, out, partial, run

rng = random.Random(4)


def reference(arguments):
    clear(out)
    status, _, stderr = run(*arguments)
    check(status == 0, stderr)
    found = digest(out)
    clear(out)
    return found


def share(arguments, rank, of, *more, fault=None):
    """What a share says of itself."""
    status, stdout, stderr = run(*arguments, "--rank", f"{rank}/{of}", "--json", *more, fault=fault)
    check(status == 0, f"{rank}/{of}: {status}: {stderr}")
    return json.loads(stdout)


def whole(want, why):
    check(digest(out) == want, f"{why}: other bytes")
    check(not partial.exists(), f"{why}: the partial folder is left")
    clear(out)


def in_turn(arguments, of):
    """Any order; who is not the last one says what is missing."""
    want = reference(arguments)
    left = list(range(of))
    rng.shuffle(left)
    written = 0
    while left:
        rank = left.pop()
        check(not out.exists(), "an output that is not whole")
        told = share(arguments, rank, of)
        check(told["share"]["missing"] == sorted(left), f"{told['share']}: {left}")
        check(told["share"]["complete"] == (not left), told["share"])
        written += told["written"] if left else 0
    check(written <= told["written"], "shares wrote more than there is")
    whole(want, f"{arguments} {of}")


def at_once(arguments, of):
    want = reference(arguments)
    processes = [
        subprocess.Popen(
            [*command(*arguments), "--rank", f"{rank}/{of}", "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(1, of + 1)  # N/N is 0/N
    ]
    told = []
    for process in processes:
        stdout, stderr = process.communicate()
        check(process.returncode == 0, stderr)
        told.append(json.loads(stdout)["share"])
    check(sum(one["complete"] for one in told) == 1, told)
    whole(want, f"{arguments} at once")


def killed(arguments, of, call="pwrite"):
    """A share dies at any write, perhaps while it finishes the output, and is begun again."""
    want = reference(arguments)
    left = list(range(of))
    rng.shuffle(left)
    while left:
        rank = left[-1]
        at = rng.choice([1, 2, rng.randint(1, 200), rng.randint(1, 200)])
        status, _, stderr = run(
            *arguments, "--rank", f"{rank}/{of}", fault=f"{call}:{at}:KILL"
        )
        check(status in (0, -signal.SIGKILL), stderr)
        if status == 0:
            left.pop()
            check(out.exists() == (not left), f"{len(left)} are left")
    whole(want, f"{arguments} killed")


def twice(arguments):
    """A share that is done is not done again; one that is under way is busy."""
    want = reference(arguments)
    share(arguments, 0, 3)
    told = share(arguments, 0, 3)
    check(told["windows"] == 0 and told["share"]["missing"] == [1, 2], told)
    process = subprocess.Popen(
        [*command(*arguments), "--rank", "1/3", "-j", "1"], env=environment("pwrite:2:STOP"),
        stdout=subprocess.DEVNULL,
    )
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    status, _, stderr = run(*arguments, "--rank", "1/3")
    check(status == 7 and "E_BUSY" in stderr and "1/3 is under way" in stderr, stderr)
    status, _, stderr = run(*arguments)
    check(status == 7 and "E_BUSY" in stderr, stderr)
    told = share(arguments, 2, 3)
    check(told["share"]["missing"] == [1], told)
    process.send_signal(signal.SIGCONT)
    check(process.wait() == 0, "the share that was stopped")
    whole(want, "twice")
    status, _, stderr = run(*arguments, "--rank", "0/3")
    check(status == 0, stderr)  # OUT is gone: a run of its own
    clear(partial)


def refused(checkpoint, arguments):
    """Another plan, division or checkpoint is refused by name, and nothing is lost."""
    want = reference(arguments)
    share(arguments, 0, 3)
    for more, why in [
        (["--rank", "1/3", "--dtype", "BF16"], "options or scripts are not those of --rank 0/3"),
        (["--rank", "1/3", "--exclude", "rng*"], "options or scripts"),
        (["--rank", "1/4"], "this is a share of 4, --rank 0/3 is there already"),
    ]:
        status, _, stderr = run(*arguments, *more)
        check(status == 7 and "E_BUSY" in stderr and why in stderr, stderr)
    some = sorted(checkpoint.iterdir())[-1]
    was = some.stat()
    os.utime(some)
    status, _, stderr = run(*arguments, "--rank", "1/3")
    check(status == 7 and "the checkpoint is not what it was for --rank 0/3" in stderr, stderr)
    os.utime(some, ns=(was.st_atime_ns, was.st_mtime_ns))
    share(arguments, 2, 3)
    share(arguments, 1, 3)
    whole(want, "refused")
    for wrong in ["4/3", "1", "1/0", "/3", "1/", "-1/3", "1/3/4", "a/b", "1/65537"]:
        status, _, stderr = run(*arguments, "--rank", wrong)
        check(status == 2 and "--rank takes R/N" in stderr, f"{wrong}: {status}: {stderr}")
    out.mkdir()
    status, _, stderr = run(*arguments, "--rank", "0/2")
    check(status == 7 and "E_EXISTS" in stderr, stderr)
    for rank in range(2):
        share(arguments, rank, 2, "--overwrite")
    whole(want, "overwritten")


def undivided(arguments):
    """What shares left an undivided run goes on with, and the other way round."""
    want = reference(arguments)
    share(arguments, 1, 3)
    run(*arguments, "--rank", "0/3", "-j", "1", fault="pwrite:20:KILL")
    status, stdout, stderr = run(*arguments, "--json")
    check(status == 0 and json.loads(stdout)["resumed"] > 0, stderr)
    whole(want, "an undivided run after shares")
    run(*arguments, "-j", "1", fault="pwrite:60:KILL")
    told = [share(arguments, rank, 2) for rank in range(2)]
    check(told[0]["resumed"] + told[1]["resumed"] > 0, told)
    whole(want, "shares after an undivided run")


def failing(checkpoint, arguments):
    """A share that stops or fails, with the others' work in the folder."""
    want = reference(arguments)
    for what, status in [("TERM", 143), ("ENOSPC", 75), ("EIO", 75)]:
        share(arguments, 0, 2)
        got, _, stderr = run(*arguments, "--rank", "1/2", "-j", "1", fault=f"pwrite:20:{what}")
        check(got == status and "the same command goes on" in stderr, f"{got}: {stderr}")
        share(arguments, 1, 2)
        whole(want, what)
    got, _, stderr = run(*arguments, "--rank", "1/2", "-j", "1", fault="pwrite:1:EIO")
    check(got == 7 and not partial.exists(), stderr)  # nothing is worth keeping
    # a record whose checksum is wrong shows at the end, or before
    rank = checkpoint / "rank0.pt"
    text = bytearray(rank.read_bytes())
    text[len(text) // 2] ^= 1
    rank.write_bytes(text)
    share(arguments, 0, 2)
    got, _, stderr = run(*arguments, "--rank", "1/2")
    check(got == 4 and "E_ZIP_CRC: rank0.pt" in stderr, f"{got}: {stderr}")
    check(not partial.exists() and not out.exists(), "something is left")
    text[len(text) // 2] ^= 1
    rank.write_bytes(text)
    # what a share wrote must still be there
    share(arguments, 0, 2)
    (partial / "model.safetensors").unlink()
    for rank in range(2):
        got, _, stderr = run(*arguments, "--rank", f"{rank}/2")
        check(got == 7 and "model.safetensors: a share that is done wrote it" in stderr, stderr)
    clear(partial)


def read_back(arguments):
    want = reference(arguments)
    got, _, stderr = run(*arguments, "--rank", "0/2", "--verify", "-j", "1", fault="pwrite:9:FLIP")
    check(got == 75 and "do not come back from the disk" in stderr, f"{got}: {stderr}")
    told = [share(arguments, rank, 2, "--verify") for rank in range(2)]
    check(told[0]["resumed"] == told[0]["windows"] - 1, told[0])
    check(told[0]["read_back"] == told[0]["written"], told[0])
    whole(want, "read back")


def main():
    # in memory, if there is room: a share syncs what it wrote, and disks are slow
    memory = "/dev/shm"
    there = os.path.isdir(memory) and shutil.disk_usage(memory).free > 300e6
    with tempfile.TemporaryDirectory(dir=memory if there else None) as folder:
        os.chdir(folder)
        generate("rows", "24MB")
        rows = ["unshard.lua", "rows"]
        status, _, stderr = run("convert.lua", "rows", "--to", "dcp", name="dcp")
        check(status == 0, stderr)
        in_turn([*rows, "--dtype", "BF16", "--max-shard-size", "5MB"], 5)
        in_turn(["convert.lua", "dcp", "--to", "safetensors"], 3)
        in_turn(rows, 1)
        in_turn(rows, 20)  # more than there are windows
        at_once([*rows, "--to", "torch", "--fsync"], 4)
        at_once(["convert.lua", "rows", "--to", "dcp"], 3)
        killed(rows, 2)
        killed(["convert.lua", "rows", "--to", "torch"], 2)
        killed(["convert.lua", "rows", "--to", "dcp"], 2, call="write")
        twice(rows)
        refused(pathlib.Path("rows"), rows)
        undivided(rows)
        failing(pathlib.Path("rows"), rows)
        read_back(rows)
        shutil.rmtree("rows")
    print("shares: all right")


main()

"""A run that is killed, stopped or fails, and the same command again: resume.py CKPTFLOW LIBFAULT [ROUNDS]

Whatever happened before, the output has the bytes of a run that nobody disturbed, windows that were
finished are not made again, and nothing else is left. Checkpoints are made by bench/generate.py;
libfault.so (fault/fault.c) stops a run at its N-th write. Other signals come at random times.
"""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import zlib

from runs import check, clear, command, digest, environment, generate, out, partial, run

ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 3
JOURNAL = ".ckptflow-journal"
rng = random.Random(20)


def lines():
    """Finished windows of the journal; a line that is torn does not count."""
    text = (partial / JOURNAL).read_bytes()
    whole = text[: text.rfind(b"\n") + 1].splitlines()[1:]
    return {tuple(line.split()[:3]) for line in whole}


def reference(*arguments):
    """The undisturbed run: digest of its output and what it says of itself."""
    clear(out)
    status, stdout, stderr = run(*arguments, "--json")
    check(status == 0, stderr)
    found = digest(out)
    clear(out)
    return found, json.loads(stdout)


def finish(want, arguments, finished):
    """The same command, undisturbed: it goes on."""
    status, stdout, stderr = run(*arguments, "--json")
    check(status == 0, stderr)
    told = json.loads(stdout)
    check(digest(out) == want, f"{arguments}: other bytes after {finished} windows")
    check(told["resumed"] == finished, f"{told['resumed']} windows taken over of {finished}")
    check(not partial.exists(), "the partial folder is still there")
    clear(out)
    return told


def by_writes(arguments):
    """Killed at any write, again and again, until it is through."""
    want, whole = reference(*arguments)
    for _ in range(ROUNDS):
        kills, finished = 0, 0
        while True:
            fault = f"{rng.choice(['pwrite', 'pwrite', 'write'])}:{rng.randint(1, 120)}:KILL"
            status, stdout, stderr = run(*arguments, "--json", fault=fault)
            if status == 0:
                break
            check(status == -signal.SIGKILL, stderr)
            check(not out.exists(), "an output that is not whole")
            kills += 1
            if (partial / JOURNAL).exists():
                now = len(lines())
                check(now >= finished, "fewer windows than before")
                finished = now
            if rng.random() < 0.2:
                told = finish(want, arguments, finished)
                if finished > 6:  # small files have nothing to read, or little
                    check(told["read"] < whole["read"], "all was read again")
                finished = -1
                break
        if finished >= 0:
            told = json.loads(stdout)
            check(digest(out) == want, f"{arguments}: other bytes after {kills} kills")
            check(told["tensors"] == whole["tensors"], f"{told['tensors']}: {whole['tensors']}")
            clear(out)


def by_time(arguments):
    """SIGKILL from outside, at random times."""
    start = time.monotonic()
    want, _ = reference(*arguments)
    seconds = time.monotonic() - start
    kills = 0
    for _ in range(4 * ROUNDS):
        process = subprocess.Popen(
            command(*arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(rng.uniform(0, seconds))
        process.kill()
        kills += process.wait() != 0
        if out.exists():
            check(digest(out) == want, f"{arguments}: other bytes")
            clear(out)
    check(kills, "every run was through before it was killed")
    finished = len(lines()) if (partial / JOURNAL).exists() else 0
    finish(want, arguments, finished)


def by_signal(arguments):
    """Signals and failures: exit status, what is left, and that the same command goes on."""
    want, whole = reference(*arguments)
    for what, status, code in [
        ("INT", 130, "E_INTERRUPTED"), ("TERM", 143, "E_INTERRUPTED"),
        ("USR1", 75, "E_INTERRUPTED"), ("HUP", 129, "E_INTERRUPTED"),
        ("ENOSPC", 75, "E_SPACE"), ("EIO", 75, "E_IO"), ("ENOMEM", 75, "E_MEMORY"),
    ]:
        got, _, stderr = run(*arguments, "--json", "-j", "1", fault=f"pwrite:100:{what}")
        check(got == status, f"{what}: exit status {got}: {stderr}")
        error = json.loads(stderr.splitlines()[-1])["error"]
        check(error["code"] == code and error["exit"] == status, stderr)
        check(0 < len(lines()) < whole["windows"], f"{what}: {len(lines())} windows")
        finish(want, arguments, len(lines()))
    for what, code in [("ENOSPC", "E_SPACE"), ("EIO", "E_IO"), ("ENOMEM", "E_MEMORY")]:
        for call in ["pwrite:1", "write:1"]:
            got, _, stderr = run(*arguments, fault=f"{call}:{what}")
            check(got == 7 and code in stderr, f"{call}:{what}: exit status {got}: {stderr}")
            check(not partial.exists(), f"{call}:{what}: the partial folder is left")


def stop(arguments):
    got, _, stderr = run(*arguments, "-j", "1", fault="pwrite:100:TERM")
    check(got == 143, stderr)
    return lines()


def resumed(arguments):
    status, stdout, stderr = run(*arguments, "--json")
    check(status == 0, stderr)
    return json.loads(stdout)["resumed"]


def by_change(checkpoint, arguments):
    """What is left is used only for what it is of, as far as it is what it was."""
    want, _ = reference(*arguments)
    journal = partial / JOURNAL

    def again(count, why):
        got = resumed(arguments)
        check(got == count, f"{why}: {got} windows taken over, not {count}")
        check(digest(out) == want, f"{why}: other bytes")
        clear(out)

    def afresh(arguments, why):
        status, stdout, stderr = run(*arguments)
        check(status == 0 and why in stderr and "done before" not in stdout, f"{stderr}{stdout}")
        clear(out)

    done = stop(arguments)
    with open(journal, "ab") as file:  # torn in the middle of a line
        file.write(b"0 8388608 16777216 0bad")
    again(len(done), "a torn line")

    stop(arguments)
    with open(journal, "r+b") as file:
        file.truncate(journal.stat().st_size - 3)
    again(len(done) - 1, "a line cut off")

    stop(arguments)
    text = bytearray(journal.read_bytes())
    second = text.index(b"\n", text.index(b"\n") + 1) + 1
    text[second] ^= 1
    journal.write_bytes(text)
    again(1, "a flipped bit")

    for line in [
        b"0 0 99999999999 00000000", b"9999 0 8388608 00000000", b"0 8388608 0 00000000",
        b"0 0 8388608 00000000 99999 0 1 00000000", b"0 0 8388608 00000000 0 1 2",
        b"-1 0 8388608 00000000", b"0 0 18446744073709551617 00000000", b"0 0", b"",
    ]:
        stop(arguments)
        with open(journal, "ab") as file:  # nonsense with a right checksum
            file.write(b"%s %08x\n" % (line, zlib.crc32(line)))
        again(len(done), f"the line {line}")

    stop(arguments)
    _, begin, end = (int(word) for word in sorted(done)[0])
    line = b"0 %d %d 12345678" % (begin, end)
    with open(journal, "ab") as file:  # a window whose bytes are others
        file.write(b"%s %08x\n" % (line, zlib.crc32(line)))
    got = resumed(arguments)
    check(got in (len(done), len(done) - 1), f"{got} windows")
    check(digest(out) == want, "a forged line: other bytes")
    clear(out)

    stop(arguments)
    file, begin, end = (int(word) for word in sorted(done)[-1])
    sizes = sorted(path for path in partial.iterdir() if path.name != JOURNAL)
    damaged = 0
    for path in sizes:  # as after a loss of power: what was written is not there
        if path.stat().st_size < end:
            continue
        with open(path, "r+b") as stream:
            stream.seek(begin)
            stream.write(bytes(end - begin))
        damaged += 1
    check(damaged, "nothing to damage")
    got = resumed(arguments)
    check(got < len(done), "a window of zeros was taken over")
    check(digest(out) == want, "zeros: other bytes")
    clear(out)

    stop(arguments)
    (partial / "stray").write_text("x")
    (partial / "folder").mkdir()
    (partial / "folder" / "stray").write_text("x")
    again(len(done), "strays")

    stop(arguments)
    journal.write_text("ckptflow-journal 0\n")
    afresh(arguments, "note: begins afresh: what the run that was stopped left cannot be used")
    stop(arguments)
    afresh([*arguments, "--dtype", "BF16"], "begins afresh: its options or scripts are not those")
    stop(arguments)
    some = sorted(checkpoint.iterdir())[-1]
    os.utime(some)
    afresh(arguments, "begins afresh: the checkpoint is not the one")

    stop(arguments)  # another run has it
    process = subprocess.Popen(
        command(*arguments), env=environment("pwrite:60:STOP"), stdout=subprocess.DEVNULL
    )
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    got, _, stderr = run(*arguments)
    check(got == 7 and "E_BUSY" in stderr, stderr)
    process.send_signal(signal.SIGCONT)
    check(process.wait() == 0 and digest(out) == want, "the other run was disturbed")
    clear(out)


def by_damage(checkpoint, arguments):
    """A record over many windows whose checksum is wrong is found after a resume too."""
    rank = checkpoint / "rank0.pt"
    text = bytearray(rank.read_bytes())
    text[len(text) // 2] ^= 1
    rank.write_bytes(text)
    for at in [40, 100, 180]:
        got, _, stderr = run(*arguments, "-j", "1", fault=f"pwrite:{at}:KILL")
        check(got == -signal.SIGKILL, stderr)
        got, _, stderr = run(*arguments)
        check(got == 4 and "E_ZIP_CRC: rank0.pt" in stderr, f"exit status {got}: {stderr}")
        check(not partial.exists() and not out.exists(), "something is left")
    text[len(text) // 2] ^= 1
    rank.write_bytes(text)


def read_back(arguments):
    """--verify finds what the disk did not take, and names it; the same command mends it."""
    want, _ = reference(*arguments)
    got, stdout, stderr = run(*arguments, "--verify", "--json")
    told = json.loads(stdout)
    check(got == 0 and told["read_back"] == told["written"], stderr)
    check(digest(out) == want, "--verify: other bytes")
    clear(out)
    for at in [30, 90, 150]:
        got, _, stderr = run(*arguments, "--verify", "--json", fault=f"pwrite:{at}:FLIP")
        error = json.loads(stderr.splitlines()[-1])["error"]
        check(got == 75 and error["code"] == "E_IO", f"exit status {got}: {stderr}")
        check(".safetensors" in error["file"] and ".weight" in error["message"], stderr)
        status, stdout, stderr = run(*arguments, "--verify", "--json")
        check(status == 0, stderr)
        told = json.loads(stdout)
        check(told["resumed"] == told["windows"] - 1, f"{told['resumed']} of {told['windows']}")
        check(digest(out) == want, "mended: other bytes")
        clear(out)
    got, _, stderr = run(*arguments, "--verify", fault="pwrite:100000:FLIP")
    check(got == 0, stderr)
    clear(out)


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for layout, size in [("rows", "56MB"), ("columns", "32MB")]:
            generate(layout, size)
        by_writes(["unshard.lua", "rows"])
        by_writes(["unshard.lua", "columns", "-j", "3"])
        by_writes(["unshard.lua", "rows", "--dtype", "BF16", "--max-shard-size", "10MB"])
        by_time(["unshard.lua", "rows"])
        by_signal(["unshard.lua", "rows"])
        by_change(pathlib.Path("rows"), ["unshard.lua", "rows"])
        by_damage(pathlib.Path("rows"), ["unshard.lua", "rows"])
        read_back(["unshard.lua", "rows"])
    print("resume: all right")


main()

#!/usr/bin/env python3
"""repickle.py FILE... -- OLD NEW [OLD NEW]...

Changes the pickle of torch.save files in place: the first OLD in it that is there (all of them with
a leading @) becomes NEW. Both are texts with Python's escapes (\\x07). The archive is written anew,
its members as they were."""

import os
import sys
import zipfile


def text(word):
    return word.encode().decode("unicode_escape").encode("latin-1")


def main():
    at = sys.argv.index("--")
    files, words = sys.argv[1:at], sys.argv[at + 1 :]
    for path in files:
        with zipfile.ZipFile(path) as archive:
            members = [(m.filename, archive.read(m)) for m in archive.infolist()]
        os.remove(path)
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in members:
                if name.endswith("/data.pkl"):
                    for old, new in zip(words[::2], words[1::2]):
                        every, old = old[0] == "@", text(old.removeprefix("@"))
                        if old not in data:
                            sys.exit(f"{path}: {old} is not there")
                        data = data.replace(old, text(new), -1 if every else 1)
                archive.writestr(zipfile.ZipInfo(name), data)


if __name__ == "__main__":
    main()

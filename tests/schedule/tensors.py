"""Prints a line for each tensor of a safetensors file whose name begins with PREFIX: its name and a
hash of its bytes.

    python3 tensors.py FILE [PREFIX]
"""
import hashlib
import json
import sys


def main(path, prefix=""):
    data = open(path, "rb").read()
    n = int.from_bytes(data[:8], "little")
    for name, entry in sorted(json.loads(data[8:8 + n]).items()):
        if name != "__metadata__" and name.startswith(prefix):
            begin, end = entry["data_offsets"]
            print(name, hashlib.sha1(data[8 + n + begin:8 + n + end]).hexdigest())


main(*sys.argv[1:])

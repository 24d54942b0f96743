"""Prints the bytes of all tensors of a safetensors file."""
import json
import struct
import sys

with open(sys.argv[1], "rb") as f:
    head = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
print(sum(t["data_offsets"][1] - t["data_offsets"][0] for k, t in head.items() if k != "__metadata__"))

"""Token files for the benchmarks."""
import random
import struct


def write_tokens(path, vocab, count):
    """Random tokens in llm.c's format: 256 int32 of header, then uint16."""
    rng = random.Random(1)
    header = [20240520, 1, count] + [0] * 253
    data = struct.pack("<256i", *header)
    data += struct.pack(f"<{count}H", *(rng.randrange(vocab) for _ in range(count)))
    path.write_bytes(data)

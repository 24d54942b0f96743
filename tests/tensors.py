"""tensors.py -- reads a file of safetensors, for the scripts of the tests: tensors(PATH) is a dict from
names, sorted, to (shape, values), of F64, F32 or BF16."""
import array
import json

KINDS = {'F64': 'd', 'F32': 'f', 'BF16': 'H'}


def widened(halves):
    words = array.array('I', [h << 16 for h in halves])
    return array.array('f', words.tobytes())


def tensors(path):
    with open(path, 'rb') as file:
        data = file.read()
    n = 8 + int.from_bytes(data[:8], 'little')
    found = {}
    for name, t in sorted(json.loads(data[8:n]).items()):
        if name != '__metadata__':
            begin, end = t['data_offsets']
            values = array.array(KINDS[t['dtype']], data[n + begin:n + end])
            found[name] = t['shape'], widened(values) if t['dtype'] == 'BF16' else values
    return found

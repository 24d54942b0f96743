"""tensors.py -- reads a file of safetensors, for the scripts of the tests: tensors(PATH) is a dict from
names, sorted, to (shape, values), of F64 or F32."""
import array
import json

KINDS = {'F64': 'd', 'F32': 'f'}


def tensors(path):
    with open(path, 'rb') as file:
        data = file.read()
    n = 8 + int.from_bytes(data[:8], 'little')
    found = {}
    for name, t in sorted(json.loads(data[8:n]).items()):
        if name != '__metadata__':
            begin, end = t['data_offsets']
            found[name] = t['shape'], array.array(KINDS[t['dtype']], data[n + begin:n + end])
    return found

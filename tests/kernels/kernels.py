#!/usr/bin/env python3
"""kernels.py -- each MAP kernel of a model in CUDA against the same kernel in C.

usage: kernels.py WORK FILE.c FILE.cu [DIM=SIZE ...]
In: the two emitted files. Out: WORK/kernels.c and WORK/kernels.cu, which run.sh compiles: every
kernel is called on the same random buffers by both, and all bytes that either wrote are compared.
"""
import re
import sys

SIZE = {'float': 4, 'double': 8, 'int32_t': 4, 'rt_bf16': 2, 'rt_f16': 2, 'bool': 1}


def cut(text):
    """Sections 1 to 4."""
    part = text[:re.search(r'^/\* ---- 5 forward', text, re.M).start()]
    return part + ('}\n' if re.search(r'^namespace \{', part, re.M) else '')


def functions(text):
    found = {}
    for m in re.finditer(r'^static void (k\d+_\w+)\(([^)]*)\)\n\{\n(.*?)^\}', text, re.M | re.S):
        args = []
        for a in re.sub(r'\s+', ' ', m[2]).split(', '):
            words = a.replace('restrict ', '').replace('*', '* ').split(' ')
            args.append((' '.join(w for w in words[:-1] if w != '*' and w != 'const'), '*' in a,
                         'const' in a, words[-1]))
        found[m[1]] = (args, m[3])
    return found


def main():
    work, c_file, cu_file, *given = sys.argv[1:]
    dims = dict(g.split('=') for g in given)
    c, cu = cut(open(c_file).read()), cut(open(cu_file).read())
    host, device = functions(c), functions(cu)
    calls_c, calls_cu, rows = [], [], []
    for name, (args, body) in device.items():
        if 'RT_LAUNCH' not in body:
            continue
        if name not in host and any(h.startswith(name.split('_')[0] + '_') for h in host):
            continue                    # what an epilogue leaves of that kernel: there is none in C
        pointers = [(t, n, const) for t, p, const, n in args
                    if p and n not in ('s', 'stream', 'work', 'work_totals')]
        index = {n: i for i, (t, n, const) in enumerate(pointers)}

        def value(t, p, n, side):
            if n in index:
                return f'({t} *)at[{index[n]}]'
            if n in ('work', 'work_totals'):
                return f'({t} *){n}'
            if n in dims:
                return dims[n]
            return {'s': 'step', 'stream': '&stream', 'key': '(RtKey){ 12345, 7 }',
                    'sample': '11'}.get(n) or (
                '0.37f' if n.startswith('seed_') and t == 'float' else '0.37' if n.startswith('seed_')
                else '2' if n.startswith('iter') else 'flag' if t == 'bool' else sys.exit(f'{name}: {n}?'))
        calls_c.append('    case %d: %s(%s); break;' % (len(rows), name, ', '.join(
            value(t, p, n, 0) for t, p, const, n in host[name][0])))
        calls_cu.append('    case %d: %s(%s); break;' % (len(rows), name, ', '.join(
            value(t, p, n, 1) for t, p, const, n in args)))
        kinds = ', '.join('{ "%s", %d }' % (n, list(SIZE).index(t)) for t, n, const in pointers)
        rows.append('    { "%s", %d, { %s } },' % (name, len(pointers), kinds))
    head = '/* made by kernels.py */\n'
    open(f'{work}/kernels.c', 'w').write(
        c + 'void call_c(int kernel, void **at, void *work, bool flag)\n{\n    switch (kernel) {\n'
        + '\n'.join(calls_c) + '\n    }\n}\n')
    open(f'{work}/kernels.cu', 'w').write(
        cu + 'struct Row { const char *name; int n; struct { const char *name; int kind; } arg[24]; };\n'
        'static const Row rows[] = {\n' + '\n'.join(rows) + '\n};\n'
        'static RtStream stream;\n'
        'static void call_cuda(int kernel, void **at, void *work, void *work_totals, RtStep *step, bool flag)\n'
        '{\n    switch (kernel) {\n' + '\n'.join(calls_cu) + '\n    }\n}\n#include "kernels.h"\n')


main()

#!/usr/bin/env python3
"""model.py SEED: prints a random model. The same seed gives the same model.

Values are made one from another by a dozen kinds of steps; every value is part of the loss, so that
every gradient is looked at. Each third model has rows of 12, as some kernels are written another way
from 8 columns on.
"""
import random
import sys

HEAD = '''const C = SIZE + 2, D = SIZE, H = 2, L = 2, K = 7
batch B
dim T <= 9
layer cell[C](x: [B, T, C]) -> [B, T, C] {
    f : linear[C, C]
    n : rmsnorm[C]
    return x + tanh(f(n(x)))
}
model made(x: [B, T, C], u: [B, D], ids: int[B, T] in 0..K, lab: int[B, T] in 0..D or -1) {
    param w0: [C]'''


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.size = 4 if seed % 3 else 10
        self.params, self.lines, self.count = [], [], 0
        self.values = [('x', ('B', 'T', 'C')), ('u', ('B', 'D'))]

    def name(self, letter):
        self.count += 1
        return f'{letter}{self.count}'

    def param(self, letter, rest):
        name = self.name(letter)
        self.params.append('    ' + rest.replace('NAME', name))
        return name

    def add(self, text, shape):
        name = self.name('v')
        self.lines.append(f'    {name} = {text}')
        self.values.append((name, shape))

    def pick(self, shape=None):
        found = [v for v in self.values if shape is None or v[1] == shape]
        if not found:
            return None
        return self.random.choice(found[-6:] if self.random.random() < 0.7 else found)

    def step(self):
        r, (a, s) = self.random, self.pick()
        kind, wide = r.randrange(17), ('B', 'T', 'C')
        last, several = s[-1], len(s) >= 2
        if kind == 0:
            self.add(f"{r.choice(['tanh', 'sigmoid', 'sin', 'cos', 'erf', 'abs'])}({a})", s)
        elif kind == 1:
            self.add(f"{a} {r.choice('+-*')} {self.pick(s)[0]}", s)
        elif kind == 2:
            self.add(f'exp(-{a}^2) + log(1 + {a}^2)', s)
        elif kind == 3 and several:
            axis = r.choice(s[1:])
            if s.count(axis) == 1:
                self.add(f"{r.choice(['sum', 'mean', 'max', 'min'])}({a}, over: {axis})",
                         tuple(x for x in s if x != axis))
        elif kind == 4 and several and last in 'CD':
            to = r.choice('CD')
            w = self.param('w', f'param NAME: [{last}, {to}]')
            self.add(f'{a} @ {w}', s[:-1] + (to,))
        elif kind == 5 and several and last in 'CD':
            self.add(f'softmax({a})', s)
        elif kind == 6 and last == 'C':
            self.add(f'{a}[..., 0..D]', s[:-1] + ('D',))
        elif kind == 7 and last == 'D':
            self.add(f'concat({a}, {a}[..., 0..2] * 0.5)', s[:-1] + ('C',))
        elif kind == 8 and len(s) == 3 and s[1] != s[2]:
            self.add(f"{a}'", (s[0], s[2], s[1]))
        elif kind == 9:
            self.add(f'where({a} > 0.1, {self.pick(s)[0]}, {a} * 0.3)', s)
        elif kind == 10 and s == ('B', 'C'):
            self.add(f'{self.pick(wide)[0]} + reshape({a}, [B, 1, C])', wide)
        elif kind == 11 and last in 'CD':
            self.add(f"{a} * {self.param('g', f'param NAME: [{last}] gain')}", s)
        elif kind == 12 and several and last == 'C':
            self.add(f"{self.param('ln', 'NAME : layernorm[C]')}({a})", s)
        elif kind == 13 and len(s) == 3 and s[1] == 'T' and last in 'CD':
            self.add(f"{a} + {self.param('e', f'param NAME: [K, {last}] embedding')}[ids]", s)
        elif kind == 14:
            self.add(f'dropout({a}, 0.3)', s)
        elif kind == 15 and s == wide:
            few, cut = r.choice([('H', ''), ('1', '[..., 0..C/H]')])
            self.add(f'{a} + merge_heads(attention(heads({a}, H), heads(tanh({a}){cut}, {few}), '
                     f"heads({a}{cut}, {few}), causal: {r.choice(['true', 'false'])}))", s)
        elif kind == 16 and s == wide:
            stack, name = self.param('st', 'NAME : cell[C] * L'), self.name('v')
            self.lines += [f'    {name} = {a}',
                           f'    for i in 0..L {{ {name} = {stack}[i]({name}) }}']
            self.values.append((name, s))

    def text(self):
        for _ in range(self.random.randrange(4, 16)):
            self.step()
        loss = ''.join(f"{self.random.choice(['', '0.5 * '])}mean({v}^2) + "
                       for v, _ in self.values[2:])
        if self.random.random() < 0.4:
            loss += 'mean(cross_entropy(x[:, :, 0..D], lab), where: lab >= 0) + '
        return '\n'.join([HEAD.replace('SIZE', str(self.size))] + self.params + self.lines +
                         [f'    output out = {self.values[-1][0]}',
                          f'    loss = {loss}mean((x * w0)^2)', '}'])


print(Maker(int(sys.argv[1])).text())

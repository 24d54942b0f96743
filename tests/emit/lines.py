#!/usr/bin/env python3
"""lines.py -- an emitted file tells the same lines of the model wherever it speaks of a step.

usage: lines.py FILE
In: an emitted file. Out: nothing, or the first step whose comment in section 5 or 6 (or the headings
above it), its kernel's comment, the launch or call, and the row of the table of steps differ.
"""
import re
import sys

LINES = r'[\w.]+\.model:\d+(?:, \d+)*'


def numbers(text):
    """Lines in a text: the set of "tiny.model:8"."""
    return {m.split(':')[0] + ':' + n for m in re.findall(LINES, text)
            for n in m.split(':')[1].split(', ')}


def main():
    text = open(sys.argv[1]).read()
    told = {}  # kernel number -> [(where, lines)]
    for m in re.finditer(r'/\*((?:[^*]|\*(?!/))*)\*/\nstatic (?:__global__ )?void\s.*?\b[gk](\d+)_', text):
        told.setdefault(int(m[2]), []).append(('comment', numbers(m[1])))
    for m in re.finditer(r'RT_LAUNCH\(stream, "([^"]*)",\s*g(\d+)_', text):
        told.setdefault(int(m[2]), []).append(('launch', numbers(m[1])))
    for m in re.finditer(r'^static void k(\d+)_(?:(?!^}).)*?->where = "([^"]*)"', text, re.M | re.S):
        told.setdefault(int(m[1]), []).append(('call', numbers(m[2])))
    rows = dict(re.findall(r'^    \{ (\d+), (?:true|false), \{.*?\},\s+"(' + LINES + ')', text, re.M))
    training = text[text.index('---- 5 forward'):text.index('---- 7 step')]
    training = re.sub(r'^static void \w+_(?:evaluate|outputs?|count)\w*\(.*?^}', '', training, flags=re.M | re.S)
    step, lines, heading = None, set(), set()
    for line in training.split('\n'):
        if re.match(r'\s*/\* \d+\.\.|static |}', line):  # a loop, a function
            step, heading = None, set()
            continue
        said = (re.match(r'\s*/\* (?:(\d+)   *)?(.*) \*/$', line)
                or re.search(r'/\* (\d+)   *(.*) \*/$', line))
        call = re.match(r'\s*k(\d+)_\w+\(', line)
        if said and not said[1]:
            heading = numbers(said[2]) | (heading if step is None else set())
            step = None
        elif said:
            step, lines = said[1], numbers(said[2].split('  ')[0] if 'undoes' not in said[2] else said[2])
        if not call or not step:
            continue
        lines = lines or heading
        for where, others in told.get(int(call[1]), []) + [('row', numbers(rows.get(step, '')))]:
            if others != lines and others and lines:
                sys.exit(f'step {step} has {sorted(lines)}, its {where} {sorted(others)}')


main()

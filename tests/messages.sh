#!/usr/bin/env bash
# Every message has a test: each text given to diag_error, diag_warning or syntax errors in the
# sources must match a line of a tests/errors/*.err (or of the messages tests/cli checks).
# Prints one line; the texts without a test go to stderr.
set -u
cd "$(dirname "$0")/.."
python3 - <<'PY'
import glob, re, sys

# Calls whose text is made at run time, or that take more arguments before the text.
CALL = re.compile(r'\b(diag_error|diag_warning|syntax_error|sem_error|report)\s*\(')
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
FORMAT = re.compile(r'%[-+ #0]*[\d*]*(?:\.[\d*]+)?(?:hh|h|ll|l|z|j|t)?[a-zA-Z]')

def arguments(text, start):
    """The text between the parenthesis at start and its partner."""
    depth, i, quoted = 0, start, False
    while i < len(text):
        c = text[i]
        if quoted:
            if c == '\\':
                i += 1
            elif c == '"':
                quoted = False
        elif c == '"':
            quoted = True
        elif c == '(':
            depth += 1
        elif c == ')':
            depth -= 1
            if depth == 0:
                return text[start + 1:i]
        i += 1
    return ''

def messages(path):
    text = open(path, encoding='utf-8').read()
    for call in CALL.finditer(text):
        args = arguments(text, call.end() - 1)
        pieces = re.findall(r'(?:"(?:[^"\\]|\\.)*"\s*)+', args)
        first = 1 if call.group(1) == 'diag_warning' else 0     # after the name of the warning
        for piece in pieces[first:first + 1]:
            joined = ''.join(STRING.findall(piece)).replace('\\"', '"').replace('\\\\', '\\')
            line = text.count('\n', 0, call.start()) + 1
            if len(joined) > 3:
                yield path, line, joined

def pattern(message):
    parts = FORMAT.split(message.rstrip().replace('%%', '%'))
    parts[-2:] = [parts[-2].rstrip(), ''] if len(parts) > 1 and not parts[-1] else parts[-2:]
    return re.compile('.*'.join(re.escape(p) for p in parts))

seen = []
for path in glob.glob('tests/errors/*.err') + ['tests/cli/run.sh']:
    seen += open(path, encoding='utf-8', errors='replace').read().split('\n')
seen = '\n'.join(seen)

missing = total = 0
files = sorted(glob.glob('compiler/**/*.c', recursive=True) + glob.glob('grammar/*.[ly]'))
for path in files:
    for where, line, message in messages(path):
        total += 1
        if not pattern(message).search(seen):
            missing += 1
            print(f'{where}:{line}: {message}', file=sys.stderr)
if missing:
    print(f'not ok messages: {missing} of {total} messages have no test')
    sys.exit(1)
print('ok messages')
PY

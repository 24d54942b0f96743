#!/usr/bin/env bash
# Every message has a test. The texts given to the functions that make messages (FORMAT below), and
# those put into them, both arms of a choice, are looked for in the tests: those of the compiler
# whole in a tests/errors/*.err or tests/lint/*.err; all others, and those of the runtime, by a quoted part of them.
# Prints one line for each side; the texts without a test go to stderr.
set -u
cd "$(dirname "$0")/.."
python3 - <<'PY'
import glob, re, sys

# Functions that take the text of a message, and which argument it is.
FORMAT = {'diag_error': 2, 'diag_option': 2, 'diag_warning': 3, 'diag_note': 2, 'diag_hint': 1, 'sem_error': 2,
          'sem_note': 3, 'lint_warn': 2, 'sem_hint': 1, 'fail': None,
          'rt_fail': 1, 'rt_warn': 0, 'because': 1, 'csv_fail': 3, 'ck_wrong': 1, 'difference_add': 1}
FAIL = {'compiler/options.c': 0, 'compiler/ir/read.c': 2}      # two local functions of this name

# Parts of messages without a test, and why.
UNTESTED = {
    'out of memory': 'memory-fails-* of check_program.sh lets every allocation fail in turn',
    'a text cannot be formatted': 'vsnprintf fails on no text of ours',
    'a write failed': 'a stream that fails without a reason',
    'cannot be mapped': 'mmap of an open file fails when the kernel is out of mappings',
    'more than %d inputs': 'the compiler allows no such model',
    '%s%s%s: %s (%s)': 'a failing CUDA call has no words of its own: launch, named-failure of tests/cuda/faults.sh',
    'of the runtime': 'where the last kernel belongs to no line of the model: which one that is, is a matter of time',
    'a product before the run was opened': 'the runtime opens it first; a guard',
    'a thread for exchanges cannot be started': 'the kernel is out of threads',
    'a thread cannot be started': 'the same',
    'the store has no memory left': 'it asks for little; as above',
    'MPI counts bytes in 32 bits': 'sums are cut before; a guard',
    '/proc/self/exe: cannot be read': 'a Linux without /proc',
    'rank %d of another process is there': 'a second connection of a rank that another process took between its two',
    'the store cannot be started': 'the same, or out of descriptors',
    'the address of rank 0 cannot be told': 'MPI fails between its start and its first broadcast',
    'us, without': 'times differ from run to run: timed of tests/cuda/epilogue.sh',
    'not known at start': 'of a product that no start was told of: it is printed nowhere',
    'data have no sample': 'readers refuse such data; a guard against a division by 0',
}

ANY, LEAST = "\0", 6           # what a conversion prints; letters of a message that a quote shows

CALL = re.compile(r'\b(' + '|'.join(FORMAT) + r')\s*\(')
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"(?:\s*"(?:[^"\\]|\\.)*")*')
CONVERSION = re.compile(r'%[-+ #0]*[\d*]*(?:\.[\d*]+)?(?:hh|h|ll|l|z|j|t)?[a-zA-Z]')
COMMENT = re.compile(r'("(?:[^"\\]|\\.)*")|/\*.*?\*/', re.S)

def read(path):
    return open(path, encoding='utf-8', errors='replace').read()

def arguments(text, start):
    """The arguments behind the parenthesis at start."""
    depth, found, begin = 0, [], start + 1
    for part in re.finditer(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|[()\[\]{},]', text[start:]):
        at, sign = start + part.start(), part.group()
        depth += sign in '([{'
        if sign == ',' and depth == 1:
            found.append(text[begin:at])
            begin = at + 1
        depth -= sign in ')]}'
        if depth == 0:
            return found + [text[begin:at]]
    return found

def joined(strings):
    """Literals that stand side by side, as one text."""
    text = ''.join(STRING.findall(strings))
    return re.sub(r'\\(.)', lambda c: {'n': '\n', 't': '\t'}.get(c[1], c[1]), text)

def messages(folders):
    """(file, line, text) of each message."""
    for path in sorted(sum((glob.glob(f, recursive=True) for f in folders), [])):
        text = COMMENT.sub(lambda m: m[1] or re.sub(r'[^\n]', ' ', m[0]), read(path))
        for call in CALL.finditer(text):
            at = FAIL.get(path) if call[1] == 'fail' else FORMAT[call[1]]
            args = arguments(text, call.end() - 1)
            if at is None or len(args) <= at:
                continue
            formats = [joined(s) for s in STRINGS.findall(args[at])]
            formats += [joined(s) for a in args[at + 1:] for s in STRINGS.findall(a)]
            for one in formats:
                if len(CONVERSION.sub('', one)) >= LEAST:
                    yield path, text.count('\n', 0, call.start()) + 1, one

def pattern(message):
    parts = CONVERSION.split(message.rstrip().replace('%%', '%'))
    parts[-2:] = [parts[-2].rstrip(), ''] if len(parts) > 1 and not parts[-1] else parts[-2:]
    return re.compile('.*'.join(re.escape(p) for p in parts))

def overlap(message, quote):
    """How many letters of the message the quote shows; 0 if it is no part of such a message."""
    best = {at: 0 for at in range(len(message) + 1)}           # by place in the message
    for letter in quote:
        after = {}
        for at, n in sorted(best.items()):
            while True:
                free = at < len(message) and message[at] == ANY
                if free:
                    after[at] = max(after.get(at, 0), n)
                elif at < len(message) and message[at] == letter:
                    after[at + 1] = max(after.get(at + 1, 0), n + 1)
                if not free:
                    break
                at += 1                                        # a conversion may print nothing
        best = after
    return max(best.values(), default=0)

def grams(text):
    return {text[i:i + LEAST] for i in range(len(text) - LEAST + 1) if ANY not in text[i:i + LEAST]}

def shown(texts, quoted):
    """Those of the texts that a quote is a part of: of each quote the one it shows most of."""
    plain = {t: ANY + CONVERSION.sub(ANY, t.strip()).replace('%%', '%') for t in texts}
    having = {}
    for text, form in plain.items():
        for gram in grams(form):
            having.setdefault(gram, set()).add(text)
    found = set()
    for quote in quoted:
        near = set().union(*(having.get(g, ()) for g in grams(quote)))
        score = {t: overlap(plain[t], quote) for t in near}
        most = max(score.values(), default=0)
        found |= {t for t, n in score.items() if n == most >= LEAST}
    return found

def quotes(paths):
    """What stands in quotes in tests, scripts or C."""
    for path in paths:
        if path.endswith('.c'):
            text = COMMENT.sub(lambda m: m[1] or '', read(path))
            yield from (joined(s) for s in STRINGS.findall(text))
        elif path.endswith('.sh'):
            text = re.sub(r'(?m)(^|\s)#.*', '', read(path))
            yield from (a or b for a, b in re.findall(r'"((?:[^"\\]|\\.)*)"|\'([^\']*)\'', text))

def check(side, folders, whole, quoted):
    """Prints ok, or what has no test; whole: texts of whole messages, quoted: parts of some."""
    every = list(messages(folders))
    quoted = set(quoted)
    tested, parts = shown({m[2] for m in every}, quoted), '\n'.join(quoted)
    missing = 0
    for path, line, message in every:
        if not (message in tested or message.strip() in parts or pattern(message).search(whole)
                or any(part in message for part in UNTESTED)):
            missing += 1
            print(f'{path}:{line}: {message}', file=sys.stderr)
    if missing:
        print(f'not ok messages/{side}: {missing} of {len(every)} messages have no test')
    else:
        print(f'ok messages/{side}')
    return missing

def tests(*patterns):
    return sorted(sum((glob.glob('tests/' + p) for p in patterns), []))

bad = check('compiler', ['compiler/**/*.c', 'grammar/*.[ly]'],
            '\n'.join(read(p) for p in tests('errors/*.err', 'lint/*.err')),
            quotes(tests('cli/run.sh', 'memory/run.sh', 'ir/*.c')))
bad += check('runtime', ['runtime/**/*.[ch]', 'runtime/**/*.cu'], '',
             quotes(tests('runtime/*.c', 'runtime/*.sh', 'train/*', 'memory/run.sh', 'schedule/run.sh', 'replay/run.sh',
                          'rules/run.sh', 'ranks/run.sh', 'cuda/*.sh', 'cli/run.sh')))
sys.exit(bad != 0)
PY

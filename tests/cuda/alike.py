"""Where the C file and the CUDA file of a model differ: alike.py FILE.c FILE.cu

Sections 1, 2 and 5 to 8 are compared word by word after what the targets must write differently is
taken out of both: the stream; the values of a step, which are in device memory; casts and
initialisers of C++, and its namespace; room for the sums of columns; what epilogues of products do;
the graph of a micro-step; the update of elements; what products, attention and scatter work in, and
what is alive when; code that a GPU is asked for; rows on a boundary, and how many there are at a
time. Prints what else differs, and ends with 1 if anything does.
"""
import difflib
import re
import sys

SECTIONS = (1, 2, 5, 6, 7, 8)
FUNCTIONS = (r"(?:static |__global__ )+void\s+(?:__launch_bounds__\(\w+\)\s+)?"
             r"\w+_(?:update|rooms|alive)\(")
TAKEN_OUT = [
    (r",?\s*RtStream \*stream", ""), (r",?\s*(run->)?stream\)", ")"),
    (r"while \(rt_graph_begin\(run, s\)\) \{(.*?)rt_graph_end\(run, s\); \}", r"\1"),
    (r"enum \{ S_\w+ = 0,.*?\};", ""),
    (r"rt_epilogue_gelu\w*\([^;]*;", ""),
    (r"if \(!rt_epilogue_wrote\([^()]*\)\) (\w+\([^;]*;) else \w+\([^;]*;", r"\1"),
    (r"if \(!rt_epilogue_wrote\([^()]*\)\) ", ""),
    (r"\b\w+ \*work_\w+ = [^;]*;", ""), (r"\bwork_\w+, ", ""),
    (r"s->device->", "s->"),
    (r"(\(float\))?s->(seed\[\w+\]|key|sample|device)", "s->STEP"),
    (r"(, )?s->STEP(?=[,)])", ""),
    (r"RT_CHECK_GRID\(([^{}]*), \{ ([^{}]*), \d+ \}, \{ (\w+), 1 \}\)", r"RT_CHECK(\1, \2*\3)"),
    (r"\((const )?(float|double|rt_bf16|rt_f16|int32_t|RtAlive|Dims) ?\*?\)", ""),
    (r"\b(RtAlive|Dims)\{", "{"),
    (r"HEAD_ROWS = \d+,", ""), (r"extern \"C\" ", ""), (r"RT_UNUSED\(\w+\);", ""),
    (r"\.code = \(const void \*\)\w+, (\.row_bytes = [^,]*, \.row_where = \"[^\"]*\",)?", ""),
    (r"\.n_alive = \d+, \.fullest = \d+", ""), (r"\.blocks = [0-9.]+,", ""),
]


def sections(path):
    parts = re.split(r"/\* ---- ([1-8]) [a-z ,:0-9]*-+ \*/", open(path).read())
    return {int(parts[i]): parts[i + 1] for i in range(1, len(parts) - 1, 2)}


def without_functions(text):
    """Functions end with a brace at the start of a line."""
    return re.sub(r"(?m)^(?:" + FUNCTIONS + r"|static const Rt\w+ \w+_alive)(?s:.*?)^\}\n", "", text)


def words(text):
    text = text.replace("} /* namespace */", "")
    text = without_functions(re.sub(r"/\*.*?\*/", " ", text, flags=re.S))
    text = re.sub(r"\s+", " ", text)
    for pattern, to in TAKEN_OUT:
        text = re.sub(pattern, to, text)
    return re.findall(r"\w+|[^\w\s]", text)


def main():
    a, b = sections(sys.argv[1]), sections(sys.argv[2])
    bad = 0
    for number in SECTIONS:
        left, right = words(a[number]), words(b[number])
        if len(left) < 5:
            sys.exit(f"section {number} has {len(left)} words")
        match = difflib.SequenceMatcher(None, left, right, autojunk=False)
        for tag, i, j, k, m in match.get_opcodes():
            if tag != "equal":
                bad += 1
                print(f"section {number}: C has '{' '.join(left[i - 3:j + 2])[:90]}', "
                      f"CUDA '{' '.join(right[k - 3:m + 2])[:90]}'")
    sys.exit(bad > 0)


main()

"""What CPython says to expressions.

    cpython.py answer             reads lines {"expr", "args"}, adds "text" and "type", or "error"
    cpython.py random SEED COUNT  writes as many random expressions with their answers

An expression may be several lines that end in `result = ...`.
"""
import datetime
import json
import math
import random
import sys

NAMES = {name: getattr(math, name) for name in dir(math) if not name.startswith("_") and name != "pow"}
NAMES |= {"math": math, "date": datetime.date, "datetime": datetime.datetime, "timedelta": datetime.timedelta}


def answer(case):
    names = dict(NAMES) | case.get("args", {})
    try:
        try:
            code = compile(case["expr"], "", "eval")
            value = eval(code, names)
        except SyntaxError:
            exec(compile(case["expr"], "", "exec"), names)
            value = names["result"]
        name = type(value).__name__
        case["type"] = name if not type(value).__module__.startswith("datetime") else "datetime." + name
        case["text"] = str(value)
    except Exception as error:
        case["error"] = type(error).__name__
    return case


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def pick(self, *choices):
        return self.r.choice(choices)

    def int(self, depth):
        r = self.r
        if depth <= 0:
            return self.pick("i", "j", "0", "1", "2", "3", "7", "-1", "10", "255", str(r.randint(-1000, 1000)),
                             str(r.randint(-2**70, 2**70)), "True", "False", str(2**63), str(-2**63), "2**53")
        d = depth - 1
        return self.pick(
            lambda: f"({self.int(d)} {self.pick('+', '-', '*', '//', '%', '&', '|', '^')} {self.int(d)})",
            lambda: f"({self.int(d)} {self.pick('<<', '>>')} {r.randint(-1, 70)})",
            lambda: f"(({self.int(d)}) ** {r.randint(0, 6)})",
            lambda: f"{self.pick('-', '~', '+', 'abs', 'int', 'round', 'floor', 'len', 'sum', 'bool')}({self.int(d)})",
            lambda: f"len({self.any(d)})",
            lambda: f"{self.pick('sum', 'max', 'min', 'len')}({self.list(d)})",
            lambda: f"{self.pick('int', 'floor', 'ceil', 'trunc', 'round')}({self.float(d)})",
            lambda: f"int({self.text(d)})",
            lambda: f"round({self.int(d)}, {r.randint(-4, 2)})",
            lambda: f"({self.int(d)} if {self.bool(d)} else {self.int(d)})",
            lambda: f"{self.text(d)}.{self.pick('find', 'count', 'index', 'rfind')}({self.text(d)})",
            lambda: f"pow({self.int(d)}, {r.randint(0, 9)}, {self.int(d)})",
            lambda: f"{self.pick('gcd', 'lcm')}({self.int(d)}, {self.int(d)})",
            lambda: f"ord({self.text(d)}[{r.randint(-2, 2)}])",
            lambda: f"{self.list(d)}[{self.int(0)}]",
            lambda: f"divmod({self.int(d)}, {self.int(d)})[{r.randint(0, 1)}]",
            lambda: f"({self.int(d)}).bit_length()",
        )()

    def float(self, depth):
        r = self.r
        if depth <= 0:
            return self.pick("f", "g", "0.0", "0.5", "-0.0", "1.5", "2.5", "2.675", "1e16", "1e-5", "1e22", "123456.789",
                             repr(r.uniform(-100, 100)), repr(r.uniform(-1, 1) * 10.0 ** r.randint(-320, 308)),
                             "1e308", "5e-324", "0.1")
        d = depth - 1
        return self.pick(
            lambda: f"({self.number(d)} / {self.number(d)})",
            lambda: f"({self.float(d)} {self.pick('+', '-', '*', '//', '%')} {self.number(d)})",
            lambda: f"({self.number(d)} {self.pick('+', '-', '*', '//', '%')} {self.float(d)})",
            lambda: f"round({self.float(d)}, {r.randint(-4, 8)})",
            lambda: f"abs({self.float(d)}) ** {self.pick('0.5', '2', '-1', '3.0')}",
            lambda: f"{self.pick('sqrt', 'float', 'abs', 'fabs', 'exp', 'log', 'log10', 'sin', 'atan')}({self.number(d)})",
            lambda: f"float({self.text(d)})",
            lambda: f"fsum([{self.number(d)}, {self.number(d)}, {self.number(d)}])",
            lambda: f"divmod({self.float(d)}, {self.number(d)})[{r.randint(0, 1)}]",
        )()

    def number(self, depth):
        return self.pick(self.int, self.float)(depth)

    def bool(self, depth):
        if depth <= 0:
            return self.pick("True", "False", "i", "s", "xs", "not f")
        d = depth - 1
        compare = lambda: self.pick("<", "<=", ">", ">=", "==", "!=")
        return self.pick(
            lambda: f"({self.number(d)} {compare()} {self.number(d)})",
            lambda: f"({self.number(d)} {compare()} {self.number(d)} {compare()} {self.number(d)})",
            lambda: f"({self.text(d)} {compare()} {self.text(d)})",
            lambda: f"({self.list(d)} {compare()} {self.list(d)})",
            lambda: f"({self.any(d)} == {self.any(d)})",
            lambda: f"({self.any(d)} < {self.any(d)})",
            lambda: f"({self.text(d)} {self.pick('in', 'not in')} {self.text(d)})",
            lambda: f"({self.any(d)} {self.pick('in', 'not in')} {self.list(d)})",
            lambda: f"({self.any(d)} {self.pick('and', 'or')} {self.any(d)})",
            lambda: f"(not {self.any(d)})",
            lambda: f"{self.pick('any', 'all')}({self.bool(d)} for v in {self.list(d)})",
            lambda: f"{self.text(d)}.{self.pick('isdigit', 'isalpha', 'isupper', 'islower', 'isspace', 'isalnum', 'istitle')}()",
            lambda: f"{self.text(d)}.{self.pick('startswith', 'endswith')}({self.text(0)})",
        )()

    def text(self, depth):
        r = self.r
        if depth <= 0:
            return self.pick("s", "t", "''", "'a'", "'abc'", "'12'", "' x y '", "'3.5'", "'한글 값'", "'A-b_C'", "'it\\'s'",
                             "'\\n\\t'", "'😀'", "'ß'", repr("".join(r.choices("ab ,한1", k=r.randint(0, 8)))))
        d = depth - 1
        spec = "".join([self.pick("", "<", ">", "^", "*^", "0>"), self.pick("", "+", " "), self.pick("", "#"),
                        self.pick("", "0"), self.pick("", "3", "12"), self.pick("", "", ",", "_"),
                        self.pick("", "", ".0", ".2", ".5"), self.pick("", "d", "f", "e", "g", "x", "%", "s", "b", "n")])
        percent = "%" + self.pick("", "-", "0", "+", " ", "#") + self.pick("", "5") + self.pick("", ".0", ".3") \
            + self.pick("s", "r", "d", "f", "e", "g", "x", "c", "i")
        return self.pick(
            lambda: f"({self.text(d)} + {self.text(d)})",
            lambda: f"({self.text(d)} * {r.randint(-1, 3)})",
            lambda: f"{self.text(d)}.{self.pick('upper', 'lower', 'title', 'strip', 'capitalize', 'swapcase', 'lstrip', 'casefold')}()",
            lambda: f"{self.text(d)}.replace({self.text(0)}, {self.text(0)})",
            lambda: f"{self.text(d)}.{self.pick('center', 'ljust', 'rjust', 'zfill')}({r.randint(0, 12)})",
            lambda: f"{self.text(d)}.{self.pick('strip', 'lstrip', 'rstrip', 'removeprefix', 'removesuffix')}({self.text(0)})",
            lambda: f"{self.text(d)}[{self.slice()}]",
            lambda: f"{self.text(d)}[{r.randint(-3, 3)}]",
            lambda: f"{self.pick('str', 'repr', 'str', 'ascii')}({self.any(d)})",
            lambda: f"{self.text(0)}.join({self.list(d)})",
            lambda: f"{self.text(0)}.join(str(v) for v in {self.list(d)})",
            lambda: f"f'{{{self.number(0)}:{spec}}}'",
            lambda: f"format({self.any(d)}, '{spec}')",
            lambda: f"('{percent}' % {self.any(d)})",
            lambda: f"f'{{{self.pick('i', 'f', 's', 'xs', 'i + 1')}{self.pick('', '!r', '=', '!s', ' = ')}}}'",
            lambda: f"{self.pick('hex', 'oct', 'bin', 'chr')}({self.int(d)})",
        )()

    def slice(self):
        part = lambda: self.pick("", "", str(self.r.randint(-5, 5)))
        step = self.pick("", "", ":", ":2", ":-1", ":-2", ":0")
        return part() + ":" + part() + step

    def list(self, depth):
        r = self.r
        if depth <= 0:
            return self.pick("xs", "ys", "[]", "[1, 2, 3]", "['b', 'a']", "(1, 2)", "[1.5, True, None]", "()", "'abc'",
                             "{'k': 1, 2: 'v'}", "[[1], [0]]", "range(4)")
        d = depth - 1
        return self.pick(
            lambda: f"[{', '.join(self.any(d) for _ in range(r.randint(0, 3)))}]",
            lambda: f"({self.list(d)} + {self.list(d)})",
            lambda: f"({self.list(d)} * {r.randint(-1, 3)})",
            lambda: f"{self.list(d)}[{self.slice()}]",
            lambda: f"{self.pick('sorted', 'list', 'tuple')}({self.list(d)})",
            lambda: f"sorted({self.list(d)}, reverse=True)",
            lambda: f"sorted({self.list(d)}, key=lambda v: {self.pick('str(v)', '-v', 'v', 'len(v)')})",
            lambda: f"list({self.pick('reversed', 'enumerate', 'iter')}({self.list(d)}))",
            lambda: f"list(zip({self.list(d)}, {self.list(d)}))",
            lambda: f"list(map({self.pick('str', 'abs', 'len', 'bool', 'int')}, {self.list(d)}))",
            lambda: f"[{self.pick('v', 'v * 2', 'v + 1', 'str(v)', '(v, i)', self.any(d))} for v in {self.list(d)}]",
            lambda: f"[(v, w) for v in {self.list(d)} for w in {self.list(d)} if {self.pick('v', 'v != w', 'v == w')}]",
            lambda: f"{self.text(d)}.{self.pick('split', 'rsplit')}({self.pick('', self.text(0), self.text(0) + ', 1', 'None, 1')})",
            lambda: f"{self.text(d)}.{self.pick('partition', 'rpartition')}({self.text(0)})",
            lambda: f"{self.text(d)}.splitlines()",
            lambda: f"sorted(set({self.list(d)}))",
            lambda: f"{{v: {self.any(d)} for v in {self.list(d)}}}",
            lambda: f"{{**{{'k': {self.any(d)}}}, {self.any(0)}: {self.any(0)}}}",
            lambda: f"[*{self.list(d)}, {self.any(d)}]",
            lambda: f"divmod({self.number(d)}, {self.number(d)})",
            lambda: f"list(range({r.randint(-3, 9)}, {r.randint(-3, 9)}, {r.randint(-3, 3)}))",
        )()

    def any(self, depth):
        return self.pick(self.int, self.float, self.text, self.list, self.bool)(depth)

    def case(self):
        r = self.r
        args = {"i": r.randint(-50, 50), "j": self.pick(0, 1, 2**40, -7), "f": r.uniform(-9, 9), "g": self.pick(0.5, 2.0, -1.25, 1e20),
                "s": self.pick("hong", "", "a b c", "EMP001", "12", "한글"), "t": self.pick("x", ",", "o", " "),
                "xs": self.pick([1, 2, 3], [3, 1, 2], [], [1.5, 2, -1]), "ys": self.pick(["b", "a"], ["x"], [True, None, 0], [[1, 2], [3]])}
        return {"expr": self.any(r.randint(1, 3)), "args": args}


def hidden(case):
    """Answers that name an address, or that the language leaves out."""
    text = case.get("text", "")
    return " object at 0x" in text or "<built-in" in text or case.get("type") in ("set", "complex") or "j)" in text


def main():
    sys.set_int_max_str_digits(0)
    if sys.argv[1] == "answer":
        cases = (answer(json.loads(line)) for line in sys.stdin if line.strip())
    else:
        maker = Maker(int(sys.argv[2]))
        cases = (answer(maker.case()) for _ in range(int(sys.argv[3])))
        cases = (case for case in cases if not hidden(case))
    for case in cases:
        print(json.dumps(case, ensure_ascii=False))


main()

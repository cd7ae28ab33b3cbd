# SPDX-License-Identifier: Apache-2.0
"""Small semantic changes of C functions, made from their tokens; scripts/mutate tries them."""
import re

TOKEN = re.compile(r'''
    (?P<space>\s+|/\*.*?\*/|//[^\n]*)
  | (?P<directive>\#(?:[^\n\\]|\\.|\\\n)*)
  | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
  | (?P<number>(?:0[xX][0-9a-fA-F]+|\d+)(?:[uUlL]+|\.\d*(?:[eEpP][+-]?\d+)?[fF]?|[eE][+-]?\d+)?|\.\d+)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<sign><<=|>>=|\.\.\.|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.)
''', re.X | re.S)

SWAPS = {
    '<': [('boundary', '<='), ('relation', '>=')], '<=': [('boundary', '<'), ('relation', '>')],
    '>': [('boundary', '>='), ('relation', '<=')], '>=': [('boundary', '>'), ('relation', '<')],
    '==': [('equality', '!=')], '!=': [('equality', '==')],
    '&&': [('logic', '||')], '||': [('logic', '&&')],
    '+=': [('sum', '-=')], '-=': [('sum', '+=')],
}
ORDERS = ('memory_order_acquire', 'memory_order_release', 'memory_order_acq_rel', 'memory_order_seq_cst')
KEYWORDS = {'if', 'for', 'while', 'switch', 'return', 'sizeof', 'else', 'do', 'case', '_Alignof', '_Static_assert'}


class Token:
    __slots__ = ('kind', 'text', 'begin', 'end')

    def __init__(self, match):
        self.kind, self.text = match.lastgroup, match.group()
        self.begin, self.end = match.span()


class Mutant:
    """One change: text[begin:end] of the file becomes `new`."""

    def __init__(self, source, path, function, operator, begin, end, new):
        self.path, self.function, self.operator = path, function, operator
        self.begin, self.end, self.new = begin, end, new
        self.line = source.count('\n', 0, begin) + 1
        first = source.rfind('\n', 0, begin) + 1
        last = source.find('\n', end)
        last = len(source) if last < 0 else last
        self.old_text = squeeze(source[first:last])
        self.new_text = squeeze(source[first:begin] + new + source[end:last])
        self.old_size = end - begin

    def apply(self, source):
        return source[:self.begin] + self.new + source[self.end:]

    def key(self):
        """What names it in tests/mutants.equivalent: nothing that moves when other lines change."""
        return '%s:%s: %s => %s' % (self.path, self.function, self.old_text, self.new_text)


def squeeze(text):
    """One line without comments; one that begins or ends outside the text counts as well."""
    text = re.sub(r'/\*.*?\*/|/\*.*', ' ', text, flags=re.S)
    return ' '.join(text.split())


def tokens_of(source):
    return [t for t in map(Token, TOKEN.finditer(source)) if t.kind not in ('space', 'directive')]


def partner(tokens, at):
    """Index of the bracket that closes the one at `at`, or None."""
    opening, closing = tokens[at].text, {'(': ')', '{': '}', '[': ']'}[tokens[at].text]
    depth = 0
    for i in range(at, len(tokens)):
        if tokens[i].text == opening:
            depth += 1
        elif tokens[i].text == closing:
            depth -= 1
            if depth == 0:
                return i
    return None


def functions_of(tokens):
    """(name, type, index of its '{', index of its '}') of every function."""
    at, found = 0, []
    while at < len(tokens):
        if tokens[at].text != '{':
            at += 1
            continue
        end = partner(tokens, at)
        if end is None:
            break
        if at and tokens[at - 1].text == ')':
            start = at - 1
            depth = 0
            while start >= 0:
                depth += {')': 1, '(': -1}.get(tokens[start].text, 0)
                if depth == 0:
                    break
                start -= 1
            name = tokens[start - 1]
            if name.kind == 'name' and name.text not in KEYWORDS:
                words = []
                for token in reversed(tokens[:start - 1]):
                    if token.text in (';', '}', ')', '{'):
                        break
                    words.append(token.text)
                found.append((name.text, ' '.join(reversed(words)), at, end))
        at = end + 1
    return found


class Body:
    """Finds the mutants of one function."""

    def __init__(self, source, path, tokens, function, wanted):
        self.source, self.path, self.tokens, self.wanted = source, path, tokens, wanted
        self.name, self.type, self.begin, self.end = function
        self.mutants = []

    def add(self, operator, begin, end, new):
        if operator in self.wanted:
            self.mutants.append(Mutant(self.source, self.path, self.name, operator, begin, end, new))

    def text(self, first, last):
        return self.source[self.tokens[first].begin:self.tokens[last].end]

    def swap(self, i):
        token, before = self.tokens[i], self.tokens[i - 1]
        for operator, new in SWAPS.get(token.text, []):
            self.add(operator, token.begin, token.end, new)
        binary = before.kind in ('name', 'number') and before.text not in KEYWORDS or before.text in (')', ']')
        if token.text in ('+', '-') and binary:
            self.add('sum', token.begin, token.end, '-' if token.text == '+' else '+')

    def change_number(self, i):
        text = self.tokens[i].text
        match = re.fullmatch(r'(\d+)([uUlL]*)', text)
        if not match or (len(text) > 1 and text[0] == '0'):
            return
        value = int(match.group(1))
        for new in [value + 1] + ([value - 1] if value else []):
            self.add('constant', self.tokens[i].begin, self.tokens[i].end, '%d%s' % (new, match.group(2)))

    def negate_condition(self, i):
        if i + 1 < self.end and self.tokens[i + 1].text == '(':
            close = partner(self.tokens, i + 1)
            condition = self.text(i + 1, close)
            self.add('negate', self.tokens[i + 1].begin, self.tokens[close].end, '(!%s)' % condition)
            after = self.tokens[close + 1]
            if self.tokens[i].text == 'if' and after.text == 'return':
                stop = close + 1
                while self.tokens[stop].text != ';':
                    stop += 1
                if self.tokens[stop + 1].text != 'else':
                    self.add('check', self.tokens[i].begin, self.tokens[stop].end, '(void)%s;' % condition)

    def change_return(self, i):
        stop = i
        while self.tokens[stop].text != ';':
            stop += 1
        if stop == i + 1:
            return
        value = self.text(i + 1, stop - 1)
        begin, end = self.tokens[i + 1].begin, self.tokens[stop - 1].end
        words = self.type.replace('static', '').replace('inline', '').split()
        if words == ['weft_status'] and value != 'WEFT_OK':
            self.add('return', begin, end, '((void)(%s), WEFT_OK)' % value)
        elif words == ['bool']:
            self.add('return', begin, end, '!(%s)' % value)
        elif words in (['int'], ['size_t'], ['int64_t'], ['uint64_t'], ['uint32_t']):
            self.add('return', begin, end, '(%s) + 1' % value)

    def closes_condition(self, i):
        depth = 0
        while i > self.begin:
            depth += {')': 1, '(': -1}.get(self.tokens[i].text, 0)
            if depth == 0:
                return self.tokens[i - 1].text in ('if', 'for', 'while')
            i -= 1
        return False

    def drop_call(self, i):
        before = self.tokens[i - 1].text
        if before not in (';', '{', '}', 'else', ')') or self.tokens[i].text in KEYWORDS:
            return
        if before == ')' and not self.closes_condition(i - 1):
            return
        at = i + 1
        while self.tokens[at].text in ('->', '.') and self.tokens[at + 1].kind == 'name':
            at += 2
        if self.tokens[at].text != '(':
            return
        close = partner(self.tokens, at)
        if close is None or self.tokens[close + 1].text != ';':
            return
        begin, end = self.tokens[i].begin, self.tokens[close].end
        if self.tokens[i].text == 'WEFT_TRY':
            self.add('check', begin, end, '(void)(%s)' % self.text(at + 1, close - 1))
        elif self.text(i, at - 1) == 'WEFT_OS->free':
            self.add('free', begin, end, '(void)0')
        elif self.tokens[i].text == 'atomic_thread_fence':
            self.add('order', begin, end, '(void)0')
        else:
            self.add('call', begin, end, '(void)0')

    def weaken(self, i):
        token = self.tokens[i]
        if token.text in ORDERS:
            self.add('order', token.begin, token.end, 'memory_order_relaxed')

    def find(self):
        for i in range(self.begin + 1, self.end):
            token = self.tokens[i]
            if token.kind == 'sign':
                self.swap(i)
            elif token.kind == 'number':
                self.change_number(i)
            elif token.text in ('if', 'while'):
                self.negate_condition(i)
            elif token.text == 'return':
                self.change_return(i)
            elif token.kind == 'name':
                self.drop_call(i)
                self.weaken(i)
        return self.mutants


OPERATORS = ('boundary', 'relation', 'equality', 'logic', 'sum', 'constant', 'negate', 'check', 'return', 'call')


def mutants_of(source, path, wanted=OPERATORS):
    """Every mutant of the functions of a file; `path` is how they are named."""
    tokens, found = tokens_of(source), []
    for function in functions_of(tokens):
        found += Body(source, path, tokens, function, wanted).find()
    return found


class Equivalents:
    """Mutants that no test can tell from the original: "key | why" a line, or "~ regular expression | why" for all whose
    key it is found in."""

    def __init__(self, path):
        self.keys, self.rules = {}, []
        for line in open(path).read().splitlines():
            if not line.strip() or line.startswith('#'):
                continue
            key, _, why = line.rpartition(' | ')
            if not key or not why.strip():
                raise ValueError('%s: "%s" has no why' % (path, line))
            if key.startswith('~ '):
                self.rules.append((re.compile(key[2:].strip()), why.strip()))
            else:
                self.keys[squeeze(key)] = why.strip()

    def why(self, key):
        """Why it is none, or None."""
        if key in self.keys:
            return self.keys[key]
        for rule, why in self.rules:
            if rule.search(key):
                return why
        return None

    def stale(self, known):
        """What of the list stands for no mutant of `known`."""
        return [k for k in self.keys if k not in known] + \
            [r.pattern for r, _ in self.rules if not any(map(r.search, known))]

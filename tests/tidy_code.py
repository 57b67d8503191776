"""Reads C and C++ for tests/tidy: where functions and classes are, and how large.

A reader of this house's style, formatted by clang-format, and no compiler: blank() takes comments
and strings out, functions() and classes() follow braces and parentheses in what it leaves.
"""

import collections
import re

Class = collections.namedtuple("Class", "line name members methods")


def blank(text):
    """The code with comments, strings and characters blanked out; line breaks stay."""
    token = re.compile(
        r'R"([^(\s]{0,16})\(.*?\)\1"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"'
        r"|(?<![0-9a-zA-Z_])'(?:\\.|[^'\\\n])+'", re.S)
    return token.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


def functions(code):
    """(line, length) of each function body's definition; `code` comes from blank()."""
    depth_function, opened, stack = None, 0, []
    head_start, parens = 0, 0
    for match in re.finditer(r"[{}();]|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", code, re.M):
        token, at = match.group(0), match.start()
        if token[0] not in "{}();":
            head_start = match.end() if not stack or depth_function is None else head_start
        elif token == "(":
            parens += 1
        elif token == ")":
            parens -= 1
        elif token == "{":
            head = code[head_start:at]
            plain = re.sub(r"\bconst(expr)?\b", " ", head)
            scope = re.search(r"\b(namespace|class|struct|union|enum|extern)\b[^()]*$", plain)
            if depth_function is None and not parens and "(" in head and not scope \
                    and not head.rstrip().endswith("="):
                depth_function = len(stack)
                opened = head_start + len(head) - len(head.lstrip())
            stack.append(parens)
            parens = 0
            head_start = at + 1
        elif token == "}":
            parens = stack.pop() if stack else 0
            head_start = at + 1
            if depth_function is not None and len(stack) == depth_function:
                depth_function = None
                if re.match(r"\s*[,{]", code[at + 1:at + 200]):
                    head_start = opened  # a member initializer: b_{x}, c_{y} { ... }
                else:
                    yield code.count("\n", 0, opened) + 1, code.count("\n", opened, at) + 1
        elif token == ";" and not parens:
            head_start = at + 1


# Words with parentheses that are no part of what they stand beside: annotations, attributes.
ASIDE = re.compile(
    r"\b(PARALLAX_\w+|alignas|decltype|explicit|noexcept|requires|__attribute__)\s*\(")
CLASS_HEAD = re.compile(r"(?:(?:template|typedef|static|const|constexpr|inline|mutable)\s+)*"
                        r"(class|struct|union)\b\s*(?:PARALLAX_[A-Z_]+ )?([\w:]*)\s*(?:final)?\s*"
                        r"(?::[^:].*)?", re.S)
ACCESS = re.compile(r"^\s*(?:(?:public|private|protected)\s*:(?!:)\s*)+")
NO_MEMBER = re.compile(r"(using|typedef|friend|static_assert|extern)\b"
                       r"|(enum|class|struct|union)(\s+class)?\s+[\w:]+(\s*:\s*[\w:]+)?$")
POINTER_TO_FUNCTION = re.compile(r"[^(]*\(\s*(?:\w+::)*\*\s*\w+\s*\)\s*\(")
PAIRS = {"(": ")", "[": "]", "{": "}"}


def closing(code, at):
    """Where the bracket that opens at `at` is closed."""
    opener, depth = code[at], 0
    for match in re.finditer(rf"[{re.escape(opener + PAIRS[opener])}]", code[at:]):
        depth += 1 if match[0] == opener else -1
        if depth == 0:
            return at + match.start()
    return len(code) - 1


def emptied(text):
    return re.sub(r"[^\n]", " ", text)


def without_asides(code):
    """No directives, annotations, attributes and template arguments; line breaks stay."""
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: emptied(m[0]), code, flags=re.M)
    code = re.sub(r"\[\[.*?\]\]", lambda m: emptied(m[0]), code, flags=re.S)
    while match := ASIDE.search(code):
        end = closing(code, match.end() - 1) + 1
        code = code[:match.start()] + emptied(code[match.start():end]) + code[end:]
    arguments = re.compile(r"(\btemplate\s*|(?<!operator)(?<=\w))<(?![<=\s])[^<>;{}]*(?<!-)>")
    while arguments.search(code):
        code = arguments.sub(lambda m: m[1] + emptied(m[0][len(m[1]):]), code)
    return code


def flat(text):
    """A declaration with (...) as "()", {...} as "{}", without [...]; an operator is one word."""
    text = re.sub(r"\boperator\s*(\(\)|[^\s(]+)", "operator_of", ACCESS.sub("", text))
    out, at = "", 0
    while at < len(text):
        if text[at] in PAIRS:
            out += {"(": "()", "{": "{}", "[": ""}[text[at]]
            at = closing(text, at)
        else:
            out += text[at]
        at += 1
    return re.sub(r"\s+", " ", out).strip()


def counted(text, name):
    """(data members, methods) that one declaration of the class `name` adds."""
    plain = flat(text)
    if not plain or NO_MEMBER.match(plain):
        return 0, 0
    declared = plain.split("=")[0]
    if "()" in declared and not POINTER_TO_FUNCTION.match(ACCESS.sub("", text)):
        # A conversion, such as `operator const T&()`, has no name before the brackets.
        method = (re.search(r"(~?\w+) ?\(\)", declared) or ["", "operator"])[1]
        special = method[0] == "~" or method in (name.split("::")[-1], "operator_of")
        return 0, int(not special and not re.search(r"= (delete|default)$", plain))
    if re.match(r"(inline )?static (inline )?(const|constexpr)\b", declared):
        return 0, 0
    return 1 + plain.count(","), 0


def classes(code):
    """Every class, struct and union in what blank() left, with its data members and its methods.

    What a nested type has counts for that type. No data members: types, aliases and static
    constants; each declarator is one. No methods: constructors, destructors, operators, and what
    is deleted or defaulted; each overload and each override is one.
    """
    code, found = without_asides(code), []

    def inside(at, end, name):
        """Reads a scope; what it adds to the class `name`, if it is one's."""
        head, members, methods = at, 0, 0
        while at < end:
            if code[at] in "([":
                at = closing(code, at)
            elif code[at] == ";":
                if name is not None:
                    more = counted(code[head:at], name)
                    members, methods = members + more[0], methods + more[1]
                head = at + 1
            elif code[at] == "{":
                brace, at = at, closing(code, at)
                plain = flat(code[head:brace])
                if match := CLASS_HEAD.fullmatch(plain):
                    members += a_class(match, head, brace, at, name)
                    head = at + 1  # what follows are declarators of that type
                elif re.match(r"(typedef )?enum\b", plain):
                    head = at + 1
                elif name is None or ("()" in plain.split("=")[0] and "=" not in plain
                                      and not re.match(r"\s*[,{]", code[at + 1:end])):
                    inside(brace + 1, at, None)
                    methods += 0 if name is None else counted(code[head:brace], name)[1]
                    head = at + 1
            at += 1
        return members, methods

    def a_class(match, head, brace, end, outer):
        """Notes a class. The members that it adds to the one around: those of `union { ... };`."""
        name = "::".join(part for part in (outer, match[2] or "unnamed") if part)
        members, methods = inside(brace + 1, end, name)
        if match[1] == "union" and not match[2] and re.match(r"\s*;", code[end + 1:]):
            return members
        line = code.count("\n", 0, head + len(code[head:brace]) - len(code[head:brace].lstrip()))
        found.append(Class(line + 1, name, members, methods))
        return 0

    inside(0, len(code), None)
    return sorted(found)

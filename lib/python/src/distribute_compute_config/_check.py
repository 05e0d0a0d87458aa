"""What dsubmit would refuse, in its words, before a file is written."""

from __future__ import annotations

import posixpath
import re

MAX_NAME = 100

_MATRIX = re.compile(r"@[!-9;-~]+:([0-9A-Za-z.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
_NAME = re.compile(r"[A-Za-z0-9._\-+=@%]")


def quote(text: str) -> str:
    """The text in double quotes, on one line, cut when it is long.

    >>> print(quote('a"b\\n'))
    "a\\"b\\n"
    """
    out = []
    for c in text[:80]:
        if c in '"\\':
            out.append("\\" + c)
        elif c == "\n":
            out.append("\\n")
        elif c == "\t":
            out.append("\\t")
        elif c == "\r":
            out.append("\\r")
        elif ord(c) < 0x20 or ord(c) == 0x7F:
            out.append("\\x%02x" % ord(c))
        elif c.isprintable():
            out.append(c)
        else:
            out.append("\\u%04x" % ord(c) if ord(c) < 0x10000 else "\\U%08x" % ord(c))
    return '"' + "".join(out) + '"' + ("…" if len(text) > 80 else "")


def text(what: str, value: object) -> str:
    """The value, which must be a text that can stand in a file. A member of an
    enumeration of texts is its text.

    >>> text("the name", 3)
    Traceback (most recent call last):
    TypeError: the name must be a str, not int: 3
    """
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}: {value!r}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{what} is not UTF-8 text: {quote(value)}") from None
    for c in value:
        if (ord(c) < 0x20 and c not in "\t\n") or 0x7F <= ord(c) < 0xA0:
            raise ValueError(f"{what} holds the control character U+{ord(c):04X}: {quote(value)}")
    return str.__str__(value)


def name(what: str, value: object) -> str:
    """The value, which must be able to name a namespace, a batch or a job.

    >>> name("the name of a job", "re=100")
    're=100'
    >>> name("the name of a job", "re 100")
    Traceback (most recent call last):
    ValueError: the name of a job: bad name "re 100": ' ' is not allowed (letters, digits and . _ - + = @ % are)
    """
    s = text(what, value)
    problem = ""
    if s == "":
        raise ValueError(f"{what}: bad name: it is empty")
    size = len(s.encode("utf-8"))
    if size > MAX_NAME:
        raise ValueError(f"{what}: bad name {quote(s[:20])}…: it has {size} bytes, at most {MAX_NAME} are allowed")
    if s[0] in ".-":
        problem = f"it must not start with '{s[0]}'"
    elif s.endswith((".yaml", ".yml")):
        problem = "it must not end in .yaml or .yml, which name files"
    else:
        for c in s:
            if not _NAME.match(c):
                shown = "'\\''" if c == "'" else "'" + quote(c)[1:-1].replace('\\"', '"') + "'"
                problem = f"{shown} is not allowed (letters, digits and . _ - + = @ % are)"
                break
    if problem:
        raise ValueError(f"{what}: bad name {quote(s)}: {problem}")
    return s


def alias(value: object) -> str:
    """The value, which must be a relative path that stays inside.

    >>> alias("../up")
    Traceback (most recent call last):
    ValueError: alias "../up" leaves the job's directory: write a plain name
    """
    s = text("an alias", value)
    clean = posixpath.normpath(s) if s else "."
    if clean == ".":
        raise ValueError(f"alias {quote(s)} is empty: write the name under which the job finds the file")
    if clean.startswith("/") or clean == ".." or clean.startswith("../"):
        raise ValueError(f"alias {quote(s)} leaves the job's directory: write a plain name")
    return s


def matrix(value: object) -> str:
    """The value, which must be a Matrix user.

    >>> matrix("maria")
    Traceback (most recent call last):
    ValueError: "maria" is no Matrix user: write it as "@user:server"
    """
    s = text("the Matrix user", value)
    if not _MATRIX.fullmatch(s) or len(s) > 255:
        raise ValueError(f'{quote(s)} is no Matrix user: write it as "@user:server"')
    return s

"""pathspec's regular expressions, rewritten so that no pattern takes for ever.  Pure.

A repository is a stranger's, and so are the patterns of its .gitignore: on a name of 200 letters `*a*a*a*a*b` took
hours, because each star was tried at every length with every length of the others.  Of stars in a row the first place
where what stands between two of them is found is as good as any later one; so it is kept (`(?>...)`), as
fnmatch.translate() does, and only the last star of a part of the path, and the last `**`, are tried at all places.
"""

import re
from itertools import groupby

# What pathspec's expressions consist of.  `\[` is no class, and `[^/]` is what a question mark becomes.
_TOKEN = re.compile(
    r"(?P<any>\^\(\?:\.\+/\)\?|\(\?:/\.\+\)\?/)|(?P<star>\[\^/\]\*)|(?P<slash>/)"
    r"|(?P<end>\(\?:\(\?P<ps_d>/\)\|\$\)|\(\?P<ps_d>/\))|\[\^/\]\+|\\.|(?P<letters>\[\^?\]?[^\]]*\])|.",
    re.DOTALL,
)
# For any folders, at the beginning or between others: the fewest, kept; and all numbers of them, one after the other.
_FEWEST = {"^(?:.+/)?": "^(?>(?:(?s:.+?)/)??", "(?:/.+)?/": "(?>(?:/(?s:.+?))??/"}
_ALL = {"^(?:.+/)?": "^(?:(?s:.+)/)?", "(?:/.+)?/": "(?:/(?s:.+))?/"}

# A star parts what is around it; and `[!a]` is no slash, to git.
_MEANING = {"star": "\0", "letters": "(?!/)"}

_Token = tuple[str, str]  # its kind, "" for what stands for one letter, and its text


def quick(pattern: str) -> str:
    """An expression that finds the same as pathspec's `pattern`, in a time that grows with the name and the pattern."""
    tokens = [(found.lastgroup or "", found[0]) for found in _TOKEN.finditer(pattern)]
    starts = [index for index, (kind, _) in enumerate(tokens) if kind == "any"]
    if not starts:
        return _parts(tokens)
    made = [_parts(tokens[: starts[0]])]
    for start, stop in zip(starts, [*starts[1:], len(tokens)], strict=True):
        lead, inner = tokens[start][1], _parts(tokens[start + 1 : stop])
        made.append(_ALL[lead] + inner if stop == len(tokens) else f"{_FEWEST[lead]}{inner}(?=/))")
    return "".join(made)


def _parts(tokens: list[_Token]) -> str:
    """Parts of the path, each as quick as it can be; what is between and behind them stays as it is."""
    groups = groupby(tokens, key=lambda token: token[0] in ("slash", "end"))
    return "".join(
        "".join(text for _, text in group) if is_between else _part(list(group)) for is_between, group in groups
    )


def _part(tokens: list[_Token]) -> str:
    first, *pieces = "".join(_MEANING.get(kind, "") + text * (kind != "star") for kind, text in tokens).split("\0")
    *inner, last = [piece for piece in pieces[:-1] if piece] + pieces[-1:] or [""]
    kept = "".join(f"(?>[^/]*?{piece})" for piece in inner)
    return first + kept + ("[^/]*" + last if pieces else "")

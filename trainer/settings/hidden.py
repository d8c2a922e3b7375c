"""Secrets that stand where they do not belong: recognised by their shape, and kept out of what is shown.  Pure.

By shape alone, so without a promise: a password of plain letters looks like any word.
"""

import re

HIDDEN = "***"

# Names of variables that hold a secret.
NAMES = re.compile(
    r"SECRET|PASSW|PASSPHRASE|(^|_)(PASS|PWD|PAT|TOKEN|AUTH|COOKIE|DSN)(_|$)|(API|ACCESS|ACCOUNT|PRIVATE)_?KEY"
    r"|AZURE_STORAGE_KEY|CREDENTIAL",
    re.IGNORECASE,
)
# Of those, names of what describes a secret, as PAD_TOKEN_ID or API_KEY_FILE.
_ABOUT = re.compile(
    r"_(IDS?|INDEX|DIM|LEN|LENGTH|COUNT|LIMIT|SIZE|TYPE|MODE|METHOD|NAME|FILE|PATH|DIR|SOCK|ARN)$", re.I
)
# Values that are no secrets: a switch, a short number, a path, a place in AWS, a word of a vocabulary such as <pad>.
_HARMLESS = re.compile(
    r"(true|false|yes|no|on|off|none|null)?|-?[0-9.]{1,6}|~?/[\w./@-]*|arn:aws[a-z-]*:[\w:/+=.@-]*"
    r"|</?[a-z_]{1,32}[0-9]{0,3}>|<\|[a-z_]{1,32}\|>|\[[a-z]{1,9}\]",
    re.IGNORECASE | re.ASCII,
)
_ALONE = r"(?<![A-Za-z0-9])"
# What secrets look like, with words in small letters of which one is in every such text: looking for these first is
# quick.  No pattern is slow on any text.  An underscore may be a hyphen, as in the name of a flag.
PATTERNS = (
    # A URL with a password, also as a path, which has lost a slash; and one that is signed.
    (":/", r"(?<=/)(?:(?<=://)|(?<=:/)(?!/))[^/\s:]*:[^/\s]+(?=@)"),
    ("signature= sig=", r"(?i:\b(?:X-Amz-|X-Goog-)?Signature|[?&;]sig)=[\w%+/=-]{20,}"),
    # AWS: the id of a key, its secret, which has a name before it but no mark, and a session.
    ("akia asia", _ALONE + r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    (
        "secret",
        r"(?i:secret[_-]?(?:access[_-]?)?key)[\"']?\]?\s{0,9}[:=,]\s{0,9}[\"']?[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])",
    ),
    ("iqojb3jpz2lu fwogzxivyxdz", _ALONE + r"(?:IQoJb3JpZ2lu|FwoGZXIvYXdz)[A-Za-z0-9+/=]{16,}"),
    ("ghp gho ghu ghs ghr github", _ALONE + r"(?:gh[opusr]|github[_-]pat)[_-]\w{22,}"),  # GitHub
    ("hf_", _ALONE + r"hf[_-][A-Za-z0-9]{34}(?!\w)"),  # Hugging Face: most have no digit
    ("wandb", r"(?i:wandb)[^\n@]{0,40}?[\s\"'=:(][0-9a-f]{40}(?!\w)|wandb_v1_\w{40,}"),
    # OpenAI, Anthropic, OpenRouter, and those with keys like theirs; scikit-learn's names have hyphens.
    (
        "sk-",
        _ALONE + r"sk-(?=[a-z_-]{0,99}[A-Z0-9])(?:(?:proj|svcacct|admin|ant|or-v1)-[\w-]{32,}|[A-Za-z0-9]{32,})",
    ),
    ("xox", _ALONE + r"xox[a-eprs]-(?=[a-z-]{0,99}[A-Z0-9])[\w-]{10,}"),  # Slack
    ("eyj", _ALONE + r"eyJ\w{10,}+\.[\w-]{10,}(?:\.[\w-]*)?"),  # a JWT
    ("bearer", r"(?<=\bBearer )(?=[a-z_-]{0,99}[0-9A-Z])[\w.~+/=-]{20,}"),
    # In URLs and connection strings.
    (
        "password= pwd= token= key=",
        r"(?i:[?&;](?:password|pwd)=|\w password=)(?![$<{%*])[^\s&;,#'\"()]{6,}"
        r"|(?i:[?&;](?:token|access_token|api_?key|accountkey)=)(?![$<{%*])[^\s&;,#'\"()]{16,}",
    ),
    (
        "-----begin",
        r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----"
        r"(?:\\n|[\s\"'+]|(?:Proc-Type|DEK-Info|Comment|Version): [^\n]*\n)*"
        r"[A-Za-z0-9+/]{32}[\w+/=\\\s\"'-]*",
    ),
)
VALUES = re.compile("|".join(pattern for _, pattern in PATTERNS))


def is_secret(name: str, value: str) -> bool:
    """Whether a variable of that name, or with that value, holds a secret as far as one can see."""
    is_named = NAMES.search(name) is not None and _ABOUT.search(name) is None
    return (is_named and _HARMLESS.fullmatch(value) is None) or VALUES.search(value) is not None


def without_secrets(text: str) -> str:
    """`text` with what looks like a secret replaced."""
    return VALUES.sub(HIDDEN, text)

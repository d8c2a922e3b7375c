"""Detection and redaction of secrets in text, by their format.

This is best effort: a password of plain letters looks like any word.
"""

import re

HIDDEN = "***"

# Names of variables that contain a secret.
NAMES = re.compile(
    r"SECRET|PASSW|PASSPHRASE|(^|_)(PASS|PWD|PAT|TOKEN|AUTH|COOKIE|DSN)(_|$)|(API|ACCESS|ACCOUNT|PRIVATE)_?KEY"
    r"|AZURE_STORAGE_KEY|CREDENTIAL",
    re.IGNORECASE,
)
# Endings of names that only describe a secret, such as PAD_TOKEN_ID or API_KEY_FILE.
_ABOUT = re.compile(
    r"((?<!SECRET)_IDS?|_(INDEX|DIM|LEN|LENGTH|COUNT|LIMIT|SIZE|TYPE|MODE|METHOD|NAME|FILE|PATH|DIR|SOCK|ARN"
    r"|APPLICATION_CREDENTIALS))$",
    re.IGNORECASE,
)
# Values that are not secrets: a switch, a short number, an ARN, a token of a vocabulary such as <pad>.
_HARMLESS = re.compile(
    r"(true|false|yes|no|on|off|none|null)?|-?[0-9]{1,3}|[0-9]?\.[0-9]{1,6}|arn:aws[a-z-]*:[\w:/+=.@-]*"
    r"|</?[a-z_]{1,32}[0-9]{0,3}>|<\|[a-z_]{1,32}\|>|\[[a-z]{1,9}\]",
    re.IGNORECASE | re.ASCII,
)
_ALONE = r"(?<![A-Za-z0-9])"
# Patterns of secrets.  Before each, lower-case words of which every match contains one, for a quick first search.  No
# pattern is slow on any text.  An underscore may be a hyphen, as in the name of a flag.
PATTERNS = (
    # A URL with a password, also with one slash, as after conversion to a path; and a signed URL.
    (":/", r"(?<=/)(?:(?<=://)|(?<=:/)(?!/))[^/\s:]*:[^/\s]+(?=@)"),
    ("signature= sig=", r"(?i:\b(?:X-Amz-|X-Goog-)?Signature|[?&;]sig)=[\w%+/=-]{20,}"),
    # AWS: an access key's id, its secret, which is recognised only by the name before it, and a session token.
    ("akia asia", _ALONE + r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    (
        "secret",
        r"(?i:secret[_-]?(?:access[_-]?)?key)[\"']?\]?\s{0,9}[:=,]\s{0,9}[\"']?[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])",
    ),
    ("iqojb3jpz2lu fwogzxivyxdz", _ALONE + r"(?:IQoJb3JpZ2lu|FwoGZXIvYXdz)[A-Za-z0-9+/=]{16,}"),
    ("ghp gho ghu ghs ghr github", _ALONE + r"(?:gh[opusr]|github[_-]pat)[_-]\w{22,}"),  # GitHub
    ("hf_", _ALONE + r"hf[_-][A-Za-z0-9]{34}(?!\w)"),  # Hugging Face: most have no digit
    ("wandb", r"(?i:wandb)[^\n@]{0,40}?[\s\"'=:(][0-9a-f]{40}(?!\w)|wandb_v1_\w{40,}"),
    # OpenAI, Anthropic, OpenRouter, and others with such keys; names of scikit-learn have hyphens, so do not match.
    (
        "sk-",
        _ALONE + r"sk-(?=[a-z_-]{0,99}[A-Z0-9])(?:(?:proj|svcacct|admin|ant|or-v1)-[\w-]{32,}|[A-Za-z0-9]{32,})",
    ),
    # npm, Groq, Replicate, Kaggle, Databricks, Docker, GitLab, NVIDIA, Google, PyPI.
    (
        "npm_ gsk_ r8_ kgat_ dapi dckr_ glpat- nvapi- aiza pypi-age",
        _ALONE + r"(?:(?:npm_|gsk_|r8_|KGAT_)[A-Za-z0-9]{30,}|dapi[0-9a-f]{32}"
        r"|(?:dckr_[po]at_|glpat-|nvapi-|AIza|pypi-AgE)[\w-]{20,})",
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
    """Whether a variable seems to contain a secret, judging by its name and value."""
    is_named = NAMES.search(name) is not None and _ABOUT.search(name) is None
    return (is_named and _HARMLESS.fullmatch(value) is None) or VALUES.search(value) is not None


def without_secrets(text: str) -> str:
    """`text` with everything that looks like a secret replaced by ***."""
    return VALUES.sub(HIDDEN, text)

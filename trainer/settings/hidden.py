"""Secrets that stand where they do not belong: recognised by their shape, and kept out of what is shown.  Pure.

By shape alone, so without a promise: a password of plain letters looks like any word.
"""

import re

HIDDEN = "***"

# Names of variables that hold a secret.
NAMES = re.compile(
    r"SECRET|PASSW|(^|_)(PASS|PWD|PAT|TOKEN|AUTH|COOKIE|DSN)(_|$)|API_?KEY|ACCESS_?KEY|CREDENTIAL|PRIVATE_?KEY",
    re.IGNORECASE,
)
# Values: a URL with a password, also as a path, which has lost a slash, or with a token for a user, and the tokens that
# services mark as theirs (GitHub, GitLab, AWS, Hugging Face, OpenAI and alike, Slack and its hooks, Google, npm, PyPI,
# wandb, Stripe, Docker, Vault, Databricks, SendGrid, a JWT, a key file).
# Strangers write these texts, and 1 MB must not take an hour: the first part of a JWT, in which a hyphen hardly stands,
# is looked for once a word.
VALUES = re.compile(
    r"((?<=://)|(?<=:/)(?!/))([^/\s:@]*:[^/\s]+|[^/\s:@]{16,})(?=@)"
    r"|\b(gh[opusr][_-][A-Za-z0-9]{16,}|github[_-]pat[_-]\w{20,}|glpat-[\w-]{16,}|(AKIA|ASIA)[A-Z0-9]{16}\b|hf[_-][A-Za-z0-9]{16,}"
    r"|sk-[\w-]{20,}|xox[abeprs]-[\w-]{10,}|AIza[\w-]{30,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{20,}|wandb_v1_\w{20,}"
    r"|[rs]k_(live|test)_\w{16,}|dckr_pat_[\w-]{20,}|hvs\.[\w-]{20,}|dapi[0-9a-f]{32}|SG\.[\w-]{16,}\.[\w-]{16,}"
    r"|eyJ\w{10,}+\.[\w-]{10,}(\.[\w-]*)?)"
    r"|(?<=hooks\.slack\.com/services/)\S+"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*",
    re.DOTALL,
)


def is_secret(name: str, value: str) -> bool:
    """Whether a variable of that name, or with that value, holds a secret as far as one can see."""
    return NAMES.search(name) is not None or VALUES.search(value) is not None


def without_secrets(text: str) -> str:
    """`text` with what looks like a secret replaced."""
    return VALUES.sub(HIDDEN, text)

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
# Values: a URL with a password, also as a path, which has lost a slash, or with a token for a user; a URL that was
# signed for whoever has it (S3, Google, Azure); a key of Azure's storage, as its connection strings have it; what
# follows "Bearer"; and the tokens that services mark as theirs (GitHub, GitLab, AWS, Hugging Face, OpenAI and alike,
# Slack, Google, npm, PyPI, wandb, Neptune, Kaggle, NVIDIA, Groq, Replicate, Stripe, Docker, Vault, Databricks,
# DigitalOcean, SendGrid, Telegram, hooks of Slack, Discord and Teams, a JWT, a key file).
# Strangers write these texts, and 1 MB must not take an hour: the first part of a JWT, in which a hyphen hardly stands,
# is looked for once a word.
VALUES = re.compile(
    r"((?<=://)|(?<=:/)(?!/))([^/\s:]*:[^/\s]+|[^/\s:@]{16,})(?=@)"
    r"|\b(gh[opusr][_-][A-Za-z0-9]{16,}|github[_-]pat[_-]\w{20,}|gl(?:pat|rt|dt|ptt|cbt|ft|agent|soat)-[\w-]{16,}"
    r"|(AKIA|ASIA)[A-Z0-9]{16}\b|(?:FwoGZXIvYXdz|IQoJb3JpZ2lu)[A-Za-z0-9+/=]{16,}|hf[_-][A-Za-z0-9]{16,}"
    r"|sk-[\w-]{20,}|x(?:ox[abeprs]|app)-[\w-]{10,}|AIza[\w-]{30,}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{20,}|npm_[A-Za-z0-9]{30,}"
    r"|pypi-[\w-]{20,}|wandb_v1_\w{20,}|eyJhcGlf\w{20,}|KGAT_\w{20,}|nvapi-[\w-]{20,}|gsk_\w{20,}|r8_\w{20,}"
    r"|[rs]k_(live|test)_\w{16,}|dckr_pat_[\w-]{20,}|hv[sb]\.[\w-]{20,}|dapi[0-9a-f]{32}|do[pr]_v1_\w{20,}"
    r"|SG\.[\w-]{16,}\.[\w-]{16,}|\d{8,10}:AA[\w-]{20,}|eyJ\w{10,}+\.[\w-]{10,}(\.[\w-]*)?)"
    r"|(?<=X-Amz-Signature=)\w{20,}|(?<=X-Amz-Security-Token=)[^&\s]{16,}|(?<=X-Goog-Signature=)\w{20,}"
    r"|(?<=[?&]Signature=)[\w%+/=-]{20,}|(?<=[?&;]sig=)[\w%+/=-]{20,}|(?<=AccountKey=)[\w+/=]{20,}"
    r"|(?<=\bBearer )[\w.~+/=-]{20,}"
    r"|(?<=hooks\.slack\.com/services/)\S+|(?<=/api/webhooks/)\d+/[\w-]{20,}|(?<=webhook\.office\.com/webhookb2/)\S+"
    # AWS's keys have no mark of their own, but a name before them.
    r"|(?i:secret_?access_?key)[\"']?\s{0,9}[:=]\s{0,9}[\"']?[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY( BLOCK)?-----.*",
    re.DOTALL,
)


def is_secret(name: str, value: str) -> bool:
    """Whether a variable of that name, or with that value, holds a secret as far as one can see."""
    return NAMES.search(name) is not None or VALUES.search(value) is not None


def without_secrets(text: str) -> str:
    """`text` with what looks like a secret replaced."""
    return VALUES.sub(HIDDEN, text)

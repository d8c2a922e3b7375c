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
# Of those, what is no secret, as NAME=VALUE: a switch, or a number of few digits (how many passes there are, or which
# part of the tokens is dropped); the number of a token, or how many there are, of which no vocabulary has a million;
# what something is called; where a secret lies; and a word of a vocabulary, as <s>, <|endoftext|> and [PAD].
_HARMLESS = re.compile(
    r"[^=]*=(true|false|yes|no|on|off|none|null|-?[0-9]{1,3}|[0-9]?\.[0-9]{1,6}|)"
    r"|[^=]*TOKEN_(IDS?|INDEX|DIM|LEN|LENGTH|COUNT|LIMIT|SIZE)=-?[0-9]{1,6}|[^=]*_(TYPE|MODE|METHOD|NAME)=[a-z_/.-]{1,40}"
    r"|[^=]*(_FILE|_PATH|_DIR|_SOCK|APPLICATION_CREDENTIALS)=~?/[\w./@-]{0,255}"
    r"|[^=]*=arn:aws[a-z-]*:(secretsmanager|ssm|kms|iam):[a-z0-9-]{0,30}:[0-9]{12}:[\w:/+=.@-]{1,600}"
    r"|([^=]*_)?TOKENS?=(</?[a-z_]{1,32}[0-9]{0,3}>|<\|[a-z_]{1,32}[0-9]{0,3}\|>|\[[a-z]{1,9}\])",
    re.IGNORECASE | re.ASCII,
)
_ALONE = r"(?<![A-Za-z0-9])"
# What a secret looks like, by each service's own letters and lengths; and before it, in small letters, words of which
# one is in every such text: looking for these first makes it quick.  Strangers write these texts, so no pattern takes
# for ever.  An underscore may be a hyphen, as in the name of a flag.
PATTERNS = (
    # A URL with a password, also as a path, which has lost a slash; the same within another URL; one that is signed.
    (":/", r"(?<=/)(?:(?<=://)|(?<=:/)(?!/))[^/\s:]*:[^/\s]+(?=@)"),
    ("%3a%2f%2f", r"(?i:(?<=%3A%2F%2F))[^\s%&/?#]{0,99}%3[Aa][^\s&/?#]{1,199}?(?=%40)"),
    ("signature= sig=", r"(?i:\b(?:X-Amz-|X-Goog-)?Signature|[?&;]sig)=[\w%+/=-]{20,}"),
    # Google: AIza..., a client's secret, an access token.
    ("aiza", _ALONE + r"AIza[\w-]{35}"),
    ("gocspx-", _ALONE + r"GOCSPX-[\w-]{28}"),
    ("ya29.", _ALONE + r"ya29\.[\w-]{20,}"),
    # AWS: the id of a key, its secret, which has a name before it but no mark, and a session.
    ("akia asia", _ALONE + r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    (
        "secret",
        r"(?i:secret[_-]?(?:access[_-]?)?key)[\"']?\]?\s{0,9}[:=,]\s{0,9}[\"']?[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])",
    ),
    ("iqojb3jpz2lu fwogzxivyxdz", _ALONE + r"(?:IQoJb3JpZ2lu|FwoGZXIvYXdz)[A-Za-z0-9+/=]{16,}"),
    ("ghp_ gho_ ghu_ ghs_ ghr_", _ALONE + r"gh[opusr][_-][A-Za-z0-9]{36,}"),  # GitHub
    ("github_pat_", _ALONE + r"github[_-]pat[_-]\w{22,}"),
    ("glpat- glrt- gldt- glptt- gloas-", _ALONE + r"gl(?:pat|rt|dt|ptt|oas)-[\w.-]{20,}"),  # GitLab
    ("hf_", _ALONE + r"hf[_-][A-Za-z0-9]{34}(?!\w)"),  # Hugging Face: most have no digit
    ("api_org_", _ALONE + r"api_org_[A-Za-z0-9]{34}(?!\w)"),
    ("wandb", r"(?i:wandb)[^\n@]{0,40}?[\s\"'=:(][0-9a-f]{40}(?!\w)|wandb_v1_\w{40,}"),
    # OpenAI, Anthropic, OpenRouter, and those with keys like OpenAI's; scikit-learn's names have hyphens.
    ("sk-", _ALONE + r"sk-(?:proj|svcacct|admin|ant|or-v1)-(?=[a-z_-]{0,99}[A-Z0-9])[\w-]{32,}"),
    ("sk-", _ALONE + r"sk-(?=[a-z]{0,99}[A-Z0-9])[A-Za-z0-9]{32,}"),
    ("nvapi-", _ALONE + r"nvapi-[\w-]{60,}"),  # NVIDIA
    ("gsk_", _ALONE + r"gsk_[A-Za-z0-9]{52}"),  # Groq
    ("r8_", _ALONE + r"r8_[A-Za-z0-9]{37}(?!\w)"),  # Replicate
    ("dapi", _ALONE + r"dapi[0-9a-f]{32}"),  # Databricks
    ("kgat_", _ALONE + r"KGAT_[0-9a-f]{32}"),  # Kaggle
    ("xox", _ALONE + r"xox[a-eprs]-(?=[a-z-]{0,99}[A-Z0-9])[\w-]{10,}"),  # Slack
    ("hooks.slack.com/", r"hooks\.slack\.com/(?:services|workflows)/[\w/]{20,}"),
    ("xapp-", _ALONE + r"xapp-[0-9]-[\w-]{20,}"),
    ("discord webhook.office.com/", r"(?:discord(?:app)?\.com/api/webhooks/\d+|webhook\.office\.com)/[\w/@-]{20,}"),
    # Tokens with a prefix of the service's own and then random letters: of models, vector stores, registries, hosts.
    (
        "absk xai- pplx- lsv2_ tgp_v1_ rpa_ pcsk_ hvs. dckr_pat_ dckr_oat_ dop_v1_ tskey- csk- tvly- ntn_ sbp_ glsa_",
        _ALONE + r"(?:ABSK|xai-|pplx-|lsv2_(?:pt|sk)_|tgp_v1_|rpa_|pcsk_|hvs\.|dckr_[po]at_|dop_v1_|tskey-[a-z]+-|csk-"
        r"|tvly-|ntn_|sbp_|glsa_)(?=[a-z_-]{0,99}[A-Z0-9])[\w.+/=-]{24,}",
    ),
    ("sg.", _ALONE + r"SG\.[\w-]{22}\.[\w-]{43}"),  # SendGrid
    ("npm_", _ALONE + r"npm_[A-Za-z0-9]{36}(?!\w)"),
    ("pypi-", _ALONE + r"pypi-AgE[\w-]{50,}"),
    ("k_live_ k_test_", _ALONE + r"[rs]k_(?:live|test)_[A-Za-z0-9]{24,}"),  # Stripe
    ("eyj", _ALONE + r"eyJ\w{10,}+\.[\w-]{10,}(?:\.[\w-]*)?"),  # a JWT
    ("bearer", r"(?<=\bBearer )(?=[a-z_-]{0,99}[0-9A-Z])[\w.~+/=-]{20,}"),
    # Azure's keys, and passwords, in connection strings.
    ("accountkey= accesskey=", r"(?:AccountKey|AccessKey)=[\w+/=]{20,}"),
    ("password= pwd=", r"(?i:[?&;](?:password|pwd)=|\w password=)(?![$<{%*])[^\s&;,#'\"()]{6,}"),
    ("token= key=", r"(?i:[?&;](?:token|access_token|api_?key)=)(?![$<{%*])[^\s&;,#'\"()]{16,}"),
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
    is_named = NAMES.search(name) is not None and _HARMLESS.fullmatch(f"{name}={value}") is None
    return is_named or VALUES.search(value) is not None


def without_secrets(text: str) -> str:
    """`text` with what looks like a secret replaced."""
    return VALUES.sub(HIDDEN, text)

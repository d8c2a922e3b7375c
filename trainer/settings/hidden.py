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
# Values: a URL with a password, also as a path, which has lost a slash, or with a token for a user; a URL that was
# signed for whoever has it (S3, Google, Azure), or has a token or a password after its question mark; keys and
# passwords of connection strings; what follows "Bearer"; and the tokens that services mark as theirs (GitHub, GitLab,
# AWS, Hugging Face, OpenAI and alike, Slack, Google, npm, PyPI, wandb, Neptune, Kaggle, NVIDIA, Groq, Replicate,
# Stripe, Docker, Vault, Databricks, DigitalOcean, SendGrid, Telegram, Atlassian, Shopify, Tailscale, Doppler, Linear,
# Sentry, PlanetScale, Supabase, Grafana, Notion, Postman, Pulumi, Terraform, New Relic, Perplexity, xAI, LangSmith,
# Pinecone, Bedrock, age, Together, RunPod, Cerebras, Tavily, Jina, Azure, hooks of Slack, Discord and Teams, a JWT, a
# key file).
# A long word before an @ is no user of models:/NAME@ALIAS, MLflow's, or of abfss://CONTAINER@ACCOUNT, which is Azure's;
# and no token where SSH takes a name, as CodeCommit takes the id of a key, or git a profile for that, in
# codecommit://PROFILE@REPOSITORY and codecommit::eu-west-1://PROFILE@REPOSITORY.  What has neither a digit nor a
# capital letter is no token, but a word such as sk-learn, or somebody's name; and where a run may be called like the
# beginning of a token, as r8_ (the rank of an adapter), only as many letters as that service's tokens have are one, and
# behind glimt (a glimpse, in the Nordic languages) no hyphens.
# Strangers write these texts, and 1 MB must not take an hour: the first part of a JWT, in which a hyphen hardly stands,
# is looked for once a word.  And each line of a user's source is looked through: where what stands before a value tells
# it, the last letter of that is looked for first, which takes a third of the time.
VALUES = re.compile(
    r"(?<=/)((?<=://)|(?<!\bmodels:/)(?<=:/)(?!/))"
    r"([^/\s:]*:[^/\s]+|(?<!\babfs://)(?<!\babfss://)(?<!\bwasbs://)(?<!\bssh://)(?<!\bsftp://)(?<!\bcodecommit://)"
    r"(?<!-\d://)(?=[a-z._-]{0,99}[0-9A-Z])[^/\s:@]{16,})(?=@)"
    # The same within another URL.
    r"|(?<=[Ff])(?i:(?<=%3A%2F%2F)[^\s%&/?#]{0,99}%3A[^\s&/?#]{1,199}?(?=%40))"
    r"|\b(gh[opusr][_-][A-Za-z0-9]{16,}|ghs_\d{1,20}_eyJ[\w.-]{20,}|github[_-]pat[_-]\w{20,}"
    r"|gl(?:pat|rtr?|dt|ptt|cbt|ft|agent|soat|oas|ffct|wt)-[\w-]{16,}|glimt-[A-Za-z0-9]{20,}"
    r"|(AKIA|ASIA)[A-Z0-9]{16}\b|(?:FwoGZXIvYXdz|IQoJb3JpZ2lu)[A-Za-z0-9+/=]{16,}"
    r"|hf[_-][A-Za-z0-9]{16,}|hf_(?:oauth|jwt)_eyJ[\w.-]{16,}|api_org_[A-Za-z0-9]{30,}"
    r"|(?:sk|pypi)-(?=[a-z_-]{0,99}[0-9A-Z])[\w-]{20,}|csk-[A-Za-z0-9]{40,}|x(?:ox[a-eprs]|app)-[\w-]{10,}"
    r"|AIza[\w-]{30,}|AQ\.Ab[\w-]{30,}|ya29\.[\w-]{20,}|tvly-(?:dev-)?[A-Za-z0-9]{30,}|jina_[A-Za-z0-9]{40,}"
    r"|GOCSPX-[\w-]{20,}|npm_[A-Za-z0-9]{30,}|wandb_v1_\w{20,}|eyJhcGlf\w{20,}|KGAT_[A-Za-z0-9]{24,}|nvapi-[\w-]{20,}"
    r"|gsk_[A-Za-z0-9]{40,}|r8_[A-Za-z0-9]{36,}"
    r"|[rs]k_(live|test)_\w{16,}|dckr_[op]at_[\w-]{20,}|hv[sb]\.[\w-]{20,}|d(?:api|ose)[0-9a-f]{32}|do[pr]_v1_\w{20,}"
    r"|AT(?:[AC]TT3x|BB)[\w=-]{20,}|shp(?:at|ca|pa|ss)_[0-9a-f]{20,}|tskey-[\w-]{20,}|lin_(?:api|oauth)_\w{20,}"
    r"|dp\.(?:pt|ct|sa|st(?:\.\w{1,40})?)\.[A-Za-z0-9]{20,}|sntry[su]_[\w+/=]{20,}|pscale_(?:tkn|pw|oauth)_[\w.-]{20,}"
    r"|sbp_[0-9a-f]{40}|sb_secret_[\w-]{20,}|gl(?:sa_|c_eyJ)\w{20,}|ntn_[A-Za-z0-9]{40,}|PMAK-[\w-]{20,}"
    r"|pul-[0-9a-f]{40}|[A-Za-z0-9]{14}\.atlasv1\.[\w-]{20,}|NRAK-[A-Z0-9]{20,}|pplx-[A-Za-z0-9]{40,}"
    r"|xai-[A-Za-z0-9]{40,}|lsv2_(?:pt|sk)_\w{20,}|pcsk_\w{20,}|ABSK[A-Za-z0-9+/=]{40,}|bedrock-api-key-[\w+/=]{20,}"
    r"|AGE-SECRET-KEY-1[A-Z0-9]{20,}|tgp_v1_[\w-]{40,}|rpa_[A-Za-z0-9]{40,}|\w{3}\dQ~[\w.~-]{30,}"
    r"|[A-Za-z0-9]{52}(?:JQQJ99[A-Za-z0-9]{20,}|[A-Za-z0-9]{24}AZDO[A-Za-z0-9]{4})|SG\.[\w-]{16,}\.[\w-]{16,}|\d{8,10}:AA[\w-]{20,}"
    r"|eyJ\w{10,}+\.[\w-]{10,}(\.[\w-]*)?)"
    r"|(?<==)(?:(?<=X-Amz-Signature=)\w{20,}|(?<=X-Amz-Security-Token=)[^&\s]{16,}|(?<=X-Goog-Signature=)\w{20,}"
    r"|(?<=[?&]Signature=)[\w%+/=-]{20,}|(?<=[?&;]sig=)[\w%+/=-]{20,}|((?<=AccountKey=)|(?<=AccessKey=))[\w+/=]{20,}"
    r"|(?i:(?<=[?&]token=)|(?<=[?&]access_token=)|(?<=[?&]api_key=)|(?<=[?&]apikey=))[^\s&#'\"]{16,}"
    # Of libpq, JDBC and ODBC: a variable or a placeholder is none.
    r"|(?i:(?<=[?&;]password=)|(?<=[?&;]pwd=)|(?<=\w password=))(?![$<{%*])[^\s&;,'\"()]+)"
    r"|(?<= )(?:(?<=\bBearer )(?=[a-z_-]{0,99}[0-9A-Z])[\w.~+/=-]{20,}|(?<=Authorization: Basic )[A-Za-z0-9+/=]{8,})"
    r"|(?<=/)(?:(?<=hooks\.slack\.com/services/)\S+|(?<=/api/webhooks/)\d+/[\w-]{20,}"
    r"|(?<=webhook\.office\.com/webhookb2/)\S+)"
    # AWS's keys have no mark of their own, but a name before them.
    r"|(?=[Ss])(?i:secret_?access_?key)[\"']?\s{0,9}[:=]\s{0,9}[\"']?[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY( BLOCK)?-----.*",
    re.DOTALL,
)


def is_secret(name: str, value: str) -> bool:
    """Whether a variable of that name, or with that value, holds a secret as far as one can see."""
    is_named = NAMES.search(name) is not None and _HARMLESS.fullmatch(f"{name}={value}") is None
    return is_named or VALUES.search(value) is not None


def without_secrets(text: str) -> str:
    """`text` with what looks like a secret replaced."""
    return VALUES.sub(HIDDEN, text)

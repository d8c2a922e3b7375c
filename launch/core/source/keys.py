"""Files that look like keys: by their name, or by a token in their text.  Refused, and never repeated.  Pure."""

import codecs
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from trainer.errors import SettingsError, one_line
from trainer.settings.hidden import VALUES

_NAMES = (
    ".env*", "*.env", "*.pem", "*.key", "*.pfx", "*.p12", "*.ppk", "*.jks", "*.keystore", "*.kdbx", "id_rsa*",
    "id_dsa*", "id_ecdsa*", "id_ed25519*", ".netrc", "_netrc", ".pypirc", ".git-credentials", ".pgpass", ".my.cnf",
    ".htpasswd", ".boto", ".s3cfg", ".dockercfg", ".vault-token", ".databrickscfg", "rclone.conf", "kubeconfig",
    "kubeconfig*.y*ml", "*.kubeconfig", "*.tfstate", "*.tfrc.json", "credentials.json", "kaggle.json",
    "service-account*.json", "service_account*.json", "client_secret*.json", "application_default_credentials.json",
    "rootkey.csv", "*credentials.csv", "*accesskeys.csv",
)  # fmt: skip
_FOLDERS = frozenset({".aws", ".ssh", ".gnupg"})
# Of folders in which other things may be, too: many repositories have Azure's pipelines in .azure.
_PATHS = (
    ".docker/config.json", ".kube/config*", ".azure/*.json", ".azure/msal*", ".streamlit/secrets.toml",
    ".config/gcloud/*", ".config/gh/hosts.yml",
)  # fmt: skip
# What editors, and people, put behind the name of a file that they keep.
_COPY = re.compile(r"(~|\.(bak|backup|orig|old|save|copy|sw[op]|tmp|\d+)|-checkpoint)+$")
# What is there to be copied and filled in, the public half of a pair of keys, and certificates of those who sign
# others, such as AWS's for RDS, by which programs know a server; a private key in one is found by its text.
_HARMLESS = (
    ".env.example", ".env.sample", ".env.template", ".env.dist", "*.pub", "*cacert*.pem", "*ca-cert*.pem",
    "*rootca*.pem", "*-bundle.pem", "*ca_bundle.pem",
)  # fmt: skip

# Only text is looked through, and no file that a person would not write.
_MOST_BYTES = 1_000_000
# What stands on each line that VALUES finds something on: without them, looking through 50 MB would take 12 s.
_MARKS = (
    ":/", "gh", "github", "glpat-", "glrt-", "gldt-", "glptt-", "glcbt-", "glft-", "glagent-", "glsoat-",
    "glrtr-", "glimt-", "gloas-", "glffct-", "glwt-", "api_org_", "csk-", "AQ.Ab", "tvly-", "jina_", "dckr_oat_",
    "dose", "AZDO",
    "AKIA", "ASIA", "FwoGZXIvYXdz", "IQoJb3JpZ2lu", "hf", "sk-", "xox", "xapp-", "AIza",
    "ya29.", "GOCSPX-", "npm_", "pypi-", "wandb_v1_", "KGAT_", "nvapi-", "gsk_", "r8_", "k_live_", "k_test_",
    "dckr_pat_", "hvs.", "hvb.", "dapi", "dop_v1_", "dor_v1_", "SG.", ":AA", "eyJ", "-Signature=", "Signature=", "sig=",
    "Security-Token=", "AccountKey=", "Bearer ", "hooks.slack.com", "/api/webhooks/", "webhook.office.com",
    "Authorization: Basic ", "%3A%2F%2F", "%3a%2f%2f", "token=", "api_key=", "apikey=", "apiKey=", "assword=",
    "PASSWORD=", "pwd=", "Pwd=", "PWD=", "AccessKey=", "TT3x", "ATBB", "shpat_", "shpca_",
    "shppa_", "shpss_", "tskey-", "lin_api_", "lin_oauth_", "dp.pt.", "dp.ct.", "dp.sa.", "dp.st.", "sntrys_",
    "sntryu_", "pscale_", "sbp_", "sb_secret_", "glsa_", "ntn_", "PMAK-", "pul-", ".atlasv1.", "NRAK-", "pplx-",
    "xai-", "lsv2_", "pcsk_", "ABSK", "bedrock-api-key-", "AGE-SECRET-KEY-1", "tgp_v1_", "rpa_", "Q~", "JQQJ99",
    "ecret_access_key", "ECRET_ACCESS_KEY", "ecretAccessKey",
)  # fmt: skip
# Words that stand on a line which is known to hold no secret: detect-secrets' and gitleaks'.
_ALLOWED = ("pragma: allowlist secret", "gitleaks:allow")
# In place of a value: {password}, $PASSWORD, %s, <password>, ***, a pattern, and the keys of AWS's own documents.
# Single signs are no such thing: passwords that programs make are full of them, and URLs of %40.
_PLACEHOLDER = re.compile(r"[{}<>\[\]\\|]|(^|:)\$[A-Z_a-z(]|%[sr(]|%d(?![0-9a-f])|\*{3}|\.[*+]|EXAMPLE(KEY)?$")
_KEY = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY( BLOCK)?-----"
    r"(\\n|[\s\"'+]|(Proc-Type|DEK-Info|Version|Comment): [^\n]*\n)*[A-Za-z0-9+/]{32}"
)
# Windows' shell writes what a program says in UTF-16.
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_REMEDY = "name it in .gitignore, and pass the value by --secret NAME=ssm:/ddp-toolkit/NAME"


def check_name(name: str) -> None:
    """Raises SettingsError for a file whose name says that it is a key."""
    path = PurePosixPath(_COPY.sub("", name.lower()))
    is_key = _matches(path.name, _NAMES) and not _matches(path.name, _HARMLESS)
    is_key = is_key or any(path.match(pattern) for pattern in _PATHS)
    if is_key or not _FOLDERS.isdisjoint(path.parts):
        raise SettingsError(
            f"{one_line(name, 300)} looks like a key, and everybody who may read the job would see it; {_REMEDY}."
        )


def check_text(name: str, content: bytes) -> None:
    """Raises SettingsError with the line on which a file has what looks like a secret; it is not repeated."""
    is_wide = content.startswith(_UTF_16)
    if len(content) > _MOST_BYTES or (b"\0" in content[:8192] and not is_wide):
        return
    text = content.decode("utf-16" if is_wide else "utf-8", errors="replace")
    key = _KEY.search(text)
    if key:
        raise _refused(name, text.count("\n", 0, key.start()) + 1)
    for number, line in _lines_with_marks(text):
        if _has_secret(line):
            raise _refused(name, number)


def _refused(name: str, line: int) -> SettingsError:
    return SettingsError(
        f"{one_line(name, 300)}, line {line}, holds what looks like a secret, and everybody who may read the job would "
        f"see it; {_REMEDY}.  If it is none, write `# {_ALLOWED[0]}` on that line."
    )


def _lines_with_marks(text: str) -> Iterator[tuple[int, str]]:
    """The lines that may hold a secret, with their numbers from 1 on."""
    marks = [mark for mark in _MARKS if mark in text]
    if not marks:
        return
    for number, line in enumerate(text.split("\n"), 1):
        if any(mark in line for mark in marks) and not any(word in line for word in _ALLOWED):
            yield number, line


def _has_secret(line: str) -> bool:
    return any(_is_secret(found[0]) for found in VALUES.finditer(line))


def _is_secret(found: str) -> bool:
    """Whether a text of a secret's shape is one: it has a digit, as tokens do, and no sign of a placeholder."""
    return any(letter.isdigit() for letter in found) and _PLACEHOLDER.search(found) is None


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)

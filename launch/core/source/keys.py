"""Files that look like keys: by their name, or by a token in their text.  Refused, and never repeated.  Pure."""

import codecs
import re
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from trainer.errors import SettingsError, one_line
from trainer.settings.hidden import PATTERNS

_NAMES = (
    ".env*", "*.env", "*.pem", "*.key", "*.pfx", "*.p12", "*.ppk", "*.jks", "*.kdbx", "id_rsa*", "id_dsa*", "id_ecdsa*",
    "id_ed25519*", ".netrc", "_netrc", ".pypirc", ".git-credentials", ".pgpass", ".my.cnf", ".boto", "kubeconfig",
    "kubeconfig*.y*ml", "*.tfstate", "rootkey.csv", "*credentials.json", "*credentials.csv", "*accesskeys.csv",
    "kaggle.json", "service[-_]account*.json", "client_secret*.json", "secrets.toml",
)  # fmt: skip
_FOLDERS = frozenset({".aws", ".ssh", ".gnupg", "gcloud"})
# In folders that may hold other files, too: many repositories have Azure's pipelines in .azure.
_PATHS = (".docker/config.json", ".kube/config*", ".azure/*.json", ".azure/msal*")
# Suffixes of backup copies.
_COPY = re.compile(r"(~|\.(bak|backup|orig|old|save|copy|sw[op]|tmp|\d+)|-checkpoint)+$")
# Templates, public keys, and certificates of authorities, such as AWS's for RDS, by which programs verify a server; a
# private key in one is found by its text.
_HARMLESS = (
    ".env.example", ".env.sample", ".env.template", ".env.dist", "*.pub", "*cacert*.pem", "*ca-cert*.pem",
    "*rootca*.pem", "*-bundle.pem", "*ca_bundle.pem",
)  # fmt: skip

# Only text is scanned, and no file larger than people write.
_MOST_BYTES = 1_000_000
# Markers of a line without a secret: detect-secrets' and gitleaks'.
_ALLOWED = ("pragma: allowlist secret", "gitleaks:allow")
# Placeholders: {password}, $PASSWORD, %s, <password>, ***, a pattern, the keys of AWS's documentation; and in a URL the
# user's name again, or a word of manuals.  Single special characters do not count: generated passwords are full of
# them, and URLs of %40.
_PLACEHOLDER = re.compile(
    r"[{}<>\[\]\\|]|(^|:)\$[A-Z_a-z(]|%[sr(]|%d(?![0-9a-f])|\*{3}|\.[*+]|\.{3}|EXAMPLE(KEY)?$|^([^:]+):\3$"
    r"|[:=](?i:(my|your|some)?[_-]?(p|pass(word|wd|phrase)?|pwd|pw|secret|token|key|testing|tiger|x+))$"
)
_NAMED = re.compile(r"[\s\"'=:(,]([A-Za-z0-9/+]{40})$")
# Windows' shell redirects output as UTF-16.
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_REMEDY = "name it in .gitignore, and pass the value by --secret NAME=ssm:/ddp-toolkit/NAME"


def check_name(name: str) -> None:
    """Raise SettingsError if a file's name is that of a key."""
    path = PurePosixPath(_COPY.sub("", name.lower()))
    is_key = _matches(path.name, _NAMES) and not _matches(path.name, _HARMLESS)
    is_key = is_key or any(path.match(pattern) for pattern in _PATHS)
    if is_key or not _FOLDERS.isdisjoint(path.parts):
        raise SettingsError(
            f"{one_line(name, 300)} looks like a key, and anyone who may read the job would see it; {_REMEDY}."
        )


def check_text(name: str, content: bytes) -> None:
    """Raise SettingsError with the number of a line that looks like a secret; it is not repeated."""
    is_wide = content.startswith(_UTF_16)
    if len(content) > _MOST_BYTES or (b"\0" in content[:8192] and not is_wide):
        return
    text = content.decode("utf-16" if is_wide else "utf-8", errors="replace")
    small = text.lower()
    for marks, pattern in PATTERNS:
        if any(mark in small for mark in marks.split()):
            for found in re.finditer(pattern, text):
                if not _is_harmless(found):
                    raise _refused(name, text.count("\n", 0, found.start()) + 1)


def _refused(name: str, line: int) -> SettingsError:
    return SettingsError(
        f"{one_line(name, 300)}, line {line}, holds what looks like a secret, and anyone who may read the job would "
        f"see it; {_REMEDY}.  If it is not a secret, write `# {_ALLOWED[0]}` on that line."
    )


def _is_harmless(found: re.Match[str]) -> bool:
    """Whether it is a placeholder, or its line has a marker."""
    if found[0].startswith("-----BEGIN"):  # a key's body has other characters
        return False
    text = found.string
    end = text.find("\n", found.end())
    line = text[text.rfind("\n", 0, found.start()) + 1 : end if end >= 0 else None]
    named = _NAMED.search(found[0])  # without the characters between a name and its value, as in os.environ["..."]
    return _PLACEHOLDER.search(named[1] if named else found[0]) is not None or any(word in line for word in _ALLOWED)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)

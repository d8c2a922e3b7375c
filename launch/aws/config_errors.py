"""What botocore raises over this machine's AWS configuration, as a sentence that names the variable or the profile.

Much of it is no BotoCoreError: a program for credentials that is not there, a cache that is no JSON, an endpoint that
is no URL, or a question for an MFA code without a terminal.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from launch.core.errors import NotSetUp
from trainer.errors import one_line

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
# A part of the name of botocore's class for a source of credentials -> its settings, in the environment or a profile.
SOURCES = {
    "WebIdentity": ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "web_identity_token_file", "role_arn"),
    "AssumeRole": ("role_arn", "source_profile", "credential_source", "mfa_serial"),
    "Process": ("credential_process",),
    "SSO": ("sso_session", "sso_start_url", "sso_account_id", "sso_role_name", "sso_region"),
    "Login": ("login_session",),
    "Container": ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                  "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN"),
}  # fmt: skip
SIGN_ON = ("SSO", "Login")
FILES = {"AWS_CONFIG_FILE": "config_file", "AWS_SHARED_CREDENTIALS_FILE": "credentials_file"}  # variable -> botocore's
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
CREDENTIALS = ("botocore.credentials", "botocore.tokens")  # its modules that find them
SHORTEST = 3  # characters of a value that is looked for in an error


@contextmanager
def in_words(session: Any) -> Iterator[None]:
    """Inside the block, where a session or a client is made, whatever goes wrong is the configuration's fault.

    session: botocore's.  Raises NotSetUp.
    """
    from botocore.exceptions import BotoCoreError

    try:
        yield
    except (BotoCoreError, ValueError, OSError, LookupError, EOFError) as error:
        if _is_connection(error):
            raise
        raise not_set_up(error, session) from error


def is_of_credentials(error: BaseException) -> bool:
    """Whether it was raised while credentials were found or renewed, and is no lost connection."""
    from botocore.exceptions import ClientError

    if isinstance(error, ClientError) or _is_connection(error):
        return False
    return any(module in CREDENTIALS for module, _ in _frames(error))


def _is_connection(error: BaseException) -> bool:
    from botocore.exceptions import ConnectionError, HTTPClientError

    return isinstance(error, (ConnectionError, HTTPClientError))


def is_of_setting(error: BaseException, session: Any) -> bool:
    """Whether no request was sent, as a proxy is no URL, or a value that is set and that the error shows is wrong."""
    from botocore.exceptions import HTTPClientError

    cause = error.kwargs.get("error") if isinstance(error, HTTPClientError) else None
    return isinstance(cause, ValueError) and bool(_mentioned(str(cause), session) or _proxies())


def check_bundle(session: Any) -> None:
    """Raises NotSetUp for certificates that cannot be read, which botocore would find once it is connected."""
    bundle = session.get_config_variable("ca_bundle")
    if not bundle:
        return
    try:
        ssl.create_default_context(**{"capath" if Path(bundle).is_dir() else "cafile": bundle})
    except (OSError, ValueError) as error:
        words = f"the certificates in {one_line(bundle, 200)} cannot be read ({one_line(error, 200)})"
        raise NotSetUp(f"{words}; check AWS_CA_BUNDLE, or ca_bundle in the profile.") from error


def not_set_up(error: BaseException, session: Any) -> NotSetUp:
    """The error for an AWS configuration that does not work."""
    from botocore import exceptions

    cause = error.kwargs.get("error") if isinstance(error, exceptions.HTTPClientError) else error
    text = one_line(str(cause) or type(error).__name__, 300).rstrip(".: ")
    if isinstance(error, exceptions.NoCredentialsError):
        remedy = "run aws configure or aws sso login, or set AWS_PROFILE."
        return NotSetUp(unreadable(session) or f"no AWS credentials; {remedy}")
    if isinstance(error, exceptions.PartialCredentialsError):
        return NotSetUp(f"the AWS credentials are incomplete: {text}; set that, too, or run aws configure.")
    if isinstance(error, exceptions.ProfileNotFound):
        return NotSetUp(f"{text}; check ~/.aws/config, or set AWS_PROFILE to another profile.")
    return _of_source(error, cause, text, session)


def _of_source(error: BaseException, cause: BaseException | None, text: str, session: Any) -> NotSetUp:
    """The error for a source of credentials, a region or an endpoint, with the setting that it comes from."""
    from botocore import exceptions

    source = _source(error)
    if source in SIGN_ON or isinstance(error, (exceptions.TokenRetrievalError, exceptions.SSOError)):
        return NotSetUp(f"the AWS credentials cannot be loaded: {text}; run aws sso login.")
    settings = _mentioned(text, session) or _set(SOURCES.get(source, ()), session)
    settings = settings or (_proxies() if cause is not error else [])
    check = " and ".join(settings) or "~/.aws/config and the AWS_ variables"
    if isinstance(error, exceptions.InvalidRegionError):
        return NotSetUp(f"{text}; check {check}, or give --region us-east-1." if settings else
                        f"{text}; give --region us-east-1, or set AWS_DEFAULT_REGION.")  # fmt: skip
    what = "the AWS credentials cannot be loaded" if source else "the AWS configuration does not work"
    return NotSetUp(f"{what}: {text}; check {check}.")


def check_keys(credentials: Any) -> None:
    """Raises NotSetUp for keys with a blank or a line break in them, which no request can be signed with."""
    from botocore.credentials import RefreshableCredentials

    if credentials is None or isinstance(credentials, RefreshableCredentials):  # AWS's own
        return
    for name, key in zip(KEYS, credentials.get_frozen_credentials(), strict=False):
        if re.search(r"[^!-~]", key or ""):
            raise NotSetUp(f"{name} has a blank or a line break in it ({credentials.method}); set it again.")


def unreadable(session: Any) -> str:
    """A sentence where AWS's own files are named or there, and cannot be read: botocore takes them for empty."""
    for variable, name in FILES.items():
        path, is_named = Path(session.get_config_variable(name)).expanduser(), bool(os.environ.get(variable))
        try:
            path.open("rb").close()
        except OSError as error:
            if is_named or not isinstance(error, FileNotFoundError):
                place = f"{variable}={path}" if is_named else path
                return f"{one_line(str(place), 300)} cannot be read ({error.strerror}); mend it, or give another file."
    return ""


def _frames(error: BaseException) -> Iterator[tuple[str, str]]:
    """Module and class of each function that the error came through."""
    place = error.__traceback__
    while place is not None:
        frame = place.tb_frame
        yield str(frame.f_globals.get("__name__")), type(frame.f_locals.get("self")).__name__
        place = place.tb_next


def _source(error: BaseException) -> str:
    """Which of SOURCES failed; "" if none."""
    names = [name for module, name in _frames(error) if module in CREDENTIALS]
    return next((source for name in reversed(names) for source in SOURCES if source in name), "")


def _profile(session: Any) -> tuple[str, dict[str, Any]]:
    """The name of the profile in use, and its settings."""
    name = session.get_config_variable("profile") or "default"
    try:
        profiles = session.full_config.get("profiles", {})
    except Exception:  # a file that is no configuration, which is the error that is being told
        profiles = {}
    return name, profiles.get(name, {})


def _mentioned(text: str, session: Any) -> list[str]:
    """The variables and the profile's settings of which the error shows a value, or its first word."""
    name, settings = _profile(session)
    values = {one: value for one, value in os.environ.items() if one.startswith("AWS_") or one.upper() in PROXIES}
    values |= {f"{one} in profile {name}": value for one, value in settings.items() if isinstance(value, str)}
    return [one for one, value in sorted(values.items()) if _is_in(value.split(), text)]


def _proxies() -> list[str]:
    return sorted(name for name, value in os.environ.items() if name.upper() in PROXIES and value)


def _is_in(words: list[str], text: str) -> bool:
    """Whether the text shows all of a value, or its first word."""
    return any(len(part) >= SHORTEST and part in text for part in (" ".join(words), *words[:1]))


def _set(names: tuple[str, ...], session: Any) -> list[str]:
    """Those that are set, in the environment or in the profile."""
    profile, settings = _profile(session)
    found = [name for name in names if os.environ.get(name)]
    return found + [f"{name} in profile {profile}" for name in names if name in settings]

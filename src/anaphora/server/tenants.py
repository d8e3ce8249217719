"""API keys: who may call, and the salt that keeps each caller's cache apart.

The salt is derived here from the key and a secret of the server; nothing a client sends can name it.
"""

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Callable

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from anaphora.config import ServerConfig
from anaphora.errors import AuthenticationError, InvalidRequestError, PermissionDeniedError

TENANT_KEY_HEADER = "x-anaphora-tenant-key"
"""Names, by its API key, the tenant for whom an administrator pins."""

_MAX_CACHE_SALT_BYTES = 256


class Tenants:
    """The callers that are known."""

    def __init__(self, config: ServerConfig) -> None:
        secret = config.tenant_salt_secret or secrets.token_bytes(32)
        self._salts = {key: derive_salt(secret, key) for key in config.api_keys}
        self._admin_key = config.admin_api_key
        self._is_open_to_admin = not config.api_keys and is_loopback(config.host)

    def admit(self, request: Request) -> None:
        """Note the tenant's salt on a request, or raise AuthenticationError."""
        request.state.tenant_salt = self._authenticate(_bearer_token(request)) if self._salts else None

    def admit_admin(self, request: Request) -> None:
        """Let an administrator pass; raise AuthenticationError or PermissionDeniedError for all others."""
        if self._admin_key is None:
            if not self._is_open_to_admin:
                raise PermissionDeniedError(
                    "this endpoint needs an admin key and the server has none; start it with --admin-api-key"
                )
            return
        token = _bearer_token(request)
        if not _same(token, self._admin_key):
            self._authenticate(token)
            raise PermissionDeniedError(
                "this API key is valid, but this endpoint needs the one of --admin-api-key"
            )

    def admit_pinner(self, request: Request) -> None:
        """Note the salt of the tenant whose prompt is to be pinned, or raise an error for those who may not pin.

        Where there is an admin key, its holder alone pins, and says for whom. Else every API key pins for itself,
        which it can by `cache_control`, too; and without any key only callers on this machine do.
        """
        if self._admin_key is None and self._salts:
            self.admit(request)
            return
        self.admit_admin(request)
        request.state.tenant_salt = self._named_salt(request.headers.get(TENANT_KEY_HEADER))

    def _named_salt(self, key: str | None) -> bytes | None:
        if not self._salts:
            if key is not None:
                raise InvalidRequestError(
                    f"the header {TENANT_KEY_HEADER} was sent, but this server has no API keys; leave it out",
                    param=TENANT_KEY_HEADER,
                )
            return None
        salt = self._find_salt(key or "")
        if salt is None:
            raise InvalidRequestError(
                f"the header {TENANT_KEY_HEADER} {'is missing' if key is None else 'holds no known API key'}, but each "
                "API key has its own cache; send the key of the tenant for whom to pin",
                param=TENANT_KEY_HEADER,
            )
        return salt

    def _find_salt(self, token: str) -> bytes | None:
        # Every key is compared, so the time taken does not tell which one was close.
        matching = [salt for key, salt in self._salts.items() if _same(token, key)]
        return matching[0] if matching else None

    def _authenticate(self, token: str) -> bytes:
        salt = self._find_salt(token)
        if salt is None:
            sent = "no API key was sent" if not token else "the API key that was sent is not known here"
            raise AuthenticationError(
                f"{sent}; send the header 'Authorization: Bearer KEY'", code="invalid_api_key"
            )
        return salt


class Gate:
    """ASGI middleware of one route: `admit` looks at the request first and raises to keep it out."""

    def __init__(self, app: ASGIApp, admit: Callable[[Request], None]) -> None:
        self._app = app
        self._admit = admit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an admitted request on."""
        self._admit(Request(scope))
        await self._app(scope, receive, send)


def derive_salt(secret: bytes, api_key: str) -> bytes:
    """Return a tenant's salt: the same in all processes that share the secret, unknowable without it."""
    return hmac.new(secret, api_key.encode(), hashlib.sha256).digest()


def check_cache_salt(salt: str | None) -> str | None:
    """Return a caller's own salt, which can only narrow the tenant's namespace; refuse an empty or a long one."""
    if salt == "":
        raise InvalidRequestError(
            "cache_salt is empty, but must have at least one character; leave it out to share your own cache",
            param="cache_salt",
        )
    if salt is not None and len(salt.encode()) > _MAX_CACHE_SALT_BYTES:
        raise InvalidRequestError(
            f"cache_salt has {len(salt.encode())} bytes, the limit is {_MAX_CACHE_SALT_BYTES}; send a digest of it",
            param="cache_salt",
        )
    return salt


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def exposure_warning(config: ServerConfig) -> str | None:
    """Return what the operator should know when others can call without a key, else None."""
    if config.api_keys or is_loopback(config.host):
        return None
    return (
        f"listening on {config.host} without an API key: everybody who reaches it can use it, and all callers share "
        "one cache, so they can find out what others sent; set --api-key, or listen on 127.0.0.1"
    )


def _bearer_token(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _same(token: str, key: str) -> bool:
    # Header values arrive decoded as Latin-1: turn them back into the bytes that were sent.
    return hmac.compare_digest(token.encode("latin-1"), key.encode())

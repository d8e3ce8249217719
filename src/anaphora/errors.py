"""Everything this project raises on purpose.

* AnaphoraError
  + RequestError            the caller's request is wrong: 4xx, message = value, limit, remedy
    - InvalidRequestError     a field has a wrong type or value
      · UnsupportedFieldError   a field we know but do not serve
      · ContextLengthError      the prompt, or prompt + max_tokens, does not fit
    - AuthenticationError     no API key or a wrong one
    - PermissionDeniedError   the key is right, but not for this endpoint
    - UnknownModelError       no model of that name is served here
    - UnknownRouteError       no such path
    - UnknownRequestError     no request of that id is remembered for the caller
    - MethodNotAllowedError   the path exists, but not with this verb
    - BodyTooLargeError       the body is over the server's limit
    - ConflictError           cannot be done now because of what is running or pinned
  + StartError              the process cannot start: one clear line, exit code 1
    - ConfigError             a setting is wrong
    - ModelError              a model cannot be loaded
    - NotEnoughMemoryError    the page pool cannot hold one full-length request
    - PortInUseError          the address cannot be bound
    - MissingExtraError       an optional package is not installed
    - TraceError              a recorded trace cannot be read
  + ServerCallError         a server that was asked something gave no answer, or refused
  + TargetError             the server to be measured is absent, or does not answer as it should
  + EngineError             we are at fault: 5xx
    - EngineDeadError         the engine thread has stopped
    - ShuttingDownError       the server is stopping and takes no new requests

Which HTTP status and body each of them becomes is known only in `server/wire_errors.py`.
"""


class AnaphoraError(Exception):
    """The root of all errors raised on purpose."""


class RequestError(AnaphoraError):
    """The caller's request is wrong.

    `param` is the path of the field at fault, such as `messages[3].content`, or None.
    `code` is a machine-readable code where the API's users expect one, or None.
    """

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code


class InvalidRequestError(RequestError):
    """A field has a wrong type or value."""


class UnsupportedFieldError(InvalidRequestError):
    """A field that we know but do not serve; ignoring it would lie to the caller."""


class ContextLengthError(InvalidRequestError):
    """The prompt, or the prompt with its outputs, does not fit."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message, param=param, code="context_length_exceeded")


class AuthenticationError(RequestError):
    """No API key was given, or a wrong one."""


class PermissionDeniedError(RequestError):
    """The caller is known but may not use this endpoint."""


class UnknownModelError(RequestError):
    """No model of that name is served here."""


class UnknownRouteError(RequestError):
    """No such path."""


class UnknownRequestError(RequestError):
    """No request of that id is remembered for the caller."""


class MethodNotAllowedError(RequestError):
    """The path exists, but not with this verb."""


class BodyTooLargeError(RequestError):
    """The body is over the server's limit."""


class ConflictError(RequestError):
    """Cannot be done now because of what is running or pinned."""


class StartError(AnaphoraError):
    """The process cannot start; the message is one line for a person."""


class ConfigError(StartError):
    """A setting is wrong."""


class ModelError(StartError):
    """A model cannot be found, read or loaded."""


class NotEnoughMemoryError(StartError):
    """The page pool cannot hold one full-length request."""


class PortInUseError(StartError):
    """The address cannot be bound."""


class MissingExtraError(StartError):
    """An optional package is not installed; the message holds the command to run."""


class TraceError(StartError):
    """A recorded trace cannot be read; the message names the line and what is wrong with it."""


class ServerCallError(AnaphoraError):
    """A server that was asked something gave no answer, or refused; the message is one line for a person."""


class TargetError(AnaphoraError):
    """The server to be measured is absent, or does not answer as it should; the message is one line for a person."""


class EngineError(AnaphoraError):
    """We are at fault, not the caller."""


class EngineDeadError(EngineError):
    """The engine thread has stopped after a failure."""


class ShuttingDownError(EngineError):
    """The server is stopping and takes no new requests."""

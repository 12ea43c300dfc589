"""Every error Octavo raises on purpose. Split at the root by whose fault it is.

OctavoError
├── CallerError            the caller's fault: say what to change (HTTP 4xx)
│   ├── RequestError       one request is wrong; `param` names the field
│   │   ├── Unsupported    the field is known and not served
│   │   ├── PromptTooLong  prompt does not leave room in the context
│   │   └── NeverFits      the request could not run even alone in the pool
│   ├── ConfigError        an option is wrong; `param` names the option
│   ├── ModelNotFound      no such alias, folder, file or hub id
│   └── ModelFileError     a model file is damaged, hostile or not understood
└── EngineError            our fault or our state (HTTP 5xx)
    ├── Overloaded         a bounded queue is full: try later
    └── EngineClosed       the engine has stopped or died

Messages never carry addresses, object reprs or prompts.
"""

from __future__ import annotations


class OctavoError(Exception):
    """Root. `code` is the stable, machine-readable name of the fault."""

    code = "error"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        if code is not None:
            self.code = code


class CallerError(OctavoError):
    code = "invalid_value"


class RequestError(CallerError):
    code = "invalid_value"


class Unsupported(RequestError):
    code = "unsupported_parameter"


class PromptTooLong(RequestError):
    code = "context_length_exceeded"


class NeverFits(RequestError):
    code = "kv_capacity_exceeded"


class ConfigError(CallerError):
    code = "invalid_option"


class ModelNotFound(CallerError):
    code = "model_not_found"


class ModelFileError(CallerError):
    code = "invalid_model_file"


class EngineError(OctavoError):
    code = "server_error"


class Overloaded(EngineError):
    code = "overloaded"


class EngineClosed(EngineError):
    code = "engine_closed"

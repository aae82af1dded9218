"""Every error that Serpens raises on purpose: a stable code, one HTTP status, a message for people.

`backend.api.errors` turns them into `{"error": {"code", "message", "details"}}`. A message says what was needed, what
came and which of our own identifiers; it never carries a patient's name, an identifier of the patient or a file name.
"""

from typing import Any, ClassVar


class PlatformError(Exception):
    """What we raise on purpose. `code` is public and stable; the message is for people."""

    code: ClassVar[str] = "platform_error"
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class InvalidRequest(PlatformError):
    """The request's own fields contradict the contract."""

    code = "invalid_request"
    http_status = 422


class NotFound(PlatformError):
    """No such thing, or none that this person may know of: both read the same from outside."""

    code = "not_found"
    http_status = 404


class NotSignedIn(PlatformError):
    """The request carries no valid session."""

    code = "not_signed_in"
    http_status = 401


class WrongCredentials(PlatformError):
    """Name and password do not match an active account; which of the two was wrong is not said."""

    code = "wrong_credentials"
    http_status = 401


class NotAllowed(PlatformError):
    """The person is known and the role is not enough."""

    code = "not_allowed"
    http_status = 403


class CrossSiteRequest(PlatformError):
    """A changing request came from another origin or without the session's CSRF token."""

    code = "cross_site_request"
    http_status = 403


class UnknownHost(PlatformError):
    """The request names a host that this server is not set up to be."""

    code = "unknown_host"
    http_status = 421


class TooManyAttempts(PlatformError):
    """Too many failed logins; `details["retry_after_s"]` says when to try again."""

    code = "too_many_attempts"
    http_status = 429


class Conflict(PlatformError):
    """What is stored contradicts the request, and what is stored stays."""

    code = "conflict"
    http_status = 409


class Misconfigured(PlatformError):
    """A setting cannot be honoured; the message names it and the mend."""

    code = "misconfigured"
    http_status = 500


class ShapeError(PlatformError, ValueError):
    """An array has another shape than the contract says."""

    code = "shape_error"
    http_status = 422


class InvalidWindow(PlatformError, ValueError):
    """A window whose width is not above its function's minimum."""

    code = "invalid_window"
    http_status = 422


class FileRefused(PlatformError):
    """One file cannot be taken in. The rest of the upload goes on; subclasses name the reason."""

    code = "file_refused"
    http_status = 422


class UnreadableFile(FileRefused):
    """The file says it is of a kind that we read, and its bytes contradict that."""

    code = "unreadable_file"


class UnsupportedFile(FileRefused):
    """A file of a kind that holds no image that we show."""

    code = "unsupported_file"


class NoPixels(FileRefused):
    """A DICOM object without an image (a DICOMDIR, a report, a presentation state)."""

    code = "no_pixels"


class TruncatedPixels(FileRefused):
    """The pixel data end before the header says they do."""

    code = "truncated_pixels"


class FileTooLarge(FileRefused):
    """The file, or what it declares it unpacks to, is over the limit."""

    code = "file_too_large"
    http_status = 413


class UploadTooLarge(PlatformError):
    """The upload as a whole is over the limit in bytes or in files."""

    code = "upload_too_large"
    http_status = 413


class UnsafePath(FileRefused):
    """An archive member that names a place outside the upload."""

    code = "unsafe_path"


class UnsafeMember(FileRefused):
    """An archive member that is a link, a device or another archive, or is encrypted."""

    code = "unsafe_member"


class SopInstanceConflict(FileRefused):
    """Another file with this SOP Instance UID and other bytes is already stored; this one is kept apart."""

    code = "sop_instance_conflict"
    http_status = 409


class PatientMismatch(FileRefused):
    """The file names a study that is stored under another patient; it is kept apart and not shown."""

    code = "patient_mismatch"
    http_status = 409


class UndecodableFrame(PlatformError):
    """The header reads and the pixels of this frame do not decode."""

    code = "undecodable_frame"
    http_status = 422

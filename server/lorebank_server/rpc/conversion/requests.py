"""What requests have in common: required fields, and the id that makes a repeat harmless."""

from uuid import UUID

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from lorebank_server.domain.errors import InvalidArgumentError
from lorebank_server.domain.fingerprints import digest


def require(field: str, value: object) -> None:
    """Refuse an empty text or list in a required field."""
    if not value:
        raise InvalidArgumentError(f"{field} is empty, and this procedure needs it.", field=field)


def to_uid(field: str, value: str) -> UUID:
    """A UUID in any of its usual forms.

    Raises:
        InvalidArgumentError: It is none.
    """
    try:
        return UUID(value)
    except ValueError:
        raise InvalidArgumentError(
            f"{field} must be a UUID, such as 0190a5c4-7d10-7b3e-9d43-6f1f0c2b8a11.", field=field
        ) from None


def request_identity(request: Message) -> tuple[str, str]:
    """The request id in its one form, and the digest of everything else that was asked; both empty without an id.

    Naming the space or leaving it out makes no other request, since it is the same space.

    Raises:
        InvalidArgumentError: The id is no UUID.
    """
    request_id: str = request.request_id  # type: ignore[attr-defined]
    if not request_id:
        return "", ""
    canonical = str(to_uid("request_id", request_id))
    asked = type(request)()
    asked.CopyFrom(request)
    asked.ClearField("request_id")
    asked.ClearField("space")
    return canonical, digest([asked.DESCRIPTOR.full_name, MessageToDict(asked, preserving_proto_field_name=True)])

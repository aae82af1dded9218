"""Fields that several routes take, bounded so that every database keeps them."""

from typing import Annotated

from pydantic import Field

# The sender's idempotency key: a retried request finds what it made before.
RequestKey = Annotated[str, Field(pattern=r"^[\x21-\x7e]{8,80}$")]
OurId = Annotated[str, Field(pattern=r"^[0-9a-z]{1,24}$")]
# The place of an event is a whole number of 32 bits in the database.
MOST_EVENTS = 2**31 - 1

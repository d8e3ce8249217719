"""Names for the few plain values that travel everywhere.

Knows nothing else of the project.
"""

from typing import NewType, TypeAlias

RequestId = NewType("RequestId", str)
PageId = NewType("PageId", int)

# An alias, not a NewType: tokenizers, arrays and JSON bodies hand out plain ints by the million,
# and wrapping each of them would only be noise.
TokenId: TypeAlias = int

NULL_PAGE = PageId(0)
"""Never allocated and never freed; runners may write padding rows to it."""

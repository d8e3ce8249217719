import base64
import io
from typing import Any

import pytest

from anaphora.cli.pictures import pixel_decoder
from tests.lint.support import QUESTIONS, STORY, found, lint_bodies, only


def _seen(data: bytes, question: str) -> dict[str, Any]:
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    content = [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": f"{STORY} {question}"},
    ]
    return {"messages": [{"role": "user", "content": content}]}


def _first_letter(data: bytes) -> bytes | None:
    return data[:1] or None


def test_equal_pixels_in_other_bytes_cost_what_follows_the_picture() -> None:
    bodies = [_seen(b"a%d" % i, question) for i, question in enumerate(QUESTIONS)]
    finding = only(lint_bodies(bodies, decode=_first_letter), "L14")
    assert (finding.suspect.code, finding.suspect.path) == ("namespace", "messages[0].content[0]")
    assert finding.suspect.indices == (1, 2, 3)
    assert finding.tokens_lost > 0


@pytest.mark.parametrize("pictures", [(b"a", b"a"), (b"a", b"b")])
def test_the_same_bytes_and_other_pixels_are_fine(pictures: tuple[bytes, bytes]) -> None:
    bodies = [_seen(data, question) for data, question in zip(pictures, QUESTIONS[:2], strict=True)]
    assert not found(lint_bodies(bodies, decode=_first_letter), "L14")


def test_without_a_decoder_the_report_says_that_the_rule_did_not_run() -> None:
    assert "anaphora[images]" in lint_bodies([_seen(b"a", "Hi.")]).not_run["L14"]
    assert "L14" not in lint_bodies([{"prompt": STORY}]).not_run


def test_pillow_tells_pixels_from_bytes() -> None:
    from PIL import Image

    def png(color: str, level: int) -> bytes:
        file = io.BytesIO()
        Image.new("RGB", (64, 64), color).save(file, "PNG", compress_level=level)
        return file.getvalue()

    decode = pixel_decoder()
    assert decode is not None
    assert png("red", 0) != png("red", 9)
    assert decode(png("red", 0)) == decode(png("red", 9)) != decode(png("blue", 9))
    assert decode(b"no picture") is None

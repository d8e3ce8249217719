"""One field of encoding v1."""

from anaphora.cache import fields
from anaphora.cache.fields import encode_field, field_header


def test_a_field_is_tag_length_body() -> None:
    """Five header bytes, little-endian."""
    assert encode_field(0x12, b"xyz") == b"\x12\x03\x00\x00\x00xyz"
    assert field_header(0x10, 0x0102) == b"\x10\x02\x01\x00\x00"
    assert encode_field(0x04, b"") == b"\x04\x00\x00\x00\x00"


def test_no_tag_is_used_twice_where_it_could_be_mistaken() -> None:
    """Root and block fields share one number space; so do the fields inside a media item."""
    outer = [
        fields.VERSION_TAG,
        fields.MODEL_TAG,
        fields.ADAPTER_TAG,
        fields.TENANT_SALT_TAG,
        fields.CACHE_SALT_TAG,
        fields.SEED_TAG,
        fields.PARENT_TAG,
        fields.TOKENS_TAG,
        fields.MEDIA_TAG,
        fields.EMBEDS_TAG,
    ]
    assert outer == [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x10, 0x11, 0x12, 0x13]
    assert [fields.CONTENT_ID_TAG, fields.CLIENT_ID_TAG, fields.OFFSET_TAG] == [0x01, 0x02, 0x03]

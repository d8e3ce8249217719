"""The demo model's own tokenizer, for the tests marked `model`."""

import pytest

from anaphora.models.cache_folder import cache_folder
from anaphora.models.resolve import resolve
from anaphora.models.tokenizer import Tokenizer


def load_demo_tokenizer() -> Tokenizer:
    """Fetched and converted on first use, which takes a minute; then kept in the cache folder."""
    import openvino_genai

    from anaphora.runner.openvino.model_files import open_model_files

    files = open_model_files(resolve(None).path, cache_folder())
    return Tokenizer(openvino_genai.Tokenizer(files.folder))


@pytest.fixture(scope="session")
def demo_tokenizer() -> Tokenizer:
    """One for all tests."""
    return load_demo_tokenizer()

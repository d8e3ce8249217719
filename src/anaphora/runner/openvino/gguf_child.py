"""Turns a GGUF file into OpenVINO files beside it; run as a script, in a process of its own.

The loader is C++ that trusts its input and prints what it likes: a damaged file may crash this process, but
not the server's. Knows nothing of the rest of anaphora, so that it runs from any working directory.
"""

import sys
from pathlib import Path

import openvino as ov
import openvino_genai
import openvino_tokenizers  # noqa: F401 - teaches openvino.Core to read tokenizers

NO_LIMIT = 2**31 - 1


def convert(gguf: Path) -> None:
    """Write the model, the tokenizer and the detokenizer into the folder of `gguf`."""
    openvino_genai.LLMPipeline(str(gguf), "CPU", enable_save_ov_model=True)
    lift_token_limit(gguf.parent / "openvino_tokenizer.xml")


def lift_token_limit(tokenizer: Path) -> None:
    """Rewrite a tokenizer so that it no longer drops all but the last 8,192 tokens of a text."""
    model = ov.Core().read_model(tokenizer)
    for node in model.get_ops():
        if node.get_type_name() == "Minimum":
            for port in node.inputs():
                _replace_constant(port)
    unlimited = tokenizer.with_name("unlimited_tokenizer.xml")
    ov.save_model(model, unlimited, compress_to_fp16=False)
    # The weights are mapped while `model` lives; replacing the files leaves the old ones to the map.
    unlimited.with_suffix(".bin").replace(tokenizer.with_suffix(".bin"))
    unlimited.replace(tokenizer)


def _replace_constant(port: ov.Input) -> None:
    source = port.get_source_output()
    if source.get_node().get_type_name() == "Constant":
        limit = ov.opset13.constant(NO_LIMIT, source.get_element_type())
        port.replace_source_output(limit.output(0))


if __name__ == "__main__":
    try:
        convert(Path(sys.argv[1]))
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent shows its last line
        sys.exit(str(error))

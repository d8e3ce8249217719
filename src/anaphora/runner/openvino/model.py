"""OpenVINO IR → compiled paged attention, with the logits of chosen rows only.

The one file that knows the paged-attention transformation, which is no public API of OpenVINO. Does not know
where the K/V lie (`kv_store.py`) nor how a step is packed (`batch.py`).
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov

from anaphora.errors import ModelError
from anaphora.models.resolve import IR_FILE
from anaphora.runner.openvino.kv_store import KVPort
from anaphora.runner.openvino.native_errors import reason_of

LOGIT_ROWS = "logit_rows"
STEP_INPUTS = (
    "input_ids",
    "position_ids",
    "past_lens",
    "subsequence_begins",
    "block_indices",
    "block_indices_begins",
    "max_context_len",
    LOGIT_ROWS,
)
MAX_HEAD_LENGTH = 8
_SHORT_NAMES = {"bfloat16": "bf16", "float32": "f32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedModel:
    """A compiled model; `num_threads` is how many threads a step runs on."""

    compiled: ov.CompiledModel
    precision: str
    kv_ports: tuple[KVPort, ...]
    vocab_size: int
    num_threads: int

    @property
    def page_size(self) -> int:
        """How many tokens one page holds; the kernel decides."""
        return self.kv_ports[0].page_size


def load_paged_model(folder: Path, dtype: str) -> PagedModel:
    """Read, rewrite and compile the model in an OpenVINO folder.

    `dtype` is auto, bfloat16 or float32, and becomes the precision of the inference and of the K/V.
    Dynamic quantisation stays at OpenVINO's default: other settings are not exact.
    Raises ModelError when the model is none we can page, or the CPU cannot compute in `dtype`.
    """
    core = ov.Core()
    precision = choose_precision(dtype, core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"))
    try:
        model = core.read_model(folder / IR_FILE)
        _page_attention(model)
        _gather_rows_before_head(model)
        compiled = core.compile_model(model, "CPU", _settings(precision))
    except RuntimeError as error:
        raise ModelError(f"OpenVINO cannot load {folder}: {reason_of(error)}") from error
    _check_inputs(folder, compiled)
    return PagedModel(
        compiled=compiled,
        precision=precision,
        kv_ports=_kv_ports(folder, compiled),
        vocab_size=compiled.output(0).get_partial_shape()[-1].get_length(),
        num_threads=int(compiled.get_property("INFERENCE_NUM_THREADS")),
    )


def choose_precision(dtype: str, capabilities: Collection[str]) -> str:
    """Return bfloat16 or float32; `capabilities` are those that OpenVINO reports for the CPU.

    Raises ModelError when bfloat16 is asked for and the CPU has none: OpenVINO would silently take float32.
    """
    has_bfloat16 = "BF16" in capabilities
    if dtype == "bfloat16" and not has_bfloat16:
        raise ModelError(
            "--dtype is bfloat16, but this CPU has neither AVX512-BF16 nor AMX-BF16; "
            "leave --dtype at auto, or give float32"
        )
    if dtype == "auto":
        return "bfloat16" if has_bfloat16 else "float32"
    return dtype


def _settings(precision: str) -> dict[str, str]:
    short_name = _SHORT_NAMES[precision]
    return {
        "INFERENCE_PRECISION_HINT": short_name,
        "KV_CACHE_PRECISION": short_name,
        "PERFORMANCE_HINT": "LATENCY",
    }


def _page_attention(model: ov.Model) -> None:
    """Rewrite the model's attention, in place, to read and write pages."""
    try:
        from openvino._offline_transformations import paged_attention_transformation
    except ImportError as error:
        raise ModelError(
            f"openvino {ov.__version__} has no paged-attention transformation; "
            "install a version that anaphora was tested with: pip install 'openvino>=2026.4.1,<2026.6'"
        ) from error
    paged_attention_transformation(model)


def _gather_rows_before_head(model: ov.Model) -> None:
    """Give the model an input `logit_rows` [num_logit_rows]: only these rows reach the last MatMul."""
    head = _find_head(model)
    hidden = head.input_value(0)  # [num_rows, 1, hidden_size]
    rows = ov.opset13.parameter([-1], np.int64, name=LOGIT_ROWS)
    rows.output(0).get_tensor().set_names({LOGIT_ROWS})
    gathered = ov.opset13.gather(hidden, rows, ov.opset13.constant(np.int64(0)))
    head.input(0).replace_source_output(gathered.output(0))
    model.add_parameters([rows])
    model.validate_nodes_and_infer_types()


def _find_head(model: ov.Model) -> Any:
    """Return the MatMul that makes the logits; scaling or capping may follow it."""
    node = model.output("logits").get_node()
    for _ in range(MAX_HEAD_LENGTH):
        node = node.input_value(0).get_node()
        if node.get_type_name() == "MatMul":
            return node
    raise ModelError(
        "the model's logits do not come from a matrix product; only language models can be served"
    )


def _check_inputs(folder: Path, compiled: ov.CompiledModel) -> None:
    """Refuse a model that wants more than tokens and pages, such as images."""
    names = {port.get_any_name() for port in compiled.inputs if not _is_cache(port)}
    if names != set(STEP_INPUTS):
        odd = ", ".join(sorted(names ^ set(STEP_INPUTS)))
        raise ModelError(f"{folder} is not a plain language model: its inputs differ in {odd}")


def _is_cache(port: Any) -> bool:
    return str(port.get_any_name()).startswith(("key_cache.", "value_cache."))


def _kv_ports(folder: Path, compiled: ov.CompiledModel) -> tuple[KVPort, ...]:
    ports = [port for port in compiled.inputs if _is_cache(port)]
    shapes = [port.get_partial_shape() for port in ports]  # each [?, num_heads, page_size, head_size]
    if not ports or any(len(shape) != 4 or any(d.is_dynamic for d in list(shape)[1:]) for shape in shapes):
        raise ModelError(f"{folder} has no paged attention; export it as a stateful text-generation model")
    return tuple(
        KVPort(
            port.get_any_name(), port.get_element_type().to_string(), tuple(list(shape.get_min_shape())[1:])
        )
        for port, shape in zip(ports, shapes, strict=True)
    )

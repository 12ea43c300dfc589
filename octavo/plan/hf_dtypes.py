"""In which dtype a checkpoint wants its weights and its cache. Owns the fields that say so.

The dtype of the weights says nothing about that of K and V: each has its own fields, and the
report names the one that counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.core.errors import ModelFileError
from octavo.plan.formats import KV_FORMATS

QUANT_FILE = "hf_quant_config.json"
_FLOATS = {"float32": "fp32", "bfloat16": "bf16", "float16": "bf16"}
_METHODS = {"fp8": "fp8", "fbgemm_fp8": "fp8", "awq": "int4", "mxfp4": "mxfp4"}
_KV_ALGORITHMS = {"FP8": "fp8", "NVFP4": "nvfp4", "INT8": "int8"}
_GROUP_WEIGHTS = {
    ("float", 8): "fp8",
    ("float", 4): "fp4",
    ("int", 8): "int8",
    ("int", 4): "int4",
}
_WEIGHT_ALGORITHMS = {"FP8": "fp8", "NVFP4": "fp4", "W4A16_AWQ": "int4", "INT8_SQ": "int8"}


def kv_dtype_of(
    config: Mapping[str, Any], text: Mapping[str, Any], quantization: Mapping[str, Any] | None
) -> tuple[str, str]:
    """The name of a KV format, and the rule that chose it; raises ModelFileError for one that is
    not known."""
    algorithm = _quantization(quantization).get("kv_cache_quant_algo")
    if algorithm is not None:
        return _algorithm(algorithm), f"{QUANT_FILE}: quantization.kv_cache_quant_algo"
    for holder in (config, text):
        scheme = _table(holder, "quantization_config").get("kv_cache_scheme")
        if scheme is not None:
            rule = "config.json: quantization_config.kv_cache_scheme"
            return _scheme(scheme), rule
    dtype = saved_dtype(config, text)
    return (dtype, "the dtype of the config") if dtype else ("bfloat16", "no dtype in the config")


def saved_dtype(config: Mapping[str, Any], text: Mapping[str, Any]) -> str | None:
    """The dtype that the config names for activations, if it is one that K and V can have."""
    for holder in (text, config):
        for name in ("dtype", "torch_dtype"):
            value = holder.get(name)
            if isinstance(value, str) and value in _FLOATS:
                return value
    return None


def weight_dtype_of(
    config: Mapping[str, Any], text: Mapping[str, Any], quantization: Mapping[str, Any] | None
) -> str | None:
    """The name of a weight format; None for a method that is not known or mixes several."""
    algorithm = _quantization(quantization).get("quant_algo")
    if algorithm is not None:
        return _WEIGHT_ALGORITHMS.get(str(algorithm))
    for holder in (config, text):
        table = _table(holder, "quantization_config")
        if table:
            return _method(table)
    return _FLOATS[saved_dtype(config, text) or "bfloat16"]


def _method(table: Mapping[str, Any]) -> str | None:
    method, bits = table.get("quant_method"), table.get("bits")
    if isinstance(method, str) and method in _METHODS:
        return _METHODS[method]
    if bits in (4, 8) and type(bits) is int:
        return f"int{bits}"
    groups = table.get("config_groups")
    if isinstance(groups, dict):  # compressed-tensors: {"group_0": {"weights": {"num_bits": …}}}
        for group in list(groups.values())[:64]:
            weights = _table(group, "weights") if isinstance(group, dict) else {}
            kind, n_bits = weights.get("type"), weights.get("num_bits")
            if isinstance(kind, str) and type(n_bits) is int:
                return _GROUP_WEIGHTS.get((kind, n_bits))
    return None


def _scheme(scheme: Any) -> str:
    if isinstance(scheme, str):
        return _algorithm(scheme)
    if isinstance(scheme, dict) and scheme.get("num_bits") == 8:
        return "fp8" if scheme.get("type") == "float" else "int8"
    raise _unknown("config.json: quantization_config.kv_cache_scheme", scheme)


def _algorithm(name: Any) -> str:
    if isinstance(name, str):
        if name.upper() in _KV_ALGORITHMS:
            return _KV_ALGORITHMS[name.upper()]
        if name in KV_FORMATS:
            return name
    raise _unknown("kv_cache_quant_algo", name)


def _quantization(quantization: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return _table(quantization or {}, "quantization")


def _table(holder: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = holder.get(name)
    return value if isinstance(value, dict) else {}


def _unknown(field: str, value: Any) -> ModelFileError:
    shown = f"{value[:40]!a}" if isinstance(value, str) else "not a name"
    return ModelFileError(
        f"{field} is {shown}, which is not known; give --kv-cache-dtype", param=field
    )

"""Mirrors of the plain structs in native/: same fields, same order, no meaning of their own."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_float, c_int32, c_int64, c_void_p


class GroupRows(ctypes.Structure):
    _fields_ = (("block_tables", c_void_p), ("slots", c_void_p), ("table_stride", c_int64))


class Step(ctypes.Structure):
    _fields_ = (
        ("n_tokens", c_int64),
        ("n_rows", c_int64),
        ("n_wanted", c_int64),
        ("tokens", c_void_p),
        ("positions", c_void_p),
        ("wanted", c_void_p),
        ("row_starts", c_void_p),
        ("kv_tokens", c_void_p),
        ("groups", POINTER(GroupRows)),
        ("input", c_void_p),
        ("out", c_void_p),
    )


class Op(ctypes.Structure):
    _fields_ = (("run", c_void_p), ("arguments", c_void_p))


class Weights(ctypes.Structure):
    _fields_ = (
        ("data", c_void_p),
        ("n", c_int64),
        ("k", c_int64),
        ("bits", c_int32),
        ("group", c_int32),
        ("zero", c_int32),
        ("minima", c_int32),
        ("wide", c_int32),
        ("half", c_int32),
    )


class Quantised(ctypes.Structure):
    _fields_ = (
        ("q", c_void_p),
        ("scale", c_void_p),
        ("moment", c_void_p),
        ("sum32", c_void_p),
        ("sum16", c_void_p),
        ("k", c_int64),
    )


class Embed(ctypes.Structure):
    _fields_ = (("weights", Weights), ("x", c_void_p), ("scale", c_float), ("padding", c_int32))


class Norm(ctypes.Structure):
    _fields_ = (
        ("x", c_void_p),
        ("weight", c_void_p),
        ("quantised", Quantised),
        ("floats", c_void_p),
        ("residual", c_void_p),
        ("k", c_int64),
        ("eps", c_float),
        ("rows", c_int32),
    )


class Quantise(ctypes.Structure):
    _fields_ = (("x", c_void_p), ("to", Quantised))


class Linear(ctypes.Structure):
    _fields_ = (
        ("weights", Weights),
        ("x", Quantised),
        ("floats", c_void_p),
        ("bias", c_void_p),
        ("y", c_void_p),
        ("y_stride", c_int64),
        ("add", c_int32),
        ("rows", c_int32),
    )


class Gate(ctypes.Structure):
    _fields_ = (
        ("weights", Weights),
        ("x", Quantised),
        ("floats", c_void_p),
        ("out", Quantised),
        ("out_floats", c_void_p),
        ("bias", c_void_p),
        ("activation", c_int32),
        ("padding", c_int32),
    )


class Gather(ctypes.Structure):
    _fields_ = (("x", c_void_p), ("k", c_int64))


class KVPool(ctypes.Structure):
    _fields_ = (
        ("memory", c_void_p),
        ("block_bytes", c_int64),
        ("layer_bytes", c_int64),
        ("part_bytes", c_int64),
        ("slab_bytes", c_int64),
        ("block_tokens", c_int64),
        ("kv_heads", c_int64),
        ("head_dim", c_int64),
        ("dtype", c_int32),
        ("padding", c_int32),
    )


class RopeWrite(ctypes.Structure):
    _fields_ = (
        ("pool", KVPool),
        ("qkv", c_void_p),
        ("q_norm", c_void_p),
        ("k_norm", c_void_p),
        ("cos", c_void_p),
        ("sin", c_void_p),
        ("q", c_void_p),
        ("n_heads", c_int64),
        ("rope_dim", c_int64),
        ("layer", c_int64),
        ("group", c_int32),
        ("eps", c_float),
        ("scale", c_float),
        ("padding", c_int32),
    )


class AttentionPlan(ctypes.Structure):
    _fields_ = (
        ("n_items", c_int64),
        ("n_merged", c_int64),
        ("partial_capacity", c_int64),
        ("items", c_void_p),
        ("members", c_void_p),
        ("first_partial", c_void_p),
        ("first_chunk", c_void_p),
        ("last_chunk", c_void_p),
        ("merged", c_void_p),
        ("order", c_void_p),
        ("ends", c_void_p),
    )


class AttentionPlanning(ctypes.Structure):
    _fields_ = (
        ("plan", POINTER(AttentionPlan)),
        ("block_tokens", c_int64),
        ("window", c_int64),
        ("heads_per_kv", c_int64),
        ("group", c_int32),
        ("share", c_int32),
    )


class Attention(ctypes.Structure):
    _fields_ = (
        ("pool", KVPool),
        ("plan", POINTER(AttentionPlan)),
        ("q", c_void_p),
        ("out", c_void_p),
        ("stats", c_void_p),
        ("sums", c_void_p),
        ("n_heads", c_int64),
        ("layer", c_int64),
        ("window", c_int64),
        ("group", c_int32),
        ("softcap", c_float),
    )


class Choose(ctypes.Structure):
    _fields_ = (("choices", c_void_p), ("tokens", c_void_p), ("vocab", c_int64))


class Ceiling(ctypes.Structure):
    _fields_ = (("data", c_void_p), ("out", c_void_p), ("n", c_int64))

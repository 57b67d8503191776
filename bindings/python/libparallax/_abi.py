# SPDX-License-Identifier: Apache-2.0
"""parallax.h as ctypes: each struct and each function, declared once.

Fields and functions stand in the header's order. tests/python/test_abi.py compares every size,
offset, type and function with the header, and names what is missing on either side.
"""

from __future__ import annotations

import ctypes
from ctypes import (POINTER, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t,
                    c_ubyte, c_uint32, c_uint64, c_void_p)
from typing import Any, Dict, List, Tuple, Type

SOVERSION = 0

WORLD_MAX = 1048576
NAME_MAX = 127
VARIABLES_MAX = 4096
REQUESTS_MAX = 1024
SLICES_MAX = 4096
RATES_MAX = 64
STALENESS_MAX = 62
ASYNC = 0xffffffff
UNIQUE_ID_BYTES = 128
WAIT_DEFAULT = -1
ZERO = -1
FIELD_MAX = 31
NO_RANK = NO_VARIABLE = NO_SLICE = 0xffffffff
NO_STEP = 0xffffffffffffffff
NO_ROW = -1

LogFunction = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p, c_char_p)
AllgatherFunction = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_size_t)
RuleFunction = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)  # the second: a RuleBlockStruct


class Sized(ctypes.Structure):
    """A struct of the header: opens with its size; zero is every other field's default."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(size=ctypes.sizeof(self), **fields)


class UniqueIdStruct(ctypes.Structure):
    """128 opaque bytes."""

    _fields_ = [("bytes", c_ubyte * UNIQUE_ID_BYTES)]


class Options(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("rank", c_uint32),
        ("world", c_uint32),
        ("rendezvous", c_char_p),
        ("allgather", AllgatherFunction),
        ("allgather_context", c_void_p),
        ("host", c_char_p),
        ("transport", c_char_p),
        ("net_device", c_char_p),
        ("lease_ms", c_uint32),
        ("timeout_ms", c_uint32),
        ("plan_mode", c_uint32),
        ("plan_after_steps", c_uint32),
        ("deterministic", c_uint32),
        ("compute_threads", c_uint32),
        ("manual_progress", c_uint32),
        ("reserved", c_uint32),
        ("memory_max_bytes", c_uint64),
        ("faults", c_char_p),
        ("unique_id", POINTER(UniqueIdStruct)),
        ("secret_file", c_char_p),
        ("staleness", c_uint32),
        ("replicas", c_uint32),
        ("sparse_as_dense", c_uint32),
        ("no_local_aggregation", c_uint32),
        ("pins", c_char_p),
    ]


class JobInfoStruct(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("rank", c_uint32),
        ("world", c_uint32),
        ("host", c_uint32),
        ("hosts", c_uint32),
        ("local_rank", c_uint32),
        ("local_world", c_uint32),
        ("variables", c_uint32),
        ("committed", c_uint32),
        ("step", c_uint64),
        ("step_committed", c_uint64),
        ("wait_fd", c_int32),
        ("reserved", c_uint32),
        ("late_phase", c_uint32),
        ("late_rank", c_uint32),
        ("late_ms", c_uint32),
        ("late_steps", c_uint32),
        ("job_rank", c_uint32),
        ("epoch", c_uint32),
        ("view", c_uint32),
        ("reserved_2", c_uint32),
        ("bytes_reserved", c_uint64),
        ("bytes_touched", c_uint64),
    ]


class VariableStruct(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("rows", c_uint64),
        ("row_elements", c_uint64),
        ("dtype", c_uint32),
        ("tag", c_uint32),
        ("reduction", c_uint32),
        ("rule", c_uint32),
        ("rows_max", c_uint64),
        ("init_seed", c_uint64),
        ("init", c_uint32),
        ("init_low", c_float),
        ("init_high", c_float),
        ("epsilon", c_float),
        ("initial_accumulator_value", c_float),
        ("nesterov", c_uint32),
        ("beta1", c_double),
        ("beta2", c_double),
        ("momentum", c_double),
        ("refuse_nonfinite", c_uint32),
        ("accumulate", c_uint32),
        ("rates", c_uint32),
        ("placement", c_uint32),
        ("method", c_uint32),
        ("storage_dtype", c_uint32),
        ("rounding", c_uint32),
        ("priority", c_int32),
        ("l1", c_double),
        ("l2", c_double),
        ("l2_shrinkage", c_double),
        ("beta", c_double),
        ("learning_rate_power", c_double),
        ("init_mean", c_float),
        ("init_std", c_float),
        ("initial", c_void_p),
        ("rule_fn", c_void_p),
        ("rule_context", c_void_p),
        ("state_elements", c_uint32 * 2),
        ("memory", c_uint32),
        ("table_memory", c_uint32),
        ("place_values", c_void_p),
        ("place_into", c_void_p),
        ("wire_dtype", c_uint32),
        ("reserved", c_uint32),
        ("exchange_bytes_max", c_uint64),
    ]


class RatesStruct(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("learning_rate", c_float),
        ("weight_decay", c_float),
        ("decoupled", c_uint32),
        ("maximize", c_uint32),
        ("clip_norm", c_float),
        ("reserved", c_uint32),
    ]


class RuleBlockStruct(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("variable", c_uint32),
        ("dtype", c_uint32),
        ("step", c_uint64),
        ("updates", c_uint64),
        ("row_count", c_uint64),
        ("row_elements", c_uint64),
        ("rows", c_void_p),
        ("values", c_void_p),
        ("state", c_void_p * 2),
        ("gradient", c_void_p),
        ("learning_rate", c_double),
        ("rates", POINTER(RatesStruct)),
    ]


class SliceStruct(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("variable", c_uint32),
        ("form", c_uint32),
        ("ids", c_void_p),
        ("row_count", c_uint64),
        ("values", c_void_p),
        ("as_dtype", c_uint32),
        ("more", c_uint32),
        ("ids_i32", c_void_p),
        ("into", c_void_p),
        ("stream", c_void_p),
        ("memory", c_uint32),
        ("device", c_uint32),
    ]


class RowsStruct(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("variable", c_uint32),
        ("reserved", c_uint32),
        ("first_row", c_uint64),
        ("row_count", c_uint64),
        ("values", c_void_p),
        ("state", c_void_p * 2),
        ("updates", POINTER(c_uint64)),
    ]


class BufferOptions(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("numa_node", c_uint32),
        ("huge_pages", c_uint32),
        ("memory", c_uint32),
        ("device", c_uint32),
        ("symmetric", c_uint32),
        ("reserved", c_uint32),
    ]


class StepEndOptions(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("learning_rate", c_float),
        ("clip_norm", c_float),
        ("found_inf", c_uint32),
        ("absent", c_uint32),
        ("rates", POINTER(RatesStruct)),
        ("rates_count", c_uint32),
        ("reserved", c_uint32),
    ]


class CollectiveStruct(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("kind", c_uint32),
        ("dtype", c_uint32),
        ("op", c_uint32),
        ("root", c_uint32),
        ("send", c_void_p),
        ("recv", c_void_p),
        ("send_counts", POINTER(c_uint64)),
        ("recv_counts", POINTER(c_uint64)),
        ("count", c_uint64),
        ("tag", c_uint64),
        ("memory", c_uint32),
        ("device", c_uint32),
        ("stream", c_void_p),
    ]


class ErrorInfoStruct(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("status", c_int32),
        ("rank", c_uint32),
        ("peer", c_uint32),
        ("variable", c_uint32),
        ("slice", c_uint32),
        ("reserved", c_uint32),
        ("step", c_uint64),
        ("step_committed", c_uint64),
        ("row", c_int64),
        ("host", c_char * (NAME_MAX + 1)),
        ("field", c_char * (FIELD_MAX + 1)),
    ]


class StepInfoStruct(Sized):
    _fields_ = [
        ("size", c_size_t),
        ("step", c_uint64),
        ("committed", c_uint32),
        ("contributors", c_uint32),
        ("gradient_norm", c_double),
        ("clip_scale", c_double),
        ("plan_changed", c_uint32),
        ("reserved", c_uint32),
    ]


# The structs by their name in the header.
STRUCTS: Dict[str, Type[ctypes.Structure]] = {
    "parallax_error_info_t": ErrorInfoStruct,
    "parallax_unique_id_t": UniqueIdStruct,
    "parallax_options_t": Options,
    "parallax_job_info_t": JobInfoStruct,
    "parallax_buffer_options_t": BufferOptions,
    "parallax_rule_block_t": RuleBlockStruct,
    "parallax_variable_t": VariableStruct,
    "parallax_slice_t": SliceStruct,
    "parallax_rows_t": RowsStruct,
    "parallax_rates_t": RatesStruct,
    "parallax_step_end_options_t": StepEndOptions,
    "parallax_step_info_t": StepInfoStruct,
    "parallax_collective_t": CollectiveStruct,
}

# The #defines by their name in the header.
CONSTANTS: Dict[str, int] = {
    "PARALLAX_WORLD_MAX": WORLD_MAX,
    "PARALLAX_NAME_MAX": NAME_MAX,
    "PARALLAX_VARIABLES_MAX": VARIABLES_MAX,
    "PARALLAX_REQUESTS_MAX": REQUESTS_MAX,
    "PARALLAX_SLICES_MAX": SLICES_MAX,
    "PARALLAX_RATES_MAX": RATES_MAX,
    "PARALLAX_STALENESS_MAX": STALENESS_MAX,
    "PARALLAX_ASYNC": ASYNC,
    "PARALLAX_FIELD_MAX": FIELD_MAX,
    "PARALLAX_NO_RANK": NO_RANK,
    "PARALLAX_NO_VARIABLE": NO_VARIABLE,
    "PARALLAX_NO_SLICE": NO_SLICE,
    "PARALLAX_NO_STEP": NO_STEP,
    "PARALLAX_NO_ROW": NO_ROW,
    "PARALLAX_UNIQUE_ID_BYTES": UNIQUE_ID_BYTES,
    "PARALLAX_WAIT_DEFAULT": WAIT_DEFAULT,
    "PARALLAX_BYTES": 16,
    "PARALLAX_ZERO": ZERO,
}

_JOB = c_void_p
_REQUEST = c_void_p
_REQUEST_OUT = POINTER(c_void_p)
_SLICE_CALL: List[Any] = [_JOB, c_uint64, POINTER(SliceStruct), c_size_t, _REQUEST_OUT]

# The functions: their result and their arguments.
FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {
    "parallax_status_string": (c_char_p, [c_int]),
    "parallax_last_error": (c_char_p, []),
    "parallax_last_error_info": (c_int, [POINTER(ErrorInfoStruct)]),
    "parallax_version_string": (c_char_p, []),
    "parallax_version": (c_uint32, []),
    "parallax_set_log_callback": (c_int, [LogFunction, c_void_p, c_uint32]),
    "parallax_unique_id": (c_int, [POINTER(UniqueIdStruct)]),
    "parallax_open": (c_int, [POINTER(Options), POINTER(_JOB)]),
    "parallax_commit": (c_int, [_JOB]),
    "parallax_abort": (c_int, [_JOB, c_char_p]),
    "parallax_close": (c_int, [_JOB]),
    "parallax_split": (c_int, [_JOB, POINTER(c_uint32), c_size_t, POINTER(_JOB)]),
    "parallax_query": (c_int, [_JOB, POINTER(JobInfoStruct)]),
    "parallax_set": (c_int, [_JOB, c_char_p, c_char_p]),
    "parallax_progress": (c_int, [_JOB]),
    "parallax_buffer_alloc": (c_int, [_JOB, c_size_t, POINTER(BufferOptions), POINTER(c_void_p)]),
    "parallax_buffer_free": (c_int, [_JOB, c_void_p]),
    "parallax_buffer_register": (c_int, [_JOB, c_void_p, c_size_t]),
    "parallax_buffer_unregister": (c_int, [_JOB, c_void_p]),
    "parallax_register": (c_int, [_JOB, POINTER(VariableStruct), POINTER(c_uint32)]),
    "parallax_step_begin": (c_int, [_JOB, POINTER(c_uint64)]),
    "parallax_pull": (c_int, _SLICE_CALL),
    "parallax_push": (c_int, _SLICE_CALL),
    "parallax_reduce": (c_int, _SLICE_CALL),
    "parallax_step_end": (c_int, [_JOB, c_uint64, POINTER(StepEndOptions), _REQUEST_OUT]),
    "parallax_read": (c_int, [_JOB, POINTER(RowsStruct), _REQUEST_OUT]),
    "parallax_write": (c_int, [_JOB, POINTER(RowsStruct), _REQUEST_OUT]),
    "parallax_barrier": (c_int, [_JOB, _REQUEST_OUT]),
    "parallax_broadcast": (c_int, [_JOB, c_void_p, c_size_t, c_uint32, _REQUEST_OUT]),
    "parallax_collective": (c_int, [_JOB, POINTER(CollectiveStruct), _REQUEST_OUT]),
    "parallax_wait": (c_int, [POINTER(_REQUEST), c_size_t, c_int64]),
    "parallax_stream_wait": (c_int, [POINTER(_REQUEST), c_size_t, c_uint32, c_void_p, c_int64]),
    "parallax_request_test": (c_int, [_REQUEST]),
    "parallax_request_cancel": (c_int, [_REQUEST]),
    "parallax_request_error": (c_char_p, [_REQUEST]),
    "parallax_request_error_info": (c_int, [_REQUEST, POINTER(ErrorInfoStruct)]),
    "parallax_request_step": (c_int, [_REQUEST, POINTER(StepInfoStruct)]),
    "parallax_request_rows": (c_int, [_REQUEST, c_size_t, POINTER(c_void_p), POINTER(c_void_p),
                                      POINTER(c_uint64)]),
    "parallax_request_release": (c_int, [_REQUEST]),
    "parallax_report": (c_int, [_JOB, c_uint32, c_char_p, POINTER(c_size_t)]),
}

"""Wrong fields get the right code and param, and never reach the engine."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.conftest import Served
from tests.server.faults import (
    ABSENT,
    CHAT,
    COMPLETIONS,
    GOOD_CHAT,
    GOOD_COMPLETION,
    USER,
    changed,
    check,
    post,
)

CHAT_ROWS: list[tuple[dict[str, Any], str, str | None]] = [
    ({"model": ABSENT}, "missing_required_parameter", "model"),
    ({"model": ""}, "missing_required_parameter", "model"),
    ({"model": 7}, "invalid_type", "model"),
    ({"messages": ABSENT}, "missing_required_parameter", "messages"),
    ({"messages": []}, "array_below_min_length", "messages"),
    ({"messages": "hi"}, "invalid_type", "messages"),
    ({"messages": [7]}, "invalid_type", "messages.[0]"),
    ({"messages": [{**USER, "role": "bot"}]}, "invalid_value", "messages.[0].role"),
    ({"messages": [USER, {"role": "user"}]}, "missing_required_parameter", "messages.[1].content"),
    ({"messages": [{**USER, "content": 7}]}, "invalid_type", "messages.[0].content"),
    ({"messages": [{**USER, "content": []}]}, "invalid_type", "messages.[0].content"),
    ({"messages": [{**USER, "content": [7]}]}, "invalid_type", "messages.[0].content"),
    (
        {"messages": [{**USER, "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        "unsupported_content",
        "messages.[0].content",
    ),
    (
        {"messages": [{**USER, "content": [{"type": "text", "text": "a", "more": 1}]}]},
        "unsupported_parameter",
        "messages.[0].content",
    ),
    ({"messages": [{**USER, "name": "n"}]}, "unsupported_parameter", "messages.[0].name"),
    ({"messages": [{**USER, "content": "\ud800"}]}, "invalid_encoding", "messages.[0].content"),
    (
        {"messages": [{**USER, "content": [{"type": "text", "text": "a\udfff"}]}]},
        "invalid_encoding",
        "messages.[0].content",
    ),
    ({"max_tokens": 0}, "integer_below_min_value", "max_tokens"),
    ({"max_tokens": -1}, "integer_below_min_value", "max_tokens"),
    ({"max_tokens": 1.5}, "invalid_type", "max_tokens"),
    ({"max_tokens": "5"}, "invalid_type", "max_tokens"),
    ({"max_tokens": 10**18}, "integer_above_max_value", "max_tokens"),
    ({"max_completion_tokens": 0}, "integer_below_min_value", "max_completion_tokens"),
    ({"max_tokens": 1, "max_completion_tokens": 1}, "conflicting_parameters", "max_tokens"),
    ({"temperature": -0.1}, "decimal_below_min_value", "temperature"),
    ({"temperature": 2.1}, "decimal_above_max_value", "temperature"),
    ({"temperature": "1"}, "invalid_type", "temperature"),
    ({"temperature": True}, "invalid_type", "temperature"),
    ({"top_p": 0}, "decimal_below_min_value", "top_p"),
    ({"top_p": 1.1}, "decimal_above_max_value", "top_p"),
    ({"min_p": 1.1}, "decimal_above_max_value", "min_p"),
    ({"top_k": -2}, "integer_below_min_value", "top_k"),
    ({"n": 0}, "integer_below_min_value", "n"),
    ({"n": 129}, "integer_above_max_value", "n"),
    ({"logprobs": True, "top_logprobs": 21}, "integer_above_max_value", "top_logprobs"),
    ({"top_logprobs": 1}, "conflicting_parameters", "top_logprobs"),
    ({"logprobs": 2}, "invalid_type", "logprobs"),
    ({"seed": 2**63}, "integer_above_max_value", "seed"),
    ({"seed": 0.5}, "invalid_type", "seed"),
    ({"stream": 1}, "invalid_type", "stream"),
    ({"stream_options": {"include_usage": True}}, "conflicting_parameters", "stream_options"),
    (
        {"stream": True, "stream_options": {"x": 1}},
        "unknown_parameter",
        "stream_options.x",
    ),
    ({"stop": [""]}, "string_below_min_length", "stop.[0]"),
    ({"stop": ["x"] * 17}, "array_above_max_length", "stop"),
    ({"stop": "\ud800"}, "invalid_encoding", "stop.[0]"),
    ({"stop_token_ids": [-1]}, "integer_below_min_value", "stop_token_ids.[0]"),
    ({"presence_penalty": 2.1}, "decimal_above_max_value", "presence_penalty"),
    ({"presence_penalty": "1"}, "invalid_type", "presence_penalty"),
    ({"frequency_penalty": -2.1}, "decimal_below_min_value", "frequency_penalty"),
    ({"repetition_penalty": 0}, "decimal_below_min_value", "repetition_penalty"),
    ({"repetition_penalty": -1}, "decimal_below_min_value", "repetition_penalty"),
    ({"repetition_penalty": 101}, "decimal_above_max_value", "repetition_penalty"),
    ({"logit_bias": 5}, "invalid_type", "logit_bias"),
    ({"logit_bias": [[1, 2]]}, "invalid_type", "logit_bias"),
    ({"logit_bias": {str(i): 1 for i in range(301)}}, "invalid_value", "logit_bias"),
    ({"logit_bias": {"abc": 1}}, "invalid_value", "logit_bias"),
    ({"logit_bias": {"1.5": 1}}, "invalid_value", "logit_bias"),
    ({"logit_bias": {"-1": 1}}, "invalid_value", "logit_bias"),
    ({"logit_bias": {"٣": 1}}, "invalid_value", "logit_bias"),
    ({"logit_bias": {"9" * 5000: 1}}, "invalid_value", "logit_bias"),
    ({"logit_bias": {"1": 100.5}}, "invalid_value", "logit_bias"),
    ({"logit_bias": {"1": "5"}}, "invalid_type", "logit_bias"),
    ({"logit_bias": {"1": None}}, "invalid_type", "logit_bias"),
    ({"logit_bias": {"1": True}}, "invalid_type", "logit_bias"),
    ({"allowed_token_ids": []}, "array_below_min_length", "allowed_token_ids"),
    ({"allowed_token_ids": ["a"]}, "invalid_type", "allowed_token_ids.[0]"),
    ({"bad_words": "word"}, "invalid_type", "bad_words"),
    ({"bad_words": [""]}, "string_below_min_length", "bad_words.[0]"),
    ({"bad_words": ["x"] * 257}, "array_above_max_length", "bad_words"),
    ({"min_tokens": -1}, "integer_below_min_value", "min_tokens"),
    ({"include_stop_str_in_output": 1}, "invalid_type", "include_stop_str_in_output"),
    ({"priority": 2**40}, "integer_above_max_value", "priority"),
    ({"cache_salt": ""}, "string_below_min_length", "cache_salt"),
    ({"beam_width": 65}, "integer_above_max_value", "beam_width"),
    ({"beam_width": 2, "use_beam_search": False}, "conflicting_parameters", "beam_width"),
    ({"length_penalty": 11.0}, "decimal_above_max_value", "length_penalty"),
    ({"truncate_prompt_tokens": -2}, "integer_below_min_value", "truncate_prompt_tokens"),
    ({"truncate_prompt_tokens": True}, "invalid_type", "truncate_prompt_tokens"),
    ({"skip_special_tokens": 0}, "invalid_type", "skip_special_tokens"),
    ({"return_token_ids": 1}, "invalid_type", "return_token_ids"),
    (
        {"continue_final_message": True, "add_generation_prompt": True},
        "conflicting_parameters",
        "continue_final_message",
    ),
    ({"add_generation_prompt": "no"}, "invalid_type", "add_generation_prompt"),
    ({"chat_template_kwargs": []}, "invalid_type", "chat_template_kwargs"),
    ({"chat_template_kwargs": {"thinking": 1}}, "invalid_value", "chat_template_kwargs"),
    (
        {"chat_template_kwargs": {"date_string": "<|im_end|>"}},
        "invalid_value",
        "chat_template_kwargs",
    ),
    (
        {"chat_template_kwargs": {"add_generation_prompt": False}},
        "invalid_value",
        "chat_template_kwargs",
    ),
    (
        {"stream": True, "stream_options": {"continuous_usage_stats": True}},
        "conflicting_parameters",
        "stream_options.continuous_usage_stats",
    ),
    ({"service_tier": "priority"}, "invalid_value", "service_tier"),
    ({"metadata": "a"}, "invalid_type", "metadata"),
    ({"temprature": 1}, "unknown_parameter", "temprature"),
]
UNSUPPORTED: list[tuple[str, Any]] = [
    ("tool_choice", "required"),
    ("functions", [{"name": "f"}]),
    ("function_call", "auto"),
    ("response_format", {"type": "json_object"}),
    ("response_format", {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}),
    ("audio", {"voice": "a"}),
    ("modalities", ["text", "audio"]),
    ("prediction", {"type": "content", "content": "x"}),
    ("reasoning_effort", "low"),
    ("store", True),
    ("echo", True),
    ("chat_template", "{{ messages }}"),
    ("chat_template_kwargs", {"tokenize": False}),
    ("structured_outputs", {"regex": "a"}),
    ("add_special_tokens", True),
    ("spaces_between_special_tokens", False),
]
COMPLETION_ROWS: list[tuple[dict[str, Any], str, str | None]] = [
    ({"prompt": ABSENT}, "missing_required_parameter", "prompt"),
    ({"prompt": ""}, "empty_prompt", "prompt"),
    ({"prompt": []}, "empty_prompt", "prompt"),
    ({"prompt": [[]]}, "empty_prompt", "prompt"),
    ({"prompt": ["a", ""]}, "empty_prompt", "prompt"),
    ({"prompt": 5}, "invalid_type", "prompt"),
    ({"prompt": [True]}, "invalid_value", "prompt"),
    ({"prompt": [1, -1]}, "invalid_value", "prompt"),
    ({"prompt": [1, 2**31]}, "invalid_value", "prompt"),
    ({"prompt": [1, "a"]}, "invalid_value", "prompt"),
    ({"prompt": ["a", [1]]}, "invalid_type", "prompt"),
    ({"prompt": ["a"] * 9}, "too_many_prompts", "prompt"),
    ({"prompt": "\ud800"}, "invalid_encoding", "prompt"),
    ({"logprobs": 21}, "integer_above_max_value", "logprobs"),
    ({"store": True}, "unsupported_parameter", "store"),
    ({"service_tier": "flex"}, "invalid_value", "service_tier"),
    ({"user": 5}, "invalid_type", "user"),
    ({"metadata": {"a": 1}}, "invalid_type", "metadata.a"),
    ({"suffix": "end"}, "unsupported_parameter", "suffix"),
    ({"best_of": 2}, "unsupported_parameter", "best_of"),
    ({"best_of": 129}, "integer_above_max_value", "best_of"),
    ({"n": 2, "best_of": 1}, "unsupported_parameter", "best_of"),
    ({"add_special_tokens": 1}, "invalid_type", "add_special_tokens"),
    ({"echo": 1}, "invalid_type", "echo"),
    ({"prompt_logprobs": 21}, "integer_above_max_value", "prompt_logprobs"),
    ({"prompt_logprobs": -1}, "integer_below_min_value", "prompt_logprobs"),
    ({"prompt_logprobs": 0, "stream": True}, "conflicting_parameters", "prompt_logprobs"),
    ({"messages": []}, "unknown_parameter", "messages"),
]


@pytest.mark.parametrize(("fields", "code", "param"), CHAT_ROWS)
def test_chat(served: Served, fields: dict[str, Any], code: str, param: str | None) -> None:
    check(post(served, CHAT, changed(GOOD_CHAT, fields)), 400, code, param)
    assert served.engine.requests == []


@pytest.mark.parametrize(("name", "value"), UNSUPPORTED)
def test_known_but_not_served(served: Served, name: str, value: Any) -> None:
    answer = post(served, CHAT, changed(GOOD_CHAT, {name: value}))
    check(answer, 400, "unsupported_parameter", name)
    assert name in answer.json()["error"]["message"]
    # The same field asking for nothing is accepted.
    assert post(served, CHAT, changed(GOOD_CHAT, {name: None})).status_code == 200


@pytest.mark.parametrize(("fields", "code", "param"), COMPLETION_ROWS)
def test_completions(served: Served, fields: dict[str, Any], code: str, param: str | None) -> None:
    check(post(served, COMPLETIONS, changed(GOOD_COMPLETION, fields)), 400, code, param)
    assert served.engine.requests == []

"""llama.cpp's logits of a text: `... llama_reading MODEL THREADS < tokens.json > logits`.

Runs in that engine's environment, where nothing else of this project is installed. Writes float32
[tokens, vocab] to standard output, row after row. K and V are float16, as llama.cpp's default is.
"""

from __future__ import annotations

import ctypes
import json
import sys

import llama_cpp as api

STEP_TOKENS = 128


class LlamaReader:
    def __init__(self, model: str, n_tokens: int, *, threads: int) -> None:
        self._quiet = api.llama_log_callback(lambda *_: None)  # must outlive the library's use
        api.llama_log_set(self._quiet, None)
        api.llama_backend_init()
        parameters = api.llama_model_default_params()
        self._model = api.llama_model_load_from_file(model.encode(), parameters)
        options = api.llama_context_default_params()
        options.n_ctx = n_tokens
        options.n_batch = options.n_ubatch = STEP_TOKENS
        options.n_threads = options.n_threads_batch = threads
        self._context = api.llama_init_from_model(self._model, options)
        self._batch = api.llama_batch_init(STEP_TOKENS, 0, 1)
        self._n_vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self._model))

    def read(self, tokens: list[int], start: int) -> bytes:
        """Logits of `tokens`, at most STEP_TOKENS, the first one at position `start`."""
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i] = token
            batch.pos[i] = start + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = True
        status = api.llama_decode(self._context, batch)
        assert status == 0, status
        n_bytes = len(tokens) * self._n_vocab * ctypes.sizeof(ctypes.c_float)
        return ctypes.string_at(api.llama_get_logits(self._context), n_bytes)


def main() -> None:
    model, threads = sys.argv[1:]
    tokens = json.load(sys.stdin)
    reader = LlamaReader(model, len(tokens), threads=int(threads))
    for start in range(0, len(tokens), STEP_TOKENS):
        sys.stdout.buffer.write(reader.read(tokens[start : start + STEP_TOKENS], start))


if __name__ == "__main__":
    main()

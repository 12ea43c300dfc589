"""llama.cpp through its C API, which batches sequences; its Python class does not.

Keeps the tokens of sequence 0 from one load to the next and copies what a new load shares with
them into its sequences: the prefix cache that this API offers.
"""

from __future__ import annotations

import itertools
import time

import llama_cpp as api
import numpy as np

from benchmarks.peers.timing import Timing

STEP_TOKENS = 2048
MAX_SEQUENCES = 32
CONTEXT_TOKENS = MAX_SEQUENCES * 1280


class LlamaEngine:
    def __init__(self, model: str, *, threads: int) -> None:
        self._quiet = api.llama_log_callback(lambda *_: None)  # must outlive the library's use
        api.llama_log_set(self._quiet, None)
        api.llama_backend_init()
        self._model = api.llama_model_load_from_file(
            model.encode(), api.llama_model_default_params()
        )
        options = api.llama_context_default_params()
        options.n_ctx = CONTEXT_TOKENS
        options.n_batch = STEP_TOKENS
        options.n_ubatch = 512
        options.n_seq_max = MAX_SEQUENCES
        options.n_threads = options.n_threads_batch = threads
        options.kv_unified = True  # sequences can share cells, and one alone is not cut short
        self._context = api.llama_init_from_model(self._model, options)
        self._memory = api.llama_get_memory(self._context)
        self._batch = api.llama_batch_init(STEP_TOKENS, 0, 1)
        self._n_vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self._model))
        self._held: list[int] = []

    def version(self) -> str:
        return str(api.__version__)

    def generate(self, prompts: list[list[int]], out_tokens: int) -> Timing:
        start = time.perf_counter()
        n_common = self._keep_common(prompts)
        first: list[float] = []
        last: list[int] = []
        for group in self._groups(prompts, n_common):
            self._decode([
                (token, at, sequence, at == len(prompts[sequence]) - 1)
                for sequence in group
                for at, token in enumerate(prompts[sequence])
                if at >= n_common
            ])  # fmt: skip
            ends = np.cumsum([len(prompts[sequence]) - n_common for sequence in group]) - 1
            last += [self._likeliest(int(end)) for end in ends]
            first += [time.perf_counter() - start] * len(group)
        for step in range(out_tokens - 1):
            self._decode([
                (token, len(prompt) + step, sequence, True)
                for sequence, (token, prompt) in enumerate(zip(last, prompts, strict=True))
            ])  # fmt: skip
            last = [self._likeliest(row) for row in range(len(last))]
        self._held = prompts[0]
        # No sequence decodes before all have begun, so they count as having begun together.
        seconds = time.perf_counter() - start
        return Timing(seconds=seconds, first_s=(first[-1],) * len(first))

    def _keep_common(self, prompts: list[list[int]]) -> int:
        """How many tokens of sequence 0 all prompts begin with, now in the sequence of each."""
        columns = zip(self._held, *(prompt[:-1] for prompt in prompts), strict=False)
        n = sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, columns))
        for sequence in range(MAX_SEQUENCES):
            api.llama_memory_seq_rm(self._memory, sequence, n if sequence == 0 else 0, -1)
        for sequence in range(1, len(prompts) if n else 0):
            api.llama_memory_seq_cp(self._memory, 0, sequence, 0, n)
        return n

    def _groups(self, prompts: list[list[int]], n_common: int) -> list[list[int]]:
        """Sequences in order, as many together as one step takes."""
        groups: list[list[int]] = [[]]
        room = STEP_TOKENS
        for sequence, prompt in enumerate(prompts):
            n = len(prompt) - n_common
            if n > room:
                groups.append([])
                room = STEP_TOKENS
            groups[-1].append(sequence)
            room -= n
        return groups

    def _decode(self, rows: list[tuple[int, int, int, bool]]) -> None:
        """One step over rows of token, position, sequence and whether its logits are wanted."""
        batch = self._batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wanted) in enumerate(rows):
            batch.token[i] = token
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = wanted
        status = api.llama_decode(self._context, batch)
        assert status == 0, status

    def _likeliest(self, row: int) -> int:
        logits = api.llama_get_logits_ith(self._context, row)
        return int(np.ctypeslib.as_array(logits, shape=(self._n_vocab,)).argmax())


def load(model: str, *, threads: int) -> LlamaEngine:
    return LlamaEngine(model, threads=threads)

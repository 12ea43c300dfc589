"""Octavo beside llama.cpp, vLLM on CPU and OpenVINO GenAI: the same weights, prompts and threads.

`python -m benchmarks.peers.setup` installs each peer into an environment of its own, then
`python -m benchmarks.peers.run` lets the engines take turns, one process each per round. All begin
with the same 4-bit file: Octavo and llama.cpp read it (llama.cpp also requantised to Q4_0 and
Q8_0), the others get its values as 16-bit floats, OpenVINO also as int8. Prompts are random token
ids, decoding is greedy and ignores EOS, every engine has its prefix cache on and every prompt is
new except in the shared-prefix case. The figures are medians over all rounds.

- Prefill: prompt tokens over the time to the first token.
- Decode: tokens after the moment at which every request has its first, over the time they took.
- Shared prefix: from the first request's start to the last one's end, after one request that has
  put the common prefix into the cache.
- First token: from process start, the files being in the page cache and compile caches warm.
- Peak memory: the process's resident set, which counts a mapped weight file and a KV cache as far
  as it was touched. vLLM and OpenVINO are given 2 GiB for theirs.
"""

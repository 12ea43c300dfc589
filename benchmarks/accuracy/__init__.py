"""How far the kernels' logits are from those of plain torch in float32 on the same weights.

A text of the public domain (`tests/data`) is read once, every position's logits are compared:
KL is the mean over positions of sum p·ln(p/q), p being the softmax of torch's logits on the
dequantised file and q that of the format; p99 its 99th percentile; top-1 how often both find the
same token likeliest. The standard error of a difference between two of them is about 0.00005 at
4,096 tokens. The bfloat16 tensors are the Q4_1 file's values, which rounding to int4 finds again,
so int4 loses less there than it would of other weights. llama.cpp reads the same token ids from the
same file, in one context.
"""

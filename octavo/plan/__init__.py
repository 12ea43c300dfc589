"""What a model's KV cache costs: bytes, requests, time and money. See `docs/guide.md`.

Takes sizes from configs and cards, hardware and money from `octavo.pricing`. Loads no weights and
knows nothing of the engine.
"""

"""What tokens a coding agent's logs show, what they cost, and why the cache missed.

Reads logs and prices; knows nothing of the engine.
"""

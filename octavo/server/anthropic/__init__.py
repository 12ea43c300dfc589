"""Anthropic's API: requests to neutral ones, chunks to messages and events."""

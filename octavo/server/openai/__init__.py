"""OpenAI's API: requests to neutral ones, chunks to answers and events."""

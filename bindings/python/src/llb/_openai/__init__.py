"""OpenAI's routes for a model in this process: `transport`, and clients that use it."""

"""The classes in the shape of the openai package."""

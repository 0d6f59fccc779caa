//! GGUF file -> `ModelHeader`.

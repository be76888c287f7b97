"""Model files as named tensors over a memory map: GGUF, safetensors, and quantised blocks."""

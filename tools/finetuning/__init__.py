"""Decoders for a shared, frozen prefill module: fine-tuning, a reference for what they generate, and their accuracy."""

"""Decoders for a shared, frozen prefill module: fine-tuning, reference generation and accuracy."""

"""Studies of the accuracy that sharing a base's KV costs, for each method of fine-tuning."""

"""The study: a small base, three tasks, and what sharing its KV costs each way of fine-tuning."""

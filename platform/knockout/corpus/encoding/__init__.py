"""Documents to tokens, and back."""

"""Names of the properties that an identity can ask about.

The invariant: a closed list; each is one function in `model/properties/`, and a name says what would hold.
"""

from __future__ import annotations

from typing import Literal

Property = Literal[
    # Positions
    "sinusoidal_shift_is_linear",
    "sinusoidal_wavelength_falls",
    "sinusoidal_is_bounded",
    "rotary_scores_follow_the_offset",
    "rotary_scores_fall_with_distance",
    "order_only_permutes_outputs",
    "order_leaves_scores_unchanged",
    "order_leaves_the_last_output_unchanged",
    # Attention
    "rows_are_distributions",
    "keys_come_from_the_key_map",
    "keys_come_from_the_value_map",
    "scaling_keeps_the_gradient",
    "heads_equal_one_wide_head",
    "heads_differ_by_the_output_map",
    "later_tokens_do_not_matter",
    "every_head_scores_all_pairs",
    "flash_equals_explicit",
    # The network as a whole
    "stream_sums_the_increments",
    "stream_is_linear",
    "attention_is_linear",
    "attention_is_linear_in_its_values",
    "norm_is_linear",
    "cached_equals_recomputed",
    "past_keys_and_values_stay",
    "past_queries_are_not_needed",
    "neighbours_read_layer_inputs",
    # Norms and residuals
    "layer_norm_standardises",
    "layer_norm_standardises_the_table",
    "rms_norm_divides_by_the_root_mean_square",
    "rms_norm_is_layer_norm_without_centring",
    "rms_norm_divides_by_the_deviation",
    "deepnorm_scales_the_branch",
    "deepnorm_scales_the_branch_then_norms",
    "deepnorm_scales_the_stream_then_norms",
    # Feed-forward parts
    "two_maps_are_one",
    "feed_forward_is_local",
    "swiglu_gates_with_either_factor",
    "swiglu_gates_with_the_second_map",
    "memory_of_columns_and_rows",
    "memory_of_columns_and_rows_from_the_left",
    # Learning
    "argmax_passes_a_gradient",
    "softmax_passes_a_gradient",
    "logit_gradient_is_the_error",
    "logit_gradient_of_the_mean_is_the_error",
    "tied_head_is_the_table",
    "tied_gradient_sums_both_uses",
]
"""What can be checked on real tensors in float64; each is a function in `model/properties/`."""

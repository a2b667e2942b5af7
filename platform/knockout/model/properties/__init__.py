"""Properties of the mathematics, checked on real tensors in float64: `check` is the way in, one subject a file.

The invariant: every name of `declare.properties.Property` has exactly one function here, and a check sees a small
network, so all of them together take seconds.
"""

from __future__ import annotations

from collections.abc import Callable

from knockout.declare.architecture import Architecture
from knockout.declare.properties import Property
from knockout.model.properties import attending, feeding, learning, norms, positions, whole
from knockout.model.properties.finding import Finding

__all__ = ["CHECKS", "Finding", "check"]

Check = Callable[[Architecture], Finding]

CHECKS: dict[Property, Check] = {
    "sinusoidal_shift_is_linear": positions.sinusoidal_shift_is_linear,
    "sinusoidal_wavelength_falls": positions.sinusoidal_wavelength_falls,
    "sinusoidal_is_bounded": positions.sinusoidal_is_bounded,
    "rotary_scores_follow_the_offset": positions.rotary_scores_follow_the_offset,
    "rotary_scores_fall_with_distance": positions.rotary_scores_fall_with_distance,
    "order_only_permutes_outputs": positions.order_only_permutes_outputs,
    "order_leaves_scores_unchanged": positions.order_leaves_scores_unchanged,
    "order_leaves_the_last_output_unchanged": positions.order_leaves_the_last_output_unchanged,
    "rows_are_distributions": attending.rows_are_distributions,
    "keys_come_from_the_key_map": attending.keys_come_from_the_key_map,
    "keys_come_from_the_value_map": attending.keys_come_from_the_value_map,
    "scaling_keeps_the_gradient": attending.scaling_keeps_the_gradient,
    "heads_equal_one_wide_head": attending.heads_equal_one_wide_head,
    "heads_differ_by_the_output_map": attending.heads_differ_by_the_output_map,
    "later_tokens_do_not_matter": attending.later_tokens_do_not_matter,
    "every_head_scores_all_pairs": attending.every_head_scores_all_pairs,
    "flash_equals_explicit": attending.flash_equals_explicit,
    "stream_sums_the_increments": whole.stream_sums_the_increments,
    "stream_is_linear": whole.stream_is_linear,
    "attention_is_linear": whole.attention_is_linear,
    "attention_is_linear_in_its_values": whole.attention_is_linear_in_its_values,
    "norm_is_linear": whole.norm_is_linear,
    "cached_equals_recomputed": whole.cached_equals_recomputed,
    "past_keys_and_values_stay": whole.past_keys_and_values_stay,
    "past_queries_are_not_needed": whole.past_queries_are_not_needed,
    "neighbours_read_layer_inputs": whole.neighbours_read_layer_inputs,
    "layer_norm_standardises": norms.layer_norm_standardises,
    "layer_norm_standardises_the_table": norms.layer_norm_standardises_the_table,
    "rms_norm_divides_by_the_root_mean_square": norms.rms_norm_divides_by_the_root_mean_square,
    "rms_norm_is_layer_norm_without_centring": norms.rms_norm_is_layer_norm_without_centring,
    "rms_norm_divides_by_the_deviation": norms.rms_norm_divides_by_the_deviation,
    "deepnorm_scales_the_branch": norms.deepnorm_scales_the_branch,
    "deepnorm_scales_the_branch_then_norms": norms.deepnorm_scales_the_branch_then_norms,
    "deepnorm_scales_the_stream_then_norms": norms.deepnorm_scales_the_stream_then_norms,
    "two_maps_are_one": feeding.two_maps_are_one,
    "feed_forward_is_local": feeding.feed_forward_is_local,
    "swiglu_gates_with_either_factor": feeding.swiglu_gates_with_either_factor,
    "swiglu_gates_with_the_second_map": feeding.swiglu_gates_with_the_second_map,
    "memory_of_columns_and_rows": feeding.memory_of_columns_and_rows,
    "memory_of_columns_and_rows_from_the_left": feeding.memory_of_columns_and_rows_from_the_left,
    "argmax_passes_a_gradient": learning.argmax_passes_a_gradient,
    "softmax_passes_a_gradient": learning.softmax_passes_a_gradient,
    "logit_gradient_is_the_error": learning.logit_gradient_is_the_error,
    "logit_gradient_of_the_mean_is_the_error": learning.logit_gradient_of_the_mean_is_the_error,
    "tied_head_is_the_table": learning.tied_head_is_the_table,
    "tied_gradient_sums_both_uses": learning.tied_gradient_sums_both_uses,
}


def check(name: Property, *, architecture: Architecture) -> Finding:
    """What is found when a property is checked on a network of this architecture."""
    return CHECKS[name](architecture)

"""Closed forms at numbers worked by hand: small figures whose answer is seen without the formula, or published ones."""

import math
import re
from pathlib import Path

import pytest

from tokenmill import data
from tokenmill.derive import derive, library

HOUR, DAY, YEAR = 3600.0, 86400.0, 365 * 86400.0
ONE = {"eta_F": 1.0, "eta_W": 1.0}
# 8 devices of 1 TB/s and 100 TFLOP/s; 80 GB of weights; 1 MB a token cached, 1000 tokens a sequence: 1 GB a sequence
SERVE = ONE | {
    "replica_devices": 8, "W": 1e12, "F": 1e14, "weight_bytes": 80e9, "kv_token_bytes": 1e6, "context_tokens": 1000,
    "N_active": 40e9, "memory_share": 1.0, "M": 20e9, "activation_bytes": 10e9, "reserve_bytes": 6e9,
}  # fmt: skip
LLAMA_8B = {"n_layer": 32, "d_model": 4096, "d_ff": 14336, "n_vocab": 128256, "n_head": 32, "n_kv": 8, "d_head": 128}
CHINCHILLA = {
    "exponent_parameters": 0.34, "exponent_data": 0.28, "factor_parameters": 406.4, "factor_data": 410.7, "loss_floor": 1.69,
}  # fmt: skip
ADAPTED = {"base_parameters": 8e9, "adapter_parameters": 40e6, "tuning_other_bytes": 2e9, "adapter_state_bytes": 16}
OWNED = {"discount_rate": 0.1, "life_years": 1, "residual_share": 0.0, "operations_share": 0.0, "purchase": 1000.0}
SUITE = {
    "suite_prompts": 1000, "suite_passes": 2, "suite_input_tokens": 500, "suite_output_tokens": 100,
    "replica_prefill_rate": 5000, "replica_decode_rate": 1000,
}  # fmt: skip
CHIP = {"chip_power": 1000.0, "pue": 1.2, "chip_tokens_per_second": 600.0}
DEVICE = ONE | {"W": 100e9, "device_model_bytes": 4e9, "device_cache_bytes": 1e9}

ROWS = [
    # architecture: Llama 3.1 8B by its published shape (8.03e9 parameters, of which 0.525e9 in each of embedding and head)
    ("architecture.multiplied", LLAMA_8B, 32 * (41.94304e6 + 176.160768e6) + 525.336576e6, 1e-9),
    ("architecture.embedding_share", LLAMA_8B | {"untied": 1, "mlp_matrices": 3}, 2 * 0.525336576 / 8.03, 1e-3),
    ("architecture.forward_flops", LLAMA_8B | {"n_sequence": 8192}, 2 * 7.504658e9 + 2 * 32 * 4096 * 8192, 1e-6),
    ("architecture.training_flops", LLAMA_8B | {"n_sequence": 8192}, 3 * (2 * 7.504658e9 + 2 * 32 * 4096 * 8192), 1e-6),
    ("architecture.attention_flops", LLAMA_8B | {"n_sequence": 1000}, 4 * 32 * 4096 * 1000, 1e-12),
    ("architecture.kv_projection_flops", LLAMA_8B, 2 * 32 * 2 * 4096 * 1024, 1e-12),
    ("architecture.kv_bytes_per_rank", LLAMA_8B | {"b_cache": 2, "n_tensor": 16}, 2 * 32 * 1 * 128 * 2, 1e-12),
    ("architecture.grouping_cut", LLAMA_8B, 0.75, 1e-12),
    # Gemma-like: 6 layers of which 5 keep 1024 of 8192 tokens
    ("architecture.kv_bytes_windowed", {"n_layer": 6, "n_kv": 1, "d_head": 64, "b_cache": 2, "n_sequence": 8192,
                                        "windowed_layers": 5, "window_keys": 1024}, 256 * (8192 + 5 * 1024), 1e-12),
    ("architecture.mean_keys_window", {"n_window": 2, "n_sequence": 4}, (1 + 2 + 2 + 2) / 4, 1e-12),
    # Mixtral 8x7B: 8 experts of 3 x 4096 x 14336 in 32 layers
    ("architecture.expert_parameters", {"n_layer": 32, "d_model": 4096, "experts": 8, "expert_width": 14336,
                                        "mlp_matrices": 3}, 45.097156608e9, 1e-9),
    ("architecture.expert_saving", {"experts": 8, "experts_active": 2}, 0.25, 1e-12),
    # edge: 20 tokens a second at 10 W from 180 kJ
    ("edge.decode_rate", DEVICE, 20, 1e-12),
    ("edge.battery_tokens", DEVICE | {"battery_energy": 180e3, "device_draw": 10}, 20 * 18000, 1e-12),
    ("edge.battery_life", {"battery_energy": 180e3, "device_draw": 10, "idle_draw": 1, "busy_share": 0.5}, 180e3 / 5.5, 1e-12),
    ("edge.cost_per_million", DEVICE | {"device_price": 730, "life_years": 2, "device_tokens_a_day": 1e5, "device_draw": 10,
                                        "energy_price": 0.36 / 3.6e6}, 730 / 73e6 * 1e6 + 0.5 * 1e-7 * 1e6, 1e-12),
    # energy: 1.2 kW at the meter for 600 tokens a second are 2 J a token
    ("energy.per_token", CHIP, 2.0, 1e-12),
    ("energy.tokens_per_joule", CHIP, 0.5, 1e-12),
    ("energy.cost_per_million", CHIP | {"energy_price": 0.09 / 3.6e6}, 2e6 / 3.6e6 * 0.09, 1e-12),
    ("energy.carbon_per_token", CHIP | {"grid_intensity": 0.36 / 3.6e6, "embodied_carbon": 600.0, "life_years": 4, "busy_share": 0.5},
     2e-7 + 600 / (4 * YEAR * 0.5 * 600), 1e-12),
    ("energy.of_work", {"work_a_token": 1e12, "energy_per_flop": 0.5e-12, "bytes_a_token": 1e9, "energy_per_byte": 40e-12,
                        "idle_draw": 100, "chip_tokens_per_second": 1000}, 0.5 + 0.04 + 0.1, 1e-12),
    ("energy.balance_intensity", {"energy_per_flop": 0.5e-12, "energy_per_byte": 40e-12}, 80, 1e-12),
    ("energy.capped_speed", {"power_cap": 225, "idle_draw": 100, "limit_draw": 1100, "power_exponent": 3}, 0.5, 1e-12),
    ("energy.chips_of_site", {"site_power": 1e6, "chip_power": 1500, "pue": 1.25}, 533, 0),
    # evaluation: an accuracy of one half to three points takes about 1067 prompts (textbook)
    ("evaluation.prompts_needed", {"deviations": 1.96, "accuracy": 0.5, "half_width": 0.03}, 1068, 0),
    ("evaluation.standard_error", {"accuracy": 0.5, "suite_prompts": 100}, 0.05, 1e-12),
    ("evaluation.effective_prompts", {"suite_prompts": 1000, "cluster_prompts": 5, "cluster_correlation": 0.25}, 500, 1e-12),
    ("evaluation.pass_at_k", {"accuracy": 0.5, "suite_passes": 3}, 0.875, 1e-12),
    ("evaluation.answers_for_success", {"accuracy": 0.5, "wanted_success": 0.9}, 4, 0),
    ("evaluation.suite_time", SUITE | {"suite_replicas": 4}, 2000 * 0.2 / 4, 1e-12),
    ("evaluation.suite_cost", SUITE | {"replica_devices": 2, "rent_price": 3 / HOUR}, 400 / HOUR * 2 * 3, 1e-12),
    # fine-tuning
    ("finetuning.adapter_parameters", {"adapted_matrices": 64, "adapter_rank": 16, "matrix_inputs": 4096, "matrix_outputs": 4096}, 8388608, 1e-12),
    ("finetuning.adapter_share", {"adapter_rank": 16, "matrix_inputs": 4096, "matrix_outputs": 4096}, 1 / 128, 1e-12),
    ("finetuning.full_memory", ADAPTED | {"state_bytes": 16}, 130e9, 1e-12),
    ("finetuning.lora_memory", ADAPTED | {"base_width": 2}, 16e9 + 0.64e9 + 2e9, 1e-12),
    ("finetuning.qlora_memory", ADAPTED | {"base_width": 0.5, "unquantised_parameters": 1e9}, 3.5e9 + 2e9 + 0.64e9 + 2e9, 1e-12),
    ("finetuning.largest_base", ADAPTED | {"M": 24e9, "base_width": 0.5}, 42.72e9, 1e-12),
    ("finetuning.lora_flops", ADAPTED | {"D": 1e6, "forward_again": 0}, 1e6 * (4 * 8e9 + 6 * 40e6), 1e-12),
    ("finetuning.lora_work_share", ADAPTED | {"forward_again": 0}, (32 + 0.24) / 48, 1e-12),
    ("finetuning.preference_memory", ADAPTED | {"state_bytes": 16, "reference_copies": 1, "frozen_width": 2}, 146e9, 1e-12),
    ("finetuning.preference_flops", ADAPTED | {"pair_tokens": 1000, "preference_pairs": 10, "forward_again": 0, "reference_copies": 1},
     20 * 1000 * 8e9 * 8, 1e-12),
    # memory; QLoRA's paper: 0.127 bits a parameter for scales of scales (64 values, 8 bits, 256 scales, 32 bits)
    ("memory.double_quantised_width", {"value_bits": 4, "scale_bits": 8, "scale_group": 64, "outer_scale_bits": 32, "outer_group": 256},
     4.127 / 8, 1e-4),
    ("memory.largest_model", {"M": 80e9, "holding_devices": 2, "usable_share": 0.9, "bytes_other": 24e9, "weight_width": 2}, 60e9, 1e-12),
    ("memory.resident_share", ONE | {"W": 3e12, "W_host": 1e12}, 0.75, 1e-12),
    ("memory.streamed_step", ONE | {"W": 3e12, "W_host": 1e12, "resident_share": 0.75, "weight_bytes": 4e12}, 1.0, 1e-12),
    # money; one year at 10%: 1100 for 1000
    ("money.capital_recovery_factor", {"discount_rate": 0.1, "life_years": 1}, 1.1, 1e-12),
    ("money.present_value_factor", {"discount_rate": 0.1, "years_held": 2}, 1 / 1.1 + 1 / 1.21, 1e-12),
    ("money.owned_price", OWNED | {"chip_power": 1000, "pue": 1.0, "energy_price": 1e-7}, 1100 / YEAR + 1e-4, 1e-12),
    ("money.break_even_utilisation", OWNED | {"chip_power": 1000, "pue": 1.0, "energy_price": 0.0 + 1e-12, "rent_price": 2200 / YEAR}, 0.5, 1e-4),
    ("money.cost_per_million_tokens", {"chips": 8, "rent_price": 2 / HOUR, "fleet_tokens_per_second": 1000}, 16 / 3.6, 1e-12),
    ("money.price_erosion", {"years": 2, "halving_years": 1}, 0.25, 1e-12),
    ("money.mean_price_factor", {"years": 1, "halving_years": 1}, 0.5 / math.log(2), 1e-12),
    ("money.bytes_per_dollar", {"W": 3.35e12, "rent_price": 2 / HOUR}, 3.35e12 * 1800, 1e-12),
    ("money.token_bill", {"tokens_billed": 3e9, "price_per_million": 0.5}, 1500, 1e-12),
    ("money.request_bill", {"input_tokens_a_request": 10000, "output_tokens_a_request": 500, "input_price_per_million": 3,
                            "cached_price_per_million": 0.3, "output_price_per_million": 15, "hit_share": 0.5}, 0.015 + 0.0015 + 0.0075, 1e-12),
    ("money.reserve_break_even", {"reserved_price": 1.2, "on_demand_price": 2}, 0.6, 1e-12),
    ("money.spot_break_even", {"spot_price": 1, "on_demand_price": 2, "firm_useful": 0.9}, 0.45, 1e-12),
    ("money.spot_effective_price", {"spot_price": 1, "spot_useful": 0.8}, 1.25, 1e-12),
    ("money.worth_of_faster", {"rent_price": 2, "new_rate": 300, "old_rate": 100}, 6, 1e-12),
    ("money.replacement_price", {"running_cost_old": 1, "running_cost_new": 1, "new_rate": 3, "old_rate": 1, "year_seconds": 100,
                                 "discount_rate": 0.1, "years_held": 1}, 200 / 1.1, 1e-12),
    ("money.payback_time", {"chips": 8, "purchase": 30000, "saved_rate": 0.01}, 24e6, 1e-12),
    ("money.price_at_utilisation", {"rent_price": 2, "used_share": 0.25}, 8, 1e-12),
    ("money.own_or_api_rate", {"own_cost_rate": 16 / HOUR, "price_per_million": 1}, 1e6 * 16 / HOUR, 1e-12),
    ("money.wait_break_even", {"halving_years": 2, "saved_share": 0.75}, 4, 1e-12),
    # network: 8 devices, 1 GB, 100 GB/s, 1 us
    ("network.tree_all_reduce", {"exchange_bytes": 1e9, "link_bandwidth": 1e11, "link_latency": 1e-6, "ring_devices": 8}, 0.02 + 6e-6, 1e-12),
    ("network.ring_all_to_all_both_ways", {"exchange_bytes": 8e9, "link_bandwidth": 1e11}, 0.01, 1e-12),
    ("network.torus_bisection", {"torus_side": 16, "torus_dimensions": 3, "link_bandwidth": 1e11}, 512 * 1e11, 1e-12),
    ("network.torus_diameter", {"torus_side": 16, "torus_dimensions": 3}, 24, 0),
    ("network.oversubscription", {"uplinks": 8, "downlinks": 32}, 0.25, 1e-12),
    # queues: one server at 0.5 with exponential services waits one service on average
    ("queue.utilisation", {"arrival_rate": 4, "service": 0.5, "servers": 4}, 0.5, 1e-12),
    ("queue.wait_one_server", {"rho": 0.5, "service": 2, "arrival_cv2": 1, "service_cv2": 1}, 2, 1e-12),
    ("queue.wait", {"rho": 0.5, "service": 2, "arrival_cv2": 1, "service_cv2": 1, "servers": 1}, 2, 1e-12),
    ("queue.response", {"rho": 0.5, "service": 2, "arrival_cv2": 1, "service_cv2": 1}, 4, 1e-12),
    ("queue.waiting_probability", {"rho": 0.5, "servers": 1}, 0.5, 1e-12),
    ("queue.wait_percentile", {"mean_wait": 2, "waiting_probability": 0.5, "exceed": 0.05}, 4 * math.log(10), 1e-12),
    ("queue.servers", {"arrival_rate": 50, "service": 2, "staffing_quality": 1}, 110, 0),
    ("queue.utilisation_at_wait", {"wait_limit": 2, "service": 2, "arrival_cv2": 1, "service_cv2": 1}, 0.5, 1e-12),
    ("queue.in_system", {"arrival_rate": 3, "mean_wait": 2, "service": 1}, 9, 1e-12),
    # reliability: 10 000 chips that fail once in ten million seconds each
    ("reliability.mtbf", {"n_chips": 1e4, "lambda_chip": 1e-7}, 1000, 1e-12),
    ("reliability.failures", {"n_chips": 1e4, "lambda_chip": 1e-7, "run_time_given": 1e6}, 1000, 1e-12),
    ("reliability.survival", {"n_chips": 1e4, "lambda_chip": 1e-7, "run_time_given": 1000}, 1 / math.e, 1e-12),
    ("reliability.availability", {"n_chips": 1e4, "lambda_chip": 1e-7, "repair_time": 250}, 0.8, 1e-12),
    ("reliability.spares", {"n_chips": 1e4, "lambda_chip": 1e-7, "repair_time": 1e5, "deviations": 2}, 120, 0),
    ("reliability.checkpoint_write", {"saved_state_bytes": 1e12, "store_bandwidth": 5e10}, 20, 1e-12),
    ("reliability.least_loss", {"delta_write": 20, "MTBF": 1000, "R_restart": 100}, 0.2 + 0.1, 1e-12),
    ("reliability.largest_run", {"delta_write": 20, "lambda_chip": 1e-7, "loss_accepted": 0.2}, 10000, 1e-9),
    ("reliability.spot", {"lambda_spot": 1e-4, "n_spot": 10, "R_restart": 250}, 0.8, 1e-12),
    # no failure in sight: the interval is all useful
    ("reliability.goodput_asynchronous", {"tau_given": 100, "delta_write": 10, "R_restart": 10, "MTBF": 1e9}, 1.0, 1e-6),
    # first terms by hand: sqrt(2·20·1000) = 200; 200·(1 + 0.1/3 + 0.01/9) - 20
    ("reliability.daly_interval", {"delta_write": 20, "MTBF": 1000}, 200 * (1 + 0.1 / 3 + 0.01 / 9) - 20, 1e-12),
    # roofline
    ("roofline.product_flops", {"product_rows": 2, "product_inner": 3, "product_columns": 5}, 60, 1e-12),
    ("roofline.product_intensity", {"product_rows": 64, "product_inner": 64, "product_columns": 64, "element_width": 2, "right_width": 2}, 64 / 3, 1e-12),
    # of 128 by 128 with 2 bytes no batch exceeds 64 FLOP a byte; half of that is reached at B = 64
    ("roofline.product_batch", {"F": 32e12, "W": 1e12, "right_width": 2, "element_width": 2, "product_inner": 128, "product_columns": 128}, 64, 1e-12),
    ("roofline.attention_intensity_written", {"attention_tokens": 4096, "attention_head": 128, "element_width": 2}, 515 * 4096 / (8 * 4224), 1e-12),
    ("roofline.attention_intensity_tiled", {"attention_tokens": 4096, "element_width": 2}, 2048, 1e-12),
    ("roofline.part_speedup", {"time_share": 0.5, "part_speedup": 2}, 4 / 3, 1e-12),
    ("roofline.precision_gain", {"batch_rows": 1, "F": 1e15, "F_low": 2e15, "W": 1e12, "width_high": 2, "width_low": 0.5}, 4, 1e-12),
    ("roofline.precision_gain", {"batch_rows": 1e6, "F": 1e15, "F_low": 2e15, "W": 1e12, "width_high": 2, "width_low": 0.5}, 2, 1e-12),
    ("roofline.weight_seconds", ONE | {"batch_rows": 1, "F": 1e15, "W": 1e12, "right_width": 2}, 2e-12, 1e-12),
    ("roofline.time_upper", ONE | {"F": 1e15, "W": 1e12, "flops": 1e15, "bytes_moved": 5e11}, 1.5, 1e-12),
    # serving: 80 GB at 8 TB/s take 10 ms, a sequence's cache of 1 GB 0.125 ms; a token's products 0.1 ms of 0.8 PFLOP/s
    ("serving.batch_at_tpot", SERVE | {"tpot_limit": 0.025, "step_overhead": 0.005}, 80, 0),
    ("serving.throughput_ceiling", SERVE, 8000, 1e-12),
    ("serving.half_throughput_batch", SERVE, 80, 1e-12),
    ("serving.cost_over_floor", SERVE | {"batch_size": 20}, 5, 1e-12),
    ("serving.cost_floor", SERVE | {"rent_price": 2 / HOUR}, 16 / HOUR * 0.125e-3 * 1e6, 1e-12),
    ("serving.cost_of_tpot", {"rent_price": 2 / HOUR, "replica_devices": 8, "step_time_given": 0.02, "batch_size": 40}, 16 / HOUR * 500, 1e-12),
    ("serving.largest_context", SERVE | {"batch_size": 8}, 8000, 0),
    ("serving.min_devices", SERVE | {"batch_size": 64}, 8, 0),
    ("serving.chunk_at_tpot", SERVE | {"batch_size": 80, "tpot_limit": 0.03005}, 100, 1e-9),
    ("serving.prefill_tokens_a_step", {"batch_size": 64, "prompt_length": 1000, "answer_length": 100, "hit_share": 0.5}, 320, 1e-12),
    ("serving.chunked_prefill_steps", {"prompt_length": 5000, "hit_share": 0.5, "chunk_tokens": 512}, 5, 0),
    ("serving.concurrency", {"request_rate": 10, "ttft_given": 0.5, "step_time_given": 0.02, "answer_length": 101}, 25, 1e-12),
    ("serving.request_latency", {"ttft_given": 0.5, "step_time_given": 0.02, "answer_length": 101}, 2.5, 1e-12),
    ("serving.kv_transfer_bandwidth", {"request_rate": 10, "prompt_length": 1000, "hit_share": 0.2, "kv_token_bytes": 1e6}, 8e9, 1e-12),
    ("serving.kv_transfer_time", {"prompt_length": 1000, "kv_token_bytes": 1e6, "transfer_bandwidth": 5e10}, 0.02, 1e-12),
    ("serving.transfer_over_prefill", SERVE | {"transfer_bandwidth": 4e11}, 2.5e-6 / 1e-4, 1e-12),
    ("serving.exchange_latency", {"exchange_layers": 80, "exchanges_a_layer": 2, "link_latency": 1e-5}, 1.6e-3, 1e-12),
    ("serving.replicas", {"peak_demand": 95, "peak_requests": 10, "spare_replicas": 1}, 11, 0),
    ("serving.pool_ratio", {"prompt_length": 4000, "answer_length": 400, "prefill_rate": 50000, "decode_rate": 5000}, 1, 1e-12),
    ("serving.paged_batch_gain", {"reserved_tokens": 2048, "context_tokens": 504, "block_tokens": 16}, 4, 1e-12),
    ("serving.decode_intensity", {"batch_size": 8, "weight_width": 2}, 8, 1e-12),
    # Leviathan's figure: three drafted tokens at one half yield 1 + 1/2 + 1/4 + 1/8
    ("serving.tokens_per_step", {"acceptance": 0.5, "drafted": 3}, 1.875, 1e-12),
    ("serving.experts_touched", {"experts": 8, "experts_active": 4, "batch_size": 2}, 6, 1e-12),
    ("serving.experts_touched_rank", {"experts": 8, "experts_active": 4, "batch_size": 2, "expert_ranks": 2}, 3, 1e-12),
    ("serving.batch_for_experts", {"experts": 8, "experts_active": 4, "touched_share": 0.75}, 2, 1e-12),
    # training; losses of the Chinchilla paper's fit: Gopher 1.993, Chinchilla 1.936
    ("training.loss", CHINCHILLA | {"N_train": 280e9, "D": 300e9}, 1.993, 5e-4),
    ("training.loss", CHINCHILLA | {"N_train": 70e9, "D": 1.4e12}, 1.936, 5e-4),
    ("training.tokens_for_loss", CHINCHILLA | {"N_train": 70e9, "loss_wanted": 1.936}, 1.4e12, 2e-2),
    ("training.chips_for_deadline", {"N_train": 70e9, "D": 15e12, "F": 1e15, "mfu_given": 0.5, "goodput_given": 0.9, "deadline_time": 1.4e6}, 10000, 0),
    ("training.attention_share", {"N_train": 1e9, "saved_layers": 50, "heads_width": 5000, "keys_seen": 2000}, 0.5, 1e-12),
    ("training.largest_model", {"train_chips": 8, "M": 80e9, "u_train": 0.9, "state_bytes": 16}, 36e9, 0),
    ("training.steps_at_batch", {"least_steps": 1000, "noise_scale": 1e6, "batch_tokens": 1e6}, 2000, 1e-12),
    ("training.data_at_batch", {"noise_scale": 1e6, "batch_tokens": 1e6}, 2, 1e-12),
    ("training.data_parallel_limit", {"batch_tokens": 1e6, "link_bandwidth": 1e11, "F": 1e15, "element_width": 2}, 100, 1e-12),
    ("training.ranks_of_batch", {"batch_sequences": 1000, "b": 3}, 333, 0),
    ("training.micro_batches", {"B_global": 1024, "b": 2, "d": 64}, 8, 1e-12),
    ("training.micro_batches_for_bubble", {"p": 8, "v": 2, "bubble_most": 0.1}, 35, 0),
    ("training.pipeline_efficiency", {"m_given": 12, "p": 5, "v": 1}, 0.75, 1e-12),
    ("training.critical_batch_chips", {"B_critical": 1024, "b": 1, "m_given": 8, "t": 8, "p": 4, "c": 1}, 4096, 1e-12),
    ("training.activations_full", {"s": 2048, "b": 1, "h_hidden": 12288}, 2 * 2048 * 12288, 1e-12),
    # ZeRO 1 moves gradients and weights once: 2 + 2 bytes a parameter; without sharding twice the gradients
    ("training.zero_volume", {"N_train": 1e9, "b_w": 2, "b_g": 2, "z": 0, "m_given": 4}, 4e9, 1e-12),
    ("training.zero_volume", {"N_train": 1e9, "b_w": 2, "b_g": 2, "z": 1, "m_given": 4}, 4e9, 1e-12),
    ("training.zero_volume", {"N_train": 1e9, "b_w": 2, "b_g": 2, "z": 3, "m_given": 1}, 6e9, 1e-12),
]  # fmt: skip


@pytest.mark.parametrize(("name", "numbers", "expected", "tolerance"), ROWS, ids=[row[0] for row in ROWS])
def test_a_closed_form_at_numbers_worked_by_hand(name, numbers, expected, tolerance):
    derivation = derive(name)
    known = {symbol.name for symbol in (*derivation.symbols, derivation.formula.symbol)}
    given = {key: value for key, value in numbers.items() if key in known}
    assert derivation.given(given).value == pytest.approx(expected, rel=tolerance or 1e-12)


def least(function, grid):
    return min(grid, key=function)


def steps(low, high, count=4001):
    return [low * (high / low) ** (at / (count - 1)) for at in range(count)]


def test_compute_optimal_sizes_are_the_least_loss_of_a_scan():
    c = CHINCHILLA
    work = 5.76e23

    def loss(size):
        return c["factor_parameters"] / size**0.34 + c["factor_data"] / (work / 6 / size) ** 0.28

    best = least(loss, steps(1e9, 1e12))
    assert derive("training.compute_optimal_parameters").given({**_of(c), "C_train": work}).value == pytest.approx(
        best, rel=5e-3
    )
    tokens = derive("training.compute_optimal_tokens").given({**_of(c), "C_train": work}).value
    assert tokens == pytest.approx(work / 6 / best, rel=5e-3)


def _of(numbers):
    return {key: value for key, value in numbers.items() if key != "loss_floor"}


def test_the_best_number_of_checkpoints_is_that_of_a_scan():
    best = least(lambda k: k + 96 * 20 / k, range(1, 200))
    assert derive("training.sqrt_checkpoints").given({"saved_layers": 96, "saved_nodes": 20}).value == pytest.approx(
        best, abs=0.5
    )


def test_the_best_split_of_data_and_tensor_ranks_is_that_of_a_scan():
    batch, width, chips = 4e6, 28672, 4096
    # gathered weights: f/(y·M_x), exchanged activations: B/(x·M_y), with y = n/x
    best = least(lambda x: width * x / chips / 2 + batch / x, steps(1, 1e6))
    numbers = {"batch_tokens": batch, "layer_width": width, "train_chips": chips, "link_axes": 2, "tensor_axes": 1}
    assert derive("training.mixed_split").given(numbers).value == pytest.approx(best, rel=5e-3)


@pytest.mark.parametrize("acceptance", [0.5, 0.7, 0.8, 0.9])
@pytest.mark.parametrize("cost", [0.02, 0.05, 0.1, 0.2])
def test_the_best_draft_length_gains_as_much_as_the_best_of_a_scan(acceptance, cost):
    def gain(drafted):
        return (
            derive("serving.speculative_gain")
            .given({"acceptance": acceptance, "drafted": drafted, "draft_cost": cost})
            .value
        )

    found = derive("serving.best_draft_length").given({"acceptance": acceptance, "draft_cost": cost}).value
    best = max(gain(drafted) for drafted in range(1, 40))
    assert gain(max(1, round(found))) >= 0.99 * best


def test_a_tree_beats_a_ring_below_its_limit_alone():
    numbers = {"ring_devices": 64, "link_latency": 1e-6, "link_bandwidth": 1e11}
    limit = derive("network.tree_limit").given(numbers).value

    def times(volume):
        return [
            derive(f"network.{kind}_all_reduce").given({**numbers, "exchange_bytes": volume}).value
            for kind in ("tree", "ring")
        ]

    assert times(0.9 * limit)[0] < times(0.9 * limit)[1]
    assert times(1.1 * limit)[0] > times(1.1 * limit)[1]


def test_a_scan_finds_no_better_checkpoint_interval():
    numbers = {"delta_write": 30.0, "MTBF": 10000.0, "R_restart": 300.0}
    goodput = derive("reliability.goodput").given(numbers)
    best = max(steps(50, 10000, 400), key=lambda tau: goodput.given({"tau_given": tau}).value)
    assert derive("reliability.daly_interval").given(
        {k: v for k, v in numbers.items() if k != "R_restart"}
    ).value == pytest.approx(best, rel=0.02)


def test_at_least_eighty_distinct_closed_forms_over_every_stage():
    """Distinct: no two say the same with other letters, and none is another solved for one of its symbols."""
    forms = library()
    topics = {name.partition(".")[0] for name in forms}
    assert topics >= {
        "architecture", "edge", "energy", "evaluation", "finetuning", "lifecycle", "memory", "money", "network", "queue",
        "reliability", "roofline", "serving", "training",
    }  # fmt: skip
    relations = {frozenset(s.name for s in (*form.expr.free_symbols, form.symbol)) for form in forms.values()}
    assert len(relations) >= 200
    operations = [form for form in forms.values() if len(form.expr.free_symbols) >= 2]
    assert len(operations) >= 200


def test_every_closed_form_is_used_by_a_command_or_checked_by_a_worked_problem():
    root = Path(__file__).resolve().parents[2]
    read = [*root.glob("tests/*/*.py"), *root.glob("solver/tokenmill/*.py")]
    read += [data.path("measured") / "serving" / name for name in ("scaling_book.csv", "papers.csv")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in read)
    # the forms of claims are what the command `claim` evaluates: it takes them as objects, not by name
    forms = [name for name in library() if not name.startswith("claim.")]
    unchecked = [name for name in forms if not re.search(rf"[\"',]{re.escape(name)}[\"',]", text)]
    assert unchecked == []

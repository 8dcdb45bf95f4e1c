"""Files of calculon and SimuMax, written by hand in their form, become what a problem file takes."""

from __future__ import annotations

import json
import tomllib

import pytest

from tokenmill.cli import main
from tokenmill.errors import ImportFileError
from tokenmill.imports.architecture import read_architecture
from tokenmill.imports.peers import read_calculon, read_simumax
from tokenmill.reading import load_problem

EXECUTION = {
    "num_procs": 3072, "tensor_par": 4, "pipeline_par": 64, "data_par": 12, "batch_size": 3072, "microbatch_size": 4,
    "datatype": "float16", "activation_recompute": "full", "pipeline_interleaving": 1, "optimizer_sharding": False,
    "tensor_par_comm_type": "ar", "data_par_overlap": True, "weight_offload": False, "training": True,
}  # fmt: skip
APPLICATION = {"name": "megatron-1T", "seq_size": 2048, "hidden": 25600, "feedforward": 102400, "attn_heads": 160,
               "attn_size": 160, "num_blocks": 128}  # fmt: skip
STRATEGY = {"seq_len": 4096, "micro_batch_size": 1, "micro_batch_num": 8, "dtype": "bf16", "fp8": False, "world_size": 64,
            "tp_size": 4, "pp_size": 2, "ep_size": 1, "zero_state": 1, "enable_sequence_parallel": True,
            "enable_recompute": False, "recompute_granularity": "full_block", "mem_factor": 0.94, "use_flash_sdp": True}  # fmt: skip
DENSE = {"model_name": "llama2-7b", "hidden_size": 4096, "head_num": 32, "kv_head_num": 32, "head_size": 128,
         "intermediate_size": 11008, "layer_num": 32, "vocab_size": 32000}  # fmt: skip


def write(folder, name, fields):
    path = folder / f"{name}.json"
    path.write_text(json.dumps(fields))
    return path


def test_a_run_of_calculon_is_a_layout(tmp_path):
    found = read_calculon(write(tmp_path, "run", EXECUTION))
    (workload,) = tomllib.loads(found.text())["workload"]
    assert workload["layout"] == {
        "chips": 3072, "tp": 4, "pp": 64, "dp": 12, "micro_batch": 4, "virtual": 1, "recompute": "full", "zero": 0,
        "sequence_parallel": False, "cp": 1, "ep": 1, "schedule": "1f1b",
    }  # fmt: skip
    assert workload["global_batch"] == 3072
    assert workload["precision"] == {"compute": "fp16"}
    assert found.left_out == ["data_par_overlap"]


def test_a_run_with_its_model_is_a_problem(tmp_path):
    run = read_calculon(write(tmp_path, "run", EXECUTION)).text()
    model = read_calculon(write(tmp_path, "app", APPLICATION))
    (tmp_path / "config.json").write_text(model.text())
    head = 'model = "config.json"\ntokens = 1e12\nsequence_length = 2048\noptimizer = "adam"\n'
    text = run.replace('name = "imported"\n', f'name = "imported"\n{head}')
    (tmp_path / "problem.toml").write_text(f'[hardware]\nsystems = ["hgx-a100-80gb"]\n{text}')
    problem = load_problem(tmp_path / "problem.toml")
    assert problem.workloads[0].held["layout.pp"] == (64,)


def test_a_model_of_calculon_has_its_trillion_parameters(tmp_path):
    architecture = read_architecture(read_calculon(write(tmp_path, "app", APPLICATION)).tables)
    # 12 L h^2 of the layers (Narayanan et al. 2021, equation 2 without its small terms)
    assert architecture.parameters.total == pytest.approx(12 * 128 * 25600**2, rel=0.01)


def test_a_run_of_simumax_is_a_layout(tmp_path):
    (workload,) = tomllib.loads(read_simumax(write(tmp_path, "run", STRATEGY)).text())["workload"]
    assert workload["layout"]["dp"] == 64 / (4 * 2)
    assert workload["global_batch"] == 1 * 8 * 8
    assert workload["layout"]["recompute"] == "none"
    assert workload["memory_fraction"] == 0.94
    assert workload["sequence_length"] == 4096


def test_a_model_of_simumax_has_its_parameters(tmp_path):
    architecture = read_architecture(read_simumax(write(tmp_path, "model", DENSE)).tables)
    assert architecture.parameters.total == 6738415616  # Llama 2 7B, counted in its checkpoint


def test_a_machine_is_a_chip(tmp_path):
    calculon = {"matrix": {"float16": {"tflops": 312}}, "mem1": {"GiB": 80, "GBps": 2039}, "networks": []}
    found = read_calculon(write(tmp_path, "a100_80g", calculon))
    (chip,) = tomllib.loads(found.text())["hardware"]["chip"]
    assert chip == {"name": "a100-80g", "memory": "80 GiB", "bandwidth": "2039 GB/s", "fp16": "312 TFLOP/s"}
    simumax = {"sys_name": "B200", "accelerator": {"mem_gbs": 180, "op": {"default": {"tflops": 2250}},
               "bandwidth": {"default": {"gbps": 8000}}}, "networks": {}}  # fmt: skip
    (chip,) = tomllib.loads(read_simumax(write(tmp_path, "sys", simumax)).text())["hardware"]["chip"]
    assert chip["bandwidth"] == "8000 GB/s"


@pytest.mark.parametrize(
    ("read", "fields", "said"),
    [
        (read_calculon, {"something": 1}, "tensor_par and pipeline_par"),
        (read_calculon, {**EXECUTION, "activation_recompute": "half"}, "activation_recompute"),
        (read_calculon, {**EXECUTION, "training": False}, "training"),
        (read_simumax, {**STRATEGY, "world_size": 60}, "world_size"),
        (read_simumax, {**STRATEGY, "tp_size": "four"}, "tp_size"),
        (read_simumax, {**DENSE, "attention_type": "mla"}, "latent attention"),
        (read_calculon, {"matrix": {}, "mem1": {"GiB": "80"}}, "mem1.GiB"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, read, fields, said):
    with pytest.raises(ImportFileError, match=said):
        read(write(tmp_path, "bad", fields))


def test_the_command_prints_it(tmp_path, capsys):
    path = write(tmp_path, "run", EXECUTION)
    assert main(["import", "calculon", str(path)]) == 0
    assert "[workload.layout]" in capsys.readouterr().out
    assert main(["import", "simumax", str(path), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["status"] == "error"

"""Reading request traces: the shapes that their publishers print, every format, and what is wrong with broken files."""

import gzip
import json

import numpy as np
import pytest

from tokenmill import data
from tokenmill.errors import ImportFileError
from tokenmill.imports.traces import facts, ideal_prefix_hit, read_trace, request_classes

# counted apart from this reader, when the files were collected: requests, mean in and out, p50, p99, requests/s, CV of the gaps
SHAPES = {
    "azure-2023-code.csv.gz": (8819, (2048, 28), (1469, 13), (7436, 252), 2.57, 13.2, None),
    "azure-2023-conv.csv.gz": (19366, (1155, 211), (1020, 129), (4142, 601), 5.53, 1.09, None),
    "mooncake-conversation.jsonl.gz": (12031, (12035, 343), (6909, 350), (85401, 1120), 3.40, 3.03, 0.366),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shipped_traces_have_their_measured_shape(name):
    count, means, medians, tails, rate, cv, hit = SHAPES[name]
    trace = read_trace(data.path("measured") / "traces" / name)
    found = facts(trace)
    assert found.requests == count
    for side, lengths in enumerate((found.input_tokens, found.output_tokens)):
        assert lengths.mean == pytest.approx(means[side], abs=0.51)
        assert lengths.p50 == pytest.approx(medians[side], abs=0.51)
        assert lengths.p99 == pytest.approx(tails[side], rel=0.003)
    assert found.requests_per_second == pytest.approx(rate, abs=0.006)
    assert found.arrival_cv == pytest.approx(cv, rel=0.005)
    assert found.prefix_hit == (None if hit is None else pytest.approx(hit, abs=0.0006))


@pytest.mark.parametrize("name", ["vllm-rtx-4090-llama-3.1-8b", "vllm-rtx-pro-6000-qwen3-30b-a3b"])
def test_vllm_logs_bring_their_measured_times(name):
    trace = read_trace(data.path("measured") / "traces" / f"{name}.jsonl.gz")
    assert trace.count == 300
    assert trace.rate == pytest.approx(10.3, abs=0.05)
    assert (trace.measured["ttft"] > 0).all()
    assert (trace.measured["tpot"] > 0).all()


def written(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_azure_times_have_seven_decimals_and_the_last_line_no_end(tmp_path):
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109"
    trace = read_trace(written(tmp_path, "a.csv", text))
    assert trace.kind == "Azure"
    assert trace.seconds == pytest.approx([0, 4.314579])
    assert trace.output_tokens.tolist() == [44, 109]


def test_mooncake_blocks_follow_their_requests_in_order_of_time(tmp_path):
    records = [
        {"timestamp": 2000, "input_length": 1100, "output_length": 5, "hash_ids": [1, 2, 9]},
        {"timestamp": 0, "input_length": 1000, "output_length": 7, "hash_ids": [1, 2]},
    ]
    path = tmp_path / "m.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, records)).encode()))
    trace = read_trace(path)
    assert trace.seconds.tolist() == [0, 2]
    assert trace.blocks.tolist() == [1, 2, 1, 2, 9]
    assert trace.block_starts.tolist() == [0, 2, 5]
    assert ideal_prefix_hit(trace) == pytest.approx(2 / 5)


def test_burstgpt_failures_are_left_out_and_counted(tmp_path):
    text = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n45,ChatGPT,1087,0,1087,Conversation log\n118,GPT-4,417,276,693,API log\n"
    trace = read_trace(written(tmp_path, "b.csv", text))
    assert trace.kind == "BurstGPT"
    assert trace.seconds.tolist() == [0, 113]
    assert trace.left_out == {"no answer": 1}


def test_plain_columns_may_stand_in_any_order_among_others(tmp_path):
    text = "user,output_tokens,time,input_tokens\na,5,3.5,100\nb,6,1.5,200\n"
    trace = read_trace(written(tmp_path, "p.csv", text))
    assert trace.seconds.tolist() == [0, 2]
    assert trace.input_tokens.tolist() == [200, 100]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.csv", "time,input_tokens,output_tokens\n1,10,5\n2,many,5\n", "line 3, column input_tokens: found 'many'"),
        ("x.csv", "time,input_tokens,output_tokens\n1,10,5\nnan,10,5\n", "line 3, column time: found 'nan'"),
        ("x.csv", "time,input_tokens,output_tokens\n1,10,-5\n", "line 2, column output_tokens: found '-5'"),
        ("x.csv", "time,input_tokens,output_tokens\n1,10\n", "line 2, column output_tokens: found nothing"),
        ("x.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,1\n", "line 2, column TIMESTAMP"),
        ("x.csv", "a,b\n1,2\n", "found columns a, b"),
        ("x.csv", "", "no request"),
        ("x.csv", "time,input_tokens,output_tokens\n1,0,5\n", "no request with a prompt"),
        ("x.jsonl", '{"timestamp": 0, "input_length": 5, "output_length": 1}\n{', "line 2: not JSON"),
        ("x.jsonl", "[1]\n", "line 1: found a list"),
        ("x.jsonl", '{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": "no"}\n', "column hash_ids"),
        ("x.jsonl.gz", "not compressed", "cannot be read"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, name, text, said):
    with pytest.raises(ImportFileError) as caught:
        read_trace(written(tmp_path, name, text))
    assert said in str(caught.value)
    assert name in str(caught.value)


def test_a_file_that_is_not_there():
    with pytest.raises(ImportFileError, match="cannot be read"):
        read_trace("/nowhere/trace.csv")


def test_lognormal_fit_finds_what_was_drawn(tmp_path):
    random = np.random.default_rng(5)
    drawn = np.round(random.lognormal(6.0, 0.8, 20_000)).clip(1)
    lines = [f"{i},{int(n)},1" for i, n in enumerate(drawn)]
    found = facts(read_trace(written(tmp_path, "l.csv", "time,input_tokens,output_tokens\n" + "\n".join(lines))))
    assert found.input_tokens.log_mean == pytest.approx(6.0, abs=0.03)
    assert found.input_tokens.log_deviation == pytest.approx(0.8, abs=0.02)
    assert found.arrival_cv == 0


def test_classes_keep_the_totals_of_the_trace():
    trace = read_trace(data.path("measured") / "traces" / "azure-2023-conv.csv.gz")
    classes = request_classes(trace, 4)
    assert sum(one["share"] for one in classes) == pytest.approx(1)
    for side, mean in (("input_tokens", trace.input_tokens.mean()), ("output_tokens", trace.output_tokens.mean())):
        means = [one[side]["mean"] if isinstance(one[side], dict) else one[side] for one in classes]
        total = sum(one["share"] * length for one, length in zip(classes, means, strict=True))
        assert total == pytest.approx(mean)


def test_the_head_that_most_requests_share_is_counted_in_whole_blocks(tmp_path):
    """Three of four requests begin with blocks 1 and 2; the third block is that of two: half, which is not most."""
    file = tmp_path / "trace.jsonl"
    rows = [[1, 2, 3, 9], [1, 2, 3], [1, 2], [7, 2, 3]]
    file.write_text(
        "".join(
            f'{{"timestamp": {1000 * i}, "input_length": {512 * len(ids)}, "output_length": 10, "hash_ids": {ids}}}\n'
            for i, ids in enumerate(rows)
        )
    )
    assert facts(read_trace(file)).shared_head == 2 * 512


def test_every_conversation_of_the_published_trace_begins_with_one_block():
    assert facts(read_trace(data.path("measured") / "traces" / "mooncake-conversation.jsonl.gz")).shared_head == 512
    assert facts(read_trace(data.path("measured") / "traces" / "azure-2023-conv.csv.gz")).shared_head is None

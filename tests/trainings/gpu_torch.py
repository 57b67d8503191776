# SPDX-License-Identifier: Apache-2.0
"""The training in PyTorch on this machine's CUDA devices, through the Python package: one rank and
two, which share a device where there is one alone. Label: gpu."""

import subprocess
import unittest

from training import PYTHON, TIMEOUT, TrainingCase, has, run_ranks

ASK = """
import torch
if not torch.cuda.is_available():
    print("this PyTorch (" + torch.__version__ + ") finds no CUDA device")
"""
DIRECTLY = """
import torch
import libparallax as px
side = torch.cuda.Stream()
with px.open() as job:
    held = job.register("held", rows=1024, row_elements=1024)
    half = job.register("half", rows=512, dtype="bf16", rule="sgd")
    direct = job.register("direct", rows=1024, row_elements=1024, memory="cuda")
    job.commit()
    carriers = {each["name"]: each.get("carrier") for each in job.report()["variables"]}
    assert carriers["direct"].startswith("NCCL"), job.report()
    for _ in range(3):  # the thread waits for the end of the step alone
        with torch.cuda.stream(side), job.step() as step:
            gradient = torch.zeros(1024, 1024, device="cuda")
            for _ in range(50):
                gradient = gradient + 1
            step.reduce(direct, gradient, stream=side).on_stream(side)
            doubled = gradient * 2
        side.synchronize()
        assert bool((doubled == 100).all()), doubled
    for stream in (None, side, side.cuda_stream, torch.cuda.default_stream()):
        with torch.cuda.stream(side), job.step(learning_rate=1) as step:
            gradient = torch.zeros(1024, 1024, device="cuda")
            for _ in range(50):  # work that the copy has to wait for
                gradient = gradient + 1
            into = torch.empty_like(gradient)
            step.reduce(held, gradient, into=into, stream=stream)
            step.push(half, torch.ones(512, device="cuda", dtype=torch.bfloat16), stream=stream)
        assert bool((into == 50).all()), into
    rows = torch.from_dlpack(job.pull(half, memory="cuda").wait())
    assert rows.dtype == torch.bfloat16 and bool((rows == -4).all()), rows
    mine = torch.from_dlpack(job.empty((4, 4), memory="cuda"))
    assert float((mine + 1).sum()) == 16
    with job.step() as step:
        ones = torch.ones(1024, 1024, device="cuda")
        for given, sentence in ((ones.clone().requires_grad_(), "detach"),
                                (ones.t(), "contiguous")):
            try:
                step.reduce(held, given)
            except px.InvalidArgument as refusal:
                assert sentence in refusal.message, refusal
            else:
                raise AssertionError(sentence)
    graph, said = torch.cuda.CUDAGraph(), ""
    with job.step() as step:
        with torch.cuda.graph(graph):
            ones.add_(1)
            try:
                step.reduce(held, ones, stream=torch.cuda.current_stream())
            except px.Unsupported as refusal:
                said = refusal.message
        assert "captur" in said, said
    graph.replay()
    assert bool((ones == 2).all()), ones
torch.cuda.synchronize()
"""
# Each rule's table on the device beside the same in host memory. Gradients are eighths, which no
# order of summing rounds.
TABLES = """
import torch
import libparallax as px
ROWS, WIDTH, GIVEN, STEPS = 20000, 96, 8192, 5
torch.manual_seed(7)
initial = torch.rand(ROWS, WIDTH).numpy()
with px.open() as job:
    pairs = {}
    for rule in ("sgd", "momentum", "adagrad", "rowwise_adagrad", "adam"):
        for dtype in ("f32", "f16", "bf16"):
            pairs[rule, dtype] = [
                job.register(f"{rule} {dtype} {memory}", rows=ROWS, row_elements=WIDTH,
                             rows_max=GIVEN, dtype=dtype, rule=rule, init=initial,
                             momentum=0.9 if rule == "momentum" else 0.0, table_memory=memory)
                for memory in ("host", "cuda")]
    job.commit()
    for number in range(STEPS):
        torch.manual_seed(100 * number + job.rank)
        with job.step(learning_rate=0.125) as step:
            for (rule, dtype), pair in pairs.items():
                wide = torch.int64 if number % 2 else torch.int32
                ids = torch.randint(-1, ROWS, (GIVEN,), device="cuda", dtype=wide)
                eighths = torch.randint(-8, 9, (GIVEN, WIDTH), device="cuda") / 8
                kept = dict(f32=torch.float32, f16=torch.float16, bf16=torch.bfloat16)[dtype]
                pulled = [torch.full((GIVEN, WIDTH), 9, device="cuda", dtype=kept) for _ in pair]
                for table, rows in zip(pair, pulled):
                    step.pull(table, ids, out=rows, stream=torch.cuda.current_stream()).wait()
                assert torch.equal(*pulled), (rule, dtype, number, pulled)
                for table in pair:
                    step.push(table, ids, eighths.to(kept), stream=torch.cuda.current_stream())
    before = torch.from_numpy(initial)
    for (rule, dtype), pair in pairs.items():
        every = torch.arange(ROWS, device="cuda")
        ends = []
        for table in pair:
            parts = [torch.from_dlpack(job.pull(table, part, memory="cuda").wait())
                     for part in every.split(GIVEN)]
            ends.append(torch.cat(parts).float().cpu())
        assert torch.equal(*ends), (rule, dtype)
        kept = dict(f32=torch.float32, f16=torch.float16, bf16=torch.bfloat16)[dtype]
        assert not torch.equal(ends[0], before.to(kept).float()), (rule, dtype)
torch.cuda.synchronize()
"""


class OnDevices(TrainingCase):
    def setUp(self):
        super().setUp()
        if not has("torch"):
            self.skipTest("torch is missing (python3-torch, or another Python's: "
                          "PARALLAX_FRAMEWORKS_PYTHON)")
        why = subprocess.run([PYTHON, "-c", ASK], capture_output=True, text=True, timeout=TIMEOUT,
                             check=True).stdout.strip()
        if why:
            self.skipTest(why)

    def test_training(self):
        self.hold_script("torch_cuda", "torch", "python3-torch")

    def test_streams_and_arrays(self):
        ran = subprocess.run([PYTHON, "-c", DIRECTLY], capture_output=True, text=True,
                             timeout=TIMEOUT, check=False)
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))

    def test_tables(self):
        for world in (1, 2):
            with self.subTest(world=world):
                run_ranks([PYTHON, "-c", TABLES], world)


if __name__ == "__main__":
    unittest.main()

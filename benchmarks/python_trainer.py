"""The opponents of the benchmarks NAME_vs_python.py: a step's training run in PyTorch, as one would
write it in Python; in several processes, over gloo, DistributedDataParallel, the same with the
optimizer of ZeroRedundancyOptimizer, or fully_shard (FSDP2), which keeps parameters whole from
forward to backward, as ZeRO-2 would, or not, as ZeRO-3; a pipeline of
torch.distributed.pipelining, whose stages have the --blocks, the first one the embedding and the
last one the head; or the layers of parallelize_module, untied, with loss_parallel.

    python benchmarks/python_trainer.py --kind module|huggingface [--parallel ddp|zero1|fsdp-zero2|fsdp-zero3]
                                        [--parallel gpipe|1f1b --num-microbatches N --blocks 3,3]
                                        [--parallel tensor]
                                        [--precision fp32|bf16|masters|autocast] [--device cpu|cuda] [--compile]
                                        --checkpoint FOLDER --data FILE --shape JSON --options JSON --num-steps N
                                        --threads N

Starts from a checkpoint of step 0 and reads the same token file in the same order, so its losses
must be step 0's, or those of another step. Where the environment says WORLD_SIZE, RANK, MASTER_ADDR
and MASTER_PORT as torchrun does, it is one rank of several: it reads the rows that the course's
sampler gives this rank, and its losses are those of its own rows. All ranks that share a model have
the same losses; they clip by the norm of the whole gradient. Prints one line of JSON: num_parameters,
step_seconds (a list), losses (a list), torch_version; on a GPU also peak_bytes, the most that its
tensors have occupied.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))
from tensor_files import read_tensors  # noqa: E402

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


class Block(nn.Module):
    """A pre-norm block of GPT-2: [B, T, C] -> [B, T, C]."""

    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.attn = nn.ModuleDict(
            {"c_attn": nn.Linear(channels, 3 * channels), "c_proj": nn.Linear(channels, channels)}
        )
        self.mlp = nn.ModuleDict(
            {"c_fc": nn.Linear(channels, 4 * channels), "c_proj": nn.Linear(4 * channels, channels)}
        )

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (
            part.view(B, T, self.heads, C // self.heads).transpose(1, 2)
            for part in self.attn.c_attn(self.ln_1(x)).split(C, dim=2)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn.c_proj(mixed.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """The plain nn.Module: the kernels that step 0 uses where PyTorch offers them to everybody.
    Parts are named as in GPT-2's checkpoints. Tokens [B, T] -> logits [B, T, V]."""

    def __init__(self, layers, heads, channels, context, vocab_size, is_tied=True):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, channels)
        self.wpe = nn.Embedding(context, channels)
        self.h = nn.ModuleList(Block(channels, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(channels)
        self.lm_head = nn.Linear(channels, vocab_size, bias=False)
        if is_tied:
            self.lm_head.weight = self.wte.weight

    def keep(self, blocks, is_first, is_last):
        """Leaves a stage of a pipeline. Between stages there are activations, [B, T, C]."""
        self.h = self.h[blocks]
        if not is_first:
            self.wte = self.wpe = None
        if not is_last:
            self.ln_f = self.lm_head = None

    def forward(self, x):
        if self.wte is not None:
            x = self.wte(x) + self.wpe.weight[: x.size(1)]
        for block in self.h:
            x = block(x)
        return x if self.lm_head is None else self.lm_head(self.ln_f(x))


class HuggingFace(nn.Module):
    """GPT2LMHeadModel without dropout, its tanh GELU as the one kernel that transformers also
    offers."""

    def __init__(self, layers, heads, channels, context, vocab_size):
        from transformers import GPT2Config, GPT2LMHeadModel

        super().__init__()
        config = GPT2Config(
            n_layer=layers,
            n_head=heads,
            n_embd=channels,
            n_positions=context,
            vocab_size=vocab_size,
            resid_pdrop=0,
            embd_pdrop=0,
            attn_pdrop=0,
            activation_function="gelu_pytorch_tanh",
            use_cache=False,
            bos_token_id=None,
            eos_token_id=None,
        )
        self.model = GPT2LMHeadModel._from_config(config, attn_implementation="sdpa")

    def forward(self, tokens):
        return self.model(tokens).logits


@torch.no_grad()
def load(model, checkpoint):
    """Copies a checkpoint into the model; nn.Linear stores the transpose of what GPT-2's files
    hold, but for the head."""
    file = read_tensors(Path(checkpoint) / "model.safetensors")
    stored = {
        name: torch.frombuffer(bytearray(values), dtype=torch.float32).view(shape)
        for name, (shape, values) in file.items()
    }
    transposed = {id(m.weight) for m in model.modules() if isinstance(m, nn.Linear)}
    for name, parameter in model.named_parameters():  # a tied one once, as the embedding
        tensor = stored.pop(name.removeprefix("model.transformer."))
        is_head = "wte" in name or "lm_head" in name
        parameter.copy_(tensor.t() if id(parameter) in transposed and not is_head else tensor)
    if stored:
        raise SystemExit(f"the Python model has no place for {sorted(stored)}")


def read_batch(data, step, rows, context, rank, world_size):
    """Every world_size-th window of a nanoGPT file, from step·rows of this rank on: (tokens,
    targets), [B, T] int64."""
    starts = ((np.arange(rows) + step * rows) * world_size + rank)[:, None] * context
    window = data[starts + np.arange(context + 1)[None, :]].astype(np.int64)
    return torch.from_numpy(window[:, :-1].copy()), torch.from_numpy(window[:, 1:].copy())


def loss_of(model, tokens, targets, is_autocast):
    """Mean over the targets, in fp32. torch.compile takes all of it, so that it can fuse the loss
    with the logits."""
    with torch.autocast(tokens.device.type, torch.bfloat16, enabled=is_autocast):
        logits = model(tokens).float()
    return (
        F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / targets.numel()
    )


class Masters:
    """fp32 copies of parameters that are about to become bf16. The optimizer updates them, with
    fp32 gradients."""

    def __init__(self, parameters):
        self.parameters = parameters
        self.copies = [p.detach().clone() for p in parameters]
        for copy in self.copies:
            copy.grad = torch.empty_like(copy)

    @torch.no_grad()
    def take_gradients(self):
        torch._foreach_copy_([copy.grad for copy in self.copies], [p.grad for p in self.parameters])
        for p in self.parameters:
            p.grad = None

    @torch.no_grad()
    def round_to_parameters(self):
        torch._foreach_copy_(self.parameters, self.copies)


def adamw(parameters, options, **optimizer_of_shards):
    """Matrices decay, vectors do not."""
    parameters = list(parameters)
    matrices, vectors = (
        [p for p in parameters if p.dim() >= 2],
        [p for p in parameters if p.dim() < 2],
    )
    groups = [
        {"params": matrices, "weight_decay": options["weight_decay"]},
        {"params": vectors, "weight_decay": 0.0},
    ]
    make = ZeroRedundancyOptimizer if optimizer_of_shards else torch.optim.AdamW
    return make(
        groups,
        lr=options["lr"],
        betas=options["betas"],
        eps=options["eps"],
        fused=True,
        **optimizer_of_shards,
    )


def make_parallel(model, parameters, options, parallel):
    """The model, and the optimizer of its parameters, on the ranks of the default group."""
    if parallel.startswith("fsdp"):
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for module in (*model.h, model):  # it puts other parameters in their place
            fully_shard(module, mesh=mesh, reshard_after_forward=parallel == "fsdp-zero3")
        return model, adamw(model.parameters(), options)
    optimizer = adamw(
        parameters,
        options,
        **({"optimizer_class": torch.optim.AdamW} if parallel == "zero1" else {}),
    )
    # Without gradient_as_bucket_view, DDP makes another copy per step.
    return DistributedDataParallel(model, gradient_as_bucket_view=True), optimizer


# ---- a pipeline -------------------------------------------------------------------------------------------------------


def clip(parameters, largest, loss):
    """Clips as clip_grad_norm_ does, by the norm over all stages. Returns the loss of the last
    stage, which others pass as 0."""
    squares = sum(norm.double() ** 2 for norm in torch._foreach_norm([p.grad for p in parameters]))
    sums = torch.stack([squares, torch.tensor(loss, dtype=torch.float64)])
    dist.all_reduce(sums)
    factor = largest / (sums[0].sqrt().item() + 1e-6)
    if factor < 1:
        torch._foreach_mul_([p.grad for p in parameters], factor)
    return sums[1].item()


def pipeline_step(model, arguments, read):
    """A function that makes a step of this rank's stage; read(step) gives the rows of all its
    microbatches."""
    rank, num_stages, blocks, options = (
        dist.get_rank(),
        dist.get_world_size(),
        arguments.blocks,
        arguments.options,
    )
    begin, is_first, is_last = sum(blocks[:rank]), rank == 0, rank == num_stages - 1
    model.keep(slice(begin, begin + blocks[rank]), is_first, is_last)
    parameters = list(model.parameters())
    optimizer = adamw(parameters, options)
    num_targets = options["rows"] * arguments.num_microbatches * arguments.shape["context"]

    def loss_of_microbatch(logits, targets):
        return (
            F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / num_targets
        )

    stage = PipelineStage(model, rank, num_stages, torch.device("cpu"))
    schedule = SCHEDULES[arguments.parallel](
        stage, arguments.num_microbatches, loss_of_microbatch, scale_grads=False
    )  # it is divided already

    def train_step(step):
        (tokens, targets), parts = read(step), []
        of_first, of_last = (
            [tokens] if is_first else [],
            {"target": targets, "losses": parts} if is_last else {},
        )
        schedule.step(*of_first, **of_last, return_outputs=False)
        loss = clip(parameters, options["clip_norm"], sum(part.item() for part in parts))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return train_step


# ---- layers in parts ---------------------------------------------------------------------------------------------------


class AttentionOfHeads(nn.Module):
    """A block's attention with three products in place of a joint one, whose thirds ColwiseParallel
    cannot tell apart."""

    def __init__(self, attn, head_channels):
        super().__init__()
        self.d, joint = head_channels, attn.c_attn
        for i, name in enumerate("qkv"):
            linear = nn.Linear(joint.in_features, joint.in_features)
            linear.weight.data = joint.weight.data.chunk(3)[i].contiguous()
            linear.bias.data = joint.bias.data.chunk(3)[i].contiguous()
            setattr(self, name, linear)
        self.c_proj = attn.c_proj

    def forward(self, x):
        q, k, v = (
            product(x).unflatten(2, (-1, self.d)).transpose(1, 2)
            for product in (self.q, self.k, self.v)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(mixed.transpose(1, 2).flatten(2))


def cut_block(block, mesh):
    block.attn = AttentionOfHeads(block.attn, block.ln_1.weight.numel() // block.heads)
    columns = dict.fromkeys(("attn.q", "attn.k", "attn.v", "mlp.c_fc"), ColwiseParallel())
    rows = dict.fromkeys(("attn.c_proj", "mlp.c_proj"), RowwiseParallel())
    parallelize_module(block, mesh, columns | rows)

    def forward(x):
        x = x + block.attn(block.ln_1(x))
        hidden = F.gelu(block.mlp.c_fc(block.ln_2(x)), approximate="tanh")
        return x + block.mlp.c_proj(hidden)

    block.forward = forward


def tensor_step(model, arguments, read):
    """A function that makes a step of this rank's parts; all ranks read the same rows."""
    options = arguments.options
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.h:
        cut_block(block, mesh)
    head = ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
    plan = {"wte": RowwiseParallel(input_layouts=Replicate()), "lm_head": head}
    parallelize_module(model, mesh, plan)
    cut = [p for p in model.parameters() if isinstance(p, DTensor)]
    whole = [p for p in model.parameters() if not isinstance(p, DTensor)]
    optimizers = [adamw(parameters, options) for parameters in (cut, whole)]

    def clip_all():
        # The gradients of a bias of RowwiseParallel, and of an embedding, are DTensors, and whole.
        parts = [p.grad.to_local() for p in cut if p.grad.placements[0].is_shard()]
        wholes = [p.grad.to_local() for p in cut if not p.grad.placements[0].is_shard()]
        grads = [parts, wholes + [p.grad for p in whole]]
        of_cut, of_whole = (
            sum(norm.double() ** 2 for norm in torch._foreach_norm(of)) for of in grads
        )
        dist.all_reduce(of_cut)
        factor = options["clip_norm"] / ((of_cut + of_whole).sqrt().item() + 1e-6)
        if factor < 1:
            torch._foreach_mul_(sum(grads, []), factor)

    def train_step(step):
        tokens, targets = read(step)
        with loss_parallel():
            logits = model(tokens).flatten(0, 1)
            loss = F.cross_entropy(logits, targets.flatten(), reduction="sum") / targets.numel()
            loss.backward()
        clip_all()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return loss.full_tensor().item() if isinstance(loss, DTensor) else loss.item()

    return train_step


# ---- everything else ---------------------------------------------------------------------------------------------------


def whole_model_step(model, arguments, read):
    """A function that makes a step of the model, on this rank's rows."""
    options, device = arguments.options, arguments.device
    masters = Masters(list(model.parameters())) if arguments.precision == "masters" else None
    if arguments.precision in ("bf16", "masters"):
        model.to(torch.bfloat16)
    model.train()
    parameters = masters.copies if masters else list(model.parameters())
    if dist.is_initialized():
        model, optimizer = make_parallel(model, parameters, options, arguments.parallel)
        parameters = list(model.parameters())
    else:
        optimizer = adamw(parameters, options)
    compute_loss = torch.compile(loss_of) if arguments.compile else loss_of

    def train_step(step):
        tokens, targets = read(step)
        loss = compute_loss(
            model, tokens.to(device), targets.to(device), arguments.precision == "autocast"
        )
        loss.backward()
        if masters:
            masters.take_gradients()
        torch.nn.utils.clip_grad_norm_(parameters, options["clip_norm"])
        optimizer.step()
        if masters:
            masters.round_to_parameters()
        else:
            optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        if device == "cuda":
            torch.cuda.synchronize()  # or the clock is read before the optimizer has finished
        return value

    return train_step


def parse_arguments():
    """The options that race.py passes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=["module", "huggingface"], required=True)
    parser.add_argument(
        "--parallel",
        choices=["ddp", "zero1", "fsdp-zero2", "fsdp-zero3", "tensor", *SCHEDULES],
        default="ddp",
    )
    parser.add_argument("--num-microbatches", type=int, default=1, help="of a pipeline")
    parser.add_argument(
        "--blocks",
        type=lambda text: [int(count) for count in text.split(",")],
        help="of each stage",
    )
    parser.add_argument(
        "--precision",
        choices=["fp32", "bf16", "masters", "autocast"],
        default="fp32",
        help="bf16: of the parameters; masters: the same with fp32 masters; autocast: fp32 parameters, bf16 products",
    )
    parser.add_argument(
        "--device", choices=["cpu", "cuda"], default="cpu", help="cuda: one GPU, one process"
    )
    parser.add_argument(
        "--compile", action="store_true", help="forward and loss through torch.compile; one process"
    )
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--shape", type=json.loads, required=True)
    parser.add_argument("--options", type=json.loads, required=True)
    parser.add_argument("--num-steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    shape, rows = arguments.shape, arguments.options["rows"]
    torch.set_num_threads(arguments.threads)
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    model = (Gpt if arguments.kind == "module" else HuggingFace)(**shape)
    load(model, arguments.checkpoint)
    model.to(arguments.device)
    num_parameters = sum(p.numel() for p in model.parameters())
    if world_size > 1:
        dist.init_process_group("gloo")
    data = np.memmap(arguments.data, dtype="<u2", mode="r")
    if arguments.parallel in SCHEDULES:  # whose stages have the rows in common
        rows, place, make_step = rows * arguments.num_microbatches, (0, 1), pipeline_step
    elif arguments.parallel == "tensor":
        place, make_step = (0, 1), tensor_step
    else:
        place, make_step = (rank, world_size), whole_model_step
    train_step = make_step(
        model, arguments, lambda step: read_batch(data, step, rows, shape["context"], *place)
    )
    del model

    step_seconds, losses = [], []
    for step in range(arguments.num_steps):
        start = time.perf_counter()
        losses.append(train_step(step))
        step_seconds.append(time.perf_counter() - start)
    run = {"num_parameters": num_parameters, "step_seconds": step_seconds, "losses": losses}
    run["torch_version"] = torch.__version__
    if arguments.device == "cuda":
        run["peak_bytes"] = torch.cuda.max_memory_allocated()
    print(json.dumps(run), flush=True)
    if world_size > 1:
        dist.destroy_process_group()
        # DDP's destructor must not do it: it holds Python's lock while it joins gloo's thread,
        # which may be waiting for that lock (seen with torch 2.13.0).
        os._exit(0)


if __name__ == "__main__":
    main()

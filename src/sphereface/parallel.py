"""The few collectives that we use: every process calls them in the same order, and in one process they do nothing.

Messages are tensors and JSON, never pickles. Each sum is computed on one rank and sent to the others, so that all ranks
have the same bits.
"""

import json
import multiprocessing
import os
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from sphereface.errors import JobFailed, UserError

PATIENCE = timedelta(minutes=30)  # collective timeout; longer than an evaluation on rank 0
BUCKET = 25_000_000  # bytes of small tensors sent as one message: large enough to hide the cost of a message


def rank() -> int:
    """The number of this process, from 0."""
    return int(dist.get_rank()) if _begun() else 0


def ranks() -> int:
    """The number of processes."""
    return int(dist.get_world_size()) if _begun() else 1


def begin(device: str | torch.device = "cpu") -> torch.device:
    """Join the process group of `torchrun`, if it started several processes, and return this process's device.

    CPUs communicate through gloo, CUDA devices through nccl. A CUDA process takes the device of its local rank; a
    single process takes the device given.
    """
    chosen = torch.device(device)
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return chosen
    if str(chosen) not in ("cpu", "cuda"):
        raise UserError(f"device is {chosen}; several processes take cpu, or cuda, where each gets its own device")
    if chosen.type == "cuda":
        place, count = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        if place >= count:
            raise UserError(f"process {place} of this machine finds {count} CUDA devices; start one process a device")
        chosen = torch.device("cuda", place)
        torch.cuda.set_device(chosen)
    if not _begun():
        dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo", timeout=PATIENCE)
    return chosen


def end() -> None:
    """Leave the process group."""
    if _begun():
        dist.destroy_process_group()


def barrier() -> None:
    """Wait for all processes."""
    if ranks() > 1:
        dist.barrier()


def all_gather(tensor: Tensor) -> Tensor:
    """The tensors of all ranks, all of one shape, stacked in the order of the ranks: (...) -> (R, ...)."""
    if ranks() == 1:
        return tensor[None]
    own = _bytes(tensor)
    gathered = own.new_empty(ranks(), len(own))
    dist.all_gather(list(gathered), own)
    _count("all_gather", (ranks() - 1) * len(own))
    return gathered.view(tensor.dtype).view(ranks(), *tensor.shape)


def exchange(parts: Tensor) -> Tensor:
    """Send part i to rank i, and return the parts that the ranks sent to this one: (R, ...) -> (R, ...)."""
    assert len(parts) == ranks()
    if ranks() == 1:
        return parts
    sent = _bytes(parts)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    _count("exchange", len(sent) - len(sent) // ranks())
    return received.view(parts.dtype).view(parts.shape)


def sum_of_own_rows(rows: Tensor) -> Tensor:
    """The rank's own share of the rows of the sum over the ranks: (R b, ...) -> (b, ...)."""
    return exchange(rows.reshape(ranks(), -1, *rows.shape[1:])).sum(0)


def all_reduce_sum_(tensors: Iterable[Tensor]) -> None:
    """Replace tensors by their sums over the ranks."""
    if ranks() > 1:
        for flat in _flat_buckets(tensors):
            dist.all_reduce(flat)
            _count("all_reduce", 2 * (ranks() - 1) * flat.nbytes // ranks())


def all_reduce_mean_(tensors: Iterable[Tensor]) -> None:
    """Replace tensors, such as gradients, by their means over the ranks."""
    tensors = list(tensors)
    all_reduce_sum_(tensors)
    if ranks() > 1:
        for tensor in tensors:
            tensor /= ranks()


def broadcast_(tensors: Iterable[Tensor]) -> None:
    """Replace tensors by those of rank 0."""
    if ranks() > 1:
        for flat in _flat_buckets(tensors):
            dist.broadcast(flat, 0)
            _count("broadcast", flat.nbytes if rank() == 0 else 0)


def share_json(value: Any) -> Any:
    """The value of rank 0, on all ranks, after a round trip through JSON: a tuple becomes a list, also on one rank."""
    text = json.dumps(value if rank() == 0 else None).encode()
    if ranks() == 1:
        return json.loads(text)
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    size = torch.tensor([len(text)], device=device)
    broadcast_([size])
    letters = torch.frombuffer(bytearray(text.ljust(int(size))), dtype=torch.uint8)[: int(size)].to(device)
    broadcast_([letters])
    return json.loads(letters.cpu().numpy().tobytes())


def gather_json(value: Any) -> list[Any]:
    """The values of all ranks, in the order of the ranks, on each of them, after a round trip through JSON."""
    text = json.dumps(value).encode()
    if ranks() == 1:
        return [json.loads(text)]
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    sizes = all_gather(torch.tensor([len(text)], device=device)).flatten().tolist()
    letters = torch.frombuffer(bytearray(text.ljust(max(sizes))), dtype=torch.uint8).to(device)
    rows = all_gather(letters).cpu().numpy()
    return [json.loads(row[:size].tobytes()) for row, size in zip(rows, sizes, strict=True)]


def on_first(work: Callable[[], Any]) -> Any:
    """Run `work` on rank 0 while the others wait; all return its result, as JSON, or raise an error if it fails."""
    result, failure = None, None
    if rank() == 0:
        try:
            result = json.loads(json.dumps(work()))
        except Exception as error:  # noqa: BLE001 sent to the other ranks before it is raised here
            failure = error
    result, reason = share_json([result, None if failure is None else f"{type(failure).__name__}: {failure}"])
    if failure is not None:
        raise failure
    if reason is not None:
        raise JobFailed(f"the first of {ranks()} processes failed: {reason}")
    return result


def gather_batch(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Features (b, D) and labels (b,) of all ranks, concatenated, b the same on all; `GatherRows` has the gradient."""
    if ranks() == 1:
        return features, labels
    return GatherRows.apply(features), all_gather(labels).flatten(0, 1)  # type: ignore[no-untyped-call]


class GatherRows(torch.autograd.Function):
    """The rows of all ranks: (b, D) -> (R b, D), for a loss that every rank computes on all of them.

    The gradient is R x that of a rank's own rows, because the network is under DistributedDataParallel, which
    *averages* gradients over the ranks, while the gradient of a loss of the whole batch is the *sum* over its rows.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        """The rows of all ranks, in the order of the ranks."""
        ctx.own = slice(rank() * len(rows), (rank() + 1) * len(rows))
        return all_gather(rows).flatten(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        """R x the gradient of the rank's own rows; no communication, since every rank computes the whole loss."""
        return grad_output[ctx.own] * ranks()


@contextmanager
def count_bytes() -> Iterator[Counter[str]]:
    """Count the bytes that this process sends inside the context, by collective.

    Headers and the traffic of DistributedDataParallel are not included. Gathered and reduced tensors are counted as
    sent around a ring, exchanged ones directly; rank 0 counts one copy of a broadcast.
    """
    counter: Counter[str] = Counter()
    _counters.append(counter)
    try:
        yield counter
    finally:
        _counters.pop()


def launch(
    work: Callable[..., Any], count: int, *arguments: Any, device: str = "cpu", patience: float | None = None
) -> list[Any]:
    """Run `work(*arguments)` in `count` new processes of one process group on this machine; their results, as JSON.

    For tests and measurements; a training run is started by `torchrun`. `work` must be importable by name. The
    processes join the group by `begin(device)`. After `patience` seconds without a result, all are terminated.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # reserves a free port
    context = multiprocessing.get_context("spawn")
    processes, receivers = [], {}
    for place in range(count):
        receivers[place], sender = context.Pipe(duplex=False)
        task = (sender, place, count, store.port, device, work, *arguments)
        processes.append(context.Process(target=_run_rank, args=task))
        processes[-1].start()
        sender.close()
    results: dict[int, Any] = {}
    try:
        while len(results) < count:
            waiting = {place: receiver for place, receiver in receivers.items() if place not in results}
            if not wait(waiting.values(), patience):
                raise RuntimeError(f"{len(waiting)} of {count} processes have no result after {patience:g} s")
            results |= {place: _result(each, place) for place, each in waiting.items() if each.poll()}
    finally:
        for process in processes:
            if len(results) < count:
                process.terminate()  # one failed, and the others would wait for it
            process.join()
    return [results[place] for place in range(count)]


def _result(receiver: Connection, place: int) -> Any:
    try:
        message = json.loads(receiver.recv_bytes())
    except EOFError as error:
        raise RuntimeError(f"process {place} exited without a result") from error
    if "failure" in message:
        raise RuntimeError(f"process {place} failed: {message['failure']}")
    return message["result"]


def _run_rank(
    sender: Connection, place: int, count: int, port: int, device: str, work: Callable[..., Any], *arguments: Any
) -> None:
    """Set the environment as `torchrun` does, run the work and send its result or failure."""
    os.environ |= {"RANK": str(place), "LOCAL_RANK": str(place), "WORLD_SIZE": str(count)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    try:
        begin(device)
        message = {"result": work(*arguments)}
        end()
    except BaseException:  # noqa: BLE001 the parent process raises it
        message = {"failure": traceback.format_exc()}
    sender.send_bytes(json.dumps(message).encode())


_counters: list[Counter[str]] = []


def _count(collective: str, sent: int) -> None:
    for counter in _counters:
        counter[collective] += sent


def _begun() -> bool:
    return dist.is_available() and dist.is_initialized()


def _bytes(tensor: Tensor) -> Tensor:
    """A tensor's memory as bytes, a type that every backend can send."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _flat_buckets(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield tensors joined to flat ones of about BUCKET bytes; changes are copied back on the next request."""
    bucket: list[Tensor] = []
    for tensor in tensors:
        size = sum(each.nbytes for each in (*bucket, tensor))
        if bucket and (size > BUCKET or (bucket[0].dtype, bucket[0].device) != (tensor.dtype, tensor.device)):
            yield from _flat(bucket)
            bucket = []
        bucket.append(tensor.detach())
    yield from _flat(bucket)


def _flat(bucket: list[Tensor]) -> Iterator[Tensor]:
    if len(bucket) == 1 and bucket[0].is_contiguous():
        yield bucket[0].view(-1)  # a large tensor is not copied
    elif bucket:
        flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
        yield flat
        for tensor, values in zip(bucket, torch.split(flat, [tensor.numel() for tensor in bucket]), strict=True):
            tensor.copy_(values.view_as(tensor))

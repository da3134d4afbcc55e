"""The few collectives that we use: every process calls them in the same order, and in one process they do nothing.

What the processes tell each other is tensors and JSON; nothing is pickled. Each sum is made in one place and told to
those who want it, so that all have the same bits.
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

PATIENCE = timedelta(minutes=30)  # as long may one process keep the others waiting, for an evaluation say
BUCKET = 25_000_000  # bytes of small tensors that travel together: what one message costs no longer counts


def rank() -> int:
    """The number of this process, from 0."""
    return int(dist.get_rank()) if _begun() else 0


def ranks() -> int:
    """How many processes there are."""
    return int(dist.get_world_size()) if _begun() else 1


def begin(device: str | torch.device = "cpu") -> torch.device:
    """Join the other processes, if `torchrun` started any, and say which device is ours; alone, it is the one given.

    CPUs talk through gloo, CUDA devices through nccl; a process takes the device of its place on its machine.
    """
    chosen = torch.device(device)
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return chosen
    if str(chosen) not in ("cpu", "cuda"):
        raise UserError(f"device is {chosen}; several processes take cpu, or cuda and each its own device of that kind")
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
    """Leave the other processes."""
    if _begun():
        dist.destroy_process_group()


def barrier() -> None:
    """Wait for all processes."""
    if ranks() > 1:
        dist.barrier()


def all_gather(tensor: Tensor) -> Tensor:
    """The tensors of all ranks, which are of one shape, in the order of the ranks: (...) -> (R, ...)."""
    if ranks() == 1:
        return tensor[None]
    own = _bytes(tensor)
    gathered = own.new_empty(ranks(), len(own))
    dist.all_gather(list(gathered), own)
    _count("all_gather", (ranks() - 1) * len(own))
    return gathered.view(tensor.dtype).view(ranks(), *tensor.shape)


def exchange(parts: Tensor) -> Tensor:
    """Part i goes to rank i, and from each rank comes the part that is for this one: (R, ...) -> (R, ...)."""
    assert len(parts) == ranks()
    if ranks() == 1:
        return parts
    sent = _bytes(parts)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    _count("exchange", len(sent) - len(sent) // ranks())
    return received.view(parts.dtype).view(parts.shape)


def sum_of_own_rows(rows: Tensor) -> Tensor:
    """The sum over the ranks, of which each gets its share of the rows only: (R b, ...) -> (b, ...)."""
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
    """What rank 0 gave, in all processes, as JSON gives it back: a tuple comes as a list, in one process as well."""
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
    """What every process gave, in the order of the ranks and in all of them, as JSON gives it back."""
    text = json.dumps(value).encode()
    if ranks() == 1:
        return [json.loads(text)]
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    sizes = all_gather(torch.tensor([len(text)], device=device)).flatten().tolist()
    letters = torch.frombuffer(bytearray(text.ljust(max(sizes))), dtype=torch.uint8).to(device)
    return [
        json.loads(row[:size].cpu().numpy().tobytes()) for row, size in zip(all_gather(letters), sizes, strict=True)
    ]


def on_first(work: Callable[[], Any]) -> Any:
    """Let rank 0 do something while the others wait; all get its result, as JSON, or an error if it fails."""
    result, failure = None, None
    if rank() == 0:
        try:
            result = json.loads(json.dumps(work()))
        except Exception as error:  # noqa: BLE001 the others must hear of it before it is raised here
            failure = error
    result, reason = share_json([result, None if failure is None else f"{type(failure).__name__}: {failure}"])
    if failure is not None:
        raise failure
    if reason is not None:
        raise JobFailed(f"the first of {ranks()} processes failed: {reason}")
    return result


def gather_batch(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Features (b, D) and labels (b,) of all ranks, one after the other; every rank brings as many.

    The gradient of the gathered features comes back as `GatherRows` says.
    """
    if ranks() == 1:
        return features, labels
    return GatherRows.apply(features), all_gather(labels).flatten(0, 1)  # type: ignore[no-untyped-call]


class GatherRows(torch.autograd.Function):
    """The rows of all ranks: (b, D) -> (R b, D), for a loss that every rank computes on all of them.

    Back comes R x the gradient of a rank's own rows. The R is there because the network is under
    DistributedDataParallel, which *averages* gradients over the ranks, while the gradient of a loss of the whole batch
    is the *sum* of what its rows contribute.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        """Every rank's rows, in the order of the ranks."""
        ctx.own = slice(rank() * len(rows), (rank() + 1) * len(rows))
        return all_gather(rows).flatten(0, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        """Nothing is sent: what the loss made of the other rows, their ranks know."""
        return grad_output[ctx.own] * ranks()


@contextmanager
def count_bytes() -> Iterator[Counter[str]]:
    """Count what this process sends meanwhile, in bytes, by collective.

    Headers and what DistributedDataParallel sends are not in it. A gathered or reduced tensor travels around a ring,
    an exchanged one straight; of a broadcast, rank 0 counts one copy.
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
    """Run `work(*arguments)` in fresh processes of this machine that know each other; what each returns, as JSON.

    For tests and measurements; a training run is started by `torchrun`. `work` must be importable by name. The
    processes talk as those of `begin(device)` do. If none has an answer for `patience` seconds, all are ended.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # finds a free port and keeps it
    context = multiprocessing.get_context("spawn")
    processes, receivers = [], []
    for place in range(count):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_take_part, args=(sender, place, count, store.port, device, work, arguments))
        process.start()
        sender.close()
        processes.append(process)
        receivers.append(receiver)
    answers: dict[int, Any] = {}
    try:
        while len(answers) < count:
            if not wait([receiver for place, receiver in enumerate(receivers) if place not in answers], patience):
                raise RuntimeError(f"{count - len(answers)} of {count} processes have no answer after {patience:g} s")
            for place, receiver in enumerate(receivers):
                if place not in answers and receiver.poll():
                    answers[place] = _answer(receiver, place)
    finally:
        for process in processes:
            if len(answers) < count:
                process.terminate()  # one failed, and the others would wait for it
            process.join()
    return [answers[place] for place in range(count)]


def _answer(receiver: Connection, place: int) -> Any:
    try:
        answer = json.loads(receiver.recv_bytes())
    except EOFError as error:
        raise RuntimeError(f"process {place} died without a word") from error
    if "failure" in answer:
        raise RuntimeError(f"process {place} failed: {answer['failure']}")
    return answer["result"]


def _take_part(
    sender: Connection,
    place: int,
    count: int,
    port: int,
    device: str,
    work: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    """What `torchrun` would set, then the work."""
    os.environ |= {"RANK": str(place), "LOCAL_RANK": str(place), "WORLD_SIZE": str(count)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    try:
        begin(device)
        answer = {"result": work(*arguments)}
        end()
    except BaseException:  # noqa: BLE001 whatever it is, the parent tells
        answer = {"failure": traceback.format_exc()}
    sender.send_bytes(json.dumps(answer).encode())


_counters: list[Counter[str]] = []


def _count(collective: str, sent: int) -> None:
    for counter in _counters:
        counter[collective] += sent


def _begun() -> bool:
    return dist.is_available() and dist.is_initialized()


def _bytes(tensor: Tensor) -> Tensor:
    """A tensor's memory: bytes are a type that every backend carries."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _flat_buckets(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """Tensors joined to flat ones of about a bucket; what is written there goes back when the next is asked for."""
    bucket: list[Tensor] = []
    for tensor in tensors:
        if bucket and not _fits(bucket, tensor):
            yield from _flat(bucket)
            bucket = []
        bucket.append(tensor.detach())
    yield from _flat(bucket)


def _fits(bucket: list[Tensor], tensor: Tensor) -> bool:
    same = (bucket[0].dtype, bucket[0].device) == (tensor.dtype, tensor.device)
    return same and sum(other.nbytes for other in bucket) + tensor.nbytes <= BUCKET


def _flat(bucket: list[Tensor]) -> Iterator[Tensor]:
    if len(bucket) == 1 and bucket[0].is_contiguous():
        yield bucket[0].view(-1)  # large ones are not copied
    elif bucket:
        flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
        yield flat
        for tensor, values in zip(bucket, torch.split(flat, [tensor.numel() for tensor in bucket]), strict=True):
            tensor.copy_(values.view_as(tensor))

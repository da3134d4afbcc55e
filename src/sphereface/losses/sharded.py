"""Any loss over several processes, with the same result as in one process."""

from torch import Tensor

from sphereface import parallel
from sphereface.losses.base import FaceLoss
from sphereface.losses.classifier import Classifier
from sphereface.losses.euclidean import Center, Contrastive, Triplet
from sphereface.losses.successors import SphereFacePlus

# Losses over pairs of samples, centers or the classes of a batch: their mean over shares of a batch differs from their
# value on the batch.
SEES_WHOLE_BATCH = (Contrastive, Triplet, Center, SphereFacePlus)


def global_loss(loss: FaceLoss, features: Tensor, labels: Tensor) -> Tensor:
    """The loss over the batches of all processes; each gives its share (b, D), (b,), all of one size.

    The gradient is R x that of the process's own features, for a network under DistributedDataParallel, which averages
    over the processes. The parameters of a loss that every process holds whole need their gradients averaged as well,
    by `parallel.all_reduce_mean_`; those of a shard are complete. The value of a loss over single samples is that of
    the process's own share: `global_mean` gives that of all. In one process this is `loss(features, labels)`.
    """
    if sees_whole_batch(loss):
        features, labels = parallel.gather_batch(features, labels)
    return loss(features, labels)  # type: ignore[no-any-return]


def global_mean(value: Tensor) -> Tensor:
    """The value of the whole batch, for a log, from the values of `global_loss` in the processes; the same in all."""
    mean = value.detach().clone()
    parallel.all_reduce_mean_([mean])
    return mean


def sees_whole_batch(loss: FaceLoss) -> bool:
    """True if a loss needs the batches of all processes gathered for it; a shard gathers them itself."""
    return isinstance(loss, SEES_WHOLE_BATCH) and not (isinstance(loss, Classifier) and loss.sharded)

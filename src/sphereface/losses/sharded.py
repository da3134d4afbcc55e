"""Any loss over many processes: what each must see, so that their number changes nothing."""

from torch import Tensor

from sphereface import parallel
from sphereface.losses.base import FaceLoss
from sphereface.losses.classifier import Classifier
from sphereface.losses.euclidean import Center, Contrastive, Triplet
from sphereface.losses.successors import SphereFacePlus

# They look at pairs of samples, move centers, or sum over the classes of a batch, and not sample by sample: their
# mean over shares of a batch is not their value on the batch.
SEES_WHOLE_BATCH = (Contrastive, Triplet, Center, SphereFacePlus)


def global_loss(loss: FaceLoss, features: Tensor, labels: Tensor) -> Tensor:
    """The loss of all processes' batches together, each of which gives its own share (b, D), (b,) of one size.

    The gradient is what a network under DistributedDataParallel needs, which averages over the processes: R x that of
    the process's own features. A loss that every process holds whole wants its own gradients averaged as well, with
    `parallel.all_reduce_mean_`; those of a shard are complete. Sample by sample, the value is that of the process's own
    share: `global_mean` makes it that of all. In one process this is `loss(features, labels)`.
    """
    if sees_whole_batch(loss):
        features, labels = parallel.gather_batch(features, labels)
    return loss(features, labels)  # type: ignore[no-any-return]


def global_mean(value: Tensor) -> Tensor:
    """The value of the whole batch, for a log, from what `global_loss` gave in each process; the same in all."""
    mean = value.detach().clone()
    parallel.all_reduce_mean_([mean])
    return mean


def sees_whole_batch(loss: FaceLoss) -> bool:
    """Whether a loss must be handed the batches of all processes; a shard fetches them itself."""
    return isinstance(loss, SEES_WHOLE_BATCH) and not (isinstance(loss, Classifier) and loss.sharded)

"""Every loss a second time: dense logits, angles by acos, gradients by autograd. Slow and plain on purpose."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def trigonometric_psi(theta: Tensor, m: int) -> Tensor:
    k = (m * theta.detach() / math.pi).floor().clamp_max(m - 1)
    return (-1.0) ** k * torch.cos(m * theta) - 2 * k


def angles(x: Tensor, w: Tensor) -> Tensor:
    cos = F.normalize(x) @ F.normalize(w).t()
    return torch.acos(cos.clamp(-1 + 1e-12, 1 - 1e-12))


def with_target(logits: Tensor, labels: Tensor, target: Tensor) -> Tensor:
    hot = F.one_hot(labels, logits.shape[1]).bool()
    return torch.where(hot, target[:, None] if target.ndim == 1 else target, logits)


def a_softmax(x: Tensor, w: Tensor, labels: Tensor, *, m: int = 4, lambda_: float = 0.0) -> Tensor:
    theta, length = angles(x, w), x.norm(dim=1, keepdim=True)
    hard = (lambda_ * torch.cos(theta) + trigonometric_psi(theta, m)) / (1 + lambda_)
    return F.cross_entropy(with_target(length * torch.cos(theta), labels, length * hard), labels)


def l_softmax(x: Tensor, w: Tensor, labels: Tensor, *, m: int = 4, lambda_: float = 0.0) -> Tensor:
    theta, length = angles(x, w), x.norm(dim=1, keepdim=True) * w.norm(dim=1)
    hard = (lambda_ * torch.cos(theta) + trigonometric_psi(theta, m)) / (1 + lambda_)
    return F.cross_entropy(with_target(length * torch.cos(theta), labels, length * hard), labels)


def softmax(x: Tensor, w: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(x @ w.t(), labels)


def modified_softmax(x: Tensor, w: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(x @ F.normalize(w).t(), labels)


def normface(x: Tensor, w: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(30 * torch.cos(angles(x, w)), labels)


def cosface(x: Tensor, w: Tensor, labels: Tensor) -> Tensor:
    cos = torch.cos(angles(x, w))
    return F.cross_entropy(64 * with_target(cos, labels, cos - 0.35), labels)


def arcface(x: Tensor, w: Tensor, labels: Tensor) -> Tensor:
    theta = angles(x, w)
    beyond = torch.cos(theta) - 0.5 * math.sin(0.5)
    hard = torch.where(theta < math.pi - 0.5, torch.cos(theta + 0.5), beyond)
    return F.cross_entropy(64 * with_target(torch.cos(theta), labels, hard), labels)


def sphereface_r(
    x: Tensor, w: Tensor, labels: Tensor, *, m: float = 1.5, version: str = "v1", normalization: str = "hard"
) -> Tensor:
    theta = angles(x, w)
    cos = torch.cos(theta)
    if version == "v1":
        wanted = with_target(cos, labels, torch.cos((m * theta).clamp_max(math.pi)))
    else:
        wanted = with_target(torch.cos(theta / m), labels, cos)
    length = x.norm(dim=1, keepdim=True) if normalization != "hard" else 30.0
    loss = F.cross_entropy(length * (cos + (wanted - cos).detach()), labels)  # only the plain cosine is differentiated
    return loss + (0.01 * (x.norm(dim=1) - 30) ** 2).mean() if normalization == "soft" else loss


def contrastive(x: Tensor, w: Tensor, labels: Tensor) -> Tensor:
    u, cost, pairs = F.normalize(x), [], 0
    for i in range(len(u)):
        for j in range(i):
            d = (u[i] - u[j]).norm()
            cost.append(d**2 / 2 if labels[i] == labels[j] else (1 - d).clamp_min(0) ** 2 / 2)
            pairs += 1
    return softmax(x, w, labels) + 0.05 * sum(cost) / pairs


def center(x: Tensor, w: Tensor, labels: Tensor) -> Tensor:
    return softmax(x, w, labels) + 0.003 * (x**2).sum(1).mean() / 2  # centers start at zero


def sphereface_plus(x: Tensor, w: Tensor, labels: Tensor) -> Tensor:
    u, energy, count = F.normalize(w), 0.0, 0
    for i in labels.unique().tolist():
        for j in range(len(u)):
            if i != j:
                energy, count = energy + 1 / (u[i] - u[j]).norm() ** 2, count + 1
    return a_softmax(x, w, labels, lambda_=1000 / 1.12) + energy / count


def sphereface2(x: Tensor, w: Tensor, labels: Tensor, *, bias: float | Tensor) -> Tensor:
    g = 2 * ((torch.cos(angles(x, w)) + 1) / 2) ** 3 - 1
    hot = F.one_hot(labels, len(w)).to(g.dtype)
    positive = 0.7 / 40 * torch.log1p(torch.exp(-40 * (g - 0.4) - bias))
    negative = 0.3 / 40 * torch.log1p(torch.exp(40 * (g + 0.4) + bias))
    return (hot * positive + (1 - hot) * negative).sum(1).mean()

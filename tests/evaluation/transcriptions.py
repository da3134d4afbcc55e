"""The scripts by which accuracies were published, line by line and slowly; rows are pairs."""

import numpy as np


def authors(lefts, rights, flags, fold):
    """evaluation.m of the paper's authors; flags are 1 and -1. Returns accuracies and thresholds."""
    accs, found = [], []
    for i in np.unique(fold):
        val, test = np.flatnonzero(fold != i), np.flatnonzero(fold == i)
        mu = np.concatenate([lefts[val], rights[val]]).mean(0)
        a, b = lefts - mu, rights - mu
        a = a / np.sqrt((a**2).sum(1))[:, None]
        b = b / np.sqrt((b**2).sum(1))[:, None]
        scores = (a * b).sum(1)
        threshold = get_threshold(scores[val], flags[val], 10_000)
        accs.append(get_accuracy(scores[test], flags[test], threshold))
        found.append(threshold)
    return np.array(accs), np.array(found)


def get_threshold(scores, flags, thr_num):
    thresholds = np.arange(-thr_num, thr_num + 1) / thr_num
    accuracies = get_accuracy(scores, flags, thresholds[:, None])  # all thresholds at once: the loop takes minutes
    return thresholds[accuracies == accuracies.max()].mean()


def get_accuracy(scores, flags, threshold):
    return ((scores[flags == 1] > threshold).sum(-1) + (scores[flags != 1] < threshold).sum(-1)) / len(scores)


def insightface(image, mirror, issame, folds):
    """verification.py of InsightFace: features of both images of each pair in turn. Returns accuracies, thresholds."""
    embeddings = image + mirror
    norms = np.sqrt((embeddings**2).sum(1))
    embeddings = embeddings / np.where(norms == 0, 1, norms)[:, None]
    thresholds = np.arange(0, 4, 0.01)
    dist = np.sum(np.square(np.subtract(embeddings[0::2], embeddings[1::2])), 1)
    indices = np.arange(len(issame))
    accuracy, found = [], []
    for test_set in np.array_split(indices, folds):  # KFold without shuffling
        train_set = np.setdiff1d(indices, test_set)
        acc_train = np.zeros(len(thresholds))
        for threshold_idx, threshold in enumerate(thresholds):
            acc_train[threshold_idx] = calculate_accuracy(threshold, dist[train_set], issame[train_set])
        best = thresholds[np.argmax(acc_train)]
        accuracy.append(calculate_accuracy(best, dist[test_set], issame[test_set]))
        found.append(best)
    return np.array(accuracy), np.array(found)


def calculate_accuracy(threshold, dist, actual_issame):
    predict_issame = np.less(dist, threshold)
    tp = np.sum(np.logical_and(predict_issame, actual_issame))
    tn = np.sum(np.logical_and(np.logical_not(predict_issame), np.logical_not(actual_issame)))
    return float(tp + tn) / dist.size

"""The experiments by ID: captions, and the module of each; imports nothing of them, so that a list is fast."""

from typing import NamedTuple


class Entry(NamedTuple):
    """An experiment: what it shows, its module in `experiments.paper`, and the function there."""

    caption: str
    module: str
    function: str = "run"


CATALOGUE: dict[str, Entry] = {
    "table1": Entry("Table 1: decision boundaries of two classes, derived numerically and drawn", "table1"),
    "table2": Entry("Table 2: the networks: layers, parameters, multiply-adds, images per second", "table2"),
    "table3": Entry("Table 3: effect of m on LFW and YTF", "table3"),
    "table4": Entry("Table 4: all losses on LFW and YTF", "table4"),
    "table5": Entry("Table 5: all losses on MegaFace: rank 1 and verification", "table5"),
    "fig-open-closed": Entry("Figure 1: closed-set against open-set protocol on the same features", "fig_open_closed"),
    "fig-toy2d": Entry("Figure 2: 2-D features of two people with three losses", "fig_toy2d"),
    "fig-geometry": Entry("Figure 3: regions of the constraints of three losses, in 2-D and 3-D", "fig_geometry"),
    "fig-pipeline": Entry("Figure 4: training and extraction of features, made from the real objects", "fig_pipeline"),
    "fig-sphere": Entry("Figure 5: 3-D features of six people on the sphere, and their angles", "fig_sphere"),
    "fig-depth": Entry("Figure 6: softmax and A-Softmax by depth on LFW and YTF", "fig_depth"),
    "fig-megaface": Entry("Figure 7: CMC and ROC curves on MegaFace", "fig_megaface"),
    "properties": Entry("Section 3.4: the properties of A-Softmax, checked numerically", "properties"),
    "discussion": Entry("Section 3.5: pairs, triplets and samples; psi; L-Softmax's margin", "discussion"),
    "app-relu": Entry("Appendix A: 2-D digits with and without the last ReLU", "app_relu"),
    "app-norms": Entry("Appendix B: lengths of class weights against sizes of classes", "app_norms"),
    "app-biases": Entry("Appendix C: learned biases of the last layer", "app_biases"),
    "app-bias": Entry("Appendix C: 2-D digits with and without biases", "app_bias"),
    "app-mnist": Entry("Appendix D: digits with softmax and A-Softmax m = 2, 3, 4", "app_mnist"),
    "app-ablation": Entry("Appendix E: ablation A to G: accuracy and angular Fisher score", "app_ablation"),
    "app-depth": Entry("Appendix F: identification and verification by depth", "app_depth"),
    "app-annealing": Entry("Appendix G: schedules of lambda: loss and accuracy", "app_annealing"),
    "app-ensemble": Entry("Appendix H: ensembles of 1 to 5 patches", "app_ensemble"),
    "claims": Entry("Numbers of the text against the tables, and the paper against its code", "claims"),
    "synthetic": Entry(
        "Beyond the paper: five losses on synthetic faces, the study behind the demo", "beyond", "synthetic"
    ),
    "difficulty": Entry("Beyond the paper: how hard the synthetic faces are", "beyond", "difficulty"),
    "real-faces": Entry("Beyond the paper: softmax and A-Softmax on 311 people, tested on LFW", "beyond", "real_faces"),
    "planted-bias": Entry("Beyond the paper: a group that was starved in training is found", "beyond", "planted_bias"),
}

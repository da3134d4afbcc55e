"""Options that several protocols share: each has one name and one help text."""

from pathlib import Path
from typing import Annotated

import typer

from sphereface import choices

# What turns faces into features, or the features themselves.
Models = Annotated[
    list[Path] | None,
    typer.Option(
        "--model", metavar="FILE", help="A .safetensors of ours, or any .onnx with a card; repeated: an ensemble."
    ),
]
Stored = Annotated[
    list[Path] | None,
    typer.Option(
        "--features", metavar="FOLDER", help="Instead of --model: a folder that `embed` wrote; repeated: joined models."
    ),
]
Engine = Annotated[choices.Engine, typer.Option(help="auto: onnxruntime, or torch for another --device.")]
FeatureRule = Annotated[
    choices.FeatureRule | None,
    typer.Option(help="Image and mirror image concatenated (the paper), summed, or the image alone; else the card's."),
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Of the network; else one a core.")]

# How pairs are judged.
Rule = Annotated[choices.PairRule, typer.Option(help="Where mean and threshold come from, and what a tie is worth.")]
AllRules = Annotated[bool, typer.Option("--all-rules", help="All rules side by side.")]
Missing = Annotated[
    choices.Missing,
    typer.Option(help="Images that are not there or cannot be read: skip leaves them out, counts and names them."),
]
Fars = Annotated[
    list[float] | None,
    typer.Option("--at-far", metavar="RATE", help="Report TAR at this false accept rate; may be repeated."),
]
Fpirs = Annotated[
    list[float] | None,
    typer.Option("--at-fpir", metavar="RATE", help="Report open-set rates at this FPIR; may be repeated."),
]
Rounds = Annotated[int, typer.Option(min=2, help="Of the bootstrap over people, for 95 % intervals.")]
Seed = Annotated[int, typer.Option(min=0, help="Of whatever is drawn by lot.")]

# Groups of people.
Groups = Annotated[
    Path | None,
    typer.Option(help="CSV with `person` or `path` and a column for each attribute: error rates of groups."),
]
GroupFar = Annotated[float, typer.Option("--far", help="False match rate of the one threshold for all --groups.")]
Threshold = Annotated[
    float | None,
    typer.Option(help="A threshold for --groups instead of that of --far, such as a calibrated one."),
]
Aligned = Annotated[
    Path | None,
    typer.Option(help="The folder that `data align` made, for failures to detect in --groups."),
]
Small = Annotated[choices.Small, typer.Option(help="Groups too small to judge: an error, or left out and listed.")]

# What is told.
Out = Annotated[Path | None, typer.Option(help="Folder for result.json and report.html.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]

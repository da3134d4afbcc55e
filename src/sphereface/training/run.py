"""A training run: faces and a recipe in, a folder out, with a model, checkpoints, a log and a report."""

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from sphereface import parallel
from sphereface.contract import Card, Preprocessing
from sphereface.errors import JobFailed
from sphereface.loading import FaceLoader, ReadyFaces, Replaced
from sphereface.losses.classifier import Classifier
from sphereface.models import save_model
from sphereface.progress import Say
from sphereface.training.allocation import keep_freed_memory
from sphereface.training.checkpoints.reading import Checkpoint, forget_after, newest_checkpoint, open_checkpoint, prune
from sphereface.training.config import ANNEALED, TrainConfig
from sphereface.training.guard import Guard, Lost
from sphereface.training.learner import Learner, build_learner
from sphereface.training.optimizer import set_rate
from sphereface.training.setting import (
    CHECKPOINTS,
    Place,
    beginning,
    build_loader,
    choose_device,
    circumstances,
    claim,
    gather_faces,
)
from sphereface.training.step import Report, learn
from sphereface.training.stopping import Stop, stop_on_signals
from sphereface.training.telling.live import LiveLine
from sphereface.training.telling.log import RunLog, last_rollback, to_stderr
from sphereface.training.telling.preview import preview
from sphereface.training.telling.report import write_report
from sphereface.training.validation import TRAINED_ON, Hardest, Validation, ValidationScores, hardest, validate

MODEL = "model.safetensors"
LOOK = 10  # steps between two looks at what they measured: a GPU need not wait for the host at each
SHOWN = 300  # pairs of either kind in the report of a run that sets nobody aside
UNKNOWN_HEIGHT = ("triplet", "sphereface2")  # losses of which nothing is known to stand still at log K

Outcome = Literal["finished", "interrupted", "failed"]


@dataclass(frozen=True)
class Trained:
    """How a run ended."""

    outcome: Outcome
    step: int
    model: Path | None
    scores: ValidationScores | None

    def as_dict(self) -> dict[str, Any]:
        """The end, as JSON takes it."""
        model, scores = self.model and str(self.model), self.scores and self.scores.as_dict()
        return {"outcome": self.outcome, "step": self.step, "model": model, "validation": scores}


def train(config: TrainConfig, place: Place, *, say: Say = to_stderr, stop: Stop | None = None) -> Trained:
    """Train until the last step, or until a request to stop; every process of several calls it.

    In the main thread Ctrl-C and SIGTERM are such requests. A caller makes one by setting `stop.asked`, from any
    thread.
    """
    stop = stop or Stop()
    device = parallel.begin(choose_device(place.device))
    if device.type == "cpu":
        keep_freed_memory()
    claim(config, place)
    first = parallel.rank() == 0
    say = say if first else _nothing
    if config.norm == "batch" and parallel.ranks() > 1:
        say(
            f"batch norm takes its statistics from the {config.batch // parallel.ranks()} faces of each process: "
            "another number of processes learns something else"
        )
    faces, validation = gather_faces(config, place, say)
    learner = build_learner(config, len(faces.people), device, place.init)
    with ExitStack() as stack:
        run = Run(config, place, learner, build_loader(config, place, faces, device), validation, faces, say)
        start = run.resume()
        if first:
            run.log = stack.enter_context(
                RunLog(
                    place.out, tensorboard=place.tensorboard, resume=start or None, told=circumstances(place, device),
                    say=say,
                )
            )  # fmt: skip
            run.line = stack.enter_context(LiveLine(config.steps, start=start))
            run.say = run.line.say
            if not start:
                run.log.write("start", 0, beginning(config, place, faces, validation, device))
                if learner.rollbacks:  # of an attempt that was killed before its first checkpoint
                    run.log.write("rollback", 0, {"reason": "in an earlier attempt", **learner.pace()})
        try:
            with stop_on_signals(stop):
                outcome = run.steps(stop)
        except JobFailed as error:
            run.finish("failed", reason=str(error))
            raise
        return run.finish(outcome)


@dataclass
class Run:
    """A run under way."""

    config: TrainConfig
    place: Place
    learner: Learner
    loader: FaceLoader
    validation: Validation | None
    faces: ReadyFaces
    say: Say
    log: RunLog | None = None
    line: LiveLine | None = None
    scores: ValidationScores | None = None  # the last ones
    shown: Hardest | None = None  # the pairs that went most wrong in them
    best: tuple[float, int] | None = None  # accuracy and step of the best validation
    waiting: list[tuple[int, Report]] = field(default_factory=list)  # steps whose numbers nobody looked at yet
    replaced: Replaced = field(default_factory=Replaced)  # what was said of it last

    def __post_init__(self) -> None:
        loss = self.learner.loss
        if self.config.loss in UNKNOWN_HEIGHT or not isinstance(loss, Classifier):
            self.guard = Guard(self.config.guard, None)
        else:
            self.guard = Guard(self.config.guard, loss.compared(self.config.batch))
        self.folder = self.place.out / CHECKPOINTS
        self.net = spread(self.learner.net)

    def steps(self, stop: Stop) -> Outcome:
        """Learn from batch after batch; where the run is lost, take it back and go on."""
        while self.loader.step < self.config.steps:
            lost = None
            for batch in self.loader:
                self.set_rate(batch.step)
                report = learn(
                    self.net, self.learner.loss, self.learner.optimizer, self.learner.scaler,
                    batch.images, batch.labels, self.config,
                )  # fmt: skip
                if self.learner.mean is not None:
                    self.learner.mean.update_parameters(self.learner.net)
                self.waiting.append((batch.step, report))
                done = batch.step + 1
                due = self.is_due(done)
                need_not_agree = stop.asked and parallel.ranks() == 1  # several agree at a look, or one would wait
                if due or done % LOOK == 0 or need_not_agree:
                    lost = self.look()
                    stopping = stop.agreed()
                    if lost is None and (due or stopping):
                        self.pause(done, save=due or stopping)
                    if lost is not None:
                        break
                    if stopping and done < self.config.steps:
                        return "interrupted"
            if lost is not None:
                self.roll_back(lost)
        return "finished"

    def set_rate(self, step: int) -> None:
        """The rate of a step, less what rollbacks took off."""
        lr = self.config.lr_at(step) * self.learner.lr_factor
        set_rate(self.learner.optimizer, lr, caffe_momentum=self.config.caffe_momentum)

    def is_due(self, done: int) -> bool:
        """Whether something else than learning happens after so many steps."""
        every = (self.config.checkpoint_every, self.config.validate_every)
        return done == self.config.steps or any(period and done % period == 0 for period in every)

    def look(self) -> Lost | None:
        """Look at what the last steps measured, tell of it, and say if the run is lost."""
        numbers = [(step, float(report.loss), float(report.gradient_norm)) for step, report in self.waiting]
        self.waiting.clear()
        for step, loss, norm in numbers:
            lost = self.guard.watch(step, loss, norm)
            if lost is not None:
                return lost
        if self.line is not None and self.log is not None and numbers:
            step, loss, norm = numbers[-1]
            mean = sum(loss for _, loss, _ in numbers) / len(numbers)
            lr, lambda_ = self.config.lr_at(step) * self.learner.lr_factor, self.learner.lambda_
            self.line.update(step + 1, loss=mean, lr=lr, images=len(numbers) * self.config.batch, lambda_=lambda_)
            speed = self.line.meter.images_per_second
            told = {"loss": mean, "lr": lr, "lambda": lambda_, "gradient_norm": norm, "images_per_second": speed}
            self.log.write("step", step + 1, told)
        return None

    def pause(self, done: int, *, save: bool) -> None:
        """Validate if it is time, and save."""
        self.tell_replaced(done)
        every = self.config.validate_every
        if self.validation is not None and (done == self.config.steps or (every and done % every == 0)):
            self.validate(done)
        if save:
            self.save(done)

    def tell_replaced(self, done: int) -> None:
        """Say how many faces other ones had to replace, if these are more than before."""
        before, self.replaced = self.replaced, self.loader.replaced_in_all()
        if self.replaced.places == before.places:
            return
        self.say(f"step {done:,}: {self.replaced}")
        if self.log is not None:
            self.log.write("note", done, {"text": str(self.replaced)})

    def validate(self, done: int) -> None:
        """Score the network on the people that it is validated on, and tell of it."""
        told = self.score()
        if self.best is None or told["accuracy"] > self.best[0]:
            self.best = told["accuracy"], done
        if self.log is not None:
            self.log.write("validation", done, told)
        self.say(f"step {done:,}: accuracy {told['accuracy']:.2%} on {told['whose']}")

    def score(self) -> dict[str, Any]:
        """What the network is worth now; the first process finds out, the others wait."""

        def work() -> dict[str, Any]:
            judged = self.validation or known_people(self.faces, self.config)
            if judged is None:
                return {}
            self.scores = validate(self.learner.model, judged, workers=self.place.workers)
            self.shown = hardest(judged, self.scores)
            return self.scores.as_dict()

        told: dict[str, Any] = parallel.on_first(work)
        return told

    def save(self, done: int) -> None:
        """Write a checkpoint, and drop old ones."""
        state = {
            "loader": self.loader.state_dict(),
            "best": list(self.best) if self.best else None,
            "guard": list(self.guard.losses),
        }
        path = self.learner.save(self.folder, done, state)
        if parallel.rank() == 0:
            prune(self.folder, keep=self.config.keep, best=self.best[1] if self.best else None)
        if self.log is not None:
            self.log.write("checkpoint", done, {"path": path.name})

    def resume(self) -> int:
        """Go on with the newest whole checkpoint, if that was asked for and there is one; returns the step."""
        if not self.place.resume:
            return 0
        found = parallel.on_first(self._tidy_and_find)
        if found is None:
            self.say(f"{self.place.out}: no checkpoint to resume from; the run begins")
            self.recall_rollbacks()
            return 0
        self.restore(open_checkpoint(self.folder / found, verify=False))
        self.recall_rollbacks()
        self.say(f"resumed at step {self.loader.step:,}")
        return self.loader.step

    def recall_rollbacks(self) -> None:
        """Go on as slowly as before where a run was killed after a rollback and before its next checkpoint."""
        last = parallel.on_first(lambda: last_rollback(self.place.out, self.loader.step))
        if last is not None and last.get("rollbacks", 0) > self.learner.rollbacks:
            self.learner.set_pace(last["lr_factor"], last["gamma_factor"], last["rollbacks"])
            self.guard.forget()

    def _tidy_and_find(self) -> str | None:
        """Remove what a killed run was writing; returns the name of the newest whole checkpoint."""
        for part in filter(Path.is_file, self.place.out.glob(".*.part")):
            part.unlink()
        return _newest(self.folder, self.say, forget_broken=True)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take everything back to a checkpoint."""
        self.learner.load(checkpoint, say=self.say)
        loader: Any = checkpoint.state["loader"]
        self.loader.load_state_dict(loader)
        guard: Any = checkpoint.state["guard"]
        self.guard.losses.extend(guard)
        best: Any = checkpoint.state["best"]
        self.best = (best[0], best[1]) if best else None

    def roll_back(self, lost: Lost) -> None:
        """Take a lost run back to its last good checkpoint, or to its beginning, and slow it down."""
        rule, slowed = self.config.guard, self.learner.rollbacks
        # Step n begins with the weights of n steps. What the last good step left, the bad one began with.
        good = parallel.on_first(lambda: _good(self.folder, lost.good_until, self.say))
        if slowed >= rule.rollbacks:
            kept = f"the last good checkpoint is {self.folder / good}" if good else "no checkpoint was made before that"
            raise JobFailed(f"{lost.reason}, after {slowed} rollbacks; {lost.advice}; {kept}")
        lr_factor, gamma_factor = self.learner.lr_factor, self.learner.gamma_factor
        if good is None:
            self.learner = build_learner(self.config, self.learner.loss.classes, self.learner.device, self.place.init)
            self.loader.step, self.best = 0, None
        else:
            self.restore(open_checkpoint(self.folder / good, verify=False))
        self.learner.set_pace(lr_factor, gamma_factor, slowed)
        self.learner.slow_down()
        self.net = spread(self.learner.net)
        self.guard.forget()
        self.waiting.clear()
        back = self.loader.step
        pace = f"rate x {self.learner.lr_factor:g}, gamma x {self.learner.gamma_factor:g}"
        self.say(f"{lost.reason}: back to step {back:,}, {pace}")
        if self.log is not None and self.line is not None:
            self.log.write("rollback", back, {"reason": lost.reason, **self.learner.pace()})
            self.line.meter.rewind(back)
        parallel.barrier()

    def report(self) -> None:
        """Write the page of the run, as far as it went."""
        if parallel.rank() == 0:
            write_report(self.place.out, scores=self.scores, hardest=self.shown)

    def finish(self, outcome: Outcome, *, reason: str | None = None) -> Trained:
        """Write the report and the model."""
        model = self.place.out / MODEL
        if self.log is not None:
            end = {"outcome": outcome, "reason": reason, **self.replaced.as_dict()}
            self.log.write("end", self.loader.step, end)
        unscored = outcome != "failed" and not any(parallel.gather_json(self.scores is not None))
        if unscored and outcome == "interrupted":
            self.report()  # at once: who asked to stop may not wait for more
            self.say("scoring what was learned, for the report; Ctrl-C leaves that out")
        if unscored:
            try:
                self.score()
            except KeyboardInterrupt:
                if outcome == "finished":
                    raise
        self.report()
        if parallel.rank() == 0 and outcome == "finished":  # the model last: where it is, the run counts as finished
            card = Card(name=self.place.out.resolve().name, preprocessing=_preprocessing(self.config))
            save_model(self.learner.model, model, card)
        parallel.barrier()
        return Trained(
            outcome,
            self.loader.step,
            model if outcome == "finished" else None,
            self.scores if self.validation else None,
        )


def known_people(faces: ReadyFaces, config: TrainConfig) -> Validation | None:
    """Some of the people who are trained on, for the report of a run that sets nobody aside; None without any pair."""
    photos = np.bincount(faces.labels)
    if photos.max() < 2 or np.count_nonzero(photos) < 2:
        return None
    some = Validation.of_people(faces.images, pairs=SHOWN, seed=config.seed, crop=config.crop, missing="skip")
    return replace(some, whose=TRAINED_ON)


def spread(net: nn.Module) -> nn.Module:
    """A network whose gradients are averaged over the processes, if there are several."""
    return nn.parallel.DistributedDataParallel(net) if parallel.ranks() > 1 else net


def preview_run(config: TrainConfig, out: Path) -> Path:
    """Draw what a recipe's rate, lambda and margin will do, and train nothing."""
    schedule = config.annealing.build() if config.annealing else None
    lambdas = schedule(torch.arange(1, config.steps + 1)).tolist() if schedule else None
    m = int(config.options().get("m", 4)) if config.loss in ANNEALED else None  # without annealing, m itself
    page = out / "preview.html"
    preview([config.lr_at(step) for step in range(config.steps)], lambdas, m).write(page)
    return page


def is_finished(out: Path) -> bool:
    """Whether a run came to its end."""
    return (out / MODEL).is_file()


def _nothing(_: str) -> None:
    """Said by a process that is not the first."""


def _newest(folder: Path, say: Say, *, forget_broken: bool = False) -> str | None:
    found = newest_checkpoint(folder, say=say)
    if found and forget_broken:
        forget_after(folder, found.step)  # or broken ones would be counted among the last that are kept
    return found.path.name if found else None


def _good(folder: Path, last: int, say: Say) -> str | None:
    """The newest whole checkpoint of at most so many steps; later ones are forgotten."""
    forget_after(folder, last)
    return _newest(folder, say)


def _preprocessing(config: TrainConfig) -> Preprocessing:
    return Preprocessing(template=config.template, crop=config.crop)

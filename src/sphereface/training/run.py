"""A training run: from faces and a recipe to a folder with a model, checkpoints, a log and a report."""

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from sphereface import parallel
from sphereface.contract import Card, Preprocessing
from sphereface.errors import JobFailed
from sphereface.loading import FaceLoader, ReadyFaces, Replaced
from sphereface.losses.classifier import Classifier
from sphereface.models import save_model
from sphereface.progress import Say, mute, spoken, unseen
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
    build_targets,
    choose_device,
    circumstances,
    claim,
    gather_faces,
)
from sphereface.training.step import Report, learn
from sphereface.training.stopping import Stop, stop_on_signals
from sphereface.training.teaching import Targets
from sphereface.training.telling.live import LiveLine
from sphereface.training.telling.log import RunLog, last_rollback, to_stderr
from sphereface.training.telling.preview import preview
from sphereface.training.telling.report import write_report
from sphereface.training.validation import TRAINED_ON, Hardest, Validation, ValidationScores, hardest, validate

MODEL = "model.safetensors"
LOOK = 10  # steps between two readings of their numbers; reading at each step would stall a GPU
SHOWN = 300  # pairs of either kind in the report of a run without validation
UNKNOWN_HEIGHT = ("triplet", "sphereface2")  # losses without a known plateau height

Outcome = Literal["finished", "interrupted", "failed"]


@dataclass(frozen=True)
class Trained:
    """The result of a run."""

    outcome: Outcome
    step: int
    model: Path | None
    scores: ValidationScores | None

    def as_dict(self) -> dict[str, Any]:
        """The result for JSON."""
        model, scores = self.model and str(self.model), self.scores and self.scores.as_dict()
        return {"outcome": self.outcome, "step": self.step, "model": model, "validation": scores}


def train(config: TrainConfig, place: Place, *, say: Say = to_stderr, stop: Stop | None = None) -> Trained:
    """Train until the last step, or until a request to stop; with several processes, each calls it.

    In the main thread Ctrl-C and SIGTERM are such requests. A caller makes one by setting `stop.asked` in any thread.
    """
    stop = stop or Stop()
    device = parallel.begin(choose_device(place.device))
    if device.type == "cpu":
        keep_freed_memory()
    claim(config, place)
    first = parallel.rank() == 0
    say = say if first else mute
    if config.norm is not None and parallel.ranks() > 1:
        say(
            f"batch norm takes its statistics from the {config.batch // parallel.ranks()} faces of each process: "
            "the result depends on the number of processes"
        )
    faces, validation = gather_faces(config, place, say)
    targets = build_targets(config, place, faces, spoken(say) if first else unseen)
    classes, means = len(faces.people) - len(place.unlabelled), None
    if targets is not None and config.teaching is not None and config.teaching.class_weights == "teacher":
        means = targets.class_means(classes)
    learner = build_learner(config, classes, device, place.init, means)
    with ExitStack() as stack:
        run = Run(
            config, place, learner, build_loader(config, place, faces, device), validation, faces, say, targets, means
        )
        start = run.resume()
        if first:
            fields = circumstances(place, device)
            log = RunLog(place.out, tensorboard=place.tensorboard, resume=start or None, fields=fields, say=say)
            run.log = stack.enter_context(log)
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
    """The state of a run, and its steps."""

    config: TrainConfig
    place: Place
    learner: Learner
    loader: FaceLoader
    validation: Validation | None
    faces: ReadyFaces
    say: Say
    targets: Targets | None = None  # of the teacher
    class_means: Tensor | None = None  # of the teacher, if they are the class weights
    log: RunLog | None = None
    line: LiveLine | None = None
    scores: ValidationScores | None = None  # of the last validation
    shown: Hardest | None = None  # and its hardest pairs
    best: tuple[float, int] | None = None  # accuracy and step of the best validation
    waiting: list[tuple[int, Report]] = field(default_factory=list)  # steps with numbers that are not read yet
    replaced: Replaced = field(default_factory=Replaced)  # the faces replaced so far, as last logged

    def __post_init__(self) -> None:
        loss, classes = self.learner.loss, None
        if isinstance(loss, Classifier) and self.config.loss not in UNKNOWN_HEIGHT and self.targets is None:
            classes = loss.compared(self.config.batch)
        self.guard = Guard(self.config.guard, classes)
        self.folder = self.place.out / CHECKPOINTS
        self.net = spread(self.learner.net)

    def steps(self, stop: Stop) -> Outcome:
        """Train batch by batch; a lost run is rolled back and continues."""
        while self.loader.step < self.config.steps:
            lost = None
            for batch in self.loader:
                self.set_rate(batch.step)
                targets = self.targets.of(batch.rows, batch.views).to(self.learner.device) if self.targets else None
                report = learn(
                    self.net, self.learner.loss, self.learner.optimizer, self.learner.scaler,
                    batch.images, batch.labels, self.config, targets,
                )  # fmt: skip
                if self.learner.mean is not None:
                    self.learner.mean.update_parameters(self.learner.net)
                self.waiting.append((batch.step, report))
                done = batch.step + 1
                due = self.is_due(done)
                stop_now = stop.asked and parallel.ranks() == 1  # several processes agree at a look, or one would wait
                if due or done % LOOK == 0 or stop_now:
                    lost = self.look()
                    stopping = stop.agreed()
                    if lost is not None:
                        break
                    if due or stopping:
                        self.pause(done)
                    if stopping and done < self.config.steps:
                        return "interrupted"
            if lost is not None:
                self.roll_back(lost)
        return "finished"

    def set_rate(self, step: int) -> None:
        """Set the rate of a step, times the factor of rollbacks."""
        lr = self.config.lr_at(step) * self.learner.lr_factor
        set_rate(self.learner.optimizer, lr, caffe_momentum=self.config.caffe_momentum)

    def is_due(self, done: int) -> bool:
        """True if a checkpoint or a validation is due after `done` steps."""
        every = (self.config.checkpoint_every, self.config.validate_every)
        return done == self.config.steps or any(period and done % period == 0 for period in every)

    def look(self) -> Lost | None:
        """Read the numbers of the last steps, log and show them; returns why the run is lost, or None."""
        numbers = [(step, float(report.loss), float(report.gradient_norm)) for step, report in self.waiting]
        agreements = [float(report.agreement) for _, report in self.waiting if report.agreement is not None]
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
            values = {"loss": mean, "lr": lr, "lambda": lambda_, "gradient_norm": norm, "images_per_second": speed}
            agreement = {"agreement": sum(agreements) / len(agreements)} if agreements else {}
            self.log.write("step", step + 1, {**values, **agreement})
        return None

    def pause(self, done: int) -> None:
        """Validate if that is due, and save."""
        self.tell_replaced(done)
        every = self.config.validate_every
        if self.validation is not None and (done == self.config.steps or (every and done % every == 0)):
            self.validate(done)
        self.save(done)

    def tell_replaced(self, done: int) -> None:
        """Note how many unreadable faces were replaced by others, if there are more than before."""
        before, self.replaced = self.replaced, self.loader.replaced_in_all()
        if self.replaced.places == before.places:
            return
        self.say(f"step {done:,}: {self.replaced}")
        if self.log is not None:
            self.log.write("note", done, {"text": str(self.replaced)})

    def validate(self, done: int) -> None:
        """Score the network on the validation pairs, and log the scores."""
        scores = self.score()
        if self.best is None or scores["accuracy"] > self.best[0]:
            self.best = scores["accuracy"], done
        if self.log is not None:
            self.log.write("validation", done, scores)
        self.say(f"step {done:,}: accuracy {scores['accuracy']:.2%} on {scores['whose']}")

    def score(self) -> dict[str, Any]:
        """The scores of the network, computed on rank 0; empty if there are no pairs."""

        def work() -> dict[str, Any]:
            validation = self.validation or known_people(self.faces, self.config, self.learner.loss.classes)
            if validation is None:
                return {}
            self.scores = validate(
                self.learner.model, validation, workers=self.place.workers, feature_rule=self.config.feature_rule
            )
            self.shown = hardest(validation, self.scores)
            return self.scores.as_dict()

        scores: dict[str, Any] = parallel.on_first(work)
        return scores

    def save(self, done: int) -> None:
        """Write a checkpoint, and remove old ones."""
        best = list(self.best) if self.best else None
        state = {"loader": self.loader.state_dict(), "best": best, "guard": list(self.guard.losses)}
        path = self.learner.save(self.folder, done, state)
        if parallel.rank() == 0:
            prune(self.folder, keep=self.config.keep, best=self.best[1] if self.best else None)
        if self.log is not None:
            self.log.write("checkpoint", done, {"path": path.name})

    def resume(self) -> int:
        """Restore the newest whole checkpoint, if `resume` is set and there is one; returns the step."""
        if not self.place.resume:
            return 0
        found = parallel.on_first(self._tidy_and_find)
        if found is not None:
            self.restore(open_checkpoint(self.folder / found, verify=False))
        self.recall_rollbacks()
        none = f"{self.place.out}: no checkpoint to resume from; the run starts at step 0"
        self.say(none if found is None else f"resumed at step {self.loader.step:,}")
        return self.loader.step

    def recall_rollbacks(self) -> None:
        """Restore the pace of a run that was killed between a rollback and its next checkpoint."""
        last = parallel.on_first(lambda: last_rollback(self.place.out, self.loader.step))
        if last is not None and last.get("rollbacks", 0) > self.learner.rollbacks:
            self.learner.set_pace(last["lr_factor"], last["gamma_factor"], last["rollbacks"])
            self.guard.forget()

    def _tidy_and_find(self) -> str | None:
        """Remove unfinished files of a killed run; returns the name of the newest whole checkpoint."""
        for part in filter(Path.is_file, self.place.out.glob(".*.part")):
            part.unlink()
        found = newest_checkpoint(self.folder, say=self.say)
        if found is None:
            return None
        forget_after(self.folder, found.step)  # broken ones would count among the last that are kept
        return found.path.name

    def _last_good(self, until: int) -> str | None:
        """Remove the checkpoints after a step; returns the name of the newest whole one up to it."""
        forget_after(self.folder, until)
        found = newest_checkpoint(self.folder, say=self.say)
        return found.path.name if found else None

    def restore(self, checkpoint: Checkpoint) -> None:
        """Restore learner, loader, guard and best step from a checkpoint."""
        self.learner.load(checkpoint, say=self.say)
        state: dict[str, Any] = checkpoint.state
        self.loader.load_state_dict(state["loader"])
        self.guard.losses.extend(state["guard"])
        self.best = (state["best"][0], state["best"][1]) if state["best"] else None

    def roll_back(self, lost: Lost) -> None:
        """Restore the last good checkpoint of a lost run, or its start, and slow it down."""
        rule, slowed = self.config.guard, self.learner.rollbacks
        # Step n starts from checkpoint n: if step n is bad, so may be checkpoint n, and n - 1 is the last good one.
        good = parallel.on_first(lambda: self._last_good(lost.good_until))
        if slowed >= rule.rollbacks:
            kept = f"the last good checkpoint is {self.folder / good}" if good else "there is no earlier checkpoint"
            raise JobFailed(f"{lost.reason}, after {slowed} rollbacks; {lost.advice}; {kept}")
        lr_factor, gamma_factor = self.learner.lr_factor, self.learner.gamma_factor
        if good is None:
            classes, device = self.learner.loss.classes, self.learner.device
            self.learner = build_learner(self.config, classes, device, self.place.init, self.class_means)
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
        """Write the report of the run so far."""
        if parallel.rank() == 0 and self.place.report:
            write_report(self.place.out, scores=self.scores, hardest=self.shown)

    def finish(self, outcome: Outcome, *, reason: str | None = None) -> Trained:
        """Log the end, and write the report and the model."""
        model = self.place.out / MODEL
        if self.log is not None:
            self.log.write("end", self.loader.step, {"outcome": outcome, "reason": reason, **self.replaced.as_dict()})
        unscored = outcome != "failed" and not any(parallel.gather_json(self.scores is not None))
        if unscored and outcome == "interrupted":
            self.report()  # at once: scoring takes time, and may be interrupted
            self.say("scoring the network for the report; Ctrl-C skips that")
        if unscored:
            try:
                self.score()
            except KeyboardInterrupt:
                if outcome == "finished":
                    raise
        self.report()
        if parallel.rank() == 0 and outcome == "finished":  # the model last: it marks the run as finished
            preprocessing = Preprocessing(template=self.config.template, crop=self.config.crop)
            card = Card(
                name=self.place.out.resolve().name, preprocessing=preprocessing, feature_rule=self.config.feature_rule
            )
            save_model(self.learner.model, model, card)
        parallel.barrier()
        scores = self.scores if self.validation else None
        return Trained(outcome, self.loader.step, model if outcome == "finished" else None, scores)


def known_people(faces: ReadyFaces, config: TrainConfig, classes: int) -> Validation | None:
    """Pairs of people of the training set, for the report of a run without validation; None if there are no pairs."""
    named = np.flatnonzero(faces.labels < classes)
    photos = np.bincount(faces.labels[named])
    if photos.max() < 2 or np.count_nonzero(photos) < 2:
        return None
    validation = Validation.of_people(
        faces.images, named, pairs=SHOWN, seed=config.seed, crop=config.crop, missing="skip"
    )
    return replace(validation, whose=TRAINED_ON)


def spread(net: nn.Module) -> nn.Module:
    """The network in DistributedDataParallel, if there are several processes."""
    return nn.parallel.DistributedDataParallel(net) if parallel.ranks() > 1 else net


def preview_run(config: TrainConfig, out: Path) -> Path:
    """Write a page with a recipe's rate, lambda and margin over the steps, without training."""
    schedule = config.annealing.build() if config.annealing else None
    lambdas = schedule(torch.arange(1, config.steps + 1)).tolist() if schedule else None
    m = int(config.options().get("m", 4)) if config.loss in ANNEALED else None  # without annealing, m itself
    page = out / "preview.html"
    preview([config.lr_at(step) for step in range(config.steps)], lambdas, m).write(page)
    return page


def is_finished(out: Path) -> bool:
    """True if a run has reached its last step."""
    return (out / MODEL).is_file()

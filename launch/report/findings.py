"""The main results in sentences.  Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launch.core.drawing.charts import TIMES, figure
from launch.core.estimate.laws import Law
from launch.core.metrics import shown
from launch.core.runs import Run
from launch.report.cost import Reached, cost, reached
from launch.report.own import LEFT_OUT, Own, own_of
from launch.report.own import sentences as of_own
from launch.report.points import Point, counted, points, short, unit
from launch.report.series import Comparison, Series, Trial, compare, efficiency, law_of, named, scaling, speedup
from launch.report.series import sentence as law_in_words
from trainer.errors import SettingsError, did_you_mean

# A gap between single runs below this many points of accuracy is marked, as seeds differ by as much.
SEEDS_DIFFER = 1.0


def baseline_of(results: Sequence[Point], name: str, runs: Sequence[Run]) -> Point:
    """The point of the run with that name or folder.  Raises SettingsError if there is none, or several."""
    meant = [point for point in results if any(_is_named(run, name) for run in point.runs)]
    if len(meant) > 1:
        folders = [str(run.folder) for point in meant for run in point.runs if _is_named(run, name)]
        raise SettingsError(f"--baseline {name} is the name of several runs; give the folder of one: "
                            f"{', '.join(folders)}.")  # fmt: skip
    if meant:
        return meant[0]
    raise _unknown(name, [run.name for run in runs])


def _unknown(name: str, names: Sequence[str]) -> SettingsError:
    if name in names:
        return SettingsError(f"--baseline {name} has no measured epoch; give a run that has, or omit it.")
    return SettingsError(f"--baseline {name}: no run has that name{did_you_mean(name, names) or '.'}")


def _is_named(run: Run, name: str) -> bool:
    return run.name == name or run.folder.resolve() == Path(name).resolve()


def check_used(name: str | None, base: Point | None, series: Sequence[Series], compared: Comparison | None) -> None:
    """Raise SettingsError for a baseline that nothing can be compared with."""
    used = any(one.base is base for one in series) or (compared and base in compared.trials[0].points)
    if base and series and not used:
        raise SettingsError(
            f"--baseline {name} trained {base.per_gpu:,} images per GPU, {base.per_update:,} per update, and no series "
            "has that model, data set and batch; give a run of a series, or omit it."
        )


def learning(points: Sequence[Point], compared: Comparison | None, unit: str) -> list[str]:
    """Sentences on the best accuracy, and on the accuracy lost by large batches."""
    scored = [(end.value, point) for point in points if (end := point.ended_with("eval_top1"))]
    if not scored:
        return []
    accuracy, point = max(scored, key=lambda pair: pair[0])
    lines = [f"Best final eval accuracy: {accuracy:.1%} ({called(point, unit)})."]
    if compared:
        lines += _of_large_batches(compared)
    return lines


def _of_large_batches(compared: Comparison) -> list[str]:
    """The best and the worst recipe at the largest global batch, against the baseline."""
    zero = compared.baseline
    largest = max(trial.per_update for trial in compared.trials)
    if largest <= zero.per_update:
        return []
    trials = sorted((trial for trial in compared.trials if trial.per_update == largest), key=lambda one: -one.gap)
    texts = [f"{trials[0].recipe} {_gap(trials[0])}"]
    if len(trials) > 1:
        texts.append(f"{trials[-1].recipe} {_gap(trials[-1])}")
    against = f"against {zero.accuracy.value:.1f}% with {zero.per_update:,}"
    return [f"With {largest:,} images per update, {' and '.join(texts)}, {against}.{_caution(zero, trials)}"]


def _caution(zero: Trial, trials: Sequence[Trial]) -> str:
    """A warning if a small gap to the baseline may be chance."""
    extremes = [trials[0], trials[-1]]
    close = [trial for trial in extremes if abs(trial.gap) < SEEDS_DIFFER]
    is_single = any(sum(len(point.runs) for point in trial.points) == 1 for trial in (zero, *close))
    if close and is_single:
        return " Single runs: another seed may differ by as much."
    own = zero.accuracy
    if any(trial.accuracy.low <= own.high and own.low <= trial.accuracy.high for trial in extremes):
        return " With the ranges of their seeds the accuracies overlap: such a gap may be chance."
    return ""


def _gap(trial: Trial) -> str:
    """'loses 2.2 points', 'gains 0.4 points' or 'has the same accuracy'."""
    points = f"{abs(trial.gap):.1f}"
    if points == "0.0":
        return "has the same accuracy"
    return f"{'gains' if trial.gap > 0 else 'loses'} {points} points"


def called(point: Point, unit: str) -> str:
    """A point's name in a sentence: 'ddp, 8 x 100 images per GPU'."""
    return f"{point.label}, {point.replicas} {TIMES} {point.per_gpu:,} images per {short(unit)}"


@dataclass(frozen=True)
class Findings:
    """Everything that is computed from the runs."""

    runs: tuple[Run, ...]
    points: tuple[Point, ...]
    series: tuple[Series, ...]
    laws: tuple[tuple[Series, Law], ...]
    compared: Comparison | None
    unit: str  # GPU or CPU rank
    copies: tuple[str, ...] = ()  # names of duplicate runs
    unread: tuple[str, ...] = ()  # why runs could not be read
    target: float | None = None  # an accuracy in %
    reached: tuple[Reached, ...] = ()  # the points that reached it
    own: Own = field(default_factory=lambda: Own((), ()))  # the runs of scripts

    @property
    def is_of_scripts(self) -> bool:
        """Whether there are only runs of scripts, and none of the built-in trainer."""
        return bool(self.own.runs and not self.points)

    @property
    def best(self) -> Series | None:
        """The series with the most images per second; among equal ones, that with the most GPUs."""
        return max(self.series, key=lambda one: (_top(one), one.counts[-1]), default=None)

    def law_of(self, series: Series) -> Law | None:
        """The law fitted to `series`."""
        return next((law for one, law in self.laws if one is series), None)


def find(
    runs: Sequence[Run], baseline: str | None = None, *, target: float | None = None, unread: Sequence[str] = ()
) -> Findings:
    """Compute the findings.  baseline: name of the run to compare to; target: an accuracy in %, to find its price.

    Raises SettingsError for a baseline that is unknown, ambiguous, or cannot be compared with.
    """
    single, copies = _without_copies(runs)
    scripts = own_of(single)
    all_points = named(points(run for run in single if run not in scripts.runs))
    base = baseline_of(all_points, baseline, runs) if baseline else None
    series = scaling(all_points, base)
    compared = compare(all_points, base)
    check_used(baseline, base, series, compared)
    laws = [(one, law) for one in series if (law := law_of(one))]
    return Findings(
        tuple(runs), tuple(all_points), tuple(series), tuple(laws), compared, unit(runs), copies, tuple(unread), target,
        tuple(reached(all_points, target)) if target else (), scripts,
    )  # fmt: skip


def _without_copies(runs: Sequence[Run]) -> tuple[list[Run], tuple[str, ...]]:
    """The runs without copies, and the names of the copies.  Runs with equal times are copies."""
    own: dict[str, Run] = {}
    copies = []
    for run in runs:
        is_trainers = run.epochs and run.settings and not run.is_script  # a script's records may have no times
        content = repr((dict(run.settings), [dict(epoch) for epoch in run.epochs])) if is_trainers else str(run.folder)
        if own.setdefault(content, run) is not run:
            copies.append(run.name)
    return list(own.values()), tuple(copies)


def title(results: Findings) -> str:
    """The main finding, in one line."""
    best = results.best
    if best and (fast := speedup(best.points[-1], best.base)):
        last, times = best.points[-1], fast.value / best.base.replicas
        base, count = counted(best.base.replicas, results.unit), counted(last.replicas, results.unit)
        if times < 1:
            return f"{count} are slower than {base}: {figure(times)}{TIMES} its speed"
        share = 100 * fast.value / last.replicas
        return f"{count} train {figure(times)}{TIMES} as fast as {base}: {share:.0f}% efficiency"
    many = counted(len(results.runs), "run")
    if results.is_of_scripts:
        first = results.own.bests[:1]
        return (
            f"{many}: {first[0].word} {first[0].metric} {shown(first[0].value)}, by {first[0].run}" if first else many
        )
    if not results.points:
        return f"Nothing was measured: {many}, none with an epoch"
    most, least = (pick(point.replicas for point in results.points) for pick in (max, min))
    return (
        f"{many} on {counted(most, results.unit)}" if most == least else f"{many} on {least} to {most} {results.unit}s"
    )


def sentences(results: Findings) -> list[str]:
    """The findings in sentences, the most important first."""
    ours = [LEFT_OUT] if results.is_of_scripts else _of_trainer(results)
    return [
        *(of_own(results.own) if results.own.runs else []),
        *ours,
        *_of_failures(results),
        *_of_copies(results),
        *[f"One run cannot be read and is left out: {sentence}" for sentence in results.unread],
    ]


def _of_trainer(results: Findings) -> list[str]:
    """Findings from the built-in trainer's records."""
    return [
        *_of_scaling(results),
        *_of_communication(results),
        *learning(results.points, results.compared, results.unit),
        *_of_cost(results),
        *_of_target(results),
    ]


def _of_scaling(results: Findings) -> list[str]:
    best = results.best
    if best is None:
        return [f"No scaling can be shown: that needs the same settings on at least two numbers of {results.unit}s."]
    lines, last = [], best.points[-1]
    fast, share, before = speedup(last, best.base), efficiency(last, best.base), best.base.images_per_s
    if fast and share and before and last.images_per_s:
        lines.append(
            f"Best series, {best.title(results.unit)}: {figure(before.value)} images/s on "
            f"{counted(best.base.replicas, results.unit)}, {figure(last.images_per_s.value)} on {last.replicas}; "
            f"speedup {figure(fast.value)}, efficiency {share.value:.0f}%{_taking(best, results.unit)}."
        )
    fastest = _fastest(best)
    if fastest is not last:
        lines.append(
            f"The fastest of it are {counted(fastest.replicas, results.unit)}, with {figure(_speed(fastest))} images/s."
        )
    if law := results.law_of(best):
        lines.append(law_in_words(law, results.unit, best.counts[0]))
    return [*lines, *_of_certainty(results)]


def _of_certainty(results: Findings) -> list[str]:
    """A warning if the speeds of the best series rest on few measurements."""
    best = results.best
    assert best is not None
    lines, many = [], len(best.points)
    cold = sum(not any(run.is_warm for run in point.runs) for point in best.points)
    if cold:
        lines.append(
            f"{cold} of its {counted(many, 'point')} had one epoch only, with the start of workers, tuning and "
            "compilation in it; train two or more."
        )
    single = sum(len(point.runs) == 1 for point in best.points)
    if single:
        lines.append(f"{single} of its {counted(many, 'point')} rest on a single run; a range is that of its epochs.")
    return lines


def _taking(one: Series, unit: str) -> str:
    """The assumption behind a speedup over one GPU, where no run had one."""
    count = one.base.replicas
    return "" if count == 1 else f", taking {counted(count, unit)} for {figure(count)}{TIMES}"


def _of_communication(results: Findings) -> list[str]:
    shares = []
    for point in results.points:
        talking, step = point.measured("communication_ms"), point.measured("step_ms")
        if point.replicas > 1 and talking and step and step.value and talking.value:
            shares.append((talking.value / step.value, point))
    if not shares:
        return []
    least, most = min(shares, key=lambda pair: pair[0]), max(shares, key=lambda pair: pair[0])
    if f"{least[0]:.0%}" == f"{most[0]:.0%}":
        return [f"Communication takes {least[0]:.0%} of an update."]
    return [
        f"Communication takes {least[0]:.0%} of an update ({called(least[1], results.unit)}) to {most[0]:.0%} "
        f"({called(most[1], results.unit)})."
    ]


def _of_cost(results: Findings) -> list[str]:
    costs = [one for point in results.points if (one := cost(point)) and one.per_epoch]
    epochs = [(one.per_epoch.value, one.point) for one in costs if one.per_epoch]
    accuracies = [(one.per_accuracy.value, one.point) for one in costs if one.per_accuracy]
    return [
        *_cheapest("Cheapest epoch", epochs, results.unit),
        *_cheapest("Cheapest point of accuracy", accuracies, results.unit),
    ]


def _cheapest(name: str, prices: Sequence[tuple[float, Point]], unit: str) -> list[str]:
    if not prices:
        return []
    amount, point = min(prices, key=lambda pair: pair[0])
    return [f"{name}: {figure(amount)} USD ({called(point, unit)})."]


def _of_target(results: Findings) -> list[str]:
    """Where the target accuracy was reached first, and at the lowest cost."""
    if results.target is None:
        return []
    if not results.reached:
        return [f"No run reached {results.target:g}% of eval accuracy."]
    fastest, target = results.reached[0], f"{results.target:g}%"
    where = _at_point(fastest, results.unit)
    lines = [f"Fastest to {target} of eval accuracy: {figure(fastest.s.value)} s ({where})."]
    if paid := [(one.usd.value, index) for index, one in enumerate(results.reached) if one.usd]:
        amount, index = min(paid)
        where = _at_point(results.reached[index], results.unit)
        lines.append(f"Cheapest to {target}: {figure(amount)} USD ({where}).")
    return lines


def _at_point(one: Reached, unit: str) -> str:
    """The point, and if not all of its runs reached the target, how many did; the medians are over those."""
    many = len(one.point.runs)
    return called(one.point, unit) + ("" if one.runs == many else f"; {one.runs} of its {many} runs reached it")


def _of_failures(results: Findings) -> list[str]:
    failed = [run for run in results.runs if run.state == "failed"]
    if not failed:
        return []
    return [f"{counted(len(failed), 'run')} of {len(results.runs)} failed; see the table of runs for the reasons."]


def _of_copies(results: Findings) -> list[str]:
    many = len(results.copies)
    if not many:
        return []
    are = "run is a copy of another and counts" if many == 1 else "runs are copies of others and count"
    return [f"{many} {are} once: {', '.join(results.copies)}."]


def _top(one: Series) -> float:
    return _speed(_fastest(one))


def _fastest(one: Series) -> Point:
    return max(one.points, key=_speed)


def _speed(point: Point) -> float:
    return point.images_per_s.value if point.images_per_s else 0.0

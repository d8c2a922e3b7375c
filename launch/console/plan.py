"""The page that plans a job: a form of all settings, price and time while one types, and a start."""

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from launch.api import Client
from launch.console.web import data, page, world_of
from launch.core import backend, job_file
from launch.core.backend import Backend
from launch.core.cli import first_flags
from launch.core.options import Options
from launch.core.quote import price_of_all
from launch.core.training.options import SCRIPT_SECTION, TRAINS
from trainer.config import SECTIONS
from trainer.errors import SettingsError, check_name
from trainer.settings.argparser import as_text, choices_of, flag, help_of, kinds_of, metavar_of

LEFT_OUT = ("wait", "detach")  # a start from the page returns at once
PLAN_S = 30.0  # for which a plan is kept: prices and capacity were looked up for it


@dataclass(frozen=True)
class Input:
    """A setting in the form."""

    name: str
    flag: str
    help: str
    hint: str  # the default, or what a value looks like
    choices: Sequence[str]  # all that it can be; empty: any text
    value: str


Groups = list[tuple[str, list[Input]]]


class Start(Options):
    """What a page asks to start."""

    on: str
    values: dict[str, str]
    rehearse: bool = False
    most_usd: float | None = None  # the price that the user has approved


def plan(request: Request) -> Response:
    """The form, filled in with the settings in the address."""
    given = dict(request.query_params)
    chosen = backend.find(given.pop("on", "") or next(iter(backend.BACKENDS)))
    first, rest = form(chosen, given)
    return page(
        request,
        "plan.html.j2",
        backend=chosen,
        backends=[backend.find(name) for name in backend.BACKENDS],
        first=first,
        rest=rest,
        is_open=any(one.value for _, inputs in rest for one in inputs),
    )


def price(request: Request) -> Response:
    """The plan of the settings in the address: its text, price and time, and the commands that start it."""
    values = {name: value for name, value in request.query_params.items() if value.strip()}
    chosen = backend.find(values.pop("on", ""))
    world, key = world_of(request), ("plan", chosen.name, tuple(sorted(values.items())))
    client = next((one for one in world.clients if one.name == chosen.name), Client(chosen.module))
    return data(world.cache.get(key, lambda: planned(client, chosen, values), PLAN_S))


async def start(request: Request) -> Response:
    """Start the job, or its rehearsal, as a command of its own."""
    asked = Start.model_validate(await request.json())
    chosen = backend.find(asked.on)
    for name in asked.values:  # or it could be another flag, such as --help
        check_name("setting", name, _fields(chosen))
    words = (
        _rehearsal_words(chosen, asked.values) if asked.rehearse else _start_words(chosen, asked.values, asked.most_usd)
    )
    world = world_of(request)
    action = world.actions.start(["-m", chosen.module, *words])
    world.cache.forget()
    return data({"number": action.number})


# ---- the form


def _models(chosen: Backend) -> list[type[BaseModel]]:
    return [chosen.options, *TRAINS]


def _fields(chosen: Backend) -> dict[str, FieldInfo]:
    """The settings that the form asks for, by name."""
    fields = {name: field for model in _models(chosen) for name, field in model.model_fields.items()}
    return {name: field for name, field in fields.items() if name not in LEFT_OUT}


def form(chosen: Backend, given: Mapping[str, str]) -> tuple[Groups, Groups]:
    """The settings that most jobs need, and the others, each by heading.  given: what is filled in."""
    defaults = {**chosen.defaults, **job_file.user_defaults(_models(chosen), chosen)}
    inputs = {
        name: _input(name, field, defaults.get(name, field.default), given.get(name, ""))
        for name, field in _fields(chosen).items()
    }
    first = [
        (heading, [inputs.pop(name) for name in names if name in inputs])
        for heading, names in first_flags(chosen).items()
    ]
    rest = _by_section(chosen, inputs)
    return [group for group in first if group[1]], [group for group in rest if group[1]]


def _by_section(chosen: Backend, inputs: Mapping[str, Input]) -> Groups:
    """The inputs under the headings of --help-all."""
    groups: Groups = [(chosen.module, [])]
    headings = {**SCRIPT_SECTION, **SECTIONS}
    for name in _fields(chosen):
        if name in headings:
            groups.append((headings[name], []))
        if name in inputs:
            groups[-1][1].append(inputs[name])
    return groups


def _input(name: str, field: FieldInfo, default: Any, value: str) -> Input:
    hint = metavar_of(name, field) if default in (None, (), "") else as_text(default)
    return Input(name, flag(name), help_of(field, default), hint, _closed_choices(field), value)


def _closed_choices(field: FieldInfo) -> Sequence[str]:
    """All values of a setting that has a fixed number of them; of others, none."""
    kinds = [kind for kind in kinds_of(field) if kind is not NoneType and get_origin(kind) is not Literal]
    if not kinds:
        return choices_of(field)
    return ["true", "false", *choices_of(field)] if kinds == [bool] else ()


# ---- the plan, and its start


def planned(client: Client, chosen: Backend, values: Mapping[str, str]) -> dict[str, Any]:
    """The plan as --dry-run prints it, and in numbers.  Raises TrainerError."""
    launcher, found = client.launcher, client.plan(**values)
    quotes, problem = launcher.quotes(found), launcher.problem(found)
    highest = [quote.most_usd for quote in quotes]
    most_usd = max(filter(None, highest)) if highest and None not in highest else None
    return {
        "text": launcher.show(found, True),
        "problem": "" if problem is None else str(problem),
        "price": price_of_all(quotes) if quotes else "",
        "quote": quotes[0].as_json() if quotes else None,  # of the first candidate
        "most_usd": most_usd,
        "command": _command(chosen, _words(values)),
        "start": _command(chosen, _start_words(chosen, values, most_usd)),
        "rehearsal": _command(chosen, _rehearsal_words(chosen, values)) if chosen.rehearsal else "",
    }


def _command(chosen: Backend, words: Sequence[str]) -> str:
    return shlex.join([*chosen.command.split(), *words])


def _words(values: Mapping[str, str]) -> list[str]:
    """The flags of the settings.  One word for a value that begins with a hyphen."""
    words = list[str]()
    for name, value in values.items():
        words += [f"{flag(name)}={value}"] if value.startswith("-") else [flag(name), value]
    return words


def _rehearsal_words(chosen: Backend, values: Mapping[str, str]) -> list[str]:
    if not chosen.rehearsal:
        raise SettingsError(f"{chosen.module} cannot be rehearsed.")
    return [*_words(values), "--rehearse"]


def _start_words(chosen: Backend, values: Mapping[str, str], most_usd: float | None) -> list[str]:
    """The flags of a start that returns at once, for at most the price that the user has approved."""
    options = chosen.options.model_fields
    words = [*_words(values), *(["--detach"] if "detach" in options else [])]
    if most_usd is not None and "max_usd" in options and "max_usd" not in values:
        return [*words, "--max-usd", f"{math.ceil(100 * most_usd) / 100:.2f}"]
    return [*words, "--yes"]


ROUTES = [
    Route("/plan", plan),
    Route("/data/plan", price),
    Route("/data/plan/start", start, methods=["POST"]),
]

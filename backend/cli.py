"""`serpens`: the command line. It imports what a command needs when that command runs.

Commands of other folders (`web` of `app`, `bench` of the development install) are entry points of the group
`serpens.commands`; one whose folder is not installed is left out.
"""

import json
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from backend.domain.errors import InvalidRequest, Misconfigured, PlatformError

if TYPE_CHECKING:
    from backend.domain.access import Actor
    from backend.domain.study import Upload
    from backend.settings import Settings
    from backend.store.repository import Store

COMMANDS_GROUP = "serpens.commands"

# Exit codes of `serpens ingest`; every command ends with 2 on an error of ours.
ALL_STORED, SOME_REFUSED, FAILED = 0, 1, 2


class _Commands(TyperGroup):
    """Our commands and those of other folders, which are loaded when they are called: gradio takes its seconds."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted({*super().list_commands(ctx), *_brought_commands()})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = super().get_command(ctx, cmd_name)
        if found is None and (entry := _brought_commands().get(cmd_name)):
            return _as_command(cmd_name, _placeholder(entry))
        return found

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        entry = _brought_commands().get(args[0]) if args else None
        if entry is not None and args[0] not in self.commands:
            self.commands[args[0]] = _as_command(args[0], _load(entry))
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="serpens",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Serpens: review what a medical vision-language model did. Research use, not for diagnosis.",
)
users = typer.Typer(no_args_is_help=True, help="Accounts, for who works on the machine itself.")
app.add_typer(users, name="users")


def _brought_commands() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=COMMANDS_GROUP)}


def _load(entry: EntryPoint) -> Callable[..., Any]:
    folder, checkout = entry.module.partition(".")[0], Path(__file__).resolve().parent.parent
    if find_spec(folder) is None and (checkout / folder / "__init__.py").is_file():
        # An editable install maps the product's folders alone; in a checkout `tests` lies beside them.
        sys.path.append(str(checkout))
    try:
        command: Callable[..., Any] = entry.load()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != folder:
            raise
        raise Misconfigured(f"`serpens {entry.name}` comes from `{folder}`, which is not installed here") from error
    return command


def _placeholder(entry: EntryPoint) -> Callable[..., Any]:
    def brought() -> None:
        _load(entry)()

    brought.__doc__ = f"(from `{entry.module.partition('.')[0]}`; `serpens {entry.name} --help` says more)"
    return brought


def _as_command(name: str, function: Callable[..., Any]) -> Any:
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    single.command(name)(function)
    return typer.main.get_command(single)


@app.callback()
def options(
    end_with_parent: Annotated[
        bool, typer.Option("--end-with-parent", hidden=True, help="End when standard input does; for the supervisor")
    ] = False,
) -> None:
    """Serpens: review what a medical vision-language model did. Research use, not for diagnosis."""
    if end_with_parent:
        from backend import supervisor

        supervisor.end_with_parent()


@app.command("run")
def run_command() -> None:
    """Start everything and print the address; Ctrl-C stops every process."""
    from backend import supervisor

    supervisor.run(_settings(with_logs=True), tell=typer.echo)


@app.command("worker")
def worker_command() -> None:
    """The worker process: takes in uploads and keeps the schedule."""
    from backend.worker import run_worker

    run_worker(_settings(with_logs=True))


@app.command("runner")
def runner_command() -> None:
    """The runner process: works off the questions that people ask."""
    from backend import runner

    runner.serve(_settings(with_logs=True))


@app.command()
def migrate(
    write_revision: Annotated[
        str | None, typer.Option(help="For developers: write the revision that reaches the tables in code")
    ] = None,
) -> None:
    """Bring the database to the schema of this version; safe to repeat and to run twice at once."""
    from backend.store import schema

    settings = _settings(with_logs=True)
    settings.make_home()
    if write_revision is not None:
        schema.make_revision(settings.database, write_revision)
        return
    typer.echo(f"the database is at revision {schema.upgrade(settings.database).current}")


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="The report as JSON")] = False) -> None:
    """Say which bodies are in use, what is wrong and how to mend it; exit 1 when something is wrong."""
    from backend import doctor as examining

    report = examining.examine(_settings())
    typer.echo(json.dumps(report) if as_json else examining.as_text(report))
    if not report["ok"]:
        raise typer.Exit(1)


@app.command()
def ask(
    series: Annotated[str, typer.Argument(help="The series' id")],
    question: Annotated[str, typer.Argument(help="What the model is asked")],
    frame: Annotated[int, typer.Option(min=0, help="The frame that it is first shown")] = 0,
    as_user: Annotated[str, typer.Option("--as", help="The user on whose behalf")] = "admin",
    patience_s: Annotated[float, typer.Option(help="How long to wait for a runner")] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="One event a line, as JSON")] = False,
) -> None:
    """Ask about a series and follow the run. Exit 0: answered; 1: stopped without an answer; 2: failure."""
    from backend import asking
    from backend.domain.trace import AnswerGiven
    from backend.services.accounts import actor_named
    from backend.services.context import utc_now

    settings = _settings(with_logs=True)
    store = _open_store(settings)
    is_answered = False
    try:
        actor = actor_named(as_user, store=store)
        for event in asking.ask(
            actor, series, question, frame_index=frame, patience_s=patience_s, store=store, clock=utc_now
        ):
            typer.echo(event.model_dump_json() if as_json else asking.as_line(event))
            is_answered = is_answered or isinstance(event.payload, AnswerGiven)
    finally:
        store.close()
    if not is_answered:
        raise typer.Exit(1)


@app.command()
def ingest(
    paths: Annotated[list[Path], typer.Argument(exists=True, help="Files, folders, zips")],
    project: Annotated[str | None, typer.Option(help="Name or id; may be left out where there is only one")] = None,
    as_user: Annotated[str, typer.Option("--as", help="The user on whose behalf")] = "admin",
    modality: Annotated[str, typer.Option(help="Of files that name none: NIfTI, pictures")] = "",
    description: Annotated[str, typer.Option(help="Of files that bring none")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="The upload as JSON")] = False,
) -> None:
    """Take studies in without the browser. Exit 0: all stored; 1: some refused; 2: failure."""
    from backend.services import ingest as ingesting
    from backend.services.accounts import actor_named
    from backend.services.context import utc_now
    from backend.store.blobs import DirectoryBlobs

    settings = _settings(with_logs=True)
    store = _open_store(settings)
    try:
        actor = actor_named(as_user, store=store)
        upload = ingesting.ingest_paths(
            actor,
            _project_id(project, actor, store),
            paths,
            stated_modality=modality,
            stated_description=description,
            store=store,
            blobs=DirectoryBlobs(settings.blobs),
            settings=settings,
            clock=utc_now,
        )
    finally:
        store.close()
    if as_json:
        from backend.api.routes.uploads import upload_json

        typer.echo(json.dumps(upload_json(upload)))
    else:
        typer.echo(_upload_text(upload))
    raise typer.Exit(_exit_code(upload))


@users.command("reset-password")
def reset_password(name: Annotated[str, typer.Argument(help="The name that is typed to sign in")]) -> None:
    """Give a user another password, printed once, and end their sessions: for an admin who is locked out."""
    from backend.domain.access import Actor, Role
    from backend.services import accounts

    settings = _settings()
    store = _open_store(settings)
    try:
        user = accounts.actor_named(name, store=store)
        # Whoever runs commands here could read the database itself: the machine's operator acts as an admin.
        operator = Actor("operator", "operator", Role.ADMIN, frozenset())
        changed = accounts.reset_password(operator, user.user_id, store=store)
    finally:
        store.close()
    typer.echo(f"{changed.user.name} signs in with the password {changed.password}")


def _settings(*, with_logs: bool = False) -> "Settings":
    from pydantic import ValidationError
    from pydantic_settings import SettingsError

    from backend.settings import Settings
    from backend.telemetry import configure_logging

    try:
        settings = Settings()
    except ValidationError as error:
        # The value itself is left out: it may be a database's password.
        wrong = "; ".join(f"SERPENS_{str(item['loc'][0]).upper()}: {item['msg']}" for item in error.errors())
        raise Misconfigured(wrong) from error
    except SettingsError as error:
        raise Misconfigured(f"{error}; see .env.example") from error
    if with_logs:
        configure_logging(as_json=settings.log_json)
    return settings


def _open_store(settings: "Settings") -> "Store":
    from backend.store.repository import Store
    from backend.store.schema import upgrade

    settings.make_home()
    upgrade(settings.database)
    return Store(settings.database)


def _project_id(wanted: str | None, actor: "Actor", store: "Store") -> str:
    with store.transaction(read_only=True) as tx:
        projects = tx.accounts.projects(actor.project_ids)
    if wanted is None and len(projects) == 1:
        return projects[0].id
    found = [project.id for project in projects if wanted in (project.id, project.name)]
    if len(found) != 1:
        names = ", ".join(project.name for project in projects) or "none"
        raise InvalidRequest(f"--project must name one of the projects of {actor.name}: {names}")
    return found[0]


def _upload_text(upload: "Upload") -> str:
    counts = ", ".join(f"{count} {state.value}" for state, count in upload.counts.items() if count) or "no file"
    lines = [f"upload {upload.id}: {upload.state.value}; {counts}; {len(upload.study_ids)} studies"]
    if upload.message:
        lines.append(upload.message)
    lines += [f"  {file.state.value} {file.name}: {file.code}: {file.message}" for file in upload.problems]
    return "\n".join(lines)


def _exit_code(upload: "Upload") -> int:
    from backend.domain.study import FileState, UploadState

    if upload.state is not UploadState.DONE:
        return FAILED
    refused = upload.counts.get(FileState.REFUSED, 0) + upload.counts.get(FileState.QUARANTINED, 0)
    return SOME_REFUSED if refused else ALL_STORED


def main() -> None:
    """Run the command; an error of ours is one line on stderr with its code, or JSON with `--json`, and exit 2."""
    try:
        app()
    except PlatformError as error:
        if "--json" in sys.argv:
            line = json.dumps({"error": {"code": error.code, "message": error.message, "details": error.details}})
        else:
            line = f"serpens: {error.code}: {error.message}"
        typer.echo(line, err=True)
        sys.exit(FAILED)


if __name__ == "__main__":
    main()

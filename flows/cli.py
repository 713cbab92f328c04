"""The command line. Light: a flow, with Prefect and torch behind it, is imported only by the command that runs it."""

from __future__ import annotations

import atexit
import dataclasses
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from typer.exceptions import TyperException

from configs.errors import BudgetError, ConfigurationError, DiscreetError, UsageError, printable
from flows import environment, plain, server
from flows.newfile import new_file

if TYPE_CHECKING:
    from tasks.forecast import Forecast

app = typer.Typer(
    help="Retrain models on people's records with differential privacy, and promote none whose privacy it cannot show.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
ledger_app = typer.Typer(help="The privacy ledger: what each population has spent.", no_args_is_help=True)
app.add_typer(ledger_app, name="ledger")

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

ConfigPath = Annotated[str, typer.Argument(metavar="CONFIG", help="the model's YAML file")]
RuntimeName = Annotated[str, typer.Option(help="where it runs: a file in configs/runtime/, or its path")]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object")]


@app.command()
def check(config: ConfigPath, runtime: RuntimeName = "local", as_json: AsJson = False) -> None:
    """Validate a configuration and print its plan.

    Noise, epsilon, what the population has left, how many such runs fit. Reads no record.
    """
    from configs.load import load, load_runtime
    from flows import screen
    from tasks.forecast import forecast

    loaded, place = load(config), load_runtime(runtime)
    found = forecast(loaded.config, home=Path(place.home).expanduser())
    if as_json and not found.refusal:
        plain.show(dataclasses.asdict(found))
    elif not as_json:
        screen.plan(out, config, loaded.config, found)
    if found.refusal:
        raise BudgetError(found.refusal)


@app.command()
def init(
    data: Annotated[str, typer.Argument(metavar="DATA", help="the records' CSV file; only its header is read")],
    dictionary: Annotated[
        str | None, typer.Option(help="data dictionary, CSV: column, kind, min, max, values, meaning")
    ] = None,
    member: Annotated[str | None, typer.Option(help="name of the file inside a zip archive")] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="file to write; the screen when left out")
    ] = None,
) -> None:
    """Write a first configuration.

    From a data dictionary, or from the header with every bound left as a question; never from the records.
    """
    from tasks.data.dictionary import draft_configuration, header_of, read_dictionary

    described = None if dictionary is None else read_dictionary(dictionary)
    header, delimiter = header_of(data, member=member, known={row["column"] for row in described or ()})
    text = draft_configuration(
        header=header,
        dictionary_rows=described,
        data_path=data,
        delimiter=delimiter,
        member=member,
        dictionary_name=dictionary or "data dictionary",
    )
    if output is None:
        print(text, end="")
        return
    with new_file(Path(output)) as part:
        part.write_text(text, encoding="utf-8")
    err.print(f"wrote {output}: answer its open questions, then discreet check {output}")


@app.command()
def simulate(
    output: Annotated[str, typer.Argument(metavar="OUT", help="CSV or parquet file to write")],
    rows: Annotated[int, typer.Option(min=1, max=100_000_000, help="number of discharges")] = 200_000,
    seed: Annotated[int, typer.Option(min=0, help="seed of the simulation")] = 20260101,
) -> None:
    """Write simulated discharges: nobody's records."""
    from tasks.data import simulate as simulation

    path = Path(output)
    if path.suffix not in {".csv", ".parquet"}:
        raise UsageError(f"OUT = {output} must end in .csv or .parquet")
    with new_file(path) as part:
        frame = simulation.discharges(rows=rows, seed=seed)
        frame.to_csv(part, index=False) if path.suffix == ".csv" else frame.to_parquet(part, index=False)
    err.print(f"wrote {rows:,} simulated discharges to {output}: nobody's records")


@app.command()
def rehearse(config: ConfigPath, runtime: RuntimeName = "local", as_json: AsJson = False) -> None:
    """Try the whole pipeline on made-up rows.

    Rows are made from the configuration's schema: touches no record, spends and promotes nothing. Says whether the
    real run would fit the real ledger; exit code 0 where the pipeline ran, whatever its verdict.
    """
    _run_flow("rehearse", {"config_path": config, "runtime": runtime}, runtime=runtime, as_json=as_json)


@app.command()
def run(
    config: ConfigPath,
    runtime: RuntimeName = "local",
    reason: Annotated[str, typer.Option(help="why it runs; kept in the ledger")] = "by hand",
    as_json: AsJson = False,
) -> None:
    """Retrain, and promote or block.

    Validates, trains privately, accounts, assesses, records; exit code 0 promoted, 40 blocked, 41 insufficient.
    """
    parameters = {"config_path": config, "runtime": runtime, "reason": reason}
    raise typer.Exit(_run_flow("retrain", parameters, runtime=runtime, as_json=as_json))


@app.command()
def serve(
    configs: Annotated[list[str], typer.Argument(metavar="CONFIG...", help="the models' YAML files")],
    runtime: RuntimeName = "local",
) -> None:
    """Retrain each model on its schedule, while this command runs.

    Uses the Prefect server of PREFECT_API_URL, or one of its own. What was missed is dropped, not caught up.
    """
    from flows import serving

    serving.serve(configs, runtime=runtime, console=err)


@app.command()
def promote(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="the registered model's name")],
    version: Annotated[str, typer.Argument(metavar="VERSION", help="its version")],
    config: Annotated[
        str | None, typer.Option(help="a YAML file whose gates are today's; those it was last judged by when left out")
    ] = None,
    runtime: RuntimeName = "local",
    reason: Annotated[str, typer.Option(help="why; kept in the ledger")] = "by hand",
    as_json: AsJson = False,
) -> None:
    """Judge a registered version again, and promote it on a pass.

    By the evidence that the ledger keeps; costs no privacy and reads no record. Exit code as `run`.
    """
    from flows import screen
    from flows.promotion import promote_again

    # without a server of one's own, Prefect's embedded one takes longer to start than the judging takes
    judge = promote_again if "PREFECT_API_URL" in os.environ else promote_again.fn
    result: Any = judge(model, version, config, runtime, reason)
    if as_json:
        plain.show(plain.outcome(result))
    else:
        screen.outcome(out, result)
    raise typer.Exit(result.exit_code)


@ledger_app.command("show")
def ledger_show(
    population: Annotated[str | None, typer.Argument(metavar="POPULATION", help="all of them when left out")] = None,
    runtime: RuntimeName = "local",
    as_json: AsJson = False,
) -> None:
    """Show what a population has spent, what is left, and every entry."""
    from configs.load import load_runtime
    from flows import screen
    from tasks.privacy.ledger import Ledger

    path = Path(load_runtime(runtime).home).expanduser() / "ledger.db"
    if not path.is_file():
        raise ConfigurationError(f"{path}: there is no ledger yet; the first run creates it (or set DISCREET_HOME)")
    with Ledger.open(path) as ledger:
        known = ledger.populations()
        if population is not None and population not in known:
            raise UsageError(f"POPULATION = {population} is not in {path}; known: {', '.join(known) or 'none'}")
        shown = [name for name in known if population in {None, name}]
        found = ((name, ledger.population(name), ledger.entries(name)) for name in shown)
        states = {name: (state, entries) for name, state, entries in found if state is not None}
        if as_json:
            plain.show(states)
        else:
            screen.ledger(out, states)


def _run_flow(name: str, parameters: dict[str, str], *, runtime: str, as_json: bool) -> int:
    from configs.load import load, load_runtime

    home = Path(load_runtime(runtime).home).expanduser().resolve()
    load(parameters["config_path"])  # a fault in the file is told at once, before anything heavy is imported
    environment.embedded(_prefect_home(name, home))
    from contextlib import nullcontext

    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    booting = server.boot()
    from flows import retraining, screen

    if booting is not None:
        booting.join()
    # Prefect's heartbeat thread is joined in whole seconds at the end of every flow run
    with (
        temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}),
        nullcontext() if as_json else screen.following(err, rehearsal=name == "rehearse"),
    ):
        result = server.orchestrated(getattr(retraining, name), parameters)
    standing = _standing(parameters["config_path"], home) if result.rehearsal else None
    if as_json:
        plain.show(plain.outcome(result, standing))
    else:
        screen.outcome(out, result, standing)
    return result.exit_code


def _prefect_home(name: str, home: Path) -> Path:
    """Where Prefect keeps its files; a rehearsal leaves none where there were none."""
    if name != "rehearse" or "PREFECT_API_URL" in os.environ or (home / "prefect").is_dir():
        return home
    folder = tempfile.mkdtemp(prefix="discreet-rehearsal-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _standing(config_path: str, home: Path) -> Forecast | DiscreetError:
    """How the real run would stand with the real ledger, which is only read; or why it would be refused."""
    from configs.load import load
    from tasks.forecast import forecast

    try:
        return forecast(load(config_path).config, home=home)
    except DiscreetError as error:
        return error


def program() -> None:
    """What the command `discreet` calls: `main`, and a quick way out.

    Torch, MLflow and Great Expectations take seconds to be taken apart module by module, and nothing in that is
    needed: this hook, registered first and so run last, ends the process once every other has run.
    """
    code = 50
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ε must not turn a promoted run into a failed one

    def leave() -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(ValueError, OSError):  # closed by whoever reads us
                stream.flush()
        os._exit(code)

    atexit.register(leave)
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
        raise


def main() -> None:
    """Run the command line; errors of ours end in their exit code and their text, never in a traceback."""
    os.umask(0o077)  # what a run writes about people is its owner's to read
    as_json = "--json" in sys.argv
    try:
        code = app(standalone_mode=False)  # of a typer.Exit; None from a command that simply ended
        sys.exit(code if isinstance(code, int) else 0)
    except (typer.Abort, KeyboardInterrupt):
        _fail("Interrupted", "stopped by hand; steps that were claimed stay charged", 130, as_json=as_json)
    except DiscreetError as error:
        _fail(type(error).__name__, str(error), error.exit_code, as_json=as_json)
    except TyperException as error:
        text = error.format_message()
        if text.startswith("Usage:"):  # a command without arguments: the help says it all
            err.print(text, markup=False)
            sys.exit(UsageError.exit_code)
        _fail("UsageError", text, UsageError.exit_code, as_json=as_json)
    except Exception as error:
        _fail(
            "InternalError",
            f"a fault of ours: {type(error).__name__}; its text is withheld, since it may hold a record's values",
            50,
            as_json=as_json,
        )


def _fail(kind: str, text: str, code: int, *, as_json: bool) -> None:
    if as_json:
        plain.show({"error": kind, "message": text, "exit_code": code})
    err.print(f"[bold red]{kind}[/] ", end="")
    # a name or a word of a file must not give orders to the terminal
    err.print("\n".join(printable(line) for line in text.split("\n")), markup=False, soft_wrap=True)
    sys.exit(code)


if __name__ == "__main__":
    program()

"""`mlbench size`: how much storage a number of GPUs needs, and what limits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlbench.analyse.sizing import DEFAULT_HEADROOM
from mlbench.cli.main import verb_app
from mlbench.cli.options import ConfigDirOption, JsonOption, tell_repeats
from mlbench.errors import ConfigError
from mlbench.wording import count_of

if TYPE_CHECKING:
    from mlbench.analyse.sizing import Rate, Sizing, Supply
    from mlbench.config import Config, DataConfig
    from mlbench.publish.sizing import SizingAnswer

app = verb_app()


@app.command()
def size(
    overrides: Annotated[
        list[str], typer.Argument(help="'+hardware=[dgxa100,f800]' gpus=32, as for a run; both profiles are needed.")
    ],
    model: Annotated[str | None, typer.Option("--model", help="Model; without it benchmark.model's.")] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="SAMPLES_PER_S", help="Rate of one GPU, as measured.")
    ] = None,
    from_run_set: Annotated[
        str | None, typer.Option("--from", metavar="RUN_SET", help="Take the rate from this run set or import.")
    ] = None,
    headroom: Annotated[
        float, typer.Option("--headroom", metavar="PERCENT", help="On top of the demand.")
    ] = DEFAULT_HEADROOM * 100,
    file_per_image: Annotated[
        bool, typer.Option("--file-per-image", help="Images are single files, not RecordIO shards.")
    ] = False,
    endpoint_gb_per_s: Annotated[
        float | None, typer.Option("--endpoint-gb-per-s", metavar="GB/S", help="Measured rate of one S3 endpoint.")
    ] = None,
    dataset_gb: Annotated[
        float | None, typer.Option("--dataset-gb", metavar="GB", help="Size of the data set; else images x mean size.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw demand and supply: .svg, .png, .pdf or .html.")
    ] = None,
    config_dir: ConfigDirOption = None,
    db: Annotated[str | None, typer.Option("--db", metavar="URL", help="Database, for --from.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Storage for N GPUs: demand from measured or published rates, supply from the storage profile, what limits.

    An unknown limit is said and never taken for none. Exit status 4 when storage or a node's links are too small, or
    when nothing is known of the storage.
    """
    from mlbench.compose import compose
    from mlbench.publish.sizing import answer

    tell_repeats(overrides)
    config = compose(overrides, config_dir)
    compute, storage = config.hardware.compute, config.hardware.storage
    if compute is None or storage is None:
        raise ConfigError("size: a compute and a storage profile are needed, as '+hardware=[dgxa100,f800]'")
    num_gpus = config.gpus if config.gpus is not None else compute.default_gpus
    if num_gpus < 1 or headroom < 0:
        raise ConfigError(f"size: found gpus={num_gpus} and headroom {headroom:g} %, expected at least 1 and 0")
    chosen = model or config.benchmark.model
    found = answer(
        compute=compute,
        storage=storage,
        data=_data(config),
        model=chosen,
        num_gpus=num_gpus,
        rate=_rate(config, chosen, rate, from_run_set, db),
        headroom=headroom / 100,
        file_per_image=file_per_image,
        supply=_supply(config, endpoint_gb_per_s),
        dataset_bytes=dataset_gb * 1e9 if dataset_gb is not None else None,
    )
    if plot is not None:
        from mlbench.publish.charts import save_chart, sizing_chart

        save_chart(sizing_chart(found), plot)
    _show(found, as_json)
    raise typer.Exit(0 if found.sizing.feasible else 4)


def _data(config: Config) -> DataConfig:
    """The data set, its mean image taken from its files where it does not state one."""
    import dataclasses

    from mlbench.plan.data import mean_image_bytes
    from mlbench.plan.paths import absolute_config

    return dataclasses.replace(config.data, mean_image_bytes=mean_image_bytes(absolute_config(config).data))


def _rate(config: Config, model: str, given: float | None, run_set: str | None, db: str | None) -> Rate:
    from mlbench.analyse.sizing import Rate
    from mlbench.publish.sizing import rate_from_profile, rate_from_run_set

    if given is not None and run_set is not None:
        raise ConfigError("size: --rate and --from both name a rate; give one of them")
    if given is not None:
        if not given > 0:
            raise ConfigError(f"size: found --rate {given:g}, expected samples/s above 0")
        return Rate(samples_per_s_per_gpu=given, basis="given with --rate")
    if run_set is not None:
        from mlbench.store.engine import open_database
        from mlbench.store.repository import load_run_set

        return rate_from_run_set(load_run_set(open_database(db, readonly=True), run_set))
    assert config.hardware.compute is not None
    return rate_from_profile(config.hardware.compute, model)


def _supply(config: Config, endpoint_gb_per_s: float | None) -> Supply:
    import dataclasses

    from mlbench.publish.sizing import supply_of

    assert config.hardware.storage is not None
    supply = supply_of(config.hardware.storage)
    if endpoint_gb_per_s is None:
        return supply
    if supply.unit != "endpoint" or endpoint_gb_per_s <= 0:
        raise ConfigError("size: --endpoint-gb-per-s takes a rate above 0, for an S3 storage profile")
    return dataclasses.replace(supply, throughput_bytes_per_s=endpoint_gb_per_s * 1e9)


def _show(found: SizingAnswer, as_json: bool) -> None:
    from mlbench.cli.console import print_json, print_text
    from mlbench.publish.sizing import units_text

    if as_json:
        print_json(_json(found))
        return
    demand = found.sizing.demand
    print_text(f"{count_of(demand.num_gpus, 'GPU')} in {found.num_nodes} {found.system}, storage {found.storage}")
    print_text(f"demand          {demand.formula}")
    print_text(f"rate            {demand.rate.basis}")
    print_text(f"read as         {demand.operations_per_s:,.0f}/s of {demand.operation_bytes / 1e6:,.3g} MB")
    for limit in found.sizing.limits:
        print_text(f"{limit.quantity:<15} {units_text(limit.units, found.unit)}, {limit.use:.0%} of what they deliver")
    if found.sizing.unknown:
        print_text(
            f"not known       {', '.join(found.sizing.unknown)}: the storage profile does not say; nothing is assumed"
        )
    if found.sizing.client_link_use is not None:
        print_text(f"node links      {found.sizing.client_link_use:.0%} of one node's storage ports")
    print_text(f"caching         {_caching(found)}")
    print_text(_sentence(found), style="bold")


def _caching(found: SizingAnswer) -> str:
    caching = found.caching
    size_text = f"{caching.dataset_bytes / 1e9:,.1f} GB of data"
    if caching.cache_bytes_per_node is None:
        return f"{size_text}; the memory of a node is not known, so every epoch may load the storage"
    cache = f"{caching.cache_bytes_per_node / 1e9:,.0f} GB of cache a node"
    if caching.fits:
        return f"{size_text}, {cache}: the first epoch loads the storage, later ones come from memory"
    return f"{size_text}, {cache}: does not fit, so every epoch loads the storage"


def _sentence(found: SizingAnswer) -> str:
    from mlbench.publish.sizing import units_text

    sizing = found.sizing
    limit = sizing.limiting
    if limit is None:
        return "No answer: the storage profile knows no limit; measure it (benchmark=storage) and give its rate."
    nodes = f" ({count_of(limit.units * sizing.nodes_per_unit, 'node')})" if sizing.nodes_per_unit else ""
    text = f"{units_text(limit.units, found.unit)}{nodes}, limited by {limit.quantity}"
    if limit.max_units is not None and limit.units > limit.max_units:
        return f"Too small: {text}, but there are at most {units_text(limit.max_units, found.unit)}."
    if sizing.client_link_use is not None and sizing.client_link_use > 1:
        return (
            f"Too small: {text}, but one node's storage ports carry only {1 / sizing.client_link_use:.0%} of its need."
        )
    return f"{text[0].upper()}{text[1:]}."


def _json(found: SizingAnswer) -> dict[str, Any]:
    sizing: Sizing = found.sizing
    demand = sizing.demand
    limit = sizing.limiting
    return {
        "system": found.system,
        "storage": found.storage,
        "num_gpus": demand.num_gpus,
        "num_nodes": found.num_nodes,
        "samples_per_s_per_gpu": demand.rate.samples_per_s_per_gpu,
        "rate_basis": demand.rate.basis,
        "mean_sample_bytes": demand.mean_sample_bytes,
        "headroom": demand.headroom,
        "bytes_per_s": demand.bytes_per_s,
        "operations_per_s": demand.operations_per_s,
        "formula": demand.formula,
        "unit": found.unit,
        "units": sizing.units,
        "limiting": limit.quantity if limit is not None else None,
        "limits": [{"quantity": i.quantity, "units": i.units, "use": i.use} for i in sizing.limits],
        "unknown": list(sizing.unknown),
        "node_link_use": sizing.client_link_use,
        "feasible": sizing.feasible,
        "dataset_bytes": found.caching.dataset_bytes,
        "cache_bytes_per_node": found.caching.cache_bytes_per_node,
        "cached_after_first_epoch": found.caching.fits,
        "curve": [{"num_gpus": n, "gb_per_s": rate, "units": units} for n, rate, units in found.curve],
    }

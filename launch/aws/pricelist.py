"""AWS's prices in a region: from its price list, cached on this machine for a week.

https://docs.aws.amazon.com/aws-cost-management/latest/APIReference/API_pricing_GetProducts.html
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from launch.aws.client import Aws
from launch.core import catalog
from launch.core.catalog import SAGEMAKER_PREFIX
from launch.core.errors import AwsError
from launch.core.price import CATALOGS, CATALOGS_REGION, GIB, Prices
from trainer.errors import SettingsError
from trainer.files import read_json, write_atomically

VALID = timedelta(days=7)
MOST = 1e6  # USD per hour
# Attributes of the ordinary price of a machine: Linux without further software, on shared hardware, on demand.
MACHINE = {"operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"}
DISK = {"productFamily": "Storage", "volumeApiName": "gp3"}
# The price of training; SageMaker's list also has those of notebooks and endpoints.
TRAINING = {"component": "Training"}
EC2, SAGEMAKER = "AmazonEC2", "AmazonSageMaker"
OF_AWS = (".amazonaws.com", ".api.aws")  # domains of AWS's hosts, including endpoints in a VPC


@dataclass(frozen=True)
class _Read:
    """The prices of a region, and when they were read (ISO 8601)."""

    read: str
    storage: float
    usd_per_hour: Mapping[str, float] = field(default_factory=dict)


def no_cache(region: str) -> Path | None:
    return None


def cache_of(env: Mapping[str, str], region: str) -> Path | None:
    """The cache file of a region's prices; None without a home folder, or with an endpoint that is not AWS's.

    A profile may also configure such an endpoint, so look_up() checks again before it writes.
    """
    if env.get("AWS_ENDPOINT_URL"):
        return None
    folder = env.get("XDG_CACHE_HOME") or (env["HOME"] + "/.cache" if env.get("HOME") else "")
    return Path(folder, "aws-ddp-toolkit", f"prices-{region}.json") if folder else None


def look_up(aws: Aws, types: Sequence[str], now: datetime, cache: Path | None) -> Prices:
    """The prices of these types in the region of `aws`.  Raises AwsError where the list has none, or may not be read.

    The catalog has those of us-east-1; only types that it lacks are looked up there.
    """
    if aws.region == CATALOGS_REGION and all(_in_catalog(name) for name in types):
        return CATALOGS
    known = _recent(cache, now)
    if known is None or not set(types) <= known.usd_per_hour.keys():
        known = _ask(aws, types, now.date(), known)
        if cache is not None and _is_aws(aws):
            _keep(cache, known)
    mine = {name: known.usd_per_hour[name] for name in types}
    return Prices(mine, known.storage, f"those of {aws.region} in AWS's price list, read {known.read}")


def _in_catalog(name: str) -> bool:
    return name.removeprefix(SAGEMAKER_PREFIX) in catalog.load()


def _is_aws(aws: Aws) -> bool:
    """Whether the endpoint is AWS's: a profile in ~/.aws may configure another, such as an emulator."""
    host = urlsplit(aws.client("pricing").meta.endpoint_url).hostname or ""
    return host.endswith(OF_AWS)


def _ask(aws: Aws, types: Sequence[str], today: date, known: _Read | None) -> _Read:
    storage = _price(aws, EC2, DISK, "a gp3 volume") / GIB["gp3"]
    fresh = {name: _machine(aws, name) for name in types}
    kept = known.usd_per_hour if known else {}
    return _Read(today.isoformat(), storage, {**kept, **fresh})


def _machine(aws: Aws, name: str) -> float:
    """USD per hour of an instance type, on EC2 or SageMaker."""
    if name.startswith(SAGEMAKER_PREFIX):
        return _price(aws, SAGEMAKER, {**TRAINING, "instanceName": name}, name)
    return _price(aws, EC2, {**MACHINE, "instanceType": name}, name)


def _price(aws: Aws, service: str, attributes: Mapping[str, str], what: str) -> float:
    """USD per unit of the one product with these attributes, in the region of `aws`."""
    required = {**attributes, "regionCode": aws.region}
    filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in required.items()]
    rows = aws.pages("pricing", "GetProducts", "PriceList", {"ServiceCode": service, "Filters": filters})
    prices = [price for row in rows for price in _on_demand(json.loads(row))]
    if not prices:
        raise AwsError(f"AWS's price list has no price on demand for {what} in {aws.region}.", "NoPrice")
    return max(prices)


def _on_demand(product: Mapping[str, Any]) -> list[float]:
    terms = product.get("terms", {}).get("OnDemand", {}).values()
    dimensions = [one for term in terms for one in term["priceDimensions"].values()]
    return [price for one in dimensions if (price := float(one["pricePerUnit"].get("USD", 0))) > 0]


def no_price(limit_usd: float, region: str) -> SettingsError:
    """The refusal of a limit in USD if the region's prices are not known."""
    return SettingsError(
        f"--max-usd {limit_usd:g}: the price in {region} is not known; allow pricing:GetProducts "
        "(infra/iam/reader.json), or leave --max-usd out if AWS's price list has none."
    )


def _recent(cache: Path | None, now: datetime) -> _Read | None:
    """The prices in the file; None if it is old or damaged."""
    try:
        known = _Read(**read_json(cache)) if cache else None
        if known is None or not timedelta(0) <= now.date() - date.fromisoformat(known.read) <= VALID:
            return None
        return known if _are_prices(known.storage, *dict(known.usd_per_hour).values()) else None
    except (OSError, ValueError, TypeError):
        return None


def _are_prices(*amounts: float) -> bool:
    """Whether these are plausible prices, as a cache file may be damaged."""
    return all(type(amount) in (int, float) and 0 < amount < MOST for amount in amounts)


def _keep(cache: Path, known: _Read) -> None:
    """Write the cache; a failure is ignored, as the next plan can look the prices up again."""
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(cache, json.dumps(asdict(known), indent=1) + "\n")
    except OSError:
        return

"""AWS's price list, which moto lacks: the catalog's prices for us-east-1, and a multiple of them for other regions.

https://docs.aws.amazon.com/aws-cost-management/latest/APIReference/API_pricing_GetProducts.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

from moto import backend_index, backends
from moto.core.base_backend import BackendDict, BaseBackend
from moto.core.responses import BaseResponse

from launch.core import catalog
from launch.core.price import CATALOGS_REGION, GIB

# Multiples of the prices in us-east-1, from g5.xlarge's approximate prices, from memory, 2026-11-23.  A stand-in: AWS's
# list has a separate price for each type in each region.
MULTIPLES = {"us-east-1": 1.0, "us-east-2": 1.0, "us-west-2": 1.0, "eu-west-1": 1.12, "eu-central-1": 1.25,
             "ap-northeast-1": 1.45}  # fmt: skip
OTHER_REGIONS = 1.3

NAME = "pricing"
BASE = r"https?://(api\.)?pricing\.(.+)\.amazonaws\.com"


class PricingResponse(BaseResponse):
    def __init__(self) -> None:
        super().__init__(service_name=NAME)

    def get_products(self) -> str:
        filters = json.loads(self.body).get("Filters", ())
        fields = {one["Field"]: one["Value"] for one in filters}
        price = price_of(fields)
        return json.dumps({"FormatVersion": "aws_v1", "PriceList": [] if price is None else [product(price, fields)]})


def multiple(region: str) -> float:
    """A region's prices, as a multiple of those in us-east-1."""
    return MULTIPLES.get(region, OTHER_REGIONS)


def price_of(attributes: Mapping[str, str]) -> float | None:
    """USD per hour of an instance, or per month of a GiB, in the region that the attributes name."""
    price = _catalogs_price(attributes)
    return None if price is None else price * multiple(attributes.get("regionCode", CATALOGS_REGION))


def _catalogs_price(attributes: Mapping[str, str]) -> float | None:
    if attributes.get("volumeApiName") in GIB:
        return GIB[attributes["volumeApiName"]]
    name = attributes.get("instanceName") or attributes.get("instanceType") or ""
    known = catalog.load().get(name.removeprefix(catalog.SAGEMAKER_PREFIX))
    if known is None:
        return None
    return known.sagemaker_usd_per_hour if name.startswith(catalog.SAGEMAKER_PREFIX) else known.usd_per_hour


def product(usd: float, attributes: Mapping[str, str]) -> str:
    """https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/reading-an-offer.html"""
    rate = {"unit": "Hrs", "pricePerUnit": {"USD": f"{usd:.10f}"}}
    terms = {"OnDemand": {"SKU.TERM": {"priceDimensions": {"SKU.TERM.RATE": rate}}}}
    return json.dumps({"product": {"sku": "SKU", "attributes": dict(attributes)}, "terms": terms})


class PricingBackend(BaseBackend):
    url_bases = [BASE]  # noqa: RUF012  # as every backend of moto's
    url_paths = {"/": PricingResponse.dispatch}  # noqa: RUF012

    @property
    def urls(self) -> dict[str, Callable[..., Any]]:
        return {f"{BASE}/$": PricingResponse.dispatch}


@contextmanager
def priced() -> Iterator[None]:
    """Add the price list to moto inside the block."""
    ours, others = BackendDict(PricingBackend, "ec2"), backends._import_backend

    def find(module: str, name: str) -> Any:
        return ours if module == NAME else others(module, name)

    patterns = [*backend_index.backend_url_patterns, (NAME, re.compile(BASE))]
    with (
        mock.patch.object(backends, "_import_backend", find),
        mock.patch.object(backend_index, "backend_url_patterns", patterns),
    ):
        yield

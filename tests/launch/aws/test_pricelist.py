"""AWS's prices of a region, as its price list gives them.

https://docs.aws.amazon.com/aws-cost-management/latest/APIReference/API_pricing_GetProducts.html, and the shape of a
product in https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/reading-an-offer.html
"""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from launch.aws.pricelist import cache_of, look_up
from launch.core.errors import AwsError
from launch.core.price import CATALOGS

NOW = datetime(2026, 11, 21, 14, 0, tzinfo=UTC)


def product(*usd: str) -> str:
    dimensions = {f"rate{number}": {"unit": "Hrs", "pricePerUnit": {"USD": price}} for number, price in enumerate(usd)}
    return json.dumps({"product": {"sku": "S"}, "terms": {"OnDemand": {"S.T": {"priceDimensions": dimensions}}}})


@dataclass
class PriceList:
    """An Aws whose price list has these prices, by instance type; gp3 for volumes."""

    rows: dict[str, list[str]]
    region: str = "us-west-1"
    url: str = "https://api.pricing.us-east-1.amazonaws.com"
    asked: list[dict[str, Any]] = field(default_factory=list)

    def client(self, service: str) -> SimpleNamespace:
        assert service == "pricing"
        return SimpleNamespace(meta=SimpleNamespace(endpoint_url=self.url))

    def pages(self, service: str, operation: str, key: str, params: dict[str, Any]) -> list[str]:
        assert (service, operation, key) == ("pricing", "GetProducts", "PriceList")
        self.asked.append(params)
        values = {one["Field"]: one["Value"] for one in params["Filters"]}
        names = ("instanceType", "instanceName", "volumeApiName")
        return self.rows.get(next(values[name] for name in names if name in values), [])


def a_list(**more: Any) -> Any:
    return PriceList({"p5en.48xlarge": [product("79.1200000000")], "gp3": [product("0.0960000000")]}, **more)


def test_the_regions_own_prices_are_taken_with_their_date() -> None:
    """A10: us-east-1's 63.30 was taken for it, and so --max-usd was no ceiling."""
    prices = look_up(a_list(), ["p5en.48xlarge"], NOW, None)
    assert prices.usd_per_hour == {"p5en.48xlarge": 79.12}
    assert prices.storage == pytest.approx(1.2)
    assert prices.source == "those of us-west-1 in AWS's price list, read 2026-11-21"
    assert prices.are_known


def test_the_catalogs_own_region_is_not_requested() -> None:
    here = a_list(region="us-east-1")
    assert look_up(here, ["p5en.48xlarge"], NOW, None) == CATALOGS
    assert here.asked == []


def test_awss_service_model_accepts_the_question() -> None:
    asked = a_list()
    look_up(asked, ["p5en.48xlarge"], NOW, None)
    shape = botocore.session.Session().get_service_model("pricing").operation_model("GetProducts").input_shape
    for params in asked.asked:
        assert not ParamValidator().validate(params, shape).has_errors()
    machine = {one["Field"]: one["Value"] for one in asked.asked[1]["Filters"]}
    assert machine == {
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "instanceType": "p5en.48xlarge",
        "regionCode": "us-west-1",
    }


def test_training_has_a_price_of_its_own_on_sagemaker() -> None:
    """Another one than endpoints and notebooks: each product's `component` says which."""
    asked = PriceList({"ml.g5.2xlarge": [product("1.8000000000")], "gp3": [product("0.0960000000")]})
    prices = look_up(asked, ["ml.g5.2xlarge"], NOW, None)  # type: ignore[arg-type]
    assert prices.usd_per_hour == {"ml.g5.2xlarge": 1.8}
    filters = asked.asked[1]["Filters"]
    assert asked.asked[1]["ServiceCode"] == "AmazonSageMaker"
    machine = {"component": "Training", "instanceName": "ml.g5.2xlarge", "regionCode": "us-west-1"}
    assert {one["Field"]: one["Value"] for one in filters} == machine


@pytest.mark.parametrize(
    ("host", "is_kept"),
    [
        ("api.pricing.us-east-1.amazonaws.com", True),
        ("notamazonaws.com", False),
        ("api.pricing.us-east-1.amazonaws.com.example.org", False),
    ],
)
def test_only_hosts_of_awss_own_domains_leave_prices(host: str, is_kept: bool, tmp_path: Path) -> None:
    """A name that only ends like theirs is another's, who may have registered it."""
    look_up(a_list(url=f"https://{host}"), ["p5en.48xlarge"], NOW, tmp_path / "prices.json")
    assert (tmp_path / "prices.json").exists() is is_kept


def test_prices_are_cached_for_a_week(tmp_path: Path) -> None:
    """Not those of the embedded AWS of a rehearsal."""
    assert cache_of({"HOME": "/home/me", "AWS_ENDPOINT_URL": "http://127.0.0.1:5000"}, "us-west-1") is None
    cache = cache_of({"HOME": str(tmp_path)}, "us-west-1")
    first, second, third = a_list(), a_list(), a_list()
    prices = look_up(first, ["p5en.48xlarge"], NOW, cache)
    assert look_up(second, ["p5en.48xlarge"], NOW + timedelta(days=7), cache) == prices
    look_up(third, ["p5en.48xlarge"], NOW + timedelta(days=8), cache)
    assert [len(one.asked) for one in (first, second, third)] == [2, 0, 2]


@pytest.mark.parametrize(
    "content",
    [
        "{", '{"read": "2026-11-21", "storage": 1, "usd_per_hour": {"p5en.48xlarge": "1"}}'],
)  # fmt: skip
def test_a_damaged_file_is_as_good_as_none(content: str, tmp_path: Path) -> None:
    cache = tmp_path / "prices.json"
    cache.write_text(content)
    assert look_up(a_list(), ["p5en.48xlarge"], NOW, cache).usd_per_hour == {"p5en.48xlarge": 79.12}
    assert json.loads(cache.read_text())["read"] == "2026-11-21"


def test_a_type_without_a_price_on_demand_is_an_error_and_the_highest_of_several_counts() -> None:
    with pytest.raises(AwsError, match=r"no price on demand for p5e\.48xlarge in us-west-1"):
        look_up(a_list(), ["p5e.48xlarge"], NOW, None)
    several = PriceList({"m5.large": [product("0.1", "0"), product("0.2")], "gp3": [product("0.08")]})
    assert look_up(several, ["m5.large"], NOW, None).usd_per_hour == {"m5.large": 0.2}  # type: ignore[arg-type]

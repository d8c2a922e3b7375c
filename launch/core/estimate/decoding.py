"""How many JPEGs a processor decodes, from the few that were measured.  Pure."""

from launch.core.catalog import Instance
from launch.core.estimate.figure import Figure, figure
from launch.core.estimate.tables import table

# The slower of the measured ones, for a maker that is not known.
USUAL = "Intel"


def decoded_per_vcpu(instance: Instance, *, is_small: bool) -> Figure:
    """Images/s of a vCPU: of the measured processor of its maker, times the ratio of their clocks where both are known.

    is_small: prepared, with a shorter side of 256 px.
    """
    makers = table("rates")["decoding"]
    row = makers.get(instance.processor, makers[USUAL])
    measured, clock = figure(row["small" if is_small else "whole"]), row["measured_on"]["clock_ghz"]
    return measured.times(instance.clock_ghz / clock) if clock and instance.clock_ghz else measured

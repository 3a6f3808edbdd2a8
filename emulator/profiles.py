"""Named links and devices as plain numbers, each with its source; every field can be overridden.

The source "ours" means not measured. Rates are what a program gets, measured over TCP as speed
tests do. They already contain the cost of loss, so ``loss`` is 0; otherwise it would count twice.
Latency is one-way: half of a measured round trip.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from emulator.errors import BadValue, valid_name
from emulator.units import parse_duration, parse_rate


@dataclass(frozen=True, slots=True)
class ProfileFigure:
    """One number of a profile, with a key of ``SOURCES`` and how the number follows from it.

    ``value`` is text with a unit (link) or samples/s (device).
    """

    value: str
    source: str
    remark: str


OURS = "ours"
REFERENCE_STEP = "LeNet-5 on 28 x 28 images, batch 32, one SGD step, one thread, PyTorch"
POINT = (
    "x 6 samples/s per point; the 6 is our estimate, an order of magnitude: the step was timed"
    " only on server cores, whose points we had to guess"
)

SOURCES: Mapping[str, str] = {
    OURS: "our estimate of the order of magnitude, not measured; override it where it matters",
    "ofcom-2023": (
        "Ofcom, Mobile Matters 2023 (Opensignal, October 2022 to March 2023, UK), reported by"
        " ISPreview, 21 July 2023, "
        "https://www.ispreview.co.uk/index.php/2023/07/"
        "ofcom-publish-benchmarks-of-uk-5g-4g-and-3g-mobile-networks.html"
    ),
    "ofcom-2024": (
        "Ofcom, Mobile Matters 2024 (Opensignal, October 2023 to March 2024, UK), "
        "https://www.ofcom.org.uk/phones-and-broadband/mobile-phones/"
        "which-mobile-operator-has-the-longest-file-download-time/"
    ),
    "ofcom-2016": (
        "Ofcom, UK Home Broadband Performance, March 2016, reported by Advanced Television, "
        "https://advanced-television.com/2016/03/24/ofcom-uk-broadband-speeds-improve/"
    ),
    "webpagetest": (
        "WebPageTest, connectivity profiles,"
        " https://github.com/WPO-Foundation/webpagetest/blob/master/www/settings/"
        "connectivity.ini.sample"
    ),
    "firefox": (
        "Firefox, network throttling presets, "
        "https://github.com/mozilla-firefox/firefox/blob/main/devtools/docs/user/network_monitor/"
        "throttling/index.rst"
    ),
    "silabs": (
        "Silicon Labs, SiWT917 Wi-Fi throughput, TCP, 802.11ax, 2.4 GHz, 20 MHz, host Raspberry Pi"
        " 4, shielded chamber, "
        "https://docs.silabs.com/wifi-application-notes/latest/wifi-siwt917-rcp-wi-fi-throughput/"
        "expected-results"
    ),
    "ookla-2021": (
        "Ookla Speedtest Intelligence, Q2 2021, Starlink, US medians,"
        " https://www.ookla.com/articles/starlink-hughesnet-viasat-performance-q2-2021"
    ),
    "apnic-2022": (
        "Michel et al., A first look at Starlink performance, IMC 2022, reported at"
        " https://blog.apnic.net/2022/11/28/fact-checking-starlinks-performance-figures"
    ),
    "anritsu": (
        "Anritsu, Determining peak data rates for NB-IoT,"
        " https://www.temcom.com/determining-peak-data-rates-for-nb-iot/"
    ),
    "ugwuanyi-2021": (
        "Ugwuanyi, Paul, Irvine: Survey of IoT for developing countries, Electronics 10 (2021) 2224"
    ),
    "ttn-eu868": (
        "The Things Network, EU863-870 MHz band,"
        " https://www.thethingsnetwork.org/docs/lorawan/regional-parameters/eu868"
    ),
    "lorawan": "LoRa Alliance, LoRaWAN 1.0.3 Regional Parameters, revision A (2018)",
    "top500": "Geerling, HPL results, https://github.com/geerlingguy/top500-benchmark",
    "sbc-reviews": (
        "Geerling, Raspberry Pi 5, Geekbench 6,"
        " https://github.com/geerlingguy/sbc-reviews/issues/21"
    ),
    "7zip": (
        "7-Zip, four threads: Jetson Nano, https://github.com/Cat5TV/cat5tv-sbctest/issues/12; "
        "Pi 4 at 2.4 GHz, https://github.com/ThomasKaiser/sbc-bench/issues/32"
    ),
    "kreier": (
        "Kreier, Geekbench 5 and 6 of an HP ZBook 15 G3,"
        " https://github.com/kreier/benchmark/blob/main/geekbench/README.md"
    ),
    "nanoreview": (
        "NanoReview, Geekbench 5 of a Snapdragon 680,"
        " https://nanoreview.net/en/soc-compare/qualcomm-snapdragon-680-vs-mediatek-helio-g36"
    ),
    "notebookcheck": (
        "Notebookcheck, Geekbench 6 of a Galaxy S23 Ultra (Snapdragon 8 Gen 2), February 2023, "
        "https://www.notebookcheck.com/Geekbench-6-Apple-iPhone-14-Pro-Max-"
        "stellt-sich-Samsung-Galaxy-S23-Ultra-und-Google-Pixel-7-Pro-"
        "in-neuem-Benchmark.694639.0.html"
    ),
}

LINKS: Mapping[str, Mapping[str, ProfileFigure]] = {
    "lte": {
        "up": ProfileFigure("7.6mbit", "ofcom-2023", "average 4G upload"),
        "down": ProfileFigure("29.5mbit", "ofcom-2023", "average 4G download"),
        "latency": ProfileFigure(
            "10.5ms",
            "ofcom-2024",
            "half of 21 ms, the middle of the operators' average 4G response times, 18.3 to"
            " 23.7 ms",
        ),
        "jitter": ProfileFigure("5ms", OURS, "radio scheduling and retransmission"),
        "loss": ProfileFigure("0", "ofcom-2023", "in the measured rates"),
    },
    "5g-sub6": {
        "up": ProfileFigure("14.7mbit", "ofcom-2023", "average 5G upload"),
        "down": ProfileFigure(
            "129.9mbit", "ofcom-2023", "average 5G download; all of it is below 6 GHz"
        ),
        "latency": ProfileFigure(
            "9.4ms",
            "ofcom-2024",
            "half of 18.8 ms, the middle of the operators' average 5G response times, 16.3 to"
            " 21.4 ms",
        ),
        "jitter": ProfileFigure("3ms", OURS, "shorter slots than LTE"),
        "loss": ProfileFigure("0", "ofcom-2023", "in the measured rates"),
    },
    "wifi": {
        "up": ProfileFigure(
            "46.2mbit", "silabs", "TCP uplink of one embedded station, alone on the channel"
        ),
        "down": ProfileFigure("52.6mbit", "silabs", "TCP downlink of the same"),
        "latency": ProfileFigure("2ms", "firefox", "its Wi-Fi preset"),
        "jitter": ProfileFigure("1ms", OURS, "waiting for a free channel; much more on a busy one"),
        "loss": ProfileFigure("0", "silabs", "in the measured rates"),
    },
    "dsl": {
        "up": ProfileFigure("1mbit", OURS, "typical upload of ADSL2+"),
        "down": ProfileFigure("8.4mbit", "ofcom-2016", "average ADSL2+ download"),
        "latency": ProfileFigure(
            "25ms", "webpagetest", "half of the 50 ms round trip of its DSL profile"
        ),
        "jitter": ProfileFigure("1ms", OURS, "a line that is not shared"),
        "loss": ProfileFigure("0", "webpagetest", "its DSL profile has no loss"),
    },
    "satellite": {
        "up": ProfileFigure("13.89mbit", "ookla-2021", "median upload, low Earth orbit"),
        "down": ProfileFigure("97.23mbit", "ookla-2021", "median download, low Earth orbit"),
        "latency": ProfileFigure(
            "22.5ms",
            "ookla-2021",
            "half of the median 45 ms; for a geostationary satellite override it with about 300ms",
        ),
        "jitter": ProfileFigure(
            "5ms",
            "apnic-2022",
            "a quarter of the round trip's interquartile range, 40 to 60 ms",
        ),
        "loss": ProfileFigure("0", "ookla-2021", "in the measured rates"),
    },
    "nb-iot": {
        "up": ProfileFigure(
            "25kbit", "anritsu", "a tenth of the 250 kbit/s peak: sustained by a release 13 device"
        ),
        "down": ProfileFigure("20kbit", "anritsu", "a tenth of the 200 kbit/s peak"),
        "latency": ProfileFigure(
            "420ms", "ugwuanyi-2021", "half of the measured 837 ms; several seconds in bad coverage"
        ),
        "jitter": ProfileFigure("200ms", OURS, "repetitions and waiting for a grant"),
        "loss": ProfileFigure("0", OURS, "repeated on the radio link until delivered"),
    },
    "lora-like": {
        "up": ProfileFigure(
            "5470bit",
            "ttn-eu868",
            "data rate 5 (SF7, 125 kHz) during a transmission; the band's duty cycle of 1 % limits"
            " the mean to 55 bit/s",
        ),
        "down": ProfileFigure(
            "5470bit",
            "ttn-eu868",
            "answers in the first receive window have the uplink's data rate",
        ),
        "latency": ProfileFigure(
            "500ms",
            "lorawan",
            "half of RECEIVE_DELAY1 = 1 s, after which the first receive window opens",
        ),
        "jitter": ProfileFigure("0ms", "lorawan", "the windows are fixed"),
        "loss": ProfileFigure(
            "0.05", OURS, "unconfirmed frames collide; it grows with the number of devices"
        ),
    },
}

DEVICES: Mapping[str, ProfileFigure] = {
    "pi4": ProfileFigure("1800", "top500", "a Pi 5's times 11.889 / 30.249 Gflop/s"),
    "pi5": ProfileFigure("4500", "sbc-reviews", f"748 points single-core {POINT}"),
    "jetson-nano": ProfileFigure(
        "1500",
        "7zip",
        "a Pi 4's times 4953 MIPS / (7900 MIPS x 1.8 / 2.4); only its CPU, not its GPU",
    ),
    "laptop": ProfileFigure("6600", "kreier", f"an older business laptop, 1102 points {POINT}"),
    "phone-low": ProfileFigure(
        "2600", "nanoreview", f"371 points of Geekbench 5, x 1102 / 951 of Geekbench 6 {POINT}"
    ),
    "phone-high": ProfileFigure("13000", "notebookcheck", f"2095 points {POINT}"),
}


@dataclass(frozen=True, slots=True)
class LinkProfile:
    """Both directions of the link of one device.

    Latency and jitter are one-way; jitter is the standard deviation around the latency.
    """

    name: str
    up_bit_s: int
    down_bit_s: int
    latency_ns: int
    jitter_ns: int
    loss: float  # share of packets, 0 to below 1


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """How fast a device trains ``REFERENCE_STEP``."""

    name: str
    samples_per_s: float


def link_fields(profile: str | None, **overrides: Any) -> dict[str, Any]:
    """Return the fields of a LinkProfile, except its name, by their names.

    They are those of the named profile, with any of up, down, latency, jitter and loss overridden.
    Without a profile only the overridden ones are there. An override is text with a unit ("2mbit",
    "30ms", "1%") or a number in bit/s, ns or as a share; None is no override.
    """
    figures = {} if profile is None else LINKS[valid_name("link profile", profile, LINKS)]
    values = {key: figure.value for key, figure in figures.items()}
    values |= _overrides(f"profile {profile}: field" if profile else "field", overrides, _FIELDS)
    return {_FIELDS[key][0]: _FIELDS[key][1](value) for key, value in values.items()}


def link_profile(name: str, **overrides: Any) -> LinkProfile:
    """Return the named link with its fields overridden, as ``link_fields`` says."""
    return LinkProfile(name, **link_fields(name, **overrides))


def device_profile(name: str, **overrides: Any) -> DeviceProfile:
    """Return the named device, with samples_per_s overridden unless it is None."""
    figure = DEVICES[valid_name("device profile", name, DEVICES)]
    values = {"samples_per_s": figure.value}
    values |= _overrides(f"profile {name}: field", overrides, ["samples_per_s"])
    return DeviceProfile(name, _number("samples_per_s", values["samples_per_s"]))


def _overrides(what: str, overrides: Mapping[str, Any], valid: Iterable[str]) -> dict[str, Any]:
    """The overrides that are not None."""
    values = {key: value for key, value in overrides.items() if value is not None}
    for key in values:
        valid_name(what, key, valid)
    return values


def _whole(what: str, least: int, parse: Callable[[str], int]) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, str):
            return parse(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise BadValue(
                f"{what} {value!r}: expected text with a unit or a whole number of {least} or more"
            )
        return value

    return read


def _share(value: Any) -> float:
    share = (
        _number("loss", value[:-1], least=0.0) / 100
        if isinstance(value, str) and value.endswith("%")
        else _number("loss", value, least=0.0)
    )
    if share >= 1:
        raise BadValue(f"loss {value!r}: expected a share of packets below 1, such as 0.01 or 1%")
    return share


def _number(what: str, value: Any, least: float | None = None) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (number > 0 if least is None else number >= least) or number == math.inf:
        raise BadValue(
            f"{what} {value!r}: expected a number"
            f" {'above 0' if least is None else f'of {least:g} or more'}"
        )
    return number


# override: (field, what reads it)
_FIELDS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "up": ("up_bit_s", _whole("up", 1, parse_rate)),
    "down": ("down_bit_s", _whole("down", 1, parse_rate)),
    "latency": ("latency_ns", _whole("latency", 0, parse_duration)),
    "jitter": ("jitter_ns", _whole("jitter", 0, parse_duration)),
    "loss": ("loss", _share),
}

"""The catalog of published traces: where each is, its checksum, its licence, and what to cite.

Nothing of them comes with this package. A checksum is ``sha256:`` of the file, or ``git-sha1:``,
the id under which git stores the file at the commit in its address. It is "" where the publisher
gives none and the file has not been read for this catalog: then the first download records it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MAHIMAHI = (
    "https://raw.githubusercontent.com/ravinet/mahimahi/"
    "ae477d435615b972217498ba52be07db17a15618/traces/"
)
METS = (
    "https://raw.githubusercontent.com/NYU-METS/Main/"
    "886c73b1398457ba5f87faefe7a9ea3755e713f7/Sample_Traces/"
)
STARLINK = (
    "https://raw.githubusercontent.com/sys-uos/Starlink-on-the-Road/"
    "6be9959c3e3ae9ee43483e8e4775fe3402771f9b/data/"
)
IRISH = (
    "https://raw.githubusercontent.com/uccmisl/5Gdataset/306d92eba81cb4f1195d8b8eba625666a02a10ec/"
)
HSDPA = "https://datasets.simula.no/downloads/hsdpa-tcp-logs/"


@dataclass(frozen=True, slots=True)
class Collection:
    """Traces of one publication. ``note``: what to know before using them."""

    format_name: str
    page: str
    licence: str
    citation: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A file of a trace.

    ``url`` is "" if there is no address of this one file: then ``pattern`` is the form of its name,
    for ``--from``. ``directions``: what is read from it; "" is a rate without a direction.
    ``member``: the file inside a zip archive.
    """

    url: str
    checksum: str
    directions: tuple[str, ...]
    member: str = ""
    pattern: str = ""

    @property
    def name(self) -> str:
        """The file's name, or the pattern of its name."""
        return self.url.rpartition("/")[2] or self.pattern


@dataclass(frozen=True, slots=True)
class PublishedTrace:
    """An entry of the catalog."""

    title: str
    collection: Collection
    files: tuple[TraceFile, ...]


SATURATOR = Collection(
    "mahimahi",
    "https://github.com/ravinet/mahimahi/tree/master/traces",
    "GPL-3.0 or later (that of the repository)",
    "K. Winstein, A. Sivaraman, H. Balakrishnan: Stochastic forecasts achieve high throughput and"
    " low delay over cellular networks, NSDI 2013",
)
STARLINK_ROAD = Collection(
    "starlink-road",
    "https://github.com/sys-uos/Starlink-on-the-Road",
    "CC BY-SA 4.0",
    "D. Laniewski, E. Lanfer, S. Beginn, J. Dunker, M. Dückers, N. Aschenbruck: Starlink on the"
    " road: a first look at mobile Starlink performance in Central Europe, TMA 2024",
    "measurements of 15 s with pauses of 40 s and more between them, which are cut out",
)
NYU_METS = Collection(
    "nyu-mets",
    "https://github.com/NYU-METS/Main",
    "ODbL 1.0, contents DbCL 1.0",
    "L. Mei, R. Hu, H. Cao, Y. Liu, Z. Han, F. Li, J. Li: Realtime mobile bandwidth prediction"
    " using LSTM neural network, PAM 2019",
    "the publisher does not say whether it is the uplink or the downlink",
)
TELENOR = Collection(
    "hsdpa",
    "https://datasets.simula.no/hsdpa-tcp-logs/",
    "none stated; the publisher asks for the citation",
    "H. Riiser, P. Vigmostad, C. Griwodz, P. Halvorsen: Commute path bandwidth traces from 3G"
    " networks: analysis and applications, MMSys 2013",
    "the address of the file is taken from scripts of others and has not been tried",
)
MBA = Collection(
    "fcc-webget",
    "https://www.fcc.gov/oet/mba/raw-data-releases",
    "a work of the United States government; given as it is, not audited",
    "Federal Communications Commission: Measuring Broadband America, raw data; as traces: H. Mao,"
    " R. Netravali, M. Alizadeh: Neural adaptive video streaming with Pensieve, SIGCOMM 2017",
    "downloads about an hour apart, played one after the other for 5 s each",
)
GNETTRACK = Collection(
    "irish-5g",
    "https://github.com/uccmisl/5Gdataset",
    "GPL-3.0 (that of the repository)",
    "D. Raca, D. Leahy, C. J. Sreenan, J. J. Quinlan: Beyond throughput, the next generation: a 5G"
    " dataset with channel and context metrics, MMSys 2020",
    "only the downlink: UL_bitrate is not a capacity, nothing was uploaded",
)


def _pair(stem: str, title: str, up: str, down: str) -> PublishedTrace:
    """A pair of mahimahi's files."""
    files = (
        TraceFile(f"{MAHIMAHI}{stem}.up", up, ("up",)),
        TraceFile(f"{MAHIMAHI}{stem}.down", down, ("down",)),
    )
    return PublishedTrace(title, SATURATOR, files)


def _one(collection: Collection, title: str, url: str, checksum: str) -> PublishedTrace:
    directions = ("",) if collection is NYU_METS else ("down",)
    return PublishedTrace(title, collection, (TraceFile(url, checksum, directions),))


def _irish(title: str, member: str) -> PublishedTrace:
    archive = TraceFile(
        f"{IRISH}5G-production-dataset.zip",
        "sha256:abc729d696b5e0ba34a9c6ed35a851f2868d2b5071be5efb8a49691c23bb1a9b",
        ("down",),
        f"5G-production-dataset/Download/{member}.csv",
    )
    return PublishedTrace(title, GNETTRACK, (archive,))


PUBLISHED: Mapping[str, PublishedTrace] = {
    "verizon-lte-short": _pair(
        "Verizon-LTE-short",
        "Verizon LTE in a car, 140 s",
        "sha256:f6cd9049f58d70f12545772a3482ded085b6d50f06a2f4ff4afcfb6fe7976dcc",
        "sha256:c918436fbd6246af134c76585d9395881fdd27203c59a8902b9a7c675b8a8e3e",
    ),
    "verizon-lte": _pair(
        "Verizon-LTE-driving",
        "Verizon LTE in a car",
        "git-sha1:b4ca49ef2a5a8d2e21162aaaf02b12d80f0f17e0",
        "git-sha1:d431ad4a5ed9811588256bae5b14025cbdffd7fd",
    ),
    "verizon-evdo": _pair(
        "Verizon-EVDO-driving",
        "Verizon 3G (EV-DO) in a car",
        "sha256:6055d60d234030035f59475dc1d39d99e7c2817b9fa5d485f1f0710b1aae2075",
        "sha256:60c9cd7b5d8be7d89d3807052a043f54787958f04cfd4c6c16fcdac6e2c3b9da",
    ),
    "tmobile-lte-short": _pair(
        "TMobile-LTE-short",
        "T-Mobile LTE in a car, 140 s",
        "sha256:1c0d1bf5417b07597724fd64afe676af3c1f337a4ccdde90106bf96b1bcf18b2",
        "sha256:4f33dce8dd811b5702272af64aaf64d3913719919abd776edf1e0f7c0965da43",
    ),
    "tmobile-lte": _pair(
        "TMobile-LTE-driving",
        "T-Mobile LTE in a car",
        "git-sha1:08944aed62004a240f0c8ca4f5e730207442f83c",
        "sha256:d48ff134fc29c36cc3c3dee203464246bd698f0faede42534a27b0cbe3057055",
    ),
    "tmobile-umts": _pair(
        "TMobile-UMTS-driving",
        "T-Mobile 3G (UMTS) in a car",
        "sha256:f2dc7c8e57f4cf525fefaff2d68c18a9118fd1382ce9c240b1d324a2a60f8a65",
        "sha256:c97a74e7e6cf593d93b59f73db614bc6186bef510531636ad9961a3b9fc18024",
    ),
    "att-lte": _pair(
        "ATT-LTE-driving",
        "AT&T LTE in a car",
        "sha256:d58a640b9bccd131a421bff6eaf727aba324d9258b35009655bbf68e087b9b29",
        "sha256:73c58f41bf7a3f0fac82810ca61307521be1cf6b77a0e98093fd340bddfd161f",
    ),
    "att-lte-2016": _pair(
        "ATT-LTE-driving-2016",
        "AT&T LTE in a car, 2016",
        "sha256:ebb3d53674b77be4ed920ad91c4513a496e04e30da839e2ca8a627cb7269071e",
        "sha256:24a40538340de991e0a6595aefc381b11a3da0446176e69b51750707a57b0344",
    ),
    "starlink-road": PublishedTrace(
        "Starlink on a moving car in Germany, both directions",
        STARLINK_ROAD,
        (
            TraceFile(
                f"{STARLINK}iperf.csv",
                "sha256:0906c0dfcc3bc30fec0b9db05a1951404ce9c7cfbabb3a8f4108546e47026633",
                ("up", "down"),
            ),
        ),
    ),
    "nyu-mets-bus": _one(
        NYU_METS,
        "LTE in a bus in New York (B57)",
        f"{METS}bus57.csv",
        "sha256:9f2b6b06214888b5ab5e038332315eb3847b479d84eefa8cf96604d89f799aea",
    ),
    "nyu-mets-subway": _one(
        NYU_METS,
        "LTE in the subway in New York (line 7)",
        f"{METS}7Train1.csv",
        "sha256:0530c6e75b33a19084faee2694dfa376588f2f48affddb0ad0ffcdba4622b487",
    ),
    "nyu-mets-train": _one(
        NYU_METS,
        "LTE in a train near New York (Long Island Rail Road)",
        f"{METS}Long_Island_Rail_Road.csv",
        "sha256:f720507e45dbf128c62c009214498344045ab4f3d999a6ade2ce8c316f68ca30",
    ),
    "hsdpa-bus": _one(
        TELENOR,
        "3G (HSDPA) in a bus in Oslo, downlink",
        f"{HSDPA}bus.ljansbakken-oslo/report.2010-09-28_1407CEST.log",
        "",
    ),
    "fcc-webget": PublishedTrace(
        "fixed lines of homes in the United States, downlink",
        MBA,
        (TraceFile("", "", ("down",), pattern="curr_webget*.csv"),),
    ),
    "irish-5g-driving": _irish("5G in a car in Ireland, downlink", "Driving/B_2020.02.13_15.02.01"),
    "irish-5g-static": _irish("5G at rest in Ireland, downlink", "Static/B_2020.02.27_18.39.27"),
}

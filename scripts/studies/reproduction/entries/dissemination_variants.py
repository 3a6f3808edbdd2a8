"""The main setting of timely dissemination, varied: slower links, wider speeds, more devices, and
when a device asks. LeNet on Fashion-MNIST, an epoch is a pass, a fifth of the budget.
"""

from __future__ import annotations

from reproduction import rules
from reproduction.entries._dissemination import (
    ACCURACY,
    FIFTH,
    FMNIST,
    FOLDER,
    HOURS,
    MERGE_CAUSE,
    NOT_GIVEN,
    ONE_POINT,
    OTHERS,
    PASS,
    TIME,
    grows,
)
from reproduction.entry import Claim, CurveFigure, Entry, MethodPlan, Part


def _variant(
    name: str, source: str, title: str, parts: tuple[Part, ...], claims: tuple[Claim, ...]
) -> Entry:
    return Entry(
        name,
        "seed0",
        source,
        title,
        f"{PASS.text} A fifth of that budget, with the values tuned in seed0-table4-pass.",
        parts,
        claims=claims,
        figures=(CurveFigure("accuracy", f"Test accuracy over emulated time: {title}"),),
        data=FMNIST,
        hours=HOURS[name],
        notes=NOT_GIVEN,
    )


def _others(name: str, config: str, methods: tuple[MethodPlan, ...], title: str) -> Part:
    return PASS.part(
        name,
        methods,
        config=FOLDER / config,
        share=FIFTH,
        settings_of="seed0-table4-pass/main",
        title=title,
        overrides=("evaluation.target_accuracy=0.6",),
    )


def _leads(part: str, gains: str, faster: str, sync: str) -> tuple[Claim, ...]:
    """Return the claims that FedASMU and FedSSMU lead in a part's setting."""

    def leads(method: str, other: str) -> Claim:
        published = sync if method == "fedssmu" else f"{gains}; {faster}"
        return Claim(
            f"{method} is more accurate and faster than {other} ({part})",
            published,
            lambda r: rules.every(
                {
                    "accuracy": rules.better(
                        r, (part, method), (part, other), ACCURACY, least=ONE_POINT
                    ),
                    "time to .60": rules.better(r, (part, method), (part, other), TIME),
                }
            ),
            cause=MERGE_CAUSE if method == "fedasmu" else "",
            needs=(part,),
        )

    return leads("fedasmu", "fedasync"), leads("fedssmu", "fedavg")


TRAIN_ON = MethodPlan("fedasmu-train-on", tuned_as="fedasmu")
LINKS = _variant(
    "seed0-fig8",
    "fig. 8, section 6.2.5",
    "Links 50 and 100 times slower",
    (
        _others("links50", "fmnist_links50.toml", (*OTHERS, TRAIN_ON), "50 times slower"),
        _others("links100", "fmnist_links100.toml", (*OTHERS, TRAIN_ON), "100 times slower"),
    ),
    (
        *_leads(
            "links50",
            "fig. 8: 3.3 to 11.9 points",
            "43.1 to 87.3 % faster",
            "fig. 8: 1.15 to 4.58 points; 42.2 to 51.8 % faster",
        ),
        *_leads(
            "links100",
            "section 6.2.5: 2.97 to 12.4 points",
            "31.3 to 85.7 % faster",
            "section 6.2.5: 2.88 to 6.1 points; 16.6 to 81.8 % faster",
        ),
        Claim(
            "The advantage of FedASMU over FedAsync is larger at 100 times slower links than at 50",
            "section 6.2.5 says so, although the lower ends of its ranges fall",
            lambda r: grows(r, "fedasmu", "fedasync", ACCURACY, ("links50", "links100")),
        ),
    ),
)
SPEEDS = _variant(
    "seed0-fig7",
    "fig. 7",
    "Devices that differ 110 and 440 times in speed",
    (
        _others("ratio110", "fmnist_ratio110.toml", OTHERS, "110 times"),
        _others("ratio440", "fmnist_ratio440.toml", OTHERS, "440 times"),
    ),
    tuple(
        claim
        for part in ("ratio110", "ratio440")
        for claim in _leads(
            part,
            "fig. 7: 4.65 to 7.07 points",
            "7.12 to 69.8 % faster",
            "fig. 7: 6.28 to 12.4 points; 68.4 to 79.4 % faster",
        )
    ),
)
DEVICES = _variant(
    "seed0-fig6",
    "fig. 6",
    "200 and 250 devices",
    (
        _others("devices200", "fmnist_200_devices.toml", OTHERS, "200 devices, 20 at work"),
        _others("devices250", "fmnist_250_devices.toml", OTHERS, "250 devices, 25 at work"),
    ),
    tuple(
        claim
        for part in ("devices200", "devices250")
        for claim in _leads(
            part,
            "fig. 6: 0.49 to 12.5 points",
            "19.8 to 90.2 % faster",
            "fig. 6: 0.1 to 13.4 points; 54.5 to 91.3 % faster",
        )
    ),
)

# ------------------------------------------------------------------ when devices ask
POINTS = ("h1", "h2", "h3")
REQUESTS = _variant(
    "seed0-requests",
    "section 6.2.6",
    "When a device asks: learned, or after a fixed number of epochs",
    (
        PASS.part(
            "main",
            tuple(MethodPlan(label, tuned_as="fedasmu") for label in ("learned", *POINTS)),
            config=FOLDER / "fmnist_refresh_points.toml",
            share=FIFTH,
            settings_of="seed0-table4-pass/main",
        ),
    ),
    tuple(
        Claim(
            f"The learned refresh point is more accurate than {name} (after epoch {epoch})",
            f"section 6.2.6: {points} points",
            lambda r, name=name: rules.better(r, "learned", name, ACCURACY, least=ONE_POINT),
        )
        for name, epoch, points in (("h1", 1, 2.4), ("h2", 2, 2.2), ("h3", 4, 2.8))
    ),
)
ENTRIES = (LINKS, SPEEDS, DEVICES, REQUESTS)

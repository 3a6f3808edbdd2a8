"""Sections of the experiment file about energy: the power of devices and radios."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from edgefl.config.section import Section
from emulator.energy import power


class DeviceEnergy(Section):
    """The power of each edge's device, without its radio.

    With this table, the run's energy is modelled. Numbers that are missing are those of the
    profile.
    """

    profile: str | None = None
    """Name of a device with known power, such as `"pi4"`; `emulator profiles` lists them. Default:
    `devices.profile`.
    """
    idle_w: float | None = Field(None, ge=0)
    """Power in watts while the device waits. It counts all the time, from the moment when the edge
    joins to the end of the run. Required without a profile.
    """
    compute_w: float | None = Field(None, ge=0)
    """Power in watts while the device trains; at least `idle_w`. Required without a profile."""

    def power(self, default: str | None) -> power.DevicePower:
        """The power that this table means; ``default``: the name of a profile, if it has none."""
        numbers = self.model_dump(exclude={"profile"})
        return power.device_power(_name(self.profile or default, numbers), **numbers)


class RadioEnergy(Section):
    """The power of each edge's radio.

    With this table, the run's energy is modelled. Numbers that are missing are those of the
    profile.
    """

    profile: str | None = None
    """Name of a radio with known power, such as `"lte"`; `emulator profiles` lists them. Default:
    `links.profile`.
    """
    idle_w: float | None = Field(None, ge=0)
    """Power in watts while nothing is sent or received. It counts all the time. Required without a
    profile.
    """
    send_w: float | None = Field(None, ge=0)
    """Power in watts while the edge sends; at least `idle_w`. Required without a profile."""
    receive_w: float | None = Field(None, ge=0)
    """Power in watts while the edge receives; at least `idle_w`. Required without a profile."""
    send_j_mbit: float | None = Field(None, ge=0)
    """Joules per Mbit that is sent, in addition to `send_w`. Default without a profile: 0."""
    receive_j_mbit: float | None = Field(None, ge=0)
    """Joules per Mbit that is received, in addition to `receive_w`. Default without a profile: 0.
    """
    tail_w: float | None = Field(None, ge=0)
    """Power in watts for `tail_s` after a transfer. Default without a profile: 0."""
    tail_s: float | None = Field(None, ge=0, le=86_400)
    """Emulated seconds after a transfer in which the radio is not idle yet. Default without a
    profile: 0.
    """

    def power(self, default: str | None) -> power.RadioPower:
        """The power that this table means; ``default``: the name of a profile, if it has none."""
        numbers = self.model_dump(exclude={"profile"})
        return power.radio_power(_name(self.profile or default, numbers), **numbers)


def _name(name: str | None, numbers: dict[str, Any]) -> str | None:
    """The profile, unless the numbers are complete without it."""
    needed = [key for key in ("idle_w", "compute_w", "send_w", "receive_w") if key in numbers]
    return None if all(numbers[key] is not None for key in needed) else name

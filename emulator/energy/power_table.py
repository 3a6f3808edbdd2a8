"""The power of named devices and radios, each number with its source.

A device's power is that of the whole board without its radio; idle: booted, and nothing runs;
compute: all its cores are busy. Powers are in watts, ``_j_mbit`` in joules per Mbit. Numbers that
depend on a device's settings, such as its clock, are orders of magnitude: measure your own.
"""

from __future__ import annotations

from collections.abc import Mapping

from emulator.profile_table import ProfileFigure

POWER_SOURCES: Mapping[str, str] = {
    "pidramble": (
        "Geerling, Raspberry Pi Dramble, power consumption benchmarks, Pi 4 B,"
        " https://www.pidramble.com/wiki/benchmarks/power-consumption; what idle means:"
        " https://github.com/geerlingguy/raspberry-pi-dramble/issues/180"
    ),
    "geerling-2024": (
        "Geerling, LLMs accelerated with eGPU on a Raspberry Pi 5, 2024, section Performance,"
        " https://www.jeffgeerling.com/blog/2024/llms-accelerated-egpu-on-raspberry-pi-5"
    ),
    "powerjoular": (
        "Noureddine, PowerJoular, power models from measurements, Pi 5 B 1.0, 64 bit, linear,"
        " https://github.com/joular/powerjoular/blob/main/src/raspberry_pi_cpu_formula.adb"
    ),
    "jetson-stats": (
        "jetson_stats, input power of an idle Jetson Nano developer kit (JetPack 4.4),"
        " https://github.com/rbonghi/jetson_stats/issues/73"
    ),
    "nvidia-l4t": (
        "NVIDIA, Jetson Linux developer guide, power management for Jetson Nano, table of power"
        " modes, https://docs.nvidia.com/jetson/l4t/index.html"
    ),
    "xiaomi-pro": (
        "Battery drain of a Xiaomi Mi Notebook Pro (eighth generation Core i5 or i7), idle,"
        " https://github.com/daliansky/XiaoMi-Pro-Hackintosh/issues/116"
    ),
    "intel-ark": (
        "Intel, product specifications, Core i5-8250U (the i7-8550U has the same TDP),"
        " https://ark.intel.com/content/www/us/en/ark/products/124967.html"
    ),
    "android-profile": (
        "Power profile of a Google Pixel 6a in Android,"
        " https://github.com/LineageOS/android_device_google_bluejay, file"
        " overlay/FrameworkResOverlayVendorBluejay/res/xml/power_profile.xml; what its values mean:"
        " https://source.android.com/docs/core/power/values"
    ),
    "m5stack": (
        "M5Stack, Module NBIoT with an M5311, electrical characteristics,"
        " https://docs.m5stack.com/zh_CN/module/nb-iot; 3.3 V is the typical voltage of a similar"
        " module, Tuya's NM1, https://developer.tuya.com/en/docs/iot/nm1?id=K98367zlm6pet"
    ),
    "huang-2012": (
        "Huang et al., A close examination of performance and power characteristics of 4G LTE"
        " networks, MobiSys 2012, its power model of LTE, https://doi.org/10.1145/2307636.2307658"
    ),
}

DEVICE_POWER: Mapping[str, Mapping[str, ProfileFigure]] = {
    "pi4": {
        "idle_w": ProfileFigure("2.7", "pidramble", "540 mA at 5 V, idle"),
        "compute_w": ProfileFigure("6.4", "pidramble", "1280 mA at 5 V, stress --cpu 4"),
    },
    "pi5": {
        "idle_w": ProfileFigure("3", "geerling-2024", "a Pi 5, idle"),
        "compute_w": ProfileFigure(
            "7.9", "powerjoular", "4.403 + 3.458 x load in W, at a load of 100 %"
        ),
    },
    "jetson-nano": {
        "idle_w": ProfileFigure("0.94", "jetson-stats", "940 mW, read from the board's own meter"),
        "compute_w": ProfileFigure(
            "10", "nvidia-l4t", "the budget of its default mode, which is an upper bound"
        ),
    },
    "laptop": {
        "idle_w": ProfileFigure("5.5", "xiaomi-pro", "5.4 to 5.5 W from the battery, screen on"),
        "compute_w": ProfileFigure(
            "20.5", "intel-ark", "the idle power and the processor's TDP, 15 W"
        ),
    },
    "phone": {
        "idle_w": ProfileFigure(
            "0.15",
            "android-profile",
            "cpu.suspend 10 mA + cpu.idle 28.6 mA at 3.85 V: awake, screen off",
        ),
        "compute_w": ProfileFigure(
            "3.7",
            "android-profile",
            "all cores at their highest clock: idle + cpu.active 12.4 mA + clusters 9.4 mA + 4 x"
            " 58.45 + 2 x 79.04 + 2 x 254.25 mA, at 3.85 V",
        ),
    },
}

RADIOS: Mapping[str, Mapping[str, ProfileFigure]] = {
    "lte": {
        "idle_w": ProfileFigure("0", "android-profile", "modem.controller.sleep: 0 mA"),
        "send_w": ProfileFigure("1.288", "huang-2012", "1288 mW, whatever the rate"),
        "receive_w": ProfileFigure("1.288", "huang-2012", "1288 mW, whatever the rate"),
        "send_j_mbit": ProfileFigure("0.43839", "huang-2012", "438.39 mW for each Mbit/s"),
        "receive_j_mbit": ProfileFigure("0.05197", "huang-2012", "51.97 mW for each Mbit/s"),
        "tail_w": ProfileFigure("1.06", "huang-2012", "1060 mW while the connection is kept"),
        "tail_s": ProfileFigure("11.576", "huang-2012", "until the connection is released"),
    },
    "wifi": {
        "idle_w": ProfileFigure("0.14", "android-profile", "wifi.controller.idle: 38 mA, 3.7 V"),
        "send_w": ProfileFigure("1.74", "android-profile", "wifi.controller.tx: 470 mA, 3.7 V"),
        "receive_w": ProfileFigure("0.363", "android-profile", "wifi.controller.rx: 98 mA, 3.7 V"),
    },
    "nb-iot": {
        "idle_w": ProfileFigure("0.0013", "m5stack", "0.4 mA at 3.3 V, paging every 1.28 s"),
        "send_w": ProfileFigure("0.551", "m5stack", "167 mA at 3.3 V, 23 dBm, one 15 kHz tone"),
        "receive_w": ProfileFigure("0.178", "m5stack", "54 mA at 3.3 V"),
    },
}

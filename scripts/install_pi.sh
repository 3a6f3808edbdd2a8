#!/usr/bin/env bash
# Installs edgefl as an edge on a fresh 64-bit Raspberry Pi OS or Debian, Bookworm or newer. A second call does only what is left.
#
#   scripts/install_pi.sh [--check] [--venv DIR] [--wheels DIR] [--extras LIST] [--no-apt] [--keys DIR]
#   scripts/install_pi.sh --service ID --keys DIR (--connect ADDRESS | --discover) [--shards DIR] [...]
#
#   --check            look at this machine and say what is missing; change nothing
#   --venv DIR         the environment (default: ~/.edgefl/venv, where `edgefl hosts install` has it too)
#   --wheels DIR       take all packages from this folder, made by `edgefl hosts wheels`, and nothing from the network
#   --extras LIST      extras of edgefl, such as discover; an edge needs none
#   --no-apt           install no package of the system; without it `apt-get` runs if one is missing, with sudo
#   --keys DIR         the folder with this edge's keys: made readable for you only
#   --service ID       make edge ID a service that starts with the machine and joins run after run. It is user edgefl,
#                      with its environment in /opt/edgefl/venv and its files in /var/lib/edgefl
#   --connect ADDRESS  the coordinator, such as tcp://192.0.2.10:7700
#   --discover         find the coordinator in the local network by mDNS (adds the extra discover)
#   --shards DIR       the folder with ID.safetensors, this edge's share of the data
#
# edgefl itself comes from the first of these: DIR of --wheels; the checkout that this script is in; the file
# edgefl_testbed-*.whl next to this script. The versions come from constraints.txt next to this script.
# PYTHON=python3.12 names the interpreter (3.11 or newer; default: python3).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
constraints="$here/constraints.txt"
python=${PYTHON:-python3}
venv="" wheels="" extras="" keys="" shards="" service="" connect="" discover="" check="" apt=yes
state=/var/lib/edgefl
least_memory_mb=700  # of 1 GB, the firmware keeps a part; an edge with the digits takes about 0.35 GB
least_disk_mb=1200   # the environment has about 0.75 GB; pip needs the space of the downloads for a moment
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

say() { printf 'install_pi: %s\n' "$*"; }
fail() { printf 'install_pi: %s\n' "$*" >&2; exit 1; }
wrong() { printf 'install_pi: %s (see --help)\n' "$*" >&2; exit 2; }

read_words() {
    while [ $# -gt 0 ]; do
        case "$1" in
            -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "${BASH_SOURCE[0]}"; exit 0 ;;
            --check) check=yes ;;
            --no-apt) apt="" ;;
            --discover) discover=yes ;;
            --venv | --wheels | --extras | --keys | --shards | --service | --connect)
                [ $# -gt 1 ] && [ -n "$2" ] && [[ "$2" != --* ]] || wrong "$1: expected a value"
                printf -v "${1#--}" '%s' "$2"
                shift ;;
            *) wrong "$1: no such option" ;;
        esac
        shift
    done
}

check_words() {
    [ -f "$constraints" ] || wrong "$constraints: no such file; copy it with this script"
    [ -z "$wheels" ] || [ -d "$wheels" ] || wrong "--wheels $wheels: no such folder"
    [ -z "$keys" ] || [ -d "$keys" ] || wrong "--keys $keys: no such folder"
    [[ "$extras" =~ ^[a-z,]*$ ]] || wrong "--extras $extras: expected names, separated by commas"
    [ -z "$keys" ] || [ -f "$keys/coordinator.key" ] || wrong "--keys $keys: no coordinator.key there"
    if [ -n "$service" ]; then
        check_service_words
        return
    fi
    [ -z "$connect$discover$shards" ] || wrong "--connect, --discover and --shards belong to --service ID"
    venv=${venv:-$HOME/.edgefl/venv}
    [[ "$venv" = /* ]] || venv="$PWD/$venv"
}

check_service_words() {
    [[ "$service" =~ ^[a-z0-9][a-z0-9_-]{0,31}$ ]] || wrong "--service $service: expected an edge id: at most 32 of a-z, 0-9, _ and -"
    [ -z "$connect" ] || [ -z "$discover" ] || wrong "--connect and --discover: expected one of them"
    [ -n "$connect$discover" ] || wrong "--service $service: expected --connect ADDRESS or --discover"
    [[ -z "$connect" || "$connect" =~ ^tcp://[^[:space:]/]+:[0-9]+$ ]] || wrong "--connect $connect: expected tcp://HOST:PORT"
    [ -n "$keys" ] || wrong "--service $service: expected --keys DIR"
    [ -f "$keys/edges/$service.key_secret" ] || wrong "--keys $keys: no edges/$service.key_secret there"
    [ -z "$shards" ] || [ -f "$shards/$service.safetensors" ] || wrong "--shards $shards: no $service.safetensors there"
    [ -f "$here/edgefl-edge@.service" ] || wrong "$here/edgefl-edge@.service: no such file; copy it with this script"
    [ -z "$venv" ] || wrong "--venv and --service: the environment of a service is /opt/edgefl/venv"
    venv=/opt/edgefl/venv
    [ -z "$discover" ] || extras="${extras:+$extras,}discover"
}

find_source() {  # what pip installs, and the options that belong to it
    local found=()
    find_options=()
    if [ -n "$wheels" ]; then
        wheels=$(cd "$wheels" && pwd)
        found=("$wheels"/edgefl_testbed-*.whl)
        find_options=(--no-index --find-links "$wheels")
    elif [ -f "$here/../pyproject.toml" ]; then
        found=("$(cd "$here/.." && pwd)")
    else
        found=("$here"/edgefl_testbed-*.whl)
    fi
    local folder; folder=$(dirname "${found[0]}")
    [ -e "${found[0]}" ] || wrong "$folder: no file edgefl_testbed-*.whl there; edgefl hosts wheels DIR makes it"
    [ ${#found[@]} -eq 1 ] || wrong "$folder: expected one file edgefl_testbed-*.whl, found ${#found[@]}"
    source=${found[0]}
}

check_machine() {
    local memory_mb disk_mb folder=$venv
    [ -z "${SUDO_USER:-}" ] || fail "run this without sudo, as the user whose edge it is; it calls sudo where it must"
    [ "$(uname -sm)" = "Linux aarch64" ] || fail "this is $(uname -sm): expected 64-bit ARM Linux (for other machines: scripts/setup_env.sh)"
    command -v "$python" >/dev/null || fail "no $python; install it: sudo apt install python3 python3-venv"
    "$python" -c 'import sys; sys.exit(sys.maxsize < 2**32)' \
        || fail "$python is a 32-bit program, for which there is no torch: use the 64-bit Raspberry Pi OS"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
        || fail "$("$python" --version) is too old: expected 3.11 or newer, as in Raspberry Pi OS Bookworm"
    memory_mb=$(($(getconf _PHYS_PAGES) * $(getconf PAGE_SIZE) / 1000000))
    [ "$memory_mb" -ge $least_memory_mb ] || fail "$memory_mb MB of memory: expected $least_memory_mb MB, as on a Pi with 1 GB"
    while [ ! -d "$folder" ]; do folder=$(dirname "$folder"); done
    [ -w "$folder" ] || [ -n "$service" ] || fail "$folder: cannot be written by $(id -un)"
    disk_mb=$(df -P -B 1000000 "$folder" | awk 'NR == 2 {print $4}')
    [ -e "$venv/.edgefl-setup" ] || [ "$disk_mb" -ge $least_disk_mb ] || fail "$folder: $disk_mb MB free: expected $least_disk_mb MB"
    say "Linux aarch64, $("$python" --version), $memory_mb MB of memory, $disk_mb MB free on disk"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

install_system() {
    "$python" -c 'import ensurepip, venv' 2>/dev/null && return
    [ -n "$apt" ] || fail "$python has no venv: sudo apt install python3-venv"
    say "apt-get installs python3-venv"
    as_root apt-get -qq update && as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends python3-venv ca-certificates >/dev/null \
        || fail "apt-get cannot install python3-venv"
}

fingerprint() {  # prints a hash of what the environment was made from
    {
        printf '%s\n' "$source" "$extras" && cat "$constraints" && "$venv/bin/python" --version
        if [ -d "$source" ]; then
            find "$source"/{edgefl,emulator,edgefl_testbed.py,configs,scripts,pyproject.toml} -type f ! -name '*.pyc' -print0 | sort -z | xargs -0 sha256sum
        else
            sha256sum "$source"
        fi
    } | sha256sum
}

pip_install() {  # shows pip's progress on a terminal, nothing in logs
    local quiet=()
    [ -t 1 ] || quiet=(--quiet)
    # /tmp may be in memory and too small for the downloads.
    TMPDIR="$venv/tmp" "$venv/bin/python" -m pip install ${quiet[@]+"${quiet[@]}"} --constraint "$constraints" \
        ${find_options[@]+"${find_options[@]}"} "$@" || fail "pip cannot install $*"
}

build_wheel() {  # from a copy, so that nothing is left in the checkout, and nothing old gets in
    local copy="$venv/tmp/source"
    pip_install setuptools
    mkdir -p "$copy"
    (cd "$source" && cp -a edgefl emulator edgefl_testbed.py configs scripts pyproject.toml README.md LICENSE "$copy")
    "$venv/bin/python" -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$venv/tmp" "$copy" || fail "$source: cannot be built"
    wheel=$(echo "$venv"/tmp/edgefl_testbed-*.whl)
}

check_torch() {  # ends with a reason if torch does not train here
    local status=0 told
    told=$("$venv/bin/python" -c 'import torch
layer = torch.nn.Linear(8, 2)
layer(torch.ones(4, 8)).sum().backward()
print(torch.__version__)' 2>&1) || status=$?
    case $status in
        0) say "torch ${told##*$'\n'} works" ;;
        132) fail "the installed torch ends with an illegal instruction on this processor: remove $venv and run this again" ;;
        *) fail "the installed torch does not import (${told##*$'\n'}): remove $venv and run this again" ;;
    esac
}

install_edgefl() {
    if [ "$(cat "$venv/.edgefl-setup" 2>/dev/null || true)" = "$(fingerprint 2>/dev/null || true)" ]; then
        say "$venv is up to date"
        return
    fi
    "$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$python" -m venv --clear "$venv" || fail "$python cannot make $venv"
    rm -rf "$venv/tmp" "$venv/.edgefl-setup"
    mkdir -p "$venv/tmp"
    say "edgefl from $source, about 0.2 GB of packages${find_options:+ from $wheels}"
    if [ -d "$source" ]; then
        build_wheel
    else
        wheel=$source
    fi
    # This version may be another state of the code; edgefl is its name of before, or a project of others.
    "$venv/bin/python" -m pip uninstall --quiet --yes edgefl-testbed edgefl emulator 2>/dev/null
    pip_install "$wheel${extras:+[$extras]}"
    rm -r "$venv/tmp"
    check_torch
    fingerprint >"$venv/.edgefl-setup"
}

protect_keys() {  # the folder and the secret keys belong to one user, and only this user reads them
    chmod 700 "$keys"
    find "$keys" -name '*.key_secret' -exec chmod 600 {} +
    say "$keys: readable for $(id -un) only"
}

install_service() {
    local file options="--keys $state/keys"
    id edgefl >/dev/null 2>&1 \
        || as_root useradd --system --user-group --home-dir $state --no-create-home --shell /usr/sbin/nologin edgefl
    as_root install -d -o edgefl -g edgefl -m 700 $state $state/keys $state/keys/edges $state/shards
    for file in coordinator.key "edges/$service.key_secret"; do
        as_root install -o edgefl -g edgefl -m 600 "$keys/$file" "$state/keys/$file"
    done
    if [ -n "$shards" ]; then
        as_root install -o edgefl -g edgefl -m 600 "$shards/$service.safetensors" "$state/shards/$service.safetensors"
        options+=" --shards $state/shards"
    fi
    [ -n "$discover" ] && options="--discover $options" || options="--connect $connect $options"
    as_root install -d /etc/edgefl /etc/systemd/system
    printf 'EDGEFL_EDGE="%s"\n' "$options" | as_root tee "/etc/edgefl/$service.env" >/dev/null
    as_root install -m 644 "$here/edgefl-edge@.service" /etc/systemd/system/
    if [ -d /run/systemd/system ]; then
        as_root systemctl daemon-reload
        as_root systemctl enable --quiet "edgefl-edge@$service"
        as_root systemctl restart "edgefl-edge@$service"
        say "done; its log: journalctl -f -u edgefl-edge@$service"
    else
        say "done; systemd does not run here, edgefl-edge@$service starts with it: systemctl enable --now edgefl-edge@$service"
    fi
}

read_words "$@"
check_words
find_source
check_machine
if [ -n "$check" ]; then
    say "edgefl would come from $source into $venv"
    exit 0
fi
install_system
# The environment of a service belongs to this user, so that pip need not run as root.
[ -z "$service" ] || [ -w "$(dirname "$venv")" ] || as_root install -d -o "$(id -un)" "$(dirname "$venv")"
install_edgefl
[ -z "$keys" ] || protect_keys
if [ -n "$service" ]; then
    install_service
    exit 0
fi
say "done; now: $venv/bin/edgefl edge --connect tcp://COORDINATOR:7700 --id $(uname -n) --keys DIR"

#!/bin/bash
# Everything that needs a GPU, for a machine that has one and perhaps no Rust:
#   benches/gpu.sh build FOLDER       builds programs, tests and benches, without debug information, into FOLDER
#   benches/gpu.sh build-gst FOLDER   adds the tests that need GStreamer, with its libraries and plug-ins of this machine, whose
#                                     glibc is not newer than that one's, and nvJPEG (some 45 MB)
#   FOLDER/gpu.sh run RESULTS [PART...]   there, some 25 minutes; logs in RESULTS. Parts, by default all in this order:
#       tests rivermax encode benches record latency; begin (starts the long run in the background), sanitizer, soak (waits for it)
# RECORD_DISK is a folder on the disk that `record` measures (the script's own), RECORD_SIZE (8GiB) how much it writes each way;
# as root it writes the record of udev that cuFile needs there. GDMEDIA_CUFILE names the library where it is not installed.
# SECONDS_EACH (60) is how long a latency run takes, SOAK (600) the long run. A stream needs net.core.rmem_max of some
# 100 MB; as root the script sets it.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)

build() {
  local folder=$1 features=(--no-default-features --features cuda,rivermax-stand-in) line
  mkdir -p "$folder/deps" "$folder/checked" "$folder/examples"
  programs() { cargo "$@" --message-format=json-render-diagnostics | grep -o '"executable":"[^"]*"' | cut -d'"' -f4; }
  plain() { basename "$1" | sed 's/-[0-9a-f]\{16\}$//'; }
  programs build --release "${features[@]}" --bin gdmedia --bench gpu --test cuda --test gpu_pipeline --test gpu_lost --test export \
    --test rivermax --test windows --test receivers --test xdp_frames --test record_gpu --example 06_gpu_consumer | while read -r line; do
    case $(plain "$line") in
      gdmedia | gpu) strip -o "$folder/$(plain "$line")" "$line" ;;
      06_gpu_consumer) strip -o "$folder/examples/06_gpu_consumer" "$line" ;;
      *) strip -o "$folder/deps/$(plain "$line")" "$line" ;;
    esac
  done || exit 1
  # Unit tests, and those of the calls of Rivermax; the stand-in's library lies where cargo built it.
  strip -o "$folder/deps/unit" "$(programs test --no-run --release "${features[@]}" --lib)" || exit 1
  strip -o "$folder/deps/rivermax_calls" "$(programs test --no-run --release --manifest-path rivermax-sys/Cargo.toml \
    --features stand-in --target-dir target --test gpu)" || exit 1
  cp "$(ls -t target/release/build/rivermax-sys-*/out/librivermax_stand_in.so | head -n 1)" "$folder/" || exit 1
  # Debug builds have checked kernels.
  programs build "${features[@]}" --test cuda --test gpu_pipeline | while read -r line; do
    case $(plain "$line") in cuda | gpu_pipeline) strip -o "$folder/checked/$(plain "$line")" "$line" ;; esac
  done || exit 1
  cp "$here/../examples/06_gpu_consumer.py" "$folder/examples/"
  cp "$here/gpu.sh" "$folder/"
}

# What a program and its plug-ins are linked with, but for the C library and the GPU's driver, which are of that machine.
carried() {
  ldd "$@" 2>/dev/null | awk '$2 == "=>" && $3 ~ "^/" { print $3 }' | sort -u |
    grep -vE '/(libc|libm|libdl|libpthread|librt|libresolv|libcuda|libnvidia-[a-z]+)\.so'
}

build_gst() {
  local folder=$1 plugins plugin line
  mkdir -p "$folder/deps" "$folder/gst/lib" "$folder/gst/plugins"
  plugins=$(pkg-config --variable=pluginsdir gstreamer-1.0) || exit 1
  cargo test --no-run --locked --features rivermax-stand-in --bin gdmedia --test encode_gpu --test gst_cuda \
    --message-format=json-render-diagnostics | grep -o '"executable":"[^"]*"' | cut -d'"' -f4 | while read -r line; do
    strip -o "$folder/deps/$(basename "$line" | sed 's/-[0-9a-f]\{16\}$//')" "$line"
  done || exit 1
  # The program, not its unit tests, which have its name, too.
  strip -o "$folder/gst/gdmedia" "$here/../target/debug/gdmedia" && rm -f "$folder/deps/gdmedia" || exit 1
  for plugin in coreelements app videoconvertscale videoconvert videoscale videotestsrc typefindfunctions matroska isomp4 jpeg \
    videoparsersbad x264 openh264 nvcodec; do
    [[ -e $plugins/libgst$plugin.so ]] && cp "$plugins/libgst$plugin.so" "$folder/gst/plugins/"
  done
  carried "$folder/gst/gdmedia" "$folder"/deps/encode_gpu "$folder"/deps/gst_cuda "$folder"/gst/plugins/*.so | while read -r line; do
    cp -L "$line" "$folder/gst/lib/"
  done
  # GStreamer's own library for CUDA is found at run time.
  cp -L "$(dirname "$plugins")"/libgstcuda-1.0.so.0 "$folder/gst/lib/" 2>/dev/null
  [[ -e $folder/gst/lib/libnvjpeg.so.13 ]] || {
    python3 -m pip download --quiet --no-deps --disable-pip-version-check -d "$folder/gst" nvidia-nvjpeg==13.0.1.86 &&
      python3 -c 'import sys, zipfile; open(sys.argv[2], "wb").write(zipfile.ZipFile(sys.argv[1]).read("nvidia/cu13/lib/libnvjpeg.so.13"))' \
        "$folder"/gst/*.whl "$folder/gst/lib/libnvjpeg.so.13" && rm "$folder"/gst/*.whl
  } || echo "no nvJPEG: its tests are skipped" >&2
  cp "$here/gpu.sh" "$folder/"
}

step() { echo; echo "== $*"; }
verdict() { grep -E "^test result|FAILED|panicked|ERROR SUMMARY|RACECHECK SUMMARY|^skipped" "$1" | tail -n 6; }

tests() {
  local n
  for n in gpu_pipeline gpu_lost cuda; do
    step "$n"; timeout 90 "deps/$n" --test-threads=1 --nocapture >"$out/$n.txt" 2>&1; verdict "$out/$n.txt"
  done
  step export; timeout 120 deps/export --test-threads=1 --nocapture >"$out/export.txt" 2>&1; verdict "$out/export.txt"
  step "checked kernels"; timeout 120 checked/cuda --test-threads=1 >"$out/checked.txt" 2>&1; verdict "$out/checked.txt"
}

# Receivers; Rivermax by the stand-in of its SDK: what it shows and what not is in docs/rivermax.md.
rivermax() {
  local n
  export RIVERMAX_LIBRARY=$here/librivermax_stand_in.so
  for n in rivermax_calls rivermax windows receivers xdp_frames unit; do
    step "$n"; timeout 120 "deps/$n" --test-threads=1 --nocapture >"$out/$n.txt" 2>&1; verdict "$out/$n.txt"
  done
  unset RIVERMAX_LIBRARY
}

# Encoders: what NVENC answers, nvJPEG's pictures, the next rung. GStreamer is what was carried.
encode() {
  local n spec scratch
  [[ -e deps/encode_gpu ]] || { echo "encode: built without GStreamer, see build-gst"; return; }
  scratch=$(mktemp -d)
  with_gst() {
    LD_LIBRARY_PATH=$here/gst/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} GST_PLUGIN_SYSTEM_PATH_1_0=$here/gst/plugins \
      GST_PLUGIN_PATH_1_0=$here/gst/plugins GST_REGISTRY_1_0=$scratch/registry GST_REGISTRY_FORK=no timeout 240 "$@"
  }
  for n in encode_gpu gst_cuda; do
    step "$n"; with_gst "deps/$n" --test-threads=1 --nocapture >"$out/$n.txt" 2>&1
    grep -E "NVENC|octets|encode:|H.264|HEVC|AV1" "$out/$n.txt" | head -n 20; verdict "$out/$n.txt"
  done
  with_gst gst/gdmedia send --to "$scratch/a.pcap" --write-sdp "$scratch/a.sdp" --format 1080p50 --frames 60 2>/dev/null
  for spec in h264 mjpeg h264,rung=nvenc; do
    step "the program, $spec"
    with_gst gst/gdmedia --sdp "$scratch/a.sdp" --pcap "$scratch/a.pcap" --gpu require --encode $spec --out "$scratch/a.mkv" \
      >"$out/program-${spec%%,*}.txt" 2>&1
    echo "exit code $?, $(stat -c %s "$scratch/a.mkv") octets"; grep -E "gpu  |sink|gdmedia:|frames" "$out/program-${spec%%,*}.txt"
  done
  rm -rf "$scratch"
}

benches() {
  step kernels; timeout 60 ./gpu kernels >"$out/kernels.txt" 2>&1; head -n 9 "$out/kernels.txt"
  step pcie; timeout 90 ./gpu pcie --seconds 2 2>&1 | tee "$out/pcie.txt"
  step overlap
  { timeout 60 ./gpu overlap --frames 300; timeout 60 ./gpu overlap --streams 6 --seconds 3; } 2>&1 | tee "$out/overlap.txt"
}

# Recordings: first without what cuFile needs of udev, which is to be refused with its name, then with it.
record() {
  local disk=${RECORD_DISK:-$here} device type record
  device=$(stat -c %d "$disk"); device=$((device >> 8 & 0xfff)):$(((device & 0xff) | (device >> 12 & 0xfff00)))
  type=$(findmnt -no FSTYPE -T "$disk" 2>/dev/null || echo ext4)
  record=/run/udev/data/b$device
  export GDMEDIA_RECORD_DISK=$disk CUFILE_FORCE_COMPAT_MODE=true CUFILE_ALLOW_COMPAT_MODE=true
  step "record, on $type, device $device, udev's record $(test -e "$record" && echo there || echo missing)"
  timeout 120 deps/record_gpu --test-threads=1 --nocapture >"$out/record-before.txt" 2>&1
  grep -E "refused|cure" "$out/record-before.txt"; verdict "$out/record-before.txt"
  if [[ ! -e $record && $device != 0:* ]]; then
    mkdir -p /run/udev/data && printf 'E:ID_FS_USAGE=filesystem\nE:ID_FS_TYPE=%s\n' "$type" >"$record"
    step "record, with $record"
    timeout 120 deps/record_gpu --test-threads=1 --nocapture >"$out/record.txt" 2>&1
    grep -E "refused|cure|GB/s" "$out/record.txt"; verdict "$out/record.txt"
  fi
  step "record --bench"
  timeout 240 ./gdmedia record --bench "$disk" --size "${RECORD_SIZE:-8GiB}" --gpu require 2>&1 | tee "$out/record-bench.txt"
  dd if=/dev/zero of="$disk/.dd" bs=16M count=128 oflag=direct 2>&1 | tail -n 1 | tee -a "$out/record-bench.txt"
  rm -f "$disk/.dd"
}

latency() {
  local each=${SECONDS_EACH:-60} mode n
  for n in 1 4; do
    for mode in sub whole; do
      step "latency, $n streams, $mode"
      timeout $((each + 30)) ./gpu latency --streams $n --seconds "$each" --mode $mode 2>&1 | tee "$out/latency-$n-$mode.txt"
    done
  done
  step "latency, 1 stream, on the CPU"
  timeout 60 ./gpu latency --streams 1 --seconds 10 --mode cpu 2>&1 | tee "$out/latency-cpu.txt"
}

# Every conversion with few cases, then with all, the tools side by side.
sanitizer() {
  local how tool workers
  for how in quick all; do
    step "compute-sanitizer, $how cases"
    workers=()
    for tool in memcheck racecheck initcheck synccheck; do
      (
        [[ $how = quick ]] && export GDMEDIA_QUICK=1
        timeout "${SANITIZER:-450}" compute-sanitizer --tool $tool deps/cuda --test-threads=1 >"$out/$tool-$how.txt" 2>&1
      ) &
      workers+=($!)
    done
    if [[ $how = all ]]; then
      timeout 100 compute-sanitizer --tool memcheck checked/gpu_pipeline --test-threads=1 frames >"$out/memcheck-pipeline.txt" 2>&1
      echo "memcheck of pipelines"; verdict "$out/memcheck-pipeline.txt"
    fi
    wait "${workers[@]}"
    for tool in memcheck racecheck initcheck synccheck; do echo "$tool"; verdict "$out/$tool-$how.txt"; done
  done
}

# Where the long run writes, whoever starts it, and whoever waits for it.
long=/tmp/gdmedia-soak.txt

# Programs that share a GPU wait for each other's turns, some 250 us: nothing is measured beside this.
begin() {
  step "the long run begins"
  setsid nohup ./gpu soak --seconds "${SOAK:-600}" >"$long" 2>&1 </dev/null &
}

soak() {
  local n
  [[ -e $long ]] || begin
  for n in $(seq 600); do
    pgrep -f "gpu soak" >/dev/null || break
    sleep 2
  done
  step "the long run"; tee "$out/soak.txt" <"$long"
  rm -f "$long"
}

run() {
  mkdir -p "$1"
  out=$(cd "$1" && pwd)
  shift
  cd "$here" || exit 1
  export GDMEDIA_SEND=$here/gdmedia
  # More streams than the driver gives queues by default would wait for each other.
  export CUDA_DEVICE_MAX_CONNECTIONS=32
  sysctl -qw net.core.rmem_max=536870912 2>/dev/null
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
  grep -m 1 "model name" /proc/cpuinfo; nproc; date -u +%F
  local part
  (( $# )) || set -- tests rivermax encode benches record latency begin sanitizer soak
  for part; do
    case $part in
      tests | rivermax | encode | benches | record | latency | begin | sanitizer | soak) $part ;;
      *) echo "no part $part" >&2; exit 64 ;;
    esac
  done
}

case ${1:-} in
  build) build "${2:?folder}" ;;
  build-gst) build_gst "${2:?folder}" ;;
  run) run "${2:-$here/results}" "${@:3}" ;;
  *) sed -n 2,9p "$0"; exit 64 ;;
esac

#!/usr/bin/env python3
"""Frames of gdmedia as CuPy arrays and PyTorch tensors, where they lie in the GPU's memory: nothing is copied.

    gdmedia --sdp stream.sdp --gpu require --headless --export cuda-ipc=/tmp/frames &
    python3 examples/06_gpu_consumer.py /tmp/frames --frames 100

Needs CuPy; uses PyTorch where it is installed. The protocol is described in gdmedia::sink::export.
"""
import argparse
import json
import socket
import struct
import time
import uuid

import cupy
from cupy.cuda import runtime

try:
    import torch
except ImportError:
    torch = None

OFFER = struct.Struct("<IIQIIQQQIIQ")
RELEASE = struct.Struct("<II")


def device_of(hello):
    """Numbers differ from process to process (CUDA_VISIBLE_DEVICES), UUIDs do not."""
    wanted = uuid.UUID(hello["gpu"]["uuid"]).bytes
    for number in range(runtime.getDeviceCount()):
        if bytes(runtime.getDeviceProperties(number)["uuid"])[:16] == wanted:
            return number
    raise SystemExit(f"this process does not see GPU {hello['gpu']['uuid']}")


def planes_of(hello, memory, index):
    """The planes of frame `index`: rows by samples (by channels, if several), with the rows' gaps as strides."""
    kind = cupy.dtype(hello["sample"])
    for plane in hello["planes"]:
        start = cupy.cuda.MemoryPointer(memory, index * hello["stride"] + plane["offset"])
        channels = plane["channels"]
        shape = (plane["rows"], plane["row_octets"] // kind.itemsize // channels, channels)
        array = cupy.ndarray(shape, kind, start, strides=(plane["stride"], kind.itemsize * channels, kind.itemsize))
        yield array[:, :, 0] if channels == 1 else array


def show(planes, address):
    """What every consumer does in its own way: here, the mean of the first plane."""
    luma = planes[0]
    assert luma.data.ptr == address
    mean = float(luma.mean(dtype=cupy.float64))
    if torch is not None:
        tensor = torch.from_dlpack(luma)
        assert tensor.data_ptr() == address, "PyTorch made a copy"
        assert abs(float(tensor.to(torch.float64).mean()) - mean) < 1e-6
    return f"shape {luma.shape} {luma.dtype} mean {mean:.3f}"


def main():
    arguments = argparse.ArgumentParser(description="Frames of gdmedia as CuPy arrays")
    arguments.add_argument("socket")
    arguments.add_argument("--frames", type=int, default=100)
    arguments = arguments.parse_args()

    exporter = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    exporter.connect(arguments.socket)
    hello = json.loads(exporter.recv(1 << 17) or '{"error": "the exporter has ended"}')
    if "error" in hello or hello["protocol"] != 1 or hello["kind"] != "cuda-ipc":
        raise SystemExit(hello.get("error", "needs version 1 of the protocol, and cuda-ipc"))
    print(hello["output"], hello["width"], hello["height"], hello["video"], "torch" if torch else "no torch")

    cupy.cuda.Device(device := device_of(hello)).use()
    address = runtime.ipcOpenMemHandle(bytes.fromhex(hello["memory"]))
    events = [runtime.ipcOpenEventHandle(bytes.fromhex(event)) for event in hello["events"]]
    memory = cupy.cuda.UnownedMemory(address, hello["octets"], exporter, device)
    stream = cupy.cuda.Stream(non_blocking=True)

    for _ in range(arguments.frames):
        message = exporter.recv(OFFER.size)
        if not message:
            break  # No more frames.
        (_, index, number, flags, _, _, _, last_ns, _, skipped, missing) = OFFER.unpack(message)
        # TAI and UTC differ by whole seconds.
        late_us = (time.time_ns() - last_ns) % 1_000_000_000 // 1000
        with stream:
            # From here on the stream waits for the frame, and the CPU does not.
            runtime.streamWaitEvent(stream.ptr, events[index])
            start = address + index * hello["stride"] + hello["planes"][0]["offset"]
            text = show(list(planes_of(hello, memory, index)), start)
        # Only when all that reads it is done, for then it is written again.
        stream.synchronize()
        exporter.send(RELEASE.pack(2, index))
        print(f"frame {number} index {index} after {late_us} us {text} "
              f"complete {flags & 1} missing {missing} skipped {skipped}", flush=True)

    for event in events:
        runtime.eventDestroy(event)
    runtime.ipcCloseMemHandle(address)


if __name__ == "__main__":
    main()

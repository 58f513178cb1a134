"""What CUDA programs may use that is not there on the CPU: each in one sentence that names it and its line."""

import re

from hw4cli.emulator.program.launches import blanked, place_in
from hw4cli.errors import InputError

# Headers by the beginning of their names.
_HEADERS = {
    "cudnn": "cuDNN",
    "cufft": "cuFFT",
    "cusparse": "cuSPARSE",
    "cusolver": "cuSOLVER",
    "cutlass/": "CUTLASS",
    "cute/": "CuTe",
    "nccl": "NCCL",
    "nvrtc": "NVRTC",
    "mpi": "MPI",
    "cuda/": "libcu++ (cuda::)",
    "nv/": "libcu++",
    "cuda_pipeline": "the pipeline of asynchronous copies",
    "cuda_fp8": "numbers of 8 bits",
    "cuda_texture_types": "textures",
    "texture_": "textures",
    "surface_": "surfaces",
    "rocblas": "rocBLAS",
    "hipblas": "hipBLAS",
    "hipcub": "hipCUB",
    "rocwmma": "rocWMMA",
    "hip/hip_cooperative_groups": "HIP's cooperative groups",
}
# Words of the language and the runtime.
_WORDS = (
    (r"\btexture\s*<|\bcudaTextureObject_t\b|\btex[123]D(?:fetch|Lod|Grad)?\b|\bcudaBindTexture\w*", "textures"),
    (r"\bsurf[123]D(?:read|write)\b|\bcudaSurfaceObject_t\b|\bsurface\s*<", "surfaces"),
    (r"\bcudaArray_t\b|\bcudaMallocArray\b|\bcudaMalloc3DArray\b|\bcudaMemcpyToArray\b", "CUDA's arrays"),
    (r"\bthis_multi_grid\s*\(|\bcudaLaunchCooperativeKernelMultiDevice\b", "groups of several GPUs"),
    (r"\bthis_cluster\s*\(|\bcluster_group\b|\b__cluster_dims__\b|\bcudaLaunchKernelEx\b", "clusters of blocks"),
    (r"\bcudaGraph\w*|\bcudaStreamBeginCapture\b", "CUDA's graphs"),
    (r"\bcudaIpc\w+", "memory that processes share (cudaIpc)"),
    (r"\bcuLaunchKernel\b|\bcuModuleLoad\w*|\bcuCtxCreate\b|\bcuInit\b", "CUDA's driver interface"),
    (r"\b__nv_fp8\w*", "numbers of 8 bits"),
    (r"\bcufft\w+", "cuFFT"),
    (r"\bcusparse\w+", "cuSPARSE"),
    (r"\bcusolver\w+", "cuSOLVER"),
)
_MISSING = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+):\d+: fatal error: '?(?P<name>[\w./+-]+)'?(?:: No such file| file not found)",
    re.M,
)
_ASM = re.compile(r"\b(?:__asm__|__asm|asm)\b\s*(?:volatile|__volatile__)?\s*\(\s*\"((?:\\.|[^\"\\])*)")
# What a library's stand-in does not have, the compiler says: names that begin so.
_LIBRARIES = {"cublas": "cuBLAS", "CUBLAS": "cuBLAS", "curand": "cuRAND", "CURAND": "cuRAND"}
_SPACES = {"cub": "CUB", "cooperative_groups": "cooperative groups", "thrust": "Thrust"}
_UNDECLARED = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+):(?:\d+:)? error: (?:use of undeclared identifier |there are no arguments to )?"
    r"[‘'](?P<name>\w+)[’'](?: was not declared| that depend| does not name a type|$)",
    re.M,
)
_NO_MEMBER = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+):(?:\d+:)? error: (?:no (?:member named|template named|type named) )?"
    r"[‘'](?P<name>[\w:]+)[’'] (?:is not a member of|in namespace|in the global namespace|in) (?:class |struct )?"
    r"[‘'](?P<space>\w+)(?:::\w+)*[’']"
    r"|^(?P<in_file>[^:\n]+):(?P<at_line>\d+):(?:\d+:)? error: [‘'](?P<in_space>\w+)::(?P<in_name>\w+)[’'] "
    "has not been declared",
    re.M,
)
_EITHER = (("file", "in_file"), ("line", "at_line"), ("space", "in_space"))


def check_words(text: str, name: str) -> None:
    """Raise InputError for the first thing in a preprocessed program's own text that is not there on the CPU."""
    plain = blanked(text)
    found = [(match.start(), what) for pattern, what in _WORDS if (match := re.search(pattern, plain))]
    for match in _ASM.finditer(text):
        if plain[match.start()] != " ":  # else it is in a comment
            words = " ".join(match[1].replace("\\n", " ").replace("\\t", " ").split()) or "nothing"
            found.append((match.start(), f"inline PTX (`{words[:60]}`)"))
            break
    if found:
        at, what = min(found)
        raise InputError(f"{place_in(text, at, name)}: {what}: the CPU does not execute that")


def missing_function(errors: str) -> str | None:
    """A sentence for a compiler's error that a function of a library is not there on the CPU."""
    for match in _UNDECLARED.finditer(errors):
        for head, library in _LIBRARIES.items():
            if match["name"].startswith(head):
                place = f"{match['file'].rsplit('/', 1)[-1]}:{match['line']}"
                return f"{place}: {match['name']} of {library}: the CPU does not execute that"
    for match in _NO_MEMBER.finditer(errors):
        file, line, space = (match[one] or match[other] for one, other in _EITHER)
        if space in _SPACES:
            name = (match["name"] or match["in_name"]).rsplit("::", 1)[-1]
            return f"{file.rsplit('/', 1)[-1]}:{line}: {name} of {_SPACES[space]}: the CPU does not execute that"
    return None


def missing_header(errors: str) -> str | None:
    """A sentence for a compiler's error that a header is not there."""
    match = _MISSING.search(errors)
    if not match:
        return None
    place = f"{match['file'].rsplit('/', 1)[-1]}:{match['line']}"
    if match["name"].startswith("thrust/"):
        return (
            f"{place}: Thrust ({match['name']}): its headers are not installed here: install CUDA's CCCL (Debian has "
            "libthrust-dev), or name their folder with --include"
        )
    for head, what in _HEADERS.items():
        if match["name"].startswith(head):
            return f"{place}: {what} ({match['name']}): the CPU does not execute that"
    return f"{place}: {match['name']} is not found: name its folder with --include"

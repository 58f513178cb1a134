"""How each record is made: the one list, by which `python -m benchmarks.measure` and README.md go.

Every answer that is timed is checked against float64. A record takes 15 to 40 s on an H200, unless it says more.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Recipe:
    """A record: its file ("GPU" stands for the GPU's name), what it holds, the command that makes it, to which its file
    is added, and what must have worked before."""

    file: str
    what: str
    command: str
    before: tuple[str, ...] = ()


LARGE = "t11,t12,t21,t22,t24,t25,t27,t28,t29,t30 1,8192,64 1,8192,32"
OTHER_HEADS = " ".join(
    f"{sizes},{d}" for d in (96, 128) for sizes in ("9600,128", "500,2048", "100,4096", "4,16384", "1,8192")
)
RUNGS = (
    "naive paper global rowthread smallbr shared fp16qk warp halfwarp halfwarp_strided halfwarp_local halfwarp_keys "
    "halfwarp_unpadded float4 flash split split8 exact"
)
ON_THE_WAY_UP = "naive smallbr shared warp float4 flash exact split split8"
BESIDE_IT = "global rowthread fp16qk halfwarp halfwarp_strided halfwarp_local halfwarp_keys halfwarp_unpadded"


def tiles(text: str) -> str:
    """The options of some tiles."""
    return " ".join(f"--tile {tile}" for tile in text.split())


def over_lengths(d: int, longest: int = 32768) -> str:
    """Shapes with 32768 rows in all, so with as many bytes for each N."""
    return " ".join(f"{32768 // N},{N},{d}" for N in (128 << n for n in range(9)) if longest >= N)


def of_files() -> dict[str, Recipe]:
    """Kernels of files' cases, and whole programs."""
    bench = "hw4cli bench"
    return {
        "split": Recipe(
            "GPU-split.json",
            "what `auto` takes, beside PyTorch",
            f"{bench} split split8 exact flash {LARGE} --peers torch --samples 20",
        ),
        "flash": Recipe(
            "GPU-flash.json", "`flash` beside PyTorch", f"{bench} flash {LARGE} --peers torch --samples 20"
        ),
        "split-mma": Recipe(
            "GPU-split-mma.json",
            "`split` and `split8` by mma.sync alone, as before Hopper",
            "benchmarks.measure.without_warpgroups",
        ),
        "heads": Recipe(
            "GPU-heads.json",
            "head sizes beyond the assignment's, for the order of kernels",
            f"{bench} split exact flash {OTHER_HEADS}",
        ),
        "ladder": Recipe("GPU-ladder.json", "all rungs on t28", f"{bench} all t28 --samples 6"),
        "rows": Recipe(
            "GPU-rows.json",
            "`smallbr` with more rows in a block",
            f"{bench} smallbr t28 {tiles('1x32 2x32 4x32 8x32 16x32')} --samples 10",
        ),
        "threads": Recipe(
            "GPU-threads.json",
            "a thread for each row, with more of them",
            f"{bench} global rowthread t28 {tiles('32x4 32x8 32x16 32x32 128x8')} --samples 10",
        ),
        "halfwarp": Recipe(
            "GPU-halfwarp.json",
            "half a warp for each row, by tile",
            f"{bench} halfwarp halfwarp_keys t28 {tiles('128x16 128x32 128x64 64x32')} --samples 10",
        ),
        "switches": Recipe(
            "GPU-switches.json",
            "rungs that differ from another in one thing, in turns with it",
            f"{bench} halfwarp halfwarp_scalar halfwarp_rows smallbr pitched t28 --samples 10",
        ),
        "knobs-naive": Recipe(
            "figures/GPU-knobs-naive.json",
            "`naive` with a softmax of a warp a row, and of a thread a row",
            f"{bench} naive t28 {tiles('16x16 16x16,SOFTMAX_LANES=1')} --samples 10",
        ),
        "knobs-warp": Recipe(
            "figures/GPU-knobs-warp.json",
            "`warp` with four rows a warp, two, and one",
            f"{bench} warp t28 {tiles('32x32 32x32,WARP_ROWS=2 32x32,WARP_ROWS=1')} --samples 10",
        ),
        "knobs-pitched": Recipe(
            "figures/GPU-knobs-pitched.json",
            "`pitched` with rows 512 bytes apart, side by side, and anywhere",
            f"{bench} pitched t28 {tiles('4x32 4x32,PITCH=64 4x32,PITCH=65')} --samples 10",
        ),
        "tiles": Recipe(
            "GPU-tiles.json",
            "`float4` and `flash` by tile",
            f"{bench} float4 flash t28,t29 {tiles('64x64 32x32 64x32 32x64 128x32 128x64 128x16')} --samples 10",
        ),
        "thirty": Recipe(
            "GPU-thirty.json",
            "every case, for the largest error of each kernel",
            f"{bench} split split8 exact flash t01-t30",
        ),
        "end-to-end": Recipe(
            "GPU-end-to-end.json",
            "whole programs on every case (5 GB of cases; 5 minutes)",
            f"{bench} t01-t30 --program ./hw4",
            before=("make hw4", "hw4cli gen t01-t30"),
        ),
        "seq": Recipe(
            "GPU-seq.json",
            "programs that compute on one core, beside hw4",
            f"{bench} t02,t06,t10 --samples 3 --program ./seq-attention --program ./seq-flashattention",
            before=("make seq", "hw4cli gen t02,t06,t10"),
        ),
        "against": Recipe(
            "figures/GPU-against.json",
            "`split` of two commits in turns",
            f"{bench} split t28 --samples 20 --against ea8a1b0 --processes 3",
        ),
        "starts": Recipe(
            "starts/GPU.json",
            "first runs and judgings from every state of the cache",
            "benchmarks.measure.first_runs --cases testcases",
            before=("hw4cli gen t01-t30",),
        ),
        "tuned": Recipe(
            "tuned/GPU.json", "every case, kernels by their own tiles", "hw4cli tune --quick t01-t30 --no-keep"
        ),
        "tuned-full": Recipe(
            "tuned/GPU-full.json",
            "every tile (a minute; what was cut off has the first cases)",
            "hw4cli tune t12,t28,t29,t30 --no-keep",
        ),
        "tuned-flash": Recipe("tuned/GPU-flash.json", "every tile of `flash`", "hw4cli tune flash t28 --no-keep"),
        "tuned-half": Recipe(
            "tuned/GPU-half.json",
            "every tile and number of stages of `half` on TileLang's workload",
            "hw4cli tune half tilelang --no-keep",
        ),
    }


def of_lengths() -> dict[str, Recipe]:
    """Kernels over N, with and without a mask; energy."""
    found = {}
    for d in (64, 32):
        for mask in ("", "-causal"):
            options = f"{over_lengths(d)} {'--causal ' if mask else ''}--samples 5"
            words = f"over N at d = {d}{', causal' if mask else ''}"
            found[f"sweep-d{d}{mask}"] = Recipe(
                f"figures/GPU-sweep-d{d}{mask}.json",
                f"kernels on the way up, {words}",
                f"hw4cli bench {ON_THE_WAY_UP} float64 {options}",
            )
            found[f"rungs-d{d}{mask}"] = Recipe(
                f"figures/GPU-rungs-d{d}{mask}.json", f"the other rungs, {words}", f"hw4cli bench {BESIDE_IT} {options}"
            )
    found["paper"] = Recipe(
        "figures/GPU-paper.json",
        "`paper` over N, to 8192: it takes seconds beyond",
        f"hw4cli bench paper {over_lengths(64, 8192)} --samples 5",
    )
    found["energy"] = Recipe(
        "figures/GPU-energy.json",
        "joules, run after run without rest",
        f"hw4cli bench {ON_THE_WAY_UP} t28 --sustained --samples 5",
    )
    found["energy-half"] = Recipe(
        "figures/GPU-energy-half.json",
        "the same of 16 bits, beside cuDNN and FA2",
        "hw4cli bench half half_mma heads64 lm8k --sustained --peers cudnn,fa2 --samples 5",
    )
    return found


def quoted(*workloads: str) -> str:
    """Workloads as words of a command."""
    return " ".join(f"'{one}'" if " " in one else one for one in workloads)


# What is timed beside the newest peers: long rows first, then those of a language model's batches, BERT and GPT-2.
BESIDE_PEERS = quoted(
    *("tilelang", "tilelang-causal", "lm8k", "lm8k-causal", "lm16k-wide", "lm16k", "heads64"),
    *(f"B={B} H={H} N={N} d=128 dtype=bf16 causal" for B, H, N in ((4, 32, 4096), (8, 32, 2048), (16, 16, 1024))),
    *("B=32 H=12 N=512 d=64 dtype=fp16", "gpt2"),
)


def of_arrays() -> dict[str, Recipe]:
    """Attention of arrays, ours and torch's."""
    bench = "hw4cli bench"
    masked = quoted(
        *(
            f"{sizes} dtype=fp32 dist=uniform{mask}"
            for sizes in (
                "B=4 N=16384 d=64",
                "B=2 N=32768 d=64",
                "B=4 N=32768 d=32",
                "B=16 N=8192 d=64",
                "B=1 N=8192 d=64",
            )
            for mask in ("", " causal")
        )
    )
    numbers = quoted(
        *(
            f"H=4 N=256 Nk=8192 d={d} dtype={dtype}{kind}"
            for kind in (" dist=uniform", "")
            for dtype in ("fp16", "bf16")
            for d in (64, 128)
        )
    )
    many_heads = quoted("B=1 H=4800 N=128 d=128 dtype=fp16", "B=1 H=19200 N=64 d=64 dtype=fp16")
    return {
        "arrays": Recipe(
            "GPU-arrays.json",
            "16 bits: what answers by itself, cuDNN, FA2",
            f"{bench} tilelang tilelang-causal lm8k lm8k-causal lm16k lm16k-wide heads64 t29-half t12-half t11-half "
            "--peers cudnn,fa2 --samples 10 --pause 0.03 --sustained",
        ),
        "calls": Recipe(
            "calls/GPU.json",
            "what calls cost the host and in all, beside torch's",
            f"{bench} --calls --peers cudnn,fa2",
        ),
        "tokens": Recipe(
            "calls/GPU-tokens.json",
            "tokens a second of docs/train.py, with hw4's attention and with torch's",
            "benchmarks.measure.tokens",
        ),
        "mma": Recipe(
            "GPU-mma.json",
            "`half_mma` and FA2, which use the same instructions",
            f"{bench} half_mma t29-half heads64 lm16k lm8k lm8k-causal --peers fa2 --samples 10 --pause 0.01",
        ),
        "masks": Recipe(
            "GPU-masks.json",
            "float32, with and without a mask",
            f"{bench} split exact flash {masked} --samples 10",
        ),
        "shared": Recipe(
            "GPU-shared.json",
            "shared heads, short rows",
            f"{bench} gqa chunk {many_heads} --peers cudnn,fa2 --samples 10",
        ),
        "decode": Recipe("GPU-decode.json", "few rows and many keys, beside a copy", "benchmarks.measure.decoding"),
        "sequences": Recipe(
            "sequences/GPU.json",
            "packed sequences of several lengths, beside the peers that are there",
            "benchmarks.measure.sequences",
        ),
        "scores": Recipe(
            "scores/GPU.json",
            "ALiBi, softcap, biases and masks beside plain scores and the peers that are there",
            "benchmarks.measure.scores",
        ),
        "windows": Recipe(
            "windows/GPU.json",
            "windows of keys, beside all keys and the peers that are there",
            "benchmarks.measure.windows",
        ),
        "wide": Recipe("wide/GPU.json", "rows of more than 128 columns, beside torch's", "benchmarks.measure.wide"),
        "exactness": Recipe(
            "GPU-exactness.json",
            "16 bits: the largest error of 1024 rows, and the norm's",
            f"{bench} half half_mma half_split half_cores {numbers} --peers cudnn,fa2 --samples 3",
        ),
        "float32": Recipe(
            "errors/GPU-float32.json",
            "float32 numbers by full, TF32 and 16-bit products: errors beside rates",
            "benchmarks.measure.float32",
        ),
        "schedules": Recipe(
            "figures/GPU-schedules.json", "`half` in each schedule", "benchmarks.measure.ofarrays schedules"
        ),
        "peers": Recipe(
            "GPU-peers.json",
            "`half` beside the newest peers, with the energy of a run (those of docs/workloads.md that are installed)",
            f"{bench} {BESIDE_PEERS} --peers "
            "'cudnn,flash-attn-4?,cudnn-frontend?,cudnn-flex?,cudnn-blocks?' --samples 10 "
            "--pause 0.03 --sustained",
        ),
        "tlx": Recipe(
            "GPU-tlx.json",
            "`half` beside Triton's TLX (fbtriton in Triton's place)",
            f"{bench} tilelang lm8k heads64 --peers 'cudnn,tlx?' --samples 10 --pause 0.03",
        ),
        "triton": Recipe(
            "GPU-triton.json",
            "`half` beside a kernel in Triton, as its tutorials write it, FlexAttention and cuDNN",
            f"{bench} lm16k tilelang --samples 10 --peers cudnn,flex,benchmarks/measure/triton_attention.py:attention",
        ),
        "tilelang": Recipe(
            "GPU-tilelang.json",
            "`half` beside TileLang's own example and cuDNN (needs tilelang, and its examples in TILELANG_EXAMPLES)",
            f"{bench} tilelang tilelang-causal --samples 10 --pause 0.03 "
            "--peers cudnn,benchmarks/measure/tilelang_attention.py:attention",
        ),
    }


def of_gradients() -> dict[str, Recipe]:
    """Gradients of arrays, ours and torch's."""
    bench = "hw4cli bench --pause 0.03"
    large = "lm16k heads64 lm8k-causal lm8k"
    more = quoted(
        "B=4 N=8192 d=64 dtype=fp32",
        "H=32 KVH=8 N=8192 d=64 dtype=bf16 causal",
        "H=32 KVH=8 N=8192 d=128 dtype=bf16 causal",
    )
    peers = "--peers cudnn,fa2,efficient"
    sweep = quoted(
        *(
            f"B={16384 // N} H=4 N={N} d={d} dtype={dtype}{mask}"
            for N in (1024, 16384)
            for d in (64, 128)
            for dtype in ("fp16", "bf16", "fp32")
            for mask in ("", " causal")
        )
    )
    return {
        "gradients": Recipe(
            "GPU-gradients.json",
            "the backward pass",
            f"{bench} {large} {more} --pass bwd {peers} --samples 15",
        ),
        "training": Recipe(
            "GPU-training.json", "both passes", f"{bench} {large} {more} --pass both {peers} --samples 15"
        ),
        "gradients-peers": Recipe(
            "GPU-gradients-peers.json",
            "the backward pass beside the newest peers, with the energy of a run (those that are installed)",
            f"{bench} {BESIDE_PEERS} --pass bwd --peers 'cudnn,flash-attn-4?,flash-attn-4-deterministic?,"
            "cudnn-frontend-deterministic?,cudnn-flex?,cudnn-flex-deterministic?,cudnn-blocks?' "
            "--samples 10 --sustained",
        ),
        "designs": Recipe(
            "GPU-designs.json",
            "the backward pass by each design of ours",
            f"{bench} backward_once backward_atomic backward_wgmma backward_mma {large} --pass bwd --peers cudnn,fa2 "
            "--samples 15",
        ),
        "gradients-sweep": Recipe(
            "GPU-gradients-sweep.json",
            "the backward pass over N, d, types and masks (a minute)",
            f"{bench} {sweep} --pass bwd {peers} --samples 6",
        ),
        "errors": Recipe(
            "errors/GPU.json",
            "errors of gradients, also of ill-conditioned inputs",
            "benchmarks.measure.gradient_errors",
        ),
    }


def of_counters() -> dict[str, Recipe]:
    """Profiles: what Nsight Compute counts (docs/profile.md says what it needs); the rates of the GPU; timelines."""
    profile = "hw4cli profile"
    metrics = "--set assignment --set memory"
    return {
        "rungs-profile": Recipe(
            "figures/GPU-rungs-profile.json", "all rungs", f"{profile} {RUNGS} 16,4096,64 {metrics}"
        ),
        "program-profile": Recipe(
            "figures/GPU-program-profile.json",
            "`./hw4` on t28",
            f"{profile} --program ./hw4 t28 {metrics}",
            before=("make hw4", "hw4cli gen t28 --no-answers"),
        ),
        "assignment": Recipe(
            "figures/GPU-assignment.json",
            "all rungs beside a homework's first version",
            f"{profile} {RUNGS} --program ./student --program ./student-padded t20 {metrics}",
            before=("make students", "hw4cli gen t20 --no-answers"),
        ),
        "limits": Recipe(
            "figures/GPU-limits.json", "kernels of arrays (a minute)", "benchmarks.measure.ofarrays limits"
        ),
        "steps": Recipe(
            "figures/GPU-steps.json", "25 metrics of all rungs", f"{profile} {RUNGS} 16,4096,64 --set steps"
        ),
        "balance": Recipe(
            "figures/GPU-balance.json",
            "why warps wait, and how long multiprocessors are idle",
            f"{profile} float4 flash split split8 4,16384,64 --set stalls --set balance",
        ),
        "lengths-profile": Recipe(
            "figures/GPU-lengths-profile.json",
            "bytes of each level over N",
            f"{profile} naive smallbr shared flash split 4,4096,64 --sweep 512,1024,2048,4096,8192 --set memory",
        ),
        "tiles-profile": Recipe(
            "figures/GPU-tiles-profile.json",
            "`flash` by tile: global and shared memory, occupancy",
            f"{profile} flash 4,16384,64 {tiles('128x32 64x32 32x32 128x64 64x64 128x16')} {metrics}",
        ),
        "rows-profile": Recipe(
            "figures/GPU-rows-profile.json",
            "`smallbr` with more rows in a block: bytes",
            f"{profile} smallbr 4,4096,64 {tiles('1x32 2x32 4x32 8x32 16x32')} --set memory",
        ),
        "article": Recipe(
            "figures/GPU-article.json",
            "`half` on TileLang's workload, by the metrics of the article",
            f"{profile} half tilelang --set memory",
        ),
        "atomics": Recipe(
            "figures/GPU-atomics.json",
            "gradients whose dQ is added up by atomics, and two that have no atomics",
            f"{profile} backward_atomic backward_once backward_wgmma lm8k --set memory --set stalls",
        ),
        "traffic": Recipe("GPU-traffic.csv", "bytes that kernels move", "benchmarks.measure.traffic"),
        "cache": Recipe(
            "GPU-cache.csv",
            "what the L2 cache holds, of a buffer that is read twice: a part by each multiprocessor, or all by all",
            "benchmarks.measure.cache",
        ),
        "roofs": Recipe("roofs/GPU.json", "what the GPU reaches at best", "hw4cli bench roofs"),
        "blocks": Recipe(
            "timelines/GPU-blocks.json",
            "what the warps of one block do, by the clock",
            f"{profile} flash split 4,16384,64 --set timeline",
        ),
        "blocks-half": Recipe(
            "timelines/GPU-half.json",
            "the same of `half`, whose copies, products and exponentials overlap",
            f"{profile} half lm8k --set timeline",
        ),
    }


def of_many_gpus() -> dict[str, Recipe]:
    """Several GPUs, and nodes."""
    return {
        "scaling": Recipe(
            "scaling/GPU.json",
            "one file, and one sequence of arrays, over several GPUs of a host; goes on with what was cut off",
            "benchmarks.measure.scaling --gpus 1,2,4,8 --sequence",
        ),
        "nodes": Recipe(
            "scaling/nodes.json",
            "one file over two nodes of a Slurm on this machine, by CPU ranks",
            "benchmarks.measure.nodes",
        ),
    }


GROUPS: dict[str, dict[str, Recipe]] = {
    "Kernels of files, and programs": of_files(),
    "Over N, and energy": of_lengths(),
    "Arrays": of_arrays(),
    "Gradients": of_gradients(),
    "Counters, rates, timelines": of_counters(),
    "Several GPUs, and nodes": of_many_gpus(),
}
RECIPES: dict[str, Recipe] = {name: recipe for group in GROUPS.values() for name, recipe in group.items()}
